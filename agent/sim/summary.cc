// SPDX-License-Identifier: Apache-2.0
#include "agent/sim/summary.h"

#include <algorithm>
#include <numeric>

#include "agent/sim/simulate.h"

namespace headgate::sim {
namespace {

/// Adds `part` times the metrics of one run.
void add(Metrics& sum, const Metrics& m, double part) {
  sum.goodput += part * m.goodput;
  sum.useful_work_s += part * m.useful_work_s;
  sum.p99_delay_ms += part * m.p99_delay_ms;
  sum.p50_delay_ms += part * m.p50_delay_ms;
  sum.peak_backlog_s += part * m.peak_backlog_s;
  sum.danger_s += part * m.danger_s;
  sum.total_variation += part * m.total_variation;
  sum.time_to_protect_s += part * m.time_to_protect_s;
  sum.time_to_recover_s += part * m.time_to_recover_s;
  sum.refused_share += part * m.refused_share;
  sum.false_refused_share += part * m.false_refused_share;
  sum.adherence += part * m.adherence;
  sum.memory_peak_mib = std::max(sum.memory_peak_mib, m.memory_peak_mib);
  sum.admitted_share.resize(m.admitted_share.size());
  for (std::size_t i = 0; i < m.admitted_share.size(); ++i) {
    sum.admitted_share[i] += part * m.admitted_share[i];
  }
}

double mean(const std::vector<double>& values) {
  return values.empty() ? 0
                        : std::accumulate(values.begin(), values.end(), 0.0) /
                              static_cast<double>(values.size());
}

}  // namespace

double quantile(std::vector<double> values, double q) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[static_cast<std::size_t>(q * static_cast<double>(values.size() - 1))];
}

Summary summarize(const Scenario& scenario, const Contender& contender, std::uint64_t first_seed,
                  std::size_t seeds) {
  Summary out;
  out.scenario = scenario.name;
  out.contender = contender.name;
  out.seeds = seeds;
  out.mean.adherence = 0;
  const double part = 1.0 / static_cast<double>(seeds);
  for (std::size_t i = 0; i < seeds; ++i) {
    const auto guard = contender.make(scenario);
    const Metrics m = simulate(scenario, *guard, {.seed = first_seed + i}).metrics;
    add(out.mean, m, part);
    out.flips += part * m.flips;
    out.oom_kills += part * m.oom_kills;
    out.goodput_min = i == 0 ? m.goodput : std::min(out.goodput_min, m.goodput);
    out.peak_backlog_max_s = std::max(out.peak_backlog_max_s, m.peak_backlog_s);
  }
  return out;
}

FuzzSummary fuzz(const Contender& contender, std::uint64_t first_seed, std::size_t scenarios) {
  constexpr double kMostGoodput = 1.3;
  FuzzSummary out;
  std::vector<double> goodput;
  std::vector<double> peak_s;
  std::vector<double> p99_ms;
  std::vector<double> danger_s;
  std::vector<double> variation;
  for (std::size_t i = 0; i < scenarios; ++i) {
    const Scenario scenario = random_scenario(first_seed + i);
    const auto guard = contender.make(scenario);
    FuzzOutcome outcome{first_seed + i, scenario.capacity_cores,
                        simulate(scenario, *guard, {.seed = 1}).metrics};
    goodput.push_back(std::min(kMostGoodput, outcome.metrics.goodput));
    peak_s.push_back(outcome.peak_s());
    p99_ms.push_back(outcome.metrics.p99_delay_ms);
    danger_s.push_back(outcome.metrics.danger_s);
    variation.push_back(outcome.metrics.total_variation);
    out.outcomes.push_back(std::move(outcome));
  }
  out.goodput_mean = mean(goodput);
  out.goodput_p10 = quantile(goodput, 0.1);
  out.goodput_p2 = quantile(goodput, 0.02);
  out.goodput_min = quantile(goodput, 0);
  out.peak_p50_s = quantile(peak_s, 0.5);
  out.peak_p90_s = quantile(peak_s, 0.9);
  out.peak_max_s = quantile(peak_s, 1);
  out.p99_delay_p90_ms = quantile(p99_ms, 0.9);
  out.danger_mean_s = mean(danger_s);
  out.total_variation_mean = mean(variation);
  return out;
}

}  // namespace headgate::sim
