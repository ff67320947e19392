// SPDX-License-Identifier: Apache-2.0
#include "agent/sim/scenario.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "agent/sim/random.h"

namespace headgate::sim {
namespace {

constexpr double kEver = std::numeric_limits<double>::infinity();

/// One endpoint at `load` times the capacity with requests of `cost_ms`, 70 % of it by size.
Scenario one_endpoint(std::string name, double duration_s, double load, double cost_ms = 2) {
  constexpr double kSizeKb = 10;
  Scenario s;
  s.name = std::move(name);
  s.duration_s = duration_s;
  EndpointLoad e;
  e.name = "e";
  e.rate_per_s = load * s.capacity_cores / (cost_ms * 1e-3);
  e.cost_s = cost_ms * 1e-3 * .3;
  e.size_kb = kSizeKb;
  e.cost_per_kb_s = cost_ms * 1e-3 * .7 / kSizeKb;
  s.endpoints.push_back(std::move(e));
  return s;
}

/// The cost is no longer visible in the size.
void blind(EndpointLoad& e) {
  e.cost_s = e.mean_cost_s();
  e.cost_per_kb_s = 0;
}

void overload(Scenario& s, double from_s, double to_s) {
  s.overload_from_s = from_s;
  s.overload_to_s = to_s;
}

class Catalogue {
 public:
  Catalogue() {
    two_phases();
    bursts();
    dearer_requests();
    criticalities();
    noise();
    slow_agents();
    retries();
    memory();
    connections();
    forms_of_pods();
    edges();
  }
  std::vector<Scenario> take() { return std::move(scenarios_); }

 private:
  Scenario& add(Scenario s, std::string doc) {
    s.doc = std::move(doc);
    return scenarios_.emplace_back(std::move(s));
  }
  /// Overload by rate, `factor` times the normal one from 20 to 40 s.
  Scenario& burst(const std::string& name, double factor, std::string doc, double load = .6,
                  double cost_ms = 2) {
    Scenario s = one_endpoint(name, 60, load, cost_ms);
    s.endpoints[0].rate = step(1, 20, 40, factor);
    overload(s, 20, 40);
    return add(std::move(s), std::move(doc));
  }
  /// Overload by cost at the same rate, from 20 to 40 s.
  Scenario& dearer(const std::string& name, double factor, bool in_size, std::string doc) {
    Scenario s = one_endpoint(name, 60, .7);
    EndpointLoad& e = s.endpoints[0];
    if (in_size) {
      e.size = step(1, 20, 40, factor);
    } else {
      e.cost_s = .002;
      e.cost_per_kb_s = 0;
    }
    e.cost = step(1, 20, 40, factor);
    overload(s, 20, 40);
    return add(std::move(s), std::move(doc));
  }

  void two_phases() {
    Scenario s = one_endpoint("S0-seed", 120, .5);
    s.even_arrivals = s.even_costs = true;
    s.noise = .03;
    s.timeout_s = 1e9;
    EndpointLoad& e = s.endpoints[0];
    e.rate = Profile::Steps{1, {{20, 55, 3.5}, {75, 110, 2.5385}}};
    e.cost = e.size = step(1, 75, 110, 2);
    overload(s, 20, 110);
    add(s, "two overloads: x3.5 by rate, then x5.1 by rate and size; even arrivals");

    s = one_endpoint("S0L-literal", 120, .7);
    s.even_arrivals = s.even_costs = true;
    s.noise = .03;
    s.timeout_s = 1e9;
    s.endpoints[0].rate = step(1, 20, 55, 3.5);
    s.endpoints[0].cost = s.endpoints[0].size = step(1, 75, 110, 2);
    overload(s, 20, 110);
    add(s, "two overloads: x3.5 by rate, then x2 by size; even arrivals");
    add(one_endpoint("NORM.75", 60, .75), "nothing happens, at 0.75 of the capacity");
  }

  void bursts() {
    for (const double factor : {2., 5., 10., 50.}) {
      burst(fmt::format("B{:g}", factor), factor, fmt::format("burst: x{:g} for 20 s", factor));
    }
    Scenario s = one_endpoint("RAMP", 90, .4);
    s.endpoints[0].rate = Profile::Line{{{10, 1}, {60, 7.5}, {75, 1}}};
    overload(s, 10, 75);
    add(s, "from 0.4 to 3 times the capacity in 50 s, and back in 15 s");
    s = one_endpoint("OSC4s", 60, 1);
    s.endpoints[0].rate = Profile::Sine{1.4, 1.1, 4};
    add(s, "sine of 4 s between 0.3 and 2.5 of the capacity");
    s = one_endpoint("OSC1s", 60, 1);
    s.endpoints[0].rate = Profile::Pulse{.3, 2.4, 1, .5};
    add(s, "square wave of 1 s between 0.3 and 2.4 of the capacity");
    s = one_endpoint("SPK1", 80, .6);
    s.endpoints[0].rate = Profile::Pulse{1, 6, 10, 1, 10};
    add(s, "spikes of x6, 1 s every 10 s");
    s = one_endpoint("SPK3", 80, .6);
    s.endpoints[0].rate = Profile::Pulse{1, 6, 15, 3, 15};
    add(s, "spikes of x6, 3 s every 15 s");
  }

  void dearer_requests() {
    for (const double factor : {2., 4., 10.}) {
      dearer(fmt::format("CJ{:g}", factor), factor, true,
             fmt::format("requests become x{:g} as large and as dear for 20 s", factor));
    }
    for (const double factor : {2., 4., 10.}) {
      dearer(fmt::format("CJ{:g}-blind", factor), factor, false,
             fmt::format("requests become x{:g} as dear at the same size", factor));
    }
  }

  void criticalities() {
    Scenario mix;
    mix.duration_s = 60;
    mix.endpoints = {
        {"batch", Criticality::kSheddable, 0, 300, .001, 30, .0001},
        {"logs", Criticality::kSheddablePlus, .2, 200, .001, 10, .0001},
        {"metrics", Criticality::kCritical, .5, 200, .0006, 4, .0001},
        {"traces", Criticality::kCriticalPlus, .8, 100, .001, 10, .0001},
    };
    overload(mix, 15, 45);
    const auto with = [&](const char* name, const Profile& rate, std::string doc) {
      Scenario s = mix;
      s.name = name;
      for (EndpointLoad& e : s.endpoints) e.rate = rate;
      return add(std::move(s), std::move(doc));
    };
    with("MIX2.5", step(.6, 15, 45, 2.5), "four classes, all of them x2.5 the capacity");
    Scenario s = mix;
    s.name = "MIXcost";
    for (EndpointLoad& e : s.endpoints) e.rate = .6;
    s.endpoints[0].cost = s.endpoints[0].size = step(1, 15, 45, 6);
    add(std::move(s), "four classes, the least critical one x6 as dear");
    with("MIX10", step(.6, 15, 45, 10), "four classes, all of them x10 the capacity");
    s = mix;
    s.name = "MIXburst0";
    for (EndpointLoad& e : s.endpoints) e.rate = .6;
    s.endpoints[0].rate = step(.6, 15, 45, 12);
    add(std::move(s), "four classes, a burst of the least critical one");
  }

  void noise() {
    for (const auto& [name, load] : {std::pair("NOISE.7", .7), std::pair("NOISE1.5", 1.5)}) {
      Scenario s = one_endpoint(name, 60, load);
      s.noise = .06;
      s.background_cores = Profile::Pulse{.06, .8, 2, .2};
      add(s, fmt::format("garbage collection of 0.8 cores, 200 ms every 2 s, at load {:g}", load));
    }
  }

  void slow_agents() {
    for (const double tick_s : {.25, .5}) {
      burst(fmt::format("B10@{:g}ms", tick_s * 1000), 10,
            fmt::format("burst: x10 with a tick of {:g} ms", tick_s * 1000))
          .tick_s = tick_s;
      dearer(fmt::format("CJ4b@{:g}ms", tick_s * 1000), 4, false,
             fmt::format("x4 as dear at the same size, with a tick of {:g} ms", tick_s * 1000))
          .tick_s = tick_s;
    }
    burst("B5delay300", 5, "burst: x5, decisions in force after 300 ms").delay_s = .3;
  }

  void retries() {
    Scenario& r = burst("RETRY3", 3, "burst: x3, clients retry four times, timeout 1 s");
    r.retries = 4;
    r.retry_backoff_s = .2;
    r.retry_timeouts = true;
    r.timeout_s = 1;
    Scenario s = one_endpoint("META", 80, .75);
    s.retries = 5;
    s.retry_backoff_s = .1;
    s.retry_timeouts = true;
    s.timeout_s = 1;
    s.capacity = step(1, 20, 25, .3);
    overload(s, 20, 25);
    add(s, "metastable failure: capacity x0.3 for 5 s, clients retry five times");
  }

  void memory() {
    Scenario s = one_endpoint("MEMstall", 90, .6);
    s.oom_kills = true;
    s.drain_kb_per_s = step(12000, 20, 60, 0);
    overload(s, 20, 60);
    add(s, "what is behind the collector takes nothing for 40 s: memory fills");
    s = one_endpoint("MEMleak", 90, .6);
    s.oom_kills = true;
    s.leak_mib_per_s = step(0, 10.0005, kEver, 10);
    add(s, "a leak of 10 MiB/s: refusing cannot help");
    Scenario& b = burst("MEMburst", 10, "burst: x10 with little memory");
    b.oom_kills = true;
    b.memory_limit_mib = 300;
  }

  void connections() {
    Scenario s = one_endpoint("CONNnew", 120, .6);
    s.connections = Connections{};
    s.endpoints[0].rate = step(1, 20, 80, 4);
    overload(s, 20, 80);
    add(s, "long connections: x4 as many clients");
    s = one_endpoint("CONNcost", 120, .6);
    s.connections = Connections{};
    s.endpoints[0].cost = s.endpoints[0].size = step(1, 20, 80, 2.5);
    overload(s, 20, 80);
    add(s, "long connections: those that stand become x2.5 as dear");
    s.name = "CONNkill";
    s.connections->close_share_per_s = .5;
    add(s, "the same, connections may be closed");
  }

  void forms_of_pods() {
    burst("ASYNC-B5", 5, "burst: x5, the pod answers before it works").async_ack = true;
    burst("INPROC-B20", 20, "burst: x20, a refusal costs 5 % of a request").refusal_cost = .05;
    dearer("ASYNC-CJ4", 4, false, "x4 as dear at the same size, the pod answers before it works")
        .async_ack = true;
    burst("KERN-B20", 20, "burst: x20, a refusal costs 0.1 % of a request").refusal_cost = .001;
    burst("SOFTQ-B5", 5, "burst: x5 without a hard quota").hard_quota = false;
    burst("WRONGQ-B3", 4, "only 0.67 of the limit can be had; burst: x4", .4).capacity = .67;
    dearer("P2-CJ4b", 4, false, "x4 as dear at the same size, two workers").workers = 2;
    Scenario& heavy = burst("HEAVY-B3", 3, "burst: x3, 1 % of the requests x44 as dear", .6, 1.4);
    heavy.heavy_share = .01;
    heavy.heavy_factor = 44;
    heavy.endpoints[0].rate_per_s /= 1.43;
    burst("LOWRATE-B5", 5, "burst: x5 with requests of 60 ms", .6, 60);
  }

  void edges() {
    Scenario s = one_endpoint("EXP4", 60, .8);
    s.noise = .08;
    s.endpoints[0].rate = Profile::Steps{1, {{20, 23, 1.6}, {40, 43, 1.6}}};
    add(s, "0.8 of the capacity, two spikes of x1.6 for 3 s, noisy usage");
    s = one_endpoint("NEAR.92", 60, .92);
    s.noise = .05;
    add(s, "0.92 of the capacity all the time, noisy usage");
    s = one_endpoint("COLD-2x", 40, 2);
    overload(s, 0, 40);
    add(s, "starts at twice the capacity, nothing learned yet");
  }

  std::vector<Scenario> scenarios_;
};

}  // namespace

double Scenario::mean_cost_s() const {
  double cores = 0;
  double rate_per_s = 0;
  for (const EndpointLoad& e : endpoints) {
    cores += e.rate_per_s * e.mean_cost_s();
    rate_per_s += e.rate_per_s;
  }
  return cores / std::max(1e-9, rate_per_s);
}

std::span<const Scenario> named_scenarios() {
  static const std::vector<Scenario> kTable = Catalogue().take();
  return kTable;
}

const Scenario* find_scenario(std::string_view name) {
  const auto table = named_scenarios();
  const auto row =
      std::find_if(table.begin(), table.end(), [&](const Scenario& s) { return s.name == name; });
  return row == table.end() ? nullptr : &*row;
}

Scenario random_scenario(std::uint64_t seed) {
  // The order of the draws is part of the published results.
  Random random(seed);
  const double cost_ms = std::pow(10, random.between(-.3, 1.3));
  (void)random.between(.2, .85);  // a load that is drawn again below
  Scenario s = one_endpoint(fmt::format("fuzz-{}", seed), 45, .6, cost_ms);
  s.doc = "drawn by chance";
  EndpointLoad& e = s.endpoints[0];
  s.capacity_cores = std::pow(2, std::floor(random.between(0, 3.99))) * .5;
  e.rate_per_s = random.between(.2, .85) * s.capacity_cores / e.mean_cost_s();
  s.workers =
      static_cast<std::size_t>(std::max(2, static_cast<int>(random.between(s.capacity_cores, 14))));
  constexpr std::array kTicks{.1, .1, .2, .25, .5};
  s.tick_s = kTicks[static_cast<std::size_t>(random.between(0, 4.99))];
  s.delay_s = random.between(.005, .15);
  s.noise = random.between(0, .06);
  const double burst = std::pow(10, random.between(.2, 1.3));
  const double dearer = std::pow(10, random.between(0, .9));
  const double burst_from_s = random.between(8, 14);
  const double burst_to_s = burst_from_s + random.between(3, 10);
  const double dearer_from_s = random.between(26, 28);
  const double dearer_to_s = dearer_from_s + random.between(3, 10);
  e.rate = step(1, burst_from_s, burst_to_s, burst);
  e.cost = step(1, dearer_from_s, dearer_to_s, dearer);
  if (random.uniform() < .5) {
    blind(e);
  } else {
    e.size = e.cost;
  }
  const double collector_cores =
      random.uniform() < .4 ? random.between(0, .4) * s.capacity_cores : 0;
  const double collector_period_s = random.between(.5, 3);
  s.background_cores = Profile::Pulse{.02, collector_cores, collector_period_s, .15};
  if (random.uniform() < .3) {
    s.retries = 3;
    s.retry_timeouts = true;
    s.timeout_s = 1;
  }
  if (random.uniform() < .15) {
    const double left = random.between(.4, .9);
    const double from_s = random.between(15, 20);
    s.capacity = step(1, from_s, from_s + 6, left);
  }
  s.async_ack = random.uniform() < .3;
  overload(s, burst_from_s, burst_to_s);
  return s;
}

}  // namespace headgate::sim
