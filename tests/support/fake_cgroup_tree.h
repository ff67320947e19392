// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "agent/cgroup/hierarchy.h"

namespace headgate::test {

/// A cgroup root and a /proc made of plain files in a directory of their own, which goes with the
/// object. Writing a file again keeps its inode, as the kernel's files do.
class FakeCgroupTree {
 public:
  FakeCgroupTree();
  ~FakeCgroupTree();
  FakeCgroupTree(const FakeCgroupTree&) = delete;
  FakeCgroupTree& operator=(const FakeCgroupTree&) = delete;

  [[nodiscard]] std::string root() const { return base_ + "/cgroup"; }
  [[nodiscard]] std::string proc_root() const { return base_ + "/proc"; }

  /// Makes the root a pure v2 tree.
  FakeCgroupTree& v2();
  /// `path` is below the cgroup root; directories on the way are made.
  FakeCgroupTree& write(const std::string& path, std::string_view text);
  FakeCgroupTree& directory(const std::string& path);
  FakeCgroupTree& link(const std::string& path, const std::string& target);
  FakeCgroupTree& remove(const std::string& path);
  /// The old directory goes away while those who hold it keep it, and an empty one takes its name.
  FakeCgroupTree& recreate(const std::string& path);

  /// A process: its line(s) of /proc/PID/cgroup, its executable ("" = kernel thread), its network
  /// namespace (0 = not readable).
  FakeCgroupTree& process(int pid, std::string_view cgroup, const std::string& exe,
                          unsigned netns = 4026531840U);
  FakeCgroupTree& write_proc(const std::string& path, std::string_view text);
  FakeCgroupTree& link_proc(const std::string& path, const std::string& target);

  /// Detected afresh; the test fails where there is no tree.
  [[nodiscard]] Hierarchy hierarchy(bool with_proc = false) const;

 private:
  std::string base_;
};

}  // namespace headgate::test
