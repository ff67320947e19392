// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "headgate/params.h"

#include "agent/strategies/adaptive_settings.h"

namespace headgate::adaptive {

[[nodiscard]] std::span<const ParamSpec> parameters();
[[nodiscard]] Settings settings_of(const Params& params);

}  // namespace headgate::adaptive
