// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <iosfwd>

#include "agent/cli/options.h"

namespace headgate {

/// `headgate replay`: decides again on a recorded trace, with the strategy of then or another one.
/// Needs no agent, no kernel and no rights. The arrivals of the trace meet the kernel's verdict
/// with what was decided, but what the target did stands: this shows decisions, not their
/// consequences.
int run_replay(const ReplayOptions& options, std::ostream& out, std::ostream& err);

}  // namespace headgate
