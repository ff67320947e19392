// SPDX-License-Identifier: Apache-2.0
// Scenarios from YAML: what is read, and what is said about what is wrong.
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "agent/sim/baselines.h"
#include "agent/sim/scenario_file.h"
#include "agent/sim/simulate.h"

namespace headgate::sim {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr std::string_view kMinimal = R"(
name: a
endpoints:
  - {name: e, rate: 100, cost: 2ms}
)";

std::string problems_of(std::string_view text) {
  std::string all;
  for (const Problem& p : load_scenario(text, "s.yaml").problems) all += to_string(p) + "\n";
  return all;
}

Scenario valid(std::string_view text) {
  LoadedScenario loaded = load_scenario(text, "s.yaml");
  for (const Problem& p : loaded.problems) ADD_FAILURE() << to_string(p);
  return std::move(loaded.scenario);
}

TEST(SimScenarioFile, WhatIsNotGivenHasItsDefault) {
  const Scenario s = valid(kMinimal);
  EXPECT_EQ(s.name, "a");
  EXPECT_EQ(s.capacity_cores, 2);
  EXPECT_EQ(s.duration_s, 60);
  ASSERT_EQ(s.endpoints.size(), 1U);
  EXPECT_EQ(s.endpoints[0].cost_s, 0.002);
  EXPECT_EQ(s.endpoints[0].criticality, Criticality::kCritical);
  EXPECT_FALSE(s.has_overload());
  EXPECT_FALSE(s.connections.has_value());
}

TEST(SimScenarioFile, EveryKeyIsRead) {
  const Scenario s = valid(R"(
name: all-keys
duration: 90s
overload: {from: 10s, to: 30s}
endpoints:
  - name: logs
    criticality: sheddable_plus
    floor: 0.2
    rate: 600
    cost: 600us
    size_kb: 10
    cost_per_kb: 140us
    rate_factor: {steps: [{from: 10s, to: 30s, value: 5}], otherwise: 2}
    cost_factor: {line: [{at: 0s, value: 1}, {at: 10s, value: 3}]}
    size_factor: {sine: {mean: 2, amplitude: 1, period: 4s}}
pod:
  cpu: 1.5
  workers: 4
  quota: soft
  capacity_factor: {pulse: {low: 1, high: 0.5, period: 10s, width: 1s, after: 20s}}
  background_cpu: 0.1
  refusal_cost: 0.05
  answers: early
requests: {arrivals: even, costs: even, heavy_share: 0.01, heavy_factor: 44}
clients: {timeout: 1s, retries: 3, backoff: 100ms, retry_timeouts: true}
connections: {life: 20s, requests_per_second: 5, close_share: 0.5}
memory:
  limit: 256Mi
  base: 100Mi
  amplification: 8
  drain_kb_per_second: 12000
  leak_mib_per_second: 1
  oom: kill
  restart: 3s
agent: {tick: 250ms, delay: 20ms, noise: 0.05}
)");
  EXPECT_EQ(s.duration_s, 90);
  EXPECT_EQ(s.overload_from_s, 10);
  EXPECT_EQ(s.overload_to_s, 30);
  const EndpointLoad& e = s.endpoints[0];
  EXPECT_EQ(e.criticality, Criticality::kSheddablePlus);
  EXPECT_EQ(e.floor, 0.2);
  EXPECT_EQ(e.rate_per_s, 600);
  EXPECT_NEAR(e.mean_cost_s(), 0.002, 1e-12);
  EXPECT_EQ(e.rate.at(20), 5);
  EXPECT_EQ(e.rate.at(5), 2);
  EXPECT_EQ(e.cost.at(5), 2);
  EXPECT_NEAR(e.size.at(1), 3, 1e-12);
  EXPECT_EQ(s.capacity_cores, 1.5);
  EXPECT_EQ(s.workers, 4U);
  EXPECT_FALSE(s.hard_quota);
  EXPECT_EQ(s.capacity.at(30.5), 0.5);
  EXPECT_EQ(s.capacity.at(10.5), 1);
  EXPECT_EQ(s.background_cores.at(7), 0.1);
  EXPECT_EQ(s.refusal_cost, 0.05);
  EXPECT_TRUE(s.async_ack);
  EXPECT_TRUE(s.even_arrivals);
  EXPECT_TRUE(s.even_costs);
  EXPECT_EQ(s.heavy_share, 0.01);
  EXPECT_EQ(s.heavy_factor, 44);
  EXPECT_EQ(s.timeout_s, 1);
  EXPECT_EQ(s.retries, 3);
  EXPECT_EQ(s.retry_backoff_s, 0.1);
  EXPECT_TRUE(s.retry_timeouts);
  EXPECT_EQ(s.connections, (Connections{20, 5, 0.5}));
  EXPECT_EQ(s.memory_limit_mib, 256);
  EXPECT_EQ(s.memory_base_mib, 100);
  EXPECT_NEAR(s.memory_per_kb_mib, 8.0 / 1024, 1e-12);
  EXPECT_EQ(s.drain_kb_per_s.at(0), 12000);
  EXPECT_EQ(s.leak_mib_per_s.at(0), 1);
  EXPECT_TRUE(s.oom_kills);
  EXPECT_EQ(s.restart_s, 3);
  EXPECT_EQ(s.tick_s, 0.25);
  EXPECT_EQ(s.delay_s, 0.02);
  EXPECT_EQ(s.noise, 0.05);
}

/// A file that begins with a named scenario and changes nothing is that scenario.
TEST(SimScenarioFile, LikeIsTheNamedScenario) {
  const Scenario file = valid("name: mine\nlike: B10\n");
  EXPECT_EQ(file.name, "mine");
  const Scenario* named = find_scenario("B10");
  const auto run = [](const Scenario& s) {
    const auto guard = baselines()[1].make(s);
    return simulate(s, *guard, {}).metrics;
  };
  EXPECT_EQ(run(file).goodput, run(*named).goodput);
  const Scenario slower = valid("name: mine\nlike: B10\nagent: {tick: 500ms}\n");
  EXPECT_EQ(slower.tick_s, 0.5);
  EXPECT_EQ(slower.endpoints[0].rate.at(30), 10);
}

/// The same experiment written out by hand: every draw is the same.
TEST(SimScenarioFile, WrittenOutItIsTheSameExperiment) {
  const Scenario file = valid(R"(
name: by-hand
overload: {from: 20s, to: 40s}
endpoints:
  - {name: e, rate: 600, cost: 600us, size_kb: 10, cost_per_kb: 140us,
     rate_factor: {steps: [{from: 20s, to: 40s, value: 10}]}}
)");
  const auto run = [](const Scenario& s) {
    const auto guard = baselines()[1].make(s);
    return simulate(s, *guard, {}).metrics;
  };
  const Metrics by_hand = run(file);
  const Metrics named = run(*find_scenario("B10"));
  EXPECT_NEAR(by_hand.goodput, named.goodput, 1e-4);
  EXPECT_NEAR(by_hand.refused_share, named.refused_share, 1e-4);
}

TEST(SimScenarioFile, WrongThingsAreNamedWithTheirPlace) {
  struct Case {
    std::string_view text;
    std::vector<std::string> says;
  };
  const std::vector<Case> cases{
      {"name: a\nendponts: []\n", {"s.yaml:2:1", "unknown key 'endponts'", "endpoints"}},
      {"name: a\n", {"endpoints", "is missing"}},
      {"endpoints: [{name: e, rate: 1, cost: 1ms}]\n", {"name", "is missing"}},
      {"name: a\nlike: B1O\n", {"s.yaml:2:7", "no scenario 'B1O'", "B10"}},
      {"name: a\nendpoints:\n  - {name: e, rate: fast, cost: 1ms}\n",
       {"s.yaml:3:", "endpoints[0].rate", "fast", "0.01"}},
      {"name: a\nendpoints: [{name: e, rate: 10}]\n", {"endpoints[0]", "cost nothing"}},
      {"name: a\nlike: B10\npod: {quota: hardish}\n", {"s.yaml:3:", "pod.quota", "hard", "soft"}},
      {"name: a\nlike: B10\npod: {workers: 0}\n", {"pod.workers", "1"}},
      {"name: a\nlike: B10\nduration: 60\n", {"s.yaml:3:", "duration", "60"}},
      {"name: a\nlike: B10\nduration: 1s\nduration: 2s\n", {"duration", "given twice"}},
      {"name: a\nlike: B10\noverload: {from: 40s, to: 20s}\n",
       {"overload.to", "is not after from"}},
      {"name: a\nlike: B10\noverload: {from: 70s, to: 80s}\n",
       {"overload", "after the experiment"}},
      {"name: a\nlike: B10\nmemory: {base: 600Mi}\n", {"memory.base", "below limit"}},
      {"name: a\nendpoints: [{name: e, rate: 1, cost: 1ms, rate_factor: {steps: [], line: []}}]\n",
       {"endpoints[0].rate_factor", "2 of steps, line, sine, pulse"}},
      {"name: a\nendpoints: [{name: e, rate: 1, cost: 1ms, rate_factor: [1]}]\n",
       {"endpoints[0].rate_factor", "a number, or a mapping"}},
      {"name: a\nendpoints: [{name: e, rate: 1, cost: 1ms, rate_factor: {steps: [{from: 2s, to: "
       "1s, value: 1}]}}]\n",
       {"endpoints[0].rate_factor.steps[0].to", "not after from"}},
      {"name: a\nendpoints: [{name: e, rate: 1, cost: 1ms, rate_factor: {line: [{at: 2s, value: "
       "1}, {at: 1s, value: 1}]}}]\n",
       {"rate_factor.line[1].at", "not after the point before"}},
      {"name: a\nendpoints: [{name: e, rate: 1, cost: 1ms, rate_factor: {sine: {mean: 1, "
       "amplitude: 2, period: 1s}}}]\n",
       {"sine.amplitude", "negative"}},
      {"name: a\nendpoints: [{name: e, rate: 1000000, cost: 1ms}]\n",
       {"endpoints", "requests are offered in all", "at most"}},
      {"[1, 2]\n", {"s.yaml:1:1", "a mapping"}},
      {"name: *x\n", {"s.yaml:1:"}},
  };
  for (const Case& c : cases) {
    const std::string problems = problems_of(c.text);
    for (const std::string& part : c.says) {
      EXPECT_THAT(problems, HasSubstr(part)) << c.text;
    }
    EXPECT_FALSE(load_scenario(c.text, "s.yaml").valid()) << c.text;
  }
}

TEST(SimScenarioFile, FileThatIsNotThereIsAProblem) {
  const LoadedScenario loaded = load_scenario_file("/nonexistent/s.yaml");
  EXPECT_FALSE(loaded.valid());
  ASSERT_EQ(loaded.problems.size(), 1U);
  EXPECT_THAT(loaded.problems[0].message, HasSubstr("No such file"));
}

TEST(SimScenarioFile, HelpHasTheKeys) {
  EXPECT_THAT(scenario_file_help(),
              AllOf(HasSubstr("rate_factor"), HasSubstr("close_share"), HasSubstr("Required.")));
}

}  // namespace
}  // namespace headgate::sim
