// SPDX-License-Identifier: Apache-2.0
// scaled: the scaled trigger of Envoy's overload manager. A resource refuses nothing up to a
// scaling threshold, everything from a saturation threshold on, and a share that grows linearly in
// between; of CPU and memory the one that refuses more counts.
//
//   refuse = clamp((pressure - from) / (full - from), 0, 1)
//
// CPU is the mean of factor 0.7 each 250 ms; memory is its level, unsmoothed.
//
// Sources: ScaledTrigger and "Overload manager", envoyproxy.io/docs/envoy/v1.35.2
// (api-v3/config/overload/v3/overload.proto, intro/arch_overview/operations/overload_manager);
// source/server/overload_manager_impl.cc of github.com/envoyproxy/envoy.
//
// Different here: the mean is renewed each tick by its time constant and not each 250 ms.
#include <algorithm>
#include <array>
#include <cmath>
#include <memory>

#include "headgate/smoothed.h"

#include "agent/decision/decide.h"
#include "agent/strategies/activity.h"
#include "agent/strategies/demand.h"
#include "agent/strategies/laws.h"
#include "agent/strategies/parameters.h"

namespace headgate {
namespace {

using Kind = ParamSpec::Kind;
constexpr std::array kParams{
    ParamSpec{.name = "cpu_from",
              .kind = Kind::kRatio,
              .default_value = 0.80,
              .minimum = 0,
              .maximum = 2,
              .doc = "smoothed CPU use at which the refused share begins"},
    ParamSpec{.name = "cpu_full",
              .kind = Kind::kRatio,
              .default_value = 0.95,
              .minimum = 0.01,
              .maximum = 2,
              .doc = "at which everything is refused; above cpu_from"},
    ParamSpec{.name = "memory_from",
              .kind = Kind::kRatio,
              .default_value = 0.85,
              .minimum = 0,
              .maximum = 1,
              .doc = "share of the memory limit at which the refused share begins"},
    ParamSpec{.name = "memory_full",
              .kind = Kind::kRatio,
              .default_value = 0.95,
              .minimum = 0.01,
              .maximum = 1,
              .doc = "at which everything is refused; above memory_from"},
};

/// -250 ms / ln 0.7
constexpr Duration kCpuTimeConstant = std::chrono::microseconds(700'917);

struct Settings {
  double cpu_from, cpu_full, memory_from, memory_full;
};

double ramp(double level, double from, double full) {
  return std::clamp((level - from) / (full - from), 0.0, 1.0);
}

class Scaled final : public Strategy {
 public:
  explicit Scaled(const Settings& settings) : set_(settings) {}

  void decide(const StrategyInput& in, Decision& out) override {
    demand_.update(in);
    const Signals& signals = in.signals;
    if (signals.cpu.known()) cpu_.add((*signals.cpu).value, signals.interval);
    if (!signals.cpu_fast.known()) cpu_.clear();
    if (!cpu_.started() && !signals.memory.known()) {
      admit_unknown(out, "scaled: neither CPU nor memory is known, everything is admitted");
      return;
    }
    const double by_cpu = cpu_.started() ? ramp(cpu_.value(), set_.cpu_from, set_.cpu_full) : 0;
    const double by_memory = signals.memory.known()
                                 ? ramp((*signals.memory).value, set_.memory_from, set_.memory_full)
                                 : 0;
    const double refuse = std::max(by_cpu, by_memory);
    out.circuit_open = false;
    out.state = refuse > 0 ? State::kShedding : State::kNormal;
    out.why = !(refuse > 0)         ? "scaled: CPU and memory are below their scaling thresholds"
              : by_cpu >= by_memory ? "scaled: CPU is above cpu_from"
                                    : "scaled: memory is above memory_from";
    allocate(refuse, in.endpoints, demand_.per_second(), 0.0, out.endpoints);
  }

  [[nodiscard]] std::vector<Threshold> thresholds() const override {
    return {{"cpu_from", set_.cpu_from},
            {"cpu_full", set_.cpu_full},
            {"memory_from", set_.memory_from},
            {"memory_full", set_.memory_full}};
  }
  [[nodiscard]] std::vector<Threshold> internals() const override {
    return {{"cpu_mean", cpu_.value()}};
  }

 private:
  Settings set_;
  Smoothed cpu_{kCpuTimeConstant};
  Demand demand_;
};

}  // namespace

StrategyInfo scaled_info() {
  StrategyInfo info;
  info.name = "scaled";
  info.doc = "Envoy's scaled trigger: a ramp between two levels, of CPU and of memory";
  info.params = kParams;
  info.check = [](const Params& params) -> std::string {
    const auto number = [&](std::string_view name) { return number_of(params, kParams, name); };
    if (number("cpu_from") >= number("cpu_full")) return "cpu_from must be below cpu_full";
    if (number("memory_from") >= number("memory_full")) {
      return "memory_from must be below memory_full";
    }
    return {};
  };
  info.make = [](const Params& params) -> std::unique_ptr<Strategy> {
    const auto number = [&](std::string_view name) { return number_of(params, kParams, name); };
    Settings set{number("cpu_from"), number("cpu_full"), number("memory_from"),
                 number("memory_full")};
    set.cpu_full = std::max(set.cpu_full, set.cpu_from + 1e-3);
    set.memory_full = std::max(set.memory_full, set.memory_from + 1e-3);
    return std::make_unique<Scaled>(set);
  };
  return info;
}

}  // namespace headgate
