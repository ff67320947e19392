// SPDX-License-Identifier: Apache-2.0
#include "deploy/demo/results.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>

namespace headgate::demo {
namespace {

constexpr double kBack_s = 3.0;
/// Requests of fifty times the size teach a cost that those of before have to unteach.
constexpr double kBackAfterJump_s = 10.0;
constexpr double kSurge = 1.5;
constexpr double kCriticalShare = 0.99;
constexpr double kCriticalCostShare = 0.85;
constexpr double kCountedAlike = 0.01;
/// Unprotected, a collector that serves this much in this time has not collapsed.
constexpr double kStandsShare = 0.75;
constexpr double kStandsP99_s = 1.5;

/// What is promised of the protected run. Empty: nothing is.
struct Promises {
  std::optional<double> served_share = 0.75;
  double served_up_to = std::numeric_limits<double>::infinity();  ///< times the capacity
  bool served_soon = false;                                       ///< within kSoon_s
  std::optional<double> overload_p99_s = 1.5;  ///< nothing where clients wait to be let in
  std::optional<double> cost_p99_s = std::nullopt;
  double calm_refused = 0.09;
  bool calm_settled = false;  ///< from kSettled_s on
  std::optional<double> surge = std::nullopt;
  bool critical = false;  ///< kCriticalShare and kCriticalCostShare hold
};

Promises promises_of(Traffic traffic, const Protection& protection) {
  Promises out;
  if (traffic == Traffic::kConnections && protection.refuse != "reset") {
    out.overload_p99_s.reset();  // a second to the next try, two to the one behind it
    return out;
  }
  if (protection.strategy != "adaptive") {
    return out;
  }
  out = {.served_soon = true,
         .overload_p99_s = 0.1,
         .cost_p99_s = 0.3,
         .calm_refused = 0.02,
         .calm_settled = true};
  switch (traffic) {
    case Traffic::kConnections:
      out.served_share = 0.90;
      out.surge = kSurge;
      break;
    case Traffic::kKeepAlive:
      out.served_share = 0.80;
      out.critical = true;
      break;
    case Traffic::kGrpc:
      // A refused call costs the server a part of what a served one costs, so at ten times the
      // capacity refusing takes all of it: see README.md.
      out.served_share = 0.40;
      out.served_up_to = 5;
      out.overload_p99_s = out.cost_p99_s = 0.5;
      break;
  }
  return out;
}

// Where the collector used less than this of its quota and met its end in fewer than half of the
// periods, something else was the limit.
constexpr double kQuotaReached = 0.85;
constexpr double kLateGenerator_s = 0.1;
// A machine whose speed changes by more than this between calibration and run had another capacity
// in the run than the one that the loads and the promises are multiples of.
constexpr double kCostDrift = 0.10;

struct Tally {
  std::uint64_t offered = 0, ok = 0;
};

/// See PhaseSummary::back_s.
std::optional<double> back_after(const Run& run, std::size_t phase, double begin_s, double end_s) {
  constexpr double kStep_s = 0.1;
  const auto steps = static_cast<std::size_t>(std::ceil((end_s - begin_s) / kStep_s));
  std::vector<Tally> tallies(steps + 1);
  for (std::size_t i = 0; i < run.arrivals.size(); ++i) {
    if (run.arrivals[i].phase != phase) {
      continue;
    }
    const auto step = static_cast<std::size_t>((run.arrivals[i].at_us / 1e6 - begin_s) / kStep_s);
    Tally& tally = tallies[std::min(step, steps)];
    ++tally.offered;
    tally.ok += run.requests[i].outcome == Outcome::kOk ? 1 : 0;
  }
  const auto share = [&](std::size_t from, std::size_t to) {
    Tally sum;
    for (std::size_t s = from; s < std::min(to, tallies.size()); ++s) {
      sum.offered += tallies[s].offered;
      sum.ok += tallies[s].ok;
    }
    return sum.offered == 0 ? 0.0 : static_cast<double>(sum.ok) / static_cast<double>(sum.offered);
  };
  for (std::size_t s = 0; s < steps; ++s) {
    if (share(s, tallies.size()) >= 0.9 && share(s, s + 10) >= 0.8) {
      return static_cast<double>(s) * kStep_s;
    }
  }
  return std::nullopt;
}

/// See PhaseSummary::surge. The first second is left out: what it gets was offered before.
double surge_in(const Run& run, double begin_s, double end_s, double rate_per_s) {
  constexpr double kStep_s = 0.1;
  constexpr std::size_t kWindow = 10;
  const double from_s = begin_s + 1;
  if (!(end_s > from_s + 1) || !(rate_per_s > 0)) {
    return 0;
  }
  std::vector<std::uint64_t> came(static_cast<std::size_t>((end_s - from_s) / kStep_s));
  for (std::size_t i = 0; i < run.arrivals.size(); ++i) {
    const double at_s = run.arrivals[i].at_us / 1e6 + run.requests[i].connect_s;
    if (run.requests[i].connect_s <= 0 || at_s < from_s) {
      continue;
    }
    const auto step = static_cast<std::size_t>((at_s - from_s) / kStep_s);
    if (step < came.size()) {
      ++came[step];
    }
  }
  std::uint64_t most = 0;
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < came.size(); ++i) {
    sum += came[i];
    if (i >= kWindow) {
      sum -= came[i - kWindow];
    }
    most = std::max(most, sum);
  }
  return static_cast<double>(most) / (rate_per_s * kStep_s * static_cast<double>(kWindow));
}

std::string describe_latency(std::optional<double> p99_s, double deadline_s) {
  if (!p99_s) {
    return "nothing admitted";
  }
  return *p99_s >= deadline_s ? fmt::format("over {:.0f} s", deadline_s)
                              : fmt::format("{:.0f} ms", *p99_s * 1e3);
}

/// Empty when the quota was the limiter in this phase, as far as can be seen.
std::string quota_doubt(const PhaseSummary& p) {
  const double throttled =
      p.periods == 0 ? 0.0 : static_cast<double>(p.throttled) / static_cast<double>(p.periods);
  if (p.cpu_of_quota >= kQuotaReached || throttled >= 0.5) {
    return "";
  }
  return fmt::format(
      "the collector used {:.0f} % of its CPU quota and was throttled in {:.0f} % of "
      "the periods",
      p.cpu_of_quota * 100, throttled * 100);
}

/// Empty when requests cost in the first, calm phase what they cost when calibrated.
std::string drift_doubt(const PhaseSummary& first, const Calibration& calibration,
                        const Limits& limits) {
  if (first.phase.kind != PhaseKind::kCalm || first.ok == 0 || first.cpu_of_quota <= 0) {
    return "";
  }
  const double cost_s =
      first.cpu_of_quota * limits.cpu_cores * first.phase.seconds / static_cast<double>(first.ok);
  if (std::abs(cost_s / calibration.light_cost_s - 1) <= kCostDrift) {
    return "";
  }
  return fmt::format(
      "a request cost {:.1f} ms of CPU in the first phase, {:.1f} ms when the capacity was "
      "measured: "
      "the speed of this machine is not steady",
      cost_s * 1e3, calibration.light_cost_s * 1e3);
}

}  // namespace

std::optional<double> quantile(std::vector<double> values, double q) {
  if (values.empty()) {
    return std::nullopt;
  }
  const auto rank = static_cast<std::size_t>(std::ceil(q * static_cast<double>(values.size())));
  const std::size_t at = std::clamp<std::size_t>(rank, 1, values.size()) - 1;
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(at), values.end());
  return values[at];
}

std::vector<PhaseSummary> summarise(const Run& run, const Limits& limits) {
  std::vector<PhaseSummary> summaries;
  double begin_s = 0;
  for (std::size_t p = 0; p < run.phases.size(); ++p) {
    PhaseSummary s;
    s.phase = run.phases[p];
    s.begin_s = begin_s;
    const double end_s = begin_s + s.phase.seconds;
    std::vector<double> admitted, critical_admitted, lags;
    std::uint64_t served_soon = 0, settled = 0, settled_refused = 0;
    for (std::size_t i = 0; i < run.arrivals.size(); ++i) {
      const Finished& request = run.requests[i];
      if (run.arrivals[i].phase != p || request.outcome == Outcome::kNotSent) {
        continue;
      }
      ++s.offered;
      lags.push_back(request.lag_s);
      if (run.arrivals[i].at_us / 1e6 >= begin_s + kSettled_s) {
        ++settled;
        settled_refused += request.outcome == Outcome::kRefused ? 1U : 0U;
      }
      if (run.arrivals[i].critical) {
        ++s.critical_offered;
        s.critical_ok += request.outcome == Outcome::kOk ? 1U : 0U;
        if (request.outcome != Outcome::kRefused && request.outcome != Outcome::kLocal) {
          critical_admitted.push_back(request.outcome == Outcome::kOk ? request.latency_s
                                                                      : limits.deadline_s);
        }
      }
      s.deferred += request.connect_s - request.lag_s >= 0.9 ? 1U : 0U;
      switch (request.outcome) {
        case Outcome::kOk:
          ++s.ok;
          served_soon += request.latency_s <= kSoon_s ? 1U : 0U;
          admitted.push_back(request.latency_s);
          break;
        case Outcome::kRefused: ++s.refused; break;
        case Outcome::kLocal: ++s.local; break;
        case Outcome::kReset:
          ++s.reset;
          admitted.push_back(limits.deadline_s);
          break;
        case Outcome::kHttpError:
          ++s.http_error;
          admitted.push_back(limits.deadline_s);
          break;
        case Outcome::kPending:  // the run was cut short
        case Outcome::kConnectTimeout:
        case Outcome::kAnswerTimeout:
          ++s.timed_out;
          admitted.push_back(limits.deadline_s);
          break;
        case Outcome::kNotSent: break;
      }
    }
    s.served_per_s = static_cast<double>(s.ok) / s.phase.seconds;
    s.served_soon_per_s = static_cast<double>(served_soon) / s.phase.seconds;
    s.settled_refused_ratio =
        settled == 0 ? 0.0 : static_cast<double>(settled_refused) / static_cast<double>(settled);
    s.refused_ratio =
        s.offered == 0 ? 0.0 : static_cast<double>(s.refused) / static_cast<double>(s.offered);
    s.p50_s = quantile(admitted, 0.5);
    s.p99_s = quantile(admitted, 0.99);
    s.critical_p99_s = quantile(critical_admitted, 0.99);
    s.lag_p99_s = quantile(lags, 0.99).value_or(0);

    const Sample* first = nullptr;
    const Sample* last = nullptr;
    for (const Sample& sample : run.samples) {
      if (sample.t_s < begin_s - 0.05 || sample.t_s > end_s + 0.05) {
        continue;
      }
      first = first == nullptr ? &sample : first;
      last = &sample;
      s.memory_peak_bytes = std::max(s.memory_peak_bytes, sample.memory_bytes);
      s.sockets_peak = std::max(s.sockets_peak, sample.sockets);
    }
    if (first != nullptr && last->t_s > first->t_s) {
      s.cpu_of_quota = static_cast<double>(last->usage_ns - first->usage_ns) / 1e9 /
                       (last->t_s - first->t_s) / limits.cpu_cores;
      s.periods = last->periods - first->periods;
      s.throttled = last->throttled - first->throttled;
    }
    for (const Restart& restart : run.restarts) {
      // What dies after the last phase is the end of the last phase's doing.
      const bool inside =
          restart.t_s >= begin_s && (restart.t_s < end_s || p + 1 == run.phases.size());
      s.restarts += inside ? 1U : 0U;
      s.oom_kills += inside && restart.oom ? 1U : 0U;
    }
    s.after = p > 0 ? run.phases[p - 1].kind : PhaseKind::kCalm;
    s.wants_back =
        p > 0 && s.phase.kind == PhaseKind::kCalm && run.phases[p - 1].kind != PhaseKind::kCalm;
    if (s.wants_back) {
      s.back_s = back_after(run, p, begin_s, end_s);
      s.surge = surge_in(run, begin_s, end_s, s.phase.rate_per_s);
    }
    summaries.push_back(std::move(s));
    begin_s = end_s;
  }
  return summaries;
}

bool has_critical(const std::vector<PhaseSummary>& phases) {
  return std::any_of(phases.begin(), phases.end(),
                     [](const PhaseSummary& p) { return p.critical_offered > 0; });
}

double critical_share(const PhaseSummary& phase) {
  return phase.critical_offered == 0
             ? 1.0
             : static_cast<double>(phase.critical_ok) / static_cast<double>(phase.critical_offered);
}

int Verdict::exit_status() const {
  switch (conclusion) {
    case Conclusion::kSaved: return 0;
    case Conclusion::kNotSaved: return 1;
    case Conclusion::kInconclusive: return 3;
  }
  return 3;
}

Verdict judge(const std::optional<Run>& unprotected, const std::optional<Run>& with_headgate,
              const Calibration& calibration, const Limits& limits, const Protection& protection) {
  Verdict verdict;
  const Promises promises =
      promises_of(with_headgate ? with_headgate->traffic : Traffic::kConnections, protection);
  if (calibration.quota_reached < kQuotaReached) {
    verdict.doubts.push_back(fmt::format(
        "with more work than it could do, the collector got only {:.0f} % of its CPU quota: the "
        "machine is too busy",
        calibration.quota_reached * 100));
  }
  bool collapsed = true;
  const auto doubt_drift = [&](const std::vector<PhaseSummary>& phases, std::string_view which) {
    const std::string drift =
        phases.empty() ? "" : drift_doubt(phases.front(), calibration, limits);
    if (!drift.empty()) {
      verdict.doubts.push_back(fmt::format("{} Headgate, {}", which, drift));
    }
  };
  if (unprotected) {
    const std::vector<PhaseSummary> phases = summarise(*unprotected, limits);
    doubt_drift(phases, "without");
    for (const PhaseSummary& p : phases) {
      // A restart costs CPU time too: then the quota says nothing about the machine.
      const std::string doubt =
          p.phase.kind == PhaseKind::kCalm || p.restarts > 0 ? "" : quota_doubt(p);
      if (!doubt.empty()) {
        verdict.doubts.push_back(fmt::format("without Headgate, {}: {}", p.phase.name, doubt));
      }
      if (p.lag_p99_s > kLateGenerator_s) {
        verdict.doubts.push_back(fmt::format("without Headgate, {}: the load came {:.0f} ms late",
                                             p.phase.name, p.lag_p99_s * 1e3));
      }
      if (p.phase.name == "x10" && p.restarts == 0 && p.p99_s && *p.p99_s < kStandsP99_s &&
          p.served_per_s >= kStandsShare * calibration.capacity_per_s) {
        collapsed = false;
        verdict.doubts.push_back(
            fmt::format("without Headgate the collector served {:.0f}/s at x10, in time: it did "
                        "not collapse, so "
                        "there was nothing to save it from",
                        p.served_per_s));
      }
    }
  }
  if (!with_headgate) {
    const bool sure = verdict.doubts.empty();
    verdict.conclusion = sure ? Conclusion::kSaved : Conclusion::kInconclusive;
    verdict.sentence = !collapsed ? "Unprotected, it did not collapse."
                       : sure     ? "Unprotected, it collapses. Nothing else was run."
                                  : "Inconclusive: " + verdict.doubts.front() + ".";
    return verdict;
  }

  std::string broken;
  const auto check = [&](std::string what, std::string measured, std::string promised, bool kept) {
    if (!kept) {
      broken += fmt::format("{}{}: {}", broken.empty() ? "" : "; ", what, measured);
    }
    verdict.checks.push_back({std::move(what), std::move(measured), std::move(promised), kept});
  };
  const auto check_p99 = [&](const PhaseSummary& p, double below_s) {
    check("p99 of the admitted at " + p.phase.label, describe_latency(p.p99_s, limits.deadline_s),
          below_s < 1 ? fmt::format("below {:.0f} ms", below_s * 1e3)
                      : fmt::format("below {:.1f} s", below_s),
          p.p99_s && *p.p99_s < below_s);
  };
  const auto check_back = [&](const PhaseSummary& p, double within_s) {
    check(fmt::format("back in service ({})", p.phase.name),
          p.back_s ? fmt::format("after {:.1f} s", *p.back_s) : std::string("never"),
          fmt::format("within {:.0f} s", within_s), p.back_s && *p.back_s <= within_s);
  };
  std::uint64_t restarts = 0;
  const std::vector<PhaseSummary> phases = summarise(*with_headgate, limits);
  doubt_drift(phases, "with");
  if (total_seconds(with_headgate->phases) < 0.99 * total_seconds(overload_story(1, 1))) {
    verdict.doubts.emplace_back(
        "the phases were shortened: what a change of load costs weighs more than in the promises");
  }
  std::uint64_t refused_in_all = 0;
  for (const PhaseSummary& p : phases) {
    restarts += p.restarts;
    refused_in_all += p.refused;
    if (promises.critical && p.critical_offered > 0 && p.phase.kind != PhaseKind::kCalm) {
      const double least = p.phase.kind == PhaseKind::kCost ? kCriticalCostShare : kCriticalShare;
      check("critical route served, " + p.phase.label,
            fmt::format("{:.1f} % ({} of {})", critical_share(p) * 100, p.critical_ok,
                        p.critical_offered),
            fmt::format("at least {:.0f} %", least * 100), critical_share(p) >= least);
    }
    if (p.lag_p99_s > kLateGenerator_s) {
      verdict.doubts.push_back(fmt::format("with Headgate, {}: the load came {:.0f} ms late",
                                           p.phase.name, p.lag_p99_s * 1e3));
    }
    if (p.local > 0) {
      verdict.doubts.push_back(fmt::format(
          "with Headgate, {}: {} requests could not be sent (file descriptors or ports)",
          p.phase.name, p.local));
    }
    if (p.phase.kind == PhaseKind::kOverload) {
      const double served_per_s = promises.served_soon ? p.served_soon_per_s : p.served_per_s;
      const double share = served_per_s / calibration.capacity_per_s;
      if (promises.served_share &&
          p.phase.rate_per_s <= promises.served_up_to * calibration.capacity_per_s) {
        check(
            fmt::format("served{} at {}",
                        promises.served_soon ? fmt::format(" within {:.0f} ms", kSoon_s * 1e3) : "",
                        p.phase.label),
            fmt::format("{:.0f}/s, {:.1f} % of capacity", served_per_s, share * 100),
            fmt::format("at least {:.0f} %", *promises.served_share * 100),
            share >= *promises.served_share);
      }
      if (promises.overload_p99_s) {
        check_p99(p, *promises.overload_p99_s);
      }
    } else if (p.phase.kind == PhaseKind::kJump) {
      check("memory at " + p.phase.label,
            fmt::format("{} kills, at most {} MiB", p.oom_kills, p.memory_peak_bytes >> 20),
            fmt::format("no kill, below {} MiB", limits.memory_bytes >> 20),
            p.restarts == 0 && p.memory_peak_bytes < limits.memory_bytes);
    } else if (p.phase.kind == PhaseKind::kCost && promises.cost_p99_s) {
      check_p99(p, *promises.cost_p99_s);
    } else if (p.phase.kind == PhaseKind::kCalm && p.after == PhaseKind::kJump) {
      check_back(p, kBackAfterJump_s);
    } else if (p.phase.kind == PhaseKind::kCalm) {
      // A phase too short to settle is judged whole.
      const bool settles = promises.calm_settled && p.phase.seconds > kSettled_s;
      const double refused = settles ? p.settled_refused_ratio : p.refused_ratio;
      check(fmt::format("refused while calm ({}{})", p.phase.name,
                        settles ? fmt::format(", from {:.0f} s on", kSettled_s) : ""),
            fmt::format("{:.1f} %", refused * 100),
            fmt::format("at most {:.0f} %", promises.calm_refused * 100),
            refused <= promises.calm_refused);
      if (p.wants_back && promises.surge) {
        check(fmt::format("surge ({})", p.phase.name), fmt::format("{:.2f} x", p.surge),
              fmt::format("at most {:.1f} x", *promises.surge), p.surge <= *promises.surge);
      }
      if (p.wants_back) {
        check_back(p, kBack_s);
      }
    }
  }
  if (with_headgate->traffic != Traffic::kConnections) {
    const auto counted = with_headgate->agent_refused_requests;
    const double difference =
        counted ? std::abs(static_cast<double>(*counted) - static_cast<double>(refused_in_all)) : 0;
    check("refusals that Headgate counts",
          counted ? fmt::format("{}, the clients {}", *counted, refused_in_all)
                  : std::string("not known"),
          fmt::format("the same, to {:.0f} %", kCountedAlike * 100),
          counted && difference <= kCountedAlike * static_cast<double>(refused_in_all));
  }
  check("restarts of the collector", std::to_string(restarts), "none", restarts == 0);
  if (!with_headgate->agent_failure.empty()) {
    check("Headgate itself", with_headgate->agent_failure, "runs to the end", false);
  }

  // A promise kept on a doubtful machine is kept all the same; a promise broken there proves
  // nothing. Without a collapse there was nothing to keep it against.
  if (broken.empty() && collapsed) {
    verdict.conclusion = Conclusion::kSaved;
    verdict.sentence = "Saved, as promised.";
  } else if (!verdict.doubts.empty()) {
    verdict.conclusion = Conclusion::kInconclusive;
    verdict.sentence = "Inconclusive: " + verdict.doubts.front() + ".";
  } else {
    verdict.conclusion = Conclusion::kNotSaved;
    verdict.sentence = "Not saved as promised. " + broken + ".";
  }
  return verdict;
}

}  // namespace headgate::demo
