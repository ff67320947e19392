// SPDX-License-Identifier: Apache-2.0
#include "tests/support/leftovers.h"

#include <signal.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <string>
#include <system_error>
#include <vector>

namespace headgate::lab {
namespace {

namespace fs = std::filesystem;

bool is_left_over(const fs::path& path) {
  const auto owner = owner_in_name(path.filename().string());
  return owner && ::kill(*owner, 0) != 0 && errno == ESRCH;
}

std::vector<fs::path> left_over_in(const fs::path& directory) {
  std::vector<fs::path> out;
  std::error_code ec;
  for (const auto& entry : fs::directory_iterator(directory, ec)) {
    if (is_left_over(entry.path())) {
      out.push_back(entry.path());
    }
  }
  return out;
}

void remove_cgroup(const fs::path& directory) {
  // What is in it was started by the test that is gone, and by nobody else: the name says so.
  std::ifstream procs(directory / "cgroup.procs");
  for (pid_t pid = 0; procs >> pid;) {
    ::kill(pid, SIGKILL);
  }
  for (int i = 0; i < 200 && ::rmdir(directory.c_str()) != 0 && errno == EBUSY; ++i) {
    ::usleep(10'000);
  }
}

}  // namespace

std::optional<pid_t> owner_in_name(std::string_view name) {
  for (const std::string_view prefix : {"headgate-e2e-", "headgate-test-", "headgate-lab-"}) {
    if (!name.starts_with(prefix)) {
      continue;
    }
    const std::string_view rest = name.substr(prefix.size());
    pid_t pid = 0;
    const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), pid);
    if (error == std::errc{} && pid > 1 && end != rest.data() + rest.size() && *end == '-') {
      return pid;
    }
  }
  return std::nullopt;
}

void remove_leftovers_now() {
  std::error_code ec;
  // cgroups first: their processes may hold the rest.
  std::vector<fs::path> trees{"/sys/fs/cgroup"};
  for (const auto& entry : fs::directory_iterator("/sys/fs/cgroup", ec)) {
    if (entry.is_directory(ec) && !entry.is_symlink(ec)) {
      trees.push_back(entry.path());
    }
  }
  for (const fs::path& tree : trees) {
    for (const fs::path& directory : left_over_in(tree)) {
      remove_cgroup(directory);
    }
  }
  // Unlinking the last pin of a link detaches it.
  for (const fs::path& parent : {fs::path("/sys/fs/bpf"), fs::temp_directory_path(ec)}) {
    for (const fs::path& directory : left_over_in(parent)) {
      fs::remove_all(directory, ec);
    }
  }
}

void remove_leftovers() {
  static std::once_flag once;
  std::call_once(once, remove_leftovers_now);
}

}  // namespace headgate::lab
