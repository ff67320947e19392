// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "headgate/hook.h"
#include "headgate/result.h"

#include "agent/dataplane/kernel_maps.h"
#include "agent/dataplane/programs.h"

namespace headgate {

/// Sees requests on live connections (bpf/sk_skb.bpf.c on the SOCKHASH headgate_streams, with its
/// stages) and refuses them. One for the agent: sock_ops of each target adds the connections.
///
/// A socket keeps the program that it was given when it connected, and loses data when it leaves
/// the map. So the map and the stages are pinned, sockets are never taken out, and what is to
/// change is changed in the stages, which are reached by tail call.
class RequestsHook {
 public:
  RequestsHook(KernelMaps& maps, const PinDirectory& pins, std::string unified_root)
      : maps_(maps), pins_(pins), unified_root_(std::move(unified_root)) {}

  /// Loads, replaces the stages of an agent before, and tries the whole out on a connection of its
  /// own: where this kernel's sockmap is not sound, requests are seen and never refused. Errors: no
  /// pins, no v2 tree, no bpf_loop, no BTF, no right; then nothing is seen either.
  [[nodiscard]] Result<> attach();
  [[nodiscard]] bool sees() const { return sees_; }
  [[nodiscard]] bool refuses() const { return refuses_; }
  /// For headgate_request_port: another one whenever routes change.
  [[nodiscard]] std::uint32_t next_generation() { return ++generation_; }

  [[nodiscard]] HookStatus status() const;
  [[nodiscard]] const std::map<int, std::uint64_t>& attach_errors() const { return attach_errors_; }

 private:
  [[nodiscard]] Result<> attach_programs();
  [[nodiscard]] Result<> set_stage(std::uint32_t stage, Program program);

  KernelMaps& maps_;
  const PinDirectory& pins_;
  std::string unified_root_;
  bool sees_ = false;
  bool refuses_ = false;
  std::uint32_t generation_ = 0;
  std::uint32_t program_id_ = 0;
  Error failed_;         ///< why requests are not seen
  std::string unsound_;  ///< why they are not refused
  std::map<int, std::uint64_t> attach_errors_;
};

}  // namespace headgate
