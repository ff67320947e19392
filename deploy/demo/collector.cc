// SPDX-License-Identifier: Apache-2.0
#include "deploy/demo/collector.h"

#include <unistd.h>

#include <fstream>
#include <sstream>
#include <utility>

#include <fmt/format.h>

#include "deploy/demo/clock.h"
#include "deploy/demo/net.h"

namespace headgate::demo {
namespace {

constexpr double kRestartDelay_s = 1.0;

/// TCP sockets of the namespace of `pid`: established, half-open, closing; not those in TIME_WAIT.
std::uint64_t tcp_sockets(pid_t pid) {
  std::uint64_t sum = 0;
  for (const char* file : {"sockstat", "sockstat6"}) {
    std::ifstream in(fmt::format("/proc/{}/net/{}", pid, file));
    for (std::string line; std::getline(in, line);) {
      std::istringstream fields(line);
      std::string name, key;
      std::uint64_t value = 0;
      if (fields >> name >> key >> value && (name == "TCP:" || name == "TCP6:") && key == "inuse") {
        sum += value;
      }
    }
  }
  return sum;
}

}  // namespace

std::string last_lines(const std::string& file, std::size_t count) {
  std::ifstream in(file);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) {
    lines.push_back(line);
  }
  std::string text;
  for (std::size_t i = lines.size() > count ? lines.size() - count : 0; i < lines.size(); ++i) {
    text += "\n  " + lines[i];
  }
  return text;
}

Result<Groups> Groups::create() {
  auto roots = CgroupRoots::find();
  if (!roots) {
    return tl::unexpected(roots.error());
  }
  remove_stale_cgroups(*roots, kPrefix);
  auto controllers = RootControllers::enable(*roots);
  if (!controllers) {
    return tl::unexpected(controllers.error());
  }
  CgroupLimits weight;
  weight.heavy_weight = true;
  const std::string top = fmt::format("/{}{}", kPrefix, getpid());
  auto parent = Cgroup::create(*roots, top, weight, /*delegate=*/true);
  if (!parent) {
    return tl::unexpected(parent.error());
  }
  auto clients = Cgroup::create(*roots, top + "/clients", weight, /*delegate=*/false);
  if (!clients) {
    return tl::unexpected(clients.error());
  }
  auto agent = Cgroup::create(*roots, top + "/agent", weight, /*delegate=*/false);
  if (!agent) {
    return tl::unexpected(agent.error());
  }
  return Groups{*roots, std::move(*controllers), std::move(*parent), std::move(*clients),
                std::move(*agent)};
}

Result<Collector> Collector::start(const Subject& subject, const Groups& groups,
                                   const Limits& limits, std::string log_file) {
  auto network = Network::create();
  if (!network) {
    return tl::unexpected(network.error());
  }
  CgroupLimits group_limits;
  group_limits.cpu_cores = limits.cpu_cores;
  group_limits.memory_bytes = limits.memory_bytes;
  group_limits.heavy_weight = true;
  auto group = Cgroup::create(groups.roots, groups.parent.path() + "/collector", group_limits,
                              /*delegate=*/false);
  if (!group) {
    return tl::unexpected(group.error());
  }
  Spawn spawn_this;
  spawn_this.argv = subject.argv;
  spawn_this.environment = subject.environment;
  spawn_this.procs_files = group->procs_files();
  spawn_this.netns_fd = network->collector_fd();
  spawn_this.log_file = std::move(log_file);
  Collector collector(std::move(*network), std::move(*group), std::move(spawn_this));
  if (auto up = collector.wait_for(subject.port); !up) {
    return tl::unexpected(up.error());
  }
  return collector;
}

Result<> Collector::supervise(double t_s) {
  if (child_.running() && child_.reap()) {
    const std::uint64_t kills = group_.read().oom_kills;
    restarts_.push_back({t_s, kills > oom_kills_, describe_status(child_.status())});
    oom_kills_ = kills;
    start_at_s_ = t_s + kRestartDelay_s;
  }
  return !child_.running() && t_s >= start_at_s_ ? launch() : Result<>{};
}

Sample Collector::sample(double t_s) const {
  const CgroupReading r = group_.read();
  return {t_s,         r.usage_ns,     r.periods,
          r.throttled, r.memory_bytes, child_.running() ? tcp_sockets(child_.pid()) : 0};
}

Result<> Collector::launch() {
  auto pid = spawn(spawn_);
  if (!pid) {
    return tl::unexpected(pid.error());
  }
  child_ = Child(*pid);
  return {};
}

Result<> Collector::wait_for(std::uint16_t port) {
  if (auto launched = launch(); !launched) {
    return launched;
  }
  const std::int64_t give_up_ns = now_ns() + 15'000'000'000;
  const sockaddr_in address = address_of(Network::server_address(), port);
  bool up = false;
  while (!up) {
    if (stop_requested()) {
      return interrupted();
    }
    if (child_.reap()) {
      return fail(fmt::format("{} {} at its start:{}", spawn_.argv[0],
                              describe_status(child_.status()), last_lines(spawn_.log_file, 10)));
    }
    auto tried = within_netns(network_.clients_fd(), [&]() -> Result<> {
      up = try_connect(address, 200).valid();
      return {};
    });
    if (!tried) {
      return tried;
    }
    if (!up && now_ns() > give_up_ns) {
      return fail(fmt::format("{} does not listen on port {} after 15 s:{}", spawn_.argv[0], port,
                              last_lines(spawn_.log_file, 10)));
    }
    if (!up) {
      sleep_until(now_ns() + 50'000'000);
    }
  }
  return {};
}

}  // namespace headgate::demo
