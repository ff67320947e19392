// SPDX-License-Identifier: Apache-2.0
#include "agent/hooks/requests_self_test.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <fstream>
#include <memory>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "agent/base/hash.h"
#include "agent/base/unique_fd.h"
#include "agent/dataplane/net.h"
#include "agent/dataplane/programs.h"
#include "agent/hooks/cgroup_directory.h"

namespace headgate {
namespace {

using std::chrono::steady_clock;

constexpr int kPatience_ms = 1000;
constexpr int kRefusals = 3;
constexpr Duration kQuarantine = std::chrono::seconds(10);

Result<UniqueFd> tcp_socket(int flags) {
  UniqueFd out(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | flags, 0));
  if (!out) {
    return sys_fail(errno, "socket");
  }
  const int one = 1;
  (void)::setsockopt(out.get(), IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
  return out;
}

sockaddr_in loopback(std::uint16_t port) {
  sockaddr_in out{};
  out.sin_family = AF_INET;
  out.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  out.sin_port = htons(port);
  return out;
}

bool readable(int fd, int patience_ms) {
  pollfd poll_fd{fd, POLLIN, 0};
  return ::poll(&poll_fd, 1, patience_ms) == 1 && (poll_fd.revents & POLLIN) != 0;
}

bool send_all(int fd, std::string_view text) {
  return ::send(fd, text.data(), text.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(text.size());
}

/// What comes until `bytes` are there, or nothing more for a while.
std::string receive(int fd, std::size_t bytes) {
  std::string out;
  std::array<char, 4096> buffer{};
  while (out.size() < bytes && readable(fd, kPatience_ms)) {
    const ssize_t got = ::recv(fd, buffer.data(), buffer.size(), MSG_DONTWAIT);
    if (got <= 0) {
      break;
    }
    out.append(buffer.data(), static_cast<std::size_t>(got));
  }
  return out;
}

/// Path of this process's group below the v2 root; the root where it cannot be told.
std::string own_cgroup(const std::string& unified_root) {
  std::ifstream file("/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("0::/")) {
      const std::string path = unified_root + line.substr(3);
      struct stat st {};
      if (line.find("/..") == std::string::npos && ::stat(path.c_str(), &st) == 0) {
        return path;
      }
    }
  }
  return unified_root;
}

Result<std::uint32_t> own_netns() {
  struct stat st {};
  if (::stat("/proc/self/ns/net", &st) != 0) {
    return sys_fail(errno, "stat /proc/self/ns/net");
  }
  return static_cast<std::uint32_t>(st.st_ino);
}

/// A target of our own, with everything that a real one has in the kernel; gone with its scope.
class Stage {
 public:
  static Result<std::unique_ptr<Stage>> set(KernelMaps& maps, const std::string& unified_root);
  ~Stage();
  Stage(const Stage&) = delete;
  Stage& operator=(const Stage&) = delete;
  Stage(Stage&&) = delete;
  Stage& operator=(Stage&&) = delete;

  /// Every request is refused, or none.
  void refuse(bool all);
  /// Connects a client; accept() takes it.
  [[nodiscard]] Result<> connect();
  [[nodiscard]] Result<> accept();
  [[nodiscard]] int client() const { return client_.get(); }
  [[nodiscard]] int server() const { return server_.get(); }
  [[nodiscard]] Result<std::uint64_t> unread() const { return diag_->unread_bytes(port_); }

 private:
  explicit Stage(KernelMaps& maps) : maps_(maps) {}
  [[nodiscard]] Result<> listen();
  [[nodiscard]] Result<> enter(std::uint32_t netns);
  [[nodiscard]] Result<> count_connections(const std::string& unified_root, std::uint32_t netns);

  KernelMaps& maps_;
  Instant now_ = steady_clock::now();
  bool claimed_ = false;
  std::uint32_t target_ = 0, endpoint_ = 0, rest_ = 0;
  headgate_endpoint_key flow_{};
  bool mapped_ = false;
  std::uint16_t port_ = 0;
  PinDirectory unpinned_;
  Link link_;
  UniqueFd netns_fd_;
  std::unique_ptr<SockDiag> diag_;
  UniqueFd listener_, client_, server_;
};

Result<std::unique_ptr<Stage>> Stage::set(KernelMaps& maps, const std::string& unified_root) {
  std::unique_ptr<Stage> out(new Stage(maps));
  const auto netns = own_netns();
  if (!netns) {
    return tl::unexpected<Error>(netns.error());
  }
  out->netns_fd_ = UniqueFd(::open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC));
  auto diag = SockDiag::open(out->netns_fd_.get());
  if (!diag) {
    return tl::unexpected<Error>(diag.error());
  }
  out->diag_ = std::move(*diag);
  if (auto done = out->listen(); !done) {
    return tl::unexpected<Error>(done.error());
  }
  if (auto done = out->enter(*netns); !done) {
    return tl::unexpected<Error>(done.error());
  }
  if (auto done = out->count_connections(unified_root, *netns); !done) {
    return tl::unexpected<Error>(done.error());
  }
  return out;
}

Stage::~Stage() {
  // Sockets before the rest: none must be in the map whose port is nobody's.
  server_.reset();
  client_.reset();
  listener_.reset();
  link_.detach();
  if (mapped_) {
    maps_.unmap_flow(flow_);
  }
  if (claimed_) {
    maps_.release_endpoint(endpoint_, now_);
    maps_.release_endpoint(rest_, now_);
    maps_.release_target(target_, now_);
  }
}

Result<> Stage::listen() {
  auto listener = tcp_socket(0);
  if (!listener) {
    return tl::unexpected<Error>(listener.error());
  }
  listener_ = std::move(*listener);
  sockaddr_in address = loopback(0);
  socklen_t bytes = sizeof(address);
  auto* plain = reinterpret_cast<sockaddr*>(&address);  // NOLINT: socket API
  if (::bind(listener_.get(), plain, bytes) != 0 || ::listen(listener_.get(), 8) != 0 ||
      ::getsockname(listener_.get(), plain, &bytes) != 0) {
    return sys_fail(errno, "listen on loopback");
  }
  port_ = ntohs(address.sin_port);
  return {};
}

Result<> Stage::enter(std::uint32_t netns) {
  const std::uint64_t name = fnv1a("the self-test of the request gate");
  const auto target = maps_.claim_target(name, 1, netns, now_, kQuarantine);
  if (!target) {
    return tl::unexpected<Error>(target.error());
  }
  const auto endpoint = maps_.claim_endpoint(name, *target, port_, IPPROTO_TCP, now_, kQuarantine);
  const auto rest = maps_.claim_endpoint(name, *target, port_, IPPROTO_TCP, now_, kQuarantine, 1);
  if (!endpoint || !rest) {
    maps_.release_target(*target, now_);
    return tl::unexpected<Error>(endpoint ? rest.error() : endpoint.error());
  }
  target_ = *target;
  endpoint_ = *endpoint;
  rest_ = *rest;
  claimed_ = true;
  headgate_target_policy lease{};
  lease.valid_until_ns = to_ktime_ns(now_ + std::chrono::minutes(1));
  maps_.store_target(target_, lease);
  headgate_endpoint_policy own{};
  own.target = target_;
  maps_.store(endpoint_, own);
  refuse(false);
  headgate_request_port rules{};
  rules.rest = rest_;
  rules.flags = HEADGATE_REQUESTS_HTTP1 | HEADGATE_REQUESTS_REFUSE;
  rules.retry_after_min_s = rules.retry_after_max_s = 1;
  rules.first_bytes_max = 65536;
  rules.generation = 1;
  if (auto set = maps_.set_requests(endpoint_, rules, {}); !set) {
    return set;
  }
  flow_.netns_id = netns;
  flow_.port = port_;
  flow_.protocol = IPPROTO_TCP;
  if (auto mapped = maps_.map_flow(flow_, {endpoint_, HEADGATE_REF_REQUESTS}); !mapped) {
    return mapped;
  }
  mapped_ = true;
  return {};
}

/// Connections of a listener belong to the group of the process that made it.
Result<> Stage::count_connections(const std::string& unified_root, std::uint32_t netns) {
  const auto cgroup = open_cgroup(own_cgroup(unified_root));
  if (!cgroup) {
    return tl::unexpected<Error>(cgroup.error());
  }
  const auto program = load_program(Program::kSockOps, {netns, target_}, maps_);
  if (!program) {
    return tl::unexpected<Error>(program.error());
  }
  auto link =
      Link::attach(*program, cgroup->fd.get(), BPF_CGROUP_SOCK_OPS, cgroup->id, unpinned_, "self");
  if (!link) {
    return tl::unexpected<Error>(link.error());
  }
  link_ = std::move(*link);
  return {};
}

void Stage::refuse(bool all) {
  headgate_endpoint_policy policy{};
  policy.target = target_;
  policy.level = HEADGATE_LEVEL_ROUTE;
  policy.parent = endpoint_;
  for (unsigned reason = 1; reason < HEADGATE_REASON_COUNT; ++reason) {
    policy.actions |= static_cast<std::uint64_t>(HEADGATE_ACTION_HTTP_429) << (8 * reason);
  }
  policy.flags = all ? HEADGATE_ARM_CIRCUIT : 0;
  maps_.store(rest_, policy);
}

Result<> Stage::connect() {
  auto client = tcp_socket(0);
  if (!client) {
    return tl::unexpected<Error>(client.error());
  }
  client_ = std::move(*client);
  const sockaddr_in address = loopback(port_);
  if (::connect(client_.get(), reinterpret_cast<const sockaddr*>(&address),  // NOLINT: socket API
                sizeof(address)) != 0) {
    return sys_fail(errno, "connect on loopback");
  }
  return {};
}

Result<> Stage::accept() {
  if (!readable(listener_.get(), kPatience_ms)) {
    return fail("a connection on loopback was not there to accept");
  }
  server_ = UniqueFd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  return server_ ? Result<>{} : Result<>(sys_fail(errno, "accept"));
}

std::string request(std::string_view head, std::size_t bytes) {
  std::string out = fmt::format("{} HTTP/1.1\r\nHost: self-test\r\n", head);
  const std::size_t fixed = out.size() + std::string_view("X-Fill: \r\n\r\n").size();
  return out + "X-Fill: " + std::string(bytes > fixed ? bytes - fixed : 0, 'x') + "\r\n\r\n";
}

/// What is sent before accept(2) arrives.
Result<> data_before_accept(Stage& stage) {
  if (auto connected = stage.connect(); !connected) {
    return connected;
  }
  const std::string first = request("GET /", 200);
  if (!send_all(stage.client(), first)) {
    return sys_fail(errno, "send on loopback");
  }
  ::usleep(2000);  // so that it is there before
  if (auto accepted = stage.accept(); !accepted) {
    return accepted;
  }
  const std::string got = receive(stage.server(), first.size());
  if (got != first) {
    return fail(fmt::format("of {} bytes that were sent before accept(2) {} arrived", first.size(),
                            got.size()));
  }
  return {};
}

/// A small segment behind data that had not been read arrives.
Result<> data_behind_unread(Stage& stage) {
  const std::string body(1000, 'b');
  const std::string tail(100, 't');
  const std::string head = "POST / HTTP/1.1\r\nHost: self-test\r\nContent-Length: 2100\r\n\r\n";
  const std::size_t before = head.size() + 2 * body.size();
  if (!send_all(stage.client(), head + body) || !send_all(stage.client(), body)) {
    return sys_fail(errno, "send on loopback");
  }
  ::usleep(2000);
  const std::size_t got = receive(stage.server(), before).size();
  if (!send_all(stage.client(), tail)) {
    return sys_fail(errno, "send on loopback");
  }
  const std::size_t rest = receive(stage.server(), tail.size()).size();
  if (got != before || rest != tail.size()) {
    return fail(fmt::format("of {} unread bytes {} arrived, and of {} behind them {}", before, got,
                            tail.size(), rest));
  }
  return {};
}

/// The refused request is answered as long as it is, and the server's side of the connection is as
/// if it had never come.
Result<> refusal(Stage& stage) {
  stage.refuse(true);
  for (int i = 0; i < kRefusals; ++i) {
    const std::string refused = request("GET /refused", 200);
    if (!send_all(stage.client(), refused)) {
      return sys_fail(errno, "send on loopback");
    }
    const std::string answer = receive(stage.client(), refused.size());
    if (!answer.starts_with("HTTP/1.1 429 ") || answer.size() != refused.size()) {
      return fail(fmt::format("a refused request was answered by {} bytes, not by a 429 of {}",
                              answer.size(), refused.size()));
    }
    const auto unread = stage.unread();
    if (!unread) {
      return tl::unexpected<Error>(unread.error());
    }
    if (*unread != 0) {
      return fail(fmt::format("{} bytes of a refused request count as unread", *unread));
    }
  }
  stage.refuse(false);
  const std::string admitted = request("GET /admitted", 150);
  if (!send_all(stage.client(), admitted) || receive(stage.server(), admitted.size()) != admitted) {
    return fail("a request behind refused ones did not arrive whole");
  }
  return {};
}

}  // namespace

Result<> test_request_refusal(KernelMaps& maps, const std::string& unified_root) {
  auto stage = Stage::set(maps, unified_root);
  if (!stage) {
    return tl::unexpected<Error>(stage.error());
  }
  const std::string answer = "HTTP/1.1 204 No Content\r\n\r\n";
  const auto answered = [&]() -> Result<> {
    if (!send_all((*stage)->server(), answer) ||
        receive((*stage)->client(), answer.size()) != answer) {
      return fail("an answer did not arrive");
    }
    return {};
  };
  for (const auto& test : {data_before_accept, data_behind_unread, refusal}) {
    if (auto sound = test(**stage); !sound) {
      return sound;
    }
    if (auto done = answered(); !done) {
      return done;
    }
  }
  return {};
}

}  // namespace headgate
