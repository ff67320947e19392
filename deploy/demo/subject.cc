// SPDX-License-Identifier: Apache-2.0
#include "deploy/demo/subject.h"

#include <iterator>

#include <fmt/format.h>

#include "deploy/demo/otlp.h"

namespace headgate::demo {
namespace {

constexpr std::string_view kTraceExport =
    "/opentelemetry.proto.collector.trace.v1.TraceService/Export";

// A batch job's report: one family a series, as client libraries push it.
std::string push_body(std::size_t group, std::size_t series) {
  std::string body;
  for (std::size_t i = 0; i < series; ++i) {
    fmt::format_to(std::back_inserter(body), "demo_metric_{:04} {}\n", i, 1000 * group + i);
  }
  return body;
}

}  // namespace

Subject pushgateway(std::string_view host, Traffic traffic) {
  Subject s;
  s.name = "pushgateway";
  s.title = "Prometheus Pushgateway";
  s.port = 9091;
  // Debian's package keeps its state on disk unless told otherwise.
  s.argv = {"prometheus-pushgateway", "--persistence.file=", "--log.level=error",
            fmt::format("--web.listen-address=:{}", s.port)};
  s.unit = "series";
  const bool kept = traffic == Traffic::kKeepAlive;
  const auto push = [host = std::string(host), port = s.port, kept](std::string_view job) {
    return [=, job = std::string(job)](std::size_t group, std::size_t series) {
      const std::string body = push_body(group, series);
      return fmt::format(
          "PUT /metrics/job/{}/instance/{} HTTP/1.1\r\nHost: {}:{}\r\nUser-Agent: headgate-demo\r\n"
          "Content-Type: text/plain; version=0.0.4\r\nContent-Length: {}\r\n{}\r\n{}",
          job, group, host, port, body.size(), kept ? "" : "Connection: close\r\n", body);
    };
  };
  s.traffic = traffic;
  if (!kept) {
    s.request = push("demo");
    return s;
  }
  s.request = push("batch");
  s.critical_request = push("vital");
  s.groups = 4;  // of each class
  s.connections = 64;
  s.refuse = "429";
  s.refused_status = 429;
  s.routes = {"{name: vital, path: /metrics/job/vital, criticality: critical}",
              "{name: batch, path: /metrics/job/batch, criticality: sheddable}"};
  return s;
}

Subject otelcol(std::string_view host, std::string_view binary, std::string_view config,
                Traffic traffic) {
  Subject s;
  s.name = "otelcol";
  s.title = "OpenTelemetry Collector 0.161 with memory_limiter";
  s.port = 4318;
  s.argv = {std::string(binary), fmt::format("--config=file:{}", config)};
  s.unit = "spans";
  s.light = 100;
  s.heavy = 400;
  s.jump = traffic == Traffic::kGrpc ? 10'000 : 5'000;
  s.traffic = traffic;
  if (traffic == Traffic::kGrpc) {
    s.port = 4317;
    s.protocol = "grpc";
    s.connections = 32;
    s.refuse = "grpc-exhausted";
    s.grpc_method = kTraceExport;
    s.routes = {fmt::format("{{name: traces, path: {}}}", kTraceExport)};
    s.request = [](std::size_t group, std::size_t spans) {
      return grpc_message(otlp_trace_protobuf(group, spans));
    };
    return s;
  }
  s.request = [host = std::string(host), port = s.port](std::size_t group, std::size_t spans) {
    const std::string body = otlp_trace_json(group, spans);
    return fmt::format(
        "POST /v1/traces HTTP/1.1\r\nHost: {}:{}\r\nUser-Agent: headgate-demo\r\n"
        "Content-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{}",
        host, port, body.size(), body);
  };
  return s;
}

}  // namespace headgate::demo
