// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>

#include "headgate/strategy.h"

#include "agent/config/config.h"
#include "agent/config/reader.h"

namespace headgate {

/// The value of `strategy:` by the table of strategies: NAME, {name: NAME, PARAMETER: VALUE, ...},
/// {NAME: {PARAMETER: VALUE, ...}} or {hybrid: [NAME, ...]}. Parameters that are not given get the
/// defaults of the table.
void read_strategy(Reader& reader, std::span<const StrategyInfo> strategies, const YamlNode& node,
                   const std::string& path, StrategyConfig& out);

/// Whether what the strategy judges by is seen on the target's endpoints. After all else of it.
void check_strategy_sees(Reader& reader, std::span<const StrategyInfo> strategies,
                         const std::string& path, const TargetConfig& target);

}  // namespace headgate
