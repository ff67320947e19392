// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "headgate/clock.h"

#include "agent/targets/pod_list.h"

namespace headgate {

/// How a source of pods fares, for metrics and people.
struct PodSourceStatus {
  std::string source;  ///< "api" or "cri"
  std::string where;   ///< URL or socket
  std::string node_name;
  bool synced = false;  ///< has had the whole list
  std::string problem;  ///< why it does not know, or not any more; "" = well
  std::size_t pods = 0;
  std::uint64_t lists = 0;    ///< whole lists asked for
  std::uint64_t watches = 0;  ///< streams begun
  std::uint64_t events = 0;   ///< changes of pods
  std::uint64_t bookmarks = 0;
  std::uint64_t expired = 0;  ///< lists made again because the version was too old (410)
  std::uint64_t errors = 0;   ///< requests that failed
  std::uint64_t received_bytes = 0;
  std::optional<double> heard_age_s;  ///< since anything came that tells that the list is right
};

/// Somebody who knows the pods of this node. Thread-safe; nothing here waits.
class PodSource {
 public:
  PodSource() = default;
  PodSource(const PodSource&) = delete;
  PodSource& operator=(const PodSource&) = delete;
  PodSource(PodSource&&) = delete;
  PodSource& operator=(PodSource&&) = delete;
  virtual ~PodSource() = default;

  /// nullptr: not known yet. What was known stays while the source cannot be reached.
  [[nodiscard]] virtual PodsPtr pods() const = 0;
  /// Rises with every change of pods().
  [[nodiscard]] virtual std::uint64_t generation() const = 0;
  [[nodiscard]] virtual PodSourceStatus status(Instant now) const = 0;
};

}  // namespace headgate
