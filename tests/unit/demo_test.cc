// SPDX-License-Identifier: Apache-2.0
#include <arpa/inet.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "agent/base/unique_fd.h"
#include "deploy/demo/loadgen.h"
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
  for (const Phase& phase : overload_story(140, 1)) {
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

TEST(Otlp, RequestHoldsSoManySpansOfAbout390Bytes) {
  const std::string message = otlp_trace_request(3, 100);
  const auto json = nlohmann::json::parse(message, nullptr, false);
  ASSERT_FALSE(json.is_discarded());
  const auto& spans = json["resourceSpans"][0]["scopeSpans"][0]["spans"];
  ASSERT_EQ(spans.size(), 100U);
  EXPECT_EQ(spans[0]["traceId"].get<std::string>().size(), 32U);
  EXPECT_EQ(spans[0]["spanId"].get<std::string>().size(), 16U);
  EXPECT_NE(spans[0]["traceId"], spans[1]["traceId"]);
  EXPECT_NEAR(static_cast<double>(message.size()) / 100, 390, 40);
}

/// A listener on loopback that treats its n-th connection as the n-th letter says: 'o' answers 200,
/// 'e' answers 503, 'h' answers nothing, 'c' closes at once. One connection at a time.
class Server {
 public:
  explicit Server(std::string script) : script_(std::move(script)) {
    fd_.reset(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    address_.sin_family = AF_INET;
    address_.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address_;
    EXPECT_EQ(bind(fd_.get(), reinterpret_cast<const sockaddr*>(&address_), sizeof address_), 0);
    EXPECT_EQ(getsockname(fd_.get(), reinterpret_cast<sockaddr*>(&address_), &size), 0);
    EXPECT_EQ(listen(fd_.get(), 16), 0);
    thread_ = std::thread([this] { serve(); });
  }
  ~Server() { thread_.join(); }
  [[nodiscard]] sockaddr_in address() const { return address_; }

 private:
  void serve() {
    std::vector<UniqueFd> held;
    for (const char c : script_) {
      UniqueFd connection(accept4(fd_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (c == 'c') {
        continue;
      }
      if (c == 'h') {
        held.push_back(std::move(connection));
        continue;
      }
      std::array<char, 4096> buffer{};
      std::string request;
      while (request.find("\r\n\r\nbody") == std::string::npos) {
        const ssize_t n = read(connection.get(), buffer.data(), buffer.size());
        if (n <= 0) {
          break;
        }
        request.append(buffer.data(), static_cast<std::size_t>(n));
      }
      const std::string answer =
          c == 'o' ? "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
                   : "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n";
      EXPECT_EQ(write(connection.get(), answer.data(), answer.size()),
                static_cast<ssize_t>(answer.size()));
    }
    // What is held is held until the client gives up.
    for (const UniqueFd& connection : held) {
      std::array<char, 4096> buffer{};
      while (read(connection.get(), buffer.data(), buffer.size()) > 0) {
      }
    }
  }

  std::string script_;
  UniqueFd fd_;
  sockaddr_in address_{};
  std::thread thread_;
};

TEST(LoadGenerator, TellsOutcomesApart) {
  LoadTarget target;
  const auto shared = SharedRecords::create(5);
  ASSERT_TRUE(shared);
  sockaddr_in closed{};
  {
    Server server("oehc");
    target.server = closed = server.address();
    in_addr loopback{};
    loopback.s_addr = htonl(INADDR_LOOPBACK);
    target.sources = {loopback};
    target.light = target.heavy = {"PUT / HTTP/1.1\r\nContent-Length: 4\r\n\r\nbody"};
    target.deadline_us = 300'000;
    const std::vector<Phase> phases = {{"one", "one", PhaseKind::kCalm, 1, 20}};
    const std::vector<Arrival> arrivals = {
        {0, 0, 0}, {50'000, 0, 0}, {100'000, 0, 0}, {150'000, 0, 0}};
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    ASSERT_TRUE(run_open_loop(target, phases, arrivals,
                              std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec,
                              shared->records().first(4)));
  }
  const auto outcome = [&](std::size_t i) { return shared->records()[i].outcome.load(); };
  EXPECT_EQ(to_string(outcome(0)), "ok");
  EXPECT_EQ(to_string(outcome(1)), "http_error");
  EXPECT_EQ(to_string(outcome(2)), "answer_timeout");
  EXPECT_GE(shared->records()[2].latency_us, 300'000U);
  EXPECT_EQ(to_string(outcome(3)), "reset");
  // Nobody listens there any more.
  ASSERT_TRUE(run_open_loop(target, {{"one", "one", PhaseKind::kCalm, 1, 1}}, {{0, 0, 0}}, 0,
                            shared->records().last(1)));
  EXPECT_EQ(to_string(outcome(4)), "refused");
}

}  // namespace
}  // namespace headgate::demo
