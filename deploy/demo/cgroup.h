// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "headgate/result.h"

namespace headgate::demo {

/// Where each controller is mounted on this machine: pure v2, v1, or hybrid (v1 controllers beside
/// a v2 hierarchy that has none, which still is where cgroup-BPF attaches).
struct CgroupRoots {
  bool pure_v2 = false;
  std::string v2;                            ///< empty = none
  std::string cpu, cpuacct, memory, cpuset;  ///< v1; empty = not mounted

  /// Reads /proc/self/mounts.
  [[nodiscard]] static Result<CgroupRoots> find();
  [[nodiscard]] std::string name() const { return pure_v2 ? "v2" : v2.empty() ? "v1" : "hybrid"; }
  /// Every distinct mount point in use.
  [[nodiscard]] std::vector<std::string> all() const;
};

struct CgroupLimits {
  double cpu_cores = 0;            ///< 0 = none
  std::uint64_t memory_bytes = 0;  ///< 0 = none; swap is off where it can be
  bool heavy_weight = false;       ///< so that the quota and not a busy machine is the limiter
};

/// Raw counters; a counter that cannot be read keeps 0.
struct CgroupReading {
  std::uint64_t usage_ns = 0;
  std::uint64_t periods = 0;
  std::uint64_t throttled = 0;
  std::uint64_t memory_bytes = 0;
  std::uint64_t oom_kills = 0;
};

/// A control group under one name in every hierarchy. Owns the directories: removed on destruction
/// (the processes in it must have gone; waits for them up to two seconds).
class Cgroup {
 public:
  /// `path` begins with '/'; the parent must exist. `delegate`: on v2, hand cpu and memory down to
  /// the groups below (cgroup-v2.rst, "Top-down Constraint").
  [[nodiscard]] static Result<Cgroup> create(const CgroupRoots& roots, std::string_view path,
                                             const CgroupLimits& limits, bool delegate);
  Cgroup(Cgroup&& other) noexcept;
  Cgroup& operator=(Cgroup&&) = delete;
  Cgroup(const Cgroup&) = delete;
  Cgroup& operator=(const Cgroup&) = delete;
  ~Cgroup();

  [[nodiscard]] const std::string& path() const { return path_; }
  /// Files to which a process writes "0" to move itself in; valid between fork and exec.
  [[nodiscard]] std::vector<std::string> procs_files() const;
  [[nodiscard]] CgroupReading read() const;

 private:
  Cgroup(CgroupRoots roots, std::string path) : roots_(std::move(roots)), path_(std::move(path)) {}
  CgroupRoots roots_;
  std::string path_;
  bool owned_ = true;
};

/// On pure v2: the root must hand cpu and memory down; takes back on destruction what it changed.
class RootControllers {
 public:
  [[nodiscard]] static Result<RootControllers> enable(const CgroupRoots& roots);
  RootControllers(RootControllers&& other) noexcept;
  RootControllers& operator=(RootControllers&&) = delete;
  RootControllers(const RootControllers&) = delete;
  RootControllers& operator=(const RootControllers&) = delete;
  ~RootControllers();

 private:
  RootControllers() = default;
  std::string file_;
  std::vector<std::string> added_;
};

/// Removes what earlier runs left that were killed before they could tidy up: groups named
/// `prefix`<pid> whose process is gone.
void remove_stale_cgroups(const CgroupRoots& roots, std::string_view prefix);

}  // namespace headgate::demo
