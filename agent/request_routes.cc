// SPDX-License-Identifier: Apache-2.0
#include "agent/request_routes.h"

#include <algorithm>

#include "agent/config/route_path.h"
#include "agent/dataplane/method_keys.h"
#include "agent/dataplane/route_keys.h"

namespace headgate {
namespace {

/// The largest first packet that is answered: what a socket takes in at once (GRO's largest).
constexpr std::uint32_t kFirstBytesMax = 65536;

void add(RequestRoutes& out, bool grpc, std::uint32_t port, const std::string& path,
         const headgate_route& route) {
  if (!grpc) {
    out.paths.emplace_back(route_key(port, path), route);
    return;
  }
  for (const headgate_method_key& key : method_keys(port, path)) {
    out.methods.emplace_back(key, route);
  }
}

std::uint32_t whole_seconds(Duration duration) {
  return static_cast<std::uint32_t>(
      std::chrono::duration_cast<std::chrono::seconds>(duration).count());
}

}  // namespace

RequestRoutes make_request_routes(const EndpointConfig& endpoint,
                                  std::span<const std::string> exempt_paths,
                                  const RequestSlots& slots) {
  RequestRoutes out;
  const bool grpc = endpoint.protocol == Protocol::kGrpc;
  for (std::size_t i = 0; i < endpoint.routes.size(); ++i) {
    const RouteConfig& route = endpoint.routes[i];
    add(out, grpc, slots.port, route.path,
        {slots.routes[i], route.unary ? HEADGATE_ROUTE_UNARY : 0U});
  }
  for (const std::string& path : exempt_paths) {
    const bool routed = std::any_of(endpoint.routes.begin(), endpoint.routes.end(),
                                    [&](const RouteConfig& route) { return route.path == path; });
    if (!routed && (!grpc || is_grpc_method(path))) {
      add(out, grpc, slots.port, path, {slots.rest, HEADGATE_ROUTE_EXEMPT});
    }
  }
  return out;
}

headgate_request_port make_request_port(const EndpointConfig& endpoint, std::uint32_t rest,
                                        bool may_refuse, std::uint32_t generation) {
  headgate_request_port out{};
  out.rest = rest;
  out.flags =
      endpoint.protocol == Protocol::kGrpc ? HEADGATE_REQUESTS_HTTP2 : HEADGATE_REQUESTS_HTTP1;
  if (may_refuse && refuses_requests(endpoint.refuse.form)) {
    out.flags |= HEADGATE_REQUESTS_REFUSE;
  }
  out.retry_after_min_s = whole_seconds(endpoint.http.retry_after_min);
  out.retry_after_max_s = whole_seconds(endpoint.http.retry_after_max);
  out.let_through_ns = static_cast<std::uint64_t>(endpoint.http.idle_timeout.count()) / 2;
  out.first_bytes_max = kFirstBytesMax;
  out.generation = generation;
  return out;
}

headgate_action request_action(RefuseForm form) {
  switch (form) {
    case RefuseForm::kHttp503: return HEADGATE_ACTION_HTTP_503;
    case RefuseForm::kGrpcExhausted: return HEADGATE_ACTION_GRPC_EXHAUSTED;
    default: return HEADGATE_ACTION_HTTP_429;
  }
}

}  // namespace headgate
