// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "headgate/result.h"

namespace headgate {

/// The error's text with what to do about it: an errno of bpf(2) alone tells nobody anything.
[[nodiscard]] std::string with_remedy(const Error& error);

/// Why no hook can be had at all: the maps could not be made.
[[nodiscard]] Error no_maps();

}  // namespace headgate
