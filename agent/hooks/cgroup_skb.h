// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "headgate/result.h"

#include "agent/hooks/cgroup_programs.h"

namespace headgate {

/// Sees the payload that targets receive and when they answer (bpf/cgroup_ingress.bpf.c and
/// bpf/cgroup_egress.bpf.c on the target's v2 cgroup): live bytes, the largest request, bytes of
/// datagrams. Needs sock_ops on the same target, which marks its connections. Runs for every packet
/// of the cgroup, hence never on the root.
class CgroupSkbHook : public CgroupPrograms {
 public:
  CgroupSkbHook(KernelMaps& maps, const PinDirectory& pins, std::string unified_root)
      : CgroupPrograms("cgroup_skb", maps, pins, std::move(unified_root)) {}

  /// Attaches both programs to the target's cgroup. `target`: its slot. `http2`: false = requests
  /// of HTTP/2 are not looked at there, which spares the verifier most of its work. Errors: no v2
  /// tree, no process of the target in it, no right.
  [[nodiscard]] Result<> hold(std::uint32_t target, const std::string& cgroup_path,
                              std::uint32_t netns, bool http2 = true);
};

}  // namespace headgate
