// SPDX-License-Identifier: Apache-2.0
#include "deploy/demo/calibrate.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <span>

#include <fmt/format.h>

#include "deploy/demo/clock.h"
#include "deploy/demo/net.h"

namespace headgate::demo {
namespace {

constexpr std::size_t kClients = 8;
constexpr double kWarm_s = 1;
constexpr double kMeasured_s = 4;
constexpr double kLoad_s = 40;
constexpr std::ptrdiff_t kEnough = 20;

/// What a request cost while `load` ran.
struct Cost {
  double per_request_s = 0;
  double of_quota = 0;  ///< CPU used over the quota
};

/// Runs `load`, which must last kLoad_s, and looks at it from the second second on: for four
/// seconds, longer on a machine that has not served enough by then.
Result<Cost> measure(const Groups& groups, const Limits& limits, const std::string& work_directory,
                     const Collector& collector, std::span<Record> records,
                     const std::function<Result<>()>& load) {
  auto child = start_load(groups, collector.network(), work_directory, load);
  if (!child) {
    return tl::unexpected(child.error());
  }
  const auto served = [&] {
    return std::count_if(records.begin(), records.end(), [](const Record& r) {
      return r.outcome.load(std::memory_order_acquire) == Outcome::kOk;
    });
  };
  const std::int64_t start_ns = now_ns();
  const auto at = [&](double t_s) { return start_ns + static_cast<std::int64_t>(t_s * 1e9); };
  sleep_until(at(kWarm_s));
  const auto served_before = served();
  const CgroupReading before = collector.group().read();
  const std::int64_t from_ns = now_ns();
  sleep_until(at(kWarm_s + kMeasured_s));
  while (served() - served_before < kEnough && now_ns() < at(kLoad_s) && !stop_requested()) {
    sleep_until(now_ns() + 200'000'000);
  }
  const auto served_after = served();
  const CgroupReading after = collector.group().read();
  const std::int64_t to_ns = now_ns();
  if (stop_requested()) {
    return interrupted();
  }
  child->stop();
  sleep_until(now_ns() + 200'000'000);  // what it left under way
  const double cpu_s = static_cast<double>(after.usage_ns - before.usage_ns) / 1e9;
  if (served_after - served_before < kEnough || cpu_s <= 0) {
    return fail(fmt::format(
        "it served {} requests in {:.1f} s: nothing to measure by{}", served_after - served_before,
        static_cast<double>(to_ns - from_ns) / 1e9, last_lines(work_directory + "/load.log", 3)));
  }
  return Cost{cpu_s / static_cast<double>(served_after - served_before),
              cpu_s / (static_cast<double>(to_ns - from_ns) / 1e9) / limits.cpu_cores};
}

}  // namespace

LoadTarget load_target(const Subject& subject, const Limits& limits, std::size_t light,
                       std::size_t heavy) {
  LoadTarget target;
  target.server = address_of(Network::server_address(), subject.port);
  for (const std::string& address : Network::client_addresses()) {
    target.sources.push_back(address_of(address, 0).sin_addr);
  }
  for (std::size_t group = 0; group < subject.groups; ++group) {
    target.light.push_back(subject.request(group, light));
    target.heavy.push_back(subject.request(group, heavy));
    if (subject.jump > 0) {
      target.jump.push_back(subject.request(group, subject.jump));
    }
    if (subject.critical_request) {
      target.critical.push_back(subject.critical_request(group, light));
    }
  }
  target.traffic = subject.traffic;
  target.connections = subject.connections;
  target.refused_status = subject.refused_status;
  target.grpc_method = subject.grpc_method;
  target.deadline_us = static_cast<std::uint32_t>(limits.deadline_s * 1e6);
  return target;
}

Result<Child> start_load(const Groups& groups, const Network& network,
                         const std::string& work_directory, const std::function<Result<>()>& load) {
  Spawn what;
  what.procs_files = groups.clients.procs_files();
  what.netns_fd = network.clients_fd();
  what.log_file = work_directory + "/load.log";
  what.nice = -10;
  what.function = [&load] {
    const auto done = load();
    if (!done) {
      fmt::print(stderr, "{}\n", done.error().message);
    }
    std::fflush(stderr);
    return done ? 0 : 1;
  };
  auto pid = spawn(what);
  if (!pid) {
    return tl::unexpected(pid.error());
  }
  return Child(*pid);
}

Result<Calibration> calibrate(const Subject& subject, const Groups& groups, const Limits& limits,
                              std::uint64_t seed, const std::string& work_directory) {
  auto collector =
      Collector::start(subject, groups, limits, work_directory + "/collector-calibration.log");
  if (!collector) {
    return tl::unexpected(collector.error());
  }
  const LoadTarget target = load_target(subject, limits, subject.light, subject.heavy);
  const auto closed = [&](bool heavy) -> Result<Cost> {
    auto shared = SharedRecords::create(200'000);
    if (!shared) {
      return tl::unexpected(shared.error());
    }
    const std::span<Record> records = shared->records();
    return measure(groups, limits, work_directory, *collector, records,
                   [&] { return run_closed_loop(target, heavy, kClients, kLoad_s, records); });
  };
  const auto full = closed(/*heavy=*/false);
  if (!full) {
    return tl::unexpected(full.error());
  }
  const double rate_per_s = 0.55 * limits.cpu_cores / full->per_request_s;
  const std::vector<Phase> calm = {{"calm", "calm", PhaseKind::kCalm, kLoad_s, rate_per_s,
                                    subject.critical_request ? rate_per_s / 2 : 0}};
  const std::vector<Arrival> arrivals = poisson_arrivals(calm, seed, subject.groups);
  auto shared = SharedRecords::create(arrivals.size());
  if (!shared) {
    return tl::unexpected(shared.error());
  }
  const auto light = measure(groups, limits, work_directory, *collector, shared->records(), [&] {
    return run_open_loop(target, calm, arrivals, now_ns(), shared->records());
  });
  if (!light) {
    return tl::unexpected(light.error());
  }
  const auto heavy = closed(/*heavy=*/true);
  if (!heavy) {
    return tl::unexpected(heavy.error());
  }
  Calibration c;
  c.light_cost_s = light->per_request_s;
  c.capacity_per_s = limits.cpu_cores / light->per_request_s;
  c.quota_reached = std::max(full->of_quota, heavy->of_quota);
  c.light_units = subject.light;
  // Cost grows nearly in line with the size between the two that were measured in the same way.
  const auto units_between = static_cast<double>(subject.heavy - subject.light);
  const double slope = (heavy->per_request_s / full->per_request_s - 1) / units_between;
  const auto light_units = static_cast<double>(subject.light);
  const double units = slope > 0 ? light_units + 3 / slope : 0;
  c.heavy_units =
      static_cast<std::size_t>(std::clamp(std::round(units), 2 * light_units, 20 * light_units));
  c.heavy_cost_s =
      c.light_cost_s * (1 + slope * (static_cast<double>(c.heavy_units) - light_units));
  return c;
}

}  // namespace headgate::demo
