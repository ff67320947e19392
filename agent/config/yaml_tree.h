// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "agent/config/config.h"
#include "agent/config/load.h"

namespace headgate {

struct YamlPair;

/// A YAML text as a tree in which nothing is lost: each value has its place, and a mapping keeps
/// every pair in the order of the text, duplicates too (a loader that fills a map hides them, case
/// C08).
struct YamlNode {
  /// kBad: has been reported as a problem already; its reader says nothing more.
  enum class Kind { kNull, kScalar, kMap, kList, kBad };
  Kind kind = Kind::kNull;
  Place place;
  std::string text;             ///< of a scalar, as written (quotes removed)
  std::vector<YamlPair> pairs;  ///< of a mapping
  std::vector<YamlNode> items;  ///< of a list
};
struct YamlPair {
  YamlNode key;
  YamlNode value;
};

/// Parses exactly one document. What the configuration has no use for is a problem with a place:
/// anchors, aliases, merge keys, tags, several documents, keys that are no scalars, nesting beyond
/// 32 levels, text that is not UTF-8, more than 1 MiB. An empty text gives a null node and no
/// problem; nothing at all is returned where the text cannot be read to its end.
[[nodiscard]] std::optional<YamlNode> parse_yaml(std::string_view text, const std::string& file,
                                                 std::vector<Problem>& problems);

}  // namespace headgate
