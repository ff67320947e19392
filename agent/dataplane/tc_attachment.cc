// SPDX-License-Identifier: Apache-2.0
#include "agent/dataplane/tc_attachment.h"

#include <fcntl.h>
#include <linux/netlink.h>
#include <linux/pkt_cls.h>
#include <linux/pkt_sched.h>
#include <linux/rtnetlink.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <vector>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <fmt/format.h>

#include "agent/dataplane/devices.h"
#include "agent/dataplane/net.h"
#include "agent/dataplane/netlink.h"

namespace headgate {
namespace {

/// Behind those who have asked for an early place (they take 1 and count up).
constexpr std::uint32_t kFirstPriority = 0x4847;  // "HG"
constexpr std::uint32_t kPriorities = 8;
/// The handle says whether the clsact was there before us, so that a later agent knows it too.
constexpr std::uint32_t kInTheirClsact = 1;
constexpr std::uint32_t kInOurClsact = 2;

bpf_tc_hook hook_of(int ifindex, TcSide side) {
  bpf_tc_hook hook{};
  hook.sz = sizeof(hook);
  hook.ifindex = ifindex;
  hook.attach_point = side == TcSide::kEgress ? BPF_TC_EGRESS : BPF_TC_INGRESS;
  return hook;
}

bpf_tc_opts options_of(std::uint32_t priority, std::uint32_t handle) {
  bpf_tc_opts options{};
  options.sz = sizeof(options);
  options.priority = priority;
  options.handle = handle;
  return options;
}

struct Filter {
  std::uint32_t priority = 0;
  std::uint32_t handle = 0;
  std::uint32_t program_id = 0;
};

/// What filters hang there, of everybody. Without a clsact there are none.
std::vector<Filter> filters(int ifindex, TcSide side) {
  std::vector<Filter> out;
  auto socket = NetlinkSocket::open(NETLINK_ROUTE, 0);
  if (!socket) {
    return out;
  }
  tcmsg request{};
  request.tcm_ifindex = ifindex;
  request.tcm_parent =
      TC_H_MAKE(TC_H_CLSACT, side == TcSide::kEgress ? TC_H_MIN_EGRESS : TC_H_MIN_INGRESS);
  (void)socket->dump(
      RTM_GETTFILTER, std::as_bytes(std::span(&request, 1)), [&] { out.clear(); },
      [&](const NetlinkMessage& message) {
        const auto header = front_as<tcmsg>(message.payload);
        if (message.type != RTM_NEWTFILTER || !header) {
          return;
        }
        Filter filter{TC_H_MAJ(header->tcm_info) >> 16U, header->tcm_handle, 0};
        for_each_attribute(message.payload, sizeof(tcmsg), [&](std::uint16_t type, Bytes value) {
          if (type == TCA_OPTIONS) {
            for_each_attribute(value, 0, [&](std::uint16_t inner, Bytes id) {
              if (inner == TCA_BPF_ID) {
                filter.program_id = front_as<std::uint32_t>(id).value_or(0);
              }
            });
          }
        });
        out.push_back(filter);
      });
  return out;
}

bool ours(const Filter& filter) {
  return filter.priority >= kFirstPriority && filter.priority < kFirstPriority + kPriorities &&
         (filter.handle == kInTheirClsact || filter.handle == kInOurClsact) &&
         filter.program_id != 0 && program_name(filter.program_id).starts_with("headgate_tc");
}

std::optional<Filter> our_filter(int ifindex, TcSide side) {
  for (const Filter& filter : filters(ifindex, side)) {
    if (ours(filter)) {
      return filter;
    }
  }
  return std::nullopt;
}

void remove(int ifindex, TcSide side, const Filter& filter) {
  bpf_tc_hook hook = hook_of(ifindex, side);
  const bpf_tc_opts options = options_of(filter.priority, filter.handle);
  (void)::bpf_tc_detach(&hook, &options);
  if (filter.handle != kInOurClsact) {
    return;
  }
  // Empty chains have a line of their own, without a handle.
  for (const TcSide each : {TcSide::kEgress, TcSide::kIngress}) {
    for (const Filter& left : filters(ifindex, each)) {
      if (left.handle != 0) {
        return;  // somebody uses it now
      }
    }
  }
  hook.attach_point = static_cast<bpf_tc_attach_point>(BPF_TC_INGRESS | BPF_TC_EGRESS);
  (void)::bpf_tc_hook_destroy(&hook);
}

}  // namespace

Result<TcAttachment> TcAttachment::attach(const LoadedProgram& program, int netns_fd, int ifindex,
                                          TcSide side, const PinDirectory& pins,
                                          const std::string& pin_name, Way way) {
  TcAttachment out;
  out.netns_ = UniqueFd(::fcntl(netns_fd, F_DUPFD_CLOEXEC, 0));
  out.ifindex_ = ifindex;
  out.side_ = side;
  const auto done = run_in_netns(netns_fd, [&]() -> Result<> {
    if (way == Way::kBest) {
      auto link = Link::attach(program, ifindex, side == TcSide::kEgress ? kTcxEgress : kTcxIngress,
                               static_cast<std::uint64_t>(ifindex), pins, pin_name);
      if (link) {
        out.adopted_ = link->adopted();
        out.link_ = std::move(*link);
        (void)remove_tc_filter(ifindex, side);  // of an agent before, on an older kernel
        return {};
      }
      if (link.error().sys_errno != EINVAL) {  // EINVAL: there is no tcx before 6.6
        return tl::unexpected<Error>(link.error());
      }
    }
    return out.attach_filter(program);
  });
  if (!done) {
    return tl::unexpected<Error>(done.error());
  }
  return out;
}

Result<> TcAttachment::attach_filter(const LoadedProgram& program) {
  bpf_tc_hook hook = hook_of(ifindex_, side_);
  const auto before = our_filter(ifindex_, side_);
  if (before) {
    priority_ = before->priority;
    handle_ = before->handle;
    adopted_ = true;
  } else {
    const int created = ::bpf_tc_hook_create(&hook);
    if (created != 0 && created != -EEXIST) {
      return sys_fail(-created, fmt::format("make a clsact qdisc on device {}", ifindex_));
    }
    handle_ = created == 0 ? kInOurClsact : kInTheirClsact;
    const std::vector<Filter> others = filters(ifindex_, side_);
    const auto taken = [&](std::uint32_t priority) {
      return std::any_of(others.begin(), others.end(),
                         [&](const Filter& other) { return other.priority == priority; });
    };
    for (priority_ = kFirstPriority; taken(priority_); ++priority_) {
      if (priority_ + 1 == kFirstPriority + kPriorities) {
        priority_ = 0;
        return sys_fail(EBUSY,
                        fmt::format("device {}: filters of others stand at priorities {} "
                                    "to {}",
                                    ifindex_, kFirstPriority, kFirstPriority + kPriorities - 1));
      }
    }
  }
  bpf_tc_opts options = options_of(priority_, handle_);
  options.prog_fd = program.fd.get();
  options.flags = adopted_ ? static_cast<__u32>(BPF_TC_F_REPLACE) : 0U;
  if (const int err = ::bpf_tc_attach(&hook, &options); err != 0) {
    return sys_fail(-err, fmt::format("attach a filter to device {}", ifindex_));
  }
  return {};
}

void TcAttachment::detach() {
  if (link_.attached()) {
    link_.detach();
  } else if (priority_ != 0) {
    (void)run_in_netns(netns_.get(), [&]() -> Result<> {
      remove(ifindex_, side_, {priority_, handle_, 0});
      return {};
    });
  }
  priority_ = 0;
}

bool remove_tc_filter(int ifindex, TcSide side) {
  const auto filter = our_filter(ifindex, side);
  if (filter) {
    remove(ifindex, side, *filter);
  }
  return filter.has_value();
}

std::size_t remove_tc_orphans(int netns_fd, TcSide side, const std::set<int>& keep) {
  std::size_t removed = 0;
  (void)run_in_netns(netns_fd, [&]() -> Result<> {
    const auto all = devices();
    if (!all) {
      return tl::unexpected<Error>(all.error());
    }
    for (const Device& device : *all) {
      if (keep.count(device.ifindex) == 0 && remove_tc_filter(device.ifindex, side)) {
        ++removed;
      }
    }
    return {};
  });
  return removed;
}

}  // namespace headgate
