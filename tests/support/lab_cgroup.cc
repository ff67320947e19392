// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fstream>
#include <set>
#include <sstream>

#include "tests/support/leftovers.h"
#include "tests/support/net_lab.h"

namespace headgate::lab {
namespace {

struct Trees {
  std::string v2;                         // mount point; "" = none
  std::map<std::string, std::string> v1;  // controller -> mount point
};

// proc_pid_mountinfo(5): the file system type stands behind " - ", its options last.
Trees find_trees() {
  Trees trees;
  std::ifstream mounts("/proc/self/mountinfo");
  for (std::string line; std::getline(mounts, line);) {
    const std::size_t dash = line.find(" - ");
    if (dash == std::string::npos) {
      continue;
    }
    std::istringstream front(line.substr(0, dash));
    std::istringstream back(line.substr(dash + 3));
    std::string skipped;
    std::string mount_point;
    std::string type;
    std::string source;
    std::string options;
    front >> skipped >> skipped >> skipped >> skipped >> mount_point;
    back >> type >> source >> options;
    if (type == "cgroup2" && trees.v2.empty()) {
      trees.v2 = mount_point;
    } else if (type == "cgroup") {
      std::istringstream list(options);
      for (std::string option; std::getline(list, option, ',');) {
        if (option == "cpu" || option == "cpuacct" || option == "memory") {
          trees.v1.emplace(option, mount_point);
        }
      }
    }
  }
  return trees;
}

bool try_write(const std::string& path, const std::string& value) {
  const UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
  return fd && ::write(fd.get(), value.data(), value.size()) == static_cast<ssize_t>(value.size());
}

void write_file(const std::string& path, const std::string& value) {
  if (!try_write(path, value)) {
    throw SetupError(path + " = " + value + ": " + std::strerror(errno));
  }
}

std::vector<pid_t> pids_in(const std::string& directory) {
  std::ifstream file(directory + "/cgroup.procs");
  std::vector<pid_t> pids;
  for (pid_t pid = 0; file >> pid;) {
    pids.push_back(pid);
  }
  return pids;
}

}  // namespace

Cgroup::Cgroup(const std::string& name, const std::string& parent)
    : path_(parent + "/headgate-lab-" + std::to_string(::getpid()) + "-" + name) {
  remove_leftovers();
  make(parent);
}

Cgroup::Cgroup(const Cgroup& parent, const std::string& name) : path_(parent.path_ + "/" + name) {
  make(parent.path_);
}

void Cgroup::make(const std::string& parent) {
  const Trees trees = find_trees();
  std::set<std::string> roots;
  if (!trees.v2.empty()) {
    roots.insert(trees.v2);
    v2_directory_ = trees.v2 + path_;
    // Where v2 owns the controllers, the parent must hand them down; where it already does (systemd
    // does), or v1 owns them, this changes nothing. Not undone: another test may need it by now.
    (void)try_write(trees.v2 + parent + "/cgroup.subtree_control", "+cpu");
    (void)try_write(trees.v2 + parent + "/cgroup.subtree_control", "+memory");
  }
  for (const auto& [controller, root] : trees.v1) {
    roots.insert(root);
    v1_directories_[controller] = root + path_;
  }
  if (roots.empty()) {
    throw SetupError("no cgroup tree is mounted");
  }
  for (const std::string& root : roots) {
    if (::mkdir((root + path_).c_str(), 0755) != 0) {
      const std::string reason = std::strerror(errno);
      for (const std::string& made : created_) {
        ::rmdir(made.c_str());
      }
      throw SetupError("mkdir " + root + path_ + ": " + reason);
    }
    created_.push_back(root + path_);
  }
}

Cgroup::~Cgroup() {
  for (const std::string& directory : created_) {
    // A killed process leaves its cgroup a moment later; until then rmdir says EBUSY.
    const bool removed = eventually([&] {
      for (const pid_t pid : pids_in(directory)) {
        ::kill(pid, SIGKILL);
      }
      return ::rmdir(directory.c_str()) == 0 || errno == ENOENT;
    });
    if (!removed) {
      ADD_FAILURE() << "rmdir " << directory << ": " << std::strerror(errno);
    }
  }
}

std::string Cgroup::directory(const std::string& controller) const {
  const auto v1 = v1_directories_.find(controller);
  return v1 != v1_directories_.end() ? v1->second : v2_directory_;
}

bool Cgroup::is_v2(const std::string& controller) const {
  return v1_directories_.count(controller) == 0;
}

std::vector<std::string> Cgroup::procs_files() const {
  std::vector<std::string> files;
  files.reserve(created_.size());
  for (const std::string& directory : created_) {
    files.push_back(directory + "/cgroup.procs");
  }
  return files;
}

void Cgroup::limit_cpu(double cores) const {
  constexpr int kPeriodUs = 100000;
  const std::string quota = std::to_string(static_cast<int>(cores * kPeriodUs));
  const std::string period = std::to_string(kPeriodUs);
  if (is_v2("cpu")) {
    write_file(v2_directory_ + "/cpu.max", quota + " " + period);
  } else {
    write_file(directory("cpu") + "/cpu.cfs_period_us", period);
    write_file(directory("cpu") + "/cpu.cfs_quota_us", quota);
  }
}

void Cgroup::limit_memory(std::uint64_t memory_bytes) const {
  write_file(directory("memory") + (is_v2("memory") ? "/memory.max" : "/memory.limit_in_bytes"),
             std::to_string(memory_bytes));
}

std::chrono::nanoseconds Cgroup::cpu_used() const {
  if (!is_v2("cpuacct")) {
    std::int64_t ns = 0;
    std::ifstream(directory("cpuacct") + "/cpuacct.usage") >> ns;
    return std::chrono::nanoseconds(ns);
  }
  std::ifstream stat(v2_directory_ + "/cpu.stat");
  std::int64_t us = 0;
  for (std::string key; stat >> key >> us && key != "usage_usec";) {
  }
  return std::chrono::microseconds(us);
}

void Cgroup::add(pid_t pid) const {
  for (const std::string& file : procs_files()) {
    write_file(file, std::to_string(pid));
  }
}

}  // namespace headgate::lab
