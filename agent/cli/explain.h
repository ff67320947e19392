// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <iosfwd>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "headgate/sample.h"
#include "headgate/strategy.h"

#include "agent/cgroup/sampler.h"
#include "agent/cli/options.h"

namespace headgate {

/// `headgate explain TARGET`: 1 where the target cannot be found or read. With --json one object a
/// line, one for each cgroup that the target matches.
int run_explain(const ExplainOptions& options, std::span<const StrategyInfo> strategies,
                std::ostream& out, std::ostream& err);

namespace cli {

/// What is known of one target: gathered first, printed by pure functions.
struct Explanation {
  std::string target;                                      ///< as asked for
  std::string cgroup_path;                                 ///< below the cgroup root
  std::string cgroup_mode;                                 ///< v1, v2, hybrid
  std::vector<std::pair<std::string, std::string>> paths;  ///< controller -> directory
  Sample sample;                                           ///< the last one
  Measured<double> usage_cores;
  Measured<double> throttled_ratio;
  Measured<double> psi_some_ratio;
  std::vector<FileRead> files;
  std::vector<std::string> warnings;
  std::string agent_target;   ///< JSON of the running agent about it; empty = none
  std::string agent_problem;  ///< why there is none
};

/// One line for each file that bears on a limit: what its text says in cores or bytes. The result
/// is the smallest of them. Pure.
[[nodiscard]] std::vector<std::string> derive_limits(const std::vector<FileRead>& files);

[[nodiscard]] std::string explain_text(const Explanation& explanation);
[[nodiscard]] std::string explain_json(const Explanation& explanation);

/// Rates between two samples of the same cgroup. Pure.
void measure(const Sample& before, const Sample& after, Explanation& explanation);

}  // namespace cli
}  // namespace headgate
