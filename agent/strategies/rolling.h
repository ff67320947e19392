// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "headgate/clock.h"

namespace headgate {

/// Events of the last `window`, in buckets of about `bucket`. A bucket is made of whole ticks and
/// rates are per second of its real length, so the largest rate means the same at any tick. The
/// bucket that is still being filled does not count. Allocates at construction only.
class Rolling {
 public:
  Rolling(Duration bucket, Duration window);

  /// One tick that ended at `at` and lasted `dt`: `count` events with the sum of some value of
  /// theirs. A time that does not pass changes nothing; what is older than the window is forgotten.
  void add(Instant at, Duration dt, double count, double sum = 0);
  void clear();

  /// Largest rate of a bucket, events per second; 0 = no events.
  [[nodiscard]] double max_rate_per_s() const;
  /// Smallest mean value of a bucket that has events.
  [[nodiscard]] std::optional<double> min_mean() const;
  /// Events of the whole window, and their mean value; these count the open bucket too.
  [[nodiscard]] double count() const;
  [[nodiscard]] std::optional<double> mean() const;

 private:
  struct Bucket {
    Instant end{};
    double span_s = 0;  ///< 0 = empty
    double count = 0;
    double sum = 0;
  };

  Duration bucket_;
  Duration window_;
  std::vector<Bucket> ring_;
  std::size_t next_ = 0;
  Bucket open_;
  Instant now_{};
};

}  // namespace headgate
