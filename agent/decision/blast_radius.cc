// SPDX-License-Identifier: Apache-2.0
#include "agent/decision/blast_radius.h"

namespace headgate {

BlastRadius::Outcome BlastRadius::update(Instant now, bool refusing, Duration limit) {
  const bool was_tripped = tripped_;
  if (limit <= Duration::zero()) {
    *this = BlastRadius();
  } else if (!tripped_) {
    if (refusing) {
      if (!has_since_ || now - last_refused_ > kPause) since_ = now;
      has_since_ = true;
      last_refused_ = now;
      if (now - since_ >= limit) {
        tripped_ = true;
        has_since_ = false;
      }
    } else if (has_since_ && now - last_refused_ > kPause) {
      has_since_ = false;
    }
  } else if (refusing) {
    has_since_ = false;
  } else {
    if (!has_since_) since_ = now;
    has_since_ = true;
    if (now - since_ >= limit) {
      tripped_ = false;
      has_since_ = false;
    }
  }
  return {tripped_, tripped_, tripped_ != was_tripped};
}

}  // namespace headgate
