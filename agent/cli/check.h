// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <iosfwd>
#include <span>
#include <string>

#include "headgate/strategy.h"

#include "agent/cli/options.h"
#include "agent/config/load.h"

namespace headgate {

/// `headgate check`: 0 valid, 2 not valid, 1 the running agent could not be asked (--diff).
int run_check(const CheckOptions& options, std::span<const StrategyInfo> strategies,
              std::ostream& out, std::ostream& err);

namespace cli {

/// Problems with their places, then what the configuration protects and which stock senders lose
/// data with the chosen forms of refusal. Pure.
[[nodiscard]] std::string check_text(const LoadedConfig& loaded, const std::string& file);

/// {schema, valid, problems: [..], targets: [..]} on one line; `difference` (lines of diff()) is
/// added as "diff" where given. Pure.
[[nodiscard]] std::string check_json(const LoadedConfig& loaded, const std::string* difference);

}  // namespace cli
}  // namespace headgate
