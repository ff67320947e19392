// SPDX-License-Identifier: Apache-2.0
// token_bucket: a fixed number of attempts per second, some of them at once, whatever the target is
// under. The kernel enforces it between ticks by the generic cell rate algorithm, which admits what
// a bucket of `burst` tokens that fills with `rate` tokens a second admits.
//
// Sources: J. Turner, "New directions in communications (or which way to the information age?)",
// IEEE Communications Magazine 24(10), 1986 (the leaky bucket); ITU-T Recommendation I.371 (2004),
// annex A (GCRA); RFC 2697 for the words rate and burst.
#include <array>
#include <memory>

#include "agent/strategies/activity.h"
#include "agent/strategies/demand.h"
#include "agent/strategies/laws.h"
#include "agent/strategies/parameters.h"
#include "agent/strategies/rate_split.h"

namespace headgate {
namespace {

using Kind = ParamSpec::Kind;
constexpr std::array kParams{
    ParamSpec{.name = "rate",
              .kind = Kind::kNumber,
              .default_value = 0,
              .minimum = 0,
              .maximum = 1e7,
              .doc = "attempts per second of the whole target; 0 = no limit"},
    ParamSpec{.name = "burst",
              .kind = Kind::kCount,
              .default_value = 10,
              .minimum = 1,
              .maximum = 1e6,
              .doc = "attempts that may come at once"},
};

class TokenBucket final : public Strategy {
 public:
  TokenBucket(double rate_per_s, double burst) : rate_per_s_(rate_per_s), burst_(burst) {}

  void decide(const StrategyInput& in, Decision& out) override {
    demand_.update(in);
    out.circuit_open = false;
    out.state = State::kNormal;
    if (!(rate_per_s_ > 0)) {
      out.why = "token_bucket: no rate is given, everything is admitted";
      return;
    }
    split_rate(rate_per_s_, burst_, in.endpoints, demand_.per_second(), out.endpoints);
    const bool refuses = activity_of(in).refused > 0;
    out.state = refuses ? State::kShedding : State::kNormal;
    out.why = refuses ? "token_bucket: more attempts than rate" : "token_bucket: below rate";
  }

  [[nodiscard]] std::vector<Threshold> internals() const override {
    return {{"rate", rate_per_s_}, {"burst", burst_}};
  }

 private:
  double rate_per_s_;
  double burst_;
  Demand demand_;
};

}  // namespace

StrategyInfo token_bucket_info() {
  StrategyInfo info;
  info.name = "token_bucket";
  info.doc = "a fixed number of attempts a second";
  info.params = kParams;
  info.make = [](const Params& params) -> std::unique_ptr<Strategy> {
    return std::make_unique<TokenBucket>(number_of(params, kParams, "rate"),
                                         number_of(params, kParams, "burst"));
  };
  return info;
}

}  // namespace headgate
