// SPDX-License-Identifier: Apache-2.0
#include "deploy/demo/subject.h"

#include <array>
#include <iterator>

#include <fmt/format.h>

namespace headgate::demo {
namespace {

// Protobuf's wire format (protobuf.dev/programming-guides/encoding): as much as OTLP needs.
void put_varint(std::string& out, std::uint64_t value) {
  while (value >= 0x80) {
    out.push_back(static_cast<char>((value & 0x7f) | 0x80));
    value >>= 7;
  }
  out.push_back(static_cast<char>(value));
}

void put_bytes(std::string& out, std::uint32_t field, std::string_view bytes) {
  put_varint(out, (std::uint64_t{field} << 3) | 2);
  put_varint(out, bytes.size());
  out.append(bytes);
}

void put_number(std::string& out, std::uint32_t field, std::uint64_t value) {
  put_varint(out, std::uint64_t{field} << 3);
  put_varint(out, value);
}

void put_fixed64(std::string& out, std::uint32_t field, std::uint64_t value) {
  put_varint(out, (std::uint64_t{field} << 3) | 1);
  for (int byte = 0; byte < 8; ++byte) {
    out.push_back(static_cast<char>(value >> (8 * byte)));
  }
}

// KeyValue{key = 1, value = 2: AnyValue{string_value = 1}}
void put_attribute(std::string& out, std::uint32_t field, std::string_view key,
                   std::string_view value) {
  std::string any;
  put_bytes(any, 1, value);
  std::string pair;
  put_bytes(pair, 1, key);
  put_bytes(pair, 2, any);
  put_bytes(out, field, pair);
}

// Spread-out bits for ids (splitmix64): OTLP wants ids that are not all zero and differ.
std::uint64_t mix(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

std::string id_bytes(std::uint64_t seed, std::size_t length) {
  std::string id;
  for (std::size_t i = 0; i < length; ++i) {
    id.push_back(static_cast<char>(mix(seed + i / 8) >> (8 * (i % 8))));
  }
  return id;
}

// A batch job's report: one family a series, as client libraries push it.
std::string push_body(std::size_t group, std::size_t series) {
  std::string body;
  for (std::size_t i = 0; i < series; ++i) {
    fmt::format_to(std::back_inserter(body), "demo_metric_{:04} {}\n", i, 1000 * group + i);
  }
  return body;
}

}  // namespace

std::string otlp_trace_request(std::size_t group, std::size_t spans) {
  static constexpr std::array<std::string_view, 4> kRoutes = {
      "/user/{}/cart", "/user/{}/orders", "/user/{}/profile", "/user/{}/search"};
  std::string scope_spans;
  for (std::size_t i = 0; i < spans; ++i) {
    const std::uint64_t seed = mix(group * 1'000'003 + i);
    const std::uint64_t begin_ns = 1'700'000'000'000'000'000 + i * 1'000'000;
    const std::string route =
        fmt::format(fmt::runtime(kRoutes[i % kRoutes.size()]), 10'000 + seed % 90'000);
    std::string span;
    put_bytes(span, 1, id_bytes(seed, 16));       // trace_id
    put_bytes(span, 2, id_bytes(seed + 7, 8));    // span_id
    put_bytes(span, 4, id_bytes(seed + 9, 8));    // parent_span_id
    put_bytes(span, 5, "GET /user/{id}");         // name
    put_number(span, 6, 2);                       // kind: SERVER
    put_fixed64(span, 7, begin_ns);               // start_time_unix_nano
    put_fixed64(span, 8, begin_ns + 42'000'000);  // end_time_unix_nano
    put_attribute(span, 9, "http.request.method", "GET");
    put_attribute(span, 9, "http.response.status_code", "200");
    put_attribute(span, 9, "url.full",
                  fmt::format("https://shop.example{}?session={:016x}", route, seed));
    put_attribute(span, 9, "server.address", "shop.example");
    put_attribute(span, 9, "client.address", fmt::format("192.0.2.{}", seed % 256));
    put_attribute(span, 9, "user_agent.original",
                  "Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0");
    put_bytes(scope_spans, 2, span);
  }
  std::string resource;
  put_attribute(resource, 1, "service.name", fmt::format("shop-{}", group));
  put_attribute(resource, 1, "service.version", "1.4.2");
  std::string resource_spans;
  put_bytes(resource_spans, 1, resource);
  put_bytes(resource_spans, 2, scope_spans);
  std::string message;
  put_bytes(message, 1, resource_spans);
  return message;
}

Subject pushgateway(std::string_view host) {
  Subject s;
  s.name = "pushgateway";
  s.title = "Prometheus Pushgateway";
  s.port = 9091;
  // Debian's package keeps its state on disk unless told otherwise.
  s.argv = {"prometheus-pushgateway", "--persistence.file=", "--log.level=error",
            fmt::format("--web.listen-address=:{}", s.port)};
  s.unit = "series";
  s.request = [host = std::string(host), port = s.port](std::size_t group, std::size_t series) {
    const std::string body = push_body(group, series);
    return fmt::format(
        "PUT /metrics/job/demo/instance/{} HTTP/1.1\r\nHost: {}:{}\r\nUser-Agent: headgate-demo\r\n"
        "Content-Type: text/plain; version=0.0.4\r\nContent-Length: {}\r\nConnection: "
        "close\r\n\r\n{}",
        group, host, port, body.size(), body);
  };
  return s;
}

Subject otelcol(std::string_view host, std::string_view binary, std::string_view config) {
  Subject s;
  s.name = "otelcol";
  s.title = "OpenTelemetry Collector 0.161, memory_limiter on";
  s.port = 4318;
  s.argv = {std::string(binary), fmt::format("--config=file:{}", config)};
  s.unit = "spans";
  s.light = 100;
  s.heavy = 400;
  s.request = [host = std::string(host), port = s.port](std::size_t group, std::size_t spans) {
    const std::string body = otlp_trace_request(group, spans);
    return fmt::format(
        "POST /v1/traces HTTP/1.1\r\nHost: {}:{}\r\nUser-Agent: headgate-demo\r\n"
        "Content-Type: application/x-protobuf\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{}",
        host, port, body.size(), body);
  };
  return s;
}

}  // namespace headgate::demo
