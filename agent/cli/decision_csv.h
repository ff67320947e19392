// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <iosfwd>

#include "agent/sim/simulate.h"

namespace headgate::cli {

/// Decisions as CSV in the columns of the control law's reference vectors: what was seen, what was
/// made of it (empty where the strategy has no such number), and the share that is admitted.
void print_decision_header(std::size_t endpoints, std::ostream& out);
void print_decision(const sim::TickRecord& tick, std::ostream& out);

/// The share that a tick admits of one endpoint, whatever it is enforced by, in [0, 1].
[[nodiscard]] double admitted_share(const sim::TickRecord& tick, std::size_t endpoint);

}  // namespace headgate::cli
