// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "headgate/result.h"

namespace headgate {

/// A network device, as rtnetlink(7) tells of it in the namespace of the calling thread.
struct Device {
  int ifindex = 0;
  std::string name;
  std::string kind;                   ///< "veth", "bridge", ...; empty = a card
  int peer_ifindex = 0;               ///< IFLA_LINK: of a veth the other end; 0 = none
  std::optional<int> peer_namespace;  ///< by which id; none = this one
  bool is_default_route = false;      ///< a default route leads through it
};
[[nodiscard]] Result<std::vector<Device>> devices();

/// By which id the namespace of the calling thread knows another one (RTM_GETNSID); none = it has
/// no name for it, and so no device with its other end in there.
[[nodiscard]] Result<std::optional<int>> namespace_id(int netns_fd);

/// The other ends, in one namespace, of the veths of another: where what enters a pod comes
/// through.
struct HostEnd {
  std::string pod_device;
  std::string device;
  int ifindex = 0;
};
/// `pod_fd`: the namespace whose veths are meant; `host_fd`: where their other ends are looked for.
/// Empty: there are none there.
[[nodiscard]] Result<std::vector<HostEnd>> host_ends(int pod_fd, int host_fd);

}  // namespace headgate
