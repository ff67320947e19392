// SPDX-License-Identifier: Apache-2.0
#include "agent/targets/locate.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <climits>
#include <cstdlib>
#include <functional>
#include <map>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "agent/cgroup/parse.h"
#include "agent/config/load.h"

namespace headgate {
namespace {

/// Deeper than any tree a service manager or container runtime makes.
constexpr int kMaxDepth = 16;
constexpr std::string_view kRootRemedy =
    "Give it a cgroup of its own: run it as a systemd service, or under "
    "`systemd-run --scope --unit=NAME COMMAND`, or mkdir a directory in the cgroup tree and write "
    "the PID into its cgroup.procs";

bool is_directory(const std::string& path) {
  struct stat st {};
  return ::stat(path.c_str(), &st) == 0 && S_ISDIR(st.st_mode);
}

bool ends_with(std::string_view text, std::string_view end) {
  return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

std::string_view last_component(std::string_view path) { return path.substr(path.rfind('/') + 1); }

/// Visits the directories below `directory`, whose path in the tree is `path`, parents first; does
/// not go below where `visit` returns false.
void walk(const std::string& directory, const std::string& path, int depth,
          const std::function<bool(const std::string& path)>& visit) {
  if (depth == 0) {
    return;
  }
  for (const auto& name : subdirectories(directory)) {
    const std::string child = path + "/" + name;
    if (visit(child)) {
      walk(directory + "/" + name, child, depth - 1, visit);
    }
  }
}

/// Pods are not searched for units: a node has thousands of their directories, and what runs in a
/// pod is matched as a pod.
bool may_hold_units(std::string_view path) {
  const std::string_view name = last_component(path);
  return name.substr(0, 8) != "kubepods" && name.substr(0, 16) != "kubelet-kubepods";
}

/// What systemctl does to a name without a type: "otelcol" is "otelcol.service".
std::string full_unit_name(const std::string& unit) {
  for (const std::string_view type : {".service", ".scope", ".slice", ".socket", ".mount"}) {
    if (ends_with(unit, type)) {
      return unit;
    }
  }
  return unit + ".service";
}

/// Paths of a process by preference: those of the trees that sampling uses.
struct SeenPaths {
  std::vector<std::string_view> paths;
  bool deleted = false;
  bool any = false;
};

SeenPaths paths_in(std::string_view text, const Hierarchy& hierarchy) {
  std::vector<ProcCgroupLine> lines;
  while (!text.empty()) {
    if (const auto line = parse_proc_cgroup_line(next_line(text))) {
      lines.push_back(*line);
    }
  }
  SeenPaths out;
  out.any = !lines.empty();
  const auto take = [&](const auto& wanted) {
    for (const auto& line : lines) {
      if (wanted(line)) {
        out.paths.push_back(line.path);
        out.deleted = out.deleted || line.deleted;
      }
    }
  };
  const auto v2 = [](const ProcCgroupLine& line) { return line.hierarchy_id == 0; };
  for (const auto c : {Controller::kCpu, Controller::kCpuacct, Controller::kMemory}) {
    if (hierarchy.of(c).version == CgroupVersion::kV1) {
      take([&](const ProcCgroupLine& line) {
        return line.hierarchy_id != 0 && has_controller(line.controllers, to_string(c));
      });
    } else if (hierarchy.of(c).version == CgroupVersion::kV2) {
      take(v2);
    }
  }
  if (!hierarchy.unified.empty()) {
    take(v2);
  }
  if (hierarchy.systemd_mount.version != CgroupVersion::kNone) {
    take([](const ProcCgroupLine& line) { return line.controllers == "name=systemd"; });
  }
  return out;
}

std::vector<std::string> components(std::string_view path) {
  std::vector<std::string> out;
  while (!path.empty()) {
    const std::size_t slash = path.find('/');
    const std::string_view part = path.substr(0, slash);
    path.remove_prefix(slash == std::string_view::npos ? path.size() : slash + 1);
    if (!part.empty()) {
      out.emplace_back(part);
    }
  }
  return out;
}

std::string join(const std::vector<std::string>& parts) {
  std::string out;
  for (const auto& part : parts) {
    out.append("/").append(part);
  }
  return out.empty() ? "/" : out;
}

std::vector<int> read_pids(const std::string& procs_file) {
  std::vector<int> out;
  const auto text = read_small_file(procs_file);
  if (!text) {  // EOPNOTSUPP in a threaded cgroup; its processes stand in the domain above
    return out;
  }
  std::string_view rest = *text;
  while (!rest.empty()) {
    const auto pid = parse_number(next_line(rest));
    if (pid.known() && *pid > 0 && *pid <= INT_MAX) {  // 0: of a pid namespace not seen from here
      out.push_back(static_cast<int>(*pid));
    }
  }
  return out;
}

/// Which namespace is the host's: that of process 1, else of the kernel's own threads (the first
/// namespace of the machine), else the one most system services are in, else our own. Process 1 may
/// be out of reach (ptrace rules) while others are not.
std::uint32_t find_host_netns(const Proc& proc) {
  if (const auto inode = proc.netns(1)) {
    return *inode;
  }
  if (proc.is_kthreadd(2)) {
    if (const auto inode = proc.netns(2)) {
      return *inode;
    }
  }
  std::map<std::uint32_t, int> votes;
  for (const int pid : proc.pids()) {
    const auto cgroups = proc.cgroup_text(pid);
    if (!cgroups || cgroups->find("/system.slice/") == std::string::npos) {
      continue;
    }
    std::string_view rest = *cgroups;
    bool service = false;
    while (!rest.empty()) {
      const auto line = parse_proc_cgroup_line(next_line(rest));
      service = service || (line && line->path.substr(0, 14) == "/system.slice/" &&
                            ends_with(line->path, ".service"));
    }
    const auto inode = service ? proc.netns(pid) : std::nullopt;
    if (inode) {
      ++votes[*inode];
    }
  }
  const auto most = std::max_element(
      votes.begin(), votes.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  return most != votes.end() ? most->first : proc.own_netns().value_or(0);
}

/// What our own process' cgroup is called in the host's namespace: where a private namespace hides
/// that, the directory that lists us tells.
std::string find_namespace_root(const Proc& proc, const Hierarchy& hierarchy) {
  const auto self = proc.self();
  const auto one = proc.cgroup_text(1);
  if (!self || !one || one->find(":/..") == std::string::npos) {
    return {};  // process 1 is not seen outside: the namespace is the host's, or we see only ours
  }
  const auto own = proc.cgroup_text(*self);
  if (!own) {
    return {};
  }
  const auto seen = paths_in(*own, hierarchy);
  for (const auto& tree : hierarchy.trees()) {
    std::string found;
    walk(tree.path, "", kMaxDepth, [&](const std::string& path) {
      const auto pids =
          found.empty() ? read_pids(tree.path + path + "/cgroup.procs") : std::vector<int>{};
      if (std::find(pids.begin(), pids.end(), *self) != pids.end()) {
        found = path;
      }
      return found.empty();
    });
    // our path inside the namespace is the end of our whole path
    if (!found.empty() && !seen.paths.empty()) {
      const std::string_view inside = seen.paths.front();
      if (inside != "/" && ends_with(found, inside)) {
        found.resize(found.size() - inside.size());
      }
      return found.empty() ? "/" : found;
    }
  }
  return {};
}

}  // namespace

UniqueFd Locator::open_host_netns() const {
  std::vector<int> pids = proc_.pids();
  pids.insert(pids.begin(), 2);
  for (const int pid : pids) {
    if (proc_.netns(pid) != host_netns_inode_) {
      continue;
    }
    UniqueFd fd(
        ::open(fmt::format("{}/{}/ns/net", proc_.root(), pid).c_str(), O_RDONLY | O_CLOEXEC));
    struct stat st {};
    if (fd && ::fstat(fd.get(), &st) == 0 && st.st_ino == host_netns_inode_) {
      return fd;
    }
  }
  return {};
}

Locator::Locator(Hierarchy hierarchy, std::string proc_root)
    : hierarchy_(std::move(hierarchy)),
      proc_(std::move(proc_root)),
      host_netns_inode_(find_host_netns(proc_)),
      namespace_root_(find_namespace_root(proc_, hierarchy_)) {}

std::optional<std::string> Locator::absolute(std::string_view seen) const {
  auto parts = components(seen);
  const auto first_down =
      std::find_if(parts.begin(), parts.end(), [](const auto& part) { return part != ".."; });
  const auto ups = static_cast<std::size_t>(first_down - parts.begin());
  if (namespace_root_.empty()) {
    if (ups != 0) {
      return std::nullopt;
    }
    return join(parts);
  }
  auto whole = components(namespace_root_);
  if (ups > whole.size()) {
    return std::nullopt;
  }
  whole.resize(whole.size() - ups);
  whole.insert(whole.end(), first_down, parts.end());
  return join(whole);
}

Result<std::string> Locator::cgroup_of(int pid) const {
  const auto text = proc_.cgroup_text(pid);
  if (!text) {
    if (text.error().sys_errno == ENOENT || text.error().sys_errno == ESRCH) {
      return fail(fmt::format("no process {} in {}", pid, proc_.root()));
    }
    return tl::unexpected(text.error().within(fmt::format("cgroup of process {}", pid)));
  }
  const auto seen = paths_in(*text, hierarchy_);
  if (seen.paths.empty()) {
    return fail(fmt::format("{}/{}/cgroup names no cgroup of the trees under {}: \"{}\"",
                            proc_.root(), pid, hierarchy_.root, *text));
  }
  if (seen.deleted) {
    return fail(
        fmt::format("process {} sits in a cgroup that was removed: {}", pid, seen.paths.front()));
  }
  for (const auto& path : seen.paths) {
    const auto whole = absolute(path);
    if (!whole) {
      return fail(fmt::format(
          "process {} has cgroup path {}, which is outside of this cgroup namespace. Run the agent "
          "in the host's cgroup namespace, or mount the host's cgroup tree and /proc (hostPID)",
          pid, path));
    }
    if (*whole != "/") {
      return *whole;
    }
  }
  return fail(
      fmt::format("process {} sits in the root cgroup, together with every process that "
                  "nobody placed: its CPU and memory cannot be told from theirs. {}",
                  pid, kRootRemedy));
}

std::vector<int> Locator::pids_of(const std::string& cgroup_path) const {
  std::vector<int> out;
  for (const auto& tree : hierarchy_.trees()) {
    const std::string directory = tree.directory(cgroup_path);
    if (!is_directory(directory)) {
      continue;
    }
    const auto take = [&](const std::string& below) {
      const auto pids = read_pids(directory + below + "/cgroup.procs");
      out.insert(out.end(), pids.begin(), pids.end());
      return out.size() < kMaxPids;
    };
    if (take("")) {
      walk(directory, "", kMaxDepth, take);
    }
    if (!out.empty()) {  // the same processes stand in every tree that has the cgroup
      break;
    }
  }
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  out.resize(std::min(out.size(), kMaxPids));
  return out;
}

std::vector<Located::Netns> Locator::namespaces_of(const std::string& cgroup_path) const {
  std::vector<Located::Netns> out;
  for (const int pid : pids_of(cgroup_path)) {
    const auto inode = proc_.netns(pid);
    if (!inode) {
      continue;
    }
    auto known = std::find_if(out.begin(), out.end(),
                              [&](const Located::Netns& ns) { return ns.inode == *inode; });
    if (known == out.end()) {
      known = out.insert(out.end(), {*inode, {}, *inode == host_netns_inode_});
    }
    if (known->pids.size() < kPidsPerNamespace) {
      known->pids.push_back(pid);
    }
  }
  return out;
}

Result<Located> Locator::describe(const std::string& path) const {
  const auto identity = cgroup_identity(hierarchy_, path);
  if (!identity) {
    return tl::unexpected(identity.error());
  }
  Located out;
  out.cgroup_path = path;
  out.cgroup_id = *identity;
  out.namespaces = namespaces_of(path);
  for (const auto c : {Controller::kCpuacct, Controller::kMemory}) {
    const auto& mount = hierarchy_.of(c);
    if (mount.version != CgroupVersion::kNone && !is_directory(mount.directory(path))) {
      out.warnings.push_back(
          fmt::format("{} has no directory {}: its {} is unknown (systemd: set {}=yes on the unit)",
                      path, mount.directory(path), c == Controller::kMemory ? "memory" : "CPU use",
                      c == Controller::kMemory ? "MemoryAccounting" : "CPUAccounting"));
    }
  }
  return out;
}

Result<std::vector<Located>> Locator::locate_unit(const std::string& unit) const {
  if (unit.empty() || unit.find('/') != std::string::npos) {
    return fail(
        fmt::format("\"{}\" is no unit name: write it as systemctl does, such as "
                    "otelcol.service",
                    unit));
  }
  const std::string name = full_unit_name(unit);
  std::vector<std::string> found;
  const std::string usual = "/system.slice/" + name;
  if (cgroup_identity(hierarchy_, usual)) {
    found.push_back(usual);
  } else {
    std::set<std::string> all;
    for (const auto& tree : hierarchy_.trees()) {
      walk(tree.path, "", kMaxDepth, [&](const std::string& path) {
        const bool here = last_component(path) == name;
        if (here) {
          all.insert(path);
        }
        return !here && may_hold_units(path);
      });
    }
    found.assign(all.begin(), all.end());
  }
  if (found.empty()) {
    return fail(
        fmt::format("no cgroup of unit {} below {}: is it running (systemctl status {}), "
                    "and is its name right?",
                    name, hierarchy_.root, name));
  }
  std::vector<Located> out;
  for (const auto& path : found) {
    if (auto located = describe(path)) {
      out.push_back(std::move(*located));
    }
  }
  if (out.empty()) {
    return fail(fmt::format("the cgroup of unit {} was removed just now", name));
  }
  if (out.size() > 1) {
    for (auto& located : out) {
      located.warnings.push_back(
          fmt::format("{} cgroups are named {}: each is protected; name one by cgroup: to choose",
                      out.size(), name));
    }
  }
  return out;
}

Result<std::vector<Located>> Locator::locate_exe(const std::string& exe) const {
  if (exe.empty() || exe.front() != '/') {
    return fail(
        fmt::format("process.exe \"{}\" is no absolute path: write what /proc/PID/exe "
                    "shows, such as /usr/bin/otelcol",
                    exe));
  }
  // /proc/PID/exe has links resolved, the configuration may not have
  std::string resolved = exe;
  if (char* real = ::realpath(exe.c_str(), nullptr)) {
    resolved = real;
    std::free(real);  // NOLINT(cppcoreguidelines-no-malloc): realpath allocates so
  }
  std::map<std::string, std::set<int>> by_cgroup;
  std::string root_problem;
  std::size_t matched = 0;
  std::size_t unreadable = 0;
  for (const int pid : proc_.pids()) {
    const auto path = proc_.exe(pid);
    if (!path) {
      const int code = path.error().sys_errno;
      unreadable += code == EACCES || code == EPERM ? 1 : 0;
      continue;
    }
    if (*path != exe && *path != resolved) {
      continue;
    }
    ++matched;
    const auto cgroup = cgroup_of(pid);
    if (cgroup) {
      by_cgroup[*cgroup].insert(pid);
    } else if (root_problem.empty()) {
      root_problem = fmt::format("{}: {}", exe, cgroup.error().message);
    }
  }
  if (by_cgroup.empty() && matched > 0) {
    return fail(root_problem);
  }
  if (by_cgroup.empty()) {
    return fail(fmt::format(
        "no process runs {}{}", exe,
        unreadable == 0 ? std::string()
                        : fmt::format(" ({} processes could not be looked at: run as root, or "
                                      "with CAP_SYS_PTRACE)",
                                      unreadable)));
  }
  std::vector<Located> out;
  for (const auto& [path, pids] : by_cgroup) {
    auto located = describe(path);
    if (!located) {
      continue;
    }
    const auto all = pids_of(path);
    const auto others = std::count_if(all.begin(), all.end(),
                                      [&](int pid) { return pids.find(pid) == pids.end(); });
    if (others > 0) {
      located->warnings.push_back(fmt::format(
          "cgroup {} of {} holds {} other process{}: their CPU and memory count as its own", path,
          exe, others, others == 1 ? "" : "es"));
    }
    if (!root_problem.empty()) {
      located->warnings.push_back(root_problem);
    }
    out.push_back(std::move(*located));
  }
  if (out.empty()) {
    return fail(fmt::format("the cgroup of {} is not below {}: {}", exe, hierarchy_.root,
                            by_cgroup.begin()->first));
  }
  return out;
}

Result<std::vector<Located>> Locator::locate(const Match& match) const {
  if (const auto* cgroup = std::get_if<MatchCgroup>(&match)) {
    const auto path = normalise_target_path(cgroup->path);
    if (!path) {
      return tl::unexpected(path.error());
    }
    auto located = describe(*path);
    if (!located) {
      return tl::unexpected(located.error());
    }
    return std::vector<Located>{std::move(*located)};
  }
  if (const auto* unit = std::get_if<MatchUnit>(&match)) {
    return locate_unit(unit->unit);
  }
  if (const auto* process = std::get_if<MatchProcess>(&match)) {
    return locate_exe(process->exe);
  }
  return fail("pods are found by PodLocator");
}

Result<Match> parse_target(std::string_view text, const Locator& locator) {
  constexpr std::string_view kForms =
      "a TARGET is the name of a configured target, cgroup:/path/below/the/cgroup/root, "
      "unit:NAME.service, pid:NUMBER, pod:NAMESPACE/NAME[/CONTAINER] or pod:UID[/CONTAINER]";
  const std::size_t colon = text.find(':');
  const std::string_view kind = text.substr(0, colon);
  const std::string_view rest =
      colon == std::string_view::npos ? std::string_view() : text.substr(colon + 1);
  if (colon == std::string_view::npos) {
    return fail(fmt::format("\"{}\" is no target: {}", text, kForms));
  }
  if (kind == "cgroup") {
    std::string path(rest);
    for (const auto& tree : locator.hierarchy().trees()) {  // a path as ls shows it is meant well
      if (path.size() > tree.path.size() && path.compare(0, tree.path.size(), tree.path) == 0 &&
          path[tree.path.size()] == '/') {
        path.erase(0, tree.path.size());
        break;
      }
    }
    const auto normal = normalise_target_path(path);
    if (!normal) {
      return tl::unexpected(normal.error());
    }
    return Match(MatchCgroup{*normal});
  }
  if (kind == "unit") {
    if (rest.empty() || rest.find('/') != std::string_view::npos) {
      return fail(
          fmt::format("\"{}\": a unit's name has no '/' and is not empty, such as "
                      "unit:otelcol.service",
                      text));
    }
    return Match(MatchUnit{full_unit_name(std::string(rest))});
  }
  if (kind == "pid") {
    int pid = 0;
    const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), pid);
    if (error != std::errc{} || end != rest.data() + rest.size() || pid <= 0) {
      return fail(
          fmt::format("\"{}\": a process number is a whole number above 0, such as "
                      "pid:1234",
                      text));
    }
    const auto path = locator.cgroup_of(pid);
    if (!path) {
      return tl::unexpected(path.error());
    }
    return Match(MatchCgroup{*path});
  }
  if (kind == "pod") {
    auto pod = parse_pod_target(rest);
    if (!pod) {
      return tl::unexpected<Error>(pod.error().within(fmt::format("\"{}\"", text)));
    }
    return Match(std::move(*pod));
  }
  return fail(fmt::format("\"{}\": unknown kind \"{}\": {}", text, kind, kForms));
}

}  // namespace headgate
