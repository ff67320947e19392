// SPDX-License-Identifier: Apache-2.0
#include "deploy/demo/cgroup.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "agent/base/unique_fd.h"

namespace headgate::demo {
namespace {

namespace fs = std::filesystem;

Result<> write_file(const std::string& file, std::string_view text) {
  const UniqueFd fd(open(file.c_str(), O_WRONLY | O_CLOEXEC));
  if (!fd || write(fd.get(), text.data(), text.size()) < 0) {
    return sys_fail(errno, fmt::format("write \"{}\" to {}", text, file));
  }
  return {};
}

std::string read_file(const std::string& file) {
  std::ifstream in(file);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::uint64_t read_number(const std::string& file) {
  std::ifstream in(file);
  std::uint64_t value = 0;
  in >> value;
  return in ? value : 0;
}

/// The number behind `key` in a file of "key number" lines.
std::uint64_t read_key(const std::string& file, std::string_view key) {
  std::ifstream in(file);
  std::string name;
  std::uint64_t value = 0;
  while (in >> name >> value) {
    if (name == key) {
      return value;
    }
  }
  return 0;
}

bool has_word(std::string_view words, std::string_view word, char separator) {
  std::istringstream in{std::string(words)};
  for (std::string w; std::getline(in, w, separator);) {
    if (w == word) {
      return true;
    }
  }
  return false;
}

void remove_directory(const std::string& directory) {
  // A killed process leaves its group a moment after it was waited for (cgroup-v2.rst,
  // "[Un]populated").
  for (int tries = 0; tries < 200; ++tries) {
    if (rmdir(directory.c_str()) == 0 || errno != EBUSY) {
      return;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

void remove_tree(const std::string& directory) {
  std::error_code error;
  std::vector<std::string> children;
  for (const auto& entry : fs::directory_iterator(directory, error)) {
    if (entry.is_directory(error) && !entry.is_symlink(error)) {
      children.push_back(entry.path());
    }
  }
  for (const std::string& child : children) {
    remove_tree(child);
  }
  remove_directory(directory);
}

}  // namespace

Result<CgroupRoots> CgroupRoots::find() {
  CgroupRoots roots;
  std::ifstream mounts("/proc/self/mounts");
  for (std::string line; std::getline(mounts, line);) {
    std::istringstream in(line);
    std::string device, point, type, options;
    in >> device >> point >> type >> options;
    if (type == "cgroup2" && roots.v2.empty()) {
      roots.v2 = point;
    }
    if (type != "cgroup") {
      continue;
    }
    for (const auto& [controller, root] :
         {std::pair{"cpu", &roots.cpu}, std::pair{"cpuacct", &roots.cpuacct},
          std::pair{"memory", &roots.memory}, std::pair{"cpuset", &roots.cpuset}}) {
      if (root->empty() && has_word(options, controller, ',')) {
        *root = point;
      }
    }
  }
  if (!roots.cpu.empty() && !roots.cpuacct.empty() && !roots.memory.empty()) {
    return roots;
  }
  if (!roots.v2.empty()) {
    const std::string controllers = read_file(roots.v2 + "/cgroup.controllers");
    std::istringstream in(controllers);
    std::string list, word;
    while (in >> word) {
      list += word + " ";
    }
    if (has_word(list, "cpu", ' ') && has_word(list, "memory", ' ')) {
      roots.pure_v2 = true;
      roots.cpu = roots.cpuacct = roots.memory = roots.cpuset = "";
      return roots;
    }
  }
  return fail(
      "no cgroup hierarchy with cpu and memory found in /proc/self/mounts: the demo limits the "
      "collector by a cgroup; run it on the host, not in a container with a read-only or private "
      "cgroup tree");
}

std::vector<std::string> CgroupRoots::all() const {
  std::vector<std::string> roots;
  for (const std::string* root : {&cpu, &cpuacct, &memory, &cpuset, &v2}) {
    if (!root->empty() && std::find(roots.begin(), roots.end(), *root) == roots.end()) {
      roots.push_back(*root);
    }
  }
  return roots;
}

Result<Cgroup> Cgroup::create(const CgroupRoots& roots, std::string_view path,
                              const CgroupLimits& limits, bool delegate) {
  for (const std::string& root : roots.all()) {
    if (mkdir((root + std::string(path)).c_str(), 0755) != 0 && errno != EEXIST) {
      return sys_fail(errno, fmt::format("create cgroup {}{}", root, path));
    }
  }
  Cgroup group(roots, std::string(path));  // from here on removed on failure
  const auto in = [&](const std::string& root, std::string_view file) {
    return fmt::format("{}{}/{}", root, path, file);
  };
  static constexpr std::uint64_t kPeriod_usec = 100'000;
  const auto quota_usec = static_cast<std::uint64_t>(limits.cpu_cores * kPeriod_usec);
  std::vector<std::pair<std::string, std::string>> writes;
  if (roots.pure_v2) {
    if (delegate) {
      writes.emplace_back(in(roots.v2, "cgroup.subtree_control"), "+cpu +memory");
    }
    if (limits.heavy_weight) {
      writes.emplace_back(in(roots.v2, "cpu.weight"), "10000");
    }
    if (quota_usec > 0) {
      writes.emplace_back(in(roots.v2, "cpu.max"), fmt::format("{} {}", quota_usec, kPeriod_usec));
    }
    if (limits.memory_bytes > 0) {
      writes.emplace_back(in(roots.v2, "memory.max"), std::to_string(limits.memory_bytes));
      if (fs::exists(in(roots.v2, "memory.swap.max"))) {
        writes.emplace_back(in(roots.v2, "memory.swap.max"), "0");
      }
    }
  } else {
    if (!roots.cpuset.empty()) {
      // A new cpuset is empty and takes no process (cgroup-v1/cpusets.rst, 2.1).
      const std::string parent = roots.cpuset + std::string(fs::path(path).parent_path()) + "/";
      for (const char* file : {"cpuset.cpus", "cpuset.mems"}) {
        writes.emplace_back(in(roots.cpuset, file), read_file(parent + file));
      }
    }
    if (limits.heavy_weight) {
      writes.emplace_back(in(roots.cpu, "cpu.shares"), "102400");
    }
    if (quota_usec > 0) {
      writes.emplace_back(in(roots.cpu, "cpu.cfs_period_us"), std::to_string(kPeriod_usec));
      writes.emplace_back(in(roots.cpu, "cpu.cfs_quota_us"), std::to_string(quota_usec));
    }
    if (limits.memory_bytes > 0) {
      writes.emplace_back(in(roots.memory, "memory.limit_in_bytes"),
                          std::to_string(limits.memory_bytes));
      if (fs::exists(in(roots.memory, "memory.memsw.limit_in_bytes"))) {
        writes.emplace_back(in(roots.memory, "memory.memsw.limit_in_bytes"),
                            std::to_string(limits.memory_bytes));
      }
    }
  }
  for (const auto& [file, text] : writes) {
    if (auto written = write_file(file, text); !written) {
      return tl::unexpected(written.error());
    }
  }
  return group;
}

Cgroup::Cgroup(Cgroup&& other) noexcept
    : roots_(std::move(other.roots_)),
      path_(std::move(other.path_)),
      owned_(std::exchange(other.owned_, false)) {}

Cgroup::~Cgroup() {
  if (owned_) {
    for (const std::string& root : roots_.all()) {
      remove_directory(root + path_);
    }
  }
}

std::vector<std::string> Cgroup::procs_files() const {
  std::vector<std::string> files;
  for (const std::string& root : roots_.all()) {
    files.push_back(root + path_ + "/cgroup.procs");
  }
  return files;
}

CgroupReading Cgroup::read() const {
  CgroupReading r;
  if (roots_.pure_v2) {
    const std::string dir = roots_.v2 + path_ + "/";
    std::ifstream stat(dir + "cpu.stat");
    std::string key;
    std::uint64_t value = 0;
    while (stat >> key >> value) {
      if (key == "usage_usec") {
        r.usage_ns = value * 1000;
      } else if (key == "nr_periods") {
        r.periods = value;
      } else if (key == "nr_throttled") {
        r.throttled = value;
      }
    }
    r.memory_bytes = read_number(dir + "memory.current");
    r.oom_kills = read_key(dir + "memory.events", "oom_kill");
    return r;
  }
  r.usage_ns = read_number(roots_.cpuacct + path_ + "/cpuacct.usage");
  const std::string stat = roots_.cpu + path_ + "/cpu.stat";
  r.periods = read_key(stat, "nr_periods");
  r.throttled = read_key(stat, "nr_throttled");
  r.memory_bytes = read_number(roots_.memory + path_ + "/memory.usage_in_bytes");
  r.oom_kills = read_key(roots_.memory + path_ + "/memory.oom_control", "oom_kill");
  return r;
}

Result<RootControllers> RootControllers::enable(const CgroupRoots& roots) {
  RootControllers enabled;
  if (!roots.pure_v2) {
    return enabled;
  }
  enabled.file_ = roots.v2 + "/cgroup.subtree_control";
  std::istringstream in(read_file(enabled.file_));
  std::vector<std::string> present;
  for (std::string word; in >> word;) {
    present.push_back(word);
  }
  for (const char* controller : {"cpu", "memory"}) {
    if (std::find(present.begin(), present.end(), controller) != present.end()) {
      continue;
    }
    if (auto written = write_file(enabled.file_, fmt::format("+{}", controller)); !written) {
      return tl::unexpected(
          written.error().within("the demo needs the cpu and memory controllers of cgroup v2"));
    }
    enabled.added_.emplace_back(controller);
  }
  return enabled;
}

RootControllers::RootControllers(RootControllers&& other) noexcept
    : file_(std::move(other.file_)), added_(std::exchange(other.added_, {})) {}

RootControllers::~RootControllers() {
  for (const std::string& controller : added_) {
    // Fails where somebody else has come to use it since: then it has to stay.
    static_cast<void>(write_file(file_, "-" + controller));
  }
}

void remove_stale_cgroups(const CgroupRoots& roots, std::string_view prefix) {
  for (const std::string& root : roots.all()) {
    std::error_code error;
    std::vector<std::string> stale;
    for (const auto& entry : fs::directory_iterator(root, error)) {
      const std::string name = entry.path().filename();
      if (name.compare(0, prefix.size(), prefix) != 0) {
        continue;
      }
      pid_t pid = 0;
      const char* end = name.data() + name.size();
      if (std::from_chars(name.data() + prefix.size(), end, pid).ptr == end && pid > 0 &&
          kill(pid, 0) != 0 && errno == ESRCH) {
        stale.push_back(entry.path());
      }
    }
    for (const std::string& directory : stale) {
      remove_tree(directory);
    }
  }
}

}  // namespace headgate::demo
