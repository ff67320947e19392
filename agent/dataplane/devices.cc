// SPDX-License-Identifier: Apache-2.0
#include "agent/dataplane/devices.h"

#include <linux/if_link.h>
#include <linux/net_namespace.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>

#include <algorithm>
#include <array>
#include <set>

#include "agent/dataplane/net.h"
#include "agent/dataplane/netlink.h"

namespace headgate {
namespace {

std::string text_of(Bytes value) {
  const auto* begin = reinterpret_cast<const char*>(value.data());  // NOLINT: bytes of a name
  return {begin, std::find(begin, begin + value.size(), '\0')};
}

Device device_of(const ifinfomsg& header, Bytes payload) {
  Device out;
  out.ifindex = header.ifi_index;
  for_each_attribute(payload, sizeof(ifinfomsg), [&](std::uint16_t type, Bytes value) {
    switch (type) {
      case IFLA_IFNAME: out.name = text_of(value); break;
      case IFLA_LINK: out.peer_ifindex = front_as<int>(value).value_or(0); break;
      case IFLA_LINK_NETNSID: out.peer_namespace = front_as<int>(value); break;
      case IFLA_LINKINFO:
        for_each_attribute(value, 0, [&](std::uint16_t inner, Bytes text) {
          if (inner == IFLA_INFO_KIND) {
            out.kind = text_of(text);
          }
        });
        break;
      default: break;
    }
  });
  return out;
}

/// Devices that default routes lead through, of both families.
Result<std::set<int>> default_routes(NetlinkSocket& socket) {
  std::set<int> out;
  const rtmsg request{};
  const Result<> done = socket.dump(
      RTM_GETROUTE, std::as_bytes(std::span(&request, 1)), [&] { out.clear(); },
      [&](const NetlinkMessage& message) {
        const auto header = front_as<rtmsg>(message.payload);
        if (message.type != RTM_NEWROUTE || !header || header->rtm_dst_len != 0 ||
            header->rtm_type != RTN_UNICAST) {
          return;
        }
        for_each_attribute(message.payload, sizeof(rtmsg), [&](std::uint16_t type, Bytes value) {
          if (const auto ifindex = front_as<int>(value); type == RTA_OIF && ifindex) {
            out.insert(*ifindex);
          }
        });
      });
  if (!done) {
    return tl::unexpected<Error>(done.error());
  }
  return out;
}

}  // namespace

Result<std::vector<Device>> devices() {
  auto socket = NetlinkSocket::open(NETLINK_ROUTE, 0);
  if (!socket) {
    return tl::unexpected<Error>(socket.error());
  }
  const auto routes = default_routes(*socket);
  if (!routes) {
    return tl::unexpected<Error>(routes.error());
  }
  std::vector<Device> out;
  const ifinfomsg request{};
  const Result<> done = socket->dump(
      RTM_GETLINK, std::as_bytes(std::span(&request, 1)), [&] { out.clear(); },
      [&](const NetlinkMessage& message) {
        const auto header = front_as<ifinfomsg>(message.payload);
        if (message.type == RTM_NEWLINK && header) {
          out.push_back(device_of(*header, message.payload));
          out.back().is_default_route = routes->count(header->ifi_index) != 0;
        }
      });
  if (!done) {
    return tl::unexpected<Error>(done.error());
  }
  return out;
}

Result<std::optional<int>> namespace_id(int netns_fd) {
  auto socket = NetlinkSocket::open(NETLINK_ROUTE, 0);
  if (!socket) {
    return tl::unexpected<Error>(socket.error());
  }
  struct Request {
    rtgenmsg header{};
    std::array<std::uint8_t, 3> padding{};
    nlattr attribute{sizeof(nlattr) + sizeof(int), NETNSA_FD};
    int fd = -1;
  } request;
  static_assert(sizeof(Request) == 12);
  request.fd = netns_fd;
  std::optional<int> out;
  const Result<> done = socket->ask(
      RTM_GETNSID, std::as_bytes(std::span(&request, 1)), [&](const NetlinkMessage& message) {
        for_each_attribute(message.payload, sizeof(rtgenmsg), [&](std::uint16_t type, Bytes value) {
          if (const auto id = front_as<int>(value); type == NETNSA_NSID && id && *id >= 0) {
            out = id;
          }
        });
      });
  if (!done) {
    return tl::unexpected<Error>(done.error());
  }
  return out;
}

Result<std::vector<HostEnd>> host_ends(int pod_fd, int host_fd) {
  std::vector<Device> inside;
  std::optional<int> host_id;
  auto looked = run_in_netns(pod_fd, [&]() -> Result<> {
    auto all = devices();
    auto id = namespace_id(host_fd);
    if (!all || !id) {
      return tl::unexpected<Error>(!all ? all.error() : id.error());
    }
    inside = std::move(*all);
    host_id = *id;
    return {};
  });
  if (!looked) {
    return tl::unexpected<Error>(looked.error());
  }
  std::vector<HostEnd> out;
  for (const Device& device : inside) {
    if (device.kind == "veth" && host_id && device.peer_namespace == host_id) {
      out.push_back({device.name, "", device.peer_ifindex});
    }
  }
  if (out.empty()) {
    return out;
  }
  looked = run_in_netns(host_fd, [&]() -> Result<> {
    const auto all = devices();
    if (!all) {
      return tl::unexpected<Error>(all.error());
    }
    for (HostEnd& end : out) {
      for (const Device& device : *all) {
        end.device = device.ifindex == end.ifindex ? device.name : end.device;
      }
    }
    return {};
  });
  if (!looked) {
    return tl::unexpected<Error>(looked.error());
  }
  return out;
}

}  // namespace headgate
