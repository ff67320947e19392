// SPDX-License-Identifier: Apache-2.0
#include "agent/targets/proc.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <memory>
#include <string_view>

#include <fmt/format.h>

#include "agent/base/unique_fd.h"
#include "agent/cgroup/parse.h"

namespace headgate {
namespace {

struct DirCloser {
  void operator()(DIR* dir) const { ::closedir(dir); }
};
using DirPtr = std::unique_ptr<DIR, DirCloser>;

std::optional<int> as_pid(std::string_view text) {
  int pid = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), pid);
  if (error != std::errc{} || end != text.data() + text.size() || pid <= 0) {
    return std::nullopt;
  }
  return pid;
}

}  // namespace

Result<std::string> read_small_file(const std::string& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd.valid()) {
    return sys_fail(errno, path);
  }
  std::string text;
  std::array<char, 4096> block{};
  while (true) {
    const ssize_t got = ::read(fd.get(), block.data(), block.size());
    if (got < 0 && errno == EINTR) {
      continue;
    }
    if (got < 0) {
      return sys_fail(errno, path);
    }
    if (got == 0) {
      return text;
    }
    text.append(block.data(), static_cast<std::size_t>(got));
  }
}

Result<std::string> read_link(const std::string& path) {
  std::array<char, PATH_MAX> target{};
  const ssize_t length = ::readlink(path.c_str(), target.data(), target.size());
  if (length < 0) {
    return sys_fail(errno, path);
  }
  return std::string(target.data(), static_cast<std::size_t>(length));
}

std::vector<std::string> subdirectories(const std::string& path) {
  std::vector<std::string> names;
  const DirPtr dir(::opendir(path.c_str()));
  if (!dir) {
    return names;
  }
  while (const dirent* entry = ::readdir(dir.get())) {  // NOLINT(concurrency-mt-unsafe): own DIR
    const std::string_view name = entry->d_name;
    bool directory = entry->d_type == DT_DIR;
    if (entry->d_type == DT_UNKNOWN) {
      struct stat st {};
      directory =
          ::lstat(fmt::format("{}/{}", path, name).c_str(), &st) == 0 && S_ISDIR(st.st_mode);
    }
    if (directory && name != "." && name != "..") {
      names.emplace_back(name);
    }
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::vector<int> Proc::pids() const {
  std::vector<int> out;
  for (const auto& name : subdirectories(root_)) {
    if (const auto pid = as_pid(name)) {
      out.push_back(*pid);
    }
  }
  std::sort(out.begin(), out.end());
  return out;
}

Result<std::string> Proc::cgroup_text(int pid) const {
  return read_small_file(fmt::format("{}/{}/cgroup", root_, pid));
}

Result<std::string> Proc::exe(int pid) const {
  auto path = read_link(fmt::format("{}/{}/exe", root_, pid));
  constexpr std::string_view kDeleted = " (deleted)";
  if (path && path->size() > kDeleted.size() &&
      path->compare(path->size() - kDeleted.size(), kDeleted.size(), kDeleted) == 0) {
    path->resize(path->size() - kDeleted.size());
  }
  return path;
}

std::optional<std::uint32_t> Proc::netns(int pid) const {
  const auto link = read_link(fmt::format("{}/{}/ns/net", root_, pid));
  return link ? parse_netns_link(*link) : std::nullopt;
}

std::optional<std::uint32_t> Proc::own_netns() const {
  const auto link = read_link(root_ + "/self/ns/net");
  return link ? parse_netns_link(*link) : std::nullopt;
}

std::optional<int> Proc::self() const {
  const auto link = read_link(root_ + "/self");
  return link ? as_pid(*link) : std::nullopt;
}

bool Proc::is_kthreadd(int pid) const {
  const auto name = read_small_file(fmt::format("{}/{}/comm", root_, pid));
  const auto executable = exe(pid);
  return name && *name == "kthreadd\n" && !executable && executable.error().sys_errno == ENOENT;
}

}  // namespace headgate
