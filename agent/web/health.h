// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "agent/snapshot.h"

namespace headgate::web {

/// One line of /readyz?verbose.
struct HealthCheck {
  enum class Outcome : std::uint8_t { kOk, kDegraded, kFailed };
  std::string name;
  Outcome outcome = Outcome::kOk;
  std::string detail;
};

/// Is the agent ready? Failed: no valid configuration yet, no hook tried yet, no sample yet. What
/// is degraded stays ready: the agent does what it can. A target that is overloaded, or absent, is
/// none of the agent's health and never appears. `snapshot` may be null (before the first tick).
/// An agent in standby is ready: it waits for another's lock, as it should.
[[nodiscard]] std::vector<HealthCheck> readiness(const AgentSnapshot* snapshot);

[[nodiscard]] bool is_ready(const std::vector<HealthCheck>& checks);

/// The form of kube-apiserver: "[+]config ok", "[-]sample failed: ...", "[!]hooks degraded: ...".
/// Not verbose: "ok", or the failed lines only.
[[nodiscard]] std::string to_text(const std::vector<HealthCheck>& checks, bool verbose);

}  // namespace headgate::web
