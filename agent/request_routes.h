// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "headgate/bpf_abi.h"

#include "agent/config/config.h"
#include "agent/dataplane/kernel_maps.h"

namespace headgate {

/// Slots in the kernel of one port and of its requests.
struct RequestSlots {
  std::uint32_t port = 0;
  std::uint32_t rest = 0;
  std::span<const std::uint32_t> routes;  ///< as EndpointConfig::routes
};

/// What the kernel looks requests of this endpoint up in: its routes and the paths that are exempt.
[[nodiscard]] RequestRoutes make_request_routes(const EndpointConfig& endpoint,
                                                std::span<const std::string> exempt_paths,
                                                const RequestSlots& slots);

/// How it looks at them. `may_refuse`: the hook is sound here, and what it refuses for holds.
[[nodiscard]] headgate_request_port make_request_port(const EndpointConfig& endpoint,
                                                      std::uint32_t rest, bool may_refuse,
                                                      std::uint32_t generation);

/// The kernel's form of a refusal.
[[nodiscard]] headgate_action request_action(RefuseForm form);

}  // namespace headgate
