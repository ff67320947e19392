// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "headgate/strategy.h"

#include "agent/config/config.h"

namespace headgate {

// Rules that the file and the command line share.

/// The form of a refusal when none is given: reset for tcp and udp, auto for http and grpc.
[[nodiscard]] RefuseForm default_refuse(Protocol protocol);
/// "grpc-4317".
[[nodiscard]] std::string default_endpoint_name(Protocol protocol, std::uint16_t port);
/// For a path that begins with /sys/fs/cgroup, where the path below the cgroup root is due: that
/// path. Else nothing.
[[nodiscard]] std::optional<std::string> below_cgroup_mount(std::string_view path);
/// Writes the defaults of the table into what was not given, so that the effective configuration
/// shows them. A strategy that is not in the table is left alone.
void set_default_params(StrategyConfig& strategy, std::span<const StrategyInfo> strategies);

}  // namespace headgate
