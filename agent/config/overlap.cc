// SPDX-License-Identifier: Apache-2.0
#include "agent/config/overlap.h"

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>

#include <fmt/format.h>

namespace headgate {
namespace {

/// Identity of what a target matches; empty = its match could not be read.
std::optional<std::string> match_text(const Match& match) {
  struct Text {
    std::optional<std::string> operator()(const MatchPods& m) const {
      return fmt::format("pods:{}|{}|{}|{}|{}", fmt::join(m.namespaces, ","), m.selector, m.name,
                         m.uid, m.container);
    }
    std::optional<std::string> operator()(const MatchUnit& m) const { return "unit:" + m.unit; }
    std::optional<std::string> operator()(const MatchCgroup& m) const { return "cgroup:" + m.path; }
    std::optional<std::string> operator()(const MatchProcess& m) const {
      return m.exe.empty() ? std::nullopt : std::optional("exe:" + m.exe);
    }
  };
  return std::visit(Text{}, match);
}

/// A cgroup within another target's: the outer may listen elsewhere, so only a hint.
void check_nested(Reader& reader, const Config& config,
                  const std::vector<std::vector<std::string>>& endpoint_paths) {
  for (std::size_t outer = 0; outer < config.targets.size(); ++outer) {
    const auto* const above = std::get_if<MatchCgroup>(&config.targets[outer].match);
    if (above == nullptr || above->path.empty()) {
      continue;
    }
    for (std::size_t inner = 0; inner < config.targets.size(); ++inner) {
      const auto* const below = std::get_if<MatchCgroup>(&config.targets[inner].match);
      if (below == nullptr || !below->path.starts_with(above->path + "/")) {
        continue;
      }
      for (std::size_t e = 0; e < config.targets[inner].endpoints.size(); ++e) {
        const EndpointConfig& endpoint = config.targets[inner].endpoints[e];
        const auto& others = config.targets[outer].endpoints;
        const bool shared = std::any_of(others.begin(), others.end(), [&](const EndpointConfig& o) {
          return o.port == endpoint.port &&
                 (o.protocol == Protocol::kUdp) == (endpoint.protocol == Protocol::kUdp);
        });
        if (shared) {
          reader.warn(
              endpoint.place, endpoint_paths[inner][e] + ".port", fmt::format("{}", endpoint.port),
              fmt::format("target '{}' (line {}) protects the cgroup above this one and claims "
                          "port {}, too; one of them should leave it out",
                          config.targets[outer].name, config.targets[outer].place.line,
                          endpoint.port));
        }
      }
    }
  }
}

}  // namespace

void check_overlap(Reader& reader, const Config& config,
                   const std::vector<std::vector<std::string>>& endpoint_paths) {
  struct Seen {
    std::size_t target;
    const EndpointConfig* endpoint;
  };
  const auto claim = [&](std::size_t target, const EndpointConfig& endpoint) {
    return fmt::format("'{}' of target '{}' (line {})", endpoint.name, config.targets[target].name,
                       endpoint.place.line);
  };
  const auto is_udp = [](const EndpointConfig& e) { return e.protocol == Protocol::kUdp; };
  // (what is matched, transport, port)
  std::map<std::tuple<std::string, bool, std::uint16_t>, Seen> ports;
  for (std::size_t t = 0; t < config.targets.size(); ++t) {
    const TargetConfig& target = config.targets[t];
    // A target whose match could not be read is looked at by itself.
    const std::string matched = match_text(target.match).value_or(fmt::format("#{}", t));
    std::map<std::string_view, int> names;
    for (std::size_t e = 0; e < target.endpoints.size(); ++e) {
      const EndpointConfig& endpoint = target.endpoints[e];
      const std::string& path = endpoint_paths[t][e];
      const auto [seen, fresh] =
          ports.emplace(std::tuple{matched, is_udp(endpoint), endpoint.port}, Seen{t, &endpoint});
      const auto [name, fresh_name] = names.emplace(endpoint.name, endpoint.place.line);
      if (!fresh) {
        reader.error(
            endpoint.place, path + ".port", fmt::format("{}", endpoint.port),
            fmt::format("{} port {} is claimed by two rules: {} and {}; keep it in one of them",
                        is_udp(endpoint) ? "UDP" : "TCP", endpoint.port,
                        claim(seen->second.target, *seen->second.endpoint), claim(t, endpoint)));
      } else if (!fresh_name) {
        reader.error(
            endpoint.place, path + ".name", endpoint.name,
            fmt::format("the name '{}' is taken by the endpoint at line {}; names of endpoints "
                        "are unique within a target",
                        endpoint.name, name->second));
      }
    }
  }
  check_nested(reader, config, endpoint_paths);
}

}  // namespace headgate
