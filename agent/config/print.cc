// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cctype>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "agent/config/load.h"
#include "agent/config/quantity.h"

namespace headgate {
namespace {

/// What is to be printed, in order.
struct Tree {
  enum class Kind { kScalar, kMap, kList };
  Kind kind = Kind::kScalar;
  std::string text;         ///< of a scalar, quoted where YAML needs it
  std::string key;          ///< within a mapping
  std::vector<Tree> items;  ///< of a list or mapping

  static Tree raw(std::string text) {
    Tree out;
    out.text = std::move(text);
    return out;
  }
  static Tree of(Kind kind) {
    Tree out;
    out.kind = kind;
    return out;
  }
  void put(std::string name, Tree value) {
    value.key = std::move(name);
    items.push_back(std::move(value));
  }
};

/// Plain where no YAML reader, 1.1 or 1.2, takes it for anything but this text; else in double
/// quotes (YAML 1.2.2, section 7.3.1).
std::string quote(std::string_view text) {
  constexpr std::array<std::string_view, 9> kSpecial{"null", "true", "false", "yes", "no",
                                                     "on",   "off",  "y",     "n"};
  std::string lower(text);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  const auto is_alpha = [](char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0; };
  const bool plain =
      !text.empty() && (is_alpha(text[0]) || text[0] == '/') &&
      std::all_of(text.begin(), text.end(),
                  [&](char c) {
                    return is_alpha(c) || (c >= '0' && c <= '9') ||
                           std::string_view("_./@-").find(c) != std::string_view::npos;
                  }) &&
      std::find(kSpecial.begin(), kSpecial.end(), lower) == kSpecial.end();
  if (plain) {
    return std::string(text);
  }
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (byte < 0x20 || byte == 0x7f) {
      out += fmt::format("\\x{:02x}", byte);
    } else {
      out += c;
    }
  }
  return out + '"';
}

Tree text(std::string_view value) { return Tree::raw(quote(value)); }
Tree number(double value) { return Tree::raw(format_number(value)); }
Tree duration(Duration value) { return Tree::raw(format_duration(value)); }
Tree texts(const std::vector<std::string>& values) {
  Tree out = Tree::of(Tree::Kind::kList);
  for (const std::string& value : values) {
    out.items.push_back(text(value));
  }
  return out;
}

Tree tree_of(const Match& match) {
  Tree out = Tree::of(Tree::Kind::kMap);
  if (const auto* pods = std::get_if<MatchPods>(&match)) {
    Tree inner = Tree::of(Tree::Kind::kMap);
    if (!pods->namespaces.empty()) {
      inner.put("namespaces", texts(pods->namespaces));
    }
    if (!pods->selector.empty()) {
      inner.put("selector", text(pods->selector));
    }
    if (!pods->name.empty()) {
      inner.put("name", text(pods->name));
    }
    if (!pods->uid.empty()) {
      inner.put("uid", text(pods->uid));
    }
    if (!pods->container.empty()) {
      inner.put("container", text(pods->container));
    }
    out.put("pods", std::move(inner));
  } else if (const auto* unit = std::get_if<MatchUnit>(&match)) {
    out.put("unit", text(unit->unit));
  } else if (const auto* cgroup = std::get_if<MatchCgroup>(&match)) {
    out.put("cgroup", text(cgroup->path));
  } else if (const auto* process = std::get_if<MatchProcess>(&match)) {
    Tree inner = Tree::of(Tree::Kind::kMap);
    inner.put("exe", text(process->exe));
    out.put("process", std::move(inner));
  }
  return out;
}

Tree tree_of(const StrategyConfig& strategy) {
  Tree out = Tree::of(Tree::Kind::kMap);
  if (!strategy.params.parts.empty()) {
    out.put(strategy.name, texts(strategy.params.parts));
    return out;
  }
  out.put("name", text(strategy.name));
  for (const auto& [name, value] : strategy.shown) {
    out.put(name, strategy.params.words.contains(name) ? text(value) : Tree::raw(value));
  }
  if (!strategy.params.points.empty()) {
    Tree points = Tree::of(Tree::Kind::kList);
    for (const CurvePoint& point : strategy.params.points) {
      Tree pair = Tree::of(Tree::Kind::kList);
      pair.items.push_back(number(point.level));
      pair.items.push_back(number(point.refuse));
      points.items.push_back(std::move(pair));
    }
    out.put("points", std::move(points));
  }
  return out;
}

Tree tree_of(const RefuseConfig& refuse) {
  if (refuse.form != RefuseForm::kDefer) {
    return text(to_string(refuse.form));
  }
  Tree out = Tree::of(Tree::Kind::kMap);
  out.put("defer", duration(refuse.defer_deadline));
  return out;
}

Tree tree_of(const EndpointConfig& endpoint) {
  Tree out = Tree::of(Tree::Kind::kMap);
  out.put("name", text(endpoint.name));
  out.put("port", Tree::raw(fmt::format("{}", endpoint.port)));
  out.put("protocol", text(to_string(endpoint.protocol)));
  out.put("criticality", text(to_string(endpoint.criticality)));
  out.put("floor", number(endpoint.floor.value()));
  out.put("refuse", tree_of(endpoint.refuse));
  if (endpoint.refuse.form == RefuseForm::kHttp429 ||
      endpoint.refuse.form == RefuseForm::kHttp503) {
    Tree http = Tree::of(Tree::Kind::kMap);
    http.put("retry_after_min", duration(endpoint.http.retry_after_min));
    http.put("retry_after_max", duration(endpoint.http.retry_after_max));
    http.put("idle_timeout", duration(endpoint.http.idle_timeout));
    out.put("http", std::move(http));
  } else if (endpoint.refuse.form == RefuseForm::kGrpcExhausted) {
    Tree grpc = Tree::of(Tree::Kind::kMap);
    grpc.put("max_message", Tree::raw(format_size(endpoint.grpc.max_message_bytes)));
    out.put("grpc", std::move(grpc));
  }
  if (!endpoint.routes.empty()) {
    Tree routes = Tree::of(Tree::Kind::kList);
    for (const RouteConfig& route : endpoint.routes) {
      Tree item = Tree::of(Tree::Kind::kMap);
      item.put("name", text(route.name));
      item.put("path", text(route.path));
      if (endpoint.protocol == Protocol::kGrpc) {
        item.put("calls", text(route.unary ? "unary" : "stream"));
      }
      item.put("criticality", text(to_string(route.criticality)));
      item.put("floor", number(route.floor.value()));
      routes.items.push_back(std::move(item));
    }
    out.put("routes", std::move(routes));
  }
  return out;
}

Tree tree_of(const TargetConfig& target) {
  Tree out = Tree::of(Tree::Kind::kMap);
  out.put("name", text(target.name));
  out.put("match", tree_of(target.match));
  Tree capacity = Tree::of(Tree::Kind::kMap);
  capacity.put("cpu",
               target.capacity.cpu_cores ? number(*target.capacity.cpu_cores) : Tree::raw("auto"));
  capacity.put("memory", target.capacity.memory_bytes
                             ? Tree::raw(format_size(*target.capacity.memory_bytes))
                             : Tree::raw("auto"));
  capacity.put("request_factor", number(target.capacity.request_factor));
  out.put("capacity", std::move(capacity));
  if (target.mode) {
    out.put("mode", text(to_string(*target.mode)));
  }
  out.put("strategy", tree_of(target.strategy));
  out.put("target", number(target.target.value));
  Tree memory = Tree::of(Tree::Kind::kMap);
  memory.put("shed", number(target.memory.shed));
  memory.put("open", number(target.memory.open));
  memory.put("close", number(target.memory.close));
  const auto& budget = target.memory.live_budget_bytes;
  memory.put("live_budget", !budget        ? Tree::raw("auto")
                            : *budget == 0 ? text("off")
                                           : Tree::raw(format_size(*budget)));
  out.put("memory", std::move(memory));
  out.put("max_refuse", number(target.max_refuse.value()));
  out.put("max_refuse_duration", duration(target.max_refuse_duration));
  out.put("storm", text(target.storm ? "auto" : "off"));
  Tree exempt = Tree::of(Tree::Kind::kMap);
  if (target.exempt.sources) {
    exempt.put("sources", texts(*target.exempt.sources));
  }
  exempt.put("rate", number(target.exempt.rate_per_s));
  exempt.put("paths", texts(target.exempt.paths));
  out.put("exempt", std::move(exempt));
  Tree endpoints = Tree::of(Tree::Kind::kList);
  for (const EndpointConfig& endpoint : target.endpoints) {
    endpoints.items.push_back(tree_of(endpoint));
  }
  out.put("endpoints", std::move(endpoints));
  return out;
}

Tree tree_of(const Config& config) {
  Tree out = Tree::of(Tree::Kind::kMap);
  out.put("apiVersion", Tree::raw("headgate/v1"));
  out.put("mode", text(to_string(config.mode)));
  out.put("tick", duration(config.tick));
  out.put("lease", duration(config.lease));
  if (!config.xdp.interfaces.empty()) {
    Tree xdp = Tree::of(Tree::Kind::kMap);
    xdp.put("interfaces", texts(config.xdp.interfaces));
    out.put("xdp", std::move(xdp));
  }
  Tree targets = Tree::of(Tree::Kind::kList);
  for (const TargetConfig& target : config.targets) {
    targets.items.push_back(tree_of(target));
  }
  out.put("targets", std::move(targets));
  return out;
}

bool holds_maps(const Tree& tree) {
  return tree.kind == Tree::Kind::kMap ||
         std::any_of(tree.items.begin(), tree.items.end(), holds_maps);
}

/// One line: "[a, b]", "{defer: 8s}".
std::string flow(const Tree& tree) {
  if (tree.kind == Tree::Kind::kScalar) {
    return tree.text;
  }
  std::string out;
  for (const Tree& item : tree.items) {
    out += out.empty() ? "" : ", ";
    out += item.key.empty() ? flow(item) : fmt::format("{}: {}", item.key, flow(item));
  }
  return tree.kind == Tree::Kind::kList ? "[" + out + "]" : "{" + out + "}";
}

/// Block style; `indent` is that of the lines of this mapping. The first line is not indented
/// where `first_inline`, because "- " stands before it.
void block(const Tree& map, std::size_t indent, bool first_inline, std::string& out) {
  bool inline_now = first_inline;
  for (const Tree& value : map.items) {
    out += inline_now ? "" : std::string(indent, ' ');
    inline_now = false;
    if (value.kind == Tree::Kind::kMap && !value.items.empty()) {
      out += value.key + ":\n";
      block(value, indent + 2, false, out);
    } else if (value.kind == Tree::Kind::kList && holds_maps(value)) {
      out += value.key + ":\n";
      for (const Tree& item : value.items) {
        out += std::string(indent + 2, ' ') + "- ";
        block(item, indent + 4, true, out);
      }
    } else {
      out += fmt::format("{}: {}\n", value.key, flow(value));
    }
  }
}

/// Every leaf with its path. Items of lists that have a name are told by it.
void flatten(const Tree& tree, const std::string& path,
             std::vector<std::pair<std::string, std::string>>& out) {
  if (tree.kind == Tree::Kind::kMap && !tree.items.empty()) {
    for (const Tree& value : tree.items) {
      flatten(value, path.empty() ? value.key : fmt::format("{}.{}", path, value.key), out);
    }
  } else if (tree.kind == Tree::Kind::kList && holds_maps(tree)) {
    for (const Tree& item : tree.items) {
      const auto name = std::find_if(item.items.begin(), item.items.end(),
                                     [](const Tree& value) { return value.key == "name"; });
      flatten(item, fmt::format("{}[{}]", path, name != item.items.end() ? name->text : "?"), out);
    }
  } else {
    out.emplace_back(path, flow(tree));
  }
}

}  // namespace

std::string to_yaml(const Config& config) {
  std::string out;
  block(tree_of(config), 0, false, out);
  return out;
}

std::string diff(const Config& before, const Config& after) {
  std::vector<std::pair<std::string, std::string>> old_leaves;
  std::vector<std::pair<std::string, std::string>> new_leaves;
  flatten(tree_of(before), "", old_leaves);
  flatten(tree_of(after), "", new_leaves);
  std::map<std::string_view, std::string_view> old_values(old_leaves.begin(), old_leaves.end());
  const std::map<std::string_view, std::string_view> new_values(new_leaves.begin(),
                                                                new_leaves.end());
  std::string out;
  for (const auto& [path, value] : old_leaves) {
    const auto now = new_values.find(path);
    if (now == new_values.end() || now->second != value) {
      out += fmt::format("- {}: {}\n", path, value);
      if (now != new_values.end()) {
        out += fmt::format("+ {}: {}\n", path, now->second);
      }
    }
  }
  for (const auto& [path, value] : new_leaves) {
    if (!old_values.contains(path)) {
      out += fmt::format("+ {}: {}\n", path, value);
    }
  }
  return out;
}

}  // namespace headgate
