// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "headgate/strategy.h"

namespace headgate {

/// The row of each law in the registry; defined in the law's own file.
[[nodiscard]] StrategyInfo adaptive_info();
[[nodiscard]] StrategyInfo graded_info();
[[nodiscard]] StrategyInfo curve_info();
[[nodiscard]] StrategyInfo fixed_info();

}  // namespace headgate
