// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

#include "agent/cli/options.h"

namespace headgate {

/// `headgate doctor`: looks, changes nothing. 1 when something essential fails, else 0.
int run_doctor(const DoctorOptions& options, std::ostream& out, std::ostream& err);

namespace cli {

/// What was found on the machine; each field as it was read, judged by nobody yet.
struct SystemFacts {
  enum class BpfFs : std::uint8_t { kMounted, kOtherFileSystem, kMissing };
  enum class Psi : std::uint8_t { kAvailable, kMissing, kSwitchedOff };
  struct ForeignProgram {
    std::uint32_t netns_inode = 0;
    std::uint32_t program_id = 0;
    std::string name;
  };

  std::string kernel_release;
  bool btf = false;
  bool root_user = false;
  std::optional<std::uint64_t> capabilities;   ///< CapEff of /proc/self/status
  std::optional<int> seccomp;                  ///< 0 off, 1 strict, 2 filter
  bool user_namespace = false;                 ///< not the initial one
  std::optional<std::uint64_t> memlock_bytes;  ///< RLIMIT_MEMLOCK; empty = unlimited
  BpfFs bpffs = BpfFs::kMissing;
  std::string bpffs_type;  ///< what is there instead, where known: "sysfs"
  struct PinRoot {
    std::string path;
    std::uint32_t uid = 0;
    std::uint32_t mode = 0;  ///< permission bits
    std::size_t links = 0;
    std::size_t maps = 0;
    bool locked = false;  ///< an agent holds it
  };
  std::optional<PinRoot> pin_root;  ///< empty: it is not there
  std::string cgroup_mode;
  std::string cgroup_problem;  ///< why the mode is not known
  bool cgroup_v2 = false;      ///< there is a v2 tree, which cgroup programs are attached to
  Psi psi = Psi::kMissing;
  int bpf_errno = 0;               ///< of loading a trivial sk_lookup program; 0 = loaded
  bool bpf_loop = false;           ///< programs on live connections may loop (Linux 5.17)
  std::vector<std::string> cards;  ///< network devices with hardware behind them
  std::string lockdown;            ///< none, integrity, confidentiality; empty = not known
  /// sk_lookup programs that are neither pinned below the pin root nor the running agent's
  std::vector<ForeignProgram> foreign;
  int foreign_errno = 0;      ///< why they could not be listed; 0 = they were
  std::string agent_state;    ///< JSON of a running agent; empty = none answered
  std::string agent_problem;  ///< why none answered
};

struct Check {
  enum class Severity : std::uint8_t { kOk, kWarn, kFail };
  std::string name;
  Severity severity = Severity::kOk;
  std::string found;
  std::string costs;   ///< what does not work; empty where ok
  std::string remedy;  ///< empty where ok
};

/// Reads the machine. Loads one trivial program, attaches it nowhere, and lets it go.
[[nodiscard]] SystemFacts look_around(const DoctorOptions& options);
/// What the facts mean. Pure.
[[nodiscard]] std::vector<Check> diagnose(const SystemFacts& facts);

[[nodiscard]] bool has_failed(const std::vector<Check>& checks);
[[nodiscard]] std::string doctor_text(const std::vector<Check>& checks);
[[nodiscard]] std::string doctor_json(const std::vector<Check>& checks);

}  // namespace cli
}  // namespace headgate
