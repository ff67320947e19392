// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <iosfwd>

#include "agent/cli/options.h"

namespace headgate {

/// `headgate status`: the state of the running agent as a table, or the JSON that the agent gives.
int run_status(const StatusOptions& options, std::ostream& out, std::ostream& err);

}  // namespace headgate
