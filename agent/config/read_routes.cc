// SPDX-License-Identifier: Apache-2.0
#include "agent/config/read_routes.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "agent/config/quantity.h"
#include "agent/config/route_path.h"

namespace headgate {
namespace {

constexpr std::string_view kRequestForms = "refuse: 429, 503 or grpc-exhausted";

Criticality criticality_of(std::string_view word) {
  for (std::uint8_t i = 0; i < static_cast<std::uint8_t>(Criticality::kCount); ++i) {
    if (to_string(static_cast<Criticality>(i)) == word) {
      return static_cast<Criticality>(i);
    }
  }
  return Criticality::kCritical;
}

/// The path in its normal form; what is wrong with it, or that it reads differently, is reported.
void read_path(Reader& reader, Place place, const std::string& key, Protocol protocol,
               std::string& path) {
  if (path.empty()) {
    return;
  }
  if (protocol == Protocol::kGrpc) {
    if (!is_grpc_method(path)) {
      reader.error(place, key, printable(path),
                   fmt::format("'{}' is not a method; allowed: /package.Service/Method, such as "
                               "/opentelemetry.proto.collector.trace.v1.TraceService/Export",
                               printable(path)));
    } else if (path.size() > kRoutePathMax) {
      reader.error(place, key, printable(path),
                   fmt::format("'{}' has {} bytes; allowed: at most {}", printable(path),
                               path.size(), kRoutePathMax));
    }
    return;
  }
  RoutePath normal = normalize_path(path);
  if (!normal.problem.empty()) {
    reader.error(place, key, printable(path),
                 fmt::format("'{}' {}", printable(path), normal.problem));
    return;
  }
  if (normal.path != path) {
    reader.warn(place, key, printable(path),
                fmt::format("'{}' is taken as '{}': paths are compared in their normal form",
                            printable(path), normal.path));
  }
  path = std::move(normal.path);
}

void read_route(Reader& reader, const Map& map, EndpointConfig& out) {
  RouteConfig route;
  route.place = map.place;
  reader.text(map, "name", route.name);
  reader.text(map, "path", route.path);
  read_path(reader, map.place_of("path"), map.path_of("path"), out.protocol, route.path);
  if (const auto v = reader.value(map, "criticality")) {
    route.criticality = criticality_of(v->text);
  }
  reader.share(map, "floor", route.floor);
  route.unary = out.protocol == Protocol::kGrpc && is_known_unary(route.path);
  if (const auto v = reader.value(map, "calls")) {
    route.unary = v->text == "unary";
    if (out.protocol != Protocol::kGrpc) {
      route.unary = false;
      reader.error(
          map.place_of("calls"), map.path_of("calls"), v->text,
          fmt::format("protocol {} has no calls; allowed with grpc", to_string(out.protocol)));
    }
  } else if (out.refuse.form == RefuseForm::kGrpcExhausted && !route.unary && !route.path.empty()) {
    reader.warn(map.place_of("path"), map.path_of("path"), printable(route.path),
                "is counted and never refused, because a call of this method may be a stream; give "
                "calls: unary where each takes exactly one message, else calls: stream");
  }
  for (const RouteConfig& other : out.routes) {
    if (!route.name.empty() && other.name == route.name) {
      reader.error(map.place_of("name"), map.path_of("name"), route.name,
                   fmt::format("the name '{}' is taken by the route at line {}", route.name,
                               other.place.line));
    }
    if (!route.path.empty() && other.path == route.path) {
      reader.error(map.place_of("path"), map.path_of("path"), route.path,
                   fmt::format("the path is that of the route '{}' at line {}", other.name,
                               other.place.line));
    }
  }
  out.routes.push_back(std::move(route));
}

/// Duration of whole seconds.
void read_seconds(Reader& reader, const Map& map, std::string_view key, Duration& out) {
  Duration read = out;
  if (!reader.duration(map, key, read)) {
    return;
  }
  if (read % std::chrono::seconds(1) != Duration::zero()) {
    reader.error(map.place_of(key), map.path_of(key), format_duration(read),
                 fmt::format("{} is not whole seconds, which is all that Retry-After can say "
                             "(RFC 9110, section 10.2.3)",
                             format_duration(read)));
    return;
  }
  out = read;
}

void read_http(Reader& reader, const Map& endpoint, HttpConfig& out) {
  const auto map = reader.map(endpoint, "http");
  if (!map) {
    return;
  }
  read_seconds(reader, *map, "retry_after_min", out.retry_after_min);
  read_seconds(reader, *map, "retry_after_max", out.retry_after_max);
  reader.duration(*map, "idle_timeout", out.idle_timeout);
  if (out.retry_after_max < out.retry_after_min) {
    const std::string_view at =
        map->find("retry_after_max") != nullptr ? "retry_after_max" : "retry_after_min";
    reader.error(
        map->place_of(at), map->path_of(at),
        format_duration(at == "retry_after_max" ? out.retry_after_max : out.retry_after_min),
        fmt::format("retry_after_max {} is below retry_after_min {}",
                    format_duration(out.retry_after_max), format_duration(out.retry_after_min)));
  }
}

void read_grpc(Reader& reader, const Map& endpoint, EndpointConfig& out) {
  const auto map = reader.map(endpoint, "grpc");
  const auto limit = map ? reader.value(*map, "max_message") : std::nullopt;
  if (!limit && out.refuse.form == RefuseForm::kGrpcExhausted &&
      (!map || map->find("max_message") == nullptr)) {
    reader.warn(endpoint.place_of("refuse"), endpoint.path_of("refuse"), "grpc-exhausted",
                fmt::format("grpc.max_message is not given and taken as {}, the default of gRPC "
                            "servers: make sure that this server has a limit below 4Gi, or it will "
                            "wait for the rest of a message of 4Gi",
                            format_size(out.grpc.max_message_bytes)));
    return;
  }
  if (!limit) {
    return;
  }
  if (limit->text == "unlimited") {
    if (out.refuse.form == RefuseForm::kGrpcExhausted) {
      reader.error(map->place_of("max_message"), map->path_of("max_message"), "unlimited",
                   "a server without a limit cannot be made to refuse: it would wait for the rest "
                   "of a message of 4Gi; give the server a limit, or use refuse: auto");
    }
    return;
  }
  out.grpc.max_message_bytes = limit->integer;
}

}  // namespace

void read_routes(Reader& reader, const Map& endpoint, EndpointConfig& out) {
  const auto* items = reader.list(endpoint, "routes");
  if (items == nullptr || items->empty()) {
    return;
  }
  const std::string path = endpoint.path_of("routes");
  const bool fits = out.protocol == Protocol::kHttp || out.protocol == Protocol::kGrpc;
  if (!fits) {
    reader.error(endpoint.place_of("routes"), path, "(a list)",
                 fmt::format("protocol {} has no routes; allowed with http and grpc",
                             to_string(out.protocol)));
  }
  bool rules = false;
  for (std::size_t i = 0; i < items->size(); ++i) {
    const auto map = reader.map((*items)[i], fmt::format("{}[{}]", path, i),
                                *field_of(kEndpointSpec, "routes").element->map);
    if (map) {
      rules = rules || map->find("criticality") != nullptr || map->find("floor") != nullptr;
      read_route(reader, *map, out);
    }
  }
  if (fits && rules && !refuses_requests(out.refuse.form)) {
    reader.warn(endpoint.place_of("routes"), path, "(a list)",
                fmt::format("criticality and floor of a route act on {}; here requests are counted "
                            "and shown, and connections are refused by the rule of the endpoint",
                            kRequestForms));
  }
}

void read_request_forms(Reader& reader, const Map& endpoint, EndpointConfig& out) {
  read_http(reader, endpoint, out.http);
  if (out.protocol == Protocol::kGrpc) {
    read_grpc(reader, endpoint, out);
  }
  const bool answers =
      out.refuse.form == RefuseForm::kHttp429 || out.refuse.form == RefuseForm::kHttp503;
  const auto no_effect = [&](std::string_view key, std::string_view with) {
    if (endpoint.find(key) != nullptr) {
      reader.warn(endpoint.place_of(key), endpoint.path_of(key), "(a mapping)",
                  fmt::format("has no effect without refuse: {}", with));
    }
  };
  if (!answers) {
    no_effect("http", "429 or 503");
    out.http = {};
  }
  if (out.refuse.form != RefuseForm::kGrpcExhausted) {
    no_effect("grpc", "grpc-exhausted");
    out.grpc = {};
  } else if (out.protocol == Protocol::kGrpc && out.routes.empty()) {
    reader.error(endpoint.place_of("refuse"), endpoint.path_of("refuse"), "grpc-exhausted",
                 "needs routes: only methods that take exactly one message a call can be refused, "
                 "and routes say which do");
  }
}

void read_exempt_paths(Reader& reader, const Map& exempt, TargetConfig& out) {
  for (auto& [value, node, key] : reader.values(exempt, "paths")) {
    std::string path = std::move(value.text);
    read_path(reader, node->place, key, Protocol::kHttp, path);
    const auto twin = std::find(out.exempt.paths.begin(), out.exempt.paths.end(), path);
    if (twin != out.exempt.paths.end()) {
      reader.warn(node->place, key, printable(path), "is in the list already");
      continue;
    }
    int line = 0;
    for (const EndpointConfig& endpoint : out.endpoints) {
      if (endpoint.place.line == line) {
        continue;  // another port of the same rule
      }
      line = endpoint.place.line;
      for (const RouteConfig& route : endpoint.routes) {
        if (route.path == path) {
          reader.error(node->place, key, path,
                       fmt::format("'{}' is the path of the route '{}' at line {}, too: what is "
                                   "exempt is never refused; keep it in one of them",
                                   path, route.name, route.place.line));
        } else if (endpoint.protocol == Protocol::kHttp &&
                   route.path.starts_with(path == "/" ? path : path + "/")) {
          reader.warn(node->place, key, path,
                      fmt::format("the route '{}' at line {} lies below '{}' and can be refused: "
                                  "the longest path holds",
                                  route.name, route.place.line, path));
        }
      }
    }
    out.exempt.paths.push_back(std::move(path));
  }
  if (!out.exempt.paths.empty() &&
      std::none_of(out.endpoints.begin(), out.endpoints.end(), sees_requests)) {
    reader.warn(exempt.place_of("paths"), exempt.path_of("paths"),
                value_text(*exempt.find("paths")),
                "has no effect: paths are told apart only where an endpoint has routes or refuses "
                "requests");
  }
}

std::size_t slots_of(const EndpointConfig& endpoint) {
  return 1 + (sees_requests(endpoint) ? 1 + endpoint.routes.size() : 0);
}

}  // namespace headgate
