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

std::optional<std::uint64_t> as_number(std::string_view text, int base) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  return error == std::errc{} && end == text.data() + text.size() && !text.empty()
             ? std::optional(value)
             : std::nullopt;
}

/// One line of /proc/PID/net/{tcp,tcp6,udp,udp6} (proc(5)), "sl local rem st tx:rx tr:when retrnsmt
/// uid timeout inode ...", as the inode of a socket that listens on the port. TCP: state 0A; UDP:
/// 07, "closed", where no peer is set.
std::optional<std::uint64_t> parse_listening_line(std::string_view line, bool udp,
                                                  std::uint16_t port) {
  constexpr std::size_t kLocal = 1;
  constexpr std::size_t kState = 3;
  constexpr std::size_t kInode = 9;
  std::array<std::string_view, kInode + 1> fields{};
  for (std::string_view& field : fields) {
    line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
    field = line.substr(0, line.find(' '));
    line.remove_prefix(field.size());
  }
  const std::string_view local = fields[kLocal];
  const std::size_t colon = local.rfind(':');
  if (colon == std::string_view::npos || as_number(local.substr(colon + 1), 16) != port ||
      fields[kState] != (udp ? "07" : "0A")) {
    return std::nullopt;
  }
  return as_number(fields[kInode], 10);
}

/// "socket:[1234]" as 1234.
std::optional<std::uint64_t> parse_socket_link(std::string_view link) {
  constexpr std::string_view kBegin = "socket:[";
  if (!link.starts_with(kBegin) || !link.ends_with(']')) {
    return std::nullopt;
  }
  return as_number(link.substr(kBegin.size(), link.size() - kBegin.size() - 1), 10);
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

std::set<std::uint64_t> Proc::listening_sockets(int pid, bool udp, std::uint16_t port) const {
  std::set<std::uint64_t> out;
  for (const char* table : udp ? std::array{"udp", "udp6"} : std::array{"tcp", "tcp6"}) {
    const auto text = read_small_file(fmt::format("{}/{}/net/{}", root_, pid, table));
    std::string_view rest = text ? std::string_view(*text) : std::string_view();
    while (!rest.empty()) {
      if (const auto inode = parse_listening_line(next_line(rest), udp, port)) {
        out.insert(*inode);
      }
    }
  }
  return out;
}

bool Proc::holds_socket(int pid, const std::set<std::uint64_t>& inodes) const {
  const std::string path = fmt::format("{}/{}/fd", root_, pid);
  const DirPtr dir(::opendir(path.c_str()));
  while (const dirent* entry = dir ? ::readdir(dir.get()) : nullptr) {  // NOLINT: own DIR
    const auto link = read_link(fmt::format("{}/{}", path, entry->d_name));
    const auto inode = link ? parse_socket_link(*link) : std::nullopt;
    if (inode && inodes.contains(*inode)) {
      return true;
    }
  }
  return false;
}

}  // namespace headgate
