// SPDX-License-Identifier: Apache-2.0
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "agent/config/label_selector.h"

namespace headgate {
namespace {

using testing::HasSubstr;

bool matches(std::string_view selector, const Labels& labels) {
  const auto parsed = LabelSelector::parse(selector);
  EXPECT_TRUE(parsed) << selector << ": " << (parsed ? "" : parsed.error().message);
  return parsed && parsed->matches(labels);
}

std::string problem(std::string_view selector) {
  const auto parsed = LabelSelector::parse(selector);
  EXPECT_FALSE(parsed) << selector;
  return parsed ? "" : parsed.error().message;
}

TEST(LabelSelector, Equality) {
  const Labels labels{{"app", "otel"}, {"tier", "edge"}};
  EXPECT_TRUE(matches("app=otel", labels));
  EXPECT_TRUE(matches("app==otel", labels));
  EXPECT_TRUE(matches(" app = otel , tier = edge ", labels));
  EXPECT_FALSE(matches("app=otel,tier=core", labels));
  EXPECT_FALSE(matches("name=otel", labels));
  EXPECT_TRUE(matches("app!=statsd", labels));
  EXPECT_FALSE(matches("app!=otel", labels));
}

TEST(LabelSelector, WhatIsNotThereIsUnequal) {
  EXPECT_TRUE(matches("app!=otel", {}));
  EXPECT_TRUE(matches("app notin (a,b)", {}));
  EXPECT_FALSE(matches("app in (a,b)", {}));
}

TEST(LabelSelector, Sets) {
  EXPECT_TRUE(matches("app in (a, b)", {{"app", "b"}}));
  EXPECT_FALSE(matches("app in (a, b)", {{"app", "c"}}));
  EXPECT_TRUE(matches("app notin (a,b)", {{"app", "c"}}));
  EXPECT_FALSE(matches("app notin (a,b)", {{"app", "a"}}));
  EXPECT_TRUE(matches("app in (a,)", {{"app", ""}}));
}

TEST(LabelSelector, Existence) {
  EXPECT_TRUE(matches("app", {{"app", ""}}));
  EXPECT_FALSE(matches("app", {}));
  EXPECT_TRUE(matches("!app", {}));
  EXPECT_FALSE(matches("! app", {{"app", "x"}}));
  EXPECT_TRUE(matches("app,!tier", {{"app", "x"}}));
}

TEST(LabelSelector, EmptyValuesAndTheEmptySelector) {
  EXPECT_TRUE(matches("", {{"app", "x"}}));
  EXPECT_TRUE(matches("  ", {}));
  EXPECT_TRUE(matches("app=", {{"app", ""}}));
  EXPECT_FALSE(matches("app=", {}));
  EXPECT_TRUE(matches("app=,tier=edge", {{"app", ""}, {"tier", "edge"}}));
}

TEST(LabelSelector, Numbers) {
  EXPECT_TRUE(matches("rank>3", {{"rank", "4"}}));
  EXPECT_FALSE(matches("rank>3", {{"rank", "3"}}));
  EXPECT_TRUE(matches("rank<3", {{"rank", "-1"}}));
  EXPECT_FALSE(matches("rank<3", {{"rank", "low"}}));
  EXPECT_FALSE(matches("rank<3", {}));
}

TEST(LabelSelector, KeysWithADomainAndWordsOfTheGrammar) {
  EXPECT_TRUE(matches("app.kubernetes.io/name=otel", {{"app.kubernetes.io/name", "otel"}}));
  EXPECT_TRUE(matches("in in (in,notin)", {{"in", "notin"}}));
  EXPECT_TRUE(matches("in", {{"in", ""}}));
}

TEST(LabelSelector, ErrorsNameThePlaceAndWhatIsAllowed) {
  EXPECT_THAT(problem("app=otel,"), HasSubstr("character 10: the end: expected a label"));
  EXPECT_THAT(problem(",app"), HasSubstr("character 1: ','"));
  EXPECT_THAT(problem("app=a b"), HasSubstr("character 7: 'b': expected ',' or the end"));
  EXPECT_THAT(problem("app in a"), HasSubstr("character 8: 'a': expected '('"));
  EXPECT_THAT(problem("app in ()"), HasSubstr("the set of values is empty"));
  EXPECT_THAT(problem("app in (a b)"), HasSubstr("expected ',' or ')'"));
  EXPECT_THAT(problem("app in (a"), HasSubstr("the end: expected ',' or ')'"));
  EXPECT_THAT(problem("app~otel"), HasSubstr("is no name of a label"));
  EXPECT_THAT(problem("app===otel"), HasSubstr("expected ',' or the end"));
  EXPECT_THAT(problem("-app=otel"), HasSubstr("character 1: '-app': is no name"));
  EXPECT_THAT(problem("app=otel-"), HasSubstr("character 5: 'otel-': is no value"));
  EXPECT_THAT(problem("a/b/c"), HasSubstr("is no name"));
  EXPECT_THAT(problem("EXAMPLE.com/x"), HasSubstr("is no name"));
  EXPECT_THAT(problem("/x"), HasSubstr("is no name"));
  EXPECT_THAT(problem("rank>high"), HasSubstr("character 6: 'high': expected a whole number"));
  EXPECT_THAT(problem("!app=x"), HasSubstr("character 5: '=': expected ',' or the end"));
  EXPECT_THAT(problem("app!"), HasSubstr("expected =, =="));
  EXPECT_THAT(problem(std::string(64, 'a')), HasSubstr("at most 63"));
}

RC_GTEST_PROP(LabelSelectorProperty, NoTextIsTooOdd, ()) {
  const auto text =
      *rc::gen::container<std::string>(rc::gen::elementOf(std::string("ab=!(),<> in./-_\x80")));
  const auto parsed = LabelSelector::parse(text);
  if (parsed) {
    (void)parsed->matches({{"a", "b"}});
  } else {
    RC_ASSERT(parsed.error().message.find("character ") != std::string::npos);
  }
}

RC_GTEST_PROP(LabelSelectorProperty, InAndNotInAreOpposites, (const std::string& value)) {
  const Labels labels{{"k", value}};
  RC_ASSERT(LabelSelector::parse("k in (a,b)")->matches(labels) !=
            LabelSelector::parse("k notin (a,b)")->matches(labels));
}

}  // namespace
}  // namespace headgate
