// SPDX-License-Identifier: Apache-2.0
#include "agent/config/label_selector.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "agent/config/schema.h"

namespace headgate {
namespace {

constexpr std::size_t kMostOfAName = 63;
constexpr std::size_t kMostOfAPrefix = 253;

bool is_alphanumeric(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

bool is_name(std::string_view text) {
  return !text.empty() && text.size() <= kMostOfAName && is_alphanumeric(text.front()) &&
         is_alphanumeric(text.back()) && std::all_of(text.begin(), text.end(), [](char c) {
           return is_alphanumeric(c) || c == '-' || c == '_' || c == '.';
         });
}

/// RFC 1123: labels of lower case letters, digits and '-', with '.' between them.
bool is_subdomain(std::string_view text) {
  if (text.empty() || text.size() > kMostOfAPrefix) {
    return false;
  }
  while (true) {
    const std::size_t dot = text.find('.');
    const std::string_view label = text.substr(0, dot);
    const auto plain = [](char c) { return is_alphanumeric(c) && (c < 'A' || c > 'Z'); };
    if (label.empty() || !plain(label.front()) || !plain(label.back()) ||
        !std::all_of(label.begin(), label.end(), [&](char c) { return plain(c) || c == '-'; })) {
      return false;
    }
    if (dot == std::string_view::npos) {
      return true;
    }
    text.remove_prefix(dot + 1);
  }
}

bool is_key(std::string_view text) {
  const std::size_t slash = text.find('/');
  return slash == std::string_view::npos
             ? is_name(text)
             : is_subdomain(text.substr(0, slash)) && is_name(text.substr(slash + 1));
}

std::optional<std::int64_t> whole_number(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc{} && end == text.data() + text.size() ? std::optional(value)
                                                                  : std::nullopt;
}

/// A word or one of "=", "==", "!=", "!", "(", ")", ",", "<", ">"; "" at the end of the text.
struct Token {
  std::string_view text;
  std::size_t at = 0;
  bool word = false;
};

constexpr std::string_view kSpecial = "=!(),<>";
constexpr std::string_view kBlank = " \t\r\n";

}  // namespace

class SelectorParser {
 public:
  explicit SelectorParser(std::string_view text) : text_(text) { advance(); }

  Result<LabelSelector> parse() {
    LabelSelector out;
    while (!at_end()) {
      auto requirement = read_requirement();
      if (!requirement) {
        return tl::unexpected<Error>(requirement.error());
      }
      out.requirements_.push_back(std::move(*requirement));
      if (at_end()) {
        break;
      }
      if (!take(",")) {
        return bad("expected ',' or the end");
      }
      if (!token_.word && token_.text != "!") {
        return bad("expected a label behind ','");
      }
    }
    return out;
  }

 private:
  using Operator = LabelSelector::Operator;
  using Requirement = LabelSelector::Requirement;

  void advance() {
    const std::size_t begin = std::min(text_.find_first_not_of(kBlank, next_), text_.size());
    std::size_t end = begin;
    bool word = false;
    if (begin < text_.size() && kSpecial.find(text_[begin]) != std::string_view::npos) {
      const bool may_pair = text_[begin] == '=' || text_[begin] == '!';
      end = begin + (may_pair && begin + 1 < text_.size() && text_[begin + 1] == '=' ? 2 : 1);
    } else if (begin < text_.size()) {
      word = true;
      while (end < text_.size() && kSpecial.find(text_[end]) == std::string_view::npos &&
             kBlank.find(text_[end]) == std::string_view::npos) {
        ++end;
      }
    }
    token_ = {text_.substr(begin, end - begin), begin, word};
    next_ = end;
  }

  [[nodiscard]] bool at_end() const { return token_.text.empty(); }

  bool take(std::string_view text) {
    if (token_.text != text) {
      return false;
    }
    advance();
    return true;
  }

  [[nodiscard]] tl::unexpected<Error> bad(std::string_view why) const { return bad(token_, why); }
  [[nodiscard]] static tl::unexpected<Error> bad(const Token& token, std::string_view why) {
    return fail(fmt::format(
        "character {}: {}: {}; allowed: label=value, label!=value, label in (a,b), label notin "
        "(a,b), label, !label, with ',' between them",
        token.at + 1,
        token.text.empty() ? std::string("the end") : fmt::format("'{}'", printable(token.text)),
        why));
  }

  Result<std::string> read_key() {
    if (!token_.word) {
      return bad("expected a label");
    }
    if (!is_key(token_.text)) {
      return bad(
          "is no name of a label (letters, digits, '-', '_', '.', with a letter or digit at both "
          "ends, at most 63; before it perhaps a domain and '/')");
    }
    std::string key(token_.text);
    advance();
    return key;
  }

  Result<std::string> read_value() {
    if (!token_.word) {  // "app=" asks for the empty value
      return std::string();
    }
    if (!is_name(token_.text)) {
      return bad(
          "is no value of a label (letters, digits, '-', '_', '.', with a letter or digit at both "
          "ends, at most 63)");
    }
    std::string value(token_.text);
    advance();
    return value;
  }

  Result<Requirement> read_requirement() {
    Requirement out;
    const bool negated = take("!");
    auto key = read_key();
    if (!key) {
      return tl::unexpected<Error>(key.error());
    }
    out.key = std::move(*key);
    if (negated) {
      out.op = Operator::kDoesNotExist;
      return out;
    }
    if (at_end() || token_.text == ",") {
      return out;
    }
    const Token op = token_;
    if (take("in") || take("notin")) {
      out.op = op.text == "in" ? Operator::kIn : Operator::kNotIn;
      return read_set(std::move(out));
    }
    if (take("=") || take("==") || take("!=")) {
      out.op = op.text == "!=" ? Operator::kNotIn : Operator::kIn;
    } else if (take(">") || take("<")) {
      out.op = op.text == ">" ? Operator::kGreater : Operator::kLess;
    } else {
      return bad("expected =, ==, !=, in, notin, < or >");
    }
    const Token at = token_;
    auto value = read_value();
    if (!value) {
      return tl::unexpected<Error>(value.error());
    }
    if (out.op == Operator::kGreater || out.op == Operator::kLess) {
      const auto number = whole_number(*value);
      if (!number) {
        return bad(at, "expected a whole number behind < and >");
      }
      out.number = *number;
    }
    out.values.push_back(std::move(*value));
    return out;
  }

  /// "(A, B)": an empty place, as in "(A,)", is the empty value.
  Result<Requirement> read_set(Requirement out) {
    if (!take("(")) {
      return bad("expected '(' behind in and notin");
    }
    if (token_.text == ")") {
      return bad("the set of values is empty");
    }
    do {
      auto value = read_value();
      if (!value) {
        return tl::unexpected<Error>(value.error());
      }
      out.values.push_back(std::move(*value));
    } while (take(","));
    if (!take(")")) {
      return bad("expected ',' or ')'");
    }
    return out;
  }

  std::string_view text_;
  std::size_t next_ = 0;
  Token token_;
};

Result<LabelSelector> LabelSelector::parse(std::string_view text) {
  return SelectorParser(text).parse();
}

bool LabelSelector::holds(const Requirement& requirement, const Labels& labels) {
  const auto label = labels.find(requirement.key);
  const bool exists = label != labels.end();
  const auto listed = [&] {
    return exists && std::find(requirement.values.begin(), requirement.values.end(),
                               label->second) != requirement.values.end();
  };
  const auto number = [&] { return exists ? whole_number(label->second) : std::nullopt; };
  switch (requirement.op) {
    case Operator::kIn: return listed();
    case Operator::kNotIn: return !listed();
    case Operator::kExists: return exists;
    case Operator::kDoesNotExist: return !exists;
    case Operator::kGreater: return number() && *number() > requirement.number;
    case Operator::kLess: return number() && *number() < requirement.number;
  }
  return false;
}

bool LabelSelector::matches(const Labels& labels) const {
  return std::all_of(requirements_.begin(), requirements_.end(),
                     [&](const Requirement& one) { return holds(one, labels); });
}

}  // namespace headgate
