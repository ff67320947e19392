// SPDX-License-Identifier: Apache-2.0
#include "agent/base/log.h"

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <spdlog/logger.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/stdout_sinks.h>

#include "agent/base/log_format.h"
#include "agent/base/repeat_filter.h"

namespace headgate::log {
namespace {

constexpr Duration kRepeatInterval = std::chrono::minutes(1);

std::atomic<Level> g_level{Level::kInfo};
std::atomic<Format> g_format{Format::kText};

// spdlog carries the finished line to stderr: its own pattern would stamp local time and cannot
// escape JSON, so the line is made by log_format.h.
spdlog::logger& to_stderr() {
  static spdlog::logger logger = [] {
    spdlog::logger made("headgate", std::make_shared<spdlog::sinks::stderr_sink_mt>());
    made.set_formatter(std::make_unique<spdlog::pattern_formatter>("%v"));
    made.set_level(spdlog::level::trace);
    made.flush_on(spdlog::level::trace);
    // Where stderr is closed there is nobody to tell; the default would throw.
    made.set_error_handler([](const std::string&) {});
    return made;
  }();
  return logger;
}

struct Sink {
  std::mutex mutex;
  std::function<void(std::string_view)> function;  // guarded by mutex
};
Sink& test_sink() {
  static Sink sink;
  return sink;
}

struct Repeats {
  std::mutex mutex;
  RepeatFilter filter{kRepeatInterval};  // guarded by mutex
};
Repeats& repeats() {
  static Repeats instance;
  return instance;
}

bool enabled(Level level) { return level >= g_level.load(std::memory_order_relaxed); }

void write_fields(Level level, std::string_view event, std::span<const Field> fields) {
  const WallTime now = std::chrono::system_clock::now();
  const std::string line = g_format.load(std::memory_order_relaxed) == Format::kJson
                               ? format_json(now, level, event, fields)
                               : format_text(now, level, event, fields);
  {
    const std::lock_guard lock(test_sink().mutex);
    if (test_sink().function) {
      test_sink().function(line);
      return;
    }
  }
  to_stderr().log(spdlog::level::info, line);
}

}  // namespace

void setup(Level level, Format format) {
  g_level = level;
  g_format = format;
}

Result<Level> parse_level(std::string_view word) {
  if (word == "debug") return Level::kDebug;
  if (word == "info") return Level::kInfo;
  if (word == "warn") return Level::kWarn;
  if (word == "error") return Level::kError;
  return fail(fmt::format("log level '{}' is not one of debug, info, warn, error", word));
}

Result<Format> parse_format(std::string_view word) {
  if (word == "text") return Format::kText;
  if (word == "json") return Format::kJson;
  return fail(fmt::format("log format '{}' is not one of text, json", word));
}

void write(Level level, std::string_view event, std::initializer_list<Field> fields) {
  if (enabled(level)) {
    write_fields(level, event, {fields.begin(), fields.size()});
  }
}

void write_once(Level level, std::string_view key, std::string_view value, std::string_view event,
                std::initializer_list<Field> fields) {
  if (!enabled(level)) {
    return;
  }
  std::optional<std::uint64_t> held_back;
  {
    const std::lock_guard lock(repeats().mutex);
    held_back = repeats().filter.pass(key, value, std::chrono::steady_clock::now());
  }
  if (!held_back) {
    return;
  }
  if (*held_back == 0) {
    write_fields(level, event, {fields.begin(), fields.size()});
    return;
  }
  std::vector<Field> with_count(fields);
  with_count.emplace_back("held_back", *held_back);
  write_fields(level, event, with_count);
}

void set_sink(std::function<void(std::string_view line)> sink) {
  const std::lock_guard lock(test_sink().mutex);
  test_sink().function = std::move(sink);
}

}  // namespace headgate::log
