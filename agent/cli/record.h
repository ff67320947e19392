// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <iosfwd>

#include "agent/cli/options.h"

namespace headgate {

/// `headgate record`: writes a trace of one target of the running agent, until the time is over or
/// SIGINT or SIGTERM comes. What has been written by then is a whole trace.
int run_record(const RecordOptions& options, std::ostream& out, std::ostream& err);

}  // namespace headgate
