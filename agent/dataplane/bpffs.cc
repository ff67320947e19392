// SPDX-License-Identifier: Apache-2.0
#include "agent/dataplane/bpffs.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <filesystem>
#include <system_error>

#include <bpf/bpf.h>
#include <fmt/format.h>

#include "headgate/bpf_abi.h"

namespace headgate {
namespace {

constexpr const char* kBpffsMount = "/sys/fs/bpf";

std::string version_directory(const std::string& root) {
  return fmt::format("{}/v{}", root, HEADGATE_ABI_VERSION);
}

bool switched_off(const std::string& control_path) {
  const UniqueFd map(::bpf_obj_get(control_path.c_str()));
  const std::uint32_t cell = 0;
  headgate_control control{};
  return map && ::bpf_map_lookup_elem(map.get(), &cell, &control) == 0 && control.off != 0;
}

bool has_entries(const std::string& map_path) {
  const UniqueFd map(::bpf_obj_get(map_path.c_str()));
  std::array<std::byte, 64> key{};
  return map && ::bpf_map_get_next_key(map.get(), nullptr, key.data()) == 0;
}

std::string existing_parent(std::string path) {
  struct stat st {};
  while (path.size() > 1 && ::stat(path.c_str(), &st) != 0) {
    const auto slash = path.rfind('/');
    path = slash == 0 || slash == std::string::npos ? "/" : path.substr(0, slash);
  }
  return path;
}

}  // namespace

bool is_bpffs(const std::string& path) {
  struct statfs fs {};
  return ::statfs(path.c_str(), &fs) == 0 && static_cast<unsigned long>(fs.f_type) == BPF_FS_MAGIC;
}

PinDirectory PinDirectory::prepare(const std::string& root) {
  PinDirectory out;
  out.root_ = root;
  if (root.empty()) {
    out.warning_ = "nothing is pinned: while the agent is down every connection is admitted";
    return out;
  }
  if (!is_bpffs(existing_parent(root))) {
    constexpr const char* kCost =
        "nothing is pinned, and a restart of the agent opens the gate for a moment";
    if (root.rfind(kBpffsMount, 0) != 0) {
      out.warning_ = fmt::format(
          "{} is not on a BPF file system: {}; mount one there (mount -t bpf bpf DIRECTORY) or "
          "choose a path below {}",
          root, kCost, kBpffsMount);
      return out;
    }
    if (::mount("bpf", kBpffsMount, "bpf", MS_NOSUID | MS_NODEV | MS_NOEXEC, "mode=0700") != 0) {
      out.warning_ = fmt::format(
          "{} is no BPF file system and none could be mounted there ({}): {}; mount one: mount -t "
          "bpf bpf {}",
          kBpffsMount, std::strerror(errno), kCost, kBpffsMount);
      return out;
    }
  }
  if (auto made = out.make_directories(); !made) {
    out.warning_ = made.error().message + ": nothing is pinned";
    return out;
  }
  struct stat st {};
  if (::stat(root.c_str(), &st) != 0 || st.st_uid != ::geteuid()) {
    out.warning_ = fmt::format(
        "{} belongs to uid {}, who could take the gate away: nothing is pinned; remove it, or give "
        "it to root",
        root, st.st_uid);
    return out;
  }
  ::chmod(root.c_str(), 0700);
  out.pinned_ = true;
  return out;
}

PinDirectory PinDirectory::existing(const std::string& root) {
  PinDirectory out;
  out.root_ = root;
  out.pinned_ = is_bpffs(root) && ::access(out.map_path("headgate_control").c_str(), F_OK) == 0;
  return out;
}

std::string PinDirectory::map_path(const std::string& name) const {
  return maps_directory() + "/" + name;
}

std::string PinDirectory::maps_directory() const { return version_directory(root_) + "/maps"; }

std::string PinDirectory::links_directory() const { return version_directory(root_) + "/links"; }

std::string PinDirectory::link_path(const std::string& name) const {
  return links_directory() + "/" + name;
}

Result<> PinDirectory::make_directories() const {
  for (const std::string& directory : {maps_directory(), links_directory()}) {
    std::error_code ec;
    std::filesystem::create_directories(directory, ec);
    if (ec) {
      return fail(fmt::format("{}: {}", directory, ec.message()));
    }
  }
  return {};
}

void PinDirectory::stand_in_line() {
  if (!pinned_ || lock_ || line_) {
    return;
  }
  ::mkdir(line_path().c_str(), 0700);
  UniqueFd fd(::open(line_path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (fd && ::flock(fd.get(), LOCK_SH | LOCK_NB) == 0) {
    line_ = std::move(fd);
  }
}

bool PinDirectory::somebody_waits() const {
  const UniqueFd fd(::open(line_path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  return fd && ::flock(fd.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
}

Result<bool> PinDirectory::try_lock() {
  if (!pinned_ || lock_) {
    return true;
  }
  // The agent before may have taken everything away that was there when this one was started.
  if (auto made = make_directories(); !made) {
    return tl::unexpected<Error>(made.error());
  }
  UniqueFd fd(::open(root_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd) {
    return sys_fail(errno, "open " + root_);
  }
  if (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno == EWOULDBLOCK) {
      return false;
    }
    return sys_fail(errno, "flock " + root_);
  }
  // Removed by its holder between open and flock: a lock that nobody else would meet.
  struct stat held {};
  struct stat there {};
  if (::fstat(fd.get(), &held) != 0 || ::stat(root_.c_str(), &there) != 0 ||
      held.st_ino != there.st_ino) {
    return false;
  }
  lock_ = std::move(fd);
  line_.reset();
  return true;
}

void PinDirectory::purge() const {
  if (!pinned_) {
    return;
  }
  std::error_code ec;
  for (const auto& entry : std::filesystem::directory_iterator(links_directory(), ec)) {
    // Unlinking a pin detaches asynchronously; detach first, so that nothing refuses after purge.
    const UniqueFd link(::bpf_obj_get(entry.path().c_str()));
    if (link) {
      ::bpf_link_detach(link.get());
    }
    ::unlink(entry.path().c_str());
  }
  for (const auto& entry : std::filesystem::directory_iterator(maps_directory(), ec)) {
    // A socket that leaves this map loses what it has received and not read, and is of no use any
    // more: while there are some, the map stays. What they are judged by goes, so they pass.
    if (entry.path() == map_path("headgate_streams") && has_entries(entry.path())) {
      continue;
    }
    // The kill switch outlives every agent and every purge, until somebody says `headgate on`.
    if (entry.path() != map_path("headgate_control") || !switched_off(entry.path())) {
      ::unlink(entry.path().c_str());
    }
  }
  remove_if_empty();
}

void PinDirectory::remove_if_empty() const {
  if (!pinned_) {
    return;
  }
  for (const std::string& directory :
       {maps_directory(), links_directory(), version_directory(root_), line_path(), root_}) {
    ::rmdir(directory.c_str());
  }
}

}  // namespace headgate
