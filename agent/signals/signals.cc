// SPDX-License-Identifier: Apache-2.0
#include "agent/signals/signals.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

namespace headgate {
namespace {

constexpr std::uint64_t kModelVersion = 0x4847'5349'0000'0001;  // "HGSI", version 1

/// More CPU time than `cpus` CPUs have in `elapsed`. The time stamp is taken before the read, and
/// the agent may have waited for a CPU in between, at either end: half as much again and 50 ms a
/// CPU are allowed for that. A real burst cannot pass the machine, so it is never taken for one of
/// these.
bool is_impossible(std::uint64_t usage_ns, Duration elapsed, unsigned cpus) {
  constexpr double kFactor = 1.5;
  constexpr double kTimingErrorSeconds = 0.05;
  return cpus > 0 && static_cast<double>(usage_ns) * 1e-9 >
                         cpus * (kFactor * seconds(elapsed) + kTimingErrorSeconds);
}

Measured<double> usable_limit(const Measured<double>& cores) {
  if (cores.known() && !(std::isfinite(*cores) && *cores > 0)) return Unknown::kNoLimit;
  return cores;
}

}  // namespace

SignalDeriver::Rise SignalDeriver::advance(Counter& counter, const Measured<std::uint64_t>& now,
                                           Instant at) {
  if (!now.known()) return {now.reason, {}};
  const Counter before = counter;
  if (before.has && at == before.at) return {Unknown::kZeroInterval, {}};
  counter = {true, *now, at};
  if (!before.has) return {Unknown::kFirstSample, {}};
  if (at < before.at) return {Unknown::kZeroInterval, {}};  // time restored from another boot
  if (*now < before.value) return {Unknown::kWentBack, {}};
  return {*now - before.value, at - before.at};
}

/// PSI totals are microseconds in which a task waited, docs.kernel.org/accounting/psi: the share of
/// the interval. Clipped, because the total and our clock are not read at the same instant.
Measured<Ratio> SignalDeriver::share_of_time(const Rise& rise_us) {
  if (!rise_us.by.known()) return rise_us.by.reason;
  const double share = static_cast<double>(*rise_us.by) * 1e-6 / seconds(rise_us.over);
  return Ratio{std::clamp(share, 0.0, 1.0)};
}

const Signals& SignalDeriver::update(const Sample& sample, Duration stale_after,
                                     unsigned machine_cpus, Measured<double> load1) {
  signals_.at = sample.at;
  signals_.load1 = load1;
  signals_.interval = has_previous_ ? sample.at - previous_at_ : Duration::zero();
  signals_.interval = std::max(signals_.interval, Duration::zero());
  has_previous_ = true;
  previous_at_ = sample.at;
  derive_cpu(sample, stale_after, machine_cpus);
  derive_memory(sample, stale_after);
  derive_memory_details(sample);
  return signals_;
}

void SignalDeriver::derive_cpu(const Sample& sample, Duration stale_after, unsigned machine_cpus) {
  const Measured<double> limit = usable_limit(sample.limits.cpu_cores);
  Rise usage = advance(usage_ns_, sample.cpu_usage_ns, sample.at);
  if (usage.by.known() && is_impossible(*usage.by, usage.over, machine_cpus)) {
    usage.by = Unknown::kImpossible;
    ++distrusted_.impossible;
  } else if (!usage.by.known() && usage.by.reason == Unknown::kWentBack) {
    ++distrusted_.went_back;
  }
  signals_.capacity_cores = limit.value_or(0);

  if (!limit.known()) {
    signals_.cpu = limit.reason;
  } else if (!usage.by.known()) {
    signals_.cpu = usage.by.reason;
  } else {
    const double cores = static_cast<double>(*usage.by) * 1e-9 / seconds(usage.over);
    signals_.cpu = Ratio{cores / *limit};
    fast_cores_.add(cores, usage.over);
    slow_cores_.add(cores, usage.over);
    last_cores_ = *limit;
    cpu_good_at_ = sample.at;
  }

  const bool no_limit = !limit.known() && limit.reason == Unknown::kNoLimit;
  if (fast_cores_.started() && (no_limit || sample.at - cpu_good_at_ > stale_after)) {
    signals_.cpu_fast = Unknown::kStale;
    fast_cores_.clear();
    slow_cores_.clear();
  }
  if (fast_cores_.started()) {
    const double cores = limit.known() ? *limit : last_cores_;
    signals_.cpu_fast = Ratio{fast_cores_.value() / cores};
    signals_.cpu_slow = Ratio{slow_cores_.value() / cores};
  } else {
    // kStale stands until there is a value again or the lack of a limit explains more.
    if (no_limit || signals_.cpu_fast.reason != Unknown::kStale) {
      signals_.cpu_fast = signals_.cpu.reason;
    }
    signals_.cpu_slow = signals_.cpu_fast;
  }

  const Rise periods = advance(periods_, sample.cpu_periods, sample.at);
  const Rise throttled = advance(throttled_periods_, sample.cpu_throttled_periods, sample.at);
  signals_.periods = periods.by;
  signals_.throttled_periods = throttled.by;
  if (!periods.by.known()) {
    signals_.throttled = periods.by.reason;
  } else if (!throttled.by.known()) {
    signals_.throttled = throttled.by.reason;
  } else if (*periods.by == 0 || periods.over != throttled.over) {
    // An idle group's period timer stops (Documentation/scheduler/sched-bwc.rst): no period is not
    // "not throttled".
    signals_.throttled = Unknown::kZeroInterval;
  } else {
    signals_.throttled =
        Ratio{std::min(1.0, static_cast<double>(*throttled.by) / static_cast<double>(*periods.by))};
  }
  signals_.cpu_pressure =
      share_of_time(advance(cpu_pressure_us_, sample.cpu_pressure_some_us, sample.at));
}

void SignalDeriver::derive_memory(const Sample& sample, Duration stale_after) {
  const Measured<std::uint64_t>& current = sample.memory_current_bytes;
  const Measured<std::uint64_t>& limit = sample.limits.memory_bytes;
  const bool has_limit = limit.known() && *limit > 0;
  signals_.memory_limit_bytes = has_limit       ? limit
                                : limit.known() ? Measured<std::uint64_t>(Unknown::kNoLimit)
                                                : Measured<std::uint64_t>(limit.reason);
  if (!current.known() || !has_limit) {
    const Unknown why = !current.known() ? current.reason
                        : limit.known()  ? Unknown::kNoLimit
                                         : limit.reason;
    signals_.memory = why;
    signals_.memory_slope_per_second = why;
    if (has_working_set_ && sample.at - working_set_at_ > stale_after) {
      has_working_set_ = false;
      slope_.clear();
    }
    return;
  }
  // The kubelet's working set. Where inactive_file is not known all of it counts.
  const std::uint64_t reclaimable = sample.memory_inactive_file_bytes.value_or(0);
  const double working_set =
      *current > reclaimable ? static_cast<double>(*current - reclaimable) : 0.0;
  const double limit_bytes = static_cast<double>(*limit);
  signals_.memory = Ratio{working_set / limit_bytes};

  if (has_working_set_ && sample.at > working_set_at_) {
    // In bytes over the limit of now: a resize is not a rise.
    const Duration dt = sample.at - working_set_at_;
    slope_.add((working_set - working_set_bytes_) / limit_bytes / seconds(dt), dt);
  }
  if (!has_working_set_ || sample.at != working_set_at_) {
    has_working_set_ = true;
    working_set_bytes_ = working_set;
    working_set_at_ = sample.at;
  }
  if (slope_.started()) {
    signals_.memory_slope_per_second = slope_.value();
  } else {
    signals_.memory_slope_per_second = Unknown::kFirstSample;
  }
}

void SignalDeriver::derive_memory_details(const Sample& sample) {
  if (has_details_ && sample.details_at == details_at_) {
    // No new read: the pressure of the last interval stands, and nothing more has been counted.
    if (signals_.memory_limit_hits.known()) signals_.memory_limit_hits = std::uint64_t{0};
    if (signals_.oom_kills.known()) signals_.oom_kills = std::uint64_t{0};
    return;
  }
  has_details_ = true;
  details_at_ = sample.details_at;
  signals_.memory_pressure =
      share_of_time(advance(memory_pressure_us_, sample.memory_pressure_some_us, details_at_));
  signals_.memory_limit_hits = advance(limit_hits_, sample.memory_events_max, details_at_).by;
  signals_.oom_kills = advance(oom_kills_, sample.memory_oom_kills, details_at_).by;
}

namespace {

struct Model {
  std::uint64_t version;
  std::int64_t good_at_ns;
  std::uint64_t usage_ns;
  double cores;
  double fast, fast_weight;
  double slow, slow_weight;
};
static_assert(sizeof(Model) == SignalDeriver::kModelBytes);

}  // namespace

std::size_t SignalDeriver::save(std::span<std::byte> out) const {
  if (!fast_cores_.started() || !usage_ns_.has || out.size() < kModelBytes) return 0;
  const Model model{kModelVersion,       usage_ns_.at.time_since_epoch().count(),
                    usage_ns_.value,     last_cores_,
                    fast_cores_.value(), fast_cores_.weight(),
                    slow_cores_.value(), slow_cores_.weight()};
  std::memcpy(out.data(), &model, sizeof model);
  return sizeof model;
}

bool SignalDeriver::restore(std::span<const std::byte> data) {
  if (data.size() < kModelBytes) return false;
  Model model{};
  std::memcpy(&model, data.data(), sizeof model);
  const auto a_mean = [](double value, double weight) {
    return std::isfinite(value) && value >= 0 && weight > 0 && weight <= 1;
  };
  if (model.version != kModelVersion || !(std::isfinite(model.cores) && model.cores > 0) ||
      !a_mean(model.fast, model.fast_weight) || !a_mean(model.slow, model.slow_weight)) {
    return false;
  }
  reset();
  usage_ns_ = {true, model.usage_ns, Instant(Duration(model.good_at_ns))};
  cpu_good_at_ = usage_ns_.at;
  last_cores_ = model.cores;
  return fast_cores_.restore(model.fast, model.fast_weight) &&
         slow_cores_.restore(model.slow, model.slow_weight);
}

}  // namespace headgate
