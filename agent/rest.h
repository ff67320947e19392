// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "agent/dataplane/kernel_maps.h"

namespace headgate {

/// What a tick must know of a target that is calm: whether it may go on resting. All of it on one
/// cache line, and the lines of all targets side by side: with 250 of them at rest, what a tick
/// costs is the waiting for memory.
///
/// Reading a cgroup is what the agent costs (four files, 10 us with cold caches). A target that is
/// well below its limits and gets no more than it usually gets is read every fifth tick, an idle
/// one every tenth, one to which nobody is connected every sixtieth; the exact count of attempts,
/// which costs next to nothing, tells in the same tick when that ends.
struct alignas(64) Rest {
  std::uint32_t most = 0;                ///< ticks that may pass without a sample; 0 = none
  std::uint32_t skipped = 0;             ///< ticks since the last sample
  double usual_offered = 0;              ///< attempts a tick, smoothed
  std::uint64_t offered_seen = 0;        ///< sum of the endpoints' counters at the last tick
  std::uint32_t slack = 0;               ///< attempts in a tick, beyond twice the usual, let pass
  std::uint32_t endpoints = 0;           ///< how many
  std::array<std::uint32_t, 8> slots{};  ///< of the first of them

  void add(std::uint32_t endpoint) {
    if (endpoints < slots.size()) slots[endpoints] = endpoint;
    ++endpoints;
  }
  /// Asks for the memory that goes_on() will read.
  void prefetch(const KernelMaps& maps) const {
    for (std::size_t i = 0; i < slots.size() && i < endpoints; ++i) {
      maps.prefetch_offered(slots[i]);
    }
  }
  [[nodiscard]] bool has_more() const { return endpoints > slots.size(); }
  /// One tick: true = it rests. `all`: the slots of all endpoints, where it has more.
  [[nodiscard]] bool goes_on(const KernelMaps& maps, std::span<const std::uint32_t> all) {
    std::uint64_t offered = 0;
    if (!has_more()) all = std::span(slots).first(endpoints);
    for (const std::uint32_t slot : all) offered += maps.offered(slot);
    const auto arrived = static_cast<double>(offered - offered_seen);
    offered_seen = offered;
    const bool burst = arrived > 2 * usual_offered + slack;
    usual_offered += 0.1 * (arrived - usual_offered);
    skipped = !burst && skipped < most ? skipped + 1 : 0;
    return skipped > 0;
  }
};
static_assert(sizeof(Rest) == 64);

}  // namespace headgate
