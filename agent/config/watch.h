// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "headgate/clock.h"
#include "headgate/result.h"

namespace headgate {

/// Notices a changed configuration file, whatever way it was changed: `..data` swap of a projected
/// volume, `ln -sfn`, `mv`, an editor's rewrite in place (cases C01, C02). Watches the directory
/// (and that of the link's goal) by inotify as a hint, and compares content, so that the event mask
/// does not matter; looks by itself once a second.
class ConfigWatcher {
 public:
  [[nodiscard]] static Result<std::unique_ptr<ConfigWatcher>> open(const std::string& path);
  virtual ~ConfigWatcher() = default;
  /// An fd to poll for input; poll() may be called at any time, too.
  [[nodiscard]] virtual int fd() const = 0;
  /// The new text once it differs from the last one returned and has been stable for 100 ms.
  [[nodiscard]] virtual std::optional<std::string> poll(Instant now) = 0;
  /// Empty, or why hot reload will not work here (case C04: subPath mount).
  [[nodiscard]] virtual std::string warning() const = 0;
};

}  // namespace headgate
