// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "agent/snapshot.h"

namespace headgate::web {

/// The snapshot in the text format 0.0.4 of Prometheus. Names, labels and their values are an
/// interface. A number that is not known has no series: neither NaN nor a made-up 0. Pure.
[[nodiscard]] std::string to_metrics(const AgentSnapshot& snapshot);

}  // namespace headgate::web
