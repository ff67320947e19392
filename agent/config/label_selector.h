// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "headgate/result.h"

namespace headgate {

using Labels = std::map<std::string, std::string, std::less<>>;

/// A label selector in Kubernetes' own grammar, as `kubectl get pods -l` takes it
/// (k8s.io/apimachinery/pkg/labels): requirements with ',' between them, all of which must hold:
///
///   KEY=VALUE  KEY==VALUE  KEY!=VALUE  KEY in (A, B)  KEY notin (A, B)  KEY  !KEY  KEY>N  KEY<N
///
/// "!=" and "notin" hold where the label is missing, too. The empty selector matches everything.
class LabelSelector {
 public:
  /// Errors name the character (from 1), what was found and what is allowed.
  [[nodiscard]] static Result<LabelSelector> parse(std::string_view text);
  [[nodiscard]] bool matches(const Labels& labels) const;

 private:
  friend class SelectorParser;
  enum class Operator : std::uint8_t { kIn, kNotIn, kExists, kDoesNotExist, kGreater, kLess };
  struct Requirement {
    std::string key;
    Operator op = Operator::kExists;
    std::vector<std::string> values;
    std::int64_t number = 0;  ///< of kGreater, kLess
  };
  [[nodiscard]] static bool holds(const Requirement& requirement, const Labels& labels);

  std::vector<Requirement> requirements_;
};

}  // namespace headgate
