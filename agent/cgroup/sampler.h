// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "headgate/result.h"
#include "headgate/sample.h"

#include "agent/cgroup/hierarchy.h"

namespace headgate {

/// What the operator wrote over what the kernel says, and what stands in where that says "no
/// limit".
struct CapacityOverride {
  std::optional<double> cpu_cores;
  std::optional<std::uint64_t> memory_bytes;
  std::optional<double> cpu_cores_by_request;
  std::optional<std::uint64_t> memory_bytes_by_request;
};

/// One file as it was read, for `explain`: nothing is hidden between the raw text and the number.
struct FileRead {
  std::string path;
  std::string raw;    ///< at most 4 KiB
  std::string error;  ///< empty = read
};

/// Samples one cgroup. Keeps its files open (pread), holds the directory by fd: a directory made
/// again under the same name is another cgroup (`gone()` turns true and stays so). What is read
/// each tick and what once a second: design, promise 6. Not thread-safe; no allocation after open.
class CgroupSampler {
 public:
  /// `path`: below the cgroup root, begins with '/'. Errors: "/" (the root is no target, case A05),
  /// no such directory in any tree.
  [[nodiscard]] static Result<std::unique_ptr<CgroupSampler>> open(
      const Hierarchy& hierarchy, const std::string& path, const CapacityOverride& capacity);
  virtual ~CgroupSampler() = default;

  /// `now`: the sample's time. `stagger`: [0, 10): which tick of the second reads the details.
  virtual const Sample& sample(Instant now) = 0;
  virtual void set_stagger(unsigned stagger) = 0;
  /// Between two readings of memory.stat, memory.pressure, memory.events and the OOM count; 1 s
  /// unless set. Limits are read once a second whatever this is. Made shorter, the next sample
  /// reads them.
  virtual void set_memory_detail_period(Duration period) = 0;
  /// Some limit was written: the next sample reads them, whatever the second.
  virtual void expect_new_limits() = 0;
  [[nodiscard]] virtual bool gone() const = 0;
  [[nodiscard]] virtual std::uint64_t cgroup_id()
      const = 0;  ///< inode of the v2 directory, else v1 cpu
  /// Failures since the start by (file, reason).
  [[nodiscard]] virtual std::vector<std::pair<std::pair<std::string, Unknown>, std::uint64_t>>
  errors() const = 0;
  /// Paths by controller, for explain: {"cpu", "/sys/fs/cgroup/cpu/x"} ...
  [[nodiscard]] virtual std::vector<std::pair<std::string, std::string>> paths() const = 0;
  /// Reads everything afresh and keeps the raw texts, ancestors included. For explain only.
  [[nodiscard]] virtual std::vector<FileRead> read_all_raw() = 0;
};

/// Files that a sampler keeps open at most (hybrid; 10 on v2). 250 targets need more than the usual
/// soft limit of 1024: call raise_open_file_limit() at the start.
inline constexpr std::uint64_t kOpenFilesPerTarget = 18;

/// Raises the soft limit of open files to the hard one (needs no privilege) and returns what is in
/// force: targets * kOpenFilesPerTarget should fit into it. A file that cannot be opened for want
/// of descriptors is unknown with reason "io" and tried again a second later.
[[nodiscard]] std::uint64_t raise_open_file_limit();

}  // namespace headgate
