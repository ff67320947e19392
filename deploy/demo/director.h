// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "headgate/result.h"

#include "deploy/demo/results.h"
#include "deploy/demo/subject.h"

namespace headgate::demo {

struct Options {
  std::string
      headgate;  ///< the agent's binary; may be empty when only the unprotected run is asked
  bool run_unprotected = true;
  bool run_protected = true;
  double seconds_scale = 1;
  std::uint64_t seed = 1;
  Protection protection;
  Traffic traffic = Traffic::kConnections;
  std::string work_directory;  ///< logs, configuration; exists
  Limits limits;
};

struct Outcomes {
  Calibration calibration;
  std::optional<Run> unprotected;
  std::optional<Run> with_headgate;
  std::string subject_title;
  std::string machine;  ///< kernel, CPUs, cgroup layout
};

/// Calibrates, then does the runs that were asked for, and shows them as they go. Whatever it made
/// on the machine is gone when it returns.
[[nodiscard]] Result<Outcomes> direct(const Subject& subject, const Options& options);

}  // namespace headgate::demo
