// SPDX-License-Identifier: Apache-2.0
// Reads the machine for `headgate doctor`. What it means: doctor.cc.
#include <fcntl.h>
#include <linux/bpf.h>
#include <linux/magic.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>
#include <string_view>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include "agent/base/unique_fd.h"
#include "agent/cgroup/hierarchy.h"
#include "agent/cli/doctor.h"
#include "agent/cli/json_read.h"
#include "agent/dataplane/bpffs.h"
#include "agent/web/control_socket.h"

namespace headgate::cli {
namespace {

std::optional<std::string> read_text(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  if (!file || !(text << file.rdbuf())) {
    return std::nullopt;
  }
  return text.str();
}

std::optional<std::string> status_field(std::string_view status, std::string_view key) {
  const auto start = status.find(key);
  if (start == std::string_view::npos) {
    return std::nullopt;
  }
  std::string_view value = status.substr(start + key.size());
  value = value.substr(0, value.find('\n'));
  const auto first = value.find_first_not_of(" \t");
  return first == std::string_view::npos ? std::nullopt
                                         : std::optional(std::string(value.substr(first)));
}

template <class T>
std::optional<T> to_number(const std::optional<std::string>& text, int base) {
  T value{};
  if (!text) {
    return std::nullopt;
  }
  const auto [rest, error] =
      std::from_chars(text->data(), text->data() + text->size(), value, base);
  return error == std::errc{} ? std::optional(value) : std::nullopt;
}

void look_at_process(const DoctorOptions& options, SystemFacts& facts) {
  facts.root_user = geteuid() == 0;
  const auto status = read_text(options.proc_root + "/self/status").value_or("");
  facts.capabilities = to_number<std::uint64_t>(status_field(status, "\nCapEff:"), 16);
  facts.seccomp = to_number<int>(status_field(status, "\nSeccomp:"), 10);
  // The initial user namespace maps everything onto itself (user_namespaces(7)).
  if (const auto map = read_text(options.proc_root + "/self/uid_map")) {
    std::istringstream line(*map);
    std::uint64_t inside = 1;
    std::uint64_t outside = 1;
    std::uint64_t length = 0;
    line >> inside >> outside >> length;
    facts.user_namespace = inside != 0 || outside != 0 || length != 4294967295ULL;
  }
  rlimit limit{};
  if (getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
    facts.memlock_bytes = limit.rlim_cur;
  }
}

std::string file_system_name(long type) {
  switch (type) {
    case SYSFS_MAGIC: return "sysfs";
    case TMPFS_MAGIC: return "tmpfs";
    case OVERLAYFS_SUPER_MAGIC: return "overlayfs";
    default: return {};
  }
}

void look_at_file_systems(const DoctorOptions& options, SystemFacts& facts) {
  struct statfs found {};
  if (statfs("/sys/fs/bpf", &found) == 0) {
    facts.bpffs = found.f_type == BPF_FS_MAGIC ? SystemFacts::BpfFs::kMounted
                                               : SystemFacts::BpfFs::kOtherFileSystem;
    facts.bpffs_type = file_system_name(found.f_type);
  }
  facts.btf = access("/sys/kernel/btf/vmlinux", R_OK) == 0;
  if (const auto hierarchy = Hierarchy::detect(options.cgroup_root)) {
    facts.cgroup_mode = to_string(hierarchy->mode);
    facts.cgroup_v2 = !hierarchy->unified.empty();
  } else {
    facts.cgroup_problem = hierarchy.error().message;
  }
  // "[none] integrity confidentiality": the one in brackets is in force.
  if (const auto lockdown = read_text("/sys/kernel/security/lockdown")) {
    const auto open = lockdown->find('[');
    const auto close = lockdown->find(']');
    if (open != std::string::npos && close != std::string::npos && open < close) {
      facts.lockdown = lockdown->substr(open + 1, close - open - 1);
    }
  }
}

/// A card has a device; bridges, tunnels and veths have none.
std::vector<std::string> network_cards() {
  std::vector<std::string> out;
  std::error_code ec;
  for (const auto& entry : std::filesystem::directory_iterator("/sys/class/net", ec)) {
    std::error_code none;
    if (std::filesystem::exists(entry.path() / "device", none)) {
      out.push_back(entry.path().filename().string());
    }
  }
  std::sort(out.begin(), out.end());
  return out;
}

SystemFacts::Psi look_at_psi(const DoctorOptions& options) {
  const UniqueFd fd(open((options.proc_root + "/pressure/cpu").c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) {
    return errno == EOPNOTSUPP ? SystemFacts::Psi::kSwitchedOff : SystemFacts::Psi::kMissing;
  }
  char byte = 0;
  if (read(fd.get(), &byte, 1) == 1) {
    return SystemFacts::Psi::kAvailable;
  }
  return errno == EOPNOTSUPP ? SystemFacts::Psi::kSwitchedOff : SystemFacts::Psi::kMissing;
}

/// errno of loading `return SK_PASS`; 0 = it loads.
int try_to_load() {
  const std::array<bpf_insn, 2> program{
      bpf_insn{BPF_ALU64 | BPF_MOV | BPF_K, BPF_REG_0, 0, 0, SK_PASS},
      bpf_insn{BPF_JMP | BPF_EXIT, 0, 0, 0, 0}};
  LIBBPF_OPTS(bpf_prog_load_opts, load, .expected_attach_type = BPF_SK_LOOKUP);
  const UniqueFd fd(bpf_prog_load(BPF_PROG_TYPE_SK_LOOKUP, "headgate_probe", "Dual BSD/GPL",
                                  program.data(), program.size(), &load));
  return fd ? 0 : errno;
}

std::string program_name(std::uint32_t id) {
  const UniqueFd fd(bpf_prog_get_fd_by_id(id));
  bpf_prog_info info{};
  std::uint32_t size = sizeof(info);
  if (!fd || bpf_obj_get_info_by_fd(fd.get(), &info, &size) != 0) {
    return {};
  }
  return info.name;
}

std::size_t entries_of(const std::string& directory) {
  std::error_code ec;
  const std::filesystem::directory_iterator begin(directory, ec);
  return ec ? 0 : static_cast<std::size_t>(std::distance(begin, {}));
}

void look_at_pins(const DoctorOptions& options, SystemFacts& facts) {
  struct stat found {};
  if (options.pin_root.empty() || stat(options.pin_root.c_str(), &found) != 0) {
    return;
  }
  const PinDirectory pins = PinDirectory::existing(options.pin_root);
  SystemFacts::PinRoot root;
  root.path = options.pin_root;
  root.uid = found.st_uid;
  root.mode = found.st_mode & 07777U;
  root.links = entries_of(pins.links_directory());
  root.maps = entries_of(pins.maps_directory());
  // Shared and let go at once: an agent that starts in this very moment looks again in its next
  // tick.
  const UniqueFd fd(open(options.pin_root.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  root.locked = fd && flock(fd.get(), LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  facts.pin_root = std::move(root);
}

/// Programs of the agent that is asked about: what is pinned below the pin root, and what the agent
/// that answers says it has. Another agent's are named alike, so the name does not tell.
std::set<std::uint32_t> own_programs(const DoctorOptions& options, const SystemFacts& facts) {
  std::set<std::uint32_t> own;
  std::error_code ec;
  const std::string links = PinDirectory::existing(options.pin_root).links_directory();
  for (const auto& entry : std::filesystem::directory_iterator(links, ec)) {
    const UniqueFd link(bpf_obj_get(entry.path().c_str()));
    bpf_link_info info{};
    std::uint32_t size = sizeof(info);
    if (link && bpf_obj_get_info_by_fd(link.get(), &info, &size) == 0) {
      own.insert(info.prog_id);
    }
  }
  const Json state = parse_json(facts.agent_state);
  for (const Json& target : list_of(state, "targets")) {
    for (const Json& hook : list_of(target, "hooks")) {
      own.insert(static_cast<std::uint32_t>(count_of(hook, "program_id")));
    }
  }
  return own;
}

void look_for_foreign(const DoctorOptions& options, SystemFacts& facts) {
  const std::set<std::uint32_t> own = own_programs(options, facts);
  std::uint32_t id = 0;
  while (bpf_link_get_next_id(id, &id) == 0) {
    const UniqueFd fd(bpf_link_get_fd_by_id(id));
    if (!fd) {
      if (errno == ENOENT) continue;  // gone meanwhile
      facts.foreign_errno = errno;
      return;
    }
    bpf_link_info info{};
    std::uint32_t size = sizeof(info);
    if (bpf_obj_get_info_by_fd(fd.get(), &info, &size) != 0 || info.type != BPF_LINK_TYPE_NETNS ||
        info.netns.attach_type != BPF_SK_LOOKUP) {
      continue;
    }
    // A link whose namespace has gone stays as long as somebody holds it; it does nothing.
    if (info.netns.netns_ino == 0) {
      continue;
    }
    if (!own.contains(info.prog_id)) {
      facts.foreign.push_back({info.netns.netns_ino, info.prog_id, program_name(info.prog_id)});
    }
  }
  if (errno != ENOENT) {
    facts.foreign_errno = errno;
  }
}

}  // namespace

SystemFacts look_around(const DoctorOptions& options) {
  SystemFacts facts;
  utsname names{};
  if (uname(&names) == 0) {
    facts.kernel_release = names.release;
  }
  look_at_process(options, facts);
  look_at_file_systems(options, facts);
  facts.psi = look_at_psi(options);
  look_at_pins(options, facts);
  // libbpf explains each failure on stderr; this program does so itself, and better.
  libbpf_set_print(nullptr);
  facts.bpf_errno = try_to_load();
  facts.bpf_loop = libbpf_probe_bpf_helper(BPF_PROG_TYPE_SK_SKB, BPF_FUNC_loop, nullptr) == 1;
  facts.cards = network_cards();
  if (auto state = ControlClient(options.socket_path).state()) {
    facts.agent_state = std::move(*state);
  } else {
    facts.agent_problem = state.error().message;
  }
  look_for_foreign(options, facts);
  return facts;
}

}  // namespace headgate::cli
