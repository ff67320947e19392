// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "headgate/params.h"
#include "headgate/result.h"

#include "agent/sim/guard.h"
#include "agent/sim/scenario.h"
#include "agent/sim/strategy_guard.h"

namespace headgate::sim {

/// What is tried: a strategy of the registry, one of its published forms under its published name,
/// or a baseline.
struct Contender {
  std::string name;
  std::function<std::unique_ptr<Guard>(const Scenario&)> make;
};

struct ContenderOptions {
  double target = 0.9;
  /// The form in which the published vectors and figures were recorded, where a strategy has it.
  bool spec_profile = false;
  /// NAME=VALUE: parameters of the strategies, as in the configuration.
  std::vector<std::string> params{};
  /// What stands between the strategy and the pod; `target` above wins over the one in it.
  StrategyGuard::Options guard{};
};

struct ContenderDoc {
  std::string name;
  std::string doc;
};
/// All names, in the order in which they are shown.
[[nodiscard]] std::vector<ContenderDoc> contender_docs();

/// `names`: as many as wanted; "all" = everything that is built. Errors name the nearest name, the
/// parameter that no contender has, or what a parameter may be.
[[nodiscard]] Result<std::vector<Contender>> find_contenders(const std::vector<std::string>& names,
                                                             const ContenderOptions& options);

}  // namespace headgate::sim
