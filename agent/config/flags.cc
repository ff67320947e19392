// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cctype>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "headgate/bpf_abi.h"

#include "agent/config/defaults.h"
#include "agent/config/load.h"
#include "agent/config/quantity.h"
#include "agent/config/schema.h"

namespace headgate {
namespace {

constexpr std::string_view kTargetForms =
    "cgroup:/PATH (below the cgroup root), unit:NAME.service, exe:/PATH/OF/EXECUTABLE, or "
    "pod:NAMESPACE/NAME[/CONTAINER]";

/// A text for a name made of what the name's rule allows.
std::string name_from(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const bool plain = std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '.' || c == '_' ||
                       c == '@' || c == '-';
    out += plain ? c : '-';
  }
  const auto outer = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0; };
  while (!out.empty() && outer(out.front())) {
    out.erase(out.begin());
  }
  out.resize(std::min<std::size_t>(out.size(), 90));  // leaves room for a number behind it
  while (!out.empty() && outer(out.back())) {
    out.pop_back();
  }
  return out.empty() ? "target" : out;
}

bool is_unit_name(std::string_view text) {
  return read_value(field_of(kMatchSpec, "unit"), text).problem.empty();
}

Result<TargetConfig> target_of(const std::string& text) {
  const auto bad = [&](std::string_view why) {
    return fail(fmt::format("--protect {}: {}", printable(text), why));
  };
  std::string_view kind = std::string_view(text).substr(0, text.find(':'));
  std::string_view rest;
  if (kind == text && is_unit_name(text)) {
    kind = "unit";
    rest = text;
  } else if (kind.size() < text.size()) {
    rest = std::string_view(text).substr(kind.size() + 1);
  } else {
    return bad(fmt::format("does not say what it is; allowed: {}", kTargetForms));
  }
  if (kind == "pid") {
    return bad(fmt::format("a process id does not outlive a restart of the process; allowed: {}",
                           kTargetForms));
  }
  TargetConfig target;
  if (kind == "pod") {
    auto pod = parse_pod_target(rest);
    if (!pod) {
      return bad(pod.error().message);
    }
    target.name = name_from(pod->name.empty() ? pod->uid : pod->name);
    target.match = std::move(*pod);
    return target;
  }
  Value value;
  if (kind == "unit") {
    value = read_value(field_of(kMatchSpec, "unit"), rest);
    target.match = MatchUnit{value.text};
  } else if (kind == "cgroup") {
    if (const auto below = below_cgroup_mount(rest)) {
      return bad(fmt::format("leave the mount point out and write cgroup:{}", *below));
    }
    value = read_value(field_of(kMatchSpec, "cgroup"), rest);
    while (value.text.ends_with('/')) {
      value.text.pop_back();
    }
    target.match = MatchCgroup{value.text};
  } else if (kind == "exe" || kind == "process") {
    value = read_value(field_of(kProcessSpec, "exe"), rest);
    target.match = MatchProcess{value.text};
  } else {
    constexpr std::array<std::string_view, 5> kKinds{"cgroup", "unit", "exe", "process", "pod"};
    const Nearest nearest = nearest_of(kind, kKinds);
    return bad(fmt::format("unknown kind '{}'{} Allowed: {}", printable(kind),
                           suggestion(nearest.close ? nearest : Nearest{}), kTargetForms));
  }
  if (!value.problem.empty()) {
    return bad(value.problem);
  }
  const std::size_t slash =
      kind == "exe" || kind == "process" ? rest.rfind('/') : std::string::npos;
  target.name =
      name_from(slash == std::string::npos ? std::string_view(value.text) : rest.substr(slash + 1));
  return target;
}

Result<std::vector<EndpointConfig>> endpoints_of(const std::string& text) {
  const auto bad = [&](std::string_view why) {
    return fail(fmt::format("--port {}: {}", printable(text), why));
  };
  EndpointConfig endpoint;
  const std::size_t slash = text.find('/');
  if (slash != std::string::npos) {
    const Field& field = field_of(kEndpointSpec, "protocol");
    const Value protocol = read_value(field, std::string_view(text).substr(slash + 1));
    if (!protocol.problem.empty()) {
      return bad(protocol.problem);
    }
    for (std::uint8_t i = 0; i < static_cast<std::uint8_t>(Protocol::kCount); ++i) {
      if (to_string(static_cast<Protocol>(i)) == protocol.text) {
        endpoint.protocol = static_cast<Protocol>(i);
      }
    }
  }
  endpoint.refuse.form = default_refuse(endpoint.protocol);
  const Ports ports = parse_ports(std::string_view(text).substr(0, slash));
  if (!ports.problem.empty()) {
    return bad(
        fmt::format("{}; allowed: {}, with /tcp, /udp, /http or /grpc behind it, such as "
                    "4317/grpc",
                    ports.problem, allowed_text(field_of(kEndpointSpec, "port"))));
  }
  std::vector<EndpointConfig> out;
  for (const PortRange& range : ports.ranges) {
    for (std::uint32_t port = range.first; port <= range.last; ++port) {
      endpoint.port = static_cast<std::uint16_t>(port);
      endpoint.name = default_endpoint_name(endpoint.protocol, endpoint.port);
      out.push_back(endpoint);
    }
  }
  return out;
}

}  // namespace

Result<MatchPods> parse_pod_target(std::string_view text) {
  MatchPods out;
  const auto part = [&](std::string_view key, std::string_view value, std::string& into) {
    const Value read = read_value(field_of(kPodsSpec, key), value);
    into = read.text;
    return read.problem;
  };
  const std::size_t slash = text.find('/');
  const std::string_view first = text.substr(0, slash);
  std::string_view rest = slash == std::string_view::npos ? "" : text.substr(slash + 1);
  std::string problem;
  if (part("uid", first, out.uid).empty()) {
    if (slash != std::string_view::npos) {
      problem = part("container", rest, out.container);
    }
  } else {
    out.uid.clear();
    if (slash == std::string_view::npos) {
      return fail("is no pod; allowed: NAMESPACE/NAME[/CONTAINER] or UID[/CONTAINER]");
    }
    const std::size_t second = rest.find('/');
    out.namespaces.emplace_back();
    problem = read_value(*field_of(kPodsSpec, "namespaces").element, first).problem;
    out.namespaces.front() = first;
    if (problem.empty()) {
      problem = part("name", rest.substr(0, second), out.name);
    }
    if (problem.empty() && second != std::string_view::npos) {
      problem = part("container", rest.substr(second + 1), out.container);
    }
  }
  if (!problem.empty()) {
    return fail(problem);
  }
  return out;
}

Result<Config> config_from_flags(const std::vector<std::string>& protect,
                                 const std::vector<std::string>& ports, Mode mode,
                                 std::span<const StrategyInfo> strategies) {
  if (protect.empty()) {
    return fail(fmt::format("--protect is missing; give at least one: {}", kTargetForms));
  }
  if (ports.empty()) {
    return fail("--port is missing; give at least one, such as --port 4317/grpc");
  }
  std::vector<EndpointConfig> endpoints;
  std::set<std::pair<bool, std::uint16_t>> taken_ports;
  for (const std::string& text : ports) {
    auto some = endpoints_of(text);
    if (!some) {
      return tl::unexpected(some.error());
    }
    for (EndpointConfig& endpoint : *some) {
      const bool udp = endpoint.protocol == Protocol::kUdp;
      if (!taken_ports.emplace(udp, endpoint.port).second) {
        return fail(fmt::format("--port {}: {} port {} is given twice; keep one of them", text,
                                udp ? "UDP" : "TCP", endpoint.port));
      }
      endpoints.push_back(std::move(endpoint));
    }
  }
  Config config;
  config.mode = mode;
  for (const std::string& text : protect) {
    auto target = target_of(text);
    if (!target) {
      return tl::unexpected(target.error());
    }
    const auto taken = [&](const auto& same) {
      return std::any_of(config.targets.begin(), config.targets.end(), same);
    };
    if (taken([&](const TargetConfig& t) { return t.match == target->match; })) {
      return fail(fmt::format("--protect {}: is given twice; keep one of them", text));
    }
    const std::string base = target->name;
    for (int n = 2; taken([&](const TargetConfig& t) { return t.name == target->name; }); ++n) {
      target->name = fmt::format("{}-{}", base, n);
    }
    target->endpoints = endpoints;
    set_default_params(target->strategy, strategies);
    config.targets.push_back(std::move(*target));
  }
  if (config.targets.size() > HEADGATE_MAX_TARGETS ||
      config.targets.size() * endpoints.size() > HEADGATE_MAX_ENDPOINTS) {
    return fail(fmt::format(
        "--protect, --port: {} targets with {} ports each; allowed: at most {} "
        "targets and {} endpoints in all",
        config.targets.size(), endpoints.size(), HEADGATE_MAX_TARGETS, HEADGATE_MAX_ENDPOINTS));
  }
  return config;
}

}  // namespace headgate
