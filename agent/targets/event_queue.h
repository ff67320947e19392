// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "headgate/clock.h"

namespace headgate {

/// What has happened to a pod, for those who look at it with `kubectl describe pod`.
struct KubeEvent {
  std::string namespace_name;
  std::string pod;
  std::string uid;
  std::string container;  ///< "": the pod as a whole
  bool warning = false;   ///< false: all is well (again); of use only after a warning
  std::string reason;     ///< one word in CamelCase
  std::string action;     ///< what was done about it, likewise
  std::string note;       ///< a sentence with numbers
  std::int64_t unix_us = 0;
  unsigned times = 1;  ///< how often the state has changed since the one before
};

/// Events that wait to be sent. One target gets one at the most in kEventQuiet: what comes before
/// is merged into the newest one, with a count. That all is well is told only to those who have
/// heard otherwise. Pure: time comes from the caller.
class EventQueue {
 public:
  static constexpr Duration kQuiet = std::chrono::seconds(30);
  /// A waiting event that is older than this tells nothing any more.
  static constexpr Duration kTooOld = std::chrono::minutes(10);
  static constexpr std::size_t kMostObjects = 1024;

  struct Due {
    std::string key;
    KubeEvent event;                ///< `times` over all that were merged
    std::int64_t last_unix_us = 0;  ///< event.unix_us is of the first of them
    Instant since{};                ///< when the last of them came
  };

  /// `key` names the target. False: there are too many targets, it is dropped.
  bool add(const std::string& key, KubeEvent event, Instant now);
  /// The one that has waited longest of those that are due; it counts as told.
  [[nodiscard]] std::optional<Due> take(Instant now);
  /// It could not be sent: it is due again, unless a newer one has come meanwhile.
  void put_back(Due due, Instant now);
  /// When take() will give something; nothing = nobody waits.
  [[nodiscard]] std::optional<Instant> next() const;

  [[nodiscard]] std::uint64_t merged() const { return merged_; }
  [[nodiscard]] std::uint64_t dropped() const { return dropped_; }

 private:
  struct Object {
    std::optional<Due> waiting;
    Instant quiet_until{};
    bool told_warning = false;
  };
  void forget_the_quiet(Instant now);

  std::map<std::string, Object> objects_;
  std::uint64_t merged_ = 0;
  std::uint64_t dropped_ = 0;
};

}  // namespace headgate
