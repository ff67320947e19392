// SPDX-License-Identifier: Apache-2.0
// The only file that uses yaml-cpp. Its event interface is used, not YAML::Load(): Load() keeps
// duplicate keys out of reach of find(), resolves aliases and drops the place of keys.
#include "agent/config/yaml_tree.h"

#include <cstdint>
#include <exception>
#include <istream>
#include <optional>
#include <streambuf>

#include <fmt/format.h>
#include <yaml-cpp/depthguard.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

namespace headgate {
namespace {

constexpr std::size_t kMaxBytes = 1U << 20U;  // the API server's limit for a ConfigMap
constexpr std::size_t kMaxDepth = 32;
constexpr std::size_t kMaxProblems = 100;

Place place_of(const YAML::Mark& mark) {
  return mark.is_null() ? Place{} : Place{mark.line + 1, mark.column + 1};
}

Problem error_at(const std::string& file, Place place, std::string message,
                 std::string value = {}) {
  Problem problem;
  problem.file = file;
  problem.place = place;
  problem.value = std::move(value);
  problem.message = std::move(message);
  return problem;
}

/// Length of the UTF-8 sequence at `i` (RFC 3629: no overlong forms, no surrogates, at most
/// U+10FFFF), 0 = malformed.
std::size_t utf8_length(std::string_view text, std::size_t i) {
  const auto byte = [&](std::size_t k) -> unsigned {
    return i + k < text.size() ? static_cast<unsigned char>(text[i + k]) : 0U;
  };
  const auto tail = [&](std::size_t k) { return (byte(k) & 0xC0U) == 0x80U; };
  const unsigned c = byte(0);
  if (c < 0x80) {
    return 1;
  }
  if (c >= 0xC2 && c <= 0xDF) {
    return tail(1) ? 2 : 0;
  }
  if (c >= 0xE0 && c <= 0xEF) {
    const bool overlong = c == 0xE0 && byte(1) < 0xA0;
    const bool surrogate = c == 0xED && byte(1) > 0x9F;
    return tail(1) && tail(2) && !overlong && !surrogate ? 3 : 0;
  }
  if (c >= 0xF0 && c <= 0xF4) {
    const bool overlong = c == 0xF0 && byte(1) < 0x90;
    const bool beyond = c == 0xF4 && byte(1) > 0x8F;
    return tail(1) && tail(2) && tail(3) && !overlong && !beyond ? 4 : 0;
  }
  return 0;
}

std::optional<Problem> bad_text(std::string_view text, const std::string& file) {
  if (text.size() > kMaxBytes) {
    return error_at(
        file, {1, 1},
        fmt::format("the text has {} bytes; allowed: at most {} (1 MiB)", text.size(), kMaxBytes));
  }
  Place place{1, 1};
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t length = utf8_length(text, i);
    const auto byte = static_cast<unsigned char>(text[i]);
    if (length == 0) {
      return error_at(
          file, place,
          fmt::format("byte 0x{:02x} is not UTF-8; allowed: UTF-8 text (save the file as "
                      "UTF-8)",
                      byte),
          fmt::format("0x{:02x}", byte));
    }
    if ((byte < 0x20 && byte != '\t' && byte != '\n' && byte != '\r') || byte == 0x7f) {
      return error_at(file, place, fmt::format("control character 0x{:02x}; remove it", byte),
                      fmt::format("0x{:02x}", byte));
    }
    i += length;
    // Columns count bytes, as those of the library do.
    place = byte == '\n' ? Place{place.line + 1, 1}
                         : Place{place.line, place.column + static_cast<int>(length)};
  }
  return std::nullopt;
}

/// YAML does not indent by tabs (YAML 1.2.2, section 6.1); the library's message does not say so.
std::string tab_hint(std::string_view text, const YAML::Mark& mark) {
  int line = 1;
  while (!text.empty() && line <= mark.line + 1) {
    const std::size_t end = text.find('\n');
    const std::string_view indent = text.substr(0, text.find_first_not_of(" \t"));
    if (indent.find('\t') < end) {
      return fmt::format("; a tab stands in the indentation of line {}: use spaces", line);
    }
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    ++line;
  }
  return {};
}

class Builder final : public YAML::EventHandler {
 public:
  /// `text`: what the parser reads, without a byte order mark.
  Builder(std::string_view text, const std::string& file, std::vector<Problem>& problems)
      : text_(text), file_(file), problems_(problems) {}

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (++documents_ > 1) {
      add(mark,
          "a second document begins here; allowed: one document a file (remove what follows "
          "'---')");
    }
  }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    check_anchor(mark, anchor);
    put(make(YamlNode::Kind::kNull, mark));
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t /*anchor*/) override {
    add(mark, "aliases ('*name') are not supported; write the value out");
    put(make(YamlNode::Kind::kBad, mark));
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    check_anchor(mark, anchor);
    check_tag(mark, tag);
    // yaml-cpp 0.7 takes the end of the text for a closing quote, so that a file that is cut off
    // there would be read as if it were whole.
    if (!is_closed(mark)) {
      add(mark, "the quote that opens here is never closed");
      put(make(YamlNode::Kind::kBad, mark));
      return;
    }
    YamlNode node = make(YamlNode::Kind::kScalar, mark);
    node.text = value;
    put(std::move(node));
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value /*style*/) override {
    begin(YamlNode::Kind::kList, mark, tag, anchor);
  }
  void OnSequenceEnd() override { end(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value /*style*/) override {
    begin(YamlNode::Kind::kMap, mark, tag, anchor);
  }
  void OnMapEnd() override { end(); }

  [[nodiscard]] int documents() const { return documents_; }
  [[nodiscard]] bool too_deep() const { return skipped_ > 0; }
  [[nodiscard]] YamlNode take_root() { return std::move(root_); }

 private:
  /// A collection that is being read; `key` holds the key whose value comes next.
  struct Open {
    YamlNode node;
    std::optional<YamlNode> key;
  };

  static YamlNode make(YamlNode::Kind kind, const YAML::Mark& mark) {
    YamlNode node;
    node.kind = kind;
    node.place = place_of(mark);
    return node;
  }

  void add(const YAML::Mark& mark, std::string message) {
    if (problems_.size() < kMaxProblems) {
      problems_.push_back(error_at(file_, place_of(mark), std::move(message)));
    }
  }
  void check_anchor(const YAML::Mark& mark, YAML::anchor_t anchor) {
    if (anchor != YAML::NullAnchor) {
      add(mark, "anchors ('&name') are not supported; write the value out where it is needed");
    }
  }
  void check_tag(const YAML::Mark& mark, const std::string& tag) {
    if (!tag.empty() && tag != "?" && tag != "!") {
      add(mark, fmt::format("tags ('{}') are not supported; remove it", tag));
    }
  }

  void begin(YamlNode::Kind kind, const YAML::Mark& mark, const std::string& tag,
             YAML::anchor_t anchor) {
    check_anchor(mark, anchor);
    check_tag(mark, tag);
    if (stack_.size() >= kMaxDepth) {
      if (skipped_++ == 0) {
        add(mark, fmt::format("nested deeper than {} levels; no key of the configuration needs "
                              "that",
                              kMaxDepth));
      }
      return;
    }
    stack_.push_back({make(kind, mark), std::nullopt});
  }
  void end() {
    if (skipped_ > 0) {
      if (--skipped_ == 0) {
        YamlNode bad;
        bad.kind = YamlNode::Kind::kBad;
        put(std::move(bad));
      }
      return;
    }
    YamlNode node = std::move(stack_.back().node);
    stack_.pop_back();
    put(std::move(node));
  }

  void put(YamlNode node) {
    if (skipped_ > 0) {
      return;
    }
    if (stack_.empty()) {
      if (documents_ <= 1) {
        root_ = std::move(node);
      }
      return;
    }
    Open& open = stack_.back();
    if (open.node.kind == YamlNode::Kind::kList) {
      open.node.items.push_back(std::move(node));
    } else if (!open.key) {
      open.key = std::move(node);
    } else {
      // The library places a value that is not there at whatever comes next.
      if (node.kind == YamlNode::Kind::kNull) {
        node.place = open.key->place;
      }
      open.node.pairs.push_back({std::move(*open.key), std::move(node)});
      open.key.reset();
    }
  }

  /// False for a scalar that begins with a quote and has none at its end.
  [[nodiscard]] bool is_closed(const YAML::Mark& mark) const {
    auto i = static_cast<std::size_t>(mark.pos);
    if (mark.is_null() || i >= text_.size() || (text_[i] != '"' && text_[i] != '\'')) {
      return true;
    }
    const char quote = text_[i];
    for (++i; i < text_.size(); ++i) {
      const bool escape = quote == '"' ? text_[i] == '\\' : text_.substr(i).starts_with("''");
      if (escape) {
        ++i;
      } else if (text_[i] == quote) {
        return true;
      }
    }
    return false;
  }

  std::string_view text_;
  const std::string& file_;
  std::vector<Problem>& problems_;
  std::vector<Open> stack_;
  YamlNode root_;
  std::size_t skipped_ = 0;
  int documents_ = 0;
};

/// An istream over text that is not copied.
class ViewBuffer final : public std::streambuf {
 public:
  explicit ViewBuffer(std::string_view text) {
    char* begin = const_cast<char*>(text.data());  // NOLINT: a get area is never written to
    setg(begin, begin, begin + text.size());
  }
};

}  // namespace

std::optional<YamlNode> parse_yaml(std::string_view text, const std::string& file,
                                   std::vector<Problem>& problems) {
  if (auto problem = bad_text(text, file)) {
    problems.push_back(std::move(*problem));
    return std::nullopt;
  }
  if (text.starts_with("\xEF\xBB\xBF")) {
    text.remove_prefix(3);
  }
  Builder builder(text, file, problems);
  try {
    ViewBuffer buffer(text);
    std::istream stream(&buffer);
    YAML::Parser parser(stream);
    while (builder.documents() < 2 && parser.HandleNextDocument(builder)) {
    }
    return builder.take_root();
  } catch (const YAML::DeepRecursion& e) {
    if (!builder.too_deep()) {
      problems.push_back(error_at(file, place_of(e.mark), "nested too deeply"));
    }
  } catch (const YAML::Exception& e) {
    problems.push_back(
        error_at(file, place_of(e.mark),
                 fmt::format("not valid YAML: {}{}", e.msg, tab_hint(text, e.mark))));
  } catch (const std::bad_alloc&) {
    throw;  // ends the process, as everywhere
  } catch (const std::exception& e) {
    problems.push_back(error_at(file, {1, 1}, fmt::format("not valid YAML: {}", e.what())));
  }
  return std::nullopt;
}

}  // namespace headgate
