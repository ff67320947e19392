// SPDX-License-Identifier: Apache-2.0
#include "deploy/demo/report.h"

#include <unistd.h>

#include <cmath>
#include <cstdio>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace headgate::demo {
namespace {

constexpr std::string_view kBold = "\x1b[1m";
constexpr std::string_view kRed = "\x1b[31m";
constexpr std::string_view kGreen = "\x1b[32m";
constexpr std::string_view kYellow = "\x1b[33m";
constexpr std::string_view kDim = "\x1b[2m";

std::string painted(bool colour, std::string_view code, std::string_view text) {
  return colour ? fmt::format("{}{}\x1b[0m", code, text) : std::string(text);
}

double mib(std::uint64_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

std::string latency_cell(std::optional<double> s, double deadline_s) {
  if (!s) {
    return "-";
  }
  return *s >= deadline_s ? fmt::format(">{:.0f} s", deadline_s)
                          : fmt::format("{:.0f} ms", *s * 1e3);
}

nlohmann::json number_or_null(std::optional<double> value) {
  return value ? nlohmann::json(*value) : nlohmann::json(nullptr);
}

nlohmann::json run_json(const Run& run, const Limits& limits) {
  nlohmann::json phases = nlohmann::json::array();
  for (const PhaseSummary& p : summarise(run, limits)) {
    phases.push_back({{"name", p.phase.name},
                      {"seconds", p.phase.seconds},
                      {"offered", p.offered},
                      {"offered_per_s", p.phase.rate_per_s},
                      {"served", p.ok},
                      {"served_per_s", p.served_per_s},
                      {"served_soon_per_s", p.served_soon_per_s},
                      {"refused", p.refused},
                      {"refused_ratio", p.refused_ratio},
                      {"settled_refused_ratio", p.settled_refused_ratio},
                      {"surge", p.surge},
                      {"timed_out", p.timed_out},
                      {"reset", p.reset},
                      {"http_error", p.http_error},
                      {"deferred", p.deferred},
                      {"critical_offered", p.critical_offered},
                      {"critical_served", p.critical_ok},
                      {"critical_p99_seconds", number_or_null(p.critical_p99_s)},
                      {"p50_seconds", number_or_null(p.p50_s)},
                      {"p99_seconds", number_or_null(p.p99_s)},
                      {"cpu_of_quota_ratio", p.cpu_of_quota},
                      {"periods", p.periods},
                      {"throttled_periods", p.throttled},
                      {"memory_peak_bytes", p.memory_peak_bytes},
                      {"sockets_peak", p.sockets_peak},
                      {"restarts", p.restarts},
                      {"oom_kills", p.oom_kills},
                      {"back_seconds", number_or_null(p.back_s)},
                      {"generator_lag_p99_seconds", p.lag_p99_s}});
  }
  nlohmann::json restarts = nlohmann::json::array();
  for (const Restart& r : run.restarts) {
    restarts.push_back({{"at_seconds", r.t_s}, {"oom", r.oom}, {"how", r.how}});
  }
  nlohmann::json json = {{"phases", std::move(phases)}, {"restarts", std::move(restarts)}};
  if (run.with_headgate) {
    json["headgate"] = {{"cpu_cores", run.agent_cpu_cores},
                        {"resident_bytes", run.agent_rss_bytes},
                        {"refused_requests", run.agent_refused_requests
                                                 ? nlohmann::json(*run.agent_refused_requests)
                                                 : nlohmann::json(nullptr)},
                        {"failure", run.agent_failure.empty() ? nlohmann::json(nullptr)
                                                              : nlohmann::json(run.agent_failure)}};
  }
  return json;
}

std::string_view word(Conclusion c) {
  switch (c) {
    case Conclusion::kSaved: return "saved";
    case Conclusion::kNotSaved: return "not_saved";
    case Conclusion::kInconclusive: return "inconclusive";
  }
  return "inconclusive";
}

}  // namespace

Live::Live() : colour_(isatty(STDOUT_FILENO) == 1) {}

void Live::announce(std::string_view text) {
  fmt::print("{}\n", text);
  std::fflush(stdout);
}

void Live::begin(const Run& run) {
  phase_.clear();
  fmt::print("\n{}\n{}\n",
             painted(colour_, kBold, run.with_headgate ? "WITH HEADGATE" : "WITHOUT HEADGATE"),
             painted(colour_, kDim,
                     "   s  phase           offered/s  served/s  refused/s  failed/s      p99    "
                     "CPU  memory  sockets  restarts"));
  std::fflush(stdout);
}

void Live::show(const Run& run, const Second& second, const Limits& limits) {
  double begin_s = 0;
  std::string phase = run.phases.back().label;
  for (const Phase& p : run.phases) {
    if (second.t_s <= begin_s + p.seconds + 0.05) {
      phase = p.label;
      break;
    }
    begin_s += p.seconds;
  }
  const Sample& last = run.samples.back();
  const Sample& first = run.samples[run.samples.size() > 10 ? run.samples.size() - 11 : 0];
  const double dt_s = last.t_s - first.t_s;
  const double cpu = dt_s <= 0 ? 0
                               : static_cast<double>(last.usage_ns - first.usage_ns) / 1e9 / dt_s /
                                     limits.cpu_cores;
  const auto number = [&](std::uint64_t n, std::size_t width, std::string_view code) {
    const std::string text = fmt::format("{:>{}}", n, width);
    return n > 0 ? painted(colour_, code, text) : text;
  };
  const bool starved = second.served * 10 < second.offered && second.refused == 0;
  fmt::print("{:>4.0f}  {:<15} {:>9}  {}  {}  {}  {:>7}  {:>3.0f} %  {:>4.0f} M  {:>7}  {}\n",
             second.t_s, phase == phase_ ? "" : phase, second.offered,
             painted(colour_, starved ? kRed : kGreen, fmt::format("{:>8}", second.served)),
             number(second.refused, 9, kYellow), number(second.failed, 8, kRed),
             latency_cell(second.p99_s, limits.deadline_s), cpu * 100, mib(last.memory_bytes),
             last.sockets, number(run.restarts.size(), 8, kRed));
  phase_ = phase;
  std::fflush(stdout);
}

void print_table(const Outcomes& outcomes, const Verdict& verdict, const Limits& limits) {
  const bool colour = isatty(STDOUT_FILENO) == 1;
  std::vector<PhaseSummary> without, with;
  if (outcomes.unprotected) {
    without = summarise(*outcomes.unprotected, limits);
  }
  if (outcomes.with_headgate) {
    with = summarise(*outcomes.with_headgate, limits);
  }
  const bool classes = has_critical(without) || has_critical(with);
  fmt::print(
      "\n{}\n",
      painted(colour, kBold,
              fmt::format(
                  "phase          Headgate  offered/s  served/s     p50      p99  refused  failed"
                  "    CPU  throttled  memory  sockets  restarts{}",
                  classes ? "  critical served, p99" : "")));
  const auto row = [&](const PhaseSummary& p, std::string_view name, std::string_view headgate) {
    const double offered = std::max(1.0, static_cast<double>(p.offered));
    fmt::print(
        "{:<14} {:<8}  {:>9.0f}  {:>8.0f}  {:>6}  {:>7}  {:>5.1f} %  {:>4.0f} %  {:>3.0f} %  "
        "{:>4}/{:<4}  {:>4.0f} M  {:>7}  {:>8}{}\n",
        name, headgate, static_cast<double>(p.offered) / p.phase.seconds, p.served_per_s,
        latency_cell(p.p50_s, limits.deadline_s), latency_cell(p.p99_s, limits.deadline_s),
        p.refused_ratio * 100,
        static_cast<double>(p.timed_out + p.reset + p.http_error) / offered * 100,
        p.cpu_of_quota * 100, p.throttled, p.periods, mib(p.memory_peak_bytes), p.sockets_peak,
        p.oom_kills > 0 ? fmt::format("{} (OOM)", p.restarts) : std::to_string(p.restarts),
        p.critical_offered == 0 ? std::string()
                                : fmt::format("         {:>5.1f} %  {:>7}", critical_share(p) * 100,
                                              latency_cell(p.critical_p99_s, limits.deadline_s)));
  };
  for (std::size_t i = 0; i < std::max(without.size(), with.size()); ++i) {
    if (i < without.size()) {
      row(without[i], without[i].phase.label, "without");
    }
    if (i < with.size()) {
      row(with[i], i < without.size() ? "" : with[i].phase.label, "with");
    }
  }
  if (outcomes.with_headgate && outcomes.with_headgate->agent_failure.empty()) {
    fmt::print("\nHeadgate itself used {:.1f} % of one core and {:.0f} MiB.\n",
               outcomes.with_headgate->agent_cpu_cores * 100,
               mib(outcomes.with_headgate->agent_rss_bytes));
  }
  fmt::print("\n");
  for (const Check& check : verdict.checks) {
    fmt::print("  {}  {:<44} {:<28} promised: {}\n",
               check.kept ? painted(colour, kGreen, "kept  ") : painted(colour, kRed, "BROKEN"),
               check.what, check.measured, check.promised);
  }
  for (const std::string& doubt : verdict.doubts) {
    fmt::print("  {}  {}\n", painted(colour, kYellow, "doubt "), doubt);
  }
  const std::string_view code = verdict.conclusion == Conclusion::kSaved      ? kGreen
                                : verdict.conclusion == Conclusion::kNotSaved ? kRed
                                                                              : kYellow;
  fmt::print("\n{}\n", painted(colour, fmt::format("{}{}", kBold, code), verdict.sentence));
}

std::string json_report(const Outcomes& outcomes, const Verdict& verdict, const Options& options) {
  const Calibration& c = outcomes.calibration;
  nlohmann::json checks = nlohmann::json::array();
  for (const Check& check : verdict.checks) {
    checks.push_back({{"what", check.what},
                      {"measured", check.measured},
                      {"promised", check.promised},
                      {"kept", check.kept}});
  }
  const nlohmann::json json = {
      {"schema", 1},
      {"subject", outcomes.subject_title},
      {"machine", outcomes.machine},
      {"seed", options.seed},
      {"strategy", options.protection.strategy},
      {"refuse", options.protection.refuse},
      {"traffic", to_string(options.traffic)},
      {"verdict", word(verdict.conclusion)},
      {"sentence", verdict.sentence},
      {"checks", std::move(checks)},
      {"doubts", verdict.doubts},
      {"limits",
       {{"cpu_cores", options.limits.cpu_cores},
        {"memory_bytes", options.limits.memory_bytes},
        {"deadline_seconds", options.limits.deadline_s}}},
      {"calibration",
       {{"capacity_per_s", c.capacity_per_s},
        {"light_units", c.light_units},
        {"heavy_units", c.heavy_units},
        {"light_cost_seconds", c.light_cost_s},
        {"heavy_cost_seconds", c.heavy_cost_s},
        {"quota_reached_ratio", c.quota_reached}}},
      {"without", outcomes.unprotected ? run_json(*outcomes.unprotected, options.limits)
                                       : nlohmann::json(nullptr)},
      {"with", outcomes.with_headgate ? run_json(*outcomes.with_headgate, options.limits)
                                      : nlohmann::json(nullptr)}};
  return json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace headgate::demo
