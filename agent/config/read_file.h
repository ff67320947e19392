// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "headgate/result.h"

namespace headgate {

/// The whole content of a file, at most one byte more than 1 MiB (so that a reader can say "too
/// long"). `pipes`: a pipe is read to its end, too (`check --config <(helm template ...)`); else
/// only a regular file is, so that nothing can block.
[[nodiscard]] Result<std::string> read_small_file(const std::string& path, bool pipes = false);

}  // namespace headgate
