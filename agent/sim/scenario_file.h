// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "agent/config/load.h"
#include "agent/sim/scenario.h"

namespace headgate::sim {

/// A scenario from YAML, as strict as the configuration: unknown and duplicate keys, values out of
/// range and odd forms are problems with line and key. What is not given is as in the scenario of
/// `like`, or else the default. The keys (docs: see scenario_file_help()):
///
///   name: evening            # required
///   like: B10                # a named scenario to begin with
///   duration: 60s
///   overload: {from: 20s, to: 40s}
///   endpoints:               # replaces those of `like`
///     - {name: logs, criticality: critical, floor: 0.2, rate: 600, cost: 600us, size_kb: 10,
///        cost_per_kb: 140us, rate_factor: PROFILE, cost_factor: PROFILE, size_factor: PROFILE}
///   pod: {cpu: 2, workers: 8, quota: hard, capacity_factor: PROFILE, background_cpu: PROFILE,
///         refusal_cost: 0.001, answers: late}
///   requests: {arrivals: poisson, costs: random, heavy_share: 0.01, heavy_factor: 44}
///   clients: {timeout: 2s, retries: 3, backoff: 200ms, retry_timeouts: true}
///   connections: {life: 30s, requests_per_second: 10, close_share: 0.5}
///   memory: {limit: 512Mi, base: 150Mi, amplification: 4, drain_kb_per_second: PROFILE,
///            leak_mib_per_second: PROFILE, oom: kill, restart: 5s}
///   agent: {tick: 100ms, delay: 10ms, noise: 0.02}
///
/// PROFILE is a number, or one of
///   {steps: [{from: 20s, to: 40s, value: 10}], otherwise: 1}
///   {line: [{at: 10s, value: 1}, {at: 60s, value: 7.5}]}
///   {sine: {mean: 1.4, amplitude: 1.1, period: 4s}}
///   {pulse: {low: 1, high: 6, period: 10s, width: 1s, after: 10s}}
struct LoadedScenario {
  Scenario scenario;
  std::vector<Problem> problems;
  [[nodiscard]] bool valid() const;
};
[[nodiscard]] LoadedScenario load_scenario(std::string_view text, const std::string& file);
/// Reads the file too; one that cannot be read is one problem.
[[nodiscard]] LoadedScenario load_scenario_file(const std::string& path);

/// The keys with what they are and what is allowed, for --help.
[[nodiscard]] std::string scenario_file_help();

}  // namespace headgate::sim
