// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <iosfwd>

#include "agent/cli/options.h"

namespace headgate {

/// `headgate top`: the table of `status` once a second. In a terminal it is redrawn in place until
/// q or Ctrl-C, and the terminal is left as it was found; elsewhere one table follows another until
/// a signal. An agent that goes away while it is watched is waited for.
int run_top(const TopOptions& options, std::ostream& out, std::ostream& err);

}  // namespace headgate
