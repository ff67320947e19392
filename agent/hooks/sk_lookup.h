// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "headgate/hook.h"
#include "headgate/result.h"

#include "agent/dataplane/kernel_maps.h"
#include "agent/dataplane/net.h"
#include "agent/dataplane/programs.h"
#include "agent/hooks/holders.h"

namespace headgate {

/// The default gate: one instance of bpf/sk_lookup.bpf.c for each network namespace that holds a
/// target, shared by the targets in it. Attached while somebody holds the namespace.
class SkLookupHook {
 public:
  SkLookupHook(KernelMaps& maps, const PinDirectory& pins) : maps_(maps), pins_(pins) {}

  /// Attaches to the namespace (inode, fd), or adopts the link that is pinned for it; counts the
  /// holders. Errors: the program does not load, no right to attach.
  [[nodiscard]] Result<> hold(std::uint32_t netns, int netns_fd);
  /// Looks for sk_lookup programs of others in the namespace: another agent whose pins are
  /// elsewhere refuses beside this one, a foreign redirect passes it by. Returns what is to be said
  /// about them, empty = none; it stands in problems() until the next look.
  const std::string& look_for_others(std::uint32_t netns, int netns_fd);
  /// One text a namespace in which others are.
  [[nodiscard]] std::vector<std::string> problems() const;
  /// Opens the namespace's pit, if it has none: needed before the first deferral.
  [[nodiscard]] Result<> open_pit(std::uint32_t netns, int netns_fd);
  /// One holder less; the last one detaches and closes the pit.
  void release(std::uint32_t netns);
  /// Detaches everything (mode off, purge).
  void detach_all();

  [[nodiscard]] HookStatus status(std::uint32_t netns) const;
  [[nodiscard]] bool has_pit(std::uint32_t netns) const;
  /// Attaches that failed since the start, by errno.
  [[nodiscard]] const std::map<int, std::uint64_t>& attach_errors() const {
    return instances_.attach_errors();
  }
  /// Pin names of what is held: everything else of this hook is an orphan.
  void add_pin_names(std::vector<std::string>& names) const;

 private:
  struct Instance {
    LoadedProgram program;
    Link link;
    std::unique_ptr<Pit> pit;
    std::string others;  ///< what look_for_others() has found
  };
  KernelMaps& maps_;
  const PinDirectory& pins_;
  void detach(std::uint32_t netns, Instance& instance);
  Holders<Instance> instances_;
};

}  // namespace headgate
