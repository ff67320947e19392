// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "deploy/demo/headgate_process.h"
#include "deploy/demo/report.h"
#include "deploy/demo/results.h"
#include "deploy/demo/scenario.h"
#include "deploy/demo/subject.h"

namespace headgate::demo {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr double kCapacity = 100;

Calibration calibration() {
  Calibration c;
  c.capacity_per_s = kCapacity;
  c.light_cost_s = 0.005;
  c.heavy_cost_s = 0.020;
  c.light_units = 100;
  c.heavy_units = 400;
  c.quota_reached = 1.0;
  return c;
}

/// A run of the story in which a share of each phase's requests had an outcome, evenly spread, and
/// the rest was served in 10 ms; the collector used its whole quota.
class MadeRun {
 public:
  explicit MadeRun(bool with_headgate) {
    run_.with_headgate = with_headgate;
    run_.phases = overload_story(kCapacity, 1);
    run_.arrivals = poisson_arrivals(run_.phases, 1, 8);
    run_.requests.assign(run_.arrivals.size(), {0, 0.001, 0.010, Outcome::kOk});
    cpu(1.0, 1.0);
  }

  /// From `from_s` after the phase began.
  MadeRun& outcome(std::string_view phase, double share, Outcome outcome, double latency_s,
                   double from_s = 0, double to_s = 1e9) {
    double begin_s = 0;
    for (std::size_t p = 0; p < run_.phases.size(); ++p) {
      double due = 0;
      for (std::size_t i = 0; i < run_.arrivals.size() && run_.phases[p].name == phase; ++i) {
        const double t_s = run_.arrivals[i].at_us / 1e6 - begin_s;
        if (run_.arrivals[i].phase != p || t_s < from_s || t_s >= to_s) {
          continue;
        }
        due += share;
        if (due >= 1 - 1e-9) {
          due -= 1;
          run_.requests[i] = {0, 0.001, latency_s, outcome};
        }
      }
      begin_s += run_.phases[p].seconds;
    }
    return *this;
  }

  /// As Headgate keeps it: what is above 90 % of capacity is refused.
  MadeRun& saved() {
    return outcome("x3", 0.70, Outcome::kRefused, 0.0001)
        .outcome("x10", 0.91, Outcome::kRefused, 0.0001)
        .outcome("cost_x4", 0.60, Outcome::kRefused, 0.0001);
  }
  MadeRun& collapsed() {
    return outcome("x3", 0.9, Outcome::kAnswerTimeout, 2)
        .outcome("x10", 1, Outcome::kAnswerTimeout, 2);
  }
  /// In the phases that are not calm; a calm one uses 60 % and is never throttled.
  MadeRun& cpu(double of_quota, double throttled) {
    run_.samples.clear();
    double usage_s = 0;
    double throttled_periods = 0;
    double end_s = 0;
    std::uint64_t n = 0;
    for (const Phase& p : run_.phases) {
      const bool calm = p.kind == PhaseKind::kCalm;
      end_s += p.seconds;
      for (; static_cast<double>(n) * 0.1 < end_s; ++n) {
        Sample sample;
        sample.t_s = static_cast<double>(n) * 0.1;
        sample.usage_ns = static_cast<std::uint64_t>(usage_s * 1e9);
        sample.periods = n;
        sample.throttled = static_cast<std::uint64_t>(throttled_periods);
        sample.memory_bytes = 10 << 20;
        sample.sockets = 3;
        run_.samples.push_back(sample);
        usage_s += 0.1 * Limits{}.cpu_cores * (calm ? 0.6 : of_quota);
        throttled_periods += calm ? 0 : throttled;
      }
    }
    return *this;
  }
  MadeRun& late(double lag_s) {
    for (Finished& f : run_.requests) {
      f.lag_s = lag_s;
    }
    return *this;
  }
  /// The first `count` requests of a phase come in when `t_s` of the run have passed.
  MadeRun& come_at(std::string_view phase, std::size_t count, double t_s) {
    for (std::size_t i = 0; i < run_.arrivals.size() && count > 0; ++i) {
      if (run_.phases[run_.arrivals[i].phase].name == phase) {
        run_.requests[i].connect_s = t_s - run_.arrivals[i].at_us / 1e6;
        --count;
      }
    }
    return *this;
  }
  MadeRun& died(double t_s) {
    run_.restarts.push_back({t_s, true, "killed by signal 9"});
    return *this;
  }
  [[nodiscard]] const Run& get() const { return run_; }

 private:
  Run run_;
};

const Protection kGraded{"graded", "reset"};

PhaseSummary phase(const Run& run, std::string_view name) {
  const auto all = summarise(run, Limits{});
  return *std::find_if(all.begin(), all.end(),
                       [&](const PhaseSummary& p) { return p.phase.name == name; });
}

Verdict judged(const MadeRun& without, const MadeRun& with) {
  return judge(without.get(), with.get(), calibration(), Limits{}, kGraded);
}

TEST(Story, EveryPhaseHasANameAndALabelOfItsOwn) {
  std::set<std::string> seen;
  for (const Phase& phase : overload_story(140, 1, Traffic::kConnections, /*jump=*/true)) {
    EXPECT_TRUE(seen.insert("name " + phase.name).second) << phase.name;
    EXPECT_TRUE(seen.insert("label " + phase.label).second) << phase.label;
    EXPECT_LE(phase.label.size(), 14U) << "the column of the table";
  }
}

TEST(Arrivals, SameSeedSameArrivals) {
  const auto phases = overload_story(140, 1);
  const auto a = poisson_arrivals(phases, 7, 8);
  const auto b = poisson_arrivals(phases, 7, 8);
  ASSERT_EQ(a.size(), b.size());
  EXPECT_TRUE(std::equal(a.begin(), a.end(), b.begin(), [](const Arrival& x, const Arrival& y) {
    return x.at_us == y.at_us && x.phase == y.phase && x.group == y.group;
  }));
  EXPECT_NE(poisson_arrivals(phases, 8, 8).front().at_us, a.front().at_us);
}

TEST(Arrivals, EachPhaseHasItsRateAndStaysInItsTime) {
  const auto phases = overload_story(140, 1);
  const auto arrivals = poisson_arrivals(phases, 1, 8);
  double begin_s = 0;
  for (std::size_t p = 0; p < phases.size(); ++p) {
    const double want = phases[p].rate_per_s * phases[p].seconds;
    double n = 0;
    for (const Arrival& a : arrivals) {
      if (a.phase == p) {
        ++n;
        EXPECT_GE(a.at_us / 1e6, begin_s - 1e-6);
        EXPECT_LE(a.at_us / 1e6, begin_s + phases[p].seconds);
      }
    }
    EXPECT_NEAR(n, want, 5 * std::sqrt(want)) << phases[p].name;
    begin_s += phases[p].seconds;
  }
}

TEST(Arrivals, ACriticalShareIsDrawnFromThem) {
  const auto phases = overload_story(140, 1, Traffic::kKeepAlive);
  const auto arrivals = poisson_arrivals(phases, 1, 4);
  for (std::size_t p = 0; p < phases.size(); ++p) {
    const double want = 0.3 * 140 * phases[p].seconds;
    const auto n = std::count_if(arrivals.begin(), arrivals.end(),
                                 [&](const Arrival& a) { return a.phase == p && a.critical; });
    EXPECT_NEAR(static_cast<double>(n), want, 5 * std::sqrt(want)) << phases[p].name;
  }
  for (const Arrival& a : poisson_arrivals(overload_story(140, 1), 1, 8)) {
    ASSERT_FALSE(a.critical);
  }
}

TEST(Arrivals, GapsAreExponential) {
  const std::vector<Phase> one = {{"one", "one", PhaseKind::kCalm, 100, 200}};
  const auto arrivals = poisson_arrivals(one, 3, 8);
  double sum = 0;
  double squares = 0;
  for (std::size_t i = 1; i < arrivals.size(); ++i) {
    const double gap_s = (arrivals[i].at_us - arrivals[i - 1].at_us) / 1e6;
    sum += gap_s;
    squares += gap_s * gap_s;
  }
  const auto n = static_cast<double>(arrivals.size() - 1);
  const double mean = sum / n;
  // Mean and standard deviation of an exponential are the same.
  EXPECT_NEAR(mean, 0.005, 0.0002);
  EXPECT_NEAR(std::sqrt(squares / n - mean * mean) / mean, 1.0, 0.05);
}

TEST(Quantile, IsTheNearestRank) {
  EXPECT_EQ(quantile({}, 0.5), std::nullopt);
  EXPECT_EQ(quantile({3}, 0.99), 3);
  EXPECT_EQ(quantile({4, 1, 3, 2}, 0.5), 2);
  std::vector<double> hundred;
  for (int i = 100; i >= 1; --i) {
    hundred.push_back(i);
  }
  EXPECT_EQ(quantile(hundred, 0.99), 99);
  EXPECT_EQ(quantile(hundred, 1.0), 100);
}

TEST(Summary, TimedOutCountsAsTheDeadlineAndRefusedNotAtAll) {
  MadeRun run(true);
  run.outcome("warm", 0.30, Outcome::kRefused, 0.0001);
  EXPECT_NEAR(*phase(run.get(), "warm").p99_s, 0.010, 1e-9);
  EXPECT_NEAR(phase(run.get(), "warm").refused_ratio, 0.30, 0.01);
  run.outcome("warm", 0.05, Outcome::kAnswerTimeout, 2);
  EXPECT_EQ(phase(run.get(), "warm").p99_s, 2);
  EXPECT_NEAR(*phase(run.get(), "warm").p50_s, 0.010, 1e-9);
}

TEST(Summary, CpuIsOfTheQuotaAndThrottlingOfThePhase) {
  const MadeRun run = MadeRun(false).cpu(0.8, 0.25);
  const PhaseSummary x10 = phase(run.get(), "x10");
  EXPECT_NEAR(x10.cpu_of_quota, 0.8, 0.01);
  EXPECT_EQ(x10.periods, 120U);
  EXPECT_NEAR(static_cast<double>(x10.throttled), 30, 1);
}

TEST(Summary, BackIsWhenNineInTenAreServedToTheEnd) {
  MadeRun run(true);
  run.outcome("back_after_x10", 1, Outcome::kRefused, 0.0001, 0, 1.5);
  const auto back = phase(run.get(), "back_after_x10").back_s;
  ASSERT_TRUE(back);
  EXPECT_GE(*back, 0.9);
  EXPECT_LE(*back, 1.6);
  EXPECT_EQ(phase(run.get(), "back_after_x3").back_s, 0);
  EXPECT_FALSE(phase(run.get(), "warm").wants_back);
}

TEST(Summary, OneGoodSecondIsNotBack) {
  MadeRun run(true);
  run.outcome("back_after_x10", 1, Outcome::kAnswerTimeout, 2, 0, 3);
  run.outcome("back_after_x10", 1, Outcome::kAnswerTimeout, 2, 5, 12);
  EXPECT_EQ(phase(run.get(), "back_after_x10").back_s, std::nullopt);
}

TEST(Verdict, SavedWhenEveryPromiseIsKept) {
  const Verdict v = judged(MadeRun(false).collapsed(), MadeRun(true).saved());
  EXPECT_EQ(v.conclusion, Conclusion::kSaved) << v.sentence;
  EXPECT_EQ(v.exit_status(), 0);
  EXPECT_EQ(v.checks.size(), 4U + 4U + 3U + 1U);
}

TEST(Verdict, EachBrokenPromiseIsSeen) {
  const auto without = MadeRun(false).collapsed();
  const std::vector<std::pair<std::string, MadeRun>> broken = {
      {"served at x10", MadeRun(true).saved().outcome("x10", 0.3, Outcome::kRefused, 0.0001)},
      {"p99 of the admitted at x3", MadeRun(true).saved().outcome("x3", 0.02, Outcome::kOk, 1.6)},
      {"refused while calm (warm)",
       MadeRun(true).saved().outcome("warm", 0.10, Outcome::kRefused, 0.0001)},
      {"back in service (back_after_x3)",
       MadeRun(true).saved().outcome("back_after_x3", 1, Outcome::kConnectTimeout, 2, 0, 4)},
      {"restarts of the collector", MadeRun(true).saved().died(30)},
  };
  for (const auto& [what, with] : broken) {
    const Verdict v = judged(without, with);
    EXPECT_EQ(v.conclusion, Conclusion::kNotSaved) << what;
    EXPECT_EQ(v.exit_status(), 1);
    const auto check = std::find_if(v.checks.begin(), v.checks.end(),
                                    [&, w = what](const Check& c) { return c.what == w; });
    ASSERT_NE(check, v.checks.end()) << what;
    EXPECT_FALSE(check->kept) << what;
  }
}

/// As `adaptive` keeps it.
MadeRun saved_well(double refused_at_x10 = 0.90) {
  return MadeRun(true)
      .outcome("x3", 0.68, Outcome::kRefused, 0.0001)
      .outcome("x10", refused_at_x10, Outcome::kRefused, 0.0001)
      .outcome("cost_x4", 0.60, Outcome::kRefused, 0.0001);
}

TEST(Verdict, AdaptivePromisesMore) {
  const auto without = MadeRun(false).collapsed();
  const auto of = [&](const MadeRun& with, const Protection& protection) {
    return judge(without.get(), with.get(), calibration(), Limits{}, protection);
  };
  EXPECT_EQ(of(saved_well(), {}).conclusion, Conclusion::kSaved) << of(saved_well(), {}).sentence;
  EXPECT_EQ(of(saved_well(), {}).checks.size(), 4U + 1U + 4U + 3U + 3U + 1U);
  EXPECT_THAT(of(saved_well(0.917), {}).sentence, HasSubstr("83.3 % of capacity"));
  const double after_x10_s = 8 + 10 + 8 + 12;
  const std::vector<std::pair<std::string, MadeRun>> broken = {
      {"served within 500 ms at x10", saved_well(0.92)},
      {"p99 of the admitted at x3", saved_well().outcome("x3", 0.05, Outcome::kOk, 0.15)},
      {"p99 of the admitted at 60 %, 4x cost",
       saved_well().outcome("cost_x4", 0.05, Outcome::kOk, 0.4)},
      {"refused while calm (back_after_x10, from 5 s on)",
       saved_well().outcome("back_after_x10", 0.04, Outcome::kRefused, 0.0001, 5)},
      {"surge (back_after_x10)", saved_well().come_at("x10", 200, after_x10_s + 3)},
  };
  for (const auto& [what, with] : broken) {
    const Verdict v = of(with, {});
    EXPECT_EQ(v.conclusion, Conclusion::kNotSaved) << what;
    const auto check = std::find_if(v.checks.begin(), v.checks.end(),
                                    [&, w = what](const Check& c) { return c.what == w; });
    ASSERT_NE(check, v.checks.end()) << what;
    EXPECT_FALSE(check->kept) << what;
    EXPECT_EQ(of(with, kGraded).conclusion, Conclusion::kSaved) << what;
  }
  // While it settles it may refuse more.
  EXPECT_EQ(of(saved_well().outcome("back_after_x10", 0.1, Outcome::kRefused, 0.0001, 0, 4.9), {})
                .conclusion,
            Conclusion::kSaved);
}

TEST(Verdict, WhoWaitsToBeLetInIsNotJudgedByHowLong) {
  const auto without = MadeRun(false).collapsed();
  const auto waits = saved_well().outcome("x3", 0.05, Outcome::kOk, 1.9);
  const auto of = [&](const char* refuse) {
    return judge(without.get(), waits.get(), calibration(), Limits{}, {"adaptive", refuse});
  };
  EXPECT_EQ(of("reset").conclusion, Conclusion::kNotSaved);
  for (const char* refuse : {"auto", "{defer: 8s}"}) {
    const Verdict v = of(refuse);
    EXPECT_EQ(v.conclusion, Conclusion::kSaved) << v.sentence;
    EXPECT_TRUE(std::none_of(v.checks.begin(), v.checks.end(),
                             [](const Check& c) { return c.what.rfind("p99", 0) == 0; }));
  }
}

TEST(Verdict, UnreachableQuotaIsInconclusiveNotALie) {
  // Served too little, but so would anybody at 60 % of the CPU.
  const auto starved = MadeRun(true).saved().outcome("x10", 0.5, Outcome::kRefused, 0.0001);
  const Verdict v = judged(MadeRun(false).collapsed().cpu(0.6, 0.1), starved);
  EXPECT_EQ(v.conclusion, Conclusion::kInconclusive);
  EXPECT_EQ(v.exit_status(), 3);
  EXPECT_THAT(v.sentence, HasSubstr("60 %"));

  Calibration busy = calibration();
  busy.quota_reached = 0.7;
  EXPECT_EQ(
      judge(MadeRun(false).collapsed().get(), starved.get(), busy, Limits{}, kGraded).conclusion,
      Conclusion::kInconclusive);
  EXPECT_EQ(judged(MadeRun(false).collapsed(),
                   MadeRun(true).saved().outcome("warm", 1, Outcome::kRefused, 0.0001).late(0.2))
                .conclusion,
            Conclusion::kInconclusive);
}

TEST(Verdict, AMachineThatBecameSlowerIsInconclusive) {
  const auto short_of = MadeRun(true).saved().outcome("x10", 0.3, Outcome::kRefused, 0.0001);
  Calibration other = calibration();
  other.light_cost_s *= 0.8;
  const Verdict v =
      judge(MadeRun(false).collapsed().get(), short_of.get(), other, Limits{}, kGraded);
  EXPECT_EQ(v.conclusion, Conclusion::kInconclusive);
  EXPECT_THAT(v.sentence, HasSubstr("not steady"));
}

TEST(Verdict, ShortenedPhasesBreakNoPromise) {
  demo::Run with =
      MadeRun(true).saved().outcome("back_after_x3", 0.15, Outcome::kRefused, 0.0001).get();
  const auto judged_with = [&] {
    return judge(MadeRun(false).collapsed().get(), with, calibration(), Limits{}, kGraded)
        .conclusion;
  };
  EXPECT_EQ(judged_with(), Conclusion::kNotSaved);
  with.phases.back().seconds /= 2;
  EXPECT_EQ(judged_with(), Conclusion::kInconclusive);
}

TEST(Verdict, NothingToSaveFromIsInconclusive) {
  const Verdict v = judged(MadeRun(false), MadeRun(true).saved());
  EXPECT_EQ(v.conclusion, Conclusion::kInconclusive);
  EXPECT_THAT(v.sentence, HasSubstr("did not collapse"));
}

TEST(Verdict, AnAgentThatDiesIsNotSaved) {
  demo::Run with = MadeRun(true).saved().get();
  with.agent_failure = "killed by signal 11 during the run";
  const Verdict v = judge(MadeRun(false).collapsed().get(), with, calibration(), Limits{}, kGraded);
  EXPECT_EQ(v.conclusion, Conclusion::kNotSaved);
}

TEST(Report, PageNeedsNothingFromOutside) {
  Outcomes outcomes;
  outcomes.calibration = calibration();
  outcomes.unprotected = MadeRun(false).collapsed().died(30).get();
  outcomes.with_headgate = MadeRun(true).saved().get();
  outcomes.subject_title = "A <collector> & more";
  const Options options;
  const std::string page = html_report(
      outcomes,
      judge(outcomes.unprotected, outcomes.with_headgate, outcomes.calibration, Limits{}, kGraded),
      options);
  for (const char* outside : {"http://", "https://", "src=", "href=", "@import", "url("}) {
    EXPECT_THAT(page, Not(HasSubstr(outside)));
  }
  EXPECT_THAT(page, HasSubstr("A &lt;collector&gt; &amp; more"));
  EXPECT_THAT(page, Not(HasSubstr("nan")));
  EXPECT_THAT(page, HasSubstr("With Headgate"));
  EXPECT_THAT(page, HasSubstr("Without Headgate"));
  EXPECT_THAT(page, HasSubstr("out of memory"));
}

TEST(Report, JsonHoldsBothRunsAndTheVerdict) {
  Outcomes outcomes;
  outcomes.calibration = calibration();
  outcomes.unprotected = MadeRun(false).collapsed().get();
  outcomes.with_headgate = MadeRun(true).saved().get();
  const Verdict verdict =
      judge(outcomes.unprotected, outcomes.with_headgate, outcomes.calibration, Limits{}, kGraded);
  const auto json =
      nlohmann::json::parse(json_report(outcomes, verdict, Options{}), nullptr, false);
  ASSERT_FALSE(json.is_discarded());
  EXPECT_EQ(json["schema"], 1);
  EXPECT_EQ(json["verdict"], "saved");
  ASSERT_EQ(json["with"]["phases"].size(), 7U);
  EXPECT_EQ(json["with"]["phases"][3]["name"], "x10");
  EXPECT_EQ(json["without"]["phases"][3]["served"], 0);
}

/// The story on kept connections: all that is refused is sheddable, but for this share of the
/// critical requests at x10.
Run kept_run(double critical_refused) {
  Run run = MadeRun(true).get();
  run.traffic = Traffic::kKeepAlive;
  run.phases = overload_story(kCapacity, 1, run.traffic);
  run.arrivals = poisson_arrivals(run.phases, 1, 4);
  run.requests.assign(run.arrivals.size(), {0, 0.001, 0.010, Outcome::kOk});
  std::uint64_t refused = 0;
  double due = 0;
  for (std::size_t i = 0; i < run.arrivals.size(); ++i) {
    const Phase& phase = run.phases[run.arrivals[i].phase];
    const double sheddable_per_s = phase.rate_per_s - phase.critical_per_s;
    const double room_per_s = 0.9 * kCapacity - phase.critical_per_s;
    double share = phase.kind == PhaseKind::kOverload ? 1 - room_per_s / sheddable_per_s : 0;
    if (run.arrivals[i].critical) {
      share = phase.name == "x10" ? critical_refused : 0;
    }
    due += share;
    if (due >= 1) {
      due -= 1;
      run.requests[i] = {0, 0.001, 0.001, Outcome::kRefused};
      ++refused;
    }
  }
  run.agent_refused_requests = refused;
  return run;
}

TEST(Verdict, TheCriticalRouteIsServedInFull) {
  const demo::Run without = MadeRun(false).collapsed().get();
  const Protection protection{"adaptive", "429"};
  const Verdict saved = judge(without, kept_run(0), calibration(), Limits{}, protection);
  EXPECT_EQ(saved.conclusion, Conclusion::kSaved) << saved.sentence;
  const Verdict broken = judge(without, kept_run(0.05), calibration(), Limits{}, protection);
  EXPECT_EQ(broken.conclusion, Conclusion::kNotSaved);
  EXPECT_THAT(broken.sentence, HasSubstr("critical route served, x10"));
}

TEST(Verdict, AJumpToLargeRequestsMustKillNothing) {
  MadeRun made(true);
  demo::Run run = made.saved().get();
  run.phases = overload_story(kCapacity, 1, Traffic::kConnections, /*jump=*/true);
  const demo::Run without = MadeRun(false).collapsed().get();
  const Verdict kept = judge(without, run, calibration(), Limits{}, {"graded", "reset"});
  EXPECT_THAT(kept.sentence, Not(HasSubstr("memory at")));
  run.restarts.push_back({total_seconds(run.phases) - 15, true, "killed by signal 9"});
  const Verdict killed = judge(without, run, calibration(), Limits{}, {"graded", "reset"});
  EXPECT_THAT(killed.sentence, HasSubstr("memory at 60 %, 2 MB: 1 kills"));
}

TEST(Verdict, CountsThatDisagreeAreSeen) {
  demo::Run run = kept_run(0);
  *run.agent_refused_requests += *run.agent_refused_requests / 20;
  const Verdict verdict =
      judge(MadeRun(false).collapsed().get(), run, calibration(), Limits{}, {"adaptive", "429"});
  EXPECT_THAT(verdict.sentence, HasSubstr("refusals that Headgate counts"));
}

TEST(RefusedRequests, AreSummedOverTheRoutes) {
  EXPECT_EQ(refused_requests(R"({"targets":[{"endpoints":[{"counters":{"answered":3}},
                                 {"counters":{"answered":4}}, {"counters":null}]}]})"),
            7U);
  EXPECT_EQ(refused_requests(""), std::nullopt);
  EXPECT_EQ(refused_requests(R"({"targets":[]})"), std::nullopt);
}

}  // namespace
}  // namespace headgate::demo
