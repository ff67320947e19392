// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "headgate/clock.h"
#include "headgate/result.h"

namespace headgate {

/// Notices a changed configuration file, whatever way it was changed: `..data` swap of a projected
/// volume, `ln -sfn`, `mv`, an editor's rewrite in place (cases C01, C02). Watches the directory
/// (and that of the link's goal) by inotify as a hint, and compares content, so that the event mask
/// does not matter; looks by itself once a second. Used by one thread.
class ConfigWatcher {
 public:
  /// Reads the file once: text() is what the agent should start from, so that no change between
  /// its first reading and the watch can be missed.
  [[nodiscard]] static Result<std::unique_ptr<ConfigWatcher>> open(const std::string& path);
  ConfigWatcher() = default;
  ConfigWatcher(const ConfigWatcher&) = delete;
  ConfigWatcher& operator=(const ConfigWatcher&) = delete;
  ConfigWatcher(ConfigWatcher&&) = delete;
  ConfigWatcher& operator=(ConfigWatcher&&) = delete;
  virtual ~ConfigWatcher() = default;

  /// The text last returned by poll(); at first the one read by open().
  [[nodiscard]] virtual const std::string& text() const = 0;
  /// An fd to poll for input; poll() may be called at any time, too.
  [[nodiscard]] virtual int fd() const = 0;
  /// The new text once it differs from the last one returned and has been stable for 100 ms.
  /// A file that is away for the moment is no change; one that comes back after problem() is, even
  /// with the same text.
  [[nodiscard]] virtual std::optional<std::string> poll(Instant now) = 0;
  /// Why the file cannot be read (it is gone, or a directory stands there), once that has lasted
  /// half a second: a swap or an editor is shorter. Empty while it can. As of the last poll().
  [[nodiscard]] virtual const std::string& problem() const = 0;
  /// Empty, or why hot reload will not work here (case C04: subPath mount).
  [[nodiscard]] virtual std::string warning() const = 0;
};

/// The same from the text of /proc/self/mountinfo (proc(5)): a file that is itself a mount point is
/// bound to one inode, and replacing it by name is never seen through the mount. `path`: absolute,
/// links resolved.
[[nodiscard]] std::string mount_warning(std::string_view path, std::string_view mountinfo);

}  // namespace headgate
