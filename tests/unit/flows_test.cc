// SPDX-License-Identifier: Apache-2.0
// What is remembered of flows (bpf/lib/flows.h), compiled natively, in both variants.
#include "bpf/lib/flows.h"

#include <array>
#include <cstdint>
#include <random>
#include <set>
#include <vector>

#include <gtest/gtest.h>

namespace headgate {
namespace {

constexpr std::uint64_t kSecond = 1'000'000'000;
constexpr std::uint64_t kNow = 500'000 * kSecond;

std::uint32_t kind_of(std::uint64_t entry) { return static_cast<std::uint32_t>(entry >> 62); }

/// A hash with this fingerprint, of whichever set.
std::uint64_t hash_of(std::uint64_t fingerprint) { return fingerprint << 28; }

class Flows : public ::testing::TestWithParam<bool> {
 protected:
  void put(std::uint64_t fingerprint, headgate_flow_kind kind, std::uint64_t at_ns = kNow) {
    if (GetParam()) {
      headgate_flow_put(&set, hash_of(fingerprint), kind, at_ns, 1);
    } else {
      headgate_flow_put(&set, hash_of(fingerprint), kind, at_ns, 0);
    }
  }
  [[nodiscard]] std::uint64_t find(std::uint64_t fingerprint) const {
    return headgate_flow_find(&set, hash_of(fingerprint));
  }
  headgate_flow_set set{};
};
INSTANTIATE_TEST_SUITE_P(Variants, Flows, ::testing::Bool(),
                         [](const auto& variant) { return variant.param ? "Locked" : "Atomic"; });

TEST_P(Flows, AFlowHasOneEntryThatIsReplaced) {
  EXPECT_EQ(find(1), 0U);
  put(1, HEADGATE_FLOW_TIME_WAIT);
  put(1, HEADGATE_FLOW_REFUSED);
  put(1, HEADGATE_FLOW_TICKET);
  EXPECT_EQ(kind_of(find(1)), HEADGATE_FLOW_TICKET);
  headgate_flow_drop(&set, find(1), GetParam() ? 1 : 0);
  EXPECT_EQ(find(1), 0U);
}

TEST_P(Flows, FingerprintOfZeroIsFoundAndAFreePlaceIsNot) {
  EXPECT_EQ(find(0), 0U);
  put(0, HEADGATE_FLOW_TICKET);
  EXPECT_EQ(kind_of(find(0)), HEADGATE_FLOW_TICKET);
}

TEST_P(Flows, FullSetGivesUpNotesBeforeTicketsAndTheOldestFirst) {
  put(1, HEADGATE_FLOW_TICKET, kNow - 3 * kSecond);
  put(2, HEADGATE_FLOW_TIME_WAIT, kNow - 20 * kSecond);
  put(3, HEADGATE_FLOW_TICKET, kNow - 2 * kSecond);
  put(4, HEADGATE_FLOW_REFUSED, kNow - kSecond);
  put(5, HEADGATE_FLOW_TICKET, kNow - kSecond);
  put(6, HEADGATE_FLOW_TICKET, kNow - 6 * kSecond);  // has expired
  put(7, HEADGATE_FLOW_TIME_WAIT, kNow - 50 * kSecond);
  const std::array<std::uint64_t, 7> order = {6, 7, 2, 4, 1, 3, 5};
  for (std::size_t i = 0; i < order.size(); ++i) {
    put(100 + i, HEADGATE_FLOW_TICKET);
    EXPECT_EQ(find(order[i]), 0U) << i;
    for (std::size_t later = i + 1; later < order.size(); ++later) {
      EXPECT_NE(find(order[later]), 0U) << i << ", " << later;
    }
  }
}

TEST_P(Flows, AgeIsCountedFromEitherClockAndAcrossTheWrapOfItsBits) {
  constexpr std::uint64_t kWrap = (1ULL << (HEADGATE_FLOW_TIME_BITS + HEADGATE_FLOW_TIME_SHIFT));
  for (const std::uint64_t at : {kNow, 5 * kWrap - kSecond, 5 * kWrap + 3 * kSecond}) {
    put(1, HEADGATE_FLOW_TICKET, at);
    const std::uint64_t entry = find(1);
    EXPECT_TRUE(headgate_flow_fresh(entry, at, kSecond));
    EXPECT_TRUE(headgate_flow_fresh(entry, at - 20'000'000, kSecond));  // the coarse clock
    EXPECT_TRUE(headgate_flow_fresh(entry, at + 990'000'000, kSecond));
    EXPECT_FALSE(headgate_flow_fresh(entry, at + 1'010'000'000, kSecond));
    EXPECT_FALSE(headgate_flow_fresh(entry, at + 3600 * kSecond, kSecond));
  }
}

TEST(FlowHash, DependsOnEveryWordOfTheKeyAndOfTheFlow) {
  std::mt19937 random(7);  // NOLINT: the same every time
  std::array<std::uint32_t, 10> key{};
  for (std::uint32_t& word : key) {
    word = static_cast<std::uint32_t>(random());
  }
  const headgate_flow_key flow{
      4026531840, 4317, 40000, {0, 0, 0xffff0000, 1}, {0, 0, 0xffff0000, 2}};
  std::set<std::uint64_t> seen = {headgate_flow_hash(key.data(), &flow)};
  const auto is_new = [&](const headgate_flow_key& other) {
    return seen.insert(headgate_flow_hash(key.data(), &other)).second;
  };
  for (unsigned bit = 0; bit < 32; ++bit) {
    headgate_flow_key other = flow;
    other.netns_id ^= 1U << bit;
    EXPECT_TRUE(is_new(other));
    for (std::size_t word = 0; word < 4; ++word) {
      other = flow;
      other.local_address[word] ^= 1U << bit;
      EXPECT_TRUE(is_new(other)) << word;
      other = flow;
      other.remote_address[word] ^= 1U << bit;
      EXPECT_TRUE(is_new(other)) << word;
    }
  }
  for (unsigned bit = 0; bit < 16; ++bit) {
    headgate_flow_key other = flow;
    other.local_port = static_cast<std::uint16_t>(other.local_port ^ (1U << bit));
    EXPECT_TRUE(is_new(other));
    other = flow;
    other.remote_port = static_cast<std::uint16_t>(other.remote_port ^ (1U << bit));
    EXPECT_TRUE(is_new(other));
  }
  for (std::size_t word = 0; word < key.size(); ++word) {
    std::array<std::uint32_t, 10> other = key;
    other[word] ^= 1;
    EXPECT_NE(headgate_flow_hash(other.data(), &flow), headgate_flow_hash(key.data(), &flow))
        << word;
  }
}

/// Connections of a few clients, the worst case of a hash that is too simple: they spread.
TEST(FlowHash, SpreadsThePortsOfAFewClientsOverTheSets) {
  std::mt19937 random(11);  // NOLINT: the same every time
  std::array<std::uint32_t, 10> key{};
  for (std::uint32_t& word : key) {
    word = static_cast<std::uint32_t>(random());
  }
  std::vector<unsigned> in_set(HEADGATE_FLOW_SETS, 0);
  for (std::uint32_t client = 1; client <= 2; ++client) {
    for (std::uint32_t port = 32768; port < 32768 + HEADGATE_FLOW_SETS / 2; ++port) {
      const headgate_flow_key flow{1,
                                   4317,
                                   static_cast<std::uint16_t>(port),
                                   {0, 0, 0xffff0000, 0x0100000a},
                                   {0, 0, 0xffff0000, 0x0000000a + (client << 24)}};
      ++in_set[headgate_flow_set_of(headgate_flow_hash(key.data(), &flow))];
    }
  }
  // one flow a set on average: of a Poisson distribution 1e-5 lie above 7
  unsigned above = 0;
  for (const unsigned n : in_set) {
    above += n > HEADGATE_FLOWS_PER_SET ? 1 : 0;
  }
  EXPECT_LE(above, 3U);
}

}  // namespace
}  // namespace headgate
