// SPDX-License-Identifier: Apache-2.0
// A tick allocates nothing: the agent runs 250 targets ten times a second beside processes that are
// short of memory.
#include <atomic>
#include <cstdlib>
#include <new>

#include <gtest/gtest.h>

#include "agent/signals/signals.h"
#include "strategy_harness.h"

namespace {
std::atomic<std::size_t> allocations{0};

void* counted(std::size_t bytes) {
  ++allocations;
  if (void* memory = std::malloc(bytes == 0 ? 1 : bytes)) return memory;
  throw std::bad_alloc();
}
}  // namespace

void* operator new(std::size_t bytes) { return counted(bytes); }
void* operator new[](std::size_t bytes) { return counted(bytes); }
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  ++allocations;
  return std::malloc(bytes == 0 ? 1 : bytes);
}
void* operator new[](std::size_t bytes, const std::nothrow_t&) noexcept {
  ++allocations;
  return std::malloc(bytes == 0 ? 1 : bytes);
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, const std::nothrow_t&) noexcept { std::free(memory); }
void operator delete[](void* memory, const std::nothrow_t&) noexcept { std::free(memory); }

namespace headgate {
namespace {

class Tick : public testing::TestWithParam<std::string_view> {};

TEST_P(Tick, AllocatesNothingAfterTheFirst) {
  Params params;
  if (GetParam() == "hybrid") params.parts = {"aimd", "gradient", "sre", "graded"};
  const auto strategy = test::make_strategy(GetParam(), params);
  test::Ticks ticks(*strategy, 5);
  const std::size_t before_first = allocations;
  ticks.cpu(0.5).memory(0.5).run();
  if (GetParam() == "graded") {
    ASSERT_GT(allocations, before_first) << "the count works: the first tick sizes its state";
  }

  const std::size_t before = allocations;
  for (int tick = 0; tick < 200; ++tick) {
    for (EndpointInput& endpoint : ticks.endpoints) {
      endpoint.activity.offered = static_cast<std::uint64_t>(tick % 17);
      endpoint.activity.closed = 3;
      endpoint.activity.in_flight = static_cast<std::uint64_t>(tick);
      endpoint.activity.in_flight_known = true;
      endpoint.activity.responses = 3;
      endpoint.activity.response_s_sum = 0.01 * tick;
      endpoint.activity.response_s_min = endpoint.activity.response_s_p99 = 0.003 * tick;
      endpoint.activity.responses_known = true;
    }
    ticks.cpu(0.01 * tick).memory(0.005 * tick, 0.1, tick % 3 == 0 ? 0.1 : 0).run();
  }
  EXPECT_EQ(allocations, before);
}

std::vector<std::string_view> built() {
  std::vector<std::string_view> names;
  for (const StrategyInfo& info : strategies()) {
    if (info.built) names.push_back(info.name);
  }
  return names;
}
INSTANTIATE_TEST_SUITE_P(Built, Tick, testing::ValuesIn(built()),
                         [](const auto& row) { return std::string(row.param); });

TEST(TickOfSignals, AllocatesNothing) {
  SignalDeriver deriver;
  Sample sample;
  sample.limits.cpu_cores = 0.5;
  const std::size_t before = allocations;
  for (std::uint64_t tick = 1; tick < 100; ++tick) {
    sample.at += std::chrono::milliseconds(100);
    sample.cpu_usage_ns = tick * 30'000'000;
    deriver.update(sample, std::chrono::seconds(1));
  }
  EXPECT_EQ(allocations, before);
}

}  // namespace
}  // namespace headgate
