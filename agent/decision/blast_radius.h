// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "headgate/clock.h"

namespace headgate {

/// `max_refuse_duration`: a target that has been refusing for so long is put back to observe, with
/// an alert, because then either the limit or the law is wrong and people must look. Pure.
///
/// Refusing means: the decision of this tick would refuse something (a share below 1, an open
/// circuit, a cap that is hit), whether it is enforced or only observed. Pauses up to kPause do not
/// interrupt it: a law that closes the gate every other tick is refusing all the time. When
/// tripped, decisions go on and are counted, but nothing is refused until the law has not wanted to
/// refuse for the same duration without interruption; then enforcement is back and the alert ends.
class BlastRadius {
 public:
  static constexpr Duration kPause = std::chrono::seconds(1);

  struct Outcome {
    bool observe = false;  ///< publish this target in observe mode
    bool alert = false;    ///< headgate_max_refuse_duration_exceeded; the same as `observe`
    bool changed = false;  ///< one of them changed in this tick: log it
  };
  /// `limit` <= 0: no limit, and whatever was tripped is released.
  Outcome update(Instant now, bool refusing, Duration limit);

 private:
  bool tripped_ = false;
  bool has_since_ = false;
  Instant since_{};         ///< not tripped: since when it refuses; tripped: since when it does not
  Instant last_refused_{};  ///< valid while has_since_ and not tripped
};

}  // namespace headgate
