// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <iosfwd>

#include "agent/cli/options.h"

namespace headgate {

/// `headgate simulate`: scenarios against strategies in a simulated pod, as a table, CSV, JSON or a
/// plot. Needs no agent, no kernel and no rights.
int run_simulate(const SimulateOptions& options, std::ostream& out, std::ostream& err);

}  // namespace headgate
