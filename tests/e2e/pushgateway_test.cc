// SPDX-License-Identifier: Apache-2.0
// The demo's protected run against a real prometheus-pushgateway: the whole path, measured.
#include <gtest/gtest.h>

#include "tests/e2e/demo_run.h"
#include "tests/support/net_lab.h"

namespace headgate::e2e {
namespace {

/// On a busy machine no timing can be judged; what Headgate is for must hold all the same.
void expect_at_least_alive(const DemoRun& run) {
  ASSERT_FALSE(run.figures.is_null()) << run.log;
  const double capacity_per_s = run.figures["calibration"].value("capacity_per_s", 0.0);
  EXPECT_EQ(run.figures["with"].value("restarts", nlohmann::json()).size(), 0U) << run.log;
  for (const char* name : {"x3", "x10"}) {
    EXPECT_GE(run.phase(name).value("served_per_s", 0.0), 0.5 * capacity_per_s) << name << "\n"
                                                                                << run.log;
  }
}

TEST(Pushgateway, OverloadedTenfoldStaysUpAndServes) {
  HEADGATE_REQUIRES_ROOT_KERNEL();
  const DemoRun run = run_demo("");
  RecordProperty("verdict", run.verdict());
  if (!run.saved()) {
    expect_at_least_alive(run);
  }
}

TEST(Pushgateway, OnKeptConnectionsTheCriticalRouteIsServed) {
  HEADGATE_REQUIRES_ROOT_KERNEL();
  const DemoRun run = run_demo("--keepalive");
  RecordProperty("verdict", run.verdict());
  if (run.saved()) {
    return;
  }
  expect_at_least_alive(run);
  for (const char* name : {"x3", "x10"}) {
    const auto phase = run.phase(name);
    EXPECT_GE(phase.value("critical_served", 0.0), 0.9 * phase.value("critical_offered", 1.0))
        << name << "\n"
        << run.log;
  }
}

}  // namespace
}  // namespace headgate::e2e
