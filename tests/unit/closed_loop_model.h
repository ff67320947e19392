// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include "headgate/strategy.h"

#include "agent/signals/signals.h"
#include "strategy_harness.h"

namespace headgate::test {

/// A collector behind the gate, in steps of one millisecond: Poisson arrivals, a queue served by
/// two threads in order, CFS bandwidth control (a quota per period of 100 ms, shifted against the
/// tick; once it is used up everything waits for the next period,
/// Documentation/scheduler/sched-bwc.rst), counters as the kernel keeps them, and the real
/// SignalDeriver and strategy on top. The same seed gives the same run. It leaves out what no law
/// here looks at: network, garbage collection, retries.
struct LoopSetup {
  double cores = 0.5;
  int threads = 2;
  double cost_s = 0.0036;  ///< mean CPU of a request; 0.3 of it fixed, the rest exponential
  double deadline_s =
      2.0;  ///< a client that has waited for so long is gone; its work is done anyway
  std::uint64_t seed = 1;
  bool in_flight_known = true;
  std::function<double(double)> rate_per_s;             ///< offered at time t
  std::function<double(double)> cost_factor = nullptr;  ///< of a request arriving at t
  double end_s = 10;
};

struct Request {
  double at_s = 0;
  bool admitted = false;
  double done_s = std::numeric_limits<double>::infinity();
};

struct TickRecord {
  double at_s = 0;
  State state = State::kUnknown;
  double cpu = 0;
  double admit = 1;
  std::size_t in_flight = 0;
};

class LoopRun {
 public:
  std::vector<Request> requests;
  std::vector<TickRecord> ticks;
  double deadline_s = 0;

  /// Requests per second that arrived in [from, to) and were answered before their deadline.
  [[nodiscard]] double served_per_s(double from, double to) const {
    double n = 0;
    each(from, to, [&](const Request& r) { n += r.done_s - r.at_s <= deadline_s ? 1 : 0; });
    return n / (to - from);
  }
  [[nodiscard]] double refused_share(double from, double to) const {
    double n = 0, refused = 0;
    each(from, to, [&](const Request& r) {
      n += 1;
      refused += r.admitted ? 0 : 1;
    });
    return n > 0 ? refused / n : 0;
  }
  /// 99th percentile of the response time of the admitted; one that never ends is infinite.
  [[nodiscard]] double p99_s(double from, double to) const {
    std::vector<double> times;
    each(from, to, [&](const Request& r) {
      if (r.admitted) times.push_back(r.done_s - r.at_s);
    });
    if (times.empty()) return 0;
    std::sort(times.begin(), times.end());
    return times[(times.size() - 1) * 99 / 100];
  }
  /// Time after `from` from which every following second refuses less than 5 %.
  [[nodiscard]] double back_after_s(double from, double to) const {
    double last_bad = from;
    for (double t = from; t + 1 <= to; t += 0.1) {
      if (refused_share(t, t + 1) >= 0.05) last_bad = t + 1;
    }
    return std::max(0.0, last_bad - from - 1);
  }
  [[nodiscard]] int state_changes(double from, double to) const {
    int n = 0;
    for (std::size_t i = 1; i < ticks.size(); ++i) {
      if (ticks[i].at_s >= from && ticks[i].at_s < to && ticks[i].state != ticks[i - 1].state) ++n;
    }
    return n;
  }
  [[nodiscard]] std::size_t peak_in_flight(double from, double to) const {
    std::size_t peak = 0;
    for (const TickRecord& tick : ticks) {
      if (tick.at_s >= from && tick.at_s < to) peak = std::max(peak, tick.in_flight);
    }
    return peak;
  }

 private:
  template <class F>
  void each(double from, double to, F f) const {
    for (const Request& r : requests) {
      if (r.at_s >= from && r.at_s < to) f(r);
    }
  }
};

/// xorshift64*, so that a run is the same with every standard library.
class Chance {
 public:
  explicit Chance(std::uint64_t seed) : state_(seed * 0x9E3779B97F4A7C15ULL + 1) {}
  double uniform() {
    state_ ^= state_ >> 12;
    state_ ^= state_ << 25;
    state_ ^= state_ >> 27;
    return static_cast<double>((state_ * 0x2545F4914F6CDD1DULL) >> 11) * 0x1p-53;
  }
  double exponential() { return -std::log(1 - uniform()); }

 private:
  std::uint64_t state_;
};

inline LoopRun run_closed_loop(Strategy& strategy, const LoopSetup& setup) {
  struct Job {
    std::size_t request;
    double left_s;
  };
  constexpr double kStep = 0.001;
  constexpr int kTick = 100, kPeriod = 100, kShift = 37;

  LoopRun run;
  run.deadline_s = setup.deadline_s;
  Chance chance(setup.seed);
  std::deque<Job> queue;
  double next_arrival = chance.exponential() / setup.rate_per_s(0);
  double quota_left = setup.cores * kPeriod * kStep;
  double usage_s = 0;
  std::uint64_t periods = 0, throttled = 0;
  bool throttled_now = false, ran = false;
  std::uint64_t share = 0;  // the gate's error diffusion, as in the kernel
  double owed_until = 0;    // the gate's bucket: its theoretical arrival time, in seconds
  double last_probe = -1e9;
  EndpointInput endpoint;
  SignalDeriver deriver;
  Decision decision;
  decision.endpoints.resize(1);

  for (int step = 0; step * kStep < setup.end_s; ++step) {
    const double now = step * kStep;
    while (next_arrival <= now) {
      const EndpointDecision& gate = decision.endpoints[0];
      const std::uint64_t before = share;
      bool admit = !decision.circuit_open;
      if (admit && gate.admit < Probability::always()) {
        share += gate.admit.q32();
        admit = (before >> 32U) != (share >> 32U);
      }
      if (admit && gate.depth_s > 0) {
        // GCRA (ITU-T I.371), the check before the charge, old debts cut to what the policy allows
        owed_until = std::clamp(owed_until, next_arrival,
                                next_arrival + gate.depth_s + gate.charge_request_s);
        admit = owed_until - next_arrival <= gate.depth_s;
        if (admit) owed_until += gate.charge_request_s;
      }
      if (admit && decision.connections_max > 0) admit = queue.size() < decision.connections_max;
      if (!admit && gate.probe && now - last_probe >= 1) {
        admit = true;
        last_probe = now;
      }
      ++endpoint.activity.offered;
      Request request;
      request.at_s = next_arrival;
      request.admitted = admit;
      if (admit) {
        ++endpoint.activity.admitted;
        ++endpoint.activity.established;
        const double factor = setup.cost_factor ? setup.cost_factor(now) : 1.0;
        queue.push_back(
            {run.requests.size(), setup.cost_s * factor * (0.3 + 0.7 * chance.exponential())});
      } else {
        ++endpoint.activity.refused;
      }
      run.requests.push_back(request);
      next_arrival += chance.exponential() / setup.rate_per_s(now);
    }

    if (step % kPeriod == kShift) {
      if (ran) ++periods;
      if (throttled_now) ++throttled;
      quota_left = setup.cores * kPeriod * kStep;
      throttled_now = false;
      ran = !queue.empty();
    }
    // A thread runs its request for the step; what is left of the step goes to the next one.
    std::vector<double> room(static_cast<std::size_t>(setup.threads), kStep);
    for (double& thread : room) {
      std::size_t k = static_cast<std::size_t>(&thread - room.data());
      while (thread > 1e-12 && k < queue.size() && quota_left > 1e-12) {
        ran = true;
        const double slice = std::min({thread, queue[k].left_s, quota_left});
        thread -= slice;
        quota_left -= slice;
        usage_s += slice;
        queue[k].left_s -= slice;
        if (queue[k].left_s > 1e-12) break;
        run.requests[queue[k].request].done_s = now + kStep;
        queue.erase(queue.begin() + static_cast<std::ptrdiff_t>(k));
        ++endpoint.activity.closed;
      }
    }
    if (quota_left <= 1e-12 && !queue.empty()) throttled_now = true;

    if ((step + 1) % kTick == 0) {
      Sample sample;
      sample.at = Instant(std::chrono::milliseconds(1'000'000 + step + 1));
      sample.cpu_usage_ns = static_cast<std::uint64_t>(usage_s * 1e9);
      sample.cpu_periods = periods;
      sample.cpu_throttled_periods = throttled;
      sample.limits.cpu_cores = setup.cores;
      sample.limits.cpu_source = LimitSource::kOwn;
      sample.limits.memory_bytes = Unknown::kNoLimit;
      const Signals& signals = deriver.update(sample, std::chrono::seconds(1));
      endpoint.activity.in_flight = queue.size();
      endpoint.activity.in_flight_known = setup.in_flight_known;
      decision.endpoints.assign(1, EndpointDecision{});
      decision.connections_max = decision.live_bytes_max = decision.waiting_max = 0;
      strategy.decide({.signals = signals, .endpoints = {&endpoint, 1}}, decision);
      endpoint.activity = {};
      run.ticks.push_back({now, decision.state, signals.cpu.value_or(Ratio{0}).value,
                           decision.circuit_open ? 0 : decision.endpoints[0].admit.value(),
                           queue.size()});
    }
  }
  return run;
}

// ---------------------------------------------------------------- the story that laws are told

inline constexpr double kCost = 0.0036;           // CPU seconds a request
inline constexpr double kCapacity = 0.5 / kCost;  // 138.9 requests a second
inline constexpr double kCalm = 0.6 * kCapacity;

/// calm until 10 s, x3 until 20, calm, x10 from 30 to 40, calm, cost x4 from 50 to 60, calm.
inline LoopRun run_story(std::string_view law, std::uint64_t seed, bool in_flight_known) {
  const auto strategy = make_strategy(law);
  LoopSetup setup;
  setup.cost_s = kCost;
  setup.seed = seed;
  setup.in_flight_known = in_flight_known;
  setup.end_s = 70;
  setup.rate_per_s = [](double t) {
    return t >= 10 && t < 20 ? 3 * kCalm : t >= 30 && t < 40 ? 10 * kCalm : kCalm;
  };
  setup.cost_factor = [](double t) { return t >= 50 && t < 60 ? 4.0 : 1.0; };
  return run_closed_loop(*strategy, setup);
}

/// Of a test over seeds, with and without the count of connections.
inline std::string story_name(const testing::TestParamInfo<std::tuple<int, bool>>& row) {
  return "Seed" + std::to_string(std::get<0>(row.param)) +
         (std::get<1>(row.param) ? "WithInFlight" : "Without");
}

}  // namespace headgate::test
