// SPDX-License-Identifier: Apache-2.0
#include "agent/config/schema.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <regex>

#include <fmt/format.h>

#include "headgate/bpf_abi.h"

#include "agent/config/quantity.h"

namespace headgate {
namespace {

using Words = std::string_view;

constexpr std::array<Words, 1> kVersions{"headgate/v1"};
constexpr std::array<Words, 3> kModes{"enforce", "observe", "off"};
constexpr std::array<Words, 4> kCriticalities{"sheddable", "sheddable_plus", "critical",
                                              "critical_plus"};
constexpr std::array<Words, 4> kProtocols{"tcp", "udp", "http", "grpc"};
constexpr std::array<Words, 7> kRefuseForms{"auto", "reset", "defer",         "drop",
                                            "429",  "503",   "grpc-exhausted"};
constexpr std::array<Words, 1> kAuto{"auto"};
constexpr std::array<Words, 2> kAutoOff{"auto", "off"};
constexpr std::array<Words, 2> kCalls{"unary", "stream"};
constexpr std::array<Words, 1> kUnlimited{"unlimited"};

constexpr std::string_view kNamePattern = "^[A-Za-z0-9]([A-Za-z0-9._@-]{0,98}[A-Za-z0-9])?$";
constexpr std::string_view kNameAllowed =
    "1 to 100 letters, digits, '.', '_', '-', '@', with a letter or digit at both ends";
constexpr std::string_view kLabelPattern = "^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$";
constexpr std::string_view kLabelAllowed =
    "a Kubernetes name: 1 to 63 of a-z, 0-9, '-', with a letter or digit at both ends";
constexpr std::string_view kPodNamePattern = "^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$";
constexpr std::string_view kPodNameAllowed =
    "the name of a pod: 1 to 253 of a-z, 0-9, '-', '.', with a letter or digit at both ends";
constexpr std::string_view kPodUidPattern =
    "^([0-9a-f]{32}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12})$";
constexpr std::string_view kPodUidAllowed =
    "the UID of a pod, such as 4a163a05-439d-484b-8e53-2968bc15824f";
constexpr std::string_view kPathPattern = "^/[^\\s]*$";
constexpr std::string_view kPathAllowed = "a path that begins with '/', without blanks";

constexpr Field kNamespaceItem{.key = "",
                               .shape = Shape::kText,
                               .doc = "Namespace.",
                               .pattern = kLabelPattern,
                               .allowed = kLabelAllowed};
constexpr std::array kPodsFields{
    Field{.key = "namespaces",
          .shape = Shape::kList,
          .doc = "Namespaces to look in; all when left out.",
          .maximum = 256,
          .element = &kNamespaceItem},
    Field{.key = "selector",
          .shape = Shape::kText,
          .doc = "Label selector, as for kubectl -l.",
          .pattern = "^[A-Za-z0-9 ._/,=!()<>-]{0,500}$",
          .allowed = "a Kubernetes label selector, such as app=otel-collector"},
    Field{.key = "name",
          .shape = Shape::kText,
          .doc = "Name of the pod.",
          .pattern = kPodNamePattern,
          .allowed = kPodNameAllowed},
    Field{.key = "uid",
          .shape = Shape::kText,
          .doc = "UID of the pod: found in the cgroup tree alone.",
          .pattern = kPodUidPattern,
          .allowed = kPodUidAllowed},
    Field{.key = "container",
          .shape = Shape::kText,
          .doc = "Container to protect; the one that listens when left out.",
          .pattern = kLabelPattern,
          .allowed = kLabelAllowed},
};
constexpr std::array kProcessFields{
    Field{.key = "exe",
          .shape = Shape::kText,
          .doc = "Absolute path of the executable.",
          .required = true,
          .pattern = "^(/(?!\\.\\.?(/|$))[^/]+)+$",
          .allowed = "the absolute path of an executable, such as /usr/bin/otelcol"},
};
constexpr std::array kCapacityFields{
    Field{.key = "cpu",
          .shape = Shape::kCores,
          .doc = "CPU capacity; auto: the smallest quota of the cgroup and its ancestors, or its "
                 "cpuset.",
          .fallback = "auto",
          .minimum = 0.01,
          .maximum = 4096,
          .words = kAuto},
    Field{.key = "memory",
          .shape = Shape::kSize,
          .doc = "Memory capacity; auto: the smallest limit of the cgroup and its ancestors.",
          .fallback = "auto",
          .minimum = 1 << 20,
          .maximum = 1ULL << 50U,
          .words = kAuto},
    Field{.key = "request_factor",
          .shape = Shape::kNumber,
          .doc = "Where auto finds no limit: so many times what the pod's container requests. 0: "
                 "nothing, the host's cores are not its own.",
          .fallback = "0",
          .minimum = 0,
          .maximum = 100},
};
constexpr std::array kMemoryFields{
    Field{.key = "shed",
          .shape = Shape::kNumber,
          .doc = "Working set over limit from which a share is refused.",
          .fallback = "0.8",
          .minimum = 0,
          .maximum = 1},
    Field{.key = "open",
          .shape = Shape::kNumber,
          .doc = "Working set over limit at which the circuit opens.",
          .fallback = "0.92",
          .minimum = 0,
          .maximum = 1},
    Field{.key = "close",
          .shape = Shape::kNumber,
          .doc = "Working set over limit below which the circuit closes.",
          .fallback = "0.87",
          .minimum = 0,
          .maximum = 1},
    Field{.key = "live_budget",
          .shape = Shape::kSize,
          .doc = "Bytes received by connections that are open, at most.",
          .fallback = "auto",
          .minimum = 1 << 16,
          .maximum = 1ULL << 50U,
          .words = kAutoOff},
};
constexpr Field kSourceItem{
    .key = "",
    .shape = Shape::kText,
    .doc = "'node' (the node's own addresses) or a CIDR.",
    .pattern =
        "^(node|[0-9]{1,3}([.][0-9]{1,3}){3}(/[0-9]{1,2})?|[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*(/"
        "[0-9]{1,3})?)$",
    .allowed = "node, or a network such as 10.9.0.0/16 or fd00::/8"};
constexpr Field kPathItem{.key = "",
                          .shape = Shape::kText,
                          .doc = "Path prefix.",
                          .pattern = kPathPattern,
                          .allowed = kPathAllowed};
constexpr std::array kExemptFields{
    Field{.key = "sources",
          .shape = Shape::kList,
          .doc = "Clients that are never refused; what the kind of target implies when left out.",
          .maximum = 256,
          .element = &kSourceItem},
    Field{.key = "rate",
          .shape = Shape::kNumber,
          .doc = "New connections per second and endpoint up to which the node's addresses are "
                 "exempt, where its own connects are not known exactly.",
          .fallback = "20",
          .minimum = 0,
          .maximum = 1e6},
    Field{.key = "paths",
          .shape = Shape::kList,
          .doc = "Requests that are never refused, where requests are looked at: HTTP path "
                 "prefixes, full gRPC methods.",
          .maximum = 256,
          .element = &kPathItem},
};
constexpr std::array kRouteFields{
    Field{.key = "name",
          .shape = Shape::kText,
          .doc = "Name of the route, unique within its endpoint.",
          .required = true,
          .pattern = kNamePattern,
          .allowed = kNameAllowed},
    Field{.key = "path",
          .shape = Shape::kText,
          .doc = "http: path prefix, which ends at a border of segments; the longest that fits "
                 "holds. grpc: full method, /package.Service/Method.",
          .required = true,
          .pattern = kPathPattern,
          .allowed = kPathAllowed},
    Field{.key = "calls",
          .shape = Shape::kWord,
          .doc = "grpc: unary takes exactly one message a call, and only such calls can be "
                 "refused; known for OTLP's Export, else stream when left out.",
          .words = kCalls},
    Field{.key = "criticality",
          .shape = Shape::kWord,
          .doc = "What is refused first when not everything can be served.",
          .fallback = "critical",
          .words = kCriticalities},
    Field{.key = "floor",
          .shape = Shape::kNumber,
          .doc = "Share of its demand that thinning never takes away.",
          .fallback = "0",
          .minimum = 0,
          .maximum = 1},
};
constexpr std::array kHttpFields{
    Field{.key = "retry_after_min",
          .shape = Shape::kDuration,
          .doc = "Retry-After of a refused request is drawn from here on; whole seconds.",
          .fallback = "2s",
          .minimum = 1,
          .maximum = 3600},
    Field{.key = "retry_after_max",
          .shape = Shape::kDuration,
          .doc = "Retry-After is drawn up to here. The Python SDK gives a batch up after 10s: "
                 "the longer it waits, the fewer tries it has.",
          .fallback = "3s",
          .minimum = 1,
          .maximum = 3600},
    Field{.key = "idle_timeout",
          .shape = Shape::kDuration,
          .doc = "The server closes connections that are idle for so long. It does not see refused "
                 "requests, so one of a connection is let through in half of this time; 0s: it "
                 "closes none, and none is let through.",
          .fallback = "1m",
          .minimum = 0,
          .maximum = 86400},
};
constexpr std::array kGrpcFields{
    Field{.key = "max_message",
          .shape = Shape::kSize,
          .doc = "The server's limit on received messages. A call is refused by announcing a "
                 "message of 4Gi, which a server without a limit would wait for.",
          .fallback = "4Mi",
          .minimum = 1024,
          .maximum = 4095.0 * 1024 * 1024,
          .words = kUnlimited},
};
constexpr MapSpec kHttpSpec{.path = "targets[].endpoints[].http", .fields = kHttpFields};
constexpr MapSpec kGrpcSpec{.path = "targets[].endpoints[].grpc", .fields = kGrpcFields};
constexpr MapSpec kRouteSpec{.path = "targets[].endpoints[].routes[]", .fields = kRouteFields};
constexpr Field kRouteItem{
    .key = "", .shape = Shape::kMap, .doc = "One route.", .map = &kRouteSpec};
constexpr std::array kEndpointFields{
    Field{.key = "name",
          .shape = Shape::kText,
          .doc = "Name of the endpoint, unique within its target; PROTOCOL-PORT when left out.",
          .pattern = kNamePattern,
          .allowed = kNameAllowed},
    Field{.key = "port",
          .shape = Shape::kPorts,
          .doc = "Port, range or list of ports; each becomes an endpoint of its own.",
          .required = true,
          .minimum = 1,
          .maximum = 65535},
    Field{.key = "protocol",
          .shape = Shape::kWord,
          .doc = "What is spoken on the port.",
          .fallback = "tcp",
          .words = kProtocols},
    Field{.key = "criticality",
          .shape = Shape::kWord,
          .doc = "What is refused first when not everything can be served.",
          .fallback = "critical",
          .words = kCriticalities},
    Field{.key = "floor",
          .shape = Shape::kNumber,
          .doc = "Share of its demand that thinning never takes away.",
          .fallback = "0",
          .minimum = 0,
          .maximum = 1},
    Field{.key = "refuse",
          .shape = Shape::kRefuse,
          .doc = "The form of a refusal; when left out reset for tcp and udp, auto for http and "
                 "grpc. 429, 503 and grpc-exhausted refuse requests on live connections.",
          .words = kRefuseForms},
    Field{.key = "http",
          .shape = Shape::kMap,
          .doc = "How requests are answered, with refuse: 429 and 503.",
          .map = &kHttpSpec},
    Field{.key = "grpc",
          .shape = Shape::kMap,
          .doc = "What must be known of the server, with refuse: grpc-exhausted.",
          .map = &kGrpcSpec},
    Field{.key = "routes",
          .shape = Shape::kList,
          .doc = "Parts of the endpoint's requests: counted and shown, and refused each by its own "
                 "rule with refuse: 429, 503 and grpc-exhausted.",
          .maximum = 256,
          .element = &kRouteItem},
};
constexpr MapSpec kCapacitySpec{.path = "targets[].capacity", .fields = kCapacityFields};
constexpr MapSpec kMemorySpec{.path = "targets[].memory", .fields = kMemoryFields};
constexpr MapSpec kExemptSpec{.path = "targets[].exempt", .fields = kExemptFields};

constexpr bool is_utf8_tail(char c) { return (static_cast<unsigned char>(c) & 0xC0U) == 0x80U; }

bool matches(std::string_view pattern, std::string_view text) {
  // libstdc++ matches recursively, one frame a character.
  if (text.size() > 512) {
    return false;
  }
  return std::regex_match(text.begin(), text.end(),
                          std::regex(pattern.begin(), pattern.end(), std::regex::ECMAScript));
}

std::string range_text(const std::string& low, const std::string& high, std::string_view what) {
  return fmt::format("{} from {} to {}", what, low, high);
}

std::string seconds_text(double s) { return format_duration(Duration{std::llround(s * 1e9)}); }

std::string scientific_warning(std::string_view text, std::uint64_t value) {
  return fmt::format(
      "'{}' is taken as {}; write it as an integer (tools such as Helm print "
      "integers from 1000000 on like this: quote it there, or use int64)",
      printable(text), value);
}

}  // namespace

constexpr Field kDeferField{.key = "defer",
                            .shape = Shape::kDuration,
                            .doc = "Longest wait of a deferred connect; then it is reset.",
                            .fallback = "8s",
                            .required = true,
                            .minimum = 1,
                            .maximum = 60};
constexpr Field kPointLevelField{.key = "level",
                                 .shape = Shape::kNumber,
                                 .doc = "Level of the signal.",
                                 .minimum = 0,
                                 .maximum = 10};
constexpr Field kPointRefuseField{.key = "refuse",
                                  .shape = Shape::kNumber,
                                  .doc = "Share to refuse at this level.",
                                  .minimum = 0,
                                  .maximum = 1};
constexpr MapSpec kPodsSpec{.path = "targets[].match.pods", .fields = kPodsFields};
constexpr MapSpec kProcessSpec{.path = "targets[].match.process", .fields = kProcessFields};

namespace {
constexpr std::array kMatchFields{
    Field{.key = "pods", .shape = Shape::kMap, .doc = "Kubernetes pods.", .map = &kPodsSpec},
    Field{.key = "unit",
          .shape = Shape::kText,
          .doc = "A systemd unit.",
          .pattern = "^[A-Za-z0-9:_.@\\\\-]{1,247}[.](service|scope|slice)$",
          .allowed = "the name of a systemd unit that ends in .service, .scope or .slice, such as "
                     "otelcol.service"},
    Field{.key = "cgroup",
          .shape = Shape::kText,
          .doc = "A cgroup: its path below the cgroup root.",
          .pattern = "^(/(?!\\.\\.?(/|$))[^/]+)+/?$",
          .allowed = "the path of a cgroup below the cgroup root, such as /my/collector: begins "
                     "with '/', is not '/' itself, has no '.', '..' or empty part"},
    Field{.key = "process",
          .shape = Shape::kMap,
          .doc = "A process, found by its executable; its cgroup is what is protected.",
          .map = &kProcessSpec},
};
}  // namespace
constexpr MapSpec kMatchSpec{
    .path = "targets[].match", .fields = kMatchFields, .exactly_one = true};
constexpr MapSpec kEndpointSpec{.path = "targets[].endpoints[]", .fields = kEndpointFields};

namespace {
constexpr Field kEndpointItem{
    .key = "", .shape = Shape::kMap, .doc = "One endpoint.", .map = &kEndpointSpec};
constexpr std::array kTargetFields{
    Field{.key = "name",
          .shape = Shape::kText,
          .doc = "Name of the target, unique; a label of its metrics.",
          .required = true,
          .pattern = kNamePattern,
          .allowed = kNameAllowed},
    Field{.key = "match",
          .shape = Shape::kMap,
          .doc = "What is protected: exactly one kind.",
          .required = true,
          .map = &kMatchSpec},
    Field{.key = "capacity",
          .shape = Shape::kMap,
          .doc = "What the target may use.",
          .map = &kCapacitySpec},
    Field{.key = "mode",
          .shape = Shape::kWord,
          .doc = "As the global mode; the weaker of the two holds.",
          .words = kModes},
    Field{.key = "strategy",
          .shape = Shape::kStrategy,
          .doc = "The law that decides what to refuse.",
          .fallback = "adaptive"},
    Field{.key = "target",
          .shape = Shape::kNumber,
          .doc = "Share of the CPU capacity to use.",
          .fallback = "0.9",
          .minimum = 0.1,
          .maximum = 1},
    Field{.key = "memory",
          .shape = Shape::kMap,
          .doc = "Levels of memory: shed < open, close < open.",
          .map = &kMemorySpec},
    Field{.key = "max_refuse",
          .shape = Shape::kNumber,
          .doc = "Never refuse a larger share than this.",
          .fallback = "1",
          .minimum = 0,
          .maximum = 1},
    Field{.key = "max_refuse_duration",
          .shape = Shape::kDuration,
          .doc = "Back to observe after refusing for so long; 0s: no limit.",
          .fallback = "0s",
          .minimum = 0,
          .maximum = 86400},
    Field{.key = "storm",
          .shape = Shape::kWord,
          .doc = "auto: clients that reconnect in a hot loop (more than 10 refusals a second and "
                 "source) get silence instead of a reset, which makes their kernels wait; off: "
                 "never.",
          .fallback = "auto",
          .words = kAutoOff},
    Field{
        .key = "exempt", .shape = Shape::kMap, .doc = "Who is never refused.", .map = &kExemptSpec},
    Field{.key = "endpoints",
          .shape = Shape::kList,
          .doc = "The ports that are gated; others are never touched.",
          .required = true,
          .maximum = HEADGATE_MAX_ENDPOINTS,
          .element = &kEndpointItem},
};
}  // namespace
constexpr MapSpec kTargetSpec{.path = "targets[]", .fields = kTargetFields};

namespace {
constexpr Field kInterfaceItem{
    .key = "",
    .shape = Shape::kText,
    .doc = "An interface of the host, or auto: those that a default route leads through.",
    .pattern = "^[^\\s/:]{1,15}$",
    .allowed = "the name of an interface, such as enp1s0, or auto"};
constexpr std::array kXdpFields{
    Field{.key = "interfaces",
          .shape = Shape::kList,
          .doc = "Interfaces that traffic comes in by; never a pod's veth.",
          .required = true,
          .maximum = 64,
          .element = &kInterfaceItem},
};
constexpr MapSpec kXdpSpec{.path = "xdp", .fields = kXdpFields};
constexpr Field kTargetItem{
    .key = "", .shape = Shape::kMap, .doc = "One target.", .map = &kTargetSpec};
constexpr std::array kRootFields{
    Field{.key = "apiVersion",
          .shape = Shape::kWord,
          .doc = "Version of this format.",
          .required = true,
          .words = kVersions},
    Field{.key = "mode",
          .shape = Shape::kWord,
          .doc = "enforce; observe: decide and count, refuse nothing; off.",
          .fallback = "enforce",
          .words = kModes},
    Field{.key = "tick",
          .shape = Shape::kDuration,
          .doc = "Time between two decisions; a multiple of the CFS period is best.",
          .fallback = "100ms",
          .minimum = 0.01,
          .maximum = 10},
    Field{.key = "lease",
          .shape = Shape::kDuration,
          .doc = "Time after which an unrenewed policy admits everything; at least 2 ticks.",
          .fallback = "1s",
          .minimum = 0.02,
          .maximum = 60},
    Field{.key = "xdp",
          .shape = Shape::kMap,
          .doc = "Refuse at the network card what is sent to targets in the host's namespace "
                 "(hostNetwork, systemd units): for floods. Off when left out.",
          .map = &kXdpSpec},
    Field{.key = "targets",
          .shape = Shape::kList,
          .doc = "What is protected.",
          .required = true,
          .maximum = HEADGATE_MAX_TARGETS,
          .element = &kTargetItem},
};
constexpr MapSpec kRootSpec{.path = "", .fields = kRootFields};
}  // namespace

const MapSpec& root_spec() { return kRootSpec; }

const Field& field_of(const MapSpec& map, std::string_view key) {
  return *std::find_if(map.fields.begin(), map.fields.end(),
                       [&](const Field& f) { return f.key == key; });
}

Field field_of(const ParamSpec& param) {
  Field field{.key = param.name,
              .shape = Shape::kNumber,
              .doc = param.doc,
              .minimum = param.minimum,
              .maximum = param.maximum,
              .words = param.words};
  switch (param.kind) {
    case ParamSpec::Kind::kRatio:
    case ParamSpec::Kind::kNumber: break;
    case ParamSpec::Kind::kDuration: field.shape = Shape::kDuration; break;
    case ParamSpec::Kind::kCount: field.shape = Shape::kCount; break;
    case ParamSpec::Kind::kWord: field.shape = Shape::kWord; break;
  }
  return field;
}

std::string param_text(const ParamSpec& param, double value) {
  return param.kind == ParamSpec::Kind::kDuration ? seconds_text(value) : format_number(value);
}

std::string join_words(std::span<const std::string_view> words) {
  std::string out;
  for (std::size_t i = 0; i < words.size(); ++i) {
    out += i == 0 ? "" : i + 1 == words.size() ? " or " : ", ";
    out += words[i];
  }
  return out;
}

std::string printable(std::string_view text) {
  constexpr std::size_t kMax = 80;
  bool cut = false;
  if (text.size() > kMax) {
    std::size_t end = kMax;
    while (end > 0 && is_utf8_tail(text[end])) {
      --end;
    }
    text = text.substr(0, end);
    cut = true;
  }
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '\n') {
      out += "\\n";
    } else if (byte < 0x20 || byte == 0x7f) {
      out += fmt::format("\\x{:02x}", byte);
    } else {
      out += c;
    }
  }
  return cut ? out + "..." : out;
}

std::string allowed_text(const Field& field) {
  std::string words = field.words.empty() ? "" : join_words(field.words);
  switch (field.shape) {
    case Shape::kText: return std::string(field.allowed);
    case Shape::kWord: return words;
    case Shape::kNumber:
      return range_text(format_number(field.minimum), format_number(field.maximum), "a number");
    case Shape::kCount:
      return range_text(fmt::format("{:.0f}", field.minimum), fmt::format("{:.0f}", field.maximum),
                        "a whole number");
    case Shape::kDuration:
      return range_text(seconds_text(field.minimum), seconds_text(field.maximum),
                        "a duration with its unit,");
    case Shape::kSize:
      return fmt::format("{}, or bytes from {} to {}, such as 256Mi or 3Gi", words,
                         format_size(static_cast<std::uint64_t>(field.minimum)),
                         format_size(static_cast<std::uint64_t>(field.maximum)));
    case Shape::kCores:
      return fmt::format("{}, or cores from {} to {}, such as 2, 0.5 or 1500m", words,
                         field.minimum, field.maximum);
    case Shape::kPorts:
      return "a port from 1 to 65535, a range such as 4317-4318, or a list of them";
    case Shape::kRefuse: return words + ", or {defer: DURATION}";
    case Shape::kStrategy:
      return "NAME, {name: NAME, PARAMETER: VALUE, ...}, {NAME: {PARAMETER: VALUE, ...}} or "
             "{hybrid: [NAME, ...]}";
    case Shape::kMap: {
      std::vector<std::string_view> keys;
      for (const Field& f : field.map->fields) {
        keys.push_back(f.key);
      }
      return fmt::format("a mapping with {}", fmt::join(keys, ", "));
    }
    case Shape::kList: return fmt::format("a list; each item: {}", allowed_text(*field.element));
  }
  return {};
}

Nearest nearest_of(std::string_view word, std::span<const std::string_view> names) {
  Nearest best;
  std::size_t best_distance = std::numeric_limits<std::size_t>::max();
  // Names are short: of a longer word only the beginning can matter.
  const std::string_view head = word.substr(0, 64);
  for (const std::string_view name : names) {
    const std::size_t distance = edit_distance(head, name);
    // Among equals the one with the same first letter: it is rarely the wrong one.
    const bool same_start = !head.empty() && name.starts_with(head[0]);
    if (distance < best_distance ||
        (distance == best_distance && same_start && !best.name.starts_with(head[0]))) {
      best_distance = distance;
      best.name = name;
    }
  }
  best.close =
      !best.name.empty() &&
      best_distance <= std::max<std::size_t>(1, std::min(head.size(), best.name.size()) / 3);
  return best;
}

std::string suggestion(const Nearest& nearest) {
  if (nearest.name.empty()) {
    return ".";
  }
  return nearest.close ? fmt::format(", did you mean '{}'?", nearest.name)
                       : fmt::format(", the nearest is '{}'.", nearest.name);
}

Value read_value(const Field& field, std::string_view text) {
  Value out;
  const std::string shown = printable(text);
  const auto reject = [&](std::string_view what) {
    out.problem = fmt::format("'{}' {}; allowed: {}", shown, what, allowed_text(field));
  };
  const auto range = [&](double value) {
    if (value < field.minimum) {
      reject("is too small");
    } else if (value > field.maximum) {
      reject("is too large");
    }
  };
  if (std::find(field.words.begin(), field.words.end(), text) != field.words.end()) {
    out.text = text;
    return out;
  }
  // YAML 1.1 tools turn an unquoted `off` into false.
  const bool takes_off =
      std::find(field.words.begin(), field.words.end(), "off") != field.words.end();
  if (takes_off && text == "false") {
    out.text = "off";
    out.warning =
        "'false' is taken as off; write \"off\" with quotes (tools that read YAML 1.1 "
        "turn a bare off into false)";
    return out;
  }
  switch (field.shape) {
    case Shape::kText:
      out.text = text;
      if (!matches(field.pattern, text)) {
        reject("is not valid here");
      }
      break;
    case Shape::kWord: {
      const Nearest nearest = nearest_of(text, field.words);
      out.problem =
          fmt::format("'{}' is not known{} Allowed: {}", shown,
                      suggestion(nearest.close ? nearest : Nearest{}), allowed_text(field));
      out.nearest = nearest.name;
      break;
    }
    case Shape::kNumber:
      if (const auto number = parse_plain_number(text)) {
        out.number = *number;
        range(*number);
        break;
      }
      reject("is not a number");
      if (text.ends_with('%')) {
        if (const auto percent = parse_plain_number(text.substr(0, text.size() - 1))) {
          out.nearest = format_number(*percent / 100);
          out.problem += fmt::format("; shares are written as fractions: {}", out.nearest);
        }
      }
      break;
    case Shape::kCount:
      if (const auto count = parse_integer(text)) {
        out.integer = count->value;
        range(static_cast<double>(count->value));
        if (out.problem.empty() && count->scientific) {
          out.warning = scientific_warning(text, count->value);
        }
      } else {
        reject("is not a whole number");
      }
      break;
    case Shape::kDuration:
      if (const auto duration = parse_duration(text)) {
        out.duration = *duration;
        range(seconds(*duration));
      } else if (parse_plain_number(text)) {
        reject("has no unit (ns, us, ms, s, m, h)");
      } else {
        reject("is not a duration");
      }
      break;
    case Shape::kSize:
      if (const auto size = parse_size(text)) {
        out.integer = size->value;
        range(static_cast<double>(size->value));
        if (out.problem.empty() && size->scientific) {
          out.warning = scientific_warning(text, size->value);
        }
        break;
      }
      reject("is not a size");
      if (text.ends_with('B') && parse_size(text.substr(0, text.size() - 1))) {
        out.nearest = text.substr(0, text.size() - 1);
        out.problem += fmt::format("; write it without the B: {}", out.nearest);
      }
      break;
    case Shape::kCores:
      if (const auto cores = parse_cores(text)) {
        out.number = *cores;
        range(*cores);
      } else {
        reject("is not a number of cores");
      }
      break;
    case Shape::kPorts:
    case Shape::kRefuse:
    case Shape::kStrategy:
    case Shape::kMap:
    case Shape::kList: reject("is not a single value"); break;
  }
  return out;
}

}  // namespace headgate
