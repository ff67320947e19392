// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "headgate/params.h"

namespace headgate {

/// The value given for `name`, or the default of its row in `specs`. What is not a number or out of
/// the row's range is brought into it: the configuration has refused such a value with its line,
/// and a law must be sound whoever builds it.
[[nodiscard]] double number_of(const Params& params, std::span<const ParamSpec> specs,
                               std::string_view name);

/// The same for a word; what is not in the row's list is its default.
[[nodiscard]] std::string_view word_of(const Params& params, std::span<const ParamSpec> specs,
                                       std::string_view name);

/// For StrategyInfo::check of a law with limit_min and limit_max: a sentence where they are the
/// wrong way round.
[[nodiscard]] std::string check_limits(const Params& params, std::span<const ParamSpec> specs);

}  // namespace headgate
