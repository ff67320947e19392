// SPDX-License-Identifier: Apache-2.0
// What a refused request of HTTP/1.1 costs the server, by the kernel's 429 and by the server's own;
// and what the gate costs requests that are admitted. CPU time of the server's cgroup (and of the
// clients, where the whole is asked for) a request, on connections that are kept; the cases in
// turn, so that each round meets the same machine; medians of the ratios of one round.
//
// requests_bench [ROUNDS]
// Exit: 0 when the bars are met, 1 when not or on an error.
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/bench/must.h"
#include "tests/netns/gate_lab.h"
#include "tests/support/child.h"
#include "tests/support/nginx.h"

namespace headgate {
namespace {

using lab::Child;
using lab::GateLab;
using lab::Pair;
using lab::Port;
using lab::SetupError;

constexpr std::uint16_t kPort = 8080;
constexpr std::size_t kConnections = 16;

double seconds_of(const timeval& t) {
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
}

/// CPU seconds of this process: the clients, and the softirqs that ran on their time.
double own_cpu_s() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return seconds_of(usage.ru_utime) + seconds_of(usage.ru_stime);
}

double cpu_s(const lab::Cgroup& cgroup) {
  if (!cgroup.is_v2("cpuacct")) {
    double ns = 0;
    std::ifstream(cgroup.directory("cpuacct") + "/cpuacct.usage") >> ns;
    return ns * 1e-9;
  }
  std::string key;
  double usec = 0;
  std::ifstream(cgroup.directory("cpu") + "/cpu.stat") >> key >> usec;  // usage_usec comes first
  return usec * 1e-6;
}

/// Clients that each keep a connection, and ask again when all have been answered.
class Clients {
 public:
  explicit Clients(const Pair& net) {
    net.client.run([&] {
      for (UniqueFd& fd : fds_) {
        fd = UniqueFd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
        sockaddr_in to{};
        to.sin_family = AF_INET;
        to.sin_port = htons(kPort);
        ::inet_pton(AF_INET, net.at_server().ipv4.c_str(), &to.sin_addr);
        const int one = 1;
        ::setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
        const timeval limit{5, 0};
        ::setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
        ::setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
        if (::connect(fd.get(), reinterpret_cast<sockaddr*>(&to), sizeof(to)) != 0) {
          throw SetupError("connect");
        }
      }
    });
  }
  /// At least so many requests; how many had this status.
  std::pair<int, int> ask(const std::string& request, int times, const std::string& status) {
    int asked = 0;
    int matched = 0;
    while (asked < times) {
      for (const UniqueFd& fd : fds_) {
        say(fd.get(), request);
      }
      for (const UniqueFd& fd : fds_) {
        matched += hear(fd.get()) == status ? 1 : 0;
        ++asked;
      }
    }
    return {asked, matched};
  }

 private:
  static void say(int fd, std::string_view text) {
    while (!text.empty()) {
      const ssize_t sent = ::send(fd, text.data(), text.size(), MSG_NOSIGNAL);
      if (sent <= 0) {
        throw SetupError("send");
      }
      text.remove_prefix(static_cast<std::size_t>(sent));
    }
  }
  /// The status of the next answer.
  std::string hear(int fd) {
    std::size_t have = 0;
    std::size_t whole = 0;
    std::string status;
    while (whole == 0 || have < whole) {
      const ssize_t got = ::recv(fd, buffer_.data() + have, buffer_.size() - have, 0);
      if (got <= 0) {
        throw SetupError("no answer");
      }
      have += static_cast<std::size_t>(got);
      const std::string_view text(buffer_.data(), have);
      const std::size_t end = text.find("\r\n\r\n");
      if (whole == 0 && end != std::string_view::npos) {
        const std::size_t at = text.find("Content-Length:");
        const std::size_t body =
            at < end ? std::strtoul(text.data() + at + std::strlen("Content-Length:"), nullptr, 10)
                     : 0;
        whole = end + 4 + body;
        status = text.substr(9, 3);
      }
    }
    return status;
  }

  std::array<UniqueFd, kConnections> fds_;
  std::vector<char> buffer_ = std::vector<char>(std::size_t{1} << 20U);
};

std::string post(const std::string& path, std::size_t body_bytes) {
  return "POST " + path +
         " HTTP/1.1\r\nHost: collector:8080\r\nUser-Agent: headgate-bench\r\nContent-Type: "
         "application/x-protobuf\r\nContent-Length: " +
         std::to_string(body_bytes) + "\r\n\r\n" + std::string(body_bytes, 'b');
}

/// The port, looked at or not, and a route for all its requests.
class Gate {
 public:
  Gate(const Pair& net, const lab::Cgroup& cgroup) : gates_(lab::unified_root()) {
    port_ = std::make_unique<Port>(gates_.protect(net.server, kPort));
    gates_.count_connections(*port_, cgroup, net.server);
    gates_.count_payload(*port_, cgroup, net.server);
    gates_.see_requests({{HEADGATE_STAGE_HTTP1, Program::kStreamHttp1}});
    rest_ = std::make_unique<Port>(*gates_.maps, 1, std::uint16_t{1}, IPPROTO_TCP);
    rest_->policy.level = HEADGATE_LEVEL_ROUTE;
    rest_->policy.parent = port_->slot();
    rest_->refuse_by(HEADGATE_ACTION_HTTP_429);
    headgate_request_port rules{};
    rules.rest = rest_->slot();
    rules.flags = HEADGATE_REQUESTS_HTTP1 | HEADGATE_REQUESTS_REFUSE;
    rules.retry_after_min_s = 1;
    rules.retry_after_max_s = 5;
    rules.first_bytes_max = 65536;
    const std::uint32_t slot = port_->slot();
    if (::bpf_map_update_elem(gates_.maps->fd("headgate_request_ports"), &slot, &rules, 0) != 0) {
      throw SetupError("headgate_request_ports");
    }
    key_.netns_id = net.server.inode();
    key_.port = kPort;
    key_.protocol = IPPROTO_TCP;
  }
  /// Of connections made from now on.
  void look(bool at_requests) {
    GateLab::must(
        gates_.maps->map_flow(key_, {port_->slot(), at_requests ? HEADGATE_REF_REQUESTS : 0U}));
  }
  void admit(bool all) {
    if (all) {
      rest_->open();
    } else {
      rest_->admit(0);
    }
  }

 private:
  GateLab gates_;
  std::unique_ptr<Port> port_, rest_;
  headgate_endpoint_key key_{};
};

/// What a request costs.
struct Cost {
  double server_us = 0;
  double whole_us = 0;  ///< server and clients
};

struct Case {
  const char* name;
  bool looked_at;
  bool admitted;
  const char* path;
  const char* status;
};
enum CaseIndex { kOwn, kRefused, kPlain, kGated, kPlainAgain, kCases };
constexpr std::array<Case, kCases> kCaseTable{{
    {"the server's own 429", false, true, "/own", "429"},
    {"429 of the kernel", true, false, "/", "429"},
    {"200, not looked at", false, true, "/", "200"},
    {"200, looked at, nothing refused", true, true, "/", "200"},
    {"200, not looked at, again", false, true, "/", "200"},
}};

class Bench {
 public:
  Bench(const Pair& net, const lab::Cgroup& cgroup)
      : net_(net), cgroup_(cgroup), gate_(net, cgroup) {}

  Cost measure(const Case& one, std::size_t body_bytes, int times) {
    gate_.look(one.looked_at);
    gate_.admit(one.admitted);
    Clients clients(net_);
    const std::string request = post(one.path, body_bytes);
    // Also: what comes before a connection is accepted is never refused.
    clients.ask(request, times / 10, one.status);
    const double server_before_s = cpu_s(cgroup_);
    const double own_before_s = own_cpu_s();
    const auto [asked, matched] = clients.ask(request, times, one.status);
    const double server_s = cpu_s(cgroup_) - server_before_s;
    const double own_s = own_cpu_s() - own_before_s;
    if (matched < asked - asked / 100) {
      throw SetupError(std::string(one.name) + ": only " + std::to_string(matched) + " of " +
                       std::to_string(asked) + " got " + one.status);
    }
    return {server_s / asked * 1e6, (server_s + own_s) / asked * 1e6};
  }

 private:
  const Pair& net_;
  const lab::Cgroup& cgroup_;
  Gate gate_;
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

struct Bars {
  double refused = 0;  ///< the kernel's 429 over the server's own, CPU of the server
};

/// True when the bars are met.
bool bench(const char* name, const Bars& bars, const std::function<void()>& serve, int rounds) {
  const Pair net;
  const lab::Cgroup cgroup("requests-bench");
  const Child server(net.server, cgroup, serve);
  Bench bench(net, cgroup);
  lab::ConnectOptions options;
  options.address = "127.0.0.1";
  options.port = kPort;
  options.confirm = lab::Confirm::kNone;
  if (!lab::eventually([&] {
        return lab::connect_many(net.server, options).count(lab::Outcome::kConnected) == 1;
      })) {
    throw SetupError(std::string(name) + " does not listen");
  }
  bool met = true;
  for (const auto& [body_bytes, times, admitted_bar] :
       {std::tuple{std::size_t{1000}, 6000, 1.05}, std::tuple{std::size_t{100'000}, 1600, 1.10}}) {
    std::array<std::vector<double>, kCases> server_us;
    std::vector<double> refused, admitted, whole, noise;
    for (int round = 0; round < rounds; ++round) {
      std::array<Cost, kCases> cost;
      for (std::size_t i = 0; i < kCases; ++i) {
        cost[i] = bench.measure(kCaseTable[i], body_bytes, times);
        server_us[i].push_back(cost[i].server_us);
      }
      const auto plain = [&](double Cost::*part) {
        return (cost[kPlain].*part + cost[kPlainAgain].*part) / 2;
      };
      refused.push_back(cost[kRefused].server_us / cost[kOwn].server_us);
      admitted.push_back(cost[kGated].server_us / plain(&Cost::server_us));
      whole.push_back(cost[kGated].whole_us / plain(&Cost::whole_us));
      noise.push_back(cost[kPlainAgain].whole_us / cost[kPlain].whole_us);
    }
    std::printf("%s, %zu bytes\n", name, body_bytes);
    for (std::size_t i = 0; i < kCases; ++i) {
      std::printf("  %-34s %8.2f us of the server\n", kCaseTable[i].name, median(server_us[i]));
    }
    const auto line = [&](const char* what, double ratio, double bar) {
      met = met && ratio <= bar;
      std::printf("  %-34s %7.3fx (bar %.2f%s)\n", what, ratio, bar,
                  ratio <= bar ? "" : ", MISSED");
    };
    line("refused: kernel's over own", median(refused), bars.refused);
    line("admitted: looked at over not", median(whole), admitted_bar);
    std::printf("  %-34s %7.3fx, noise %.3fx\n", "the same, server alone", median(admitted),
                median(noise));
    std::fflush(stdout);
  }
  return met;
}

int run(int rounds) {
  bool met = true;
  if (const std::string_view server = HEADGATE_REQUESTS_SERVER; server.empty()) {
    std::printf("Go is not installed (package golang-go): not measured\n");
  } else {
    met = bench(
        "Go net/http", {0.2},
        [] { ::execl(HEADGATE_REQUESTS_SERVER, "requests_server", "0.0.0.0:8080", nullptr); },
        rounds);
  }
  if (::access(lab::kNginx, X_OK) != 0) {
    std::printf("nginx is not installed (package nginx-light): not measured\n");
  } else {
    const lab::NginxDirectory directory(
        "master_process off;\nerror_log stderr crit;",
        "    location /own { return 429; }\n    location / { return 200 \"ok\\n\"; }");
    const std::vector<std::string> command = directory.command();
    std::vector<char*> arguments;
    for (const std::string& word : command) {
      arguments.push_back(const_cast<char*>(word.c_str()));  // NOLINT: execv writes to none
    }
    arguments.push_back(nullptr);
    met = bench(
              "nginx", {0.45}, [&] { ::execv(arguments[0], arguments.data()); }, rounds) &&
          met;
  }
  return met ? 0 : 1;
}

}  // namespace
}  // namespace headgate

int main(int argc, char** argv) {
  using namespace headgate;  // NOLINT: the end of the file
  return run_bench(lab::missing_for_kernel_tests() + lab::missing_for_sock_ops(), [&] {
    return run(argc > 1 ? std::max(1, std::atoi(argv[1])) : 9);  // NOLINT: a number or 1
  });
}
