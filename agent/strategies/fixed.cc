// SPDX-License-Identifier: Apache-2.0
// fixed: the same share of every endpoint, whatever the target is under. For drills and tests: the
// only law without a probe, so that `admit: 0` means nothing at all.
#include <array>
#include <memory>

#include "agent/strategies/laws.h"
#include "agent/strategies/parameters.h"

namespace headgate {
namespace {

constexpr std::array kParams{
    ParamSpec{.name = "admit",
              .kind = ParamSpec::Kind::kRatio,
              .default_value = 1,
              .minimum = 0,
              .maximum = 1,
              .doc = "share of the attempts to admit at every endpoint; 0 = none, no probe either"},
};

class Fixed final : public Strategy {
 public:
  explicit Fixed(Probability admit) : admit_(admit) {}

  void decide(const StrategyInput& /*in*/, Decision& out) override {
    const bool all = admit_ == Probability::always();
    out.state = all ? State::kNormal : State::kShedding;
    out.circuit_open = false;
    out.why = all ? "fixed: everything is admitted" : "fixed: the configured share is admitted";
    for (EndpointDecision& endpoint : out.endpoints) {
      endpoint.admit = admit_;
      endpoint.reason = all ? HEADGATE_REASON_NONE : HEADGATE_REASON_SHARE;
      endpoint.probe = false;
    }
  }

  [[nodiscard]] std::vector<Threshold> thresholds() const override {
    return {{"admit", admit_.value()}};
  }

 private:
  Probability admit_;
};

}  // namespace

StrategyInfo fixed_info() {
  StrategyInfo info;
  info.name = "fixed";
  info.doc = "admits a fixed share, whatever the load; for drills and tests";
  info.params = kParams;
  info.make = [](const Params& params) -> std::unique_ptr<Strategy> {
    return std::make_unique<Fixed>(Probability::admitting(number_of(params, kParams, "admit")));
  };
  return info;
}

}  // namespace headgate
