// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "headgate/result.h"

namespace headgate {

/// The error's text with what to do about it: an errno of bpf(2) alone tells nobody anything.
[[nodiscard]] std::string with_remedy(const Error& error);

}  // namespace headgate
