// SPDX-License-Identifier: Apache-2.0
#include "deploy/demo/director.h"

#include <sys/resource.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <span>

#include <fmt/format.h>

#include "deploy/demo/calibrate.h"
#include "deploy/demo/clock.h"
#include "deploy/demo/collector.h"
#include "deploy/demo/headgate_process.h"
#include "deploy/demo/report.h"

namespace headgate::demo {
namespace {

/// The second before `t_s`, from the records as they are now.
Second last_second(const Run& run, std::span<const Record> records, double t_s) {
  Second s;
  s.t_s = t_s;
  std::vector<double> admitted;
  const auto at_us = [](double t) { return static_cast<std::uint32_t>(std::max(0.0, t) * 1e6); };
  const auto from =
      std::lower_bound(run.arrivals.begin(), run.arrivals.end(), at_us(t_s - 4),
                       [](const Arrival& a, std::uint32_t at) { return a.at_us < at; });
  for (auto a = from; a != run.arrivals.end() && a->at_us < at_us(t_s); ++a) {
    const Record& record = records[static_cast<std::size_t>(a - run.arrivals.begin())];
    const Outcome outcome = record.outcome.load(std::memory_order_acquire);
    s.offered += a->at_us >= at_us(t_s - 1) ? 1 : 0;
    const double latency_s = record.latency_us / 1e6;
    const double end_s = a->at_us / 1e6 + latency_s;
    if (outcome == Outcome::kNotSent || outcome == Outcome::kPending || end_s < t_s - 1 ||
        end_s >= t_s) {
      continue;
    }
    if (outcome == Outcome::kOk) {
      ++s.served;
      admitted.push_back(latency_s);
    } else if (outcome == Outcome::kRefused) {
      ++s.refused;
    } else {
      ++s.failed;
      admitted.push_back(latency_s);
    }
  }
  s.p99_s = quantile(admitted, 0.99);
  return s;
}

Result<Run> run_once(const Subject& subject, const Groups& groups, const Options& options,
                     const Calibration& calibration, bool with_headgate, Live& live) {
  Run run;
  run.with_headgate = with_headgate;
  run.traffic = options.traffic;
  run.phases = overload_story(calibration.capacity_per_s, options.seconds_scale, options.traffic,
                              subject.jump > 0);
  run.arrivals = poisson_arrivals(run.phases, options.seed, subject.groups);
  const LoadTarget target =
      load_target(subject, options.limits, calibration.light_units, calibration.heavy_units);

  auto shared = SharedRecords::create(run.arrivals.size());
  if (!shared) {
    return tl::unexpected(shared.error());
  }
  const std::span<Record> records = shared->records();
  auto collector = Collector::start(subject, groups, options.limits,
                                    fmt::format("{}/collector-{}.log", options.work_directory,
                                                with_headgate ? "with" : "without"));
  if (!collector) {
    return tl::unexpected(collector.error());
  }
  const Pins pins;
  std::optional<HeadgateProcess> agent;
  if (with_headgate) {
    auto started = HeadgateProcess::start(options.headgate, subject, groups, collector->group(),
                                          options.work_directory, pins.root(), options.protection);
    if (!started) {
      return tl::unexpected(started.error());
    }
    agent.emplace(std::move(*started));
    std::ofstream(options.work_directory + "/readyz.txt") << agent->get("/readyz?verbose").body;
  }

  const std::int64_t start_ns = now_ns() + 300'000'000;
  const std::function<Result<>()> load = [&] {
    return run_open_loop(target, run.phases, run.arrivals, start_ns, records);
  };
  auto generator = start_load(groups, collector->network(), options.work_directory, load);
  if (!generator) {
    return tl::unexpected(generator.error());
  }
  const double agent_cpu_before = agent ? agent->cpu_seconds() : 0;
  const double length_s = total_seconds(run.phases);
  live.begin(run);
  bool loading = true;
  for (int tick = 0; loading; ++tick) {
    sleep_until(start_ns + std::int64_t{tick} * 100'000'000);
    if (stop_requested()) {
      return interrupted();
    }
    const double t_s = static_cast<double>(now_ns() - start_ns) / 1e9;
    if (auto supervised = collector->supervise(t_s); !supervised) {
      return tl::unexpected(supervised.error());
    }
    run.samples.push_back(collector->sample(t_s));
    if (agent && run.agent_failure.empty()) {
      run.agent_failure = agent->failure();
    }
    if (tick > 0 && tick % 10 == 0 && t_s <= length_s + 0.5) {
      run.restarts = collector->restarts();
      live.show(run, last_second(run, records, static_cast<double>(tick / 10)), options.limits);
    }
    if (generator->reap()) {
      loading = false;
    } else if (t_s > length_s + options.limits.deadline_s + 5) {
      return fail("the load generator did not end in time");
    }
  }
  if (generator->status() != 0) {
    return fail(fmt::format("the load generator {}:{}", describe_status(generator->status()),
                            last_lines(options.work_directory + "/load.log", 5)));
  }
  run.restarts = collector->restarts();
  if (agent) {
    sleep_until(now_ns() + 1'000'000'000);  // its counters are read once a tick
  }
  if (agent && run.agent_failure.empty()) {
    run.agent_cpu_cores = (agent->cpu_seconds() - agent_cpu_before) / length_s;
    run.agent_rss_bytes = agent->resident_bytes();
    std::ofstream(options.work_directory + "/metrics.txt") << agent->get("/metrics").body;
    const std::string state = agent->get("/api/v1/state").body;
    std::ofstream(options.work_directory + "/state.json") << state;
    run.agent_refused_requests = refused_requests(state);
  }
  run.requests.reserve(records.size());
  for (const Record& r : records) {
    run.requests.push_back({r.lag_us / 1e6, r.connect_us / 1e6, r.latency_us / 1e6,
                            r.outcome.load(std::memory_order_acquire)});
  }
  return run;
}

}  // namespace

Result<Outcomes> direct(const Subject& subject, const Options& options) {
  // Sampling on time: the demo itself stays outside of the weighted groups.
  setpriority(PRIO_PROCESS, 0, -15);
  auto groups = Groups::create();
  if (!groups) {
    return tl::unexpected(groups.error());
  }
  Outcomes outcomes;
  outcomes.subject_title = subject.title;
  utsname system{};
  uname(&system);
  outcomes.machine = fmt::format("Linux {}, {} CPUs, cgroup {}", system.release,
                                 sysconf(_SC_NPROCESSORS_ONLN), groups->roots.name());
  Live live;
  live.announce(fmt::format("{}: {:.1f} cores, {} MiB; measuring its capacity ...", subject.title,
                            options.limits.cpu_cores, options.limits.memory_bytes >> 20));
  auto calibration =
      calibrate(subject, *groups, options.limits, options.seed, options.work_directory);
  if (!calibration) {
    return tl::unexpected(calibration.error().within("measure the collector's capacity"));
  }
  outcomes.calibration = *calibration;
  live.announce(fmt::format(
      "{:.0f} requests/s of {} {} ({:.1f} ms of CPU each); {} {} cost {:.1f} ms; {:.0f} % of the "
      "quota reached",
      calibration->capacity_per_s, calibration->light_units, subject.unit,
      calibration->light_cost_s * 1e3, calibration->heavy_units, subject.unit,
      calibration->heavy_cost_s * 1e3, calibration->quota_reached * 100));
  for (const bool with_headgate : {false, true}) {
    if (!(with_headgate ? options.run_protected : options.run_unprotected)) {
      continue;
    }
    auto run = run_once(subject, *groups, options, *calibration, with_headgate, live);
    if (!run) {
      return tl::unexpected(
          run.error().within(with_headgate ? "run with Headgate" : "run without Headgate"));
    }
    (with_headgate ? outcomes.with_headgate : outcomes.unprotected) = std::move(*run);
  }
  return outcomes;
}

}  // namespace headgate::demo
