// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "headgate/bpf_abi.h"
#include "headgate/clock.h"
#include "headgate/params.h"
#include "headgate/target.h"
#include "headgate/units.h"

namespace headgate {

/// Where something stands in the configuration: counted from 1; 0 = made, not read.
struct Place {
  int line = 0;
  int column = 0;
  /// All places are equal: two configurations are equal when they say the same, wherever it stands.
  friend constexpr bool operator==(const Place& /*a*/, const Place& /*b*/) { return true; }
};

enum class Mode : std::uint8_t { kEnforce, kObserve, kOff };
[[nodiscard]] std::string_view to_string(Mode mode);

/// What is protected: exactly one kind (design, section 8).
/// Of pods, what is given must hold, and something is; an empty text or list holds for all.
struct MatchPods {
  std::vector<std::string> namespaces{};
  std::string selector{};  ///< a LabelSelector
  std::string name{};
  std::string uid{};
  std::string container{};  ///< empty: the one that listens
  bool operator==(const MatchPods&) const = default;
};
struct MatchUnit {
  std::string unit;  ///< "otelcol.service"
  bool operator==(const MatchUnit&) const = default;
};
struct MatchCgroup {
  std::string path;  ///< below the cgroup root, begins with '/', not "/" itself
  bool operator==(const MatchCgroup&) const = default;
};
struct MatchProcess {
  std::string exe;  ///< absolute path of the executable
  bool operator==(const MatchProcess&) const = default;
};
using Match = std::variant<MatchPods, MatchUnit, MatchCgroup, MatchProcess>;

struct CapacityConfig {
  std::optional<double> cpu_cores;  ///< empty = auto
  std::optional<std::uint64_t> memory_bytes;
  double request_factor = 0;  ///< of a pod's requests, where nothing limits it; 0 = off
  bool operator==(const CapacityConfig&) const = default;
};

struct StrategyConfig {
  std::string name = "adaptive";
  Params params;
  /// The parameters as one would write them, with their units (Params holds seconds).
  std::map<std::string, std::string, std::less<>> shown;
  Place place;
  bool operator==(const StrategyConfig&) const = default;
};

struct MemoryConfig {
  double shed = 0.80;
  double open = 0.92;
  double close = 0.87;
  /// bytes; empty = auto, 0 = off
  std::optional<std::uint64_t> live_budget_bytes;
  bool operator==(const MemoryConfig&) const = default;
};

struct ExemptConfig {
  /// "node" and CIDRs (IPv4 or IPv6); empty optional = the default of the kind of target.
  std::optional<std::vector<std::string>> sources;
  double rate_per_s = 20;  ///< for the node's addresses, where its connects are not known exactly
  std::vector<std::string> paths;
  bool operator==(const ExemptConfig&) const = default;
};

enum class RefuseForm : std::uint8_t {
  kAuto,
  kReset,
  kDefer,
  kDrop,
  kHttp429,
  kHttp503,
  kGrpcExhausted
};
[[nodiscard]] std::string_view to_string(RefuseForm form);
/// 429, 503, grpc-exhausted: requests on live connections are refused.
[[nodiscard]] constexpr bool refuses_requests(RefuseForm form) {
  return form == RefuseForm::kHttp429 || form == RefuseForm::kHttp503 ||
         form == RefuseForm::kGrpcExhausted;
}

struct RefuseConfig {
  RefuseForm form = RefuseForm::kReset;
  Duration defer_deadline = std::chrono::seconds(8);
  bool operator==(const RefuseConfig&) const = default;
};

struct RouteConfig {
  std::string name;
  std::string path;  ///< HTTP path prefix in its normal form, or full gRPC method
  Criticality criticality = Criticality::kCritical;
  Probability floor;
  bool unary = false;  ///< gRPC: exactly one message a call, the only kind that can be refused
  Place place;
  bool operator==(const RouteConfig&) const = default;
};

/// How a request of HTTP/1.1 is answered.
struct HttpConfig {
  Duration retry_after_min = std::chrono::seconds(2);  ///< whole seconds, as the header holds
  Duration retry_after_max = std::chrono::seconds(3);
  /// The server closes connections that are idle for so long. It does not see what is refused: one
  /// request of a connection is let through in half of this time.
  Duration idle_timeout = std::chrono::seconds(60);
  bool operator==(const HttpConfig&) const = default;
};

struct GrpcConfig {
  /// The server's limit on received messages. 4 MiB is the default of grpc-go, grpc-java, gRPC C++
  /// and what is built on it.
  std::uint64_t max_message_bytes = 4ULL << 20U;
  bool operator==(const GrpcConfig&) const = default;
};

struct EndpointConfig {
  std::string name;
  std::uint16_t port = 0;
  Protocol protocol = Protocol::kTcp;
  Criticality criticality = Criticality::kCritical;
  Probability floor;
  RefuseConfig refuse;
  HttpConfig http;
  GrpcConfig grpc;
  std::vector<RouteConfig> routes;
  Place place;
  bool operator==(const EndpointConfig&) const = default;
};

struct TargetConfig {
  std::string name;
  Match match;
  CapacityConfig capacity;
  std::optional<Mode> mode;  ///< empty = the global one
  StrategyConfig strategy;
  Ratio target{0.90};
  MemoryConfig memory;
  Probability max_refuse = Probability::always();
  Duration max_refuse_duration{};  ///< 0 = no limit
  ExemptConfig exempt;
  bool storm = true;  ///< silence for clients that reconnect in a hot loop, where tc or XDP is
  std::vector<EndpointConfig> endpoints;
  Place place;
  bool operator==(const TargetConfig&) const = default;
};

struct XdpConfig {
  std::vector<std::string> interfaces;  ///< names, or "auto"; empty = no XDP
  bool operator==(const XdpConfig&) const = default;
};

struct Config {
  Mode mode = Mode::kEnforce;
  Duration tick = std::chrono::milliseconds(100);
  Duration lease = std::chrono::seconds(1);
  XdpConfig xdp;
  std::vector<TargetConfig> targets;
  std::string source;      ///< file it was read from; empty = made from the command line
  std::uint64_t hash = 0;  ///< FNV-1a of the text
  /// They say the same; source, hash and places do not count.
  bool operator==(const Config& other) const;
};

/// The form in which its connections are refused: auto where only requests have one of their own.
[[nodiscard]] RefuseForm connection_form(const EndpointConfig& endpoint);
/// Requests on connections to this endpoint are looked at: it has routes, or refuses requests.
[[nodiscard]] bool sees_requests(const EndpointConfig& endpoint);

/// The stricter of the global and the target's own mode: off > observe > enforce.
[[nodiscard]] Mode effective_mode(const Config& config, const TargetConfig& target);

}  // namespace headgate
