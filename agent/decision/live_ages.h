// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>

#include "headgate/bpf_abi.h"
#include "headgate/clock.h"

namespace headgate {

/// What of the live bytes in the kernel is live no more: those of connections whose responses
/// cannot be seen end by age (HEADGATE_LIVE_GENERATIONS), and when the last connection has gone
/// nothing is left, whatever the sums say. Gives the word that the kernel subtracts. Pure.
class LiveAges {
 public:
  /// Goes on after the generation that is in force in the kernel: after a restart or a reload.
  void resume(std::uint64_t live_base) {
    generation_ = HEADGATE_LIVE_GENERATION(live_base);
    resumed_ = true;
  }

  /// Once a tick, from sums just read. Bytes are live for `residence` to twice that. Returns
  /// headgate_target_policy.live_base.
  std::uint64_t update(Instant now, const headgate_target_state& state, Duration residence) {
    if (first_ || resumed_) {
      // What is in the sums is of a time that is not known: it is taken as aged.
      generation_ += resumed_ ? 2 : 0;
      for (std::size_t i = 0; i < ended_.size(); ++i) {
        ended_[i] = state.live_aged[i];
      }
      first_ = resumed_ = false;
      turned_at_ = now;
    } else if (now - turned_at_ >= residence) {
      turned_at_ = now;
      ++generation_;
      ended_[generation_ % ended_.size()] = state.live_aged[generation_ % ended_.size()];
    }
    const bool nobody = static_cast<std::int64_t>(state.in_flight) <= 0;
    if (nobody && nobody_ && state.live_bytes == live_bytes_) {
      lost_ = state.live_bytes;  // of packets that came while their connection was being closed
    }
    nobody_ = nobody;
    live_bytes_ = state.live_bytes;
    const std::uint64_t ended =
        lost_ + ended_[generation_ % ended_.size()] + ended_[(generation_ - 1) % ended_.size()];
    return HEADGATE_LIVE_BASE(ended, generation_);
  }

 private:
  std::array<std::uint64_t, HEADGATE_LIVE_GENERATIONS> ended_{};
  std::uint32_t generation_ = 0;
  Instant turned_at_{};
  std::uint64_t lost_ = 0;
  std::uint64_t live_bytes_ = 0;
  bool nobody_ = false;
  bool first_ = true;
  bool resumed_ = false;
};

/// Live bytes of a target, as the kernel's verdict sees them.
[[nodiscard]] inline std::uint64_t live_bytes(const headgate_target_state& state,
                                              std::uint64_t live_base) {
  constexpr std::uint32_t kLast = HEADGATE_LIVE_GENERATIONS - 1;
  const std::uint32_t generation = HEADGATE_LIVE_GENERATION(live_base);
  const auto live =
      static_cast<std::int64_t>(state.live_bytes + state.live_aged[generation & kLast] +
                                state.live_aged[(generation - 1) & kLast]) -
      HEADGATE_LIVE_BASE_BYTES(live_base);
  return live > 0 ? static_cast<std::uint64_t>(live) : 0;
}

}  // namespace headgate
