// SPDX-License-Identifier: Apache-2.0
// concurrency: at most so many live connections. Where a connection carries one request at a time
// this bounds the requests in service and so, by Little's law, the response time at a given rate.
// The kernel counts and judges each attempt.
//
// Sources: J. D. C. Little, "A proof for the queuing formula: L = lambda W", Operations Research
// 9(3), 1961; as a limiter: Hystrix' semaphore isolation (github.com/Netflix/Hystrix/wiki,
// "Semaphores"), nginx limit_conn (nginx.org/en/docs/http/ngx_http_limit_conn_module.html).
#include <array>
#include <memory>

#include "agent/strategies/activity.h"
#include "agent/strategies/laws.h"
#include "agent/strategies/parameters.h"

namespace headgate {
namespace {

constexpr std::array kParams{
    ParamSpec{.name = "limit",
              .kind = ParamSpec::Kind::kCount,
              .default_value = 0,
              .minimum = 0,
              .maximum = 1e7,
              .doc = "live connections of the whole target; 0 = no limit"},
};

class Concurrency final : public Strategy {
 public:
  explicit Concurrency(double limit) : limit_(limit) {}

  void decide(const StrategyInput& in, Decision& out) override {
    out.circuit_open = false;
    out.state = State::kNormal;
    if (!(limit_ > 0)) {
      out.why = "concurrency: no limit is given, everything is admitted";
      return;
    }
    const Activity activity = activity_of(in);
    if (!activity.in_flight_known) {
      admit_unknown(out, "concurrency: live connections are not counted, everything is admitted");
      return;
    }
    cap_connections(limit_, activity, out);
    out.why = out.state == State::kShedding ? "concurrency: limit is reached"
                                            : "concurrency: fewer connections than limit";
  }

  [[nodiscard]] std::vector<Threshold> internals() const override { return {{"limit", limit_}}; }

 private:
  double limit_;
};

}  // namespace

StrategyInfo concurrency_info() {
  StrategyInfo info;
  info.name = "concurrency";
  info.doc = "a fixed number of connections at once";
  info.params = kParams;
  info.make = [](const Params& params) -> std::unique_ptr<Strategy> {
    return std::make_unique<Concurrency>(number_of(params, kParams, "limit"));
  };
  return info;
}

}  // namespace headgate
