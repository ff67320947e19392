// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "headgate/hook.h"
#include "headgate/result.h"

#include "agent/base/unique_fd.h"
#include "agent/dataplane/devices.h"
#include "agent/dataplane/kernel_maps.h"
#include "agent/dataplane/programs.h"
#include "agent/dataplane/tc_attachment.h"

namespace headgate {

/// The gate at the network cards: bpf/xdp.bpf.c on the interfaces of the configuration, for what
/// listens in their namespace. Native mode, else generic, else bpf/tc.bpf.c at the ingress of the
/// same interface; each step back is said once, with errno, reason and remedy. A program of
/// somebody else stays where it is. Never on a pod's veth.
class XdpHook {
 public:
  XdpHook(KernelMaps& maps, const PinDirectory& pins) : maps_(maps), pins_(pins) {}

  /// The namespace of the interfaces: the host's.
  void set_host(UniqueFd netns, std::uint32_t inode) {
    host_ = std::move(netns);
    netns_ = inode;
  }
  /// From now on exactly these interfaces; "auto" = those that a default route leads through.
  /// Errors stand in status() and in the log.
  void use(const std::vector<std::string>& interfaces);
  /// Now and then: interfaces that were not there may have come, and those that have gone may be
  /// back. What could not be attached is not tried again.
  void refresh();
  void detach_all();

  /// Some interface has a program: what listens in `netns` is judged before the socket.
  [[nodiscard]] bool serves(std::uint32_t netns) const;
  [[nodiscard]] std::vector<HookStatus> status() const;
  [[nodiscard]] const std::map<int, std::uint64_t>& attach_errors() const { return attach_errors_; }
  void add_pin_names(std::vector<std::string>& names) const;
  /// As TcHook::remove_orphans(), for filters that stood in for XDP.
  [[nodiscard]] std::size_t remove_orphans() const;

 private:
  struct Interface {
    std::string name;
    int ifindex = 0;  ///< 0: it is not there
    std::string mode = "off";
    LoadedProgram program;
    Link link;
    std::optional<TcAttachment> tc;
    Error problem;  ///< the latest step back, or why it is off
    [[nodiscard]] bool attached() const { return link.attached() || tc.has_value(); }
  };
  void attach(Interface& interface, const std::vector<Device>& all);
  [[nodiscard]] Result<> attach_xdp(Interface& interface, Program program, std::string_view mode,
                                    std::uint32_t flags);
  [[nodiscard]] Result<> attach_tc(Interface& interface);
  void step_back(Interface& interface, const Error& why, std::string_view from,
                 std::string_view to);
  void detach(Interface& interface);
  [[nodiscard]] std::vector<Device> look() const;
  [[nodiscard]] std::vector<std::string> names(const std::vector<Device>& all) const;

  KernelMaps& maps_;
  const PinDirectory& pins_;
  UniqueFd host_;
  std::uint32_t netns_ = 0;
  std::vector<std::string> wanted_;
  std::map<std::string, Interface> interfaces_;
  std::map<int, std::uint64_t> attach_errors_;
};

}  // namespace headgate
