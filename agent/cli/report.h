// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <iosfwd>
#include <span>
#include <string>
#include <string_view>

#include "headgate/strategy.h"

#include "agent/cli/options.h"
#include "agent/cli/version.h"

namespace headgate {

/// `headgate report`: what somebody who helps from afar would ask for, as files in a new directory
/// (mode 0700): version, doctor, state, metrics, configuration, and `explain` of the targets. What
/// cannot be had is a line in README.txt, not a failure; 1 where the directory cannot be written.
int run_report(const ReportOptions& options, const BuildInfo& build,
               std::span<const StrategyInfo> strategies, std::ostream& out, std::ostream& err);

namespace cli {

/// The text with what looks like a secret replaced by ***: values of keys that end in password,
/// secret, token, credential, authorization or key in the sense of api_key, and user:password in
/// URLs. Headgate's own configuration has none; what people put into comments may. Pure.
[[nodiscard]] std::string mask_secrets(std::string_view text);

}  // namespace cli
}  // namespace headgate
