// SPDX-License-Identifier: Apache-2.0
#include "deploy/demo/subject.h"

#include <array>
#include <iterator>

#include <fmt/format.h>

namespace headgate::demo {
namespace {

// Spread-out bits for ids (splitmix64): OTLP wants ids that are not all zero and differ.
std::uint64_t mix(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
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
  static constexpr std::array<std::string_view, 4> kPages = {"cart", "orders", "profile", "search"};
  static constexpr std::string_view kAttribute = R"({{"key":"{}","value":{{"stringValue":"{}"}}}})";
  std::string json = fmt::format(
      R"({{"resourceSpans":[{{"resource":{{"attributes":[{}]}},"scopeSpans":[{{"spans":[)",
      fmt::format(kAttribute, "service.name", fmt::format("shop-{}", group)));
  for (std::size_t i = 0; i < spans; ++i) {
    const std::uint64_t seed = mix(group * 1'000'003 + i);
    const std::uint64_t begin_ns = 1'700'000'000'000'000'000 + i * 1'000'000;
    fmt::format_to(
        std::back_inserter(json),
        R"({}{{"traceId":"{:016x}{:016x}","spanId":"{:016x}","name":"GET /user/{{id}}","kind":2,)"
        R"("startTimeUnixNano":"{}","endTimeUnixNano":"{}","attributes":[{},{},{}]}})",
        i == 0 ? "" : ",", seed, mix(seed), mix(seed + 1), begin_ns, begin_ns + 42'000'000,
        fmt::format(kAttribute, "url.full",
                    fmt::format("https://shop.example/user/{}/{}", 10'000 + seed % 90'000,
                                kPages[i % kPages.size()])),
        fmt::format(kAttribute, "http.request.method", "GET"),
        fmt::format(kAttribute, "client.address", fmt::format("192.0.2.{}", seed % 256)));
  }
  return json + "]}]}]}";
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
  s.title = "OpenTelemetry Collector 0.161 with memory_limiter";
  s.port = 4318;
  s.argv = {std::string(binary), fmt::format("--config=file:{}", config)};
  s.unit = "spans";
  s.light = 100;
  s.heavy = 400;
  s.request = [host = std::string(host), port = s.port](std::size_t group, std::size_t spans) {
    const std::string body = otlp_trace_request(group, spans);
    return fmt::format(
        "POST /v1/traces HTTP/1.1\r\nHost: {}:{}\r\nUser-Agent: headgate-demo\r\n"
        "Content-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{}",
        host, port, body.size(), body);
  };
  return s;
}

}  // namespace headgate::demo
