// SPDX-License-Identifier: Apache-2.0
#include "agent/config/load.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "headgate/bpf_abi.h"

#include "agent/base/hash.h"
#include "agent/config/defaults.h"
#include "agent/config/label_selector.h"
#include "agent/config/network.h"
#include "agent/config/overlap.h"
#include "agent/config/quantity.h"
#include "agent/config/read_file.h"
#include "agent/config/read_routes.h"
#include "agent/config/read_strategy.h"
#include "agent/config/reader.h"
#include "agent/config/schema.h"
#include "agent/config/yaml_tree.h"

namespace headgate {
namespace {

Mode mode_of(std::string_view word) {
  return word == "off" ? Mode::kOff : word == "observe" ? Mode::kObserve : Mode::kEnforce;
}

template <class Enum>
Enum enum_of(std::string_view word, Enum count) {
  for (std::uint8_t i = 0; i < static_cast<std::uint8_t>(count); ++i) {
    if (to_string(static_cast<Enum>(i)) == word) {
      return static_cast<Enum>(i);
    }
  }
  return static_cast<Enum>(0);
}

RefuseForm refuse_form_of(std::string_view word) {
  for (const RefuseForm form : {RefuseForm::kAuto, RefuseForm::kReset, RefuseForm::kDefer,
                                RefuseForm::kDrop, RefuseForm::kHttp429, RefuseForm::kHttp503}) {
    if (to_string(form) == word) {
      return form;
    }
  }
  return RefuseForm::kGrpcExhausted;
}

/// Empty = the form can be used with the protocol; else what can.
std::string_view refuse_mismatch(RefuseForm form, Protocol protocol) {
  if (protocol == Protocol::kUdp && form != RefuseForm::kReset && form != RefuseForm::kAuto) {
    return "reset or auto (a datagram has no connect that could wait or be answered)";
  }
  const bool http = form == RefuseForm::kHttp429 || form == RefuseForm::kHttp503;
  if (http && protocol != Protocol::kHttp) {
    return "reset, defer or auto (429 and 503 need protocol: http)";
  }
  if (form == RefuseForm::kGrpcExhausted && protocol != Protocol::kGrpc) {
    return "reset, defer or auto (grpc-exhausted needs protocol: grpc)";
  }
  return {};
}

class ConfigReader {
 public:
  ConfigReader(const std::string& file, std::span<const StrategyInfo> strategies,
               std::vector<Problem>& problems)
      : reader_(file, problems), strategies_(strategies) {}

  void read(const YamlNode& root, Config& out);

 private:
  void read_target(const YamlNode& node, const std::string& path, Config& config);
  [[nodiscard]] MatchPods read_pods(const Map& match, const YamlNode& node);
  void read_match(const Map& target, TargetConfig& out);
  void read_capacity(const Map& target, CapacityConfig& out);
  void read_memory(const Map& target, MemoryConfig& out);
  void read_exempt(const Map& target, TargetConfig& out);
  void read_sources(const Map& exempt, ExemptConfig& out);
  void read_xdp(const Map& root, XdpConfig& out);
  void read_endpoint(const YamlNode& node, const std::string& path, TargetConfig& out);
  void read_refuse(const Map& endpoint, EndpointConfig& out);
  [[nodiscard]] std::vector<PortRange> read_ports(const Map& endpoint);
  void read_criticality(const Map& map, Criticality& out);

  Reader reader_;
  std::span<const StrategyInfo> strategies_;
  std::vector<std::vector<std::string>> endpoint_paths_;  ///< as config.targets[].endpoints[]
  std::size_t endpoints_ = 0;  ///< with routes, as the kernel counts them
};

void ConfigReader::read(const YamlNode& root, Config& out) {
  if (root.kind == YamlNode::Kind::kNull) {
    reader_.error(
        {1, 1}, "", "",
        "the file is empty; allowed: a configuration that begins with 'apiVersion: headgate/v1' "
        "and has 'targets:'");
    return;
  }
  const auto map = reader_.map(root, "", root_spec());
  if (!map) {
    return;
  }
  (void)reader_.value(*map, "apiVersion");
  if (const auto v = reader_.value(*map, "mode")) {
    out.mode = mode_of(v->text);
  }
  const bool tick_read = reader_.duration(*map, "tick", out.tick);
  const bool lease_read = reader_.duration(*map, "lease", out.lease);
  if (tick_read && lease_read && out.lease < 2 * out.tick) {
    const std::string_view at = map->find("lease") != nullptr ? "lease" : "tick";
    reader_.error(
        map->place_of(at), std::string(at), format_duration(at == "lease" ? out.lease : out.tick),
        fmt::format("lease {} is shorter than 2 ticks of {}; allowed: a lease of at least {}",
                    format_duration(out.lease), format_duration(out.tick),
                    format_duration(2 * out.tick)));
  }
  read_xdp(*map, out.xdp);
  const std::vector<YamlNode>* targets = reader_.list(*map, "targets");
  if (targets == nullptr) {
    return;
  }
  if (targets->empty()) {
    reader_.warn(map->place_of("targets"), "targets", "[]",
                 "the list is empty: nothing is protected");
  }
  out.targets.reserve(targets->size());
  for (std::size_t i = 0; i < targets->size(); ++i) {
    read_target((*targets)[i], fmt::format("targets[{}]", i), out);
  }
  check_overlap(reader_, out, endpoint_paths_);
}

void ConfigReader::read_xdp(const Map& root, XdpConfig& out) {
  const auto map = reader_.map(root, "xdp");
  if (!map) {
    return;
  }
  for (auto& [value, item, path] : reader_.values(*map, "interfaces")) {
    if (std::find(out.interfaces.begin(), out.interfaces.end(), value.text) !=
        out.interfaces.end()) {
      reader_.error(item->place, path, value.text,
                    fmt::format("'{}' stands in the list twice", value.text));
      continue;
    }
    out.interfaces.push_back(std::move(value.text));
  }
}

void ConfigReader::read_target(const YamlNode& node, const std::string& path, Config& config) {
  const auto map = reader_.map(node, path, kTargetSpec);
  if (!map) {
    return;
  }
  TargetConfig target;
  target.place = map->place;
  endpoint_paths_.emplace_back();
  reader_.text(*map, "name", target.name);
  const auto twin = std::find_if(
      config.targets.begin(), config.targets.end(),
      [&](const TargetConfig& t) { return !target.name.empty() && t.name == target.name; });
  if (twin != config.targets.end()) {
    reader_.error(
        map->place_of("name"), map->path_of("name"), target.name,
        fmt::format("the name '{}' is taken by the target at line {}; names of targets are unique",
                    target.name, twin->place.line));
  }
  read_match(*map, target);
  read_capacity(*map, target.capacity);
  if (const auto v = reader_.value(*map, "mode")) {
    target.mode = mode_of(v->text);
  }
  target.strategy.place = map->place_of("strategy");
  if (const YamlNode* strategy = map->find("strategy")) {
    read_strategy(reader_, strategies_, *strategy, map->path_of("strategy"), target.strategy);
  } else {
    set_default_params(target.strategy, strategies_);
  }
  reader_.number(*map, "target", target.target.value);
  read_memory(*map, target.memory);
  reader_.share(*map, "max_refuse", target.max_refuse);
  reader_.duration(*map, "max_refuse_duration", target.max_refuse_duration);
  if (const auto v = reader_.value(*map, "storm")) {
    target.storm = v->text != "off";
  }
  if (const std::vector<YamlNode>* endpoints = reader_.list(*map, "endpoints")) {
    if (endpoints->empty()) {
      reader_.error(map->place_of("endpoints"), map->path_of("endpoints"), "[]",
                    "the list is empty; allowed: at least one endpoint");
    }
    for (std::size_t i = 0; i < endpoints->size(); ++i) {
      read_endpoint((*endpoints)[i], fmt::format("{}[{}]", map->path_of("endpoints"), i), target);
    }
  }
  check_strategy_sees(reader_, strategies_, map->path_of("strategy"), target);
  read_exempt(*map, target);
  config.targets.push_back(std::move(target));
}

MatchPods ConfigReader::read_pods(const Map& match, const YamlNode& node) {
  MatchPods pods;
  const auto map = reader_.map(match, "pods");
  if (!map) {
    return pods;
  }
  for (auto& name : reader_.values(*map, "namespaces")) {
    pods.namespaces.push_back(std::move(name.value.text));
  }
  reader_.text(*map, "name", pods.name);
  reader_.text(*map, "uid", pods.uid);
  reader_.text(*map, "container", pods.container);
  if (reader_.text(*map, "selector", pods.selector)) {
    if (const auto parsed = LabelSelector::parse(pods.selector); !parsed) {
      reader_.error(map->place_of("selector"), map->path_of("selector"), pods.selector,
                    parsed.error().message);
    }
  }
  if (map->values.empty() || (map->values.size() == 1 && map->find("container") != nullptr)) {
    reader_.error(node.place, match.path_of("pods"), value_text(node),
                  "matches every pod of the node; allowed: at least one of namespaces, selector, "
                  "name and uid");
  }
  return pods;
}

void ConfigReader::read_match(const Map& target, TargetConfig& out) {
  const auto map = reader_.map(target, "match");
  if (!map) {
    return;
  }
  if (const YamlNode* pods_node = map->find("pods")) {
    out.match = read_pods(*map, *pods_node);
  }
  if (auto v = reader_.value(*map, "unit")) {
    out.match = MatchUnit{std::move(v->text)};
  }
  if (auto v = reader_.value(*map, "cgroup")) {
    std::string path = std::move(v->text);
    while (path.ends_with('/')) {
      path.pop_back();
    }
    if (const auto below = below_cgroup_mount(path)) {
      reader_.error(
          map->place_of("cgroup"), map->path_of("cgroup"), path,
          fmt::format("'{}' begins with the mount point of the cgroup file system; write the "
                      "path below it: {}",
                      path, *below),
          *below);
    }
    out.match = MatchCgroup{std::move(path)};
  }
  if (const auto process_map = reader_.map(*map, "process")) {
    MatchProcess process;
    reader_.text(*process_map, "exe", process.exe);
    out.match = std::move(process);
  }
}

void ConfigReader::read_capacity(const Map& target, CapacityConfig& out) {
  const auto map = reader_.map(target, "capacity");
  if (!map) {
    return;
  }
  if (const auto v = reader_.value(*map, "cpu"); v && v->text.empty()) {
    out.cpu_cores = v->number;
  }
  if (const auto v = reader_.value(*map, "memory"); v && v->text.empty()) {
    out.memory_bytes = v->integer;
  }
  reader_.number(*map, "request_factor", out.request_factor);
}

void ConfigReader::read_memory(const Map& target, MemoryConfig& out) {
  const auto map = reader_.map(target, "memory");
  if (!map) {
    return;
  }
  const bool shed_read = reader_.number(*map, "shed", out.shed);
  const bool open_read = reader_.number(*map, "open", out.open);
  const bool close_read = reader_.number(*map, "close", out.close);
  const auto below_open = [&](std::string_view key, bool read, double level) {
    if (read && open_read && level >= out.open) {
      const std::string_view at = map->find(key) != nullptr ? key : "open";
      reader_.error(map->place_of(at), map->path_of(at),
                    format_number(at == "open" ? out.open : level),
                    fmt::format("{} {} is not below open {}; allowed: {} < open", key,
                                format_number(level), format_number(out.open), key));
    }
  };
  below_open("shed", shed_read, out.shed);
  below_open("close", close_read, out.close);
  if (const auto v = reader_.value(*map, "live_budget")) {
    if (v->text == "off") {
      out.live_budget_bytes = 0;
    } else if (v->text.empty()) {
      out.live_budget_bytes = v->integer;
      reader_.error(
          map->place_of("live_budget"), map->path_of("live_budget"), format_size(v->integer),
          fmt::format("a budget of a given size ({}) is not enforced yet; use auto or off",
                      format_size(v->integer)));
    }
  }
}

void ConfigReader::read_exempt(const Map& target, TargetConfig& out) {
  const auto map = reader_.map(target, "exempt");
  if (!map) {
    return;
  }
  read_sources(*map, out.exempt);
  reader_.number(*map, "rate", out.exempt.rate_per_s);
  read_exempt_paths(reader_, *map, out);
}

void ConfigReader::read_sources(const Map& exempt, ExemptConfig& out) {
  const YamlNode* node = exempt.find("sources");
  if (node == nullptr) {
    return;
  }
  if (node->kind == YamlNode::Kind::kList) {
    out.sources.emplace();
  }
  for (auto& [value, item, path] : reader_.values(exempt, "sources")) {
    std::string source = std::move(value.text);
    if (source != "node") {
      Network network = parse_network(source);
      if (network.text.empty()) {
        reader_.error(item->place, path, source,
                      fmt::format("'{}' is not a network; allowed: {}", source,
                                  field_of(*exempt.spec, "sources").element->allowed));
        continue;
      }
      if (network.host_bits) {
        reader_.error(
            item->place, path, source,
            fmt::format("'{}' has bits behind its prefix; did you mean {}?", source, network.text),
            network.text);
        continue;
      }
      if (network.everything) {
        reader_.warn(item->place, path, source,
                     "every client of this family is exempt: none will be refused");
      }
      source = std::move(network.text);
    }
    if (std::find(out.sources->begin(), out.sources->end(), source) != out.sources->end()) {
      reader_.warn(item->place, path, source, "is in the list already");
      continue;
    }
    out.sources->push_back(std::move(source));
  }
}

std::vector<PortRange> ConfigReader::read_ports(const Map& endpoint) {
  const YamlNode* node = endpoint.find("port");
  if (node == nullptr) {
    return {};
  }
  const std::string path = endpoint.path_of("port");
  const std::string allowed = allowed_text(field_of(kEndpointSpec, "port"));
  const bool is_list = node->kind == YamlNode::Kind::kList;
  if (node->kind != YamlNode::Kind::kScalar && (!is_list || node->items.empty())) {
    reader_.wrong_kind(*node, path, allowed);
    return {};
  }
  std::vector<PortRange> out;
  std::map<std::uint32_t, std::uint32_t> taken;  // last port -> first
  const auto read_one = [&](const YamlNode& item, const std::string& item_path) {
    if (item.kind != YamlNode::Kind::kScalar) {
      reader_.wrong_kind(item, item_path, allowed);
      return;
    }
    const Ports ports = parse_ports(item.text);
    const std::string shown = printable(item.text);
    if (!ports.problem.empty()) {
      reader_.error(item.place, item_path, shown,
                    fmt::format("{}; allowed: {}", printable(ports.problem), allowed));
      return;
    }
    if (ports.scientific) {
      reader_.warn(item.place, item_path, shown,
                   fmt::format("'{}' is taken as {}; write it as an integer", shown,
                               ports.ranges.front().first));
    }
    for (const PortRange& range : ports.ranges) {
      const auto overlap = taken.lower_bound(range.first);
      if (overlap != taken.end() && overlap->second <= range.last) {
        reader_.error(item.place, item_path, shown,
                      fmt::format("port {} is given twice; keep one of them",
                                  std::max(range.first, overlap->second)));
        continue;
      }
      taken.emplace(range.last, range.first);
      out.push_back(range);
    }
  };
  if (is_list) {
    for (std::size_t i = 0; i < node->items.size(); ++i) {
      read_one(node->items[i], fmt::format("{}[{}]", path, i));
    }
  } else {
    read_one(*node, path);
  }
  return out;
}

void ConfigReader::read_criticality(const Map& map, Criticality& out) {
  if (const auto v = reader_.value(map, "criticality")) {
    out = enum_of(v->text, Criticality::kCount);
  }
}

void ConfigReader::read_endpoint(const YamlNode& node, const std::string& path, TargetConfig& out) {
  const auto map = reader_.map(node, path, kEndpointSpec);
  if (!map) {
    return;
  }
  EndpointConfig endpoint;
  endpoint.place = map->place;
  reader_.text(*map, "name", endpoint.name);
  if (const auto v = reader_.value(*map, "protocol")) {
    endpoint.protocol = enum_of(v->text, Protocol::kCount);
  }
  read_criticality(*map, endpoint.criticality);
  reader_.share(*map, "floor", endpoint.floor);
  endpoint.refuse.form = default_refuse(endpoint.protocol);
  read_refuse(*map, endpoint);
  read_routes(reader_, *map, endpoint);
  read_request_forms(reader_, *map, endpoint);

  const std::vector<PortRange> ranges = read_ports(*map);
  std::size_t count = 0;
  for (const PortRange& range : ranges) {
    count += range.count();
  }
  const std::size_t slots = count * slots_of(endpoint);
  if (endpoints_ + slots > HEADGATE_MAX_ENDPOINTS) {
    reader_.error(
        map->place_of("port"), map->path_of("port"), value_text(*map->find("port")),
        fmt::format("with these {} ports there are {} endpoints{}; allowed: at most {} in all",
                    count, endpoints_ + slots, slots > count ? ", routes included" : "",
                    HEADGATE_MAX_ENDPOINTS));
    return;
  }
  endpoints_ += slots;
  for (const PortRange& range : ranges) {
    for (std::uint32_t port = range.first; port <= range.last; ++port) {
      EndpointConfig one = endpoint;
      one.port = static_cast<std::uint16_t>(port);
      if (endpoint.name.empty()) {
        one.name = default_endpoint_name(one.protocol, one.port);
      } else if (count > 1) {
        one.name = fmt::format("{}-{}", endpoint.name, port);
      }
      out.endpoints.push_back(std::move(one));
      endpoint_paths_.back().push_back(path);
    }
  }
}

void ConfigReader::read_refuse(const Map& endpoint, EndpointConfig& out) {
  const YamlNode* node = endpoint.find("refuse");
  if (node == nullptr) {
    return;
  }
  const std::string path = endpoint.path_of("refuse");
  const Field& field = field_of(kEndpointSpec, "refuse");
  if (node->kind == YamlNode::Kind::kMap) {
    const std::array<std::string_view, 1> names{"defer"};
    const auto values = reader_.keys(*node, path, names);
    const auto it = values.find("defer");
    if (it == values.end()) {
      if (node->pairs.empty()) {
        reader_.error(node->place, path, "{}",
                      "is an empty mapping; allowed: " + allowed_text(field));
      }
      return;
    }
    out.refuse.form = RefuseForm::kDefer;
    if (const auto v = reader_.value(*it->second, path + ".defer", kDeferField)) {
      out.refuse.defer_deadline = v->duration;
      if (v->duration > std::chrono::seconds(8)) {
        reader_.warn(
            it->second->place, path + ".defer", printable(it->second->text),
            fmt::format("{} is longer than 8s: stock senders give up a connect after 10 s, and a "
                        "connect is tried at steps of 1 to 4 s",
                        format_duration(v->duration)));
      }
    }
  } else if (node->kind == YamlNode::Kind::kScalar) {
    const Nearest nearest = nearest_of(node->text, field.words);
    if (nearest.name != node->text) {
      reader_.error(
          node->place, path, printable(node->text),
          fmt::format("'{}' is not a form of refusal{} Allowed: {}", printable(node->text),
                      suggestion(nearest.close ? nearest : Nearest{}), allowed_text(field)),
          std::string(nearest.name));
      return;
    }
    out.refuse.form = refuse_form_of(node->text);
  } else {
    reader_.wrong_kind(*node, path, allowed_text(field));
    return;
  }
  const std::string_view word = to_string(out.refuse.form);
  if (const auto fitting = refuse_mismatch(out.refuse.form, out.protocol); !fitting.empty()) {
    reader_.error(node->place, path, std::string(word),
                  fmt::format("'{}' does not go with protocol {}; allowed: {}", word,
                              to_string(out.protocol), fitting));
  }
}

}  // namespace

std::string to_string(const Problem& problem) {
  std::string out = problem.file.empty() ? "configuration" : problem.file;
  if (problem.place.line > 0) {
    out += fmt::format(":{}:{}", problem.place.line, problem.place.column);
  }
  out += problem.severity == Problem::Severity::kError ? ": error: " : ": warning: ";
  if (!problem.key.empty()) {
    out += problem.key + ": ";
  }
  return out + problem.message;
}

bool LoadedConfig::valid() const {
  return std::none_of(problems.begin(), problems.end(),
                      [](const Problem& p) { return p.severity == Problem::Severity::kError; });
}

LoadedConfig load_config(std::string_view text, const std::string& file,
                         std::span<const StrategyInfo> strategies) {
  LoadedConfig out;
  out.config.source = file;
  out.config.hash = fnv1a(text);
  if (const auto root = parse_yaml(text, file, out.problems)) {
    ConfigReader(file, strategies, out.problems).read(*root, out.config);
  }
  std::stable_sort(
      out.problems.begin(), out.problems.end(), [](const Problem& a, const Problem& b) {
        return std::pair(a.place.line, a.place.column) < std::pair(b.place.line, b.place.column);
      });
  return out;
}

LoadedConfig load_config_file(const std::string& path, std::span<const StrategyInfo> strategies) {
  const auto text = read_small_file(path, /*pipes=*/true);
  if (text) {
    return load_config(*text, path, strategies);
  }
  LoadedConfig out;
  out.config.source = path;
  Problem problem;
  problem.file = path;
  problem.message =
      fmt::format("cannot be read: {}; give a readable file with --config", text.error().message);
  out.problems.push_back(std::move(problem));
  return out;
}

}  // namespace headgate
