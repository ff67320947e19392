// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>

#include "headgate/result.h"

#include "deploy/demo/collector.h"
#include "deploy/demo/loadgen.h"
#include "deploy/demo/results.h"
#include "deploy/demo/subject.h"

namespace headgate::demo {

/// Requests of so many units for the collector's address, from all clients' addresses.
[[nodiscard]] LoadTarget load_target(const Subject& subject, const Limits& limits,
                                     std::size_t light, std::size_t heavy);

/// Runs `load` in a child in the clients' namespace and group; errors go to load.log.
[[nodiscard]] Result<Child> start_load(const Groups& groups, const Network& network,
                                       const std::string& work_directory,
                                       const std::function<Result<>()>& load);

/// Finds out what the collector can do, with a collector of its own (about 15 s):
/// * closed loop, more clients than it can serve: is the quota reached at all?
/// * open loop at about 60 % of that: the CPU of a request as requests come in the runs. (A server
///   that never idles is cheaper by a fifth to a third, so the closed loop would promise too much.)
/// * closed loop with large requests: which size costs four times as much.
[[nodiscard]] Result<Calibration> calibrate(const Subject& subject, const Groups& groups,
                                            const Limits& limits, std::uint64_t seed,
                                            const std::string& work_directory);

}  // namespace headgate::demo
