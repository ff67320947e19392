// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "headgate/result.h"

#include "agent/base/unique_fd.h"
#include "agent/dataplane/bpffs.h"
#include "agent/dataplane/kernel_maps.h"

namespace headgate {

enum class Program : std::uint8_t {
  kSkLookup,
  kSockOps,
  kIngress,
  kEgress,
  kNodeConnects,
  kStreamEntry,  ///< on the map of live connections; calls the stages below
  kStreamHttp1,
  kStreamHttp2,
  kTcEgress,    ///< on the host's end of a pod's veth
  kTcIngress,   ///< on a network card
  kXdpNative,   ///< in the driver
  kXdpGeneric,  ///< behind it, on socket buffers
};

/// A program in the kernel. Only the fd is kept: the object file's copy in memory is gone, because
/// there is one instance for each network namespace and target.
struct LoadedProgram {
  UniqueFd fd;
  std::uint32_t id = 0;
  std::string variant;  ///< "atomic" or "spin_lock"
};

/// What one instance of a program is for.
struct Serves {
  std::uint32_t netns_id = 0;  ///< inode of the network namespace; 0 = all
  std::uint32_t target = 0;    ///< slot, on a cgroup: it counts what belongs to this one only
  bool http2 = false;          ///< it looks at what servers of HTTP/2 send
};

/// Loads one instance over the shared maps. Where the kernel has no BPF atomics (< 5.12) the
/// variant with a spin lock is taken; which one works is found out once. Errors carry errno and the
/// end of the verifier's log.
[[nodiscard]] Result<LoadedProgram> load_program(Program program, const Serves& serves,
                                                 const KernelMaps& maps);

/// A program attached to a network namespace, cgroup or device by a BPF link.
class Link {
 public:
  Link() = default;

  /// Attaches `program`, or, where `pin_name` is pinned already and still hangs on the same thing,
  /// updates that link in place (no gap, never two of ours). `goal_id`: inode of the namespace or
  /// of the cgroup, or the index of the device (which is `goal_fd` then: call in its namespace), to
  /// recognise a zombie. `flags`: XDP_FLAGS_*. Unpinned directories: attaches only.
  [[nodiscard]] static Result<Link> attach(const LoadedProgram& program, int goal_fd,
                                           int attach_type, std::uint64_t goal_id,
                                           const PinDirectory& pins, const std::string& pin_name,
                                           std::uint32_t flags = 0);
  /// Id of the program of a link that is pinned and hangs on `goal_id`; 0 = there is none.
  [[nodiscard]] static std::uint32_t pinned_program(int attach_type, std::uint64_t goal_id,
                                                    const PinDirectory& pins,
                                                    const std::string& pin_name);
  /// Detaches and unpins. The destructor only closes: a pinned link stays in force.
  void detach();
  [[nodiscard]] bool attached() const { return fd_.valid(); }
  [[nodiscard]] bool adopted() const { return adopted_; }
  [[nodiscard]] const std::string& pin_path() const { return pin_path_; }

 private:
  UniqueFd fd_;
  std::string pin_path_;
  bool adopted_ = false;
};

/// attach_type of bpf_link_create() that the headers of Debian 12 do not have (kernel 6.6).
inline constexpr int kTcxIngress = 46;
inline constexpr int kTcxEgress = 47;

/// A program that is attached somewhere.
struct AttachedProgram {
  std::uint32_t id = 0;
  std::string name;  ///< empty where it may not be known (needs CAP_SYS_ADMIN)
};

/// What is attached to a network namespace for BPF_SK_LOOKUP, by whomever; nothing where it cannot
/// be asked.
[[nodiscard]] std::vector<AttachedProgram> sk_lookup_programs(int netns_fd);

/// Name of a program by its id; empty where it is gone or may not be known.
[[nodiscard]] std::string program_name(std::uint32_t id);

/// From now on libbpf's own words go to the log (debug), not to stderr.
void route_libbpf_log();

/// Removes pinned links whose names are not in `keep`: they belong to targets that are gone.
/// Returns how many.
std::size_t remove_orphan_links(const PinDirectory& pins, const std::vector<std::string>& keep);

}  // namespace headgate
