// SPDX-License-Identifier: Apache-2.0
// The request gate as the agent attaches it: the self-test on this kernel, and what must not harm a
// live connection. What clients of a real server get: tests/e2e/requests_test.cc.
#include <cerrno>
#include <filesystem>
#include <memory>

#include <bpf/bpf.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "agent/cgroup/hierarchy.h"
#include "agent/dataplane/kernel_maps.h"
#include "agent/hooks/requests.h"
#include "agent/hooks/requests_self_test.h"
#include "tests/support/net_lab.h"
#include "tests/support/test_pins.h"

namespace headgate {
namespace {

using testing::HasSubstr;

class RequestsHookTest : public ::testing::Test {
 protected:
  void SetUp() override {
    HEADGATE_REQUIRES_ROOT_KERNEL();
    const auto hierarchy = Hierarchy::detect("/sys/fs/cgroup", "/proc");
    ASSERT_TRUE(hierarchy) << hierarchy.error().message;
    unified_ = hierarchy->unified;
    auto maps = KernelMaps::open(*pins);
    ASSERT_TRUE(maps) << maps.error().message;
    maps_ = std::move(*maps);
  }
  [[nodiscard]] std::uint32_t stage_program(std::uint32_t stage) const {
    std::uint32_t id = 0;
    (void)::bpf_map_lookup_elem(maps_->fd("headgate_stream_stages"), &stage, &id);
    return id;
  }

  test::TestPins pins;
  std::string unified_;
  std::unique_ptr<KernelMaps> maps_;
};

TEST_F(RequestsHookTest, IsSoundOnThisKernelAndLeavesNoSlotBehind) {
  RequestsHook hook(*maps_, *pins, unified_);
  ASSERT_TRUE(hook.attach()) << hook.status().problem;
  EXPECT_TRUE(hook.sees());
  EXPECT_TRUE(hook.refuses()) << hook.status().problem;
  EXPECT_EQ(hook.status().mode, "attached");
  EXPECT_NE(hook.status().program_id, 0U);
  EXPECT_EQ(maps_->release_unclaimed(Instant(std::chrono::seconds(1000))), 0U)
      << "the self-test gives back what it takes";
  EXPECT_TRUE(maps_->flows().empty());
}

TEST_F(RequestsHookTest, TheNextAgentReplacesTheStages) {
  RequestsHook first(*maps_, *pins, unified_);
  ASSERT_TRUE(first.attach()) << first.status().problem;
  const std::uint32_t before = stage_program(HEADGATE_STAGE_HTTP1);
  EXPECT_NE(before, 0U);
  maps_.reset();  // an agent that is killed
  auto maps = KernelMaps::open(*pins);
  ASSERT_TRUE(maps) << maps.error().message;
  maps_ = std::move(*maps);
  EXPECT_EQ(stage_program(HEADGATE_STAGE_HTTP1), before) << "pinned, so it goes on meanwhile";
  RequestsHook second(*maps_, *pins, unified_);
  ASSERT_TRUE(second.attach()) << second.status().problem;
  EXPECT_NE(stage_program(HEADGATE_STAGE_HTTP1), before);
  EXPECT_TRUE(second.refuses()) << second.status().problem;
}

TEST_F(RequestsHookTest, WithoutPinsItStaysOff) {
  const PinDirectory none = PinDirectory::prepare("");
  auto maps = KernelMaps::open(none);
  ASSERT_TRUE(maps) << maps.error().message;
  RequestsHook hook(**maps, none, unified_);
  EXPECT_FALSE(hook.attach());
  EXPECT_FALSE(hook.sees());
  EXPECT_THAT(hook.status().problem, HasSubstr("--pin-root"));
}

TEST_F(RequestsHookTest, WithoutAV2TreeItStaysOff) {
  RequestsHook hook(*maps_, *pins, "");
  EXPECT_FALSE(hook.attach());
  EXPECT_EQ(hook.status().mode, "off");
  EXPECT_EQ(hook.status().sys_errno, EOPNOTSUPP);
  EXPECT_EQ(hook.attach_errors().at(EOPNOTSUPP), 1U);
}

/// Nothing is loaded: requests are not refused, and the self-test must say so.
TEST_F(RequestsHookTest, TheSelfTestFailsWhereNothingIsRefused) {
  const auto sound = test_request_refusal(*maps_, unified_);
  ASSERT_FALSE(sound);
  EXPECT_THAT(sound.error().message, HasSubstr("429"));
}

}  // namespace
}  // namespace headgate
