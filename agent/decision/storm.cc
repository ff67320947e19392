// SPDX-License-Identifier: Apache-2.0
#include "agent/decision/storm.h"

#include <algorithm>
#include <cmath>

namespace headgate {

double estimate_sources(std::uint32_t bits_set, std::uint32_t bits) {
  const double all = bits;
  const double free = std::max(all - bits_set, 0.5);
  return bits_set == 0 ? 0 : -all * std::log(free / all);
}

void StormWatch::resume(Instant now) {
  storm_ = true;
  seen_ = true;
  last_ = calm_since_ = now;
}

StormWatch::Outcome StormWatch::update(Instant now, std::uint64_t refused, double sources) {
  const double elapsed_s = seen_ ? seconds(now - last_) : 0;
  seen_ = true;
  last_ = now;
  if (elapsed_s <= 0) {
    return {storm_, false};  // the first call: nothing to compare with
  }
  per_source_per_s_ = static_cast<double>(refused) / elapsed_s / std::max(sources, 1.0);
  const bool was = storm_;
  if (!storm_) {
    hot_ = per_source_per_s_ > kBegin ? hot_ + 1 : 0;
    if (hot_ >= 2) {
      storm_ = true;
      hot_ = 0;
      calm_since_ = now;
      hold_ = ended_once_ && now - ended_ < kRelapse ? std::min(2 * hold_, kHoldMost) : kHoldFirst;
    }
  } else {
    if (per_source_per_s_ >= kEnd) {
      calm_since_ = now;
    } else if (now - calm_since_ >= hold_) {
      storm_ = false;
      ended_once_ = true;
      ended_ = now;
    }
  }
  return {storm_, storm_ != was};
}

}  // namespace headgate
