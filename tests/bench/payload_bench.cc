// SPDX-License-Identifier: Apache-2.0
// What live bytes cost admitted traffic: CPU time of client, server and softirq together, with the
// programs on cgroup_skb attached and without, in turn, so that each round meets the same machine;
// the median of the ratios of neighbours. sock_ops is attached in both.
//
// payload_bench [ROUNDS]
// Exit: 0, or 1 on an error. The aim is 2 %; the machine's noise is printed beside it.
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "tests/bench/must.h"
#include "tests/netns/gate_lab.h"

namespace headgate {
namespace {

using lab::GateLab;
using lab::Pair;
using lab::SetupError;

constexpr std::size_t kBulkBytes = std::size_t{1} << 20;

/// CPU seconds of this process, softirqs that ran on its time included.
double cpu_s() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto s = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
  };
  return s(usage.ru_utime) + s(usage.ru_stime);
}

void read_all(int fd, char* to, std::size_t bytes) {
  for (std::size_t done = 0; done < bytes;) {
    const ssize_t got = ::recv(fd, to + done, bytes - done, 0);
    if (got <= 0) {
      throw SetupError("recv");
    }
    done += static_cast<std::size_t>(got);
  }
}

/// Serves one connection after another on a thread of its own: a header of 64 bytes says how much
/// body follows, the answer has 64 bytes.
class Server {
 public:
  explicit Server(const lab::Namespace& netns) {
    netns.run([&] {
      listener_ = UniqueFd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
      sockaddr_in any{};
      any.sin_family = AF_INET;
      socklen_t bytes = sizeof(any);
      if (::bind(listener_.get(), reinterpret_cast<sockaddr*>(&any), bytes) != 0 ||
          ::listen(listener_.get(), 64) != 0 ||
          ::getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&any), &bytes) != 0) {
        throw SetupError("listen");
      }
      port_ = ntohs(any.sin_port);
    });
    thread_ = std::thread([this] { serve(); });
  }
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;
  ~Server() {
    ::shutdown(listener_.get(), SHUT_RDWR);
    thread_.join();
  }
  [[nodiscard]] std::uint16_t port() const { return port_; }

 private:
  void serve() {
    std::vector<char> buffer(kBulkBytes);
    const std::string answer = "HTTP/1.1 200 OK\r\n\r\n" + std::string(45, 'y');
    while (true) {
      const UniqueFd fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (!fd) {
        return;
      }
      std::array<char, 64> header{};
      while (::recv(fd.get(), header.data(), header.size(), MSG_WAITALL) ==
             static_cast<ssize_t>(header.size())) {
        const auto body = static_cast<std::size_t>(std::atoll(header.data() + 5));  // NOLINT
        for (std::size_t left = body; left > 0;) {
          const ssize_t got = ::recv(fd.get(), buffer.data(), std::min(left, buffer.size()), 0);
          if (got <= 0) {
            return;
          }
          left -= static_cast<std::size_t>(got);
        }
        (void)::send(fd.get(), answer.data(), answer.size(), MSG_NOSIGNAL);
      }
    }
  }
  UniqueFd listener_;
  std::uint16_t port_ = 0;
  std::thread thread_;
};

UniqueFd connect_to(const std::string& address, std::uint16_t port) {
  UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(port);
  ::inet_pton(AF_INET, address.c_str(), &to.sin_addr);
  const int one = 1;
  ::setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
  const linger reset{1, 0};
  ::setsockopt(fd.get(), SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
  if (::connect(fd.get(), reinterpret_cast<sockaddr*>(&to), sizeof(to)) != 0) {
    throw SetupError("connect");
  }
  return fd;
}

void request(int fd, std::size_t body_bytes, const std::string& body) {
  std::string header = "POST " + std::to_string(body_bytes);
  header.resize(64, ' ');
  if (::send(fd, header.data(), header.size(), MSG_NOSIGNAL | (body_bytes > 0 ? MSG_MORE : 0)) !=
      64) {
    throw SetupError("send");
  }
  for (std::size_t done = 0; done < body_bytes;) {
    const ssize_t sent = ::send(fd, body.data() + done, body_bytes - done, MSG_NOSIGNAL);
    if (sent <= 0) {
      throw SetupError("send");
    }
    done += static_cast<std::size_t>(sent);
  }
  std::array<char, 64> answer{};
  read_all(fd, answer.data(), answer.size());
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

int bench(int rounds, const lab::Cgroup& cgroup) {
  cgroup.add(::getpid());  // the listener's cgroup is its children's
  GateLab gates(lab::unified_root());
  const Pair net;
  Server server(net.server);
  lab::Port port = gates.protect(net.server, server.port());
  gates.count_connections(port, cgroup, net.server);
  const std::string body(kBulkBytes, 'x');

  struct Load {
    const char* name;
    int times;
    std::function<void(int times)> run;
  };
  const std::string& to = net.at_server().ipv4;
  const std::vector<Load> loads = {
      {"new connection, 64 bytes", 1500,
       [&](int times) {
         for (int i = 0; i < times; ++i) {
           request(connect_to(to, server.port()).get(), 0, body);
         }
       }},
      {"new connection, 39 kB", 1000,
       [&](int times) {
         for (int i = 0; i < times; ++i) {
           request(connect_to(to, server.port()).get(), 39'000, body);
         }
       }},
      {"kept connection, 64 bytes", 6000,
       [&](int times) {
         const UniqueFd fd = connect_to(to, server.port());
         for (int i = 0; i < times; ++i) {
           request(fd.get(), 0, body);
         }
       }},
      {"kept connection, 1 MiB", 100,
       [&](int times) {
         const UniqueFd fd = connect_to(to, server.port());
         for (int i = 0; i < times; ++i) {
           request(fd.get(), kBulkBytes, body);
         }
       }},
  };
  std::printf("%-28s %12s %12s %9s %9s\n", "", "us without", "us with", "median", "noise");
  for (const Load& load : loads) {
    const auto measure = [&] {
      double spent = 0;
      net.client.run([&] {
        load.run(load.times / 10);
        const double before = cpu_s();
        load.run(load.times);
        spent = cpu_s() - before;
      });
      return spent / load.times * 1e6;
    };
    std::vector<double> ratios;
    std::vector<double> noise;
    double least_without = 1e9;
    double least_with = 1e9;
    for (int round = 0; round < rounds; ++round) {
      const double first = measure();
      gates.count_payload(port, cgroup, net.server);
      const double with = measure();
      gates.payload.release(port.target());
      const double second = measure();
      ratios.push_back(with / ((first + second) / 2));
      noise.push_back(second / first);
      least_without = std::min({least_without, first, second});
      least_with = std::min(least_with, with);
    }
    std::printf("%-28s %12.2f %12.2f %8.3fx %8.3fx\n", load.name, least_without, least_with,
                median(ratios), median(noise));
  }
  return 0;
}

}  // namespace
}  // namespace headgate

int main(int argc, char** argv) {
  using namespace headgate;  // NOLINT: the end of the file
  return run_bench(lab::missing_for_kernel_tests() + lab::missing_for_sock_ops(), [&] {
    const int rounds = argc > 1 ? std::max(1, std::atoi(argv[1])) : 25;  // NOLINT: a number or 1
    const lab::Cgroup cgroup("bench");
    // The cgroup goes with the processes in it: a child joins it, this process removes it.
    const pid_t child = ::fork();
    if (child == 0) {
      const int status = run_bench("", [&] { return bench(rounds, cgroup); });
      std::fflush(stdout);
      ::_exit(status);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
  });
}
