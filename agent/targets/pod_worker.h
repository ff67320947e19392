// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <atomic>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include "agent/targets/pod_source.h"

namespace headgate {

/// A source of pods that works on a thread of its own: what it has found out, for those who ask
/// from other threads. The thread is the derived class's, which ends it before it ends itself.
class PodWorker : public PodSource {
 public:
  [[nodiscard]] PodsPtr pods() const override {
    const std::lock_guard lock(mutex_);
    return pods_;
  }
  [[nodiscard]] std::uint64_t generation() const override { return generation_; }
  [[nodiscard]] PodSourceStatus status(Instant at) const override {
    const std::lock_guard lock(mutex_);
    PodSourceStatus out = status_;
    out.pods = pods_ != nullptr ? pods_->by_uid().size() : 0;
    if (heard_at_ != Instant{}) {
      out.heard_age_s = std::max(0.0, seconds(at - heard_at_));
    }
    return out;
  }

 protected:
  PodWorker(std::string_view source, std::string where, std::string node_name,
            std::string problem) {
    status_.source = source;
    status_.where = std::move(where);
    status_.node_name = std::move(node_name);
    status_.problem = std::move(problem);
  }

  template <class Change>
  void change_status(Change change) {
    const std::lock_guard lock(mutex_);
    change(status_);
  }
  /// Something came that tells that the list is right.
  void note_heard() {
    const std::lock_guard lock(mutex_);
    heard_at_ = std::chrono::steady_clock::now();
  }
  void publish(PodsPtr pods) {
    const std::lock_guard lock(mutex_);
    pods_ = std::move(pods);
    heard_at_ = std::chrono::steady_clock::now();
    ++generation_;
  }

 private:
  mutable std::mutex mutex_;
  PodsPtr pods_;            ///< guarded by mutex_
  PodSourceStatus status_;  ///< guarded by mutex_
  Instant heard_at_{};      ///< guarded by mutex_
  std::atomic<std::uint64_t> generation_{0};
};

}  // namespace headgate
