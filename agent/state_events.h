// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "headgate/clock.h"
#include "headgate/target.h"

#include "agent/snapshot.h"
#include "agent/targets/event_queue.h"

namespace headgate {

/// Makes Events of the changes of one target's state. An Event is made a second after the change,
/// when there are numbers of a whole second to give. Pure: time comes from the caller.
class StateEvents {
 public:
  /// After each decision whose state is another than that of the one before.
  void changed(Instant now);
  /// An Event is due: ask make(). Cheap, for every second.
  [[nodiscard]] bool due(Instant now) const;
  /// `target`: as it is now, in a pod whose name is known. Nothing: no Event is worth making.
  [[nodiscard]] std::optional<KubeEvent> make(const TargetSnapshot& target, Instant now,
                                              std::int64_t unix_us);

 private:
  struct Totals {
    std::uint64_t offered = 0;
    std::uint64_t kept_out = 0;
  };
  [[nodiscard]] std::string note(const TargetSnapshot& target, Instant now) const;
  [[nodiscard]] std::string since_then(const TargetSnapshot& target) const;

  Instant changed_at_{};  ///< the first change that has not been told; zero = none
  unsigned changes_ = 0;
  std::optional<Instant> bad_since_;      ///< told to be other than normal
  std::map<std::string, Totals> before_;  ///< by endpoint, when that began
};

/// A configuration has been refused, or one is taken over after that; about the agent's own pod.
[[nodiscard]] KubeEvent config_event(const std::string& why_refused, const std::string& file,
                                     std::int64_t unix_us);

}  // namespace headgate
