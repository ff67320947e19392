// SPDX-License-Identifier: Apache-2.0
// What people are shown of a target: status, top, explain, metrics.
#include <array>
#include <cstring>

#include <fmt/format.h>

#include "headgate/bpf_abi.h"

#include "agent/protected_target.h"

namespace headgate {
namespace {

headgate_counters per_second(const headgate_counters& now, const headgate_counters& before,
                             double elapsed_s) {
  constexpr std::size_t kWords = sizeof(headgate_counters) / sizeof(std::uint64_t);
  std::array<std::uint64_t, kWords> a{};
  std::array<std::uint64_t, kWords> b{};
  std::memcpy(a.data(), &now, sizeof(now));
  std::memcpy(b.data(), &before, sizeof(before));
  for (std::size_t i = 0; i < kWords; ++i) {
    a[i] = elapsed_s > 0
               ? static_cast<std::uint64_t>(static_cast<double>(a[i] - b[i]) / elapsed_s + 0.5)
               : 0;
  }
  headgate_counters out{};
  std::memcpy(&out, a.data(), sizeof(out));
  return out;
}

}  // namespace

std::string ProtectedTarget::shown_name(const Endpoint& endpoint) {
  switch (endpoint.part) {
    case Endpoint::Part::kPort: break;
    case Endpoint::Part::kRoute:
      return endpoint.config->name + "/" + endpoint.config->routes[endpoint.route].name;
    case Endpoint::Part::kRest: return endpoint.config->name + "/(rest)";
  }
  return endpoint.config->name;
}

void ProtectedTarget::snapshot_port(const Endpoint& endpoint, EndpointSnapshot& out) const {
  out.in_flight = in_flight(endpoint) + endpoint.legacy_connections;
  out.in_flight_known = counts_connections_ && endpoint.config->protocol != Protocol::kUdp;
  out.beside_gate = endpoint.beside.connections();
  out.storm = endpoint.storm.storm();
  if (requests_gated(endpoint)) {
    out.unrecognized_ratio = endpoint.unrecognized.share();
    out.decision = for_unrecognized(out.decision, out.unrecognized_ratio);
  }
  out.sees_requests = headgate::sees_requests(*endpoint.config) && shared_.requests.sees();
  if (out.sees_requests) {
    out.unknown = shared_.maps.unknowns(endpoint.slot);
  }
}

void ProtectedTarget::snapshot_requests(const Endpoint& endpoint, EndpointSnapshot& out) const {
  const EndpointConfig& config = *endpoint.config;
  out.requests = true;
  out.refusable = requests_gated(endpoint);
  if (endpoint.part == Endpoint::Part::kRoute) {
    const RouteConfig& route = config.routes[endpoint.route];
    out.path = route.path;
    out.criticality = route.criticality;
    out.config_line = route.place.line;
    out.refusable = out.refusable && (config.protocol != Protocol::kGrpc || route.unary);
  } else {
    out.refusable = out.refusable && config.protocol != Protocol::kGrpc;
  }
  if (!requests_gated(endpoint)) {
    out.decision = {};
  }
  out.in_flight = in_flight(endpoint);
  out.in_flight_known = counts_payload_;
}

TargetSnapshot ProtectedTarget::snapshot(Instant now) {
  TargetSnapshot out;
  out.name = config_.name;
  out.instance = located_.cgroup_path;
  if (located_.pod && !located_.pod->name.empty()) {
    out.instance = fmt::format("{}/{}/{}", located_.pod->namespace_name, located_.pod->name,
                               located_.pod->container);
  }
  out.pod = located_.pod;
  out.cgroup_path = located_.cgroup_path;
  out.strategy = config_.strategy.name;
  out.mode = mode_;
  out.config_line = config_.place.line;
  out.present = true;
  out.state = decision_.state;
  out.why = decision_.why;
  out.sample = sample_;
  out.signals = deriver_.signals();
  if (sample_.cpu_usage_ns.known() || sample_.memory_current_bytes.known()) {
    out.sample_age_s = seconds(now - sample_.at);
  }
  out.thresholds = strategy_->thresholds();
  out.policy = shared_.maps.target_policy(slot_);
  out.lease_valid = out.policy.valid_until_ns >= to_ktime_ns(now);
  const headgate_target_state& state = shared_.maps.target_state(slot_);
  const auto waiting = static_cast<std::int64_t>(state.waiting_started - state.waiting_settled -
                                                 waiting_.written_off());
  out.waiting = waiting > 0 ? static_cast<std::uint64_t>(waiting) : 0;
  out.restarts = restarts_;
  const double elapsed_s = second_ago_at_ == Instant{} ? 0 : seconds(now - second_ago_at_);
  for (const Endpoint& endpoint : endpoints_) {
    EndpointSnapshot e;
    e.name = shown_name(endpoint);
    e.port = endpoint.config->port;
    e.protocol = endpoint.config->protocol;
    e.criticality = endpoint.config->criticality;
    e.refuse =
        endpoint.is_port() ? connection_form(*endpoint.config) : endpoint.config->refuse.form;
    e.config_line = endpoint.config->place.line;
    if (endpoint.input != kNoInput) {
      e.decision = decision_.endpoints[endpoint.input];
    }
    if (endpoint.is_port()) {
      snapshot_port(endpoint, e);
    } else {
      snapshot_requests(endpoint, e);
    }
    e.policy = shared_.maps.endpoint_policy(endpoint.slot);
    e.counters = shared_.maps.counters(endpoint.slot);
    e.rates = per_second(e.counters, endpoint.second_ago, elapsed_s);
    out.endpoints.push_back(std::move(e));
  }
  if (!unseen_.empty()) {
    out.hooks.push_back(
        {"sk_lookup", "cgroup " + located_.cgroup_path, "off", "", 0, EACCES, unseen_});
  }
  for (const Namespace& space : namespaces_) {
    out.hooks.push_back(shared_.gate.status(space.inode));
    if (!space.host && wants_early()) {
      out.hooks.push_back(shared_.tc.status(space.inode));
    }
    if (space.host) {
      for (HookStatus& status : shared_.xdp.status()) {
        out.hooks.push_back(std::move(status));
      }
    }
  }
  out.hooks.push_back(shared_.connections.status(slot_));
  if (wants_payload()) {
    out.hooks.push_back(shared_.payload.status(slot_));
  }
  if (sees_requests_) {
    out.hooks.push_back(shared_.requests.status());
  }
  out.transitions.assign(transitions_.begin(), transitions_.end());
  out.sample_errors_by_file = sampler_->errors();
  const SignalDeriver::Distrusted& distrusted = deriver_.distrusted();
  for (const auto& [reason, count] : {std::pair{Unknown::kWentBack, distrusted.went_back},
                                      std::pair{Unknown::kImpossible, distrusted.impossible}}) {
    if (count > 0) {
      out.sample_errors_by_file.push_back({{"cpu_usage", reason}, count});
    }
  }
  for (const auto& [what, count] : out.sample_errors_by_file) {
    out.sample_errors[static_cast<std::size_t>(what.second)] += count;
  }
  out.warnings = warnings_;
  return out;
}

}  // namespace headgate
