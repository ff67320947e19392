// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "headgate/result.h"

#include "agent/base/unique_fd.h"

namespace headgate {

/// Where maps and links are pinned, so that they outlive the agent:
///   <root>/                      the lock (one agent a node)
///   <root>/waiting/              shared lock of those who stand by for it
///   <root>/v<ABI>/maps/<map>     one pin a map
///   <root>/v<ABI>/links/<hook>-<inode>
/// Another ABI version has another directory: maps of a foreign layout are never adopted.
class PinDirectory {
 public:
  /// Makes the directories. Where `root` is not on a BPF file system (a bind mount may show sysfs),
  /// tries to mount one on /sys/fs/bpf; where that fails too, nothing is pinned: `pinned()` is
  /// false and `warning()` says what that costs. An empty root means: do not pin.
  [[nodiscard]] static PinDirectory prepare(const std::string& root);

  /// What an agent has made there before; makes nothing. Not pinned() where there is nothing.
  [[nodiscard]] static PinDirectory existing(const std::string& root);

  [[nodiscard]] bool pinned() const { return pinned_; }
  [[nodiscard]] const std::string& warning() const { return warning_; }
  [[nodiscard]] const std::string& root() const { return root_; }
  [[nodiscard]] std::string map_path(const std::string& name) const;
  [[nodiscard]] std::string links_directory() const;
  [[nodiscard]] std::string maps_directory() const;
  [[nodiscard]] std::string link_path(const std::string& name) const;
  [[nodiscard]] std::string line_path() const { return root_ + "/waiting"; }

  /// Takes the lock without waiting (flock(2) on the root directory, so containers that share the
  /// mount share the lock). false = another agent has it. Not pinned, or taken before: true.
  [[nodiscard]] Result<bool> try_lock();
  /// Says that this agent waits for the lock, until it has it or leave_line().
  void stand_in_line();
  void leave_line() { line_.reset(); }
  /// Another agent waits for the lock now, and will adopt what it finds.
  [[nodiscard]] bool somebody_waits() const;
  /// Removes the directories that prepare() has made, where nothing is pinned in them.
  void remove_if_empty() const;
  /// Removes what this version has pinned: links are detached first. Foreign files stay, and the
  /// map of live connections while there are any.
  void purge() const;

 private:
  [[nodiscard]] Result<> make_directories() const;

  std::string root_;
  std::string warning_;
  bool pinned_ = false;
  UniqueFd lock_;
  UniqueFd line_;
};

/// True where `path` lies on a mounted BPF file system (statfs(2), BPF_FS_MAGIC).
[[nodiscard]] bool is_bpffs(const std::string& path);

}  // namespace headgate
