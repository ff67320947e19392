// SPDX-License-Identifier: Apache-2.0
// klimiter: a slow loop of small steps on the admitted share of each endpoint. Once in `loop`:
//
//   influence  CPU per admitted attempt of each endpoint, learned by normalised least mean squares
//              from what was admitted and what the CPU did; its part of the CPU is influence x
//              admitted / sum
//   baseline   attempts per second of each endpoint, exponential mean over the loops in which
//              nothing was refused; excess = demand / baseline, in [1, 10]
//   u > target need = (u - target) / u of the CPU. Two rounds: in the first each endpoint keeps its
//              floor, in the second 0.01. In each round the least critical tier gives first, within
//              it an endpoint gives in proportion to its share and its excess, and in one loop none
//              gives more than `step`.
//   u <= target every share grows by min(share x (target - u) / u, max(0.02, 0.2 x share))
//
// Sources: no implementation of this law is public; the rules are those named above. Its kin is H.
// Zhou et al., "Overload control for scaling WeChat microservices" (DAGOR), ACM SoCC 2018: a loop
// of fixed length, a fall of at most 5 %, a slow rise, and order by priority. Normalised least mean
// squares: S. Haykin, "Adaptive Filter Theory", chapter "Normalized LMS".
//
// It protects against slow growth and shares out fairly; a burst is over before it has acted.
#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <vector>

#include "agent/strategies/activity.h"
#include "agent/strategies/laws.h"
#include "agent/strategies/model_bytes.h"
#include "agent/strategies/parameters.h"

namespace headgate {
namespace {

using Kind = ParamSpec::Kind;
constexpr std::array kParams{
    ParamSpec{.name = "target",
              .kind = Kind::kRatio,
              .default_value = 0.85,
              .minimum = 0.05,
              .maximum = 2,
              .doc = "mean CPU use of a loop above which shares fall"},
    ParamSpec{.name = "loop",
              .kind = Kind::kDuration,
              .default_value = 5,
              .minimum = 0.5,
              .maximum = 120,
              .doc = "time between two steps"},
    ParamSpec{.name = "step",
              .kind = Kind::kRatio,
              .default_value = 0.05,
              .minimum = 0.005,
              .maximum = 1,
              .doc = "most that a share falls in one loop"},
};

constexpr double kShareMin = 0.01;
constexpr double kRiseMin = 0.02, kRiseMax = 0.2;
constexpr double kBaselineWeight = 0.1;
constexpr double kExcessMax = 10;
constexpr double kLearningRate = 0.5;
constexpr int kPassesMax = 6;  ///< what one endpoint cannot give is asked of the others again

struct Settings {
  double target, loop_s, step;
};

struct Learned {
  double share = 1;
  double influence = 0;  ///< CPU seconds (of a capacity of 1) per attempt; 0 = not learned
  double baseline_per_s = 0;
};
constexpr std::size_t kSaved = 16;  ///< endpoints; what is beyond starts anew
struct Model {
  std::uint64_t version;
  std::uint64_t endpoints;
  std::array<Learned, kSaved> learned;
};
constexpr std::uint64_t kModelVersion = 0x4847'4b4c'0000'0001;  // "HGKL", version 1

class Klimiter final : public Strategy {
 public:
  explicit Klimiter(const Settings& settings) : set_(settings) {}

  void decide(const StrategyInput& in, Decision& out) override;
  [[nodiscard]] std::size_t save(std::span<std::byte> out) const override;
  bool restore(std::span<const std::byte> data) override;
  [[nodiscard]] std::vector<Threshold> thresholds() const override {
    return {{"target", set_.target}};
  }
  [[nodiscard]] std::vector<Threshold> internals() const override;

 private:
  struct Endpoint {
    Learned learned;
    double offered = 0, admitted = 0;  ///< in this loop
    double cpu_part = 0;               ///< of the last loop, sums to 1
    double excess = 1;
    double before = 1;  ///< its share when the loop ended
  };
  void end_loop(const StrategyInput& in);
  void learn(double cpu);
  void fall(std::span<const EndpointInput> inputs, double need);
  double fall_tier(std::span<const EndpointInput> inputs, Criticality tier, bool floors,
                   double need);
  void rise(double cpu);

  Settings set_;
  std::vector<Endpoint> endpoints_;
  double span_s_ = 0;       ///< of the loop so far
  double cpu_s_ = 0;        ///< capacity-seconds used in it
  double cpu_known_s_ = 0;  ///< of how much of it the use is known
};

void Klimiter::learn(double cpu) {
  const double used = cpu * span_s_;
  double attempts = 0;
  double squares = 0;
  double explained = 0;
  bool learned = true;
  for (const Endpoint& e : endpoints_) {
    attempts += e.admitted;
    squares += e.admitted * e.admitted;
    explained += e.learned.influence * e.admitted;
    learned = learned && (e.learned.influence > 0 || e.admitted <= 0);
  }
  if (!(attempts > 0)) return;
  if (!learned) {
    // Nothing tells newcomers apart yet: all attempts of this loop cost the same.
    for (Endpoint& e : endpoints_) {
      if (!(e.learned.influence > 0)) e.learned.influence = used / attempts;
    }
    return;
  }
  for (Endpoint& e : endpoints_) {
    const double correction = kLearningRate * (used - explained) * e.admitted / squares;
    // Never 0: what costs nothing would never be asked to give.
    e.learned.influence = std::max(e.learned.influence / 2, e.learned.influence + correction);
  }
}

/// Takes `need` (of the CPU) from one tier; returns what it could not give.
double Klimiter::fall_tier(std::span<const EndpointInput> inputs, Criticality tier, bool floors,
                           double need) {
  const auto lowest = [&](std::size_t i) {
    const Endpoint& e = endpoints_[i];
    const double floor = floors ? std::max(kShareMin, inputs[i].floor.value()) : kShareMin;
    return std::max(floor, e.before - set_.step);
  };
  for (int pass = 0; pass < kPassesMax && need > 1e-9; ++pass) {
    double weight = 0;
    for (std::size_t i = 0; i < endpoints_.size(); ++i) {
      const Endpoint& e = endpoints_[i];
      if (inputs[i].criticality == tier && e.learned.share > lowest(i) + 1e-12) {
        weight += e.cpu_part * e.excess;
      }
    }
    if (!(weight > 0)) break;
    double given = 0;
    for (std::size_t i = 0; i < endpoints_.size(); ++i) {
      Endpoint& e = endpoints_[i];
      if (inputs[i].criticality != tier || e.learned.share <= lowest(i) + 1e-12) continue;
      // The CPU falls by cpu_part x (relative fall of the share).
      const double asked = e.before * need * e.excess / weight;
      const double gives = std::min(asked, e.learned.share - lowest(i));
      e.learned.share -= gives;
      given += gives / e.before * e.cpu_part;
    }
    need = std::max(0.0, need - given);
  }
  return need;
}

void Klimiter::fall(std::span<const EndpointInput> inputs, double need) {
  for (const bool floors : {true, false}) {
    for (std::uint8_t t = 0; t < static_cast<std::uint8_t>(Criticality::kCount); ++t) {
      need = fall_tier(inputs, static_cast<Criticality>(t), floors, need);
    }
  }
}

void Klimiter::rise(double cpu) {
  const double room = (set_.target - cpu) / std::max(0.05, cpu);
  for (Endpoint& e : endpoints_) {
    const double share = e.learned.share;
    const double most = std::max(kRiseMin, kRiseMax * share);
    e.learned.share = std::min(1.0, share + std::min(share * room, most));
  }
}

void Klimiter::end_loop(const StrategyInput& in) {
  const double cpu = cpu_s_ / cpu_known_s_;
  learn(cpu);
  double total = 0;
  bool all = true;
  for (Endpoint& e : endpoints_) {
    e.before = e.learned.share;
    e.cpu_part = e.learned.influence * e.admitted;
    total += e.cpu_part;
    all = all && e.learned.share >= 1;
  }
  for (Endpoint& e : endpoints_) {
    e.cpu_part = total > 0 ? e.cpu_part / total : 0;
    const double demand = e.offered / span_s_;
    double& baseline = e.learned.baseline_per_s;
    e.excess = baseline > 0 ? std::clamp(demand / baseline, 1.0, kExcessMax) : 1;
    if (all && cpu <= set_.target) {
      baseline = baseline > 0 ? baseline + kBaselineWeight * (demand - baseline) : demand;
    }
  }
  if (cpu > set_.target) {
    fall(in.endpoints, (cpu - set_.target) / cpu);
  } else {
    rise(cpu);
  }
  for (Endpoint& e : endpoints_) e.offered = e.admitted = 0;
  span_s_ = cpu_s_ = cpu_known_s_ = 0;
}

void Klimiter::decide(const StrategyInput& in, Decision& out) {
  const Signals& signals = in.signals;
  if (endpoints_.size() != in.endpoints.size()) endpoints_.resize(in.endpoints.size());
  const double dt_s = seconds(signals.interval);
  if (dt_s > 0) {
    span_s_ += dt_s;
    if (signals.cpu.known()) {
      cpu_s_ += (*signals.cpu).value * dt_s;
      cpu_known_s_ += dt_s;
    }
    for (std::size_t i = 0; i < endpoints_.size(); ++i) {
      endpoints_[i].offered += static_cast<double>(in.endpoints[i].activity.offered);
      endpoints_[i].admitted += static_cast<double>(in.endpoints[i].activity.admitted);
    }
    if (cpu_known_s_ > 0 && span_s_ + dt_s / 2 >= set_.loop_s) end_loop(in);
  }
  if (!signals.cpu_fast.known()) {
    admit_unknown(out, "klimiter: CPU is not known, everything is admitted");
    return;
  }
  bool refuses = false;
  for (std::size_t i = 0; i < endpoints_.size(); ++i) {
    const double share = endpoints_[i].learned.share;
    out.endpoints[i].admit = Probability::admitting(share);
    const bool thinned = out.endpoints[i].admit < Probability::always();
    out.endpoints[i].reason = thinned ? HEADGATE_REASON_SHARE : HEADGATE_REASON_NONE;
    refuses = refuses || thinned;
  }
  out.circuit_open = false;
  out.state = refuses ? State::kShedding : State::kNormal;
  out.why =
      refuses ? "klimiter: shares are on their way down or back" : "klimiter: all shares are 1";
}

std::size_t Klimiter::save(std::span<std::byte> out) const {
  Model model{kModelVersion, endpoints_.size(), {}};
  for (std::size_t i = 0; i < std::min(kSaved, endpoints_.size()); ++i) {
    model.learned[i] = endpoints_[i].learned;
  }
  return endpoints_.empty() ? 0 : save_model(out, model);
}

bool Klimiter::restore(std::span<const std::byte> data) {
  Model model{};
  if (!load_model(data, kModelVersion, model)) return false;
  const std::size_t n = std::min<std::uint64_t>(model.endpoints, kSaved);
  for (std::size_t i = 0; i < n; ++i) {
    const Learned& learned = model.learned[i];
    if (!(learned.share >= kShareMin && learned.share <= 1) || !std::isfinite(learned.influence) ||
        learned.influence < 0 || !std::isfinite(learned.baseline_per_s) ||
        learned.baseline_per_s < 0) {
      return false;
    }
  }
  endpoints_.assign(n, Endpoint{});
  for (std::size_t i = 0; i < n; ++i) endpoints_[i].learned = model.learned[i];
  return true;
}

std::vector<Strategy::Threshold> Klimiter::internals() const {
  std::vector<Threshold> out;
  for (const Endpoint& e : endpoints_) {
    out.push_back({"share", e.learned.share});
    out.push_back({"influence_s", e.learned.influence});
    out.push_back({"baseline_per_s", e.learned.baseline_per_s});
  }
  return out;
}

}  // namespace

StrategyInfo klimiter_info() {
  StrategyInfo info;
  info.name = "klimiter";
  info.doc = "slow loop of small steps with floors, by each endpoint's influence on the CPU";
  info.params = kParams;
  info.make = [](const Params& params) -> std::unique_ptr<Strategy> {
    const auto number = [&](std::string_view name) { return number_of(params, kParams, name); };
    return std::make_unique<Klimiter>(Settings{number("target"), number("loop"), number("step")});
  };
  return info;
}

}  // namespace headgate
