// SPDX-License-Identifier: Apache-2.0
#include "agent/strategies/registry.h"

#include <algorithm>
#include <array>

#include "agent/strategies/laws.h"

namespace headgate {
namespace {

/// A name that users know and the schema accepts; its law is not built yet.
StrategyInfo later(std::string_view name, std::string_view doc, std::string_view instead) {
  StrategyInfo info;
  info.name = name;
  info.doc = doc;
  info.built = false;
  info.instead = instead;
  return info;
}

}  // namespace

std::span<const StrategyInfo> strategies() {
  static const std::array kTable{
      adaptive_info(),
      graded_info(),
      curve_info(),
      fixed_info(),
      later("bbr", "go-zero's and Kratos' BBR: in flight against best pass rate x best latency",
            "graded"),
      later("aimd", "limit on requests in flight: additive rise, multiplicative fall", "graded"),
      later("gradient", "Netflix Gradient2: in-flight limit from the gradient of the latency",
            "graded"),
      later("codel", "controlled delay: refuses while the standing queue is too old", "graded"),
      later("sre", "Google SRE client throttling: refuses by accepts against requests", "graded"),
      later("four_layer", "in-flight cap, slow start, BBR and latency knee one after the other",
            "graded"),
      later("scaled", "Envoy's scaled trigger: a ramp between two levels", "curve"),
      later("klimiter", "slow loop of small steps with floors", "graded"),
      later("token_bucket", "a fixed number of attempts a second", "fixed"),
      later("concurrency", "a fixed number of connections at once", "fixed"),
      later("sentinel", "Sentinel's system rule: BBR with a CPU threshold", "graded"),
      later("hybrid", "several strategies, first hit in the given order", "graded"),
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
