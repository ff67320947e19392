// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "agent/snapshot.h"

namespace headgate::web {

/// Version of the layout below; raised when a key changes its meaning or goes away.
inline constexpr int kStateSchema = 1;

/// The whole snapshot as one JSON object on one line: /api/v1/state, `headgate status --json`, and
/// what the verbs read from the socket. A number that is not known is null and its reason stands in
/// the target's "unknown": [{"signal", "reason"}]. Pure.
[[nodiscard]] std::string to_state_json(const AgentSnapshot& snapshot);

/// What was found for each target, and where: /debug/targets. Indented, for people.
[[nodiscard]] std::string to_targets_json(const AgentSnapshot& snapshot);

/// The last transitions of one target, or of all (empty name): /debug/decisions. Empty optional =
/// no target of that name.
[[nodiscard]] std::optional<std::string> to_decisions_json(const AgentSnapshot& snapshot,
                                                           std::string_view target);

}  // namespace headgate::web
