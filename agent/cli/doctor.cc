// SPDX-License-Identifier: Apache-2.0
// What the machine's facts mean, and how they are printed. Reading them: doctor_facts.cc.
#include "agent/cli/doctor.h"

#include <linux/capability.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <ostream>
#include <string_view>

#include <fmt/format.h>

#include "agent/cli/json_read.h"
#include "agent/cli/table.h"
#include "agent/web/words.h"

namespace headgate {
namespace cli {
namespace {

using Severity = Check::Severity;

struct Version {
  int major = 0;
  int minor = 0;
  auto operator<=>(const Version&) const = default;
};
constexpr Version kOldest{5, 10};
/// Memory of BPF objects is charged to the cgroup instead of RLIMIT_MEMLOCK since 5.11.
constexpr Version kNoMemlock{5, 11};

std::optional<Version> parse_release(std::string_view release) {
  Version version;
  const char* end = release.data() + release.size();
  const auto major = std::from_chars(release.data(), end, version.major);
  if (major.ec != std::errc{} || major.ptr == end || *major.ptr != '.') {
    return std::nullopt;
  }
  const auto minor = std::from_chars(major.ptr + 1, end, version.minor);
  return minor.ec == std::errc{} ? std::optional(version) : std::nullopt;
}

bool needs_memlock(const SystemFacts& facts) {
  const auto version = parse_release(facts.kernel_release);
  return version && *version < kNoMemlock;
}

bool has(const SystemFacts& facts, int capability) {
  return facts.capabilities && ((*facts.capabilities >> capability) & 1U) != 0;
}
/// CAP_SYS_ADMIN still stands for CAP_BPF and CAP_PERFMON (kernel commit a17b53c4a4b5).
bool may_bpf(const SystemFacts& facts) { return has(facts, CAP_BPF) || has(facts, CAP_SYS_ADMIN); }
/// ... and for CAP_NET_ADMIN where programs are loaded and attached by bpf(2).
bool may_net(const SystemFacts& facts) {
  return has(facts, CAP_NET_ADMIN) || has(facts, CAP_SYS_ADMIN);
}

// The counters alone take 1.3 MiB a CPU (320 bytes for each of 4,096 endpoints); the default limit
// of old systems is 64 KiB, of newer ones 8 MiB.
constexpr std::uint64_t kMemlockWanted = 64ULL << 20;

bool memlock_is_short(const SystemFacts& facts) {
  return needs_memlock(facts) && facts.memlock_bytes && *facts.memlock_bytes < kMemlockWanted &&
         !has(facts, CAP_SYS_RESOURCE);
}

Check kernel_check(const SystemFacts& facts) {
  const auto version = parse_release(facts.kernel_release);
  if (!version) {
    return {"kernel", Severity::kWarn, fmt::format("release '{}'", facts.kernel_release),
            "it cannot be told whether the kernel is new enough", "5.10 or newer is needed"};
  }
  if (*version < kOldest) {
    return {"kernel", Severity::kFail, facts.kernel_release, "sk_lookup or its helpers are missing",
            "use a kernel of 5.10 or newer"};
  }
  return {"kernel", Severity::kOk, facts.kernel_release, {}, {}};
}

/// tcx links came with 6.6.
bool has_tcx(const SystemFacts& facts) {
  const auto version = parse_release(facts.kernel_release);
  return version && !(*version < Version{6, 6});
}

/// Which mode of XDP an interface takes is known only by trying: it stands
/// in the state of a running agent.
Check early_check(const SystemFacts& facts) {
  return {"tc and xdp",
          Severity::kOk,
          fmt::format("tc by {}; xdp sees only the outer header of VXLAN, Geneve and GRE, pods are "
                      "gated in their own namespace",
                      has_tcx(facts) ? "tcx links" : "filters of clsact (no tcx before 6.6)"),
          {},
          {}};
}

Check btf_check(const SystemFacts& facts) {
  return {"btf",
          Severity::kOk,
          facts.btf ? "there; only the gate for requests needs it"
                    : "not there; only the gate for requests needs it",
          {},
          {}};
}

void add_capability_checks(const SystemFacts& facts, std::vector<Check>& checks) {
  if (!facts.capabilities) {
    checks.push_back({"capabilities", Severity::kWarn, "CapEff cannot be read",
                      "it cannot be told what is missing", "mount /proc"});
    return;
  }
  struct Row {
    int capability;
    const char* name;
    Severity severity;
    const char* costs;
  };
  static constexpr std::array kRows{
      Row{CAP_BPF, "CAP_BPF", Severity::kFail, "no program can be loaded: nothing is refused"},
      Row{CAP_NET_ADMIN, "CAP_NET_ADMIN", Severity::kFail,
          "no hook can be attached to a network namespace or cgroup: nothing is refused"},
      Row{CAP_PERFMON, "CAP_PERFMON", Severity::kWarn,
          "the kernel checks programs by the stricter rules for the unprivileged"},
      Row{CAP_SYS_ADMIN, "CAP_SYS_ADMIN", Severity::kWarn,
          "the network namespaces of pods and containers cannot be entered, bpffs cannot be "
          "mounted, programs of others cannot be listed"},
      Row{CAP_SYS_PTRACE, "CAP_SYS_PTRACE", Severity::kWarn,
          "the network namespace of processes of other users cannot be found"},
      Row{CAP_SYS_NICE, "CAP_SYS_NICE", Severity::kWarn,
          "no real-time priority: on a starved node ticks are missed and the lease opens the gate"},
      Row{CAP_DAC_READ_SEARCH, "CAP_DAC_READ_SEARCH", Severity::kWarn,
          "sockets of targets that do not run as root cannot be told apart"},
  };
  for (const Row& row : kRows) {
    const bool stood_for =
        (row.capability == CAP_BPF || row.capability == CAP_PERFMON) && has(facts, CAP_SYS_ADMIN);
    if (row.capability == CAP_NET_ADMIN && !has(facts, CAP_NET_ADMIN) && may_net(facts)) {
      checks.push_back({row.name, Severity::kWarn, "missing; CAP_SYS_ADMIN stands for it",
                        "tc hooks cannot be attached on kernels before 6.6",
                        "give the process CAP_NET_ADMIN"});
    } else if (has(facts, row.capability) || stood_for) {
      checks.push_back({row.name, Severity::kOk, "there", {}, {}});
    } else {
      checks.push_back({row.name, row.severity, "missing", row.costs,
                        fmt::format("run as root, or give the process {}", row.name)});
    }
  }
  if (needs_memlock(facts) && !has(facts, CAP_SYS_RESOURCE)) {
    checks.push_back({"CAP_SYS_RESOURCE", Severity::kWarn, "missing",
                      "RLIMIT_MEMLOCK cannot be raised, which kernels below 5.11 charge maps to",
                      "give the process CAP_SYS_RESOURCE, or LimitMEMLOCK=infinity"});
  }
}

Check memlock_check(const SystemFacts& facts) {
  const std::string limit = facts.memlock_bytes ? fmt::format("{} KiB", *facts.memlock_bytes / 1024)
                                                : std::string("unlimited");
  if (memlock_is_short(facts)) {
    return {"memlock", Severity::kFail, limit, "maps cannot be created on this kernel (below 5.11)",
            "ulimit -l unlimited, or LimitMEMLOCK=infinity in the systemd unit"};
  }
  return {"memlock",
          Severity::kOk,
          needs_memlock(facts) ? limit : limit + "; not used since kernel 5.11",
          {},
          {}};
}

Check bpffs_check(const SystemFacts& facts) {
  const char* costs =
      "maps and links cannot be pinned: each restart of the agent opens the gate for a moment and "
      "forgets what was learned";
  switch (facts.bpffs) {
    case SystemFacts::BpfFs::kMounted: return {"bpffs", Severity::kOk, "mounted", {}, {}};
    case SystemFacts::BpfFs::kOtherFileSystem:
      return {"bpffs", Severity::kWarn,
              facts.bpffs_type.empty()
                  ? "/sys/fs/bpf is another file system"
                  : fmt::format("/sys/fs/bpf is {}, not bpffs", facts.bpffs_type),
              costs,
              "mount -t bpf bpf /sys/fs/bpf on the host; in a container mount the host's with "
              "mountPropagation: HostToContainer"};
    case SystemFacts::BpfFs::kMissing: break;
  }
  return {"bpffs", Severity::kWarn, "/sys/fs/bpf is not there", costs,
          "mount /sys and then mount -t bpf bpf /sys/fs/bpf"};
}

Check pins_check(const SystemFacts& facts) {
  if (!facts.pin_root) {
    return {"pins", Severity::kOk, "none: no agent has run, or it has taken them away", {}, {}};
  }
  const SystemFacts::PinRoot& root = *facts.pin_root;
  if (root.uid != 0) {
    return {"pins", Severity::kWarn, fmt::format("{} belongs to uid {}", root.path, root.uid),
            "its owner could take the gate away, so an agent that runs as root pins nothing there",
            fmt::format("rm -r {}", root.path)};
  }
  if ((root.mode & 022U) != 0) {
    return {"pins", Severity::kWarn,
            fmt::format("{} has mode {:04o}: others may write into it", root.path, root.mode),
            "somebody else could take the gate away", fmt::format("chmod 0700 {}", root.path)};
  }
  const std::string found =
      fmt::format("{}: {} {}, {} {}", root.path, root.links, root.links == 1 ? "link" : "links",
                  root.maps, root.maps == 1 ? "map" : "maps");
  if (root.links > 0 && !root.locked) {
    return {"pins", Severity::kWarn, found + " of an agent that has ended",
            "nothing is refused (the leases have run out), but its programs still run",
            fmt::format("start an agent, which adopts them, or remove them: rm -r {}", root.path)};
  }
  return {"pins", Severity::kOk, found + (root.locked ? "; an agent holds them" : ""), {}, {}};
}

Check cgroup_check(const SystemFacts& facts) {
  if (facts.cgroup_mode.empty()) {
    return {"cgroup", Severity::kFail, facts.cgroup_problem, "no target can be measured",
            "mount the cgroup hierarchy, or point --cgroup-root at it"};
  }
  if (!facts.cgroup_v2) {
    return {"cgroup", Severity::kWarn, facts.cgroup_mode,
            "connections in flight cannot be counted (programs are attached to v2 cgroups only), "
            "and there is no PSI for each target",
            "mount a v2 hierarchy beside it: systemd.unified_cgroup_hierarchy=1, or hybrid"};
  }
  return {"cgroup", Severity::kOk, facts.cgroup_mode, {}, {}};
}

Check psi_check(const SystemFacts& facts) {
  const char* costs = "pressure is unknown; the level of CPU and memory still decides";
  switch (facts.psi) {
    case SystemFacts::Psi::kAvailable: return {"psi", Severity::kOk, "available", {}, {}};
    case SystemFacts::Psi::kSwitchedOff:
      return {"psi", Severity::kWarn, "compiled in, switched off", costs,
              "boot with psi=1 (Documentation/accounting/psi.rst)"};
    case SystemFacts::Psi::kMissing: break;
  }
  return {"psi", Severity::kWarn, "not there (no /proc/pressure)", costs,
          "a kernel with CONFIG_PSI"};
}

struct Cause {
  std::string found;
  std::string remedy;
};

/// EPERM of bpf(2) has several causes that look the same (goebpf#45, libbpf-bootstrap#74,
/// ebpf_exporter#330). The first one that the facts support is the one to mend first.
Cause cause_of_eperm(const SystemFacts& facts) {
  if (!may_bpf(facts) || !may_net(facts)) {
    return {"EPERM, for want of a capability",
            facts.root_user ? "give the process CAP_BPF and CAP_NET_ADMIN"
                            : "run as root, or give the process CAP_BPF and CAP_NET_ADMIN"};
  }
  if (memlock_is_short(facts)) {
    return {"EPERM, for RLIMIT_MEMLOCK (kernel below 5.11)",
            "ulimit -l unlimited, or LimitMEMLOCK=infinity in the systemd unit"};
  }
  if (facts.user_namespace) {
    return {"EPERM, for the user namespace: capabilities in it are not those of the host",
            "run in the host's user namespace (not rootless)"};
  }
  if (facts.seccomp.value_or(0) != 0) {
    return {"EPERM, for a seccomp filter: all capabilities are there",
            "allow bpf(2) in the profile, or seccomp=unconfined; Kubernetes: seccompProfile: "
            "Unconfined"};
  }
  return {"EPERM, though capabilities, limits and seccomp allow it: a security module forbids it",
          "look for denials of SELinux or AppArmor in the kernel log"};
}

Check bpf_check(const SystemFacts& facts) {
  const char* costs = "nothing is refused; the agent stays up and observes";
  if (facts.bpf_errno == 0) {
    return {"bpf", Severity::kOk, "a sk_lookup program loads", {}, {}};
  }
  if (facts.bpf_errno == EPERM || facts.bpf_errno == EACCES) {
    Cause cause = cause_of_eperm(facts);
    return {"bpf", Severity::kFail, std::move(cause.found), costs, std::move(cause.remedy)};
  }
  if (facts.bpf_errno == ENOSYS) {
    return {"bpf", Severity::kFail, "ENOSYS: no bpf(2)", costs,
            "a kernel with CONFIG_BPF_SYSCALL, or a seccomp profile that allows bpf(2)"};
  }
  if (facts.bpf_errno == EINVAL) {
    return {"bpf", Severity::kFail, "EINVAL: this kernel knows no sk_lookup", costs,
            "a kernel of 5.10 or newer with CONFIG_NET"};
  }
  return {"bpf", Severity::kFail, web::errno_name(facts.bpf_errno), costs,
          "`headgate run --log.level=debug` shows what the kernel says"};
}

Check seccomp_check(const SystemFacts& facts) {
  if (!facts.seccomp) {
    return {"seccomp", Severity::kOk, "cannot be read", {}, {}};
  }
  const bool blocks = *facts.seccomp != 0 && facts.bpf_errno != 0;
  return {"seccomp", blocks ? Severity::kWarn : Severity::kOk,
          *facts.seccomp == 0 ? "off" : "a filter is in force",
          blocks ? "it may forbid bpf(2)" : "",
          blocks ? "allow bpf(2) in the profile, or seccomp=unconfined" : ""};
}

Check lockdown_check(const SystemFacts& facts) {
  // Confidentiality forbids reading kernel memory (bpf_probe_read*), which no program here does
  // (tetragon#5507, bcc#2565).
  return {"lockdown",
          Severity::kOk,
          facts.lockdown.empty()     ? "not known to this kernel"
          : facts.lockdown == "none" ? "none"
                                     : facts.lockdown + "; it forbids nothing that is used here",
          {},
          {}};
}

Check user_check(const SystemFacts& facts) {
  if (!facts.root_user) {
    return {"user", Severity::kWarn, "not root",
            "these findings are about this user; the agent as root may have more",
            "sudo headgate doctor"};
  }
  return {
      "user", Severity::kOk, facts.user_namespace ? "root of a user namespace" : "root", {}, {}};
}

/// One check a hook: whether this machine can have it, and what its absence costs.
void add_hook_checks(const SystemFacts& facts, std::vector<Check>& checks) {
  struct Hook {
    const char* name;
    std::string missing;  ///< empty = it can be had
    std::string found;
    const char* costs;
    const char* remedy;
  };
  const bool bpf = facts.bpf_errno == 0 && may_bpf(facts) && may_net(facts);
  const auto needs_bpf = [&] { return bpf ? std::string() : std::string("bpf(2) is not allowed"); };
  const auto first = [](std::initializer_list<std::string> reasons) {
    for (const std::string& reason : reasons) {
      if (!reason.empty()) {
        return reason;
      }
    }
    return std::string();
  };
  const std::string no_v2 = facts.cgroup_v2 ? "" : "there is no v2 cgroup tree";
  std::string cards;
  for (const std::string& card : facts.cards) {
    cards += (cards.empty() ? "" : ", ") + card;
  }
  const std::array hooks{
      Hook{"hook sk_lookup", needs_bpf(), "new connections and datagrams can be refused",
           "nothing is refused; the agent stays up and observes",
           "see the checks of bpf and capabilities"},
      Hook{"hook sock_ops", first({needs_bpf(), no_v2}),
           "connections in flight can be counted, requests be seen",
           "connections in flight and live bytes are not known, requests are not seen",
           "mount a v2 hierarchy: systemd.unified_cgroup_hierarchy=1, or hybrid"},
      Hook{
          "hook requests",
          first({needs_bpf(), no_v2,
                 facts.bpf_loop ? "" : "no bpf_loop (Linux 5.17) for programs on connections",
                 facts.btf ? "" : "no BTF",
                 facts.bpffs == SystemFacts::BpfFs::kMounted ? "" : "no bpffs to pin to"}),
          "requests on live connections can be seen; whether they can be refused is tried out when "
          "an agent starts that has routes",
          "routes are not told apart, and refuse: 429, 503 and grpc-exhausted refuse connections "
          "only",
          "a kernel of 6.1 or newer with CONFIG_DEBUG_INFO_BTF, and bpffs on /sys/fs/bpf"},
      Hook{"hook tc", needs_bpf(),
           has_tcx(facts) ? "tcx (Linux 6.6)" : "clsact; tcx needs Linux 6.6",
           "no storm mode: clients that connect again in a hot loop each get a RST",
           "see the checks of bpf and capabilities"},
      Hook{"hook xdp", first({needs_bpf(), facts.cards.empty() ? "no network card here" : ""}),
           "network cards: " + cards,
           "no gate before the network stack; the others work without it",
           "run on the node itself, in the host's network namespace"},
  };
  for (const Hook& hook : hooks) {
    if (hook.missing.empty()) {
      checks.push_back({hook.name, Severity::kOk, hook.found, {}, {}});
    } else {
      // A hook that is opt-in is missed by nobody who has not opted in.
      checks.push_back({hook.name, Severity::kWarn, hook.missing, hook.costs, hook.remedy});
    }
  }
}

void add_foreign_checks(const SystemFacts& facts, std::vector<Check>& checks) {
  if (facts.foreign_errno != 0) {
    checks.push_back({"foreign programs", Severity::kWarn,
                      fmt::format("cannot be listed: {}", web::errno_name(facts.foreign_errno)),
                      "a sk_lookup program of somebody else would not be noticed",
                      "give the process CAP_SYS_ADMIN"});
    return;
  }
  if (facts.foreign.empty()) {
    checks.push_back({"foreign programs", Severity::kOk, "none", {}, {}});
  }
  for (const SystemFacts::ForeignProgram& program : facts.foreign) {
    // The kernel keeps 15 characters of a name; every program of headgate begins so.
    if (program.name.starts_with("headgate_")) {
      checks.push_back(
          {"another agent", Severity::kWarn,
           fmt::format("sk_lookup program '{}' (id {}) in network namespace {} belongs to another "
                       "headgate agent, or was left by one",
                       program.name, program.program_id, program.netns_inode),
           "two gates refuse one after the other, and neither knows of the other",
           fmt::format("run one agent a node with one --pin-root; bpftool prog show id {} names "
                       "its holder",
                       program.program_id)});
      continue;
    }
    // Kernel: run_sk_lookup programs in turn; a redirect of one wins over the drop of another.
    checks.push_back(
        {"foreign programs", Severity::kWarn,
         fmt::format("sk_lookup program '{}' (id {}) in network namespace {}", program.name,
                     program.program_id, program.netns_inode),
         "a connection that it redirects to a socket is not refused, whatever headgate says",
         fmt::format("find its owner: bpftool prog show id {}", program.program_id)});
  }
}

/// Half is a sign that probes and clients cannot be told apart, not a number of attempts that may
/// be chance.
constexpr std::uint64_t kExemptMinimum = 20;

void add_endpoint_checks(const Json& target, const Json& endpoint, std::vector<Check>& checks) {
  const Json& c = member(endpoint, "counters");
  const std::string name = fmt::format("{}/{}", text_of(target, "name"), text_of(endpoint, "name"));
  const std::uint64_t exempt = count_of(c, "admitted_exempt");
  const std::uint64_t refused = count_of(c, "reset") + count_of(c, "expired") +
                                count_of(c, "dropped") + count_of(c, "answered");
  if (exempt > kExemptMinimum && exempt > refused) {
    checks.push_back(
        {"exempt sources", Severity::kWarn,
         fmt::format(
             "{}: {} of {} attempts that the policy speaks against came from exempt sources", name,
             exempt, exempt + refused),
         "most of the excess is let in", "exempt fewer sources, or lower exempt.rate"});
  }
  if (const std::uint64_t beside = count_of(endpoint, "beside_gate"); beside > 0) {
    checks.push_back(
        {"beside the gate", Severity::kWarn,
         fmt::format("{}: {} connections established in the last minute, none of them seen by the "
                     "gate",
                     name, beside),
         "they cannot be refused: something redirects them (a mesh's sidecar, another sk_lookup or "
         "sockmap program)",
         "protect the port that the traffic really comes in by (Istio: 15006)"});
  }
}

void add_agent_checks(const SystemFacts& facts, std::vector<Check>& checks) {
  if (facts.agent_state.empty()) {
    checks.push_back({"agent", Severity::kOk, facts.agent_problem, {}, {}});
    return;
  }
  const Json state = parse_json(facts.agent_state);
  if (!state.is_object()) {
    checks.push_back({"agent", Severity::kWarn, "its answer is not understood",
                      "its findings are not shown here", "use the program of the agent's version"});
    return;
  }
  checks.push_back(
      {"agent", Severity::kOk, fmt::format("running, {}", text_of(state, "version")), {}, {}});
  for (const Json& what : list_of(state, "degraded")) {
    if (what.is_string()) {
      checks.push_back({"agent", Severity::kWarn, what.get<std::string>(),
                        "the agent runs without it", "see the checks above and the agent's log"});
    }
  }
  for (const Json& target : list_of(state, "targets")) {
    for (const Json& endpoint : list_of(target, "endpoints")) {
      add_endpoint_checks(target, endpoint, checks);
    }
  }
}

std::string_view to_word(Severity severity) {
  switch (severity) {
    case Severity::kOk: return "ok";
    case Severity::kWarn: return "warn";
    case Severity::kFail: return "fail";
  }
  return "?";
}

}  // namespace

std::vector<Check> diagnose(const SystemFacts& facts) {
  std::vector<Check> checks{kernel_check(facts), user_check(facts)};
  add_capability_checks(facts, checks);
  checks.push_back(memlock_check(facts));
  checks.push_back(bpf_check(facts));
  checks.push_back(early_check(facts));
  checks.push_back(seccomp_check(facts));
  checks.push_back(lockdown_check(facts));
  checks.push_back(btf_check(facts));
  checks.push_back(bpffs_check(facts));
  checks.push_back(pins_check(facts));
  checks.push_back(cgroup_check(facts));
  checks.push_back(psi_check(facts));
  add_hook_checks(facts, checks);
  add_foreign_checks(facts, checks);
  add_agent_checks(facts, checks);
  return checks;
}

bool has_failed(const std::vector<Check>& checks) {
  return std::any_of(checks.begin(), checks.end(),
                     [](const Check& c) { return c.severity == Severity::kFail; });
}

std::string doctor_text(const std::vector<Check>& checks) {
  std::string text;
  std::array<std::size_t, 3> counts{};
  for (const Check& check : checks) {
    ++counts[static_cast<std::size_t>(check.severity)];
    text +=
        fmt::format("{:<6} {:<20} {}\n", to_word(check.severity), check.name, plain(check.found));
    if (check.severity != Severity::kOk) {
      text += fmt::format("{:27} costs: {}\n{:27} do:    {}\n", "", check.costs, "", check.remedy);
    }
  }
  return text + fmt::format("\n{} ok, {} to look at, {} failed\n", counts[0], counts[1], counts[2]);
}

std::string doctor_json(const std::vector<Check>& checks) {
  Json list = Json::array();
  Severity worst = Severity::kOk;
  for (const Check& check : checks) {
    worst = std::max(worst, check.severity);
    list.push_back({{"name", check.name},
                    {"severity", to_word(check.severity)},
                    {"found", check.found},
                    {"costs", check.costs},
                    {"remedy", check.remedy}});
  }
  return Json{{"schema", 1}, {"worst", to_word(worst)}, {"checks", std::move(list)}}.dump(
      -1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace cli

int run_doctor(const DoctorOptions& options, std::ostream& out, std::ostream& /*err*/) {
  const auto checks = cli::diagnose(cli::look_around(options));
  out << (options.json ? cli::doctor_json(checks) + '\n' : cli::doctor_text(checks));
  return cli::has_failed(checks) ? kExitFailure : kExitOk;
}

}  // namespace headgate
