// SPDX-License-Identifier: Apache-2.0
#include "agent/targets/pod_fallback.h"

#include <utility>

#include "agent/base/log.h"

namespace headgate {
namespace {

constexpr double kStale_s = 60;

}  // namespace

bool is_current(const PodSource& source) {
  const PodSourceStatus status = source.status(std::chrono::steady_clock::now());
  return status.synced && (status.problem.empty() || status.heard_age_s.value_or(0) < kStale_s);
}

FallbackPods::FallbackPods(std::unique_ptr<PodSource> first, std::unique_ptr<PodSource> second)
    : first_(std::move(first)), second_(std::move(second)) {}

/// What the first knew once is better than nothing.
bool FallbackPods::on_second() const {
  const bool now = !is_current(*first_) && second_->pods() != nullptr;
  if (was_on_second_.exchange(now) != now) {
    ++switches_;
    log::info(now ? "pods come from the container runtime" : "pods come from the API server",
              {{"reason", first_->status(std::chrono::steady_clock::now()).problem}});
  }
  return now;
}

PodsPtr FallbackPods::pods() const { return on_second() ? second_->pods() : first_->pods(); }

std::uint64_t FallbackPods::generation() const {
  (void)on_second();
  return first_->generation() + second_->generation() + switches_;
}

PodSourceStatus FallbackPods::status(Instant now) const {
  const PodSourceStatus first = first_->status(now);
  PodSourceStatus second = second_->status(now);
  if (!on_second()) {
    PodSourceStatus out = first;
    if (!first.synced && !second.problem.empty()) {
      out.problem += "; " + second.problem;
    }
    return out;
  }
  second.problem = first.problem + (second.problem.empty() ? "" : "; " + second.problem);
  second.errors += first.errors;
  return second;
}

}  // namespace headgate
