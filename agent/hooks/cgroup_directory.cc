// SPDX-License-Identifier: Apache-2.0
#include "agent/hooks/cgroup_directory.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <system_error>

#include <fmt/format.h>

namespace headgate {

Result<CgroupDirectory> open_cgroup(const std::string& path) {
  CgroupDirectory out;
  out.fd = UniqueFd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  struct stat st {};
  if (!out.fd || ::fstat(out.fd.get(), &st) != 0) {
    return sys_fail(errno, "open " + path);
  }
  out.id = st.st_ino;
  return out;
}

bool holds_processes(const std::string& directory, bool below) {
  std::ifstream procs(directory + "/cgroup.procs");
  for (int pid = 0; procs >> pid;) {
    std::error_code ec;
    if (!std::filesystem::read_symlink(fmt::format("/proc/{}/exe", pid), ec).empty()) {
      return true;
    }
  }
  if (below) {
    std::error_code ec;
    for (const auto& entry : std::filesystem::directory_iterator(directory, ec)) {
      if (entry.is_directory(ec) && holds_processes(entry.path().string(), true)) {
        return true;
      }
    }
  }
  return false;
}

Error no_unified(const std::string& lost) {
  return {"this host has no cgroup v2 tree, and cgroup-BPF works nowhere else: " + lost,
          EOPNOTSUPP};
}

}  // namespace headgate
