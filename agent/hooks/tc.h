// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "headgate/hook.h"
#include "headgate/result.h"

#include "agent/base/unique_fd.h"
#include "agent/dataplane/kernel_maps.h"
#include "agent/dataplane/programs.h"
#include "agent/dataplane/tc_attachment.h"
#include "agent/hooks/holders.h"

namespace headgate {

/// The gate at tc: one instance of bpf/tc.bpf.c for a pod's network namespace, at the egress of the
/// host's ends of its veths. Needed where a refusal is to be silence (`refuse: drop`, storm mode);
/// sk_lookup stays behind it for what comes another way. Attached while somebody holds it.
class TcHook {
 public:
  TcHook(KernelMaps& maps, const PinDirectory& pins,
         TcAttachment::Way way = TcAttachment::Way::kBest)
      : maps_(maps), pins_(pins), way_(way) {}

  /// In which namespace the other ends of pods' veths are looked for: the host's. The agent's own,
  /// which may be another one, is looked in, too.
  void set_host(UniqueFd netns) { host_ = std::move(netns); }

  /// Attaches for the pod's namespace (inode, fd), or replaces what an agent before has attached.
  /// Errors: no veth whose other end is the host's, no right, no clsact.
  [[nodiscard]] Result<> hold(std::uint32_t netns, int netns_fd);
  /// One holder less; the last one detaches.
  void release(std::uint32_t netns);
  void detach_all();

  /// It is attached there, or nobody has tried in vain.
  [[nodiscard]] bool may_serve(std::uint32_t netns) const;
  [[nodiscard]] HookStatus status(std::uint32_t netns) const;
  [[nodiscard]] const std::map<int, std::uint64_t>& attach_errors() const {
    return instances_.attach_errors();
  }
  void add_pin_names(std::vector<std::string>& names) const;
  /// Takes away filters that a dead agent has left for pods that nobody holds. Links are found by
  /// their pins.
  [[nodiscard]] std::size_t remove_orphans() const;

 private:
  struct End {
    int ifindex = 0;
    std::string pin_name;
    TcAttachment attachment;
  };
  struct Instance {
    std::string where;
    LoadedProgram program;
    std::vector<End> ends;
  };
  [[nodiscard]] Result<Instance> attach(std::uint32_t netns, int netns_fd) const;

  KernelMaps& maps_;
  const PinDirectory& pins_;
  TcAttachment::Way way_;
  UniqueFd host_;
  static void detach(Instance& instance);
  Holders<Instance> instances_;
};

}  // namespace headgate
