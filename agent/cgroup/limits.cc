// SPDX-License-Identifier: Apache-2.0
#include "agent/cgroup/limits.h"

#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/cgroup/parse.h"

namespace headgate {
namespace {

/// A limit that is not there is no limit at this level: the controller is not enabled for it.
template <class T>
bool is_failure(const Measured<T>& value) {
  return !value.known() && value.reason != Unknown::kNoLimit && value.reason != Unknown::kAbsent &&
         value.reason != Unknown::kMissing;
}

}  // namespace

/// The second is read together with the first (cfs), or only where that has nothing to say
/// (cpuset).
std::array<std::string_view, 2> LimitLevel::file_names(Controller controller,
                                                       CgroupVersion version) {
  const bool v2 = version == CgroupVersion::kV2;
  switch (controller) {
    case Controller::kCpu:
      if (v2) {
        return {"cpu.max", ""};
      }
      return {"cpu.cfs_quota_us", "cpu.cfs_period_us"};
    case Controller::kCpuset:
      return {v2 ? "cpuset.cpus.effective" : "cpuset.effective_cpus", "cpuset.cpus"};
    case Controller::kMemory: return {v2 ? "memory.max" : "memory.limit_in_bytes", ""};
    case Controller::kCpuacct:
    case Controller::kCount: break;
  }
  return {};
}

/// Cgroup v1 before 5.11 may account memory for each cgroup alone: with memory.use_hierarchy 0 a
/// parent's limit does not bind its children (Documentation/admin-guide/cgroup-v1/memory.rst,
/// "Hierarchy support"). It cannot change while there are children, so once is often enough. Newer
/// kernels always say 1.
bool binds_children(Controller controller, CgroupVersion version, const std::string& directory) {
  if (controller != Controller::kMemory || version != CgroupVersion::kV1) {
    return true;
  }
  std::array<char, 16> text{};
  KeptFile file(directory + "/" + std::string(kUseHierarchyFile));
  const auto read = file.read(-1, true, text);
  return !read.ok() || !read.text.starts_with('0');
}

LimitWatch::LimitWatch() : fd_(::inotify_init1(IN_NONBLOCK | IN_CLOEXEC)) {}

int LimitWatch::add(const std::string& file) {
  return fd_ ? ::inotify_add_watch(fd_.get(), file.c_str(), IN_MODIFY) : -1;
}

void LimitWatch::remove(int watch) {
  if (watch >= 0) {
    ::inotify_rm_watch(fd_.get(), watch);  // fails where the cgroup has gone, and its watch with it
  }
}

void LimitWatch::poll(Instant now) {
  alignas(inotify_event) std::array<char, 4096> events;  // NOLINT: filled by the kernel
  while (fd_ && ::read(fd_.get(), events.data(), events.size()) > 0) {
    pending_ = true;
  }
  if (pending_ && now - changed_at_ >= kBetween) {
    pending_ = false;
    changed_at_ = now;
    ++generation_;
  }
}

LimitLevel::LimitLevel(Controller controller, CgroupVersion version, std::string directory,
                       std::shared_ptr<LimitWatch> watch)
    : controller_(controller),
      version_(version),
      directory_(std::move(directory)),
      watch_(std::move(watch)) {
  const auto names = file_names(controller, version);
  for (std::size_t i = 0; i < names.size(); ++i) {
    files_[i] = KeptFile(directory_ + "/" + std::string(names[i]));
  }
  remember_directory();
}

LimitLevel::~LimitLevel() {
  for (const int watch : watches_) {
    if (watch_ != nullptr) {
      watch_->remove(watch);
    }
  }
}

/// What is not there is looked for seldom. What CPUs a cgroup may use changes without a write to
/// its files (its parents', a CPU that goes), so nothing would be told.
void LimitLevel::watch_files() {
  watched_ = watch_ != nullptr && (inode_ == 0 || controller_ != Controller::kCpuset);
  if (!watched_ || inode_ == 0) {
    return;
  }
  const auto names = file_names(controller_, version_);
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (!names[i].empty()) {
      if (watches_[i] < 0) {
        watches_[i] = watch_->add(directory_ + "/" + std::string(names[i]));
      }
      watched_ = watched_ && watches_[i] >= 0;
    }
  }
}

bool LimitLevel::stands(Instant now) const {
  if (!read_once_ || now < read_at_) {
    return false;
  }
  const Duration age = now - read_at_;
  return age < kReuse || (watched_ && age < kRecheck && generation_ == watch_->generation());
}

void LimitLevel::remember_directory() {
  struct stat st {};
  if (::stat(directory_.c_str(), &st) == 0) {
    device_ = st.st_dev;
    inode_ = st.st_ino;
  }
}

bool LimitLevel::same_directory() const {
  struct stat st {};
  if (::stat(directory_.c_str(), &st) != 0) {
    return inode_ == 0;
  }
  return st.st_dev == device_ && st.st_ino == inode_;
}

const LimitLevel::Value& LimitLevel::read(Instant now, Scratch& scratch) {
  if (stands(now)) {
    return value_;
  }
  read_once_ = true;
  read_at_ = now;
  if (inode_ == 0) {
    remember_directory();
  }
  watch_files();  // before it is read, so that no write falls between the two
  generation_ = watch_ != nullptr ? watch_->generation() : 0;
  value_ = {};
  switch (controller_) {
    case Controller::kCpu: read_cpu(scratch); break;
    case Controller::kCpuset: read_cpuset(scratch); break;
    case Controller::kMemory: read_memory(scratch); break;
    case Controller::kCpuacct:
    case Controller::kCount: break;
  }
  return value_;
}

KeptFile::Text LimitLevel::read_file(std::size_t index, Scratch& scratch) {
  value_.file = index;
  const auto text = files_[index].read(-1, true, scratch[index]);
  if (!text.ok() && watch_ != nullptr) {  // made again it is another file
    watch_->remove(watches_[index]);
    watches_[index] = -1;
    watched_ = watched_ && inode_ == 0;
  }
  return text;
}

void LimitLevel::read_cpu(Scratch& scratch) {
  const auto first = read_file(0, scratch);
  if (!first.ok()) {
    value_.cpu_cores = first.problem;
  } else if (version_ == CgroupVersion::kV2) {
    value_.cpu_cores = parse_cpu_max(first.text);
  } else {
    const auto period = read_file(1, scratch);
    value_.cpu_cores = period.ok() ? parse_cfs(first.text, period.text) : period.problem;
    // A quota without a period beside it is half a limit, not "no limit".
    if (!period.ok() && period.problem == Unknown::kMissing) {
      value_.cpu_cores = Unknown::kParse;
    }
  }
  value_.failed = is_failure(value_.cpu_cores);
}

void LimitLevel::read_cpuset(Scratch& scratch) {
  for (std::size_t i = 0; i < files_.size(); ++i) {
    const auto list = read_file(i, scratch);
    value_.cpuset_count = list.ok() ? parse_cpu_list(list.text) : list.problem;
    if (value_.cpuset_count.known() || is_failure(value_.cpuset_count)) {
      break;
    }
  }
  value_.failed = is_failure(value_.cpuset_count);
}

void LimitLevel::read_memory(Scratch& scratch) {
  const auto limit = read_file(0, scratch);
  value_.memory_bytes = limit.ok() ? parse_memory_limit(limit.text) : limit.problem;
  value_.failed = is_failure(value_.memory_bytes);
}

LimitCache::Chain LimitCache::chain(Controller controller, const Hierarchy::Mount& mount,
                                    const std::string& path) {
  Chain out;
  if (mount.version == CgroupVersion::kNone) {
    return out;
  }
  const std::lock_guard lock(mutex_);
  std::string directory = mount.directory(path);
  while (true) {
    auto& slot = levels_[{controller, directory}];
    auto level = slot.lock();
    if (!level || !level->same_directory()) {
      level = std::make_shared<LimitLevel>(controller, mount.version, directory, watch_);
      slot = level;
    }
    out.push_back(std::move(level));
    if (directory.size() <= mount.path.size()) {
      break;
    }
    directory.resize(directory.rfind('/'));
    if (!binds_children(controller, mount.version, directory)) {
      break;
    }
  }
  if (levels_.size() > prune_above_) {  // targets come and go: drop what nobody holds any more
    for (auto it = levels_.begin(); it != levels_.end();) {
      it = it->second.expired() ? levels_.erase(it) : std::next(it);
    }
    prune_above_ = 2 * levels_.size() + 64;
  }
  return out;
}

void LimitCache::watch() {
  const std::lock_guard lock(mutex_);
  watch_ = std::make_shared<LimitWatch>();
}

std::uint64_t LimitCache::poll(Instant now) {
  const std::lock_guard lock(mutex_);
  if (watch_ == nullptr) {
    return 0;
  }
  watch_->poll(now);
  return watch_->generation();
}

LimitLevel::Value LimitCache::root_value(const Chain& chain, Instant now) {
  const std::lock_guard lock(mutex_);
  return chain.empty() ? LimitLevel::Value{} : chain.back()->read(now, scratch_);
}

std::size_t LimitCache::size() {
  const std::lock_guard lock(mutex_);
  return levels_.size();
}

}  // namespace headgate
