// SPDX-License-Identifier: Apache-2.0
#include "agent/web/control_socket.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <list>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "agent/base/log.h"
#include "agent/base/unique_fd.h"
#include "agent/web/accept.h"

namespace headgate {
namespace {

using json = nlohmann::ordered_json;
using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr int kSchema = 1;
constexpr std::size_t kRequestBytesMax = 4096;
constexpr std::size_t kAnswerBytesMax = 256U << 20;
/// A verb sends its line at once and reads the answer at once.
constexpr milliseconds kPeerTimeout{1000};
constexpr std::size_t kPeersMax = 32;  ///< above it the one nearest to its end is dropped

Result<sockaddr_un> address_of(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof(address.sun_path)) {
    return fail(fmt::format("socket path '{}' has {} bytes, allowed are 1 to {}", path, path.size(),
                            sizeof(address.sun_path) - 1));
  }
  path.copy(address.sun_path, path.size());
  return address;
}

const sockaddr* generic(const sockaddr_un& address) {
  return reinterpret_cast<const sockaddr*>(&address);  // NOLINT: the socket API wants it
}

UniqueFd stream_socket() { return UniqueFd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)); }

/// For the calls that block; 0 would mean for ever.
void set_timeouts(int fd, milliseconds timeout) {
  timeout = std::max(timeout, milliseconds(1));
  timeval value{};
  value.tv_sec = timeout.count() / 1000;
  value.tv_usec = (timeout.count() % 1000) * 1000;
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &value, sizeof(value));
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &value, sizeof(value));
}

Result<void> send_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t sent = send(fd, text.data(), text.size(), MSG_NOSIGNAL);
    if (sent < 0) {
      if (errno == EINTR) continue;
      return sys_fail(errno, "send");
    }
    text.remove_prefix(static_cast<std::size_t>(sent));
  }
  return {};
}

/// Reads up to the first line end, which is not part of the result; until `deadline` in all.
Result<std::string> receive_line(int fd, std::size_t bytes_max, Clock::time_point deadline) {
  std::string text;
  std::array<char, 16384> buffer{};
  while (true) {
    set_timeouts(fd, std::chrono::ceil<milliseconds>(deadline - Clock::now()));
    const ssize_t received = recv(fd, buffer.data(), buffer.size(), 0);
    if (received < 0) {
      if (errno == EINTR) continue;
      return sys_fail(errno, "receive");
    }
    const std::string_view chunk(buffer.data(), static_cast<std::size_t>(received));
    const auto end = chunk.find('\n');
    text += chunk.substr(0, end);
    if (text.size() > bytes_max) {
      break;
    }
    if (end != std::string_view::npos) {
      return text;
    }
    if (received == 0) {
      return fail("the other side closed the connection before the end of the line");
    }
    if (Clock::now() >= deadline) {
      return sys_fail(EAGAIN, "receive");
    }
  }
  return fail(fmt::format("a line of more than {} bytes", bytes_max));
}

std::string dump(const json& value) {
  return value.dump(-1, ' ', false, json::error_handler_t::replace);
}

std::string answer_error(std::string_view message) {
  return dump({{"schema", kSchema}, {"ok", false}, {"error", message}});
}
std::string answer_ok(const json& result) {
  return dump({{"schema", kSchema}, {"ok", true}, {"result", result}});
}

std::string answer_of(const std::function<Result<void>()>& handler) {
  if (!handler) {
    return answer_error("this agent cannot do that");
  }
  const auto done = handler();
  return done ? answer_ok(nullptr) : answer_error(done.error().message);
}

std::string answer_of(const std::function<Result<std::string>()>& handler, bool is_json) {
  if (!handler) {
    return answer_error("this agent cannot do that");
  }
  const auto text = handler();
  if (!text) {
    return answer_error(text.error().message);
  }
  if (!is_json) {
    return answer_ok(*text);
  }
  // The text is put in as it is: parsing the state of 250 targets only to print it again is waste.
  return fmt::format("{{\"schema\":{},\"ok\":true,\"result\":{}}}", kSchema, *text);
}

class UnixControlServer final : public ControlServer {
 public:
  UnixControlServer(std::string path, Handlers handlers)
      : path_(std::move(path)), handlers_(std::move(handlers)) {}
  UnixControlServer(const UnixControlServer&) = delete;
  UnixControlServer& operator=(const UnixControlServer&) = delete;
  UnixControlServer(UnixControlServer&&) = delete;
  UnixControlServer& operator=(UnixControlServer&&) = delete;

  ~UnixControlServer() override {
    if (thread_.joinable()) {
      eventfd_write(stop_.get(), 1);
      thread_.join();
    }
    struct stat now {};
    if (listener_ && stat(path_.c_str(), &now) == 0 && now.st_ino == inode_ &&
        now.st_dev == device_) {
      unlink(path_.c_str());
    }
  }

  Result<void> start() {
    auto address = address_of(path_);
    if (!address) {
      return tl::unexpected<Error>(address.error());
    }
    std::error_code error;
    const auto directory = std::filesystem::path(path_).parent_path();
    if (!directory.empty() && std::filesystem::create_directories(directory, error)) {
      std::filesystem::permissions(directory, std::filesystem::perms(0755), error);
    }
    if (error) {
      return fail(fmt::format("socket {}: cannot make the directory {}: {}", path_,
                              directory.string(), error.message()));
    }
    if (auto cleared = clear_stale(*address); !cleared) {
      return cleared;
    }
    stop_.reset(eventfd(0, EFD_CLOEXEC));
    UniqueFd listener(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!stop_ || !listener) {
      return sys_fail(errno, fmt::format("socket {}", path_));
    }
    // bind() makes the file with the mode of the socket's own inode (unix(7)), so that there is no
    // moment in which others could connect.
    if (fchmod(listener.get(), 0600) != 0 ||
        bind(listener.get(), generic(*address), sizeof(*address)) != 0 ||
        listen(listener.get(), 64) != 0) {
      return sys_fail(errno, fmt::format("socket {}: cannot listen", path_));
    }
    struct stat made {};
    if (stat(path_.c_str(), &made) != 0) {
      return sys_fail(errno, fmt::format("socket {}", path_));
    }
    inode_ = made.st_ino;
    device_ = made.st_dev;
    listener_ = std::move(listener);
    thread_ = std::thread([this] { serve(); });
    return {};
  }

 private:
  Result<void> clear_stale(const sockaddr_un& address) const {
    struct stat there {};
    if (lstat(path_.c_str(), &there) != 0) {
      return {};
    }
    if (!S_ISSOCK(there.st_mode)) {
      return fail(
          fmt::format("socket {}: something that is no socket has this name; remove it or "
                      "choose another path with --socket",
                      path_));
    }
    const UniqueFd probe = stream_socket();
    if (connect(probe.get(), generic(address), sizeof(address)) == 0) {
      return fail(
          fmt::format("socket {}: another agent is listening on it; stop it or choose "
                      "another path with --socket",
                      path_));
    }
    if (errno != ECONNREFUSED) {
      return sys_fail(errno, fmt::format("socket {}: cannot tell whether an agent listens", path_));
    }
    if (unlink(path_.c_str()) != 0 && errno != ENOENT) {
      return sys_fail(errno,
                      fmt::format("socket {}: cannot replace the one of a dead agent", path_));
    }
    return {};
  }

  /// One client: sends a line, gets a line, or is dropped at its deadline.
  struct Peer {
    UniqueFd fd;
    Clock::time_point deadline;
    std::string in;
    std::string out;  ///< not empty: the answer, of which `sent` bytes are gone
    std::size_t sent = 0;
    bool done = false;
  };

  void serve() {
    std::vector<pollfd> fds;
    while (true) {
      fds.assign({{stop_.get(), POLLIN, 0}, {listener_.get(), POLLIN, 0}});
      for (const Peer& peer : peers_) {
        fds.push_back({peer.fd.get(), static_cast<short>(peer.out.empty() ? POLLIN : POLLOUT), 0});
      }
      if (poll(fds.data(), fds.size(), poll_timeout_ms()) < 0) {
        if (errno == EINTR) continue;
        log::error("the control socket does not work any more", {{"errno", errno}});
        return;
      }
      if (fds[0].revents != 0) {
        return;
      }
      std::size_t i = 2;
      for (Peer& peer : peers_) {
        if (fds[i++].revents != 0) {
          advance(peer);
        }
      }
      const auto now = Clock::now();
      peers_.remove_if([&](const Peer& peer) { return peer.done || peer.deadline <= now; });
      if (fds[1].revents != 0) {
        accept_new();
      }
    }
  }

  [[nodiscard]] int poll_timeout_ms() const {
    if (peers_.empty()) {
      return -1;
    }
    const auto left = std::chrono::ceil<milliseconds>(first_to_end()->deadline - Clock::now());
    return static_cast<int>(std::clamp<std::int64_t>(left.count(), 0, kPeerTimeout.count()));
  }

  [[nodiscard]] std::list<Peer>::const_iterator first_to_end() const {
    return std::min_element(peers_.begin(), peers_.end(),
                            [](const Peer& a, const Peer& b) { return a.deadline < b.deadline; });
  }

  void accept_new() {
    UniqueFd fd = accept_client(listener_.get());
    if (!fd) {
      return;
    }
    if (peers_.size() >= kPeersMax) {
      peers_.erase(first_to_end());
    }
    peers_.push_back({std::move(fd), Clock::now() + kPeerTimeout, {}, {}, 0, false});
  }

  void advance(Peer& peer) {
    if (peer.out.empty()) {
      read_request(peer);
    }
    if (!peer.out.empty()) {
      write_answer(peer);
    }
  }

  // The deadline of reading does not move: a request that comes byte by byte must end, too.
  void read_request(Peer& peer) {
    std::array<char, 16384> buffer{};
    const ssize_t received = recv(peer.fd.get(), buffer.data(), buffer.size(), 0);
    if (received < 0) {
      peer.done = errno != EAGAIN && errno != EINTR;
      return;
    }
    peer.in.append(buffer.data(), static_cast<std::size_t>(received));
    const auto end = peer.in.find('\n');
    if (std::min(end, peer.in.size()) > kRequestBytesMax) {
      answer(peer, fail(fmt::format("a line of more than {} bytes", kRequestBytesMax)));
    } else if (end != std::string::npos) {
      answer(peer, peer.in.substr(0, end));
    } else if (received == 0) {
      answer(peer, fail("the other side closed the connection before the end of the line"));
    }
  }

  void answer(Peer& peer, const Result<std::string>& request) {
    peer.out = answer_to_peer(peer.fd.get(), request) + "\n";
    peer.deadline = Clock::now() + kPeerTimeout;  // what the handler took is not the peer's
  }

  static void write_answer(Peer& peer) {
    const std::string_view rest = std::string_view(peer.out).substr(peer.sent);
    const ssize_t sent = send(peer.fd.get(), rest.data(), rest.size(), MSG_NOSIGNAL);
    if (sent < 0) {
      // A client that went away has no use for the answer.
      peer.done = errno != EAGAIN && errno != EINTR;
      return;
    }
    peer.sent += static_cast<std::size_t>(sent);
    peer.done = peer.sent == peer.out.size();
    peer.deadline = Clock::now() + kPeerTimeout;
  }

  [[nodiscard]] std::string answer_to_peer(int fd, const Result<std::string>& request) const {
    ucred credentials{};
    socklen_t size = sizeof(credentials);
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0 ||
        (credentials.uid != 0 && credentials.uid != geteuid())) {
      log::warn("refused a client of the control socket", {{"uid", credentials.uid}});
      return answer_error("only root may use this socket");
    }
    return request ? answer_to(*request) : answer_error(request.error().message);
  }

  [[nodiscard]] std::string answer_to(const std::string& line) const {
    const json request = json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!request.is_object() || !request.contains("verb") || !request["verb"].is_string()) {
      return answer_error("the request is not {\"verb\":\"...\"}");
    }
    const auto& verb = request["verb"].get_ref<const std::string&>();
    if (verb == "state") return answer_of(handlers_.state, true);
    if (verb == "config") return answer_of(handlers_.config, false);
    if (verb == "record") return record(request);
    if (verb == "off") return answer_of(handlers_.off);
    if (verb == "on") return answer_of(handlers_.on);
    if (verb == "reload") return answer_of(handlers_.reload);
    return answer_error(
        fmt::format("unknown verb '{}'; known are state, config, record, off, on, reload", verb));
  }

  [[nodiscard]] std::string record(const json& request) const {
    const auto target = request.find("target");
    const auto from = request.find("from");
    if (target == request.end() || !target->is_string() || from == request.end() ||
        !from->is_number_unsigned()) {
      return answer_error("the request is not {\"verb\":\"record\",\"target\":\"...\",\"from\":0}");
    }
    if (!handlers_.record) {
      return answer_error("this agent cannot do that");
    }
    const auto text = handlers_.record(target->get<std::string>(), from->get<std::uint64_t>());
    if (!text) {
      return answer_error(text.error().message);
    }
    return fmt::format("{{\"schema\":{},\"ok\":true,\"result\":{}}}", kSchema, *text);
  }

  std::string path_;
  Handlers handlers_;
  UniqueFd stop_;
  UniqueFd listener_;
  ino_t inode_ = 0;
  dev_t device_ = 0;
  std::list<Peer> peers_;  // of the thread alone
  std::thread thread_;
};

/// "result" of the answer, or its error.
Result<json> ask(const std::string& path, milliseconds timeout, const json& request) {
  const auto address = address_of(path);
  if (!address) {
    return tl::unexpected<Error>(address.error());
  }
  const UniqueFd fd = stream_socket();
  if (!fd) {
    return sys_fail(errno, "socket");
  }
  // Before connect, which waits where the agent's queue is full (unix_stream_connect, SO_SNDTIMEO).
  const auto deadline = Clock::now() + timeout;
  set_timeouts(fd.get(), timeout);
  const auto no_answer = [&] {
    return tl::unexpected<Error>(
        Error{fmt::format("{}: the agent did not answer within {} ms: it hangs, is stopped or gets "
                          "no CPU; when its lease ends the kernel admits everything",
                          path, timeout.count()),
              EAGAIN});
  };
  if (connect(fd.get(), generic(*address), sizeof(*address)) != 0) {
    const int cause = errno;
    if (cause == ENOENT || cause == ECONNREFUSED) {
      return tl::unexpected<Error>(
          Error{fmt::format("no agent is listening on {}: is headgate running? (--socket names "
                            "another path)",
                            path),
                cause});
    }
    if (cause == EACCES || cause == EPERM) {
      return tl::unexpected<Error>(
          Error{fmt::format("no permission to connect to {}: run this as root", path), cause});
    }
    if (cause == EAGAIN) {
      return no_answer();
    }
    return sys_fail(cause, fmt::format("connect to {}", path));
  }
  if (auto sent = send_all(fd.get(), dump(request) + "\n"); !sent) {
    return sent.error().sys_errno == EAGAIN ? no_answer()
                                            : tl::unexpected<Error>(sent.error().within(path));
  }
  const auto line = receive_line(fd.get(), kAnswerBytesMax, deadline);
  if (!line) {
    if (line.error().sys_errno == EAGAIN) {
      return no_answer();
    }
    return tl::unexpected<Error>(line.error().within(path));
  }
  json answer = json::parse(*line, nullptr, /*allow_exceptions=*/false);
  if (!answer.is_object() || !answer.contains("ok") || !answer["ok"].is_boolean()) {
    return fail(fmt::format("{}: what answers there is not a headgate agent", path));
  }
  if (!answer["ok"].get<bool>()) {
    const auto error = answer.find("error");
    return fail(error != answer.end() && error->is_string()
                    ? error->get<std::string>()
                    : fmt::format("{}: the agent refused without a reason", path));
  }
  return answer.contains("result") ? std::move(answer["result"]) : json(nullptr);
}

Result<void> tell(const std::string& path, milliseconds timeout, std::string_view verb) {
  auto answer = ask(path, timeout, {{"verb", verb}});
  if (!answer) {
    return tl::unexpected<Error>(answer.error());
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<ControlServer>> ControlServer::start(const std::string& path,
                                                            Handlers handlers) {
  auto server = std::make_unique<UnixControlServer>(path, std::move(handlers));
  if (auto started = server->start(); !started) {
    return tl::unexpected<Error>(started.error());
  }
  return server;
}

Result<std::string> ControlClient::state() const {
  const auto answer = ask(path_, timeout_, {{"verb", "state"}});
  if (!answer) {
    return tl::unexpected<Error>(answer.error());
  }
  return dump(*answer);
}

Result<std::string> ControlClient::config() const {
  const auto answer = ask(path_, timeout_, {{"verb", "config"}});
  if (!answer) {
    return tl::unexpected<Error>(answer.error());
  }
  if (!answer->is_string()) {
    return fail(fmt::format("{}: the answer is not a text", path_));
  }
  return answer->get<std::string>();
}

Result<ControlClient::Recorded> ControlClient::record(const std::string& target,
                                                      std::uint64_t from) const {
  const auto answer =
      ask(path_, timeout_, {{"verb", "record"}, {"target", target}, {"from", from}});
  if (!answer) {
    return tl::unexpected<Error>(answer.error());
  }
  try {
    return Recorded{
        answer->at("head").get<std::string>(), answer->at("lines").get<std::vector<std::string>>(),
        answer->at("next").get<std::uint64_t>(), answer->at("missed").get<std::uint64_t>()};
  } catch (const json::exception&) {
    return fail(fmt::format("{}: the answer is no part of a trace", path_));
  }
}

Result<void> ControlClient::off() const { return tell(path_, timeout_, "off"); }
Result<void> ControlClient::on() const { return tell(path_, timeout_, "on"); }
Result<void> ControlClient::reload() const { return tell(path_, timeout_, "reload"); }

}  // namespace headgate
