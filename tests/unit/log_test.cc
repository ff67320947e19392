// SPDX-License-Identifier: Apache-2.0
#include "agent/base/log.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "agent/base/log_format.h"
#include "agent/base/repeat_filter.h"

namespace headgate::log {
namespace {

using namespace std::chrono_literals;

WallTime wall(std::int64_t unix_ms) { return WallTime{std::chrono::milliseconds(unix_ms)}; }

/// Collects lines instead of stderr for one test.
class Lines {
 public:
  Lines() {
    set_sink([this](std::string_view line) { lines.emplace_back(line); });
  }
  ~Lines() {
    set_sink({});
    setup(Level::kInfo, Format::kText);
  }
  Lines(const Lines&) = delete;
  Lines& operator=(const Lines&) = delete;
  std::vector<std::string> lines;
};

TEST(LogTime, IsRfc3339InUtcWithMilliseconds) {
  EXPECT_EQ(rfc3339(wall(0)), "1970-01-01T00:00:00.000Z");
  EXPECT_EQ(rfc3339(wall(1767323045006)), "2026-01-02T03:04:05.006Z");
  EXPECT_EQ(rfc3339(wall(-1)), "1969-12-31T23:59:59.999Z");
}

TEST(LogText, PlainValuesStandBareAndOthersAreQuoted) {
  const std::vector<Field> fields{{"cpu_slow", 0.91},
                                  {"target", "web"},
                                  {"why", "two words"},
                                  {"empty", ""},
                                  {"q", "say \"x\""}};
  EXPECT_EQ(format_text(wall(0), Level::kWarn, "state changed", fields),
            "1970-01-01T00:00:00.000Z warn state changed cpu_slow=0.91 target=web "
            "why=\"two words\" empty=\"\" q=\"say \\\"x\\\"\"");
}

TEST(LogText, NoValueBreaksTheLine) {
  const std::vector<Field> fields{{"raw", "a\nb\x1b[31m"}};
  const std::string line = format_text(wall(0), Level::kInfo, "two\nlines", fields);
  EXPECT_EQ(line, "1970-01-01T00:00:00.000Z info two lines raw=\"a\\nb\\x1b[31m\"");
}

TEST(LogJson, IsOneObjectALineWithEveryValueBack) {
  const std::string nasty = "quote \" backslash \\ newline \n tab \t";
  const std::vector<Field> fields{{"value", nasty}, {"port", 4317}};
  const std::string line = format_json(wall(0), Level::kError, "event", fields);
  EXPECT_EQ(line.find('\n'), std::string::npos);
  const auto parsed = nlohmann::json::parse(line);
  EXPECT_EQ(parsed["time"], "1970-01-01T00:00:00.000Z");
  EXPECT_EQ(parsed["level"], "error");
  EXPECT_EQ(parsed["msg"], "event");
  EXPECT_EQ(parsed["value"], nasty);
  EXPECT_EQ(parsed["port"], "4317");
}

TEST(LogJson, BytesThatAreNoUtf8DoNotSpoilTheLine) {
  const std::vector<Field> fields{{"value", std::string("\xff\xfe")}};
  const auto parsed = nlohmann::json::parse(format_json(wall(0), Level::kInfo, "x", fields));
  EXPECT_EQ(parsed["value"], "\uFFFD\uFFFD");
}

TEST(LogJson, AFieldCannotHideTheLevel) {
  const std::vector<Field> fields{{"level", "debug"}};
  const auto parsed = nlohmann::json::parse(format_json(wall(0), Level::kError, "x", fields));
  EXPECT_EQ(parsed["level"], "error");
  EXPECT_EQ(parsed["level_"], "debug");
}

TEST(Log, BelowTheLevelNothingIsWritten) {
  Lines out;
  setup(Level::kWarn, Format::kText);
  info("quiet");
  warn("loud");
  ASSERT_EQ(out.lines.size(), 1U);
  EXPECT_THAT(out.lines[0], testing::HasSubstr(" warn loud"));
}

TEST(Log, LevelsAndFormatsAreParsedAndErrorsNameWhatIsAllowed) {
  EXPECT_EQ(parse_level("debug").value(), Level::kDebug);
  EXPECT_EQ(parse_format("json").value(), Format::kJson);
  EXPECT_THAT(parse_level("loud").error().message, testing::HasSubstr("debug, info, warn, error"));
  EXPECT_THAT(parse_format("xml").error().message, testing::HasSubstr("text, json"));
}

TEST(Log, WriteOncePrintsAValueOnceAndAChangeAtOnce) {
  Lines out;
  write_once(Level::kWarn, "k1", "EACCES", "cannot read");
  write_once(Level::kWarn, "k1", "EACCES", "cannot read");
  write_once(Level::kWarn, "k1", "EACCES", "cannot read");
  write_once(Level::kWarn, "k1", "ENOENT", "cannot read", {{"file", "cpu.stat"}});
  ASSERT_EQ(out.lines.size(), 2U);
  EXPECT_THAT(out.lines[1], testing::HasSubstr("file=cpu.stat held_back=2"));
}

TEST(RepeatFilter, TheSameValueComesAgainOnceAMinuteWithTheCount) {
  RepeatFilter filter(1min);
  const Instant start{};
  EXPECT_EQ(filter.pass("k", "v", start), 0U);
  for (int i = 1; i <= 599; ++i) {
    EXPECT_EQ(filter.pass("k", "v", start + i * 100ms), std::nullopt);
  }
  EXPECT_EQ(filter.pass("k", "v", start + 1min), 599U);
  EXPECT_EQ(filter.pass("k", "v", start + 61s), std::nullopt);
}

TEST(RepeatFilter, KeysAreIndependent) {
  RepeatFilter filter(1min);
  EXPECT_EQ(filter.pass("a", "v", Instant{}), 0U);
  EXPECT_EQ(filter.pass("b", "v", Instant{}), 0U);
}

TEST(RepeatFilter, ForgetsTheOldestKeyInsteadOfGrowing) {
  RepeatFilter filter(1min, 2);
  EXPECT_EQ(filter.pass("a", "v", Instant{} + 1s), 0U);
  EXPECT_EQ(filter.pass("b", "v", Instant{} + 2s), 0U);
  EXPECT_EQ(filter.pass("c", "v", Instant{} + 3s), 0U);
  EXPECT_EQ(filter.pass("b", "v", Instant{} + 4s), std::nullopt);
  EXPECT_EQ(filter.pass("a", "v", Instant{} + 4s), 0U);
}

}  // namespace
}  // namespace headgate::log
