// SPDX-License-Identifier: Apache-2.0
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <deque>
#include <optional>
#include <sstream>
#include <unordered_map>

#include "tests/support/net_lab.h"

namespace headgate::lab {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::microseconds;

// linux/in.h; not in every netinet/in.h
constexpr int kIpBindAddressNoPort = 24;

struct Address {
  sockaddr_storage storage{};
  socklen_t length = 0;
  int family = AF_UNSPEC;
  [[nodiscard]] const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
};

Address parse(const std::string& text, std::uint16_t port) {
  Address address;
  auto* v4 = reinterpret_cast<sockaddr_in*>(&address.storage);
  auto* v6 = reinterpret_cast<sockaddr_in6*>(&address.storage);
  if (::inet_pton(AF_INET, text.c_str(), &v4->sin_addr) == 1) {
    v4->sin_family = AF_INET;
    v4->sin_port = htons(port);
    address.family = AF_INET;
    address.length = sizeof(sockaddr_in);
  } else if (::inet_pton(AF_INET6, text.c_str(), &v6->sin6_addr) == 1) {
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons(port);
    address.family = AF_INET6;
    address.length = sizeof(sockaddr_in6);
  } else {
    throw SetupError("\"" + text + "\" is no address");
  }
  return address;
}

void raise_file_limit() {
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < files.rlim_max) {
    files.rlim_cur = files.rlim_max;
    (void)::setrlimit(RLIMIT_NOFILE, &files);
  }
}

// The kernel names the state in which the RST came: ECONNREFUSED in SYN_SENT, EPIPE in CLOSE_WAIT,
// ECONNRESET in every other (tcp_reset() in net/ipv4/tcp_input.c).
Outcome outcome_of(int error) {
  switch (error) {
    case ECONNREFUSED: return Outcome::kRefused;
    case ECONNRESET:
    case EPIPE: return Outcome::kResetAfterConnect;
    case ETIMEDOUT: return Outcome::kTimedOut;
    default: return Outcome::kOther;
  }
}

class Driver {
 public:
  explicit Driver(const ConnectOptions& options)
      : options_(options),
        to_(parse(options.address, options.port)),
        epoll_(::epoll_create1(EPOLL_CLOEXEC)),
        start_(Clock::now()) {
    for (const std::string& source : options.sources) {
      sources_.push_back(parse(source, 0));
    }
    if (sources_.empty() && options.source_port != 0) {
      sources_.push_back(parse(to_.family == AF_INET ? "0.0.0.0" : "::", 0));
    }
    report_.attempts.reserve(options.attempts);
  }

  ConnectReport run() {
    raise_file_limit();
    bool more = options_.attempts > 0;
    while (more || !flights_.empty()) {
      while (more && flights_.size() < options_.parallel && Clock::now() >= due()) {
        more = !(options_.stop && options_.stop());
        if (more) {
          begin();
          more = report_.attempts.size() < options_.attempts;
        }
      }
      wait(more && flights_.size() < options_.parallel);
    }
    return std::move(report_);
  }

 private:
  struct Flight {
    UniqueFd fd;
    std::size_t index = 0;
    Clock::time_point began;
    bool connected = false;
    microseconds connect_latency{0};
    std::size_t echoed_bytes = 0;
  };
  static constexpr std::size_t kMessageBytes = sizeof(std::uint64_t);

  [[nodiscard]] Clock::time_point due() const {
    if (options_.per_second <= 0) {
      return start_;
    }
    return start_ + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(
                        static_cast<double>(report_.attempts.size()) / options_.per_second));
  }

  static microseconds since(Clock::time_point from) {
    return std::chrono::duration_cast<microseconds>(Clock::now() - from);
  }

  void begin() {
    const std::size_t index = report_.attempts.size();
    Flight flight;
    flight.index = index;
    flight.began = Clock::now();
    report_.attempts.emplace_back().began = since(start_);
    int error = open_and_connect(flight, index);
    // The client itself still holds an earlier connection from this port (its last ACK is under
    // way): nothing was sent. This attempt and all later ones take the next port.
    for (unsigned skipped = 1; error == EADDRNOTAVAIL && skipped < options_.source_ports;
         ++skipped) {
      ++ports_skipped_;
      error = open_and_connect(flight, index);
    }
    if (error != 0) {
      finish(flight, flight.fd ? outcome_of(error) : Outcome::kOther, error);
      return;
    }
    const int fd = flight.fd.get();
    epoll_event event{};
    event.events = EPOLLOUT;
    event.data.fd = fd;
    if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) {
      finish(flight, Outcome::kOther, errno);
      return;
    }
    deadlines_.push_back({flight.began + options_.timeout, fd, index});
    flights_.emplace(fd, std::move(flight));
  }

  /// 0: under way; else errno.
  int open_and_connect(Flight& flight, std::size_t index) {
    flight.fd.reset(::socket(to_.family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    const bool under_way =
        flight.fd && bind_source(flight.fd.get(), index) &&
        (::connect(flight.fd.get(), to_.get(), to_.length) == 0 || errno == EINPROGRESS);
    return under_way ? 0 : errno;
  }

  bool bind_source(int fd, std::size_t index) {
    if (sources_.empty()) {
      return true;
    }
    Address from = sources_[index % sources_.size()];
    const int one = 1;
    if (options_.source_port != 0) {
      const auto port = static_cast<std::uint16_t>(options_.source_port +
                                                   (index / sources_.size() + ports_skipped_) %
                                                       options_.source_ports);
      reinterpret_cast<sockaddr_in*>(&from.storage)->sin_port = htons(port);  // same in sin6
      if (::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) != 0) {
        return false;
      }
    } else if (::setsockopt(fd, IPPROTO_IP, kIpBindAddressNoPort, &one, sizeof(one)) != 0) {
      // The port is chosen at connect, when the whole 4-tuple is known: 64k a destination.
      return false;
    }
    return ::bind(fd, from.get(), from.length) == 0;
  }

  void wait(bool may_begin) {
    Clock::time_point until = Clock::now() + std::chrono::milliseconds(100);
    if (may_begin) {
      until = std::min(until, due());
    }
    drop_settled_deadlines();
    if (!deadlines_.empty()) {
      until = std::min(until, deadlines_.front().at);
    }
    // Rounded up to a millisecond (epoll_pwait2 is too new): what is due then begins together.
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now());
    std::array<epoll_event, 64> events{};
    const int ready = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()),
                                   static_cast<int>(std::max<std::int64_t>(0, left.count())));
    for (int i = 0; i < ready; ++i) {
      advance(events[static_cast<std::size_t>(i)].data.fd);
    }
    drop_settled_deadlines();
    while (!deadlines_.empty() && deadlines_.front().at <= Clock::now()) {
      const int fd = deadlines_.front().fd;
      settle(fd, flights_.at(fd).connected ? Outcome::kUnconfirmed : Outcome::kTimedOut, ETIMEDOUT);
      drop_settled_deadlines();
    }
  }

  void drop_settled_deadlines() {
    while (!deadlines_.empty()) {
      const auto flight = flights_.find(deadlines_.front().fd);
      if (flight != flights_.end() && flight->second.index == deadlines_.front().index) {
        return;
      }
      deadlines_.pop_front();
    }
  }

  void advance(int fd) {
    const auto found = flights_.find(fd);
    if (found == flights_.end()) {
      return;
    }
    Flight& flight = found->second;
    if (!flight.connected) {
      int error = 0;
      socklen_t length = sizeof(error);
      ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length);
      if (error != 0) {
        settle(fd, outcome_of(error), error);
        return;
      }
      flight.connected = true;
      flight.connect_latency = since(flight.began);
      if (options_.confirm == Confirm::kNone) {
        settle(fd, Outcome::kConnected, 0);
        return;
      }
      if (options_.confirm == Confirm::kEcho) {
        const std::uint64_t message = flight.index;
        if (::send(fd, &message, sizeof(message), MSG_NOSIGNAL) !=
            static_cast<ssize_t>(sizeof(message))) {
          settle(fd, outcome_of(errno), errno);
          return;
        }
      }
      epoll_event event{};
      event.events = EPOLLIN;
      event.data.fd = fd;
      ::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd, &event);
      return;
    }
    std::array<char, 64> data{};
    const ssize_t got = ::recv(fd, data.data(), data.size(), 0);
    if (got < 0) {
      if (errno != EAGAIN && errno != EINTR) {
        settle(fd, outcome_of(errno), errno);
      }
    } else if (got == 0) {
      settle(fd, options_.confirm == Confirm::kPeerClose ? Outcome::kConnected : Outcome::kOther,
             0);
    } else {
      flight.echoed_bytes += static_cast<std::size_t>(got);
      if (options_.confirm == Confirm::kEcho && flight.echoed_bytes >= kMessageBytes) {
        settle(fd, Outcome::kConnected, 0);
      }
    }
  }

  void settle(int fd, Outcome outcome, int error) {
    auto node = flights_.extract(fd);
    finish(node.mapped(), outcome, error);
  }

  void finish(Flight& flight, Outcome outcome, int error) {
    Attempt& attempt = report_.attempts[flight.index];
    attempt.outcome = outcome;
    attempt.sys_errno = error;
    attempt.latency = outcome == Outcome::kConnected ? flight.connect_latency : since(flight.began);
    if (!flight.fd) {
      return;
    }
    if (outcome == Outcome::kConnected && options_.keep_open) {
      ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, flight.fd.get(), nullptr);
      report_.open.push_back(std::move(flight.fd));
      return;
    }
    if (!options_.end_by_fin) {
      const linger reset{1, 0};
      ::setsockopt(flight.fd.get(), SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
    }
    flight.fd.reset();
  }

  struct Deadline {
    Clock::time_point at;
    int fd;
    std::size_t index;
  };

  const ConnectOptions& options_;
  Address to_;
  std::vector<Address> sources_;
  UniqueFd epoll_;
  Clock::time_point start_;
  ConnectReport report_;
  std::unordered_map<int, Flight> flights_;
  unsigned ports_skipped_ = 0;
  std::deque<Deadline> deadlines_;  // in order: all have the same time limit
};

}  // namespace

const char* to_string(Outcome outcome) {
  switch (outcome) {
    case Outcome::kConnected: return "connected";
    case Outcome::kRefused: return "refused";
    case Outcome::kResetAfterConnect: return "reset after connect";
    case Outcome::kTimedOut: return "timed out";
    case Outcome::kUnconfirmed: return "unconfirmed";
    case Outcome::kOther: return "other";
  }
  return "?";
}

std::uint64_t ConnectReport::count(Outcome outcome) const {
  return static_cast<std::uint64_t>(
      std::count_if(attempts.begin(), attempts.end(),
                    [&](const Attempt& attempt) { return attempt.outcome == outcome; }));
}

microseconds ConnectReport::latency(Outcome outcome, double share) const {
  std::vector<microseconds> all;
  for (const Attempt& attempt : attempts) {
    if (attempt.outcome == outcome) {
      all.push_back(attempt.latency);
    }
  }
  if (all.empty()) {
    return microseconds(0);
  }
  const auto at =
      std::min(all.size() - 1, static_cast<std::size_t>(share * static_cast<double>(all.size())));
  std::nth_element(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(at), all.end());
  return all[at];
}

std::string ConnectReport::describe() const {
  std::ostringstream text;
  text << attempts.size() << " attempts:";
  for (const Outcome outcome : {Outcome::kConnected, Outcome::kRefused, Outcome::kResetAfterConnect,
                                Outcome::kTimedOut, Outcome::kUnconfirmed, Outcome::kOther}) {
    if (const std::uint64_t n = count(outcome); n > 0) {
      text << " " << n << " " << to_string(outcome) << " (" << latency(outcome, 0.5).count()
           << " us median, " << latency(outcome, 1).count() << " us at most);";
    }
  }
  for (const Attempt& attempt : attempts) {
    if (attempt.outcome == Outcome::kOther) {
      text << " first other: " << std::strerror(attempt.sys_errno);
      break;
    }
  }
  return text.str();
}

ConnectReport connect_many(const Namespace& netns, const ConnectOptions& options) {
  ConnectReport report;
  netns.run([&] { report = Driver(options).run(); });
  return report;
}

DatagramReport send_datagrams(const Namespace& netns, const DatagramOptions& options) {
  DatagramReport report;
  netns.run([&] {
    const Address to = parse(options.address, options.port);
    const UniqueFd fd(::socket(to.family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    if (!options.source.empty()) {
      const Address from = parse(options.source, 0);
      if (::bind(fd.get(), from.get(), from.length) != 0) {
        throw SetupError("bind to " + options.source + ": " + std::strerror(errno));
      }
    }
    // Connected, so that an ICMP error is told: by the next call, which then sends nothing.
    if (!fd || ::connect(fd.get(), to.get(), to.length) != 0) {
      throw SetupError("UDP to " + options.address + ": " + std::strerror(errno));
    }
    const std::string payload(options.bytes, 'h');
    const Clock::time_point start = Clock::now();
    while (report.sent < options.datagrams) {
      const double due_s = static_cast<double>(report.sent) / options.per_second;
      std::this_thread::sleep_until(start + std::chrono::duration_cast<Clock::duration>(
                                                std::chrono::duration<double>(due_s)));
      if (::send(fd.get(), payload.data(), payload.size(), 0) ==
          static_cast<ssize_t>(payload.size())) {
        ++report.sent;
      } else if (errno == ECONNREFUSED) {
        ++report.refused;
      } else if (errno != EINTR && errno != ENOBUFS && errno != EAGAIN) {
        throw SetupError("UDP to " + options.address + ": " + std::strerror(errno));
      }
    }
    int error = 0;
    socklen_t length = sizeof(error);
    ::getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &length);
    report.refused += error == ECONNREFUSED ? 1 : 0;
  });
  return report;
}

}  // namespace headgate::lab
