// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <nlohmann/json.hpp>

namespace headgate::cli {

// Reading what another program wrote, without exceptions: a key that is not there, or of another
// type, is as good as unknown, because an agent of another version must still be shown.
using Json = nlohmann::ordered_json;

/// null where the text is no JSON.
[[nodiscard]] inline Json parse_json(std::string_view text) {
  Json value = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  return value.is_discarded() ? Json(nullptr) : value;
}
[[nodiscard]] inline std::string to_text(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

[[nodiscard]] inline const Json& member(const Json& object, const char* key) {
  static const Json kNull;
  if (!object.is_object()) {
    return kNull;
  }
  const auto it = object.find(key);
  return it == object.end() ? kNull : *it;
}
[[nodiscard]] inline std::string text_of(const Json& object, const char* key) {
  const Json& value = member(object, key);
  return value.is_string() ? value.get<std::string>() : std::string();
}
[[nodiscard]] inline std::optional<double> number_of(const Json& object, const char* key) {
  const Json& value = member(object, key);
  return value.is_number() ? std::optional(value.get<double>()) : std::nullopt;
}
[[nodiscard]] inline std::uint64_t count_of(const Json& object, const char* key) {
  const Json& value = member(object, key);
  return value.is_number_unsigned() ? value.get<std::uint64_t>() : 0;
}
[[nodiscard]] inline bool flag_of(const Json& object, const char* key) {
  const Json& value = member(object, key);
  return value.is_boolean() && value.get<bool>();
}
/// An empty array where there is none.
[[nodiscard]] inline const Json& list_of(const Json& object, const char* key) {
  static const Json kEmpty = Json::array();
  const Json& value = member(object, key);
  return value.is_array() ? value : kEmpty;
}

}  // namespace headgate::cli
