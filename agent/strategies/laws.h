// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "headgate/strategy.h"

namespace headgate {

/// The row of each law in the registry; defined in the law's own file.
[[nodiscard]] StrategyInfo adaptive_info();
[[nodiscard]] StrategyInfo graded_info();
[[nodiscard]] StrategyInfo curve_info();
[[nodiscard]] StrategyInfo fixed_info();
[[nodiscard]] StrategyInfo token_bucket_info();
[[nodiscard]] StrategyInfo concurrency_info();
[[nodiscard]] StrategyInfo aimd_info();
[[nodiscard]] StrategyInfo bbr_info();
[[nodiscard]] StrategyInfo gradient_info();
[[nodiscard]] StrategyInfo codel_info();
[[nodiscard]] StrategyInfo sre_info();
[[nodiscard]] StrategyInfo scaled_info();
[[nodiscard]] StrategyInfo klimiter_info();
[[nodiscard]] StrategyInfo sentinel_info();
[[nodiscard]] StrategyInfo four_layer_info();
[[nodiscard]] StrategyInfo hybrid_info();

}  // namespace headgate
