// SPDX-License-Identifier: Apache-2.0
#include "agent/targets/kube_events.h"

#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "agent/base/log.h"
#include "tests/support/api_options.h"
#include "tests/support/http_script.h"

namespace headgate {
namespace {

using nlohmann::json;
using std::chrono::seconds;
using test::HttpExchange;
using test::HttpScript;
using testing::HasSubstr;

// ---------------------------------------------------------------- the queue

const Instant kStart = Instant{} + std::chrono::hours(1);

KubeEvent warning(std::string reason = "LoadShedding") {
  KubeEvent out;
  out.namespace_name = "obs";
  out.pod = "collector-0";
  out.uid = "uid-0";
  out.container = "otc";
  out.warning = true;
  out.reason = std::move(reason);
  out.action = "RefuseExcess";
  out.note = "refuses 62 %";
  out.unix_us = 1'700'000'000'000'000;
  return out;
}

KubeEvent normal() {
  KubeEvent out = warning("Recovered");
  out.warning = false;
  return out;
}

TEST(EventQueue, GivesTheFirstAtOnceAndTheNextAfterAQuietTime) {
  EventQueue queue;
  EXPECT_FALSE(queue.next());
  queue.add("a", warning(), kStart);
  ASSERT_TRUE(queue.take(kStart));
  queue.add("a", warning("CircuitOpen"), kStart + seconds(1));
  EXPECT_FALSE(queue.take(kStart + seconds(29)));
  EXPECT_EQ(queue.next(), kStart + EventQueue::kQuiet);
  const auto due = queue.take(kStart + EventQueue::kQuiet);
  ASSERT_TRUE(due);
  EXPECT_EQ(due->event.reason, "CircuitOpen");
}

TEST(EventQueue, AnotherTargetDoesNotWaitForIt) {
  EventQueue queue;
  queue.add("a", warning(), kStart);
  ASSERT_TRUE(queue.take(kStart));
  queue.add("b", warning(), kStart + seconds(1));
  EXPECT_TRUE(queue.take(kStart + seconds(1)));
}

TEST(EventQueue, WhatComesMeanwhileIsMergedIntoTheNewest) {
  EventQueue queue;
  queue.add("a", warning(), kStart);
  ASSERT_TRUE(queue.take(kStart));
  KubeEvent second = warning();
  second.unix_us += 1'000'000;
  queue.add("a", second, kStart + seconds(1));
  KubeEvent third = normal();
  third.unix_us += 5'000'000;
  third.times = 2;
  queue.add("a", third, kStart + seconds(5));
  const auto due = queue.take(kStart + seconds(30));
  ASSERT_TRUE(due);
  EXPECT_EQ(due->event.reason, "Recovered");
  EXPECT_EQ(due->event.times, 3U);
  EXPECT_EQ(due->event.unix_us, second.unix_us);
  EXPECT_EQ(due->last_unix_us, third.unix_us);
  EXPECT_EQ(queue.merged(), 1U);
}

TEST(EventQueue, ThatAllIsWellIsToldOnlyAfterAWarning) {
  EventQueue queue;
  queue.add("a", normal(), kStart);
  EXPECT_FALSE(queue.take(kStart));
  queue.add("a", warning(), kStart + seconds(1));
  ASSERT_TRUE(queue.take(kStart + seconds(1)));
  queue.add("a", normal(), kStart + seconds(40));
  ASSERT_TRUE(queue.take(kStart + seconds(40)));
  queue.add("a", normal(), kStart + seconds(80));
  EXPECT_FALSE(queue.take(kStart + seconds(80)));
}

TEST(EventQueue, WhatCouldNotBeSentIsDueAgainButTheNewerOneStands) {
  EventQueue queue;
  queue.add("a", warning(), kStart);
  auto due = queue.take(kStart);
  ASSERT_TRUE(due);
  queue.put_back(*due, kStart + seconds(1));
  due = queue.take(kStart + seconds(1));
  ASSERT_TRUE(due);
  EXPECT_EQ(due->event.reason, "LoadShedding");
  queue.add("a", warning("CircuitOpen"), kStart + seconds(2));
  queue.put_back(*due, kStart + seconds(3));
  due = queue.take(kStart + seconds(3));
  ASSERT_TRUE(due);
  EXPECT_EQ(due->event.reason, "CircuitOpen");
  EXPECT_EQ(due->event.times, 2U);
}

TEST(EventQueue, WhatIsOldTellsNothingAnyMore) {
  EventQueue queue;
  queue.add("a", warning(), kStart);
  EXPECT_FALSE(queue.take(kStart + EventQueue::kTooOld + seconds(1)));
  EXPECT_EQ(queue.dropped(), 1U);
  EXPECT_FALSE(queue.next());
}

TEST(EventQueue, HoldsSoManyTargetsAndForgetsThoseThatAreWell) {
  EventQueue queue;
  for (std::size_t i = 0; i < EventQueue::kMostObjects; ++i) {
    EXPECT_TRUE(queue.add(std::to_string(i), warning(), kStart));
  }
  EXPECT_FALSE(queue.add("one more", warning(), kStart));
  EXPECT_EQ(queue.dropped(), 1U);
  ASSERT_TRUE(queue.take(kStart));
  queue.add("0", normal(), kStart + seconds(1));
  while (queue.take(kStart + seconds(31))) {
  }
  EXPECT_TRUE(queue.add("one more", warning(), kStart + seconds(120)));
}

// ---------------------------------------------------------------- the body

TEST(KubeEventJson, HasWhatTheServerDemands) {
  const json body = json::parse(to_json({"a", warning(), 1'700'000'000'000'000, kStart}, "node-1"));
  EXPECT_EQ(body["apiVersion"], "events.k8s.io/v1");
  EXPECT_EQ(body["metadata"]["namespace"], "obs");
  EXPECT_THAT(body["metadata"]["name"].get<std::string>(), testing::StartsWith("collector-0."));
  EXPECT_EQ(body["eventTime"], "2023-11-14T22:13:20.000000Z");
  EXPECT_EQ(body["reportingController"], "headgate");
  EXPECT_EQ(body["reportingInstance"], "node-1");
  EXPECT_EQ(body["type"], "Warning");
  EXPECT_EQ(body["reason"], "LoadShedding");
  EXPECT_EQ(body["regarding"]["kind"], "Pod");
  EXPECT_EQ(body["regarding"]["uid"], "uid-0");
  EXPECT_EQ(body["regarding"]["fieldPath"], "spec.containers{otc}");
  EXPECT_FALSE(body.contains("series"));
}

TEST(KubeEventJson, SeveralAreASeries) {
  KubeEvent event = warning();
  event.times = 3;
  const json body = json::parse(to_json({"a", event, 1'700'000'009'500'000, kStart}, "n"));
  EXPECT_EQ(body["series"]["count"], 3);
  EXPECT_EQ(body["series"]["lastObservedTime"], "2023-11-14T22:13:29.500000Z");
}

TEST(KubeEventJson, NothingIsLongerThanTheServerTakes) {
  KubeEvent event = warning();
  event.pod = std::string(253, 'p');
  event.note = std::string(1023, 'x') + "\u00e9";  // its two bytes do not fit
  const json body =
      json::parse(to_json({"a", event, event.unix_us, kStart}, std::string(300, 'n')));
  EXPECT_EQ(body["metadata"]["name"].get<std::string>().size(), 253U);
  EXPECT_EQ(body["note"].get<std::string>().size(), 1023U);
  EXPECT_EQ(body["reportingInstance"].get<std::string>().size(), 128U);
  EXPECT_EQ(body["regarding"]["name"].get<std::string>().size(), 253U);
}

// ---------------------------------------------------------------- a server on loopback

template <class Condition>
testing::AssertionResult eventually(Condition condition) {
  const auto end = std::chrono::steady_clock::now() + seconds(20);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) {
      return testing::AssertionFailure() << "not within 20 s";
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return testing::AssertionSuccess();
}

const char* const kNoRight =
    R"({"kind":"Status","message":"events.events.k8s.io is forbidden: User \"x\" cannot create )"
    R"(resource \"events\" in API group \"events.k8s.io\"","code":403})";

class KubeEventsTest : public testing::Test {
 protected:
  KubeEventsTest() {
    log::set_sink([this](std::string_view line) {
      const std::lock_guard lock(mutex_);
      log_ += line;
      log_ += '\n';
    });
  }
  ~KubeEventsTest() override { log::set_sink({}); }
  KubeEventsTest(const KubeEventsTest&) = delete;
  KubeEventsTest& operator=(const KubeEventsTest&) = delete;
  KubeEventsTest(KubeEventsTest&&) = delete;
  KubeEventsTest& operator=(KubeEventsTest&&) = delete;

  static std::unique_ptr<KubeEvents> start(const std::string& url,
                                           OwnPod own = {"headgate", "headgate-x", "uid-own"}) {
    auto started = KubeEvents::start(test::quick_api_options(url), std::move(own));
    EXPECT_TRUE(started);
    return std::move(*started);
  }
  void keep(const HttpExchange& exchange) {
    const std::lock_guard lock(mutex_);
    bodies_.push_back(exchange.body());
  }
  json body(std::size_t i) {
    const std::lock_guard lock(mutex_);
    return i < bodies_.size() ? json::parse(bodies_[i]) : json();
  }
  std::size_t lines_with(const std::string& text) {
    const std::lock_guard lock(mutex_);
    std::size_t count = 0;
    for (auto at = log_.find(text); at != std::string::npos; at = log_.find(text, at + 1)) {
      ++count;
    }
    return count;
  }

 private:
  std::mutex mutex_;
  std::vector<std::string> bodies_;  ///< guarded by mutex_
  std::string log_;                  ///< guarded by mutex_
};

TEST_F(KubeEventsTest, AnEventIsPostedToTheNamespaceOfItsPod) {
  HttpScript server([&](const HttpExchange& exchange) {
    keep(exchange);
    exchange.answer(201, "{}");
  });
  const auto events = start(server.url());
  events->tell("a", warning());
  ASSERT_TRUE(eventually([&] { return events->status().sent == 1; }));
  EXPECT_THAT(server.heads().front(),
              testing::StartsWith("POST /apis/events.k8s.io/v1/namespaces/obs/events HTTP/1.1"));
  EXPECT_THAT(server.heads().front(), HasSubstr("Content-Type: application/json"));
  EXPECT_EQ(body(0)["regarding"]["name"], "collector-0");
}

TEST_F(KubeEventsTest, TheAgentsOwnPodIsNamedByItsEnvironment) {
  HttpScript server([&](const HttpExchange& exchange) {
    keep(exchange);
    exchange.answer(201, "{}");
  });
  const auto events = start(server.url());
  events->tell_of_own_pod(warning("ConfigRefused"));
  ASSERT_TRUE(eventually([&] { return events->status().sent == 1; }));
  EXPECT_EQ(body(0)["regarding"]["name"], "headgate-x");
  EXPECT_EQ(body(0)["regarding"]["uid"], "uid-own");
}

TEST_F(KubeEventsTest, WithoutTheRightItIsSilentForGoodAndSaysSoOnce) {
  HttpScript server([](const HttpExchange& exchange) { exchange.answer(403, kNoRight); });
  const auto events = start(server.url());
  events->tell("a", warning());
  ASSERT_TRUE(eventually([&] { return !events->status().off.empty(); }));
  EXPECT_THAT(events->status().off, HasSubstr("allow create of events.k8s.io/events"));
  for (int i = 0; i < 20; ++i) {
    events->tell(std::to_string(i), warning());
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_EQ(server.heads().size(), 1U);
  EXPECT_EQ(lines_with("no Events are sent"), 1U);
}

TEST_F(KubeEventsTest, ANamespaceThatEndsIsNoMissingRight) {
  HttpScript server([](const HttpExchange& exchange) {
    if (exchange.number() == 0) {
      exchange.answer(403,
                      R"({"kind":"Status","message":"events \"x\" is forbidden: unable to create )"
                      R"(new content in namespace obs because it is being terminated"})");
    } else {
      exchange.answer(201, "{}");
    }
  });
  const auto events = start(server.url());
  events->tell("a", warning());
  events->tell("b", warning());
  ASSERT_TRUE(eventually([&] { return events->status().sent == 1; }));
  EXPECT_EQ(events->status().dropped, 1U);
  EXPECT_EQ(events->status().off, "");
}

TEST_F(KubeEventsTest, ABusyServerIsAskedAgainWhenItSays) {
  HttpScript server([](const HttpExchange& exchange) {
    if (exchange.number() == 0) {
      exchange.answer(429, "{}", "Retry-After: 1\r\n");
    } else {
      exchange.answer(201, "{}");
    }
  });
  const auto events = start(server.url());
  const auto begin = std::chrono::steady_clock::now();
  events->tell("a", warning());
  ASSERT_TRUE(eventually([&] { return events->status().sent == 1; }));
  EXPECT_GE(std::chrono::steady_clock::now() - begin, seconds(1));
  EXPECT_EQ(events->status().errors, 1U);
}

TEST_F(KubeEventsTest, AServerThatIsAwayGetsTheNewestStateWhenItIsBack) {
  HttpScript server([&](const HttpExchange& exchange) {
    keep(exchange);
    exchange.answer(exchange.number() < 3 ? 503 : 201, "{}");
  });
  const auto events = start(server.url());
  events->tell("a", warning());
  ASSERT_TRUE(eventually([&] { return events->status().errors >= 1; }));
  events->tell("a", warning("CircuitOpen"));
  ASSERT_TRUE(eventually([&] { return events->status().sent >= 1; }));
  EXPECT_EQ(body(3)["reason"], "CircuitOpen");
  EXPECT_EQ(body(3)["series"]["count"], 2);
}

TEST_F(KubeEventsTest, AServerThatDoesNotAnswerKeepsNobodyWaiting) {
  HttpScript server([](const HttpExchange& exchange) { exchange.wait_for_end(); });
  const auto begin = std::chrono::steady_clock::now();
  {
    const auto events = start(server.url());
    events->tell("a", warning());
    ASSERT_TRUE(eventually([&] { return !server.heads().empty(); }));
    for (int i = 0; i < 1000; ++i) {
      events->tell(std::to_string(i), warning());
    }
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, seconds(5));  // an answer may take 10 s
}

TEST_F(KubeEventsTest, NobodyListensAndItIsSaidAndTriedAgain) {
  std::string url;
  {
    const HttpScript gone([](const HttpExchange&) {});
    url = gone.url();
  }
  const auto events = start(url);
  events->tell("a", warning());
  ASSERT_TRUE(eventually([&] { return events->status().errors >= 3; }));
  EXPECT_EQ(lines_with("an Event could not be sent"), 1U);
}

}  // namespace
}  // namespace headgate
