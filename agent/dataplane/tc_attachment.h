// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>

#include "headgate/result.h"

#include "agent/base/unique_fd.h"
#include "agent/dataplane/bpffs.h"
#include "agent/dataplane/programs.h"

namespace headgate {

enum class TcSide : std::uint8_t { kEgress, kIngress };

/// A program of ours at tc of one device: by a tcx link (kernel 6.6), else by a filter of a clsact
/// qdisc. After kill -9 the link is found by its pin, the filter by its priority, handle and the
/// name of its program, and either is replaced in one step, so that there is never more than one.
/// Filters and qdiscs of others are left alone; a clsact that we have made goes when it is empty.
class TcAttachment {
 public:
  enum class Way : std::uint8_t { kBest, kClsact };

  TcAttachment() = default;
  /// `netns_fd`: the namespace of the device. `way`: kClsact leaves out tcx.
  [[nodiscard]] static Result<TcAttachment> attach(const LoadedProgram& program, int netns_fd,
                                                   int ifindex, TcSide side,
                                                   const PinDirectory& pins,
                                                   const std::string& pin_name,
                                                   Way way = Way::kBest);
  /// Takes it away. The destructor leaves it in force: for the next agent.
  void detach();
  [[nodiscard]] bool adopted() const { return adopted_; }
  [[nodiscard]] std::string_view mechanism() const { return link_.attached() ? "tcx" : "clsact"; }

 private:
  [[nodiscard]] Result<> attach_filter(const LoadedProgram& program);

  Link link_;
  UniqueFd netns_;
  int ifindex_ = 0;
  TcSide side_ = TcSide::kEgress;
  std::uint32_t priority_ = 0;  ///< of the filter; 0 = there is none
  std::uint32_t handle_ = 0;
  bool adopted_ = false;
};

/// Detaches the filter of ours that a dead agent has left at `side` of a device, if there is one.
/// In the namespace of the calling thread. True: there was one.
bool remove_tc_filter(int ifindex, TcSide side);
/// The same for all devices of a namespace but `keep`. Returns how many there were.
std::size_t remove_tc_orphans(int netns_fd, TcSide side, const std::set<int>& keep);

}  // namespace headgate
