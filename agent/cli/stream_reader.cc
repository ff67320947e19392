// SPDX-License-Identifier: Apache-2.0
#include "agent/cli/stream_reader.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>

#include "bpf/lib/http1.h"

namespace headgate::cli {
namespace {

constexpr std::array<std::string_view, 10> kMethods{
    "", "GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH"};

std::optional<headgate_route_key> key_of(std::string_view path) {
  headgate_path out{};
  headgate_path_start(&out, 0);
  for (const char c : path) {
    headgate_path_byte(&out, static_cast<std::uint8_t>(c));
  }
  return headgate_path_end(&out) != 0 ? std::optional(out.key) : std::nullopt;
}

/// A key's bytes of path.
std::string_view path_of(const headgate_route_key& key) {
  return {reinterpret_cast<const char*>(key.path), (key.prefix_bits - 32) / 8};
}

/// Longest prefix, as BPF_MAP_TYPE_LPM_TRIE finds it.
const PortRoutes::Path* find(const PortRoutes& routes, const headgate_route_key& key) {
  const PortRoutes::Path* best = nullptr;
  for (const PortRoutes::Path& path : routes.paths) {
    if (path_of(key).starts_with(path_of(path.key)) &&
        (best == nullptr || path.key.prefix_bits > best->key.prefix_bits)) {
      best = &path;
    }
  }
  return best;
}

/// As people write it: without the '/' that ends it in the map.
std::string shown(const headgate_route_key& key) {
  std::string_view path = path_of(key);
  if (path.size() > 1 && path.back() == '/') {
    path.remove_suffix(1);
  }
  return std::string(path);
}

}  // namespace

PortRoutes routes_of(const TargetConfig& target, const EndpointConfig& endpoint) {
  PortRoutes out;
  out.http1 = endpoint.protocol == Protocol::kHttp;
  out.http2 = endpoint.protocol == Protocol::kGrpc;
  const auto add = [&out](const std::string& path, const std::string& name, bool exempt) {
    if (const auto key = key_of(path)) {
      out.paths.push_back({*key, name, exempt});
    }
  };
  if (out.http1) {
    for (const RouteConfig& route : endpoint.routes) {
      add(route.path, route.name, false);
    }
    for (const std::string& path : target.exempt.paths) {
      add(path, path, true);
    }
  }
  if (out.http2) {
    for (const RouteConfig& route : endpoint.routes) {
      out.methods.push_back({route.path, route.name, false});
    }
    for (const std::string& path : target.exempt.paths) {
      out.methods.push_back({path, path, true});
    }
  }
  return out;
}

StreamReader::StreamReader(const PortRoutes& routes)
    : routes_(&routes), stream_(std::make_unique<headgate_stream>()) {}
StreamReader::~StreamReader() = default;
StreamReader::StreamReader(StreamReader&&) noexcept = default;

/// The request that is being read; `whole`: its head is.
void StreamReader::add_http1(bool whole) {
  const headgate_http1& http1 = stream_->http1;
  SeenRequest out;
  out.number = http1.requests;
  out.reason = http1.reason;
  out.offset_bytes = http1.offset;
  if (whole) {
    out.protocol = "http/1.1";
    if (http1.method < kMethods.size() && http1.method != HEADGATE_METHOD_UNKNOWN) {
      out.method = kMethods[http1.method];
    }
    if (http1.path.state != HEADGATE_PATH_BAD) {
      out.path = shown(http1.path.key);
    }
    if (out.reason == HEADGATE_UNKNOWN_NONE && !routes_->http1) {
      out.reason = HEADGATE_UNKNOWN_PROTOCOL;
      stream_->protocol = HEADGATE_PROTOCOL_NONE;
    }
    const PortRoutes::Path* route =
        out.reason == HEADGATE_UNKNOWN_NONE ? find(*routes_, http1.path.key) : nullptr;
    if (route != nullptr) {
      out.exempt = route->exempt;
      out.route = route->exempt ? std::nullopt : std::optional(route->name);
    }
  }
  requests_.push_back(std::move(out));
}

void StreamReader::give_up(std::uint32_t reason) {
  if (stream_->protocol == HEADGATE_PROTOCOL_NONE) {
    return;
  }
  stream_->protocol = HEADGATE_PROTOCOL_NONE;
  SeenRequest out;
  out.number = requests_.size() + 1;
  out.reason = reason;
  out.offset_bytes = stream_->offset + stream_->at;
  requests_.push_back(std::move(out));
}

void StreamReader::feed(std::span<const std::uint8_t> packet) {
  if (stream_->protocol <= HEADGATE_PROTOCOL_HTTP1) {
    feed_http1(packet);
  } else if (stream_->protocol == HEADGATE_PROTOCOL_HTTP2) {
    feed_http2(packet);
  }
  stream_->offset += packet.size();
  stream_->at = 0;
}

void StreamReader::feed_http1(std::span<const std::uint8_t> packet) {
  headgate_stream& s = *stream_;
  s.at = 0;
  s.packet_bytes = static_cast<std::uint32_t>(packet.size());
  s.window_bytes = 0;
  for (int steps = 0; s.at < s.packet_bytes; ++steps) {
    if (steps == HEADGATE_HTTP1_STEPS_MAX) {
      give_up(HEADGATE_UNKNOWN_BUDGET);
      return;
    }
    if (headgate_http1_wants_window(&s)) {
      s.window_at = s.at;
      s.window_bytes = std::min<std::uint32_t>(s.packet_bytes - s.at, sizeof(s.window));
      std::memcpy(s.window, packet.data() + s.at, s.window_bytes);
    }
    switch (headgate_http1_step(&s)) {
      case HEADGATE_HTTP1_HEAD:
        s.protocol = HEADGATE_PROTOCOL_HTTP1;
        add_http1(true);
        if (s.http1.state == HEADGATE_HTTP1_LOST) {
          s.protocol = HEADGATE_PROTOCOL_NONE;
        }
        break;
      case HEADGATE_HTTP1_FAILED:
        add_http1(false);
        s.protocol = HEADGATE_PROTOCOL_NONE;
        break;
      case HEADGATE_HTTP1_HTTP2:
        if (!routes_->http2) {
          give_up(HEADGATE_UNKNOWN_PROTOCOL);
          return;
        }
        begin_http2(s.offset + s.at);
        feed_http2(packet.subspan(s.at));
        return;
      default: break;
    }
    if (s.protocol == HEADGATE_PROTOCOL_NONE) {
      return;
    }
  }
}

void StreamReader::begin_http2(std::uint64_t offset_bytes) {
  stream_->protocol = HEADGATE_PROTOCOL_HTTP2;
  http2_offset_ = offset_bytes;
  std::vector<std::string> methods;
  for (const PortRoutes::Method& method : routes_->methods) {
    methods.push_back(method.path);
  }
  http2_ = std::make_unique<Http2Reader>(methods);
}

void StreamReader::feed_http2(std::span<const std::uint8_t> packet) {
  for (const Http2Reader::Request& request : http2_->feed(packet)) {
    SeenRequest out;
    out.number = requests_.size() + 1;
    out.protocol = "http/2";
    out.path = request.path;
    out.reason = request.reason;
    out.offset_bytes = http2_offset_ + request.offset_bytes;
    if (request.method) {
      const PortRoutes::Method& method = routes_->methods[*request.method];
      out.exempt = method.exempt;
      out.route = method.exempt ? std::nullopt : std::optional(method.name);
    }
    requests_.push_back(std::move(out));
  }
  if (const std::uint32_t reason = http2_->lost(); reason != HEADGATE_UNKNOWN_NONE) {
    stream_->protocol = HEADGATE_PROTOCOL_NONE;
    SeenRequest out;
    out.number = requests_.size() + 1;
    out.protocol = "http/2";
    out.reason = reason;
    out.offset_bytes = http2_offset_ + http2_->frame_offset_bytes();
    requests_.push_back(std::move(out));
  }
}

std::uint64_t StreamReader::unfinished_bytes() const {
  if (stream_->protocol == HEADGATE_PROTOCOL_HTTP2) {
    return http2_->in_request() ? stream_->offset - http2_offset_ - http2_->frame_offset_bytes()
                                : 0;
  }
  const bool in_head = stream_->protocol <= HEADGATE_PROTOCOL_HTTP1 &&
                       stream_->http1.state >= HEADGATE_HTTP1_TLS &&
                       stream_->http1.state <= HEADGATE_HTTP1_HEAD_LF &&
                       (stream_->http1.flags & HEADGATE_HTTP1_TRAILERS) == 0;
  return in_head ? stream_->offset - stream_->http1.offset : 0;
}

}  // namespace headgate::cli
