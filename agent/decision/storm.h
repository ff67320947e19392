// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "headgate/clock.h"

namespace headgate {

/// How many sources set so many of `bits` bits by a hash each (linear counting: Whang et al., ACM
/// TODS 15(2), 1990). Full: all that can be told is "many", and the bound is returned.
[[nodiscard]] double estimate_sources(std::uint32_t bits_set, std::uint32_t bits);

/// Storm mode of one endpoint: clients that reconnect in a hot loop are answered by silence, which
/// makes their kernels wait, where a RST lets them try again at once. Pure; once a second.
///
/// It begins after two seconds with more than kBegin refused attempts per second and source. It
/// ends when the attempts per second and source have stayed below kEnd for `hold`. Silence itself
/// makes them few, so that the next RST may start the storm anew: each time it comes back within
/// kRelapse of its end, `hold` is twice as long, up to kHoldMost.
class StormWatch {
 public:
  static constexpr double kBegin = 10;
  static constexpr double kEnd = 2;
  static constexpr Duration kHoldFirst = std::chrono::seconds(10);
  static constexpr Duration kHoldMost = std::chrono::seconds(160);
  static constexpr Duration kRelapse = std::chrono::seconds(60);

  struct Outcome {
    bool storm = false;
    bool changed = false;
  };
  /// `refused`: attempts refused since the last call (retransmits are none); `sources`: from how
  /// many. Calls further apart than a second are taken for what they are.
  Outcome update(Instant now, std::uint64_t refused, double sources);
  /// Silence cannot be had any more.
  void reset() { *this = StormWatch(); }
  /// A restart finds the kernel's policy in storm mode.
  void resume(Instant now);

  [[nodiscard]] bool storm() const { return storm_; }
  [[nodiscard]] double per_source_per_s() const { return per_source_per_s_; }

 private:
  bool storm_ = false;
  bool seen_ = false;
  Instant last_{};
  unsigned hot_ = 0;      ///< calls in a row above kBegin
  Instant calm_since_{};  ///< storm: below kEnd since then
  Instant ended_{};       ///< the last storm
  bool ended_once_ = false;
  Duration hold_ = kHoldFirst;
  double per_source_per_s_ = 0;
};

}  // namespace headgate
