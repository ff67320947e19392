// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "headgate/clock.h"
#include "headgate/result.h"

#include "agent/dataplane/net.h"

namespace headgate {

/// The listening sockets of a namespace, read once for all targets in it: on a plain host 250
/// targets with three ports each would else dump the same table 1500 times in five seconds.
class ListenerTable {
 public:
  static constexpr Duration kGoodFor = std::chrono::seconds(1);

  /// Listeners on `port`. `netns`: inode number of the namespace that `diag` looks into. A failed
  /// dump is not kept: the next caller tries again.
  [[nodiscard]] Result<std::vector<Listener>> on_port(Instant now, SockDiag& diag,
                                                      std::uint32_t netns, std::uint8_t protocol,
                                                      std::uint16_t port);

 private:
  struct Table {
    Instant read_at{};
    std::multimap<std::uint16_t, Listener> by_port;
  };
  std::map<std::pair<std::uint32_t, std::uint8_t>, Table> tables_;
};

}  // namespace headgate
