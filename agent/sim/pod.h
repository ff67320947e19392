// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "agent/sim/scenario.h"

namespace headgate::sim {

/// The simulator's clock: ticks of 1 ms since the start of the experiment.
inline constexpr double kTickS = 0.001;

/// One admitted request. Narrow, because a pod without protection heaps up a million of them.
struct Request {
  float work_s = 0;
  float left_s = 0;
  float size_kb = 0;
  float arrived_s = 0;
  std::uint32_t endpoint = 0;
  std::uint32_t use = 0;  ///< how often this place has been taken: tells a stale handle
  std::int16_t attempt = 0;
  bool abandoned = false;  ///< the client has given up; it is worked off all the same
  bool ended = false;
};
/// Of a request in the pod's store.
struct RequestHandle {
  std::uint32_t place = 0;
  std::uint32_t use = 0;
};

/// What the pod tells while it serves.
class PodEvents {
 public:
  PodEvents() = default;
  PodEvents(const PodEvents&) = delete;
  PodEvents& operator=(const PodEvents&) = delete;
  PodEvents(PodEvents&&) = delete;
  PodEvents& operator=(PodEvents&&) = delete;
  virtual ~PodEvents() = default;

  /// A request is about to be served after it has waited for `waited_s`: true = refuse it now.
  virtual bool refuses_waiting(double waited_s) = 0;
  virtual void refused_waiting(const Request& request) = 0;
  virtual void queue_is_empty() = 0;
  virtual void finished(const Request& request, double at_s) = 0;
};

/// A pod with a CPU limit: a queue, workers of one core each, and the kernel's counters of it.
///
/// CFS bandwidth control (Documentation/scheduler/sched-bwc.rst): every 100 ms the quota is there
/// anew; when it is used up nothing runs until the next period. The periods begin 37 ms after the
/// agent's ticks. Pressure is the time in which something that could run was denied the CPU.
class Pod {
 public:
  explicit Pod(const Scenario& scenario);

  /// First of each tick.
  void begin_tick(std::int64_t tick);
  [[nodiscard]] bool is_down() const { return now_s_ < down_until_s_; }
  RequestHandle admit(std::uint32_t endpoint, float size_kb, float work_s, std::int16_t attempt);
  /// A refusal has been answered by the pod: it costs a little.
  void charge_refusal(double share_of_mean) { refusals_s_ += share_of_mean * mean_cost_s_; }
  /// The request if it is still in the pod.
  [[nodiscard]] Request* find(RequestHandle handle);
  void serve(PodEvents& events);
  /// Retained data, leaks. The work that is lost in CPU-seconds where the pod was killed, else < 0.
  double account_memory();

  [[nodiscard]] double capacity_cores() const { return cores_; }  ///< that can be had now
  [[nodiscard]] double backlog_s() const { return backlog_s_; }   ///< admitted, not done
  [[nodiscard]] double backlog_kb() const { return backlog_kb_; }
  [[nodiscard]] double in_flight() const { return in_flight_; }
  [[nodiscard]] double memory_mib() const { return memory_mib_; }
  [[nodiscard]] int kills() const { return kills_; }

  // cumulative, as in cpu.stat and cpu.pressure
  [[nodiscard]] double usage_s() const { return usage_s_; }
  [[nodiscard]] std::uint64_t periods() const { return periods_; }
  [[nodiscard]] std::uint64_t throttled_periods() const { return throttled_periods_; }
  [[nodiscard]] double throttled_s() const { return throttled_s_; }
  [[nodiscard]] double pressure_s() const { return pressure_s_; }

 private:
  static constexpr std::uint32_t kIdle = ~std::uint32_t{0};

  void work_on(std::uint32_t& worker, double& left_s, PodEvents& events);
  bool next_request(std::uint32_t& worker, PodEvents& events);
  double kill();

  const Scenario& scenario_;
  double mean_cost_s_;
  double now_s_ = 0;
  double cores_ = 0;

  std::vector<Request> store_;
  std::vector<std::uint32_t> free_;
  std::deque<std::uint32_t> queue_;
  std::vector<std::uint32_t> workers_;
  double backlog_s_ = 0;
  double backlog_kb_ = 0;
  double in_flight_ = 0;

  double quota_left_s_;
  double used_s_ = 0;  ///< in this tick
  bool denied_ = false;
  double background_s_ = 0;  ///< other work of the pod that is due
  double refusals_s_ = 0;
  bool throttled_now_ = false;

  double usage_s_ = 0;
  double throttled_s_ = 0;
  double pressure_s_ = 0;
  std::uint64_t periods_ = 0;
  std::uint64_t throttled_periods_ = 0;

  double retained_kb_ = 0;
  double leaked_mib_ = 0;
  double memory_mib_;
  double down_until_s_ = -1;
  int kills_ = 0;
};

}  // namespace headgate::sim
