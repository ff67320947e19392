// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "headgate/clock.h"
#include "headgate/sample.h"

#include "agent/base/unique_fd.h"
#include "agent/cgroup/hierarchy.h"
#include "agent/cgroup/kept_file.h"

namespace headgate {

/// "0" in a v1 memory cgroup: its limit does not bind its children.
inline constexpr std::string_view kUseHierarchyFile = "memory.use_hierarchy";

/// Tells that a limit was written (inotify(7): the kernel notifies writes to cgroup files as to any
/// other, but not what it changes by itself). Reading the limits of hundreds of idle targets is
/// then left out until there is something to read. Not thread-safe; LimitCache locks.
class LimitWatch {
 public:
  /// Without inotify (no instance left) nothing is watched.
  LimitWatch();
  /// Negative: not watched (no such file, no watch left: fs.inotify.max_user_watches).
  [[nodiscard]] int add(const std::string& file);
  void remove(int watch);
  /// Looks for notifications; at most twice a second does it change the generation, so that a
  /// writer in a loop does not make us read everything each tick.
  void poll(Instant now);
  /// Changes when limits are to be read again.
  [[nodiscard]] std::uint64_t generation() const { return generation_; }

 private:
  static constexpr Duration kBetween = std::chrono::milliseconds(500);
  UniqueFd fd_;
  bool pending_ = false;
  std::uint64_t generation_ = 1;
  Instant changed_at_{};
};

/// The limit of one controller in one cgroup directory. Shared by every target below it.
class LimitLevel {
 public:
  struct Value {
    Measured<double> cpu_cores;            ///< kCpu
    Measured<std::uint32_t> cpuset_count;  ///< kCpuset
    Measured<std::uint64_t> memory_bytes;  ///< kMemory
    std::size_t file = 0;                  ///< which one the value, or the failure, is from
    bool failed = false;                   ///< a file that is there could not be read or understood
  };

  /// `watch`: nullptr = read again and again.
  LimitLevel(Controller controller, CgroupVersion version, std::string directory,
             std::shared_ptr<LimitWatch> watch);
  ~LimitLevel();
  LimitLevel(const LimitLevel&) = delete;
  LimitLevel& operator=(const LimitLevel&) = delete;
  LimitLevel(LimitLevel&&) = delete;
  LimitLevel& operator=(LimitLevel&&) = delete;

  /// Room for two files at once: quota and period are needed together.
  using Scratch = std::array<std::array<char, KeptFile::kBufferBytes>, 2>;
  /// Reads again unless that was done less than kReuse before `now`: samplers of one tick share one
  /// read. Where writes are notified it reads after them, and every kRecheck in any case. Not
  /// thread-safe; LimitCache locks.
  const Value& read(Instant now, Scratch& scratch);
  [[nodiscard]] const std::string& directory() const { return directory_; }
  /// The files that are tried, in order; "" where there is only one.
  [[nodiscard]] static std::array<std::string_view, 2> file_names(Controller controller,
                                                                  CgroupVersion version);
  /// False once the directory was removed, or made again under its name.
  [[nodiscard]] bool same_directory() const;

 private:
  static constexpr Duration kReuse = std::chrono::milliseconds(50);
  static constexpr Duration kRecheck = std::chrono::seconds(10);

  [[nodiscard]] bool stands(Instant now) const;
  void watch_files();
  void remember_directory();
  void read_cpu(Scratch& scratch);
  void read_cpuset(Scratch& scratch);
  void read_memory(Scratch& scratch);
  KeptFile::Text read_file(std::size_t index, Scratch& scratch);

  Controller controller_;
  CgroupVersion version_;
  std::string directory_;
  dev_t device_ = 0;
  ino_t inode_ = 0;  ///< 0 = it was not there
  std::array<KeptFile, 2> files_;
  bool read_once_ = false;
  Instant read_at_{};
  Value value_;
  std::shared_ptr<LimitWatch> watch_;
  std::array<int, 2> watches_{-1, -1};
  bool watched_ = false;  ///< all that is read is
  std::uint64_t generation_ = 0;
};

/// The levels of all targets by directory. Thread-safe.
class LimitCache {
 public:
  /// The limits of a cgroup, itself first, then its parents up to the root of the tree, or to the
  /// first that does not bind its children (v1, memory.use_hierarchy 0).
  using Chain = std::vector<std::shared_ptr<LimitLevel>>;
  [[nodiscard]] Chain chain(Controller controller, const Hierarchy::Mount& mount,
                            const std::string& path);

  /// From now on levels are read after they were written. Call poll() each tick then. Levels that
  /// are there already go on as before.
  void watch();
  /// Changes when some limit was written.
  [[nodiscard]] std::uint64_t poll(Instant now);

  /// Calls `visit(index, value)` upwards from the cgroup itself until it returns false.
  template <class Visit>
  void visit(const Chain& chain, Instant now, Visit visit) {
    const std::lock_guard lock(mutex_);
    for (std::size_t i = 0; i < chain.size(); ++i) {
      if (!visit(i, chain[i]->read(now, scratch_))) {
        return;
      }
    }
  }
  /// The value of the root of the tree alone.
  [[nodiscard]] LimitLevel::Value root_value(const Chain& chain, Instant now);
  [[nodiscard]] std::size_t size();

 private:
  std::mutex mutex_;
  std::shared_ptr<LimitWatch> watch_;
  std::map<std::pair<Controller, std::string>, std::weak_ptr<LimitLevel>> levels_;
  std::size_t prune_above_ = 64;
  LimitLevel::Scratch scratch_;
};

}  // namespace headgate
