// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <iosfwd>

#include "headgate/result.h"

#include "agent/cli/options.h"

namespace headgate {

/// Stores the kill switch in the pinned map below `pin_root`, without an agent.
using PinnedSwitch = std::function<Result<void>(const std::string& pin_root, bool off)>;

/// `headgate off` and `headgate on`. The running agent is asked; where none listens, `pinned`
/// (where given) reaches the cell in the kernel: the gate may be shut by a policy whose agent has
/// died.
int run_switch(const SwitchOptions& options, std::ostream& out, std::ostream& err,
               const PinnedSwitch& pinned = {});

}  // namespace headgate
