// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <memory>

#include "agent/targets/pod_source.h"

namespace headgate {

/// Is what a source knows good enough to go by? It has had the whole list, and is well or has been
/// so in the last minute.
[[nodiscard]] bool is_current(const PodSource& source);

/// The API server's pods, and the container runtime's while those are not to be had.
class FallbackPods final : public PodSource {
 public:
  /// `second` may look at `first`.
  FallbackPods(std::unique_ptr<PodSource> first, std::unique_ptr<PodSource> second);

  [[nodiscard]] PodsPtr pods() const override;
  [[nodiscard]] std::uint64_t generation() const override;
  /// Of the one in force; `problem` has the other's, too.
  [[nodiscard]] PodSourceStatus status(Instant now) const override;

 private:
  [[nodiscard]] bool on_second() const;

  std::unique_ptr<PodSource> first_;
  std::unique_ptr<PodSource> second_;  ///< goes before first_
  mutable std::atomic<bool> was_on_second_{false};
  mutable std::atomic<std::uint64_t> switches_{0};
};

}  // namespace headgate
