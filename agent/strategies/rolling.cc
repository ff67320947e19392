// SPDX-License-Identifier: Apache-2.0
#include "agent/strategies/rolling.h"

#include <algorithm>

namespace headgate {

Rolling::Rolling(Duration bucket, Duration window)
    : bucket_(bucket),
      window_(std::max(window, bucket)),
      // A bucket may be a third shorter than asked for (see add).
      ring_(static_cast<std::size_t>(1.5 * seconds(window_) / seconds(bucket_)) + 2) {}

void Rolling::clear() {
  std::fill(ring_.begin(), ring_.end(), Bucket{});
  open_ = Bucket{};
  next_ = 0;
}

void Rolling::add(Instant at, Duration dt, double count, double sum) {
  now_ = at;
  if (dt > Duration::zero()) {
    open_.end = at;
    open_.span_s += seconds(dt);
    open_.count += count;
    open_.sum += sum;
    // Closed where it is nearest to the length asked for.
    if (open_.span_s + seconds(dt) / 2 >= seconds(bucket_)) {
      ring_[next_] = open_;
      next_ = (next_ + 1) % ring_.size();
      open_ = Bucket{};
    }
  }
  for (Bucket& old : ring_) {
    if (old.span_s > 0 && old.end + window_ < at) old = Bucket{};
  }
}

double Rolling::max_rate_per_s() const {
  double most = 0;
  for (const Bucket& b : ring_) {
    if (b.span_s > 0) most = std::max(most, b.count / b.span_s);
  }
  return most;
}

std::optional<double> Rolling::min_mean() const {
  std::optional<double> least;
  for (const Bucket& b : ring_) {
    if (b.count <= 0) continue;
    const double mean = b.sum / b.count;
    if (!least || mean < *least) least = mean;
  }
  return least;
}

double Rolling::count() const {
  double total = open_.count;
  for (const Bucket& b : ring_) total += b.count;
  return total;
}

std::optional<double> Rolling::mean() const {
  double sum = open_.sum;
  for (const Bucket& b : ring_) sum += b.sum;
  const double n = count();
  return n > 0 ? std::optional(sum / n) : std::nullopt;
}

}  // namespace headgate
