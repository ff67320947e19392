// SPDX-License-Identifier: Apache-2.0
#include "agent/sim/simulate.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <queue>
#include <utility>

#include "headgate/units.h"

#include "agent/signals/signals.h"
#include "agent/sim/clock.h"
#include "agent/sim/pod.h"
#include "agent/sim/random.h"

namespace headgate::sim {
namespace {

constexpr double kBytesPerMib = 1024 * 1024;
/// With an early answer a request is seen from outside for its decoding only, by half the workers
/// at a time.
constexpr double kDecodersPerWorker = 0.5;
constexpr double kDecodeS = 0.001;
constexpr double kDecodeShare = 0.2;
/// A refusal out of the queue has been read and queued: it costs more than one at the door.
constexpr double kLateRefusalCost = 0.05;
constexpr double kDearRefusalCost = 0.01;

/// A client that tries again.
struct Retry {
  std::int64_t tick = 0;
  std::uint32_t endpoint = 0;
  float size_kb = 0;
  float work_s = 0;
  std::int16_t attempt = 0;
  bool operator<(const Retry& other) const { return tick > other.tick; }  // earliest on top
};
struct Timeout {
  std::int64_t tick = 0;
  RequestHandle request;
};

/// What the hooks count on one endpoint from one observation to the next.
struct Counted {
  double offered = 0, admitted = 0, established = 0, closed = 0;
  double offered_kb = 0, admitted_kb = 0, closed_kb = 0;
  std::vector<float> response_s;

  void clear() {
    offered = admitted = established = closed = offered_kb = admitted_kb = closed_kb = 0;
    response_s.clear();
  }
};

std::uint64_t whole(double x) { return x > 0 ? static_cast<std::uint64_t>(x + 0.5) : 0; }

class Experiment final : public PodEvents {
 public:
  Experiment(const Scenario& scenario, Guard& guard, const RunOptions& options)
      : scenario_(scenario),
        guard_(guard),
        keeps_ticks_(options.keeps_ticks),
        arrivals_(options.seed * 1000 + 1),
        costs_(options.seed * 1000 + 2),
        backoffs_(options.seed * 1000 + 3),
        noise_(options.seed * 1000 + 4),
        pod_(scenario),
        meter_(scenario, options.keeps_windows),
        tick_ticks_(std::max<std::int64_t>(1, std::llround(scenario.tick_s / kTickS))),
        delay_ticks_(std::llround(scenario.delay_s / kTickS)),
        in_flight_(scenario.endpoints.size()),
        visible_(scenario.endpoints.size()),
        live_(scenario.endpoints.size()),
        carried_(scenario.endpoints.size()),
        counted_(scenario.endpoints.size()) {
    if (scenario_.connections) {
      for (std::size_t e = 0; e < live_.size(); ++e) {
        live_[e] =
            std::floor(scenario_.endpoints[e].rate_per_s / scenario_.connections->requests_per_s);
      }
    }
    (void)deriver_.update(sample(0), kStaleAfter);  // differences need a sample to begin with
  }

  Outcome run() {
    const std::int64_t ticks = std::llround(scenario_.duration_s / kTickS);
    for (tick_ = 0; tick_ < ticks; ++tick_) {
      now_s_ = static_cast<double>(tick_) * kTickS;
      pod_.begin_tick(tick_);
      deliver_observations();
      for (std::uint32_t e = 0; e < live_.size(); ++e) arrive_new(e);
      arrive_again();
      time_out();
      pod_.serve(*this);
      account_memory();
      meter_.end_tick(tick_, {pod_.capacity_cores(), pod_.backlog_s(), pod_.memory_mib(), cpu_});
      if ((tick_ + 1) % tick_ticks_ == 0) observe();
    }
    outcome_.metrics = meter_.result(pod_.kills());
    outcome_.windows = meter_.take_windows();
    return std::move(outcome_);
  }

  // PodEvents
  bool refuses_waiting(double waited_s) override {
    return guard_.refuses_waiting(waited_s, now_s_);
  }
  void refused_waiting(const Request& request) override {
    --in_flight_[request.endpoint];
    pod_.charge_refusal(scenario_.refusal_cost > kDearRefusalCost ? scenario_.refusal_cost
                                                                  : kLateRefusalCost);
    meter_.withdrawn(request.endpoint, request.work_s);
    if (!request.abandoned) retry(request);
  }
  void queue_is_empty() override { guard_.queue_is_empty(now_s_); }
  void finished(const Request& request, double at_s) override {
    --in_flight_[request.endpoint];
    const double took_s = at_s - request.arrived_s;
    meter_.finished(request.work_s, took_s - request.work_s,
                    took_s <= scenario_.timeout_s && !request.abandoned);
    if (!scenario_.async_ack) answered(request.endpoint, request.size_kb, took_s);
  }

 private:
  static constexpr Duration kStaleAfter = std::chrono::seconds(3);

  void arrive_new(std::uint32_t e) {
    const EndpointLoad& load = scenario_.endpoints[e];
    const int count = new_requests(e);
    for (int i = 0; i < count; ++i) {
      const double kb = load.size_kb * load.size.at(now_s_) *
                        (scenario_.even_costs ? 1 : 0.5 + 0.5 * costs_.exponential());
      double work_s = load.cost_s * load.cost.at(now_s_) *
                          (scenario_.even_costs ? 1 : costs_.exponential() * 0.7 + 0.3) +
                      load.cost_per_kb_s * kb;
      if (scenario_.heavy_share > 0 && costs_.uniform() < scenario_.heavy_share) {
        work_s *= scenario_.heavy_factor;
      }
      arrive(e, static_cast<float>(kb), static_cast<float>(work_s), 0);
    }
  }

  int new_requests(std::uint32_t e) {
    const EndpointLoad& load = scenario_.endpoints[e];
    const double rate_per_s = load.rate_per_s * load.rate.at(now_s_);
    if (scenario_.connections) {
      connect(e, rate_per_s);
      return arrivals_.poisson(live_[e] * scenario_.connections->requests_per_s * kTickS);
    }
    if (!scenario_.even_arrivals) return arrivals_.poisson(rate_per_s * kTickS);
    carried_[e] += rate_per_s * kTickS;
    const int count = static_cast<int>(carried_[e]);
    carried_[e] -= count;
    return count;
  }

  /// Clients come so often that `rate_per_s` requests would be offered if all were let in.
  void connect(std::uint32_t e, double rate_per_s) {
    const Connections& c = *scenario_.connections;
    Counted& counted = counted_[e];
    const int coming = arrivals_.poisson(rate_per_s / c.requests_per_s / c.life_s * kTickS);
    for (int i = 0; i < coming; ++i) {
      ++counted.offered;
      guard_.see_load({live_, pod_.backlog_kb() * kBytesPerKb});
      if (!guard_.admits({e, 0, now_s_})) continue;
      ++counted.admitted;
      ++counted.established;
      ++live_[e];
    }
    close(e, arrivals_.poisson(live_[e] * kTickS / c.life_s));
    if (c.close_share_per_s <= 0) return;
    double all = 0;
    for (const double live : live_) all += live;
    const double share = std::min(c.close_share_per_s, guard_.close_share_per_s(all));
    close(e, arrivals_.poisson(live_[e] * kTickS * share));
  }
  void close(std::uint32_t e, int leaving) {
    const double closed = std::min(live_[e], static_cast<double>(leaving));
    live_[e] -= closed;
    counted_[e].closed += closed;
  }

  void arrive_again() {
    while (!retries_.empty() && retries_.top().tick <= tick_) {
      const Retry r = retries_.top();
      retries_.pop();
      arrive(r.endpoint, r.size_kb, r.work_s, r.attempt);
    }
  }

  void arrive(std::uint32_t e, float kb, float work_s, std::int16_t attempt) {
    const bool counts = !scenario_.connections;  // else the hook sees connections only
    meter_.offered(e, work_s, attempt == 0);
    if (counts) {
      ++counted_[e].offered;
      counted_[e].offered_kb += kb;
    }
    bool comes_in = !pod_.is_down();
    if (comes_in && counts) {
      guard_.see_load({visible_in_flight(), pod_.backlog_kb() * kBytesPerKb});
      comes_in = guard_.admits({e, kb, now_s_});
    }
    if (!comes_in) {
      meter_.refused();
      pod_.charge_refusal(scenario_.refusal_cost);
      retry({work_s, work_s, kb, 0, e, 0, attempt, false, false});
      return;
    }
    meter_.admitted(e, work_s);
    if (counts) {
      ++counted_[e].admitted;
      ++counted_[e].established;
      counted_[e].admitted_kb += kb;
    }
    const RequestHandle handle = pod_.admit(e, kb, work_s, attempt);
    ++in_flight_[e];
    if (scenario_.async_ack) answered(e, kb, kDecodeS + kDecodeShare * work_s);
    if (scenario_.retry_timeouts) {
      timeouts_.push_back(
          {tick_ + static_cast<std::int64_t>(scenario_.timeout_s / kTickS), handle});
    }
  }

  void answered(std::uint32_t e, double kb, double took_s) {
    if (scenario_.connections) return;  // a request within a connection: not seen
    Counted& counted = counted_[e];
    ++counted.closed;
    counted.closed_kb += kb;
    counted.response_s.push_back(static_cast<float>(took_s));
  }

  void time_out() {
    while (!timeouts_.empty() && timeouts_.front().tick <= tick_) {
      Request* request = pod_.find(timeouts_.front().request);
      timeouts_.pop_front();
      if (request == nullptr || request->abandoned) continue;
      request->abandoned = true;
      retry(*request);
    }
  }

  /// The client tries again after a backoff that doubles, with jitter of +-50 %.
  void retry(const Request& r) {
    if (scenario_.retries <= 0 || r.attempt >= scenario_.retries) return;
    const double backoff_s =
        scenario_.retry_backoff_s * std::pow(2.0, r.attempt) * (0.5 + backoffs_.uniform());
    retries_.push({tick_ + 1 + static_cast<std::int64_t>(backoff_s / kTickS), r.endpoint, r.size_kb,
                   r.work_s, static_cast<std::int16_t>(r.attempt + 1)});
  }

  void account_memory() {
    const double lost_s = pod_.account_memory();
    if (lost_s < 0) return;
    meter_.lost(lost_s);
    std::fill(in_flight_.begin(), in_flight_.end(), 0.0);
    restarted_ = true;
  }

  /// Of each endpoint, as seen from outside.
  std::span<const double> visible_in_flight() {
    if (scenario_.connections) return live_;
    if (!scenario_.async_ack) return in_flight_;
    const double all = pod_.in_flight();
    const double seen = std::min(all, kDecodersPerWorker * static_cast<double>(scenario_.workers));
    for (std::size_t e = 0; e < visible_.size(); ++e) {
      visible_[e] = all > 0 ? in_flight_[e] * seen / all : 0;
    }
    return visible_;
  }

  [[nodiscard]] Sample sample(double at_s) const {
    Sample s;
    s.at = s.details_at = instant(at_s);
    s.cpu_usage_ns = whole(read_usage_s_ * 1e9);
    if (scenario_.hard_quota) {
      s.cpu_periods = pod_.periods();
      s.cpu_throttled_periods = pod_.throttled_periods();
      s.cpu_throttled_ns = whole(pod_.throttled_s() * 1e9);
    } else {
      s.cpu_periods = s.cpu_throttled_periods = s.cpu_throttled_ns = Unknown::kAbsent;
    }
    s.cpu_pressure_some_us = whole(pod_.pressure_s() * 1e6);
    s.memory_current_bytes = whole(pod_.memory_mib() * kBytesPerMib);
    s.memory_inactive_file_bytes = std::uint64_t{0};
    s.memory_oom_kills = static_cast<std::uint64_t>(pod_.kills());
    s.limits.cpu_cores = scenario_.capacity_cores;
    s.limits.cpu_source = scenario_.hard_quota ? LimitSource::kOwn : LimitSource::kConfig;
    s.limits.memory_bytes = whole(scenario_.memory_limit_mib * kBytesPerMib);
    s.limits.memory_source = LimitSource::kOwn;
    return s;
  }

  /// The usage of a tick as it would be read, with noise.
  void read_usage() {
    const double limit_s = scenario_.tick_s * scenario_.capacity_cores;
    cpu_ = (pod_.usage_s() - usage_before_s_) / limit_s;
    usage_before_s_ = pod_.usage_s();
    if (cpu_ > 0) cpu_ = std::max(0.0, cpu_ + scenario_.noise * noise_.normal() * 0.5);
    read_usage_s_ += cpu_ * limit_s;
  }

  void observe() {
    read_usage();
    Observation o;
    o.at_s = now_s_ + kTickS;
    o.tick_s = scenario_.tick_s;
    o.signals = deriver_.update(sample(o.at_s), kStaleAfter);
    o.restarted = std::exchange(restarted_, false);
    const auto in_flight = visible_in_flight();
    for (std::size_t e = 0; e < counted_.size(); ++e) {
      o.endpoints.push_back(activity(counted_[e], in_flight[e]));
      counted_[e].clear();
    }
    observations_.emplace_back(tick_ + 1 + delay_ticks_, std::move(o));
  }

  [[nodiscard]] EndpointActivity activity(Counted& c, double in_flight) const {
    EndpointActivity a;
    a.offered = whole(c.offered);
    a.admitted = whole(c.admitted);
    a.refused = a.offered - a.admitted;
    a.established = whole(c.established);
    a.closed = whole(c.closed);
    a.received_bytes = whole(c.closed_kb * kBytesPerKb);
    a.in_flight = whole(in_flight);
    a.in_flight_known = true;
    if (scenario_.connections) return a;
    a.offered_bytes = whole(c.offered_kb * kBytesPerKb);
    a.admitted_bytes = whole(c.admitted_kb * kBytesPerKb);
    a.sizes_known = true;
    a.responses_known = true;
    a.responses = c.response_s.size();
    if (a.responses == 0) return a;
    for (const float took_s : c.response_s) a.response_s_sum += took_s;
    a.response_s_min = *std::min_element(c.response_s.begin(), c.response_s.end());
    const auto p99 = c.response_s.begin() +
                     static_cast<std::ptrdiff_t>(0.99 * static_cast<double>(a.responses - 1));
    std::nth_element(c.response_s.begin(), p99, c.response_s.end());
    a.response_s_p99 = *p99;
    return a;
  }

  void deliver_observations() {
    while (!observations_.empty() && observations_.front().first <= tick_) {
      Observation& o = observations_.front().second;
      guard_.observe(o, now_s_);
      if (keeps_ticks_ && guard_.decision() != nullptr) {
        outcome_.ticks.push_back({std::move(o), *guard_.decision(), owned(guard_.internals())});
      }
      observations_.pop_front();
    }
  }

  const Scenario& scenario_;
  Guard& guard_;
  bool keeps_ticks_;
  Random arrivals_, costs_, backoffs_, noise_;
  Pod pod_;
  Meter meter_;
  Outcome outcome_;
  std::int64_t tick_ = 0;
  double now_s_ = 0;
  std::int64_t tick_ticks_, delay_ticks_;

  std::vector<double> in_flight_, visible_;  ///< requests of each endpoint
  std::vector<double> live_;                 ///< connections of each endpoint
  std::vector<double> carried_;              ///< of even arrivals: the part of a request to come
  std::priority_queue<Retry> retries_;
  std::deque<Timeout> timeouts_;

  std::vector<Counted> counted_;
  SignalDeriver deriver_;
  double usage_before_s_ = 0;
  double read_usage_s_ = 0;  ///< cumulative, with noise
  double cpu_ = 0;
  bool restarted_ = false;
  std::deque<std::pair<std::int64_t, Observation>> observations_;
};

}  // namespace

Outcome simulate(const Scenario& scenario, Guard& guard, const RunOptions& options) {
  return Experiment(scenario, guard, options).run();
}

}  // namespace headgate::sim
