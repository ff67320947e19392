// SPDX-License-Identifier: Apache-2.0
// graded (plan B): three states by CPU, a memory stop beside them.
//
//            cpu_slow > enter, twice                   saturated (see below)
//   normal ---------------------------> shedding ---------------------------> open
//          <---------------------------          <---------------------------
//            cpu_slow < exit, twice                cpu_fast < circuit_close,
//                                                  or little waits any more
//
// Shedding refuses a share that grows with cpu_slow from shed_from (nothing) to shed_full
// (refuse_max). Open refuses everything but the probe, so that what was let in too much drains.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <memory>

#include "agent/decision/decide.h"
#include "agent/strategies/demand.h"
#include "agent/strategies/laws.h"
#include "agent/strategies/memory_stop.h"
#include "agent/strategies/parameters.h"
#include "agent/strategies/pending_work.h"

namespace headgate {
namespace {

constexpr std::array<std::string_view, 2> kOnOff{"on", "off"};
using Kind = ParamSpec::Kind;
constexpr std::array kParams{
    ParamSpec{.name = "enter",
              .kind = Kind::kRatio,
              .default_value = 0.80,
              .minimum = 0.05,
              .maximum = 2,
              .doc = "cpu_slow above this begins to shed"},
    ParamSpec{.name = "exit",
              .kind = Kind::kRatio,
              .default_value = 0.70,
              .minimum = 0.05,
              .maximum = 2,
              .doc = "cpu_slow below this ends shedding; below enter"},
    ParamSpec{.name = "consecutive",
              .kind = Kind::kCount,
              .default_value = 2,
              .minimum = 1,
              .maximum = 50,
              .doc = "ticks in a row that a threshold must be passed"},
    ParamSpec{.name = "shed_from",
              .kind = Kind::kRatio,
              .default_value = 0.70,
              .minimum = 0,
              .maximum = 2,
              .doc = "cpu_slow at which the refused share begins"},
    ParamSpec{.name = "shed_full",
              .kind = Kind::kRatio,
              .default_value = 0.90,
              .minimum = 0.05,
              .maximum = 2,
              .doc = "cpu_slow at which it reaches refuse_max; above shed_from"},
    ParamSpec{.name = "refuse_max",
              .kind = Kind::kRatio,
              .default_value = 0.95,
              .minimum = 0,
              .maximum = 1,
              .doc = "largest share refused while shedding"},
    ParamSpec{.name = "circuit_open",
              .kind = Kind::kRatio,
              .default_value = 0.90,
              .minimum = 0.05,
              .maximum = 2,
              .doc = "cpu_fast at which the circuit opens"},
    ParamSpec{.name = "circuit_close",
              .kind = Kind::kRatio,
              .default_value = 0.85,
              .minimum = 0.05,
              .maximum = 2,
              .doc = "cpu_fast below which it closes; below circuit_open"},
    ParamSpec{.name = "circuit_wait",
              .kind = Kind::kDuration,
              .default_value = 0.25,
              .minimum = 0.02,
              .maximum = 10,
              .doc = "time that a newcomer would wait for the work in flight: below it the circuit "
                     "stays shut, from it on a single saturated tick opens it"},
    ParamSpec{.name = "probe",
              .kind = Kind::kRatio,
              .default_value = 0.01,
              .minimum = 0,
              .maximum = 0.5,
              .doc = "share that shedding always leaves to every endpoint"},
    ParamSpec{.name = "memory_evidence",
              .kind = Kind::kWord,
              .doc = "on: memory refuses only with pressure, hits of the limit or OOM kills beside "
                     "the level; off: by the level alone",
              .default_word = "on",
              .words = kOnOff},
};

struct Settings {
  double enter, exit, shed_from, shed_full, refuse_max, circuit_open, circuit_close, circuit_wait_s;
  double probe;
  unsigned consecutive;
  bool memory_evidence;
};

class Graded final : public Strategy {
 public:
  explicit Graded(const Settings& settings)
      : set_(settings), memory_(settings.memory_evidence, settings.refuse_max, settings.exit) {}

  void decide(const StrategyInput& in, Decision& out) override;
  [[nodiscard]] std::size_t save(std::span<std::byte> out) const override;
  bool restore(std::span<const std::byte> data) override;
  [[nodiscard]] std::vector<Threshold> thresholds() const override;

 private:
  void step_cpu(const Signals& signals);
  [[nodiscard]] double cpu_refuse(const Signals& signals) const;
  [[nodiscard]] std::string_view why_normal(const StrategyInput& in) const;

  Settings set_;
  State cpu_ = State::kNormal;
  unsigned above_enter_ = 0, below_exit_ = 0, hot_ = 0;  ///< ticks in a row
  PendingWork pending_;
  MemoryStop memory_;
  Demand demand_;
  double memory_shed_ = 0.80, memory_open_ = 0.92, memory_close_ = 0.87;  ///< of the last input
};

void Graded::step_cpu(const Signals& signals) {
  if (!signals.cpu_fast.known() || !signals.cpu_slow.known()) {
    cpu_ = State::kNormal;
    above_enter_ = below_exit_ = hot_ = 0;
    return;
  }
  const double fast = (*signals.cpu_fast).value;
  const double slow = (*signals.cpu_slow).value;
  above_enter_ = slow > set_.enter ? above_enter_ + 1 : 0;
  below_exit_ = slow < set_.exit ? below_exit_ + 1 : 0;
  hot_ = fast >= set_.circuit_open ? hot_ + 1 : 0;

  // Saturated: by cpu_fast for some ticks, or by this tick alone where a queue says so too. A queue
  // that is known to be short vetoes: usage within a quota cannot tell a full CPU from a burst that
  // is gone in the next tick (case H04).
  const std::optional<double> wait_s = pending_.wait_s();
  const bool jammed = wait_s && *wait_s >= set_.circuit_wait_s;
  const bool nothing_waits = wait_s && !jammed;
  const bool saturated_now = signals.cpu.value_or(Ratio{0}) >= Ratio{set_.circuit_open};
  const bool saturated = (hot_ >= set_.consecutive && !nothing_waits) || (saturated_now && jammed);

  switch (cpu_) {
    case State::kNormal:
    case State::kShedding:
      if (saturated) {
        cpu_ = State::kOpen;
      } else if (cpu_ == State::kNormal && above_enter_ >= set_.consecutive) {
        cpu_ = State::kShedding;
      } else if (cpu_ == State::kShedding && below_exit_ >= set_.consecutive) {
        cpu_ = State::kNormal;
      }
      break;
    case State::kOpen:
      if (fast < set_.circuit_close || (wait_s && *wait_s < set_.circuit_wait_s / 2)) {
        cpu_ = slow > set_.exit ? State::kShedding : State::kNormal;
        hot_ = 0;
      }
      break;
    default: cpu_ = State::kNormal;
  }
}

double Graded::cpu_refuse(const Signals& signals) const {
  if (cpu_ != State::kShedding) return 0;
  const double part =
      ((*signals.cpu_slow).value - set_.shed_from) / (set_.shed_full - set_.shed_from);
  return set_.refuse_max * std::clamp(part, 0.0, 1.0);
}

/// Why nothing is refused, where something could have been: a person who sees a high level or
/// throttling must not read that all is below its threshold.
std::string_view Graded::why_normal(const StrategyInput& in) const {
  enum Cpu { kCpuUnknown, kCpuBelow, kCpuThrottled, kCpuShort, kCpuWords };
  enum Memory { kMemoryUnknown, kMemoryBelow, kMemoryFlat, kMemoryWords };
  static constexpr std::string_view kWhy[kCpuWords][kMemoryWords] = {
      {"neither CPU nor memory is known",
       "CPU is unknown and refuses nothing; memory is below memory.shed",
       "CPU is unknown and refuses nothing; memory is above memory.shed, but neither rises nor "
       "stalls"},
      {"CPU is below its thresholds; memory has no limit or is unknown",
       "CPU and memory are below their thresholds",
       "CPU is below its thresholds; memory is above memory.shed, but neither rises nor stalls"},
      {"CPU is throttled, but below its thresholds; memory has no limit or is unknown",
       "CPU is throttled, but below its thresholds; memory is below memory.shed",
       "CPU is throttled, but below its thresholds; memory is above memory.shed, but neither rises "
       "nor stalls"},
      {"CPU is above a threshold, but not for long or nothing waits; memory has no limit or is "
       "unknown",
       "CPU is above a threshold, but not for long or nothing waits; memory is below memory.shed",
       "CPU is above a threshold, but not for long or nothing waits; memory is above memory.shed, "
       "but neither rises nor stalls"},
  };
  const Signals& s = in.signals;
  Cpu cpu = kCpuBelow;
  if (!s.cpu_fast.known() || !s.cpu_slow.known()) {
    cpu = kCpuUnknown;
  } else if ((*s.cpu_slow).value > set_.enter || (*s.cpu_fast).value >= set_.circuit_open) {
    cpu = kCpuShort;
  } else if (s.throttled.value_or(Ratio{0}).value > 0) {
    cpu = kCpuThrottled;
  }
  const Memory memory = !s.memory.known()                     ? kMemoryUnknown
                        : (*s.memory).value <= in.memory_shed ? kMemoryBelow
                                                              : kMemoryFlat;
  return kWhy[cpu][memory];
}

void Graded::decide(const StrategyInput& in, Decision& out) {
  const Signals& signals = in.signals;
  memory_shed_ = in.memory_shed;
  memory_open_ = in.memory_open;
  memory_close_ = in.memory_close;
  const bool cpu_known = signals.cpu_fast.known() && signals.cpu_slow.known();

  demand_.update(in);
  pending_.update(in, cpu_ == State::kNormal && cpu_known && *signals.cpu_slow < Ratio{set_.enter});
  step_cpu(signals);
  memory_.update(in);

  out.circuit_open = cpu_ == State::kOpen || memory_.open();
  if (!cpu_known && !signals.memory.known()) {
    out.state = State::kUnknown;
    out.why = "neither CPU nor memory is known: everything is admitted";
    return;
  }
  if (out.circuit_open) {
    out.state = State::kOpen;
    out.why = memory_.open() ? "memory is above memory.open, and rises or stalls"
                             : "CPU is saturated (cpu_fast above circuit_open)";
    for (EndpointDecision& endpoint : out.endpoints) {
      endpoint.admit = Probability::never();
      endpoint.reason = HEADGATE_REASON_CIRCUIT;
    }
    return;
  }
  const double by_cpu = cpu_refuse(signals);
  const double by_memory = memory_.refuse();
  if (cpu_ == State::kShedding && by_cpu >= by_memory) {
    out.state = State::kShedding;
    out.why = "cpu_slow is on the curve (above enter, not yet below exit)";
  } else if (by_memory > 0) {
    out.state = State::kShedding;
    out.why = memory_.reopening() ? "memory is flat: admission comes back step by step"
                                  : "memory is above memory.shed, and rises or stalls";
  } else {
    out.state = State::kNormal;
    out.why = why_normal(in);
  }
  allocate(std::max(by_cpu, by_memory), in.endpoints, demand_.per_second(), set_.probe,
           out.endpoints);
}

struct Model {
  std::uint64_t version;
  std::uint64_t cpu_state;
  std::uint64_t memory_open;
  double calm_life, calm_life_weight;
};
constexpr std::uint64_t kModelVersion = 0x4847'4752'0000'0001;  // "HGGR", version 1

std::size_t Graded::save(std::span<std::byte> out) const {
  const Model model{kModelVersion, static_cast<std::uint64_t>(cpu_), memory_.open() ? 1U : 0U,
                    pending_.calm_life().value(), pending_.calm_life().weight()};
  if (out.size() < sizeof model) return 0;
  std::memcpy(out.data(), &model, sizeof model);
  return sizeof model;
}

bool Graded::restore(std::span<const std::byte> data) {
  Model model{};
  if (data.size() < sizeof model) return false;
  std::memcpy(&model, data.data(), sizeof model);
  if (model.version != kModelVersion || model.memory_open > 1) return false;
  const auto state = static_cast<State>(model.cpu_state);
  if (model.cpu_state >= static_cast<std::uint64_t>(State::kCount) || state == State::kUnknown ||
      model.calm_life < 0 || !pending_.restore_calm_life(model.calm_life, model.calm_life_weight)) {
    return false;
  }
  cpu_ = state;
  memory_.restore_open(model.memory_open == 1);
  return true;
}

std::vector<Strategy::Threshold> Graded::thresholds() const {
  return {{"enter", set_.enter},
          {"exit", set_.exit},
          {"circuit_open", set_.circuit_open},
          {"circuit_close", set_.circuit_close},
          {"memory_shed", memory_shed_},
          {"memory_open", memory_open_},
          {"memory_close", memory_close_}};
}

}  // namespace

StrategyInfo graded_info() {
  StrategyInfo info;
  info.name = "graded";
  info.doc = "sheds by slow CPU use, shuts by fast CPU use and by memory; three states";
  info.params = kParams;
  info.check = [](const Params& params) -> std::string {
    const auto number = [&](std::string_view name) { return number_of(params, kParams, name); };
    if (number("exit") >= number("enter")) return "exit must be below enter";
    if (number("circuit_close") >= number("circuit_open")) {
      return "circuit_close must be below circuit_open";
    }
    if (number("shed_from") >= number("shed_full")) return "shed_from must be below shed_full";
    return {};
  };
  info.make = [](const Params& params) -> std::unique_ptr<Strategy> {
    const auto number = [&](std::string_view name) { return number_of(params, kParams, name); };
    Settings set{};
    set.enter = number("enter");
    set.exit = std::min(number("exit"), set.enter);
    set.shed_from = number("shed_from");
    set.shed_full = std::max(number("shed_full"), set.shed_from + 0.01);
    set.refuse_max = number("refuse_max");
    set.circuit_open = number("circuit_open");
    set.circuit_close = std::min(number("circuit_close"), set.circuit_open);
    set.circuit_wait_s = number("circuit_wait");
    set.probe = number("probe");
    set.consecutive = static_cast<unsigned>(std::lround(number("consecutive")));
    set.memory_evidence = word_of(params, kParams, "memory_evidence") == "on";
    return std::make_unique<Graded>(set);
  };
  return info;
}

}  // namespace headgate
