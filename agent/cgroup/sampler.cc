// SPDX-License-Identifier: Apache-2.0
#include "agent/cgroup/sampler.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <span>

#include <fmt/format.h>

#include "agent/base/unique_fd.h"
#include "agent/cgroup/kept_file.h"
#include "agent/cgroup/limits.h"
#include "agent/cgroup/parse.h"

namespace headgate {
namespace {

using Mount = Hierarchy::Mount;

constexpr Duration kLimitPeriod = std::chrono::seconds(1);
constexpr Duration kStaggerStep = std::chrono::milliseconds(100);
/// Above this share of the memory limit the memory details are read every tick (design, promise 6).
constexpr double kWatchMemoryAbove = 0.7;
constexpr std::size_t kRawBytes = 4096;

/// The files by what they are for. One row a kind in `errors()`.
enum FileKind : std::size_t {
  kUsageFile,
  kThrottlingFile,
  kCpuPressureFile,
  kMemoryCurrentFile,
  kMemoryStatFile,
  kMemoryPressureFile,
  kMemoryEventsFile,
  kOomFile,
  kCpuLimitFile,
  kCpusetFile,
  kMemoryLimitFile,
  kFileKinds,
};

/// A directory of the target in one tree, held by fd and known by inode.
struct TargetDirectory {
  std::string path;
  UniqueFd fd;
  dev_t device = 0;
  ino_t inode = 0;

  explicit TargetDirectory(std::string p) : path(std::move(p)) { open(); }

  void open() {
    fd.reset(::open(path.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    struct stat st {};
    if (fd.valid() && ::fstat(fd.get(), &st) == 0) {
      device = st.st_dev;
      inode = st.st_ino;
    }
  }
  /// Held, and no longer what its path names.
  [[nodiscard]] bool lost() const {
    struct stat st {};
    return fd.valid() &&
           (::stat(path.c_str(), &st) != 0 || st.st_dev != device || st.st_ino != inode);
  }
};

class Sampler final : public CgroupSampler {
 public:
  Sampler(const Hierarchy& hierarchy, const std::string& path, const CapacityOverride& capacity,
          std::uint64_t cgroup_id)
      : hierarchy_(hierarchy), path_(path), capacity_(capacity), cgroup_id_(cgroup_id) {
    for (const auto& tree : hierarchy_.trees()) {
      TargetDirectory directory(tree.directory(path_));
      const bool identity = directory.fd.valid() && directories_.empty();
      if (identity || is_read(tree)) {
        directories_.push_back(std::move(directory));
      }
    }
    const auto& cpu = hierarchy_.of(Controller::kCpu);
    const auto& cpuacct = hierarchy_.of(Controller::kCpuacct);
    const auto& memory = hierarchy_.of(Controller::kMemory);
    const bool memory_v2 = memory.version == CgroupVersion::kV2;
    one_events_ = memory_v2;
    usage_in_stat_ = cpuacct.version == CgroupVersion::kV2;
    one_stat_ = usage_in_stat_ && cpu.path == cpuacct.path;
    set(kUsageFile, cpuacct, usage_in_stat_ ? "cpu.stat" : "cpuacct.usage");
    set(kThrottlingFile, cpu, "cpu.stat");
    set(kCpuPressureFile, hierarchy_.unified_mount, "cpu.pressure");
    set(kMemoryCurrentFile, memory, memory_v2 ? "memory.current" : "memory.usage_in_bytes");
    set(kMemoryStatFile, memory, "memory.stat");
    set(kMemoryPressureFile, hierarchy_.unified_mount, "memory.pressure");
    set(kMemoryEventsFile, memory, memory_v2 ? "memory.events" : "memory.failcnt");
    set(kOomFile, memory, memory_v2 ? "memory.events" : "memory.oom_control");
    cpu_limits_ = hierarchy_.limits->chain(Controller::kCpu, cpu, path_);
    cpuset_limits_ =
        hierarchy_.limits->chain(Controller::kCpuset, hierarchy_.of(Controller::kCpuset), path_);
    memory_limits_ = hierarchy_.limits->chain(Controller::kMemory, memory, path_);
  }

  const Sample& sample(Instant now) override {
    sample_.at = now;
    const auto slot_of = [&](Duration period) {
      return (now.time_since_epoch() - stagger_ * kStaggerStep) / period;
    };
    const bool once_a_second = !sampled_ || slot_of(kLimitPeriod) != limit_slot_;
    const bool details = !sampled_ || slot_of(detail_period_) != detail_slot_;
    limit_slot_ = slot_of(kLimitPeriod);
    detail_slot_ = slot_of(detail_period_);
    sampled_ = true;
    lost_something_ = false;
    if (!gone_ && details) {
      reopen_directories();
    }
    if (!gone_) {
      read_tick(once_a_second);
      if (once_a_second) {
        read_cpu_limit(now);
      }
      if (once_a_second || memory_is_high()) {
        read_memory_limit(now);
      }
      if (details || memory_is_high()) {
        read_memory_details(now, details);
      }
      // ENODEV is also what a file reads whose controller was switched off: look at the directory.
      if (lost_something_ && directory_lost()) {
        gone_ = true;
      }
    }
    if (gone_) {
      forget_everything();
    }
    return sample_;
  }

  void set_stagger(unsigned stagger) override { stagger_ = static_cast<int>(stagger % 10); }
  void set_memory_detail_period(Duration period) override {
    if (period != detail_period_) {
      detail_period_ = period;
      detail_slot_ = -1;
    }
  }
  void expect_new_limits() override { limit_slot_ = -1; }
  [[nodiscard]] bool gone() const override { return gone_; }
  [[nodiscard]] std::uint64_t cgroup_id() const override { return cgroup_id_; }

  [[nodiscard]] std::vector<std::pair<std::pair<std::string, Unknown>, std::uint64_t>> errors()
      const override {
    std::vector<std::pair<std::pair<std::string, Unknown>, std::uint64_t>> out;
    for (std::size_t kind = 0; kind < kFileKinds; ++kind) {
      for (std::size_t reason = 0; reason < kReasons; ++reason) {
        if (errors_[kind][reason] == 0) {
          continue;
        }
        const std::pair key(std::string(error_names_[kind]), static_cast<Unknown>(reason));
        const auto same =
            std::find_if(out.begin(), out.end(), [&](const auto& row) { return row.first == key; });
        if (same != out.end()) {
          same->second += errors_[kind][reason];
        } else {
          out.emplace_back(key, errors_[kind][reason]);
        }
      }
    }
    return out;
  }

  [[nodiscard]] std::vector<std::pair<std::string, std::string>> paths() const override {
    std::vector<std::pair<std::string, std::string>> out;
    for (const auto c :
         {Controller::kCpu, Controller::kCpuacct, Controller::kMemory, Controller::kCpuset}) {
      const auto& mount = hierarchy_.of(c);
      if (mount.version != CgroupVersion::kNone) {
        out.emplace_back(to_string(c), mount.directory(path_));
      }
    }
    if (!hierarchy_.unified.empty()) {
      out.emplace_back("psi", hierarchy_.unified_mount.directory(path_));
    }
    return out;
  }

  [[nodiscard]] std::vector<FileRead> read_all_raw() override {
    std::vector<FileRead> out;
    const auto add = [&](const std::string& file) {
      const bool known = std::any_of(out.begin(), out.end(),
                                     [&](const FileRead& read) { return read.path == file; });
      if (!known) {
        out.push_back(read_raw(file));
      }
    };
    for (std::size_t kind = 0; kind < kCpuLimitFile; ++kind) {
      if (homes_[kind] >= 0) {
        add(directories_[static_cast<std::size_t>(homes_[kind])].path + "/" + files_[kind].path());
      }
    }
    for (const auto& [controller, chain] : {std::pair(Controller::kCpu, &cpu_limits_),
                                            std::pair(Controller::kCpuset, &cpuset_limits_),
                                            std::pair(Controller::kMemory, &memory_limits_)}) {
      const auto names = LimitLevel::file_names(controller, hierarchy_.of(controller).version);
      for (const auto& level : *chain) {
        for (const auto& name : names) {
          if (!name.empty()) {
            add(fmt::format("{}/{}", level->directory(), name));
          }
        }
      }
    }
    // Why the chain ends where it does.
    if (!memory_limits_.empty()) {
      const std::string& top = memory_limits_.back()->directory();
      if (top.size() > hierarchy_.of(Controller::kMemory).path.size()) {
        add(fmt::format("{}/{}", top.substr(0, top.rfind('/')), kUseHierarchyFile));
      }
    }
    return out;
  }

 private:
  [[nodiscard]] bool is_read(const Mount& tree) const {
    return tree.path == hierarchy_.unified || tree.path == hierarchy_.of(Controller::kCpu).path ||
           tree.path == hierarchy_.of(Controller::kCpuacct).path ||
           tree.path == hierarchy_.of(Controller::kMemory).path;
  }

  static constexpr std::size_t kReasons = static_cast<std::size_t>(Unknown::kCount);

  void set(FileKind kind, const Mount& mount, const char* name) {
    error_names_[kind] = name;
    files_[kind] = KeptFile(name);
    if (mount.version == CgroupVersion::kNone) {
      return;
    }
    const std::string directory = mount.directory(path_);
    for (std::size_t i = 0; i < directories_.size(); ++i) {
      if (directories_[i].path == directory) {
        homes_[kind] = static_cast<int>(i);
      }
    }
  }

  void count(FileKind kind, Unknown reason) {
    if (reason == Unknown::kGone) {
      lost_something_ = true;
    }
    ++errors_[kind][static_cast<std::size_t>(reason)];
  }
  /// What the parser made of a file that was read: only kParse is an error of the file.
  template <class T>
  void count_parse(FileKind kind, const Measured<T>& value) {
    if (!value.known() && value.reason == Unknown::kParse) {
      count(kind, value.reason);
    }
  }

  /// Reads one file of the target's own; counts the failure of an attempt. A hierarchy that does
  /// not exist here (PSI on v1) is missing without being an error.
  KeptFile::Text read(FileKind kind, bool may_open) {
    if (homes_[kind] < 0) {
      return {{}, Unknown::kMissing, false};
    }
    return read_in(directories_[static_cast<std::size_t>(homes_[kind])].fd, kind, may_open);
  }
  KeptFile::Text read_in(const UniqueFd& directory, FileKind kind, bool may_open) {
    const auto text = directory.valid() ? files_[kind].read(directory.get(), may_open, buffer())
                                        : KeptFile::Text{{}, Unknown::kMissing, may_open};
    if (!text.ok() && text.tried) {
      count(kind, text.problem);
    }
    return text;
  }

  void read_tick(bool may_open) {
    const auto usage = read(kUsageFile, may_open);
    CpuStat stat;
    if (!usage.ok()) {
      sample_.cpu_usage_ns = usage.problem;
    } else if (usage_in_stat_) {
      stat = parse_cpu_stat(usage.text, CgroupVersion::kV2);
      sample_.cpu_usage_ns = stat.usage_ns;
    } else {
      sample_.cpu_usage_ns = parse_number(usage.text);
    }
    count_parse(kUsageFile, sample_.cpu_usage_ns);
    if (!one_stat_) {
      const auto throttling = read(kThrottlingFile, may_open);
      if (throttling.ok()) {
        stat = parse_cpu_stat(throttling.text, hierarchy_.of(Controller::kCpu).version);
      } else {
        stat.periods = stat.throttled_periods = stat.throttled_ns = throttling.problem;
      }
    } else if (!usage.ok()) {
      stat.periods = stat.throttled_periods = stat.throttled_ns = usage.problem;
    }
    sample_.cpu_periods = stat.periods;
    sample_.cpu_throttled_periods = stat.throttled_periods;
    sample_.cpu_throttled_ns = stat.throttled_ns;
    count_throttling_parse(stat);

    sample_.cpu_pressure_some_us = read_value(kCpuPressureFile, may_open, parse_pressure_some_us);
    sample_.memory_current_bytes = read_value(kMemoryCurrentFile, may_open, parse_number);
  }

  /// The three numbers are of one file and count as one failure; where usage is of the same file it
  /// was counted with that.
  void count_throttling_parse(const CpuStat& stat) {
    const auto bad = [](const Measured<std::uint64_t>& m) {
      return !m.known() && m.reason == Unknown::kParse;
    };
    const bool counted = one_stat_ && bad(sample_.cpu_usage_ns);
    if (!counted && (bad(stat.periods) || bad(stat.throttled_periods) || bad(stat.throttled_ns))) {
      count(kThrottlingFile, Unknown::kParse);
    }
  }

  template <class Parse>
  Measured<std::uint64_t> read_value(FileKind kind, bool may_open, Parse parse) {
    return parsed(kind, read(kind, may_open), parse);
  }
  template <class Parse>
  Measured<std::uint64_t> parsed(FileKind kind, const KeptFile::Text& file, Parse parse) {
    if (!file.ok()) {
      return file.problem;
    }
    const Measured<std::uint64_t> value = parse(file.text);
    count_parse(kind, value);
    return value;
  }

  [[nodiscard]] bool memory_is_high() const {
    const auto& limit = sample_.limits.memory_bytes;
    if (!limit.known() || !sample_.memory_current_bytes.known()) {
      return false;
    }
    const auto current = *sample_.memory_current_bytes;
    const auto inactive = sample_.memory_inactive_file_bytes.value_or(0);
    const auto working_set = current > inactive ? current - inactive : 0;
    return static_cast<double>(working_set) > kWatchMemoryAbove * static_cast<double>(*limit);
  }

  void read_memory_details(Instant now, bool may_open) {
    sample_.details_at = now;
    const auto version = hierarchy_.of(Controller::kMemory).version;
    sample_.memory_inactive_file_bytes =
        read_value(kMemoryStatFile, may_open,
                   [&](std::string_view text) { return parse_inactive_file(text, version); });
    sample_.memory_pressure_some_us =
        read_value(kMemoryPressureFile, may_open, parse_pressure_some_us);
    read_memory_events(version, may_open);
  }

  /// How often the limit was hit is counted by the kernel where the limit is: at the pod's level
  /// when the pod's limit binds. When another level comes to bind, the count goes on from where it
  /// was, so that nobody takes the difference of two levels for pressure.
  void read_memory_events(CgroupVersion version, bool may_open) {
    if (events_level_ != binding_level_) {
      events_level_ = binding_level_;
      events_join_ = true;
      may_open = true;
      files_[kMemoryEventsFile].close();
      events_directory_.reset(events_level_ == 0
                                  ? -1
                                  : ::open(memory_limits_[events_level_]->directory().c_str(),
                                           O_PATH | O_DIRECTORY | O_CLOEXEC));
    }
    const auto file = events_level_ == 0 ? read(kMemoryEventsFile, may_open)
                                         : read_in(events_directory_, kMemoryEventsFile, may_open);
    auto count_now = parsed(kMemoryEventsFile, file, [&](std::string_view text) {
      return version == CgroupVersion::kV2 ? parse_keyed(text, "max") : parse_number(text);
    });
    if (count_now.known()) {
      if (events_join_) {
        events_offset_ = events_last_.known() ? *events_last_ - *count_now : 0;  // modulo 2^64
        events_join_ = false;
      }
      count_now = *count_now + events_offset_;
      events_last_ = count_now;
    }
    sample_.memory_events_max = count_now;
    const auto oom_kills = [](std::string_view text) { return parse_keyed(text, "oom_kill"); };
    if (one_events_ && events_level_ == 0) {  // the same file, just read
      sample_.memory_oom_kills = file.ok() ? oom_kills(file.text) : file.problem;
    } else {
      sample_.memory_oom_kills = read_value(kOomFile, may_open, oom_kills);
    }
  }

  void count_level(FileKind kind, Controller controller, const LimitLevel::Value& value,
                   Unknown reason) {
    error_names_[kind] =
        LimitLevel::file_names(controller, hierarchy_.of(controller).version)[value.file];
    count(kind, reason);
  }

  /// Effective cores: the smallest quota of the cgroup and its ancestors, and the CPUs it may run
  /// on. All CPUs of the host bound a quota, but are no limit by themselves.
  void read_cpu_limit(Instant now) {
    auto& cores = sample_.limits.cpu_cores;
    auto& source = sample_.limits.cpu_source;
    const auto quota = smallest<double>(cpu_limits_, Controller::kCpu, now, kCpuLimitFile, source,
                                        [](const LimitLevel::Value& v) { return v.cpu_cores; })
                           .value;
    cores = quota;
    Measured<std::uint32_t> cpus = Unknown::kMissing;
    hierarchy_.limits->visit(cpuset_limits_, now, [&](std::size_t, const LimitLevel::Value& v) {
      cpus = v.cpuset_count;
      if (v.failed) {
        count_level(kCpusetFile, Controller::kCpuset, v, cpus.reason);
      }
      return !v.failed && !cpus.known();  // empty or missing: inherited
    });
    const auto host = hierarchy_.limits->root_value(cpuset_limits_, now).cpuset_count;
    const bool quota_readable =
        quota.known() || quota.reason == Unknown::kNoLimit || quota.reason == Unknown::kMissing;
    if (!quota_readable) {
      source = LimitSource::kUnlimited;
    } else if (!cpus.known()) {
      if (cpus.reason != Unknown::kMissing && cpus.reason != Unknown::kAbsent) {
        cores = cpus.reason;  // the CPUs cannot be told, so the smaller of the two cannot either
        source = LimitSource::kUnlimited;
      }
    } else {
      const bool narrowed = host.known() && *cpus < *host;
      const double allowed = *cpus;
      if (quota.known() ? allowed < *quota : narrowed) {
        cores = allowed;
        source = LimitSource::kCpuset;
      }
    }
    if (capacity_.cpu_cores) {
      cores = *capacity_.cpu_cores;
      source = LimitSource::kConfig;
    } else if (cores.reason == Unknown::kNoLimit && capacity_.cpu_cores_by_request) {
      cores = *capacity_.cpu_cores_by_request;
      source = LimitSource::kRequest;
    }
  }

  void read_memory_limit(Instant now) {
    auto& bytes = sample_.limits.memory_bytes;
    auto& source = sample_.limits.memory_source;
    const auto found =
        smallest<std::uint64_t>(memory_limits_, Controller::kMemory, now, kMemoryLimitFile, source,
                                [](const LimitLevel::Value& v) { return v.memory_bytes; });
    bytes = found.value;
    binding_level_ = found.level;
    if (capacity_.memory_bytes) {
      bytes = *capacity_.memory_bytes;
      source = LimitSource::kConfig;
    } else if (bytes.reason == Unknown::kNoLimit && capacity_.memory_bytes_by_request) {
      bytes = *capacity_.memory_bytes_by_request;
      source = LimitSource::kRequest;
    }
  }

  /// The smallest limit on the way up. One level that is there and cannot be understood makes the
  /// whole unknown: it may be the one that binds.
  template <class T>
  struct Smallest {
    Measured<T> value = Unknown::kMissing;
    std::size_t level = 0;  ///< index in the chain; 0 where there is no limit
  };
  template <class T, class Get>
  Smallest<T> smallest(const LimitCache::Chain& chain, Controller controller, Instant now,
                       FileKind kind, LimitSource& source, Get get) {
    Smallest<T> out;
    Measured<T>& best = out.value;
    source = LimitSource::kUnlimited;
    hierarchy_.limits->visit(chain, now, [&](std::size_t index, const LimitLevel::Value& level) {
      const Measured<T> value = get(level);
      if (level.failed) {
        count_level(kind, controller, level, value.reason);
        best = value.reason;
        out.level = 0;
        source = LimitSource::kUnlimited;
        return false;
      }
      if (value.known() && (!best.known() || *value < *best)) {
        best = value;
        out.level = index;
        source = index == 0 ? LimitSource::kOwn : LimitSource::kAncestor;
      } else if (!value.known() && !best.known() && value.reason == Unknown::kNoLimit) {
        best = Unknown::kNoLimit;
      }
      return true;
    });
    return out;
  }

  /// Once a second: a tree that had no directory of the target may have one now (a controller
  /// enabled late), and the first one decides whether this is still the same cgroup.
  void reopen_directories() {
    bool first = true;
    for (auto& directory : directories_) {
      if (!directory.fd.valid()) {
        directory.open();
      } else if (first) {
        first = false;
        gone_ = gone_ || directory.lost();
      }
    }
  }
  [[nodiscard]] bool directory_lost() const {
    return std::any_of(directories_.begin(), directories_.end(),
                       [](const TargetDirectory& d) { return d.lost(); });
  }

  void forget_everything() {
    const Instant at = sample_.at;
    sample_ = {};
    sample_.at = at;
    for (auto* number :
         {&sample_.cpu_usage_ns, &sample_.cpu_periods, &sample_.cpu_throttled_periods,
          &sample_.cpu_throttled_ns, &sample_.cpu_pressure_some_us, &sample_.memory_current_bytes,
          &sample_.memory_inactive_file_bytes, &sample_.memory_pressure_some_us,
          &sample_.memory_events_max, &sample_.memory_oom_kills, &sample_.limits.memory_bytes}) {
      *number = Unknown::kGone;
    }
    sample_.limits.cpu_cores = Unknown::kGone;
  }

  static FileRead read_raw(const std::string& path) {
    FileRead out;
    out.path = path;
    const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    if (!fd.valid()) {
      out.error = fmt::format("open: {}", std::strerror(errno));  // NOLINT(concurrency-mt-unsafe)
      return out;
    }
    std::array<char, kRawBytes> text{};
    const ssize_t got = ::pread(fd.get(), text.data(), text.size(), 0);
    if (got < 0) {
      out.error = fmt::format("read: {}", std::strerror(errno));  // NOLINT(concurrency-mt-unsafe)
    } else {
      out.raw.assign(text.data(), static_cast<std::size_t>(got));
    }
    return out;
  }

  /// One buffer a thread for all samplers: a text is parsed before the next one is read.
  static std::span<char> buffer() {
    thread_local std::array<char, KeptFile::kBufferBytes> text;
    return text;
  }

  Hierarchy hierarchy_;
  std::string path_;
  CapacityOverride capacity_;
  std::uint64_t cgroup_id_ = 0;
  std::vector<TargetDirectory> directories_;  ///< in the order of Hierarchy::trees()
  std::array<KeptFile, kFileKinds> files_;
  std::array<int, kFileKinds> homes_ = filled_homes();  ///< index into directories_; -1 = nowhere
  std::array<std::string_view, kFileKinds> error_names_{};
  std::array<std::array<std::uint32_t, kReasons>, kFileKinds> errors_{};
  LimitCache::Chain cpu_limits_;
  LimitCache::Chain cpuset_limits_;
  LimitCache::Chain memory_limits_;
  std::size_t binding_level_ = 0;  ///< of memory_limits_: the one with the smallest limit
  std::size_t events_level_ = 0;   ///< where memory.events is read
  UniqueFd events_directory_;      ///< of that level, where it is not the target's own
  bool events_join_ = true;        ///< the next count is the first of its level
  Measured<std::uint64_t> events_last_;
  std::uint64_t events_offset_ = 0;
  bool one_events_ = false;     ///< limit hits and OOM kills are in one file (v2)
  bool usage_in_stat_ = false;  ///< usage is in cpu.stat (v2), not in cpuacct.usage
  bool one_stat_ = false;       ///< and throttling is in the same file
  int stagger_ = 0;
  Duration detail_period_ = std::chrono::seconds(1);
  std::int64_t limit_slot_ = 0;
  std::int64_t detail_slot_ = 0;
  bool sampled_ = false;
  bool lost_something_ = false;
  bool gone_ = false;
  Sample sample_;

  static constexpr std::array<int, kFileKinds> filled_homes() {
    std::array<int, kFileKinds> homes{};
    homes.fill(-1);
    return homes;
  }
};

}  // namespace

Result<std::unique_ptr<CgroupSampler>> CgroupSampler::open(const Hierarchy& hierarchy,
                                                           const std::string& path,
                                                           const CapacityOverride& capacity) {
  const auto normal = normalise_target_path(path);
  if (!normal) {
    return tl::unexpected(normal.error());
  }
  const auto identity = cgroup_identity(hierarchy, *normal);
  if (!identity) {
    return tl::unexpected(identity.error());
  }
  return std::make_unique<Sampler>(hierarchy, *normal, capacity, *identity);
}

std::uint64_t raise_open_file_limit() {
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) != 0) {
    return 0;
  }
  const rlim_t before = files.rlim_cur;
  files.rlim_cur = files.rlim_max;
  return ::setrlimit(RLIMIT_NOFILE, &files) == 0 ? files.rlim_cur : before;
}

}  // namespace headgate
