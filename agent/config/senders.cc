// SPDX-License-Identifier: Apache-2.0
#include "agent/config/senders.h"

#include <array>

#include <fmt/format.h>

namespace headgate {
namespace {

/// What a sender meets.
enum class Cause { kReset, kLongWait, kHttpStatus, kHttp429, kGrpcExhausted, kDatagram };

struct Row {
  Cause cause;
  bool http;  ///< speaks HTTP
  bool grpc;  ///< speaks gRPC
  SenderWarning warning;
};

constexpr std::string_view kPythonGivesUp =
    "can lose a batch when all of its tries within 10 s are refused: it waits 1, 2 and 4 s, and "
    "begins no wait that would end later";

constexpr std::array kRows{
    Row{Cause::kReset,
        true,
        false,
        {"Go SDK, OTLP/HTTP",
         "loses each batch sent while connects are reset: it gives up at the "
         "first connection error",
         "use refuse: defer"}},
    Row{Cause::kReset,
        false,
        true,
        {"JS SDK, OTLP/gRPC", "loses each batch sent while connects are reset: it never retries",
         "use refuse: defer"}},
    Row{Cause::kReset,
        false,
        true,
        {"Go SDK, OTLP/gRPC",
         "can lose a batch: it waits 5 s before its first retry and gives up after 10 s",
         "use refuse: defer, or give the sender WithTimeout(60s) and "
         "OTEL_BSP_EXPORT_TIMEOUT=60000"}},
    Row{Cause::kReset,
        true,
        true,
        {"Python SDK", kPythonGivesUp, "use refuse: defer, or give the sender timeout=60"}},
    Row{Cause::kReset,
        true,
        true,
        {"Java SDK",
         "can lose a batch when connects are reset for longer than its "
         "time-out of 10 s",
         "use refuse: defer, or give the sender a RetryPolicy with setRetryExceptionPredicate(e -> "
         "true)"}},
    Row{Cause::kReset,
        true,
        false,
        {"curl --retry", "fails at once: a refused connect is not retried",
         "use refuse: defer, or curl --retry-connrefused"}},
    Row{Cause::kLongWait,
        true,
        true,
        {"every SDK", "gives up a connect after 10 s and can lose the batch",
         "use a deadline of at most 8s"}},
    Row{Cause::kHttpStatus,
        true,
        false,
        {"Python SDK, OTLP/HTTP",
         "can lose a batch when all of its tries within 10 s are refused: it waits as Retry-After "
         "says, and begins no wait that would end later",
         "give the sender timeout=60"}},
    Row{Cause::kHttp429,
        true,
        false,
        {"Prometheus remote write", "drops the samples of a request that is answered by 429",
         "use refuse: 503"}},
    Row{Cause::kGrpcExhausted,
        false,
        true,
        {"Collector, Go SDK and JS SDK, OTLP/gRPC",
         "drop the batch: RESOURCE_EXHAUSTED without RetryInfo is a permanent error to them",
         "use refuse: defer"}},
    Row{Cause::kGrpcExhausted,
        false,
        true,
        {"Python SDK, OTLP/gRPC", kPythonGivesUp,
         "use refuse: defer, or give the sender timeout=60"}},
    Row{Cause::kDatagram,
        false,
        false,
        {"every UDP sender", "loses each refused datagram: nothing sends it again",
         "give the endpoint a floor, or leave it out"}},
};

bool causes(Cause cause, Protocol protocol, const RefuseConfig& refuse) {
  const bool udp = protocol == Protocol::kUdp;
  switch (cause) {
    // auto resets what does not fit into the time that senders wait.
    case Cause::kReset:
      return !udp && (refuse.form == RefuseForm::kReset || refuse.form == RefuseForm::kAuto);
    case Cause::kLongWait:
      return !udp && (refuse.form == RefuseForm::kDrop ||
                      (refuse.form == RefuseForm::kDefer &&
                       refuse.defer_deadline > std::chrono::seconds(8)));
    case Cause::kHttpStatus:
      return !udp && (refuse.form == RefuseForm::kHttp429 || refuse.form == RefuseForm::kHttp503);
    case Cause::kHttp429: return !udp && refuse.form == RefuseForm::kHttp429;
    case Cause::kGrpcExhausted: return !udp && refuse.form == RefuseForm::kGrpcExhausted;
    case Cause::kDatagram: return udp;
  }
  return false;
}

}  // namespace

std::vector<SenderWarning> sender_warnings(Protocol protocol, const RefuseConfig& refuse) {
  std::vector<SenderWarning> out;
  for (const Row& row : kRows) {
    const bool speaks = protocol == Protocol::kHttp   ? row.http
                        : protocol == Protocol::kGrpc ? row.grpc
                                                      : true;  // plain tcp may carry either
    if (speaks && causes(row.cause, protocol, refuse)) {
      out.push_back(row.warning);
    }
  }
  return out;
}

std::string to_string(const SenderWarning& warning) {
  return fmt::format("{}: {}; {}", warning.sender, warning.effect, warning.remedy);
}

}  // namespace headgate
