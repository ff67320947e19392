// SPDX-License-Identifier: Apache-2.0
// A real OpenTelemetry Collector with its memory_limiter, as the demo drives it: what would fill
// its memory, and what would keep its garbage collector busy for good.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string>

#include <gtest/gtest.h>

#include "tests/e2e/demo_run.h"
#include "tests/support/busy.h"
#include "tests/support/net_lab.h"

namespace headgate::e2e {
namespace {

/// It takes minutes to build, so it is not built for a test.
std::string missing_for_otelcol() {
  const char* cache = std::getenv("XDG_CACHE_HOME");
  const char* home = std::getenv("HOME");
  const std::filesystem::path directory =
      cache != nullptr ? std::filesystem::path(cache)
                       : std::filesystem::path(home != nullptr ? home : "/root") / ".cache";
  std::error_code error;
  const auto files = std::filesystem::directory_iterator(directory / "headgate/otelcol", error);
  const bool built = std::any_of(begin(files), end(files), [](const auto& entry) {
    return entry.path().filename().string().starts_with("otelcol-");
  });
  return built ? "" : "the collector is not built: run deploy/demo/run --subject otelcol once";
}

class OtelCollector : public ::testing::Test {
 protected:
  void SetUp() override {
    HEADGATE_REQUIRES_ROOT_KERNEL();
    HEADGATE_REQUIRES(missing_for_otelcol());
  }
};

TEST_F(OtelCollector, AJumpToRequestsOf2MbKillsNothing) {
  const DemoRun run = run_demo("--subject otelcol");
  RecordProperty("verdict", run.verdict());
  ASSERT_FALSE(run.figures.is_null()) << run.log;
  const auto phase = run.phase("jump_2mb");
  EXPECT_GT(phase.value("offered", 0), 100) << run.log;
  EXPECT_EQ(phase.value("restarts", -1), 0) << run.log;
  EXPECT_LT(phase.value("memory_peak_bytes", 0.0),
            run.figures["limits"].value("memory_bytes", 0.0));
  EXPECT_EQ(run.figures["with"].value("restarts", nlohmann::json()).size(), 0U) << run.log;
}

/// H07: with GOMEMLIMIT below the limit nothing is killed, but unprotected the garbage collector
/// takes all of the CPU, and goes on when the load has gone.
TEST_F(OtelCollector, AGarbageCollectorThatTakesAllIsGivenAir) {
  const DemoRun run = run_demo("--subject otelcol --gomemlimit 200MiB");
  RecordProperty("verdict", run.verdict());
  ASSERT_FALSE(run.figures.is_null()) << run.log;
  EXPECT_EQ(run.figures["with"].value("restarts", nlohmann::json()).size(), 0U) << run.log;
  const double capacity_per_s = run.figures["calibration"].value("capacity_per_s", 0.0);
  const double least = lab::machine_is_busy() ? 0.3 : 0.6;
  for (const char* name : {"x3", "x10"}) {
    EXPECT_GE(run.phase(name).value("served_per_s", 0.0), least * capacity_per_s) << name << "\n"
                                                                                  << run.log;
  }
  for (const char* name :
       {"back_after_x3", "back_after_x10", "back_after_cost", "back_after_jump"}) {
    EXPECT_TRUE(run.phase(name)["back_seconds"].is_number()) << name << ": it never served again\n"
                                                             << run.log;
  }
}

}  // namespace
}  // namespace headgate::e2e
