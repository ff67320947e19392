// SPDX-License-Identifier: Apache-2.0
#include "agent/cgroup/hierarchy.h"

#include <dirent.h>
#include <sys/stat.h>

#include <algorithm>
#include <fstream>
#include <optional>
#include <sstream>

#include <fmt/format.h>

#include "agent/cgroup/limits.h"
#include "agent/cgroup/parse.h"

namespace headgate {
namespace {

using Mount = Hierarchy::Mount;

struct ControllerNames {
  Controller controller;
  std::string_view name;
  /// Files that only a v1 hierarchy with this controller has at its root.
  std::array<std::string_view, 3> v1_files;
};
constexpr std::array<ControllerNames, 4> kControllers{{
    {Controller::kCpu, "cpu", {"cpu.cfs_quota_us", "cpu.shares", "cpu.cfs_period_us"}},
    {Controller::kCpuacct, "cpuacct", {"cpuacct.usage", "cpuacct.stat", "cpuacct.usage_all"}},
    {Controller::kCpuset,
     "cpuset",
     {"cpuset.cpu_exclusive", "cpuset.effective_cpus", "cpuset.cpus"}},
    {Controller::kMemory,
     "memory",
     {"memory.limit_in_bytes", "memory.usage_in_bytes", "memory.oom_control"}},
}};

bool is_directory(const std::string& path) {
  struct stat st {};
  return ::stat(path.c_str(), &st) == 0 && S_ISDIR(st.st_mode);
}

bool exists(const std::string& path) {
  struct stat st {};
  return ::stat(path.c_str(), &st) == 0;
}

/// Empty where it cannot be read: what is asked of it is then simply not there.
std::string read_text(const std::string& path) {
  std::ifstream in(path);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

bool lists_controller(const std::string& cgroup_controllers, std::string_view name) {
  std::istringstream words(cgroup_controllers);
  for (std::string word; words >> word;) {
    if (word == name) {
      return true;
    }
  }
  return false;
}

std::vector<std::string> directories_of(const std::string& root) {
  std::vector<std::string> names;
  DIR* dir = ::opendir(root.c_str());
  if (dir == nullptr) {
    return names;
  }
  while (const dirent* entry = ::readdir(dir)) {  // NOLINT(concurrency-mt-unsafe): own DIR
    const std::string name = entry->d_name;
    if (name != "." && name != ".." && is_directory(root + "/" + name)) {
      names.push_back(name);
    }
  }
  ::closedir(dir);
  std::sort(names.begin(), names.end());
  return names;
}

bool is_link(const std::string& path) {
  struct stat st {};
  return ::lstat(path.c_str(), &st) == 0 && S_ISLNK(st.st_mode);
}

/// The v1 directory of a controller: by its own name, or the joint one ("cpu,cpuacct"). The names
/// of the parts are links to that (which a copied tree may have lost); the directory itself is
/// taken, so that joint controllers have one path and count as one tree.
std::optional<std::string> v1_directory(const std::string& root,
                                        const std::vector<std::string>& directories,
                                        std::string_view controller) {
  std::optional<std::string> found;
  for (const auto& name : directories) {
    const bool own = name == controller;
    const std::string path = root + "/" + name;
    if (own && !is_link(path)) {
      return path;
    }
    if ((own && !found) || (!own && !is_link(path) && has_controller(name, controller))) {
      found = path;
    }
  }
  return found;
}

bool has_v1_files(const std::string& directory, const ControllerNames& controller) {
  return std::any_of(
      controller.v1_files.begin(), controller.v1_files.end(),
      [&](std::string_view file) { return exists(fmt::format("{}/{}", directory, file)); });
}

/// A pure v2 root without cgroup.controllers: part of a copied tree, or a container's view.
bool looks_like_v2(const std::string& root) {
  for (const char* file : {"cgroup.procs", "cpu.stat", "cpuset.cpus.effective", "memory.current"}) {
    if (exists(root + "/" + file)) {
      return true;
    }
  }
  return false;
}

/// Takes from mountinfo which directory of its hierarchy each tree shows. In a private cgroup
/// namespace that reads "/../..": such a tree is the host's and is left as whole.
void apply_mount_roots(Hierarchy& hierarchy, const std::string& mountinfo) {
  const auto is_at = [&](const Mount& mount, const std::string& mount_point) {
    if (mount_point == mount.path) {
      return true;
    }
    // a copied tree keeps the mount points of its host
    const std::string below = mount.path.substr(hierarchy.root.size());
    return mount_point == "/sys/fs/cgroup" + below;
  };
  std::string_view rest = mountinfo;
  while (!rest.empty()) {
    const auto seen = parse_mountinfo_line(next_line(rest));
    if (!seen || seen->root == "/" || seen->root.substr(0, 3) == "/..") {
      continue;
    }
    const auto apply = [&](Mount& mount) {
      if (mount.version == seen->version && is_at(mount, seen->mount_point)) {
        mount.mount_root = seen->root;
      }
    };
    std::for_each(hierarchy.controllers.begin(), hierarchy.controllers.end(), apply);
    apply(hierarchy.unified_mount);
    apply(hierarchy.systemd_mount);
  }
}

}  // namespace

std::string Mount::directory(std::string_view cgroup_path) const {
  if (mount_root != "/" && cgroup_path.substr(0, mount_root.size()) == mount_root &&
      (cgroup_path.size() == mount_root.size() || cgroup_path[mount_root.size()] == '/')) {
    cgroup_path.remove_prefix(mount_root.size());
  }
  return cgroup_path == "/" ? path : path + std::string(cgroup_path);
}

std::vector<Mount> Hierarchy::trees() const {
  std::vector<Mount> out;
  const auto add = [&](const Mount& mount) {
    const bool known =
        std::any_of(out.begin(), out.end(), [&](const Mount& m) { return m.path == mount.path; });
    if (mount.version != CgroupVersion::kNone && !known) {
      out.push_back(mount);
    }
  };
  add(unified_mount);
  for (const auto c :
       {Controller::kCpu, Controller::kCpuacct, Controller::kMemory, Controller::kCpuset}) {
    add(of(c));
  }
  add(systemd_mount);
  return out;
}

Result<Hierarchy> Hierarchy::detect(const std::string& root, const std::string& proc_root) {
  Hierarchy out;
  out.root = root;
  while (out.root.size() > 1 && out.root.back() == '/') {
    out.root.pop_back();
  }
  if (!is_directory(out.root)) {
    return fail(
        fmt::format("{}: no such directory; the cgroup root is /sys/fs/cgroup on a host, "
                    "or a copy of that directory",
                    root));
  }
  const auto directories = directories_of(out.root);
  const auto use_unified = [&](const std::string& path) {
    out.unified = path;
    out.unified_mount = {CgroupVersion::kV2, path, "/"};
  };
  const bool v2_root = exists(out.root + "/cgroup.controllers");
  bool any_v1 = false;
  if (v2_root) {
    use_unified(out.root);
  } else if (is_directory(out.root + "/unified")) {
    use_unified(out.root + "/unified");
  }
  const std::string in_v2 =
      out.unified.empty() ? std::string() : read_text(out.unified + "/cgroup.controllers");
  for (const auto& known : kControllers) {
    auto& mount = out.controllers[static_cast<std::size_t>(known.controller)];
    const auto v1 = v1_directory(out.root, directories, known.name);
    // Below a v2 root a directory "cpu" is a cgroup of that name unless its files say otherwise;
    // beside a v2 tree that lists the controller an empty directory is a left-over mount point.
    const bool doubtful = v2_root || lists_controller(in_v2, known.name);
    if (v1 && (!doubtful || has_v1_files(*v1, known))) {
      mount = {CgroupVersion::kV1, *v1, "/"};
      any_v1 = true;
    }
  }
  if (!any_v1 && out.unified.empty() && looks_like_v2(out.root)) {
    use_unified(out.root);
  }
  if (!any_v1 && out.unified.empty()) {
    return fail(fmt::format(
        "{}: no cgroup tree here: neither cgroup.controllers (v2), nor a directory cpu, cpuacct, "
        "cpuset or memory (v1), nor unified/ (hybrid). Is it mounted, or is this the wrong "
        "directory of the copied tree?",
        root));
  }
  if (!out.unified.empty()) {
    for (auto& mount : out.controllers) {
      if (mount.version == CgroupVersion::kNone) {
        mount = out.unified_mount;
      }
    }
  }
  if (!v2_root && is_directory(out.root + "/systemd")) {
    out.systemd_mount = {CgroupVersion::kV1, out.root + "/systemd", "/"};
  }
  out.mode = !any_v1 ? Mode::kV2 : out.unified.empty() ? Mode::kV1 : Mode::kHybrid;
  if (!proc_root.empty()) {
    std::string mountinfo = read_text(proc_root + "/self/mountinfo");
    if (mountinfo.empty()) {  // a copied /proc has no "self"
      mountinfo = read_text(proc_root + "/1/mountinfo");
    }
    apply_mount_roots(out, mountinfo);
  }
  out.limits = std::make_shared<LimitCache>();
  return out;
}

std::string_view to_string(Hierarchy::Mode mode) {
  switch (mode) {
    case Hierarchy::Mode::kV1: return "v1";
    case Hierarchy::Mode::kV2: return "v2";
    case Hierarchy::Mode::kHybrid: return "hybrid";
  }
  return "?";
}

std::string_view to_string(Controller controller) {
  for (const auto& known : kControllers) {
    if (known.controller == controller) {
      return known.name;
    }
  }
  return "?";
}

Result<std::string> normalise_target_path(std::string_view path) {
  if (path.empty() || path.front() != '/') {
    return fail(
        fmt::format("cgroup path \"{}\" does not begin with '/': it is the path below the "
                    "cgroup root, such as /system.slice/otelcol.service",
                    path));
  }
  std::string out;
  std::string_view rest = path;
  while (!rest.empty()) {
    const std::size_t slash = rest.find('/');
    const std::string_view part = rest.substr(0, slash);
    rest.remove_prefix(slash == std::string_view::npos ? rest.size() : slash + 1);
    if (part == "." || part == "..") {
      return fail(
          fmt::format("cgroup path \"{}\" has a component \"{}\": write it in full, from "
                      "the cgroup root",
                      path, part));
    }
    if (!part.empty()) {
      out.append("/").append(part);
    }
  }
  if (out.empty()) {
    return fail(
        "cgroup path \"/\" is the root of the cgroup tree: it holds every process of the "
        "host and has no limits, so it is no target. Name a cgroup below it, such as "
        "/system.slice/otelcol.service");
  }
  return out;
}

Result<std::uint64_t> cgroup_identity(const Hierarchy& hierarchy, const std::string& path) {
  std::string looked_at;
  for (const auto& tree : hierarchy.trees()) {
    const std::string directory = tree.directory(path);
    struct stat st {};
    if (::stat(directory.c_str(), &st) == 0 && S_ISDIR(st.st_mode)) {
      return static_cast<std::uint64_t>(st.st_ino);
    }
    looked_at += (looked_at.empty() ? "" : ", ") + directory;
  }
  return fail(fmt::format("no cgroup {}: looked for {}", path, looked_at));
}

}  // namespace headgate
