// SPDX-License-Identifier: Apache-2.0
#include "agent/hooks/xdp.h"

#include <linux/bpf.h>
#include <linux/if_link.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include <bpf/libbpf.h>
#include <fmt/format.h>

#include "agent/base/log.h"
#include "agent/dataplane/net.h"
#include "agent/hooks/remedy.h"

namespace headgate {
namespace {

constexpr std::string_view kAuto = "auto";

std::string xdp_pin(int ifindex) { return fmt::format("xdp-{}", ifindex); }
std::string tc_pin(int ifindex) { return fmt::format("xdp_tc-{}", ifindex); }

/// Errnos of XDP mean what drivers mean by them.
Error explained(const Error& error, std::string_view mode) {
  const char* remedy = nullptr;
  switch (error.sys_errno) {
    case EOPNOTSUPP:
      remedy = mode == "native"
                   ? "the driver has no native XDP, or not together with what is switched on: LRO "
                     "(disable it first: ethtool -K INTERFACE lro off) or an MTU above one page "
                     "(needs a driver with xdp.frags)"
                   : "the interface takes no generic XDP: disable LRO first (ethtool -K INTERFACE "
                     "lro off)";
      break;
    case EINVAL:
    case ERANGE:
      remedy =
          "the MTU is too large for XDP in this driver: a frame must fit into one page (3498 "
          "bytes or less is safe); headgate never changes it";
      break;
    case EBUSY:
    case EEXIST:
      remedy = "another XDP program is attached; it stays, and headgate does not force";
      break;
    case ENOMEM:
    case ENOSPC:
      remedy =
          "the card has too few free queues or too little memory for XDP: ethtool -L "
          "INTERFACE combined N with a smaller N";
      break;
    default: return {with_remedy(error), error.sys_errno};
  }
  return {fmt::format("{} ({})", error.message, remedy), error.sys_errno};
}

struct Present {
  std::uint32_t program_id = 0;
  bool generic = false;
};

/// What XDP program is on an interface, by whomever.
Present present_on(int ifindex) {
  bpf_xdp_query_opts options{};
  options.sz = sizeof(options);
  if (::bpf_xdp_query(ifindex, 0, &options) != 0) {
    return {};
  }
  return {options.prog_id != 0       ? options.prog_id
          : options.drv_prog_id != 0 ? options.drv_prog_id
                                     : options.skb_prog_id,
          options.attach_mode == XDP_ATTACHED_SKB};
}

std::string list_of(const std::vector<Device>& all) {
  std::string out;
  for (const Device& device : all) {
    out += fmt::format("{}{}{}", out.empty() ? "" : ", ", device.name,
                       device.is_default_route ? " (default route)" : "");
  }
  return out;
}

}  // namespace

std::vector<Device> XdpHook::look() const {
  std::vector<Device> out;
  (void)run_in_netns(host_.get(), [&]() -> Result<> {
    auto all = devices();
    if (all) {
      out = std::move(*all);
    }
    return {};
  });
  return out;
}

std::vector<std::string> XdpHook::names(const std::vector<Device>& all) const {
  std::vector<std::string> out;
  for (const std::string& name : wanted_) {
    if (name != kAuto) {
      out.push_back(name);
      continue;
    }
    for (const Device& device : all) {
      if (device.is_default_route) {
        out.push_back(device.name);
      }
    }
  }
  return out;
}

void XdpHook::use(const std::vector<std::string>& interfaces) {
  wanted_ = interfaces;
  if (!wanted_.empty() || !interfaces_.empty()) {
    refresh();
  }
}

void XdpHook::refresh() {
  if (wanted_.empty() && interfaces_.empty()) {
    return;
  }
  const std::vector<Device> all = look();
  const std::vector<std::string> now = names(all);
  for (auto it = interfaces_.begin(); it != interfaces_.end();) {
    Interface& interface = it->second;
    const auto device = std::find_if(all.begin(), all.end(),
                                     [&](const Device& d) { return d.name == interface.name; });
    const bool wanted = std::find(now.begin(), now.end(), interface.name) != now.end();
    const bool same =
        device != all.end() ? device->ifindex == interface.ifindex : interface.ifindex == 0;
    if (wanted && same) {
      ++it;
      continue;
    }
    detach(interface);
    it = interfaces_.erase(it);
  }
  for (const std::string& name : now) {
    if (interfaces_.count(name) == 0) {
      Interface interface;
      interface.name = name;
      attach(interface, all);
      interfaces_.emplace(name, std::move(interface));
    }
  }
}

void XdpHook::step_back(Interface& interface, const Error& why, std::string_view from,
                        std::string_view to) {
  ++attach_errors_[why.sys_errno];
  interface.problem = why;
  log::warn("xdp steps back", {{"interface", interface.name},
                               {"from", from},
                               {"to", to},
                               {"errno", why.sys_errno},
                               {"reason", why.message}});
}

/// Native, generic, tc, off: the first that can be had.
void XdpHook::attach(Interface& interface, const std::vector<Device>& all) {
  const auto off = [&](const Error& why, std::string_view from = "") {
    step_back(interface, why, from, "off");
  };
  if (maps_.is_detached()) {
    return off(no_maps());
  }
  if (!host_) {
    return off(
        {"the host's network namespace cannot be entered: needs its processes (hostPID) and "
         "CAP_SYS_ADMIN",
         EPERM});
  }
  const auto device = std::find_if(all.begin(), all.end(),
                                   [&](const Device& d) { return d.name == interface.name; });
  if (device == all.end()) {
    return off({fmt::format("there is no interface '{}' in the host's network namespace; there "
                            "are: {}",
                            interface.name, list_of(all)),
                ENODEV});
  }
  interface.ifindex = device->ifindex;
  if (device->kind == "veth" && !device->is_default_route) {
    return off({fmt::format("{} is a pod's veth: XDP there ends segmentation offload towards the "
                            "pod (downloads at a ninth); name the interface that traffic comes in "
                            "by, or leave xdp out: the pod's own gate sees all of it",
                            interface.name),
                EINVAL});
  }
  std::string_view from = "native";
  (void)run_in_netns(host_.get(), [&]() -> Result<> {
    const Present present = present_on(interface.ifindex);
    const std::uint32_t own = Link::pinned_program(
        BPF_XDP, static_cast<std::uint64_t>(interface.ifindex), pins_, xdp_pin(interface.ifindex));
    if (present.program_id != 0 && present.program_id != own) {
      step_back(interface,
                explained({fmt::format("XDP program {} '{}' is on {}", present.program_id,
                                       program_name(present.program_id), interface.name),
                           EBUSY},
                          "native"),
                "native", "tc");
      return {};
    }
    // A link that is there already keeps its mode.
    if (present.program_id == 0 || !present.generic) {
      auto native = attach_xdp(interface, Program::kXdpNative, "native", XDP_FLAGS_DRV_MODE);
      if (native) {
        return {};
      }
      step_back(interface, explained(native.error(), "native"), "native", "generic");
      from = "generic";
    }
    auto generic = attach_xdp(interface, Program::kXdpGeneric, "generic", XDP_FLAGS_SKB_MODE);
    if (!generic) {
      step_back(interface, explained(generic.error(), "generic"), "generic", "tc");
    }
    return {};
  });
  if (interface.attached()) {
    (void)run_in_netns(host_.get(), [&]() -> Result<> {
      (void)remove_tc_filter(interface.ifindex, TcSide::kIngress);  // it stood in for this
      return {};
    });
  } else if (auto tc = attach_tc(interface); !tc) {
    off({with_remedy(tc.error()), tc.error().sys_errno}, "tc");
  }
  log::info("xdp", {{"interface", interface.name}, {"mode", interface.mode}});
}

Result<> XdpHook::attach_xdp(Interface& interface, Program program, std::string_view mode,
                             std::uint32_t flags) {
  auto loaded = load_program(program, {netns_, 0}, maps_);
  if (!loaded) {
    return tl::unexpected<Error>(loaded.error());
  }
  auto link = Link::attach(*loaded, interface.ifindex, BPF_XDP,
                           static_cast<std::uint64_t>(interface.ifindex), pins_,
                           xdp_pin(interface.ifindex), flags);
  if (!link) {
    return tl::unexpected<Error>(link.error());
  }
  interface.link = std::move(*link);
  interface.program = std::move(*loaded);
  interface.program.fd.reset();
  interface.mode = mode;
  return {};
}

Result<> XdpHook::attach_tc(Interface& interface) {
  auto loaded = load_program(Program::kTcIngress, {netns_, 0}, maps_);
  if (!loaded) {
    return tl::unexpected<Error>(loaded.error());
  }
  auto tc = TcAttachment::attach(*loaded, host_.get(), interface.ifindex, TcSide::kIngress, pins_,
                                 tc_pin(interface.ifindex));
  if (!tc) {
    return tl::unexpected<Error>(tc.error());
  }
  interface.tc = std::move(*tc);
  interface.program = std::move(*loaded);
  interface.program.fd.reset();
  interface.mode = "tc";
  return {};
}

void XdpHook::detach(Interface& interface) {
  interface.link.detach();
  if (interface.tc) {
    interface.tc->detach();
  }
}

void XdpHook::detach_all() {
  for (auto& [name, interface] : interfaces_) {
    detach(interface);
  }
  interfaces_.clear();
  wanted_.clear();
}

bool XdpHook::serves(std::uint32_t netns) const {
  return netns == netns_ && std::any_of(interfaces_.begin(), interfaces_.end(),
                                        [](const auto& entry) { return entry.second.attached(); });
}

std::vector<HookStatus> XdpHook::status() const {
  std::vector<HookStatus> out;
  for (const auto& [name, interface] : interfaces_) {
    HookStatus status;
    status.hook = "xdp";
    status.where = name;
    status.mode = interface.mode;
    status.variant = interface.program.variant;
    status.program_id = interface.program.id;
    status.sys_errno = interface.problem.sys_errno;
    status.problem = interface.problem.message;
    out.push_back(std::move(status));
  }
  return out;
}

void XdpHook::add_pin_names(std::vector<std::string>& names) const {
  for (const auto& [name, interface] : interfaces_) {
    if (interface.attached()) {
      names.push_back(interface.tc ? tc_pin(interface.ifindex) : xdp_pin(interface.ifindex));
    }
  }
}

std::size_t XdpHook::remove_orphans() const {
  std::set<int> held;
  for (const auto& [name, interface] : interfaces_) {
    if (interface.tc) {
      held.insert(interface.ifindex);
    }
  }
  return host_ ? remove_tc_orphans(host_.get(), TcSide::kIngress, held) : 0;
}

}  // namespace headgate
