// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "headgate/clock.h"
#include "headgate/params.h"
#include "headgate/strategy.h"

namespace headgate {

/// What a value may look like.
enum class Shape : std::uint8_t {
  kText,      ///< matches `pattern`
  kWord,      ///< one of `words`
  kNumber,    ///< [minimum, maximum]
  kCount,     ///< a whole number, [minimum, maximum]
  kDuration,  ///< [minimum, maximum] in seconds
  kSize,      ///< one of `words`, or bytes in [minimum, maximum]
  kCores,     ///< one of `words`, or cores in [minimum, maximum]
  kPorts,     ///< a port, a range, or a list of them
  kRefuse,    ///< one of `words`, or {defer: DURATION}
  kStrategy,  ///< a name, {name: NAME, ...}, {NAME: {...}} or {hybrid: [...]}
  kMap,
  kList,
};

struct MapSpec;

/// One key of the configuration. These rows are the only place that knows names, ranges and
/// defaults: the checks, their messages and the JSON schema are all made from them.
struct Field {
  std::string_view key;
  Shape shape = Shape::kText;
  std::string_view doc;
  std::string_view fallback{};  ///< the default, as one would write it; empty = none
  bool required = false;
  double minimum = 0;
  double maximum = 0;  ///< kList: most items
  std::span<const std::string_view> words{};
  std::string_view pattern{};      ///< kText: ECMAScript, so that a JSON schema can hold it
  std::string_view allowed{};      ///< kText: the pattern in words
  const MapSpec* map = nullptr;    ///< kMap
  const Field* element = nullptr;  ///< kList
};

/// One mapping of the configuration.
struct MapSpec {
  std::string_view path;  ///< where it stands: "targets[].endpoints[]"
  std::span<const Field> fields;
  bool exactly_one = false;  ///< exactly one of the keys must be given
};

[[nodiscard]] const MapSpec& root_spec();
/// The row of a key; the key must be one of the mapping's.
[[nodiscard]] const Field& field_of(const MapSpec& map, std::string_view key);
/// The same for a parameter of a strategy.
[[nodiscard]] Field field_of(const ParamSpec& param);

// Tables that are looked at by themselves.
extern const MapSpec kMatchSpec;
extern const MapSpec kPodsSpec;
extern const MapSpec kProcessSpec;
extern const MapSpec kTargetSpec;
extern const MapSpec kEndpointSpec;
/// The deadline of {defer: DURATION}.
extern const Field kDeferField;
/// The two numbers of a point of a curve.
extern const Field kPointLevelField;
extern const Field kPointRefuseField;
/// Most points that a curve may have.
inline constexpr std::size_t kMaxPoints = 64;

/// What is allowed, as part of a sentence: "a number from 0 to 1".
[[nodiscard]] std::string allowed_text(const Field& field);

/// One value read by the rule of its row. Which member holds it follows from the shape.
struct Value {
  std::string text;           ///< kText, kWord, or the word of kSize, kCores
  double number = 0;          ///< kNumber, kCores
  std::uint64_t integer = 0;  ///< kCount, kSize
  Duration duration{};        ///< kDuration
  std::string problem;        ///< not empty: not allowed, and why
  std::string nearest;        ///< what was probably meant
  std::string warning;        ///< read, but written in an odd way
};
/// For the shapes kText .. kCores.
[[nodiscard]] Value read_value(const Field& field, std::string_view text);

/// A value of a parameter as one would write it: with its unit.
[[nodiscard]] std::string param_text(const ParamSpec& param, double value);

/// The nearest of `names` to `word`; empty without names. `close` tells whether it is likely what
/// was meant.
struct Nearest {
  std::string_view name;
  bool close = false;
};
[[nodiscard]] Nearest nearest_of(std::string_view word, std::span<const std::string_view> names);
/// The end of a sentence: ", did you mean 'x'?", ", the nearest is 'x'." or just "."
[[nodiscard]] std::string suggestion(const Nearest& nearest);
/// "a, b or c".
[[nodiscard]] std::string join_words(std::span<const std::string_view> words);
/// Text from outside for a message: control characters escaped, cut after 80 characters.
[[nodiscard]] std::string printable(std::string_view text);

}  // namespace headgate
