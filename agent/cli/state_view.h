// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "headgate/result.h"

#include "agent/cli/table.h"

namespace headgate::cli {

/// What `status` and `top` show of the agent's state (agent/web/state_json.h).
struct EndpointView {
  std::string name;
  std::string port;  ///< "4317/grpc"; of a route its path
  double offered_per_s = 0;
  double admitted_per_s = 0;
  double refused_per_s = 0;   ///< attempts answered by reset, drop, 429, or after waiting in vain
  double deferred_per_s = 0;  ///< attempts asked to come again
  std::optional<double> in_flight;
  std::optional<double> admit_ratio;
  bool counted_only = false;  ///< requests that are not refused here
  std::string reason;
};
struct TargetView {
  std::string name;
  std::string instance;
  bool present = false;
  std::string absent_why;
  std::string state;
  std::string mode;
  std::string why;
  std::optional<double> cpu_fast;
  std::optional<double> memory;
  bool lease_valid = false;
  double waiting = 0;
  std::vector<EndpointView> endpoints;
  std::vector<std::string> notes;
};
struct StateView {
  std::string title;               ///< one line about the agent
  std::vector<std::string> notes;  ///< what a person should know, most important first
  std::vector<TargetView> targets;
};

/// Errors: not the state of an agent, or of a schema that this program does not know. `now_unix_ms`
/// is when it was received: the agent makes its state once a second, and a loop that hangs makes
/// none, so its age is shown. 0 = not known.
[[nodiscard]] Result<StateView> parse_state(std::string_view state_json,
                                            std::int64_t now_unix_ms = 0);

/// The table of `status` and `top`. `width` 0 = as wide as need be.
[[nodiscard]] std::string render(const StateView& view, std::size_t width, bool color);

}  // namespace headgate::cli
