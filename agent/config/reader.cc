// SPDX-License-Identifier: Apache-2.0
#include "agent/config/reader.h"

#include <algorithm>

namespace headgate {
namespace {

/// A hostile file must not make a report of millions of lines.
constexpr std::size_t kMaxProblems = 1000;

/// All keys of the whole format, with the mapping they belong to, for "that key belongs there".
void collect(const MapSpec& spec, std::vector<std::pair<std::string_view, std::string_view>>& out) {
  for (const Field& field : spec.fields) {
    out.emplace_back(field.key, spec.path);
    const Field& inner = field.shape == Shape::kList ? *field.element : field;
    if (inner.map != nullptr) {
      collect(*inner.map, out);
    }
  }
}

}  // namespace

std::string_view kind_text(const YamlNode& node) {
  switch (node.kind) {
    case YamlNode::Kind::kNull: return "empty";
    case YamlNode::Kind::kScalar: return "a single value";
    case YamlNode::Kind::kMap: return "a mapping";
    case YamlNode::Kind::kList: return "a list";
    case YamlNode::Kind::kBad: break;
  }
  return "not readable";
}

std::string value_text(const YamlNode& node) {
  return node.kind == YamlNode::Kind::kScalar ? printable(node.text)
                                              : fmt::format("({})", kind_text(node));
}

void Reader::add(Problem::Severity severity, Place place, std::string key, std::string value,
                 std::string message, std::string nearest) {
  if (!full()) {
    problems_.push_back({severity, file_, place, std::move(key), std::move(value),
                         std::move(message), std::move(nearest)});
  }
}

bool Reader::full() const { return problems_.size() >= kMaxProblems; }

void Reader::wrong_kind(const YamlNode& node, const std::string& path, const std::string& allowed) {
  if (node.kind == YamlNode::Kind::kBad) {
    return;
  }
  const std::string_view what = path.empty() ? "the top level " : "";
  error(node.place, path, value_text(node),
        node.kind == YamlNode::Kind::kNull
            ? fmt::format("has no value; allowed: {} (or leave the key out)", allowed)
            : fmt::format("{}is {}; allowed: {}", what, kind_text(node), allowed));
}

std::map<std::string_view, const YamlNode*> Reader::keys(const YamlNode& node,
                                                         const std::string& path,
                                                         std::span<const std::string_view> names,
                                                         std::string_view what) {
  std::map<std::string_view, const YamlNode*> values;
  std::map<std::string_view, int> lines;
  for (const YamlPair& pair : node.pairs) {
    const YamlNode& key = pair.key;
    const YamlNode& val = pair.value;
    if (full()) {
      break;
    }
    if (key.kind == YamlNode::Kind::kBad) {
      continue;
    }
    if (key.kind != YamlNode::Kind::kScalar) {
      error(key.place, path, value_text(key),
            fmt::format("a key is {}; allowed: a name", kind_text(key)));
      continue;
    }
    const std::string key_path =
        path.empty() ? printable(key.text) : fmt::format("{}.{}", path, printable(key.text));
    const auto [line, fresh] = lines.emplace(key.text, key.place.line);
    if (!fresh) {
      error(key.place, key_path, value_text(val),
            fmt::format("the key is given twice, at lines {} and {}; keep one of them",
                        line->second, key.place.line));
      continue;
    }
    if (std::find(names.begin(), names.end(), key.text) != names.end()) {
      values.emplace(key.text, &val);
      continue;
    }
    if (key.text == "<<") {
      error(key.place, key_path, value_text(val),
            "merge keys ('<<') are not supported; write the keys out");
      continue;
    }
    const Nearest nearest = nearest_of(key.text, names);
    std::string message =
        fmt::format("unknown key '{}' ({}){} {}: {}", printable(key.text),
                    val.kind == YamlNode::Kind::kScalar ? "value " + printable(val.text)
                                                        : std::string(kind_text(val)),
                    suggestion(nearest), what,
                    names.empty() ? "nothing" : fmt::format("{}", fmt::join(names, ", ")));
    std::vector<std::pair<std::string_view, std::string_view>> everywhere;
    collect(root_spec(), everywhere);
    const auto elsewhere = std::find_if(everywhere.begin(), everywhere.end(),
                                        [&](const auto& row) { return row.first == key.text; });
    if (elsewhere != everywhere.end()) {
      message += fmt::format(
          "; '{}' belongs {}", key.text,
          elsewhere->second.empty() ? "at the top level" : fmt::format("in {}", elsewhere->second));
    }
    error(key.place, key_path, value_text(val), std::move(message), std::string(nearest.name));
  }
  return values;
}

std::optional<Map> Reader::map(const YamlNode& node, std::string path, const MapSpec& spec) {
  std::vector<std::string_view> names;
  for (const Field& field : spec.fields) {
    names.push_back(field.key);
  }
  if (node.kind != YamlNode::Kind::kMap) {
    wrong_kind(node, path, fmt::format("a mapping with {}", fmt::join(names, ", ")));
    return std::nullopt;
  }
  Map out;
  out.spec = &spec;
  out.path = std::move(path);
  out.place = node.place;
  out.values = keys(node, out.path, names);
  for (const Field& field : spec.fields) {
    if (field.required && out.find(field.key) == nullptr) {
      error(node.place, out.path_of(field.key), "",
            fmt::format("is missing; add it: {}", allowed_text(field)));
    }
  }
  if (spec.exactly_one && out.values.size() != 1) {
    std::string given;
    for (const auto& [key, val] : out.values) {
      given += fmt::format("{}{} (line {})", given.empty() ? "" : ", ", key, val->place.line);
    }
    error(node.place, out.path, value_text(node),
          out.values.empty()
              ? fmt::format("needs exactly one of {}", join_words(names))
              : fmt::format("has {}; allowed: exactly one of {}", given, join_words(names)));
  }
  return out;
}

std::optional<Value> Reader::value(const YamlNode& node, const std::string& path,
                                   const Field& field) {
  if (node.kind != YamlNode::Kind::kScalar) {
    wrong_kind(node, path, allowed_text(field));
    return std::nullopt;
  }
  Value out = read_value(field, node.text);
  if (!out.problem.empty()) {
    error(node.place, path, printable(node.text), out.problem, out.nearest);
    return std::nullopt;
  }
  if (!out.warning.empty()) {
    warn(node.place, path, printable(node.text), out.warning);
  }
  return out;
}

const std::vector<YamlNode>* Reader::list(const Map& parent, std::string_view key) {
  const YamlNode* node = parent.find(key);
  if (node == nullptr) {
    return nullptr;
  }
  if (node->kind != YamlNode::Kind::kList) {
    wrong_kind(*node, parent.path_of(key), allowed_text(field_of(*parent.spec, key)));
    return nullptr;
  }
  const double maximum = field_of(*parent.spec, key).maximum;
  if (static_cast<double>(node->items.size()) > maximum) {
    error(node->place, parent.path_of(key), value_text(*node),
          fmt::format("has {} items; allowed: at most {}", node->items.size(), maximum));
    return nullptr;
  }
  return &node->items;
}

std::optional<Map> Reader::map(const Map& parent, std::string_view key) {
  const YamlNode* node = parent.find(key);
  return node != nullptr ? map(*node, parent.path_of(key), *field_of(*parent.spec, key).map)
                         : std::nullopt;
}

std::optional<Value> Reader::value(const Map& parent, std::string_view key) {
  const YamlNode* node = parent.find(key);
  return node != nullptr ? value(*node, parent.path_of(key), field_of(*parent.spec, key))
                         : std::nullopt;
}

std::vector<Reader::Item> Reader::values(const Map& parent, std::string_view key) {
  std::vector<Item> out;
  if (const auto* items = list(parent, key)) {
    const Field& element = *field_of(*parent.spec, key).element;
    for (std::size_t i = 0; i < items->size(); ++i) {
      std::string path = fmt::format("{}[{}]", parent.path_of(key), i);
      if (auto v = value((*items)[i], path, element)) {
        out.push_back({std::move(*v), &(*items)[i], std::move(path)});
      }
    }
  }
  return out;
}

bool Reader::number(const Map& parent, std::string_view key, double& out) {
  const auto v = value(parent, key);
  out = v ? v->number : out;
  return v || parent.find(key) == nullptr;
}

bool Reader::share(const Map& parent, std::string_view key, Probability& out) {
  double number_now = out.value();
  const bool ok = number(parent, key, number_now);
  out = Probability::refusing(number_now);
  return ok;
}

bool Reader::duration(const Map& parent, std::string_view key, Duration& out) {
  const auto v = value(parent, key);
  out = v ? v->duration : out;
  return v || parent.find(key) == nullptr;
}

bool Reader::text(const Map& parent, std::string_view key, std::string& out) {
  const auto v = value(parent, key);
  out = v ? v->text : out;
  return v || parent.find(key) == nullptr;
}

}  // namespace headgate
