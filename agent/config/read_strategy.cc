// SPDX-License-Identifier: Apache-2.0
#include "agent/config/read_strategy.h"

#include <algorithm>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "agent/config/defaults.h"
#include "agent/config/quantity.h"
#include "agent/config/schema.h"

namespace headgate {
namespace {

class StrategyReader {
 public:
  StrategyReader(Reader& reader, std::span<const StrategyInfo> strategies)
      : reader_(reader), strategies_(strategies) {}

  void read(const YamlNode& node, const std::string& path, StrategyConfig& out);

 private:
  /// The row of a name that can be used; else nullptr, reported.
  const StrategyInfo* strategy_named(const std::string& name, Place place, const std::string& path);
  void read_params(const YamlNode& node, const std::string& path, const StrategyInfo& info,
                   bool has_name, StrategyConfig& out);
  void read_points(const YamlNode& node, const std::string& path, std::vector<CurvePoint>& out);
  void read_parts(const YamlNode& node, const std::string& path, StrategyConfig& out);

  Reader& reader_;
  std::span<const StrategyInfo> strategies_;
};

const StrategyInfo* StrategyReader::strategy_named(const std::string& name, Place place,
                                                   const std::string& path) {
  std::vector<std::string_view> names;
  std::vector<std::string_view> built;
  for (const StrategyInfo& info : strategies_) {
    if (info.name == name) {
      if (!info.built) {
        reader_.error(place, path, name,
                      fmt::format("strategy '{}' is not built yet; use {}", name, info.instead));
        return nullptr;
      }
      return &info;
    }
    names.push_back(info.name);
    if (info.built) {
      built.push_back(info.name);
    }
  }
  const Nearest nearest = nearest_of(name, names);
  reader_.error(place, path, printable(name),
                fmt::format("unknown strategy '{}'{} Allowed: {}", printable(name),
                            suggestion(nearest), join_words(built)),
                std::string(nearest.name));
  return nullptr;
}

void StrategyReader::read(const YamlNode& node, const std::string& path, StrategyConfig& out) {
  const std::string allowed = allowed_text(field_of(kTargetSpec, "strategy"));
  if (node.kind == YamlNode::Kind::kScalar) {
    out.name = node.text;
    if (node.text == "hybrid") {
      reader_.error(node.place, path, "hybrid", "names no parts; write {hybrid: [NAME, ...]}");
    } else if (strategy_named(node.text, node.place, path) != nullptr) {
      set_default_params(out, strategies_);
    }
    return;
  }
  if (node.kind != YamlNode::Kind::kMap || node.pairs.empty()) {
    reader_.wrong_kind(node, path, allowed);
    return;
  }
  const auto named = std::find_if(node.pairs.begin(), node.pairs.end(), [](const auto& pair) {
    return pair.key.kind == YamlNode::Kind::kScalar && pair.key.text == "name";
  });
  if (named != node.pairs.end()) {
    const auto& [key, name] = *named;
    if (name.kind != YamlNode::Kind::kScalar) {
      reader_.wrong_kind(name, path + ".name", "the name of a strategy");
      return;
    }
    out.name = name.text;
    if (name.text == "hybrid") {
      reader_.error(name.place, path + ".name", "hybrid",
                    "names no parts; write {hybrid: [NAME, ...]}");
    } else if (const auto* info = strategy_named(name.text, name.place, path + ".name")) {
      read_params(node, path, *info, /*has_name=*/true, out);
    }
    return;
  }
  const auto& [key, val] = node.pairs.front();
  if (key.kind != YamlNode::Kind::kScalar || node.pairs.size() != 1) {
    reader_.error(node.place, path, value_text(node),
                  "has several keys but no name; allowed: " + allowed);
    return;
  }
  out.name = key.text;
  const std::string inner = fmt::format("{}.{}", path, printable(key.text));
  if (key.text == "hybrid") {
    if (strategy_named(key.text, key.place, inner) != nullptr) {
      read_parts(val, inner, out);
    }
    return;
  }
  const auto* info = strategy_named(key.text, key.place, inner);
  if (info == nullptr) {
    return;
  }
  if (val.kind == YamlNode::Kind::kMap) {
    read_params(val, inner, *info, /*has_name=*/false, out);
  } else {
    reader_.wrong_kind(val, inner, "a mapping with the parameters of the strategy");
  }
}

void StrategyReader::read_params(const YamlNode& node, const std::string& path,
                                 const StrategyInfo& info, bool has_name, StrategyConfig& out) {
  std::vector<std::string_view> names;
  if (has_name) {
    names.emplace_back("name");
  }
  for (const ParamSpec& param : info.params) {
    names.push_back(param.name);
  }
  if (info.takes_points) {
    names.emplace_back("points");
  }
  const auto values =
      reader_.keys(node, path, names, fmt::format("Allowed for strategy {}", info.name));
  bool sound = true;  // what is wrong by itself needs no second error
  for (const ParamSpec& param : info.params) {
    const auto it = values.find(param.name);
    if (it == values.end()) {
      continue;
    }
    const auto v =
        reader_.value(*it->second, fmt::format("{}.{}", path, param.name), field_of(param));
    if (!v) {
      sound = false;
      continue;
    }
    const std::string name(param.name);
    switch (param.kind) {
      case ParamSpec::Kind::kRatio:
      case ParamSpec::Kind::kNumber: out.params.numbers[name] = v->number; break;
      case ParamSpec::Kind::kCount:
        out.params.numbers[name] = static_cast<double>(v->integer);
        break;
      case ParamSpec::Kind::kDuration: out.params.numbers[name] = seconds(v->duration); break;
      case ParamSpec::Kind::kWord: out.params.words[name] = v->text; break;
    }
  }
  if (const auto it = values.find("points"); it != values.end()) {
    read_points(*it->second, path + ".points", out.params.points);
  }
  set_default_params(out, strategies_);
  if (info.check != nullptr && sound) {
    if (const std::string problem = info.check(out.params); !problem.empty()) {
      std::string in_force;
      for (const auto& [name, text] : out.shown) {
        if (problem.find(name) != std::string::npos) {
          in_force += fmt::format("{}{} {}", in_force.empty() ? "" : ", ", name, text);
        }
      }
      reader_.error(node.place, path, value_text(node),
                    fmt::format("{} (in force: {})", problem, in_force));
    }
  }
}

void StrategyReader::read_points(const YamlNode& node, const std::string& path,
                                 std::vector<CurvePoint>& out) {
  const std::string allowed = fmt::format(
      "2 to {} pairs [level, refused share], such as [[0.70, 0], [0.90, 0.95]]", kMaxPoints);
  if (node.kind != YamlNode::Kind::kList) {
    reader_.wrong_kind(node, path, allowed);
    return;
  }
  if (node.items.size() < 2 || node.items.size() > kMaxPoints) {
    reader_.error(node.place, path, fmt::format("({} items)", node.items.size()),
                  fmt::format("has {} items; allowed: {}", node.items.size(), allowed));
    return;
  }
  for (std::size_t i = 0; i < node.items.size(); ++i) {
    const YamlNode& item = node.items[i];
    const std::string item_path = fmt::format("{}[{}]", path, i);
    if (item.kind != YamlNode::Kind::kList || item.items.size() != 2) {
      if (item.kind == YamlNode::Kind::kList) {
        reader_.error(
            item.place, item_path, value_text(item),
            fmt::format("has {} items; allowed: a pair [level, refused share]", item.items.size()));
      } else {
        reader_.wrong_kind(item, item_path, "a pair [level, refused share]");
      }
      continue;
    }
    const auto x = reader_.value(item.items[0], item_path + "[0]", kPointLevelField);
    const auto y = reader_.value(item.items[1], item_path + "[1]", kPointRefuseField);
    if (!x || !y) {
      continue;
    }
    if (!out.empty() && x->number <= out.back().level) {
      reader_.error(
          item.place, item_path + "[0]", printable(item.items[0].text),
          fmt::format("level {} does not lie above the one before it, {}; allowed: levels that "
                      "rise from point to point",
                      format_number(x->number), format_number(out.back().level)));
      continue;
    }
    out.push_back({x->number, y->number});
  }
}

void StrategyReader::read_parts(const YamlNode& node, const std::string& path,
                                StrategyConfig& out) {
  if (node.kind != YamlNode::Kind::kList || node.items.empty()) {
    if (node.kind == YamlNode::Kind::kList) {
      reader_.error(node.place, path, "[]", "the list is empty; allowed: [NAME, ...]");
    } else {
      reader_.wrong_kind(node, path, "a list of strategies, the first that refuses holds");
    }
    return;
  }
  for (std::size_t i = 0; i < node.items.size(); ++i) {
    const YamlNode& item = node.items[i];
    const std::string item_path = fmt::format("{}[{}]", path, i);
    if (item.kind != YamlNode::Kind::kScalar) {
      reader_.wrong_kind(item, item_path, "the name of a strategy");
      continue;
    }
    if (item.text == "hybrid") {
      reader_.error(item.place, item_path, "hybrid",
                    "a hybrid cannot hold a hybrid; name its parts here");
      continue;
    }
    if (strategy_named(item.text, item.place, item_path) == nullptr) {
      continue;
    }
    if (std::find(out.params.parts.begin(), out.params.parts.end(), item.text) !=
        out.params.parts.end()) {
      reader_.error(item.place, item_path, item.text, "is given twice; keep one of them");
      continue;
    }
    out.params.parts.push_back(item.text);
  }
}

}  // namespace

void check_strategy_sees(Reader& reader, std::span<const StrategyInfo> strategies,
                         const std::string& path, const TargetConfig& target) {
  const bool seen = std::any_of(
      target.endpoints.begin(), target.endpoints.end(), [](const EndpointConfig& endpoint) {
        return endpoint.protocol == Protocol::kHttp && refuses_requests(endpoint.refuse.form);
      });
  const StrategyConfig& strategy = target.strategy;
  for (const StrategyInfo& info : strategies) {
    const auto& parts = strategy.params.parts;
    const bool used = info.name == strategy.name ||
                      std::find(parts.begin(), parts.end(), info.name) != parts.end();
    if (used && info.needs_requests && !seen) {
      reader.error(strategy.place, path, std::string(info.name),
                   fmt::format("strategy '{}' judges by how long requests take, which is seen on "
                               "endpoints with protocol: http and refuse: 429 or 503; give the "
                               "target one, or use {}",
                               info.name, info.instead));
    }
  }
}

void read_strategy(Reader& reader, std::span<const StrategyInfo> strategies, const YamlNode& node,
                   const std::string& path, StrategyConfig& out) {
  StrategyReader(reader, strategies).read(node, path, out);
}

}  // namespace headgate
