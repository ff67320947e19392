// SPDX-License-Identifier: Apache-2.0
#include <rapidcheck.h>

#include <cmath>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "agent/config/defaults.h"
#include "agent/config/load.h"
#include "agent/config/quantity.h"
#include "tests/unit/config_strategies.h"

namespace headgate {
namespace {

using test::strategy_table;

#define HEADGATE_HOLDS(...) EXPECT_TRUE(rc::check(__VA_ARGS__))

rc::Gen<double> between(double low, double high) {
  return rc::gen::map(rc::gen::inRange(0, 1000001),
                      [=](int i) { return low + (high - low) * i / 1e6; });
}
rc::Gen<Probability> share() { return rc::gen::map(between(0, 1), Probability::refusing); }
rc::Gen<Duration> time_between(std::int64_t low_ns, std::int64_t high_ns) {
  return rc::gen::map(rc::gen::inRange<std::int64_t>(low_ns, high_ns + 1),
                      [](std::int64_t ns) { return Duration{ns}; });
}
template <class Enum>
Enum any_of(std::initializer_list<Enum> values) {
  return *rc::gen::elementOf(std::vector<Enum>(values));
}
std::string word(const std::string& alphabet, int longest) {
  return *rc::gen::suchThat(
      rc::gen::resize(longest, rc::gen::container<std::string>(rc::gen::elementOf(alphabet))),
      [&](const std::string& s) { return !s.empty() && static_cast<int>(s.size()) <= longest; });
}

Match some_match(std::size_t index) {
  const std::string tail = std::to_string(index);
  switch (*rc::gen::inRange(0, 3)) {
    case 0: return MatchUnit{word("abzAZ09:_.@-\\", 20) + tail + ".service"};
    // Anything but a '/' may stand in the name of a directory.
    case 1: return MatchCgroup{"/" + word("ab \"'\\#:{}[]&*!|>%@`,-?~=\n\t.", 12) + "x" + tail};
    default: return MatchProcess{"/" + word("ab \"'\\#:{}[]&*!|>%@`,-?~=.", 12) + "x" + tail};
  }
}

StrategyConfig some_strategy() {
  StrategyConfig out;
  out.name = any_of<std::string>({"graded", "curve", "fixed", "hybrid"});
  if (out.name == "graded") {
    const double enter = *between(0.5, 1);
    out.params.numbers = {{"enter", enter},
                          {"exit", enter / 2},
                          {"hold", seconds(*time_between(100'000'000, 60'000'000'000))},
                          {"consecutive", *rc::gen::inRange(1, 1000000001)}};
  } else if (out.name == "curve") {
    out.params.words["signal"] = any_of<std::string>({"cpu_slow", "cpu_fast", "memory"});
    double level = 0;
    for (int i = *rc::gen::inRange(2, 6); i > 0; --i) {
      level += *between(0.001, 1);
      out.params.points.push_back({level, *between(0, 1)});
    }
  } else if (out.name == "fixed") {
    out.params.numbers["admit"] = *between(0, 1);
  } else {
    out.params.parts = {"fixed", "graded"};
  }
  set_default_params(out, strategy_table());
  return out;
}

/// Requests are refused, and some have routes.
void add_request_rules(EndpointConfig& out) {
  const bool grpc = out.protocol == Protocol::kGrpc;
  if (!grpc && out.protocol != Protocol::kHttp) {
    return;
  }
  out.refuse = {};
  out.refuse.form =
      grpc ? RefuseForm::kGrpcExhausted : any_of({RefuseForm::kHttp429, RefuseForm::kHttp503});
  if (grpc) {
    out.grpc.max_message_bytes = *rc::gen::inRange<std::uint64_t>(1024, 4095ULL << 20U);
  } else {
    out.http.retry_after_min = std::chrono::seconds(*rc::gen::inRange(1, 60));
    out.http.retry_after_max = out.http.retry_after_min + std::chrono::seconds(2);
    out.http.idle_timeout = *time_between(0, 86'400'000'000'000);
  }
  for (int i = *rc::gen::inRange(grpc ? 1 : 0, 4); i > 0; --i) {
    RouteConfig route;
    route.name = "r" + std::to_string(i);
    route.path = grpc ? "/a.B/C" + std::to_string(i)
                      : "/" + word("abXZ09-._~!$&'()*+,;=:@", 20) + std::to_string(i);
    route.criticality = any_of({Criticality::kSheddable, Criticality::kCriticalPlus});
    route.floor = *share();
    route.unary = grpc && *rc::gen::arbitrary<bool>();
    out.routes.push_back(std::move(route));
  }
}

EndpointConfig some_endpoint(std::uint16_t port) {
  EndpointConfig out;
  out.port = port;
  out.protocol = any_of({Protocol::kTcp, Protocol::kUdp, Protocol::kHttp, Protocol::kGrpc});
  out.name = *rc::gen::arbitrary<bool>() ? default_endpoint_name(out.protocol, port)
                                         : "e" + std::to_string(port);
  out.criticality = any_of({Criticality::kSheddable, Criticality::kSheddablePlus,
                            Criticality::kCritical, Criticality::kCriticalPlus});
  out.floor = *share();
  out.refuse.form = out.protocol == Protocol::kUdp
                        ? any_of({RefuseForm::kAuto, RefuseForm::kReset})
                        : any_of({RefuseForm::kAuto, RefuseForm::kReset, RefuseForm::kDefer});
  if (out.refuse.form == RefuseForm::kDefer) {
    out.refuse.defer_deadline = *time_between(1'000'000'000, 8'000'000'000);
  }
  if (*rc::gen::arbitrary<bool>()) {
    add_request_rules(out);
  }
  return out;
}

Config some_config() {
  Config config;
  config.mode = any_of({Mode::kEnforce, Mode::kObserve, Mode::kOff});
  config.tick = *time_between(10'000'000, 10'000'000'000);
  config.lease = *time_between(2 * config.tick.count(), 60'000'000'000);
  const auto targets = *rc::gen::inRange<std::size_t>(1, 4);
  for (std::size_t t = 0; t < targets; ++t) {
    TargetConfig target;
    target.name =
        any_of<std::string>({"on", "null", "1e5", "a.b", "y", "0x10"}) + std::string(t, 'x');
    target.match = some_match(t);
    if (*rc::gen::arbitrary<bool>()) {
      target.capacity.cpu_cores = *between(0.01, 4096);
      target.capacity.memory_bytes = *rc::gen::inRange<std::uint64_t>(1 << 20, 1ULL << 50U);
    }
    if (*rc::gen::arbitrary<bool>()) {
      target.mode = any_of({Mode::kEnforce, Mode::kObserve, Mode::kOff});
    }
    target.strategy = some_strategy();
    target.target = Ratio{*between(0.1, 1)};
    target.memory.open = *between(0.5, 1);
    target.memory.shed = *between(0, 0.49);
    target.memory.close = *between(0, 0.49);
    if (*rc::gen::arbitrary<bool>()) {
      target.memory.live_budget_bytes = 0;
    }
    target.max_refuse = *share();
    target.max_refuse_duration = *time_between(0, 86'400'000'000'000);
    if (*rc::gen::arbitrary<bool>()) {
      target.exempt.sources =
          *rc::gen::element(std::vector<std::string>{}, std::vector<std::string>{"node"},
                            std::vector<std::string>{"node", "10.9.0.0/16", "fd00::/8", "::1/128"});
    }
    target.exempt.rate_per_s = *between(0, 1e6);
    const auto first = *rc::gen::inRange<std::uint16_t>(1, 65000);
    for (std::uint16_t i = 0; i < *rc::gen::inRange<std::uint16_t>(1, 5); ++i) {
      target.endpoints.push_back(some_endpoint(static_cast<std::uint16_t>(first + i)));
    }
    if (target.endpoints.empty()) {
      target.endpoints.push_back(some_endpoint(first));
    }
    config.targets.push_back(std::move(target));
  }
  return config;
}

TEST(ConfigProperty, WhatIsPrintedIsReadAgain) {
  HEADGATE_HOLDS("load(to_yaml(c)) == c", [] {
    const Config config = some_config();
    const std::string text = to_yaml(config);
    const LoadedConfig loaded = load_config(text, "printed", strategy_table());
    for (const Problem& problem : loaded.problems) {
      RC_LOG() << to_string(problem) << "\n";
    }
    RC_LOG() << text;
    RC_ASSERT(loaded.problems.empty());
    RC_ASSERT(loaded.config == config);
    RC_ASSERT(diff(loaded.config, config).empty());
  });
}

TEST(ConfigProperty, TwoDifferentConfigurationsHaveADifference) {
  HEADGATE_HOLDS("diff(a, b) is empty exactly when a == b", [] {
    const Config a = some_config();
    const Config b = *rc::gen::arbitrary<bool>() ? a : some_config();
    RC_ASSERT(diff(a, b).empty() == (a == b));
  });
}

TEST(ConfigProperty, QuantitiesComeBack) {
  HEADGATE_HOLDS("durations", [] {
    const Duration d = *time_between(0, INT64_MAX - 1);
    RC_ASSERT(parse_duration(format_duration(d)) == d);
  });
  HEADGATE_HOLDS("sizes", [](std::uint64_t bytes) {
    const auto back = parse_size(format_size(bytes));
    RC_ASSERT(back.has_value());
    RC_ASSERT(back->value == bytes);
    RC_ASSERT(!back->scientific);
  });
  HEADGATE_HOLDS("numbers", [](double number) {
    if (std::isfinite(number)) {
      RC_ASSERT(parse_plain_number(format_number(number)) == number);
    }
  });
}

TEST(ConfigProperty, DistanceIsAMetricOnOneEdit) {
  HEADGATE_HOLDS("one character removed is one edit", [](const std::string& a) {
    if (!a.empty()) {
      std::string b = a;
      b.erase(*rc::gen::inRange<std::size_t>(0, a.size()), 1);
      RC_ASSERT(edit_distance(a, b) == 1U);
      RC_ASSERT(edit_distance(b, a) == 1U);
    }
    RC_ASSERT(edit_distance(a, a) == 0U);
  });
}

std::string sample() {
  std::ifstream stream(std::string(HEADGATE_SOURCE_DIR) + "/tests/data/config/design.yaml");
  return {std::istreambuf_iterator<char>(stream), {}};
}

/// Places and texts of problems are sound whatever the text was.
void assert_sound(const LoadedConfig& loaded, const std::string& text) {
  const auto lines = 2 + static_cast<int>(std::count(text.begin(), text.end(), '\n'));
  for (const Problem& problem : loaded.problems) {
    RC_ASSERT(problem.place.line >= 1);
    RC_ASSERT(problem.place.line <= lines);
    RC_ASSERT(problem.place.column >= 1);
    RC_ASSERT(!problem.message.empty());
  }
  if (loaded.valid()) {
    const LoadedConfig again = load_config(to_yaml(loaded.config), "f", strategy_table());
    RC_ASSERT(again.valid());
    RC_ASSERT(again.config == loaded.config);
  }
}

TEST(ConfigProperty, ABrokenTextIsAProblemNeverACrash) {
  const std::string good = sample();
  ASSERT_FALSE(good.empty());
  HEADGATE_HOLDS("a few bytes changed", [&] {
    std::string text = good;
    for (int i = *rc::gen::inRange(1, 5); i > 0; --i) {
      const auto at = *rc::gen::inRange<std::size_t>(0, text.size());
      switch (*rc::gen::inRange(0, 3)) {
        case 0: text[at] = *rc::gen::arbitrary<char>(); break;
        case 1: text.erase(at, *rc::gen::inRange<std::size_t>(1, 20)); break;
        default: text.insert(at, 1, *rc::gen::elementOf(std::string("{}[]:,-#&*!|>'\"%@`\n\t ?")));
      }
      if (text.empty()) {
        break;
      }
    }
    assert_sound(load_config(text, "f", strategy_table()), text);
  });
  HEADGATE_HOLDS("cut anywhere, as a file that is half written", [&] {
    const std::string text = good.substr(0, *rc::gen::inRange<std::size_t>(0, good.size()));
    assert_sound(load_config(text, "f", strategy_table()), text);
  });
}

}  // namespace
}  // namespace headgate
