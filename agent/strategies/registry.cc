// SPDX-License-Identifier: Apache-2.0
#include "agent/strategies/registry.h"

#include <algorithm>
#include <array>

#include "agent/strategies/laws.h"

namespace headgate {

std::span<const StrategyInfo> strategies() {
  static const std::array kTable{
      adaptive_info(),     graded_info(),      curve_info(),    fixed_info(),
      bbr_info(),          aimd_info(),        gradient_info(), codel_info(),
      sre_info(),          four_layer_info(),  scaled_info(),   klimiter_info(),
      token_bucket_info(), concurrency_info(), sentinel_info(), hybrid_info(),
  };
  return kTable;
}

const StrategyInfo* find_strategy(std::string_view name) {
  const auto table = strategies();
  const auto row = std::find_if(table.begin(), table.end(),
                                [&](const StrategyInfo& info) { return info.name == name; });
  return row == table.end() ? nullptr : &*row;
}

}  // namespace headgate
