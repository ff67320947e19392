// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>

namespace headgate {

/// What a law has learned, as bytes for Strategy::save(); the agent that reads them again runs on
/// the same machine. T begins with a version.
template <class T>
[[nodiscard]] std::size_t save_model(std::span<std::byte> out, const T& model) {
  static_assert(std::is_trivially_copyable_v<T>);
  if (out.size() < sizeof model) return 0;
  std::memcpy(out.data(), &model, sizeof model);
  return sizeof model;
}

/// False = too short or of another version; `model` is then not to be used.
template <class T>
[[nodiscard]] bool load_model(std::span<const std::byte> data, std::uint64_t version, T& model) {
  static_assert(std::is_trivially_copyable_v<T>);
  if (data.size() < sizeof model) return false;
  std::memcpy(&model, data.data(), sizeof model);
  return model.version == version;
}

}  // namespace headgate
