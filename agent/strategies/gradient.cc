// SPDX-License-Identifier: Apache-2.0
// gradient: a limit on requests in flight from the gradient between a slow and a fast mean of the
// response time. Once a window (at least `window` long, with at least ten responses):
//
//   short = mean response time of the window
//   long  = exponential mean over long_window windows (plain mean of the first ten)
//   if long > 2 * short: long *= 0.95          (latency came back from an overload)
//   if in flight < limit / 2: no change        (the limit was not the reason)
//   gradient = clamp(tolerance * long / short, 0.5, 1)
//   limit = (1 - smoothing) * limit + smoothing * (limit * gradient + queue)
//
// Sources: Gradient2Limit and ExpAvgMeasurement of github.com/Netflix/concurrency-limits (default
// branch of 2023: tolerance 1.5, drift 0.95; at 14ddfa2: no tolerance, 0.9); "Performance Under
// Load", Netflix Technology Blog, 23 March 2018.
//
// It fails where the response does not wait for the work (asynchronous acknowledgement): the time
// seen does not grow with the queue.
#include <algorithm>
#include <array>
#include <cmath>
#include <memory>

#include "agent/strategies/activity.h"
#include "agent/strategies/laws.h"
#include "agent/strategies/model_bytes.h"
#include "agent/strategies/parameters.h"

namespace headgate {
namespace {

using Kind = ParamSpec::Kind;
constexpr std::array kParams{
    ParamSpec{.name = "tolerance",
              .kind = Kind::kNumber,
              .default_value = 1.5,
              .minimum = 1,
              .maximum = 10,
              .doc = "how much slower than usual is not yet a queue"},
    ParamSpec{.name = "smoothing",
              .kind = Kind::kRatio,
              .default_value = 0.2,
              .minimum = 0.01,
              .maximum = 1,
              .doc = "weight of a new limit"},
    ParamSpec{.name = "queue",
              .kind = Kind::kNumber,
              .default_value = 4,
              .minimum = 0,
              .maximum = 1000,
              .doc = "connections that the limit grows by while nothing queues"},
    ParamSpec{.name = "window",
              .kind = Kind::kDuration,
              .default_value = 0.1,
              .minimum = 0.05,
              .maximum = 10,
              .doc = "shortest time between two changes of the limit"},
    ParamSpec{.name = "long_window",
              .kind = Kind::kCount,
              .default_value = 600,
              .minimum = 10,
              .maximum = 100000,
              .doc = "windows of the slow mean of the response time"},
    ParamSpec{.name = "limit_min",
              .kind = Kind::kCount,
              .default_value = 20,
              .minimum = 1,
              .maximum = 1e6,
              .doc = "smallest limit, and the one at the start"},
    ParamSpec{.name = "limit_max",
              .kind = Kind::kCount,
              .default_value = 2000,
              .minimum = 1,
              .maximum = 1e6,
              .doc = "largest limit; not below limit_min"},
};

constexpr double kResponsesMin = 10;
constexpr unsigned kWarmUpWindows = 10;
constexpr double kDrift = 0.95;

struct Settings {
  double tolerance, smoothing, queue, window_s, long_window, limit_min, limit_max;
};

struct Model {
  std::uint64_t version;
  double limit, long_s;
  std::uint64_t windows;
};
constexpr std::uint64_t kModelVersion = 0x4847'4732'0000'0001;  // "HGG2", version 1

class Gradient final : public Strategy {
 public:
  explicit Gradient(const Settings& settings) : set_(settings), limit_(settings.limit_min) {}

  void decide(const StrategyInput& in, Decision& out) override;

  [[nodiscard]] std::size_t save(std::span<std::byte> out) const override {
    return save_model(out, Model{kModelVersion, limit_, long_s_, windows_});
  }
  bool restore(std::span<const std::byte> data) override {
    Model model{};
    if (!load_model(data, kModelVersion, model) || !std::isfinite(model.limit) ||
        !std::isfinite(model.long_s) || model.long_s < 0) {
      return false;
    }
    limit_ = std::clamp(model.limit, set_.limit_min, set_.limit_max);
    long_s_ = model.long_s;
    windows_ = static_cast<unsigned>(std::min<std::uint64_t>(model.windows, kWarmUpWindows));
    return true;
  }
  [[nodiscard]] std::vector<Threshold> internals() const override {
    return {{"limit", limit_}, {"long_response_s", long_s_}, {"short_response_s", short_s_}};
  }

 private:
  void end_window();

  Settings set_;
  double limit_;
  double long_s_ = 0, short_s_ = 0;
  unsigned windows_ = 0;  ///< that the slow mean has seen, up to kWarmUpWindows
  // the window that is being filled
  double span_s_ = 0, responses_ = 0, response_s_ = 0, in_flight_ = 0;
};

void Gradient::end_window() {
  short_s_ = response_s_ / responses_;
  if (windows_ < kWarmUpWindows) {
    long_s_ = (long_s_ * windows_ + short_s_) / (windows_ + 1);
    ++windows_;
  } else {
    long_s_ += (short_s_ - long_s_) * 2 / (set_.long_window + 1);
  }
  if (short_s_ > 0) {
    if (long_s_ / short_s_ > 2) long_s_ *= kDrift;
    if (in_flight_ >= limit_ / 2) {
      const double gradient = std::clamp(set_.tolerance * long_s_ / short_s_, 0.5, 1.0);
      const double fresh = limit_ * gradient + set_.queue;
      limit_ += set_.smoothing * (fresh - limit_);
      limit_ = std::clamp(limit_, set_.limit_min, set_.limit_max);
    }
  }
  span_s_ = responses_ = response_s_ = in_flight_ = 0;
}

void Gradient::decide(const StrategyInput& in, Decision& out) {
  const Activity activity = activity_of(in);
  if (!activity.in_flight_known || !activity.responses_known) {
    admit_unknown(out, "gradient: response times are not seen, everything is admitted");
    return;
  }
  span_s_ += seconds(in.signals.interval);
  responses_ += activity.responses;
  response_s_ += activity.response_s_sum;
  // A refusal in this tick says that the limit was reached, however few are left at its end.
  in_flight_ = std::max(in_flight_, activity.refused > 0 ? limit_ : activity.in_flight);
  // A tick that comes a little early must not make every window two ticks long.
  if (span_s_ >= 0.9 * set_.window_s && responses_ >= kResponsesMin) end_window();

  out.circuit_open = false;
  cap_connections(limit_, activity, out);
  out.why = out.state == State::kShedding ? "gradient: the limit is reached"
                                          : "gradient: fewer in flight than the limit";
}

}  // namespace

StrategyInfo gradient_info() {
  StrategyInfo info;
  info.name = "gradient";
  info.doc = "Netflix Gradient2: in-flight limit from the gradient of the latency";
  info.params = kParams;
  info.check = [](const Params& params) -> std::string { return check_limits(params, kParams); };
  info.make = [](const Params& params) -> std::unique_ptr<Strategy> {
    const auto number = [&](std::string_view name) { return number_of(params, kParams, name); };
    const double limit_min = number("limit_min");
    return std::make_unique<Gradient>(
        Settings{number("tolerance"), number("smoothing"), number("queue"), number("window"),
                 number("long_window"), limit_min, std::max(limit_min, number("limit_max"))});
  };
  return info;
}

}  // namespace headgate
