// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string_view>

#include "headgate/strategy.h"

namespace headgate {

/// Every strategy that the configuration may name, in the order in which `--help` shows them. A
/// plain table: self-registering globals vanish from static libraries.
[[nodiscard]] std::span<const StrategyInfo> strategies();

/// nullptr = no such strategy.
[[nodiscard]] const StrategyInfo* find_strategy(std::string_view name);

inline constexpr std::string_view kDefaultStrategy = "adaptive";

}  // namespace headgate
