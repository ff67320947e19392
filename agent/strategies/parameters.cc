// SPDX-License-Identifier: Apache-2.0
#include "agent/strategies/parameters.h"

#include <algorithm>
#include <cmath>

namespace headgate {
namespace {

const ParamSpec* find_spec(std::span<const ParamSpec> specs, std::string_view name) {
  const auto row = std::find_if(specs.begin(), specs.end(),
                                [&](const ParamSpec& spec) { return spec.name == name; });
  return row == specs.end() ? nullptr : &*row;
}

}  // namespace

double number_of(const Params& params, std::span<const ParamSpec> specs, std::string_view name) {
  const ParamSpec* spec = find_spec(specs, name);
  if (spec == nullptr) return 0;
  const auto given = params.numbers.find(name);
  if (given == params.numbers.end() || !std::isfinite(given->second)) return spec->default_value;
  return std::clamp(given->second, spec->minimum, spec->maximum);
}

std::string_view word_of(const Params& params, std::span<const ParamSpec> specs,
                         std::string_view name) {
  const ParamSpec* spec = find_spec(specs, name);
  if (spec == nullptr) return {};
  const auto given = params.words.find(name);
  if (given == params.words.end()) return spec->default_word;
  const auto word = std::find(spec->words.begin(), spec->words.end(), given->second);
  return word == spec->words.end() ? spec->default_word : *word;
}

std::string check_limits(const Params& params, std::span<const ParamSpec> specs) {
  return number_of(params, specs, "limit_min") > number_of(params, specs, "limit_max")
             ? "limit_max must not be below limit_min"
             : "";
}

}  // namespace headgate
