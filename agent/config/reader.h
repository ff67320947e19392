// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "agent/config/load.h"
#include "agent/config/schema.h"
#include "agent/config/yaml_tree.h"

namespace headgate {

/// A mapping whose keys have been checked against its rows.
struct Map {
  const MapSpec* spec = nullptr;
  std::string path;
  Place place;
  std::map<std::string_view, const YamlNode*> values;

  [[nodiscard]] const YamlNode* find(std::string_view key) const {
    const auto it = values.find(key);
    return it == values.end() ? nullptr : it->second;
  }
  [[nodiscard]] std::string path_of(std::string_view key) const {
    return path.empty() ? std::string(key) : fmt::format("{}.{}", path, key);
  }
  [[nodiscard]] Place place_of(std::string_view key) const {
    const YamlNode* node = find(key);
    return node != nullptr ? node->place : place;
  }
};

/// Reads values by the rules of their rows and reports everything that is wrong with its place.
class Reader {
 public:
  Reader(const std::string& file, std::vector<Problem>& problems)
      : file_(file), problems_(problems) {}

  void error(Place place, std::string key, std::string value, std::string message,
             std::string nearest = {}) {
    add(Problem::Severity::kError, place, std::move(key), std::move(value), std::move(message),
        std::move(nearest));
  }
  void warn(Place place, std::string key, std::string value, std::string message) {
    add(Problem::Severity::kWarning, place, std::move(key), std::move(value), std::move(message));
  }
  /// Enough has been reported: nothing more is kept.
  [[nodiscard]] bool full() const;
  /// A list where a mapping is due, and the like.
  void wrong_kind(const YamlNode& node, const std::string& path, const std::string& allowed);

  /// Keys and values of a mapping: duplicates and keys that are not among `names` are reported and
  /// left out. `what`: what the names are, for the message.
  [[nodiscard]] std::map<std::string_view, const YamlNode*> keys(
      const YamlNode& node, const std::string& path, std::span<const std::string_view> names,
      std::string_view what = "Allowed here");
  /// A mapping by its rows; nothing where it is none.
  [[nodiscard]] std::optional<Map> map(const YamlNode& node, std::string path, const MapSpec& spec);
  /// The mapping at a key of another; nothing where the key is not there.
  [[nodiscard]] std::optional<Map> map(const Map& parent, std::string_view key);
  /// The items of a list; nothing where the key is not there.
  [[nodiscard]] const std::vector<YamlNode>* list(const Map& parent, std::string_view key);
  [[nodiscard]] std::optional<Value> value(const YamlNode& node, const std::string& path,
                                           const Field& field);
  [[nodiscard]] std::optional<Value> value(const Map& parent, std::string_view key);
  /// The items of a list of single values that are valid.
  struct Item {
    Value value;
    const YamlNode* node = nullptr;
    std::string path;
  };
  [[nodiscard]] std::vector<Item> values(const Map& parent, std::string_view key);

  // Each leaves `out` alone where the key is not there; false = the value is not valid.
  bool number(const Map& parent, std::string_view key, double& out);
  bool share(const Map& parent, std::string_view key, Probability& out);
  bool duration(const Map& parent, std::string_view key, Duration& out);
  bool text(const Map& parent, std::string_view key, std::string& out);

 private:
  void add(Problem::Severity severity, Place place, std::string key, std::string value,
           std::string message, std::string nearest = {});

  const std::string& file_;
  std::vector<Problem>& problems_;
};

/// What a problem shows as the value: scalars as written, of others the kind.
[[nodiscard]] std::string value_text(const YamlNode& node);
/// "a list", "a mapping", ...
[[nodiscard]] std::string_view kind_text(const YamlNode& node);

}  // namespace headgate
