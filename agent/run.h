// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <iosfwd>

#include "agent/cli/options.h"

namespace headgate {

/// `headgate run`: the agent with its web server and control socket, until SIGTERM. Returns the
/// exit status: 0 stopped in order, 1 failed, 2 bad flags or an invalid configuration.
int run_agent(const RunOptions& options, std::ostream& out, std::ostream& err);

}  // namespace headgate
