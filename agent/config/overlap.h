// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "agent/config/config.h"
#include "agent/config/reader.h"

namespace headgate {

/// Reports two rules that claim one port of one thing (case C12), and names of endpoints that are
/// not unique. `endpoint_paths`: the keys of config.targets[].endpoints[], in the same order.
void check_overlap(Reader& reader, const Config& config,
                   const std::vector<std::vector<std::string>>& endpoint_paths);

}  // namespace headgate
