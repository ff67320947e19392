// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "agent/snapshot.h"

namespace headgate::test {

/// A busy agent with one target ("web", shedding, 0.5 cores) of two endpoints, everything known.
inline AgentSnapshot busy_snapshot() {
  using namespace std::chrono_literals;
  AgentSnapshot agent;
  agent.version = "0.1.0";
  agent.revision = "abc123";
  agent.compiler = "gcc 12.2";
  agent.unix_ms = 1767323045006;  // 2026-01-02T03:04:05.006Z
  agent.uptime = 100s;
  agent.generation = 1000;
  agent.config_file = "/etc/headgate/headgate.yaml";
  agent.config_hash = 0x0123456789abcdefULL;
  agent.config_last_reload_success_unix_s = 1767322945;
  agent.kernel_release = "6.1.0";
  agent.cgroup_mode = "v2";
  agent.pin_path = "/sys/fs/bpf/headgate/v1";
  agent.pinned = true;
  agent.tick = 100ms;
  agent.lease = 1s;
  agent.ticks_missed = 2;
  agent.last_tick_lag = 1ms;
  agent.tick_cost_histogram[0] = 10;
  agent.tick_cost_histogram[2] = 5;
  agent.tick_cost_histogram[11] = 1;
  agent.tick_cost_seconds_sum = 0.5;
  agent.attach_errors.push_back({"sk_lookup", 1, 3});
  agent.orphans_removed = 4;
  agent.agent_cpu_seconds = 1.5;
  agent.agent_resident_bytes = 20U << 20;

  TargetSnapshot target;
  target.name = "web";
  target.instance = "/system.slice/web.service";
  target.cgroup_path = "/system.slice/web.service";
  target.strategy = "graded";
  target.config_line = 4;
  target.present = true;
  target.state = State::kShedding;
  target.why = "cpu slow above enter";
  target.sample.cpu_usage_ns = std::uint64_t{2'500'000'000};
  target.sample.memory_current_bytes = std::uint64_t{200} << 20;
  target.sample.memory_inactive_file_bytes = std::uint64_t{50} << 20;
  target.sample.memory_oom_kills = std::uint64_t{0};
  target.sample.limits.cpu_cores = 0.5;
  target.sample.limits.cpu_source = LimitSource::kOwn;
  target.sample.limits.memory_bytes = std::uint64_t{256} << 20;
  target.sample.limits.memory_source = LimitSource::kAncestor;
  target.signals.cpu = Ratio{1.25};
  target.signals.cpu_fast = Ratio{0.95};
  target.signals.cpu_slow = Ratio{0.9};
  target.signals.throttled = Ratio{0.4};
  target.signals.cpu_pressure = Ratio{0.3};
  target.signals.memory = Ratio{0.586};
  target.signals.memory_pressure = Ratio{0.0};
  target.signals.memory_slope_per_second = 0.01;
  target.sample_age_s = 0.05;
  target.thresholds = {{"enter", 0.8}, {"memory_open", 0.92}};
  target.lease_valid = true;
  target.waiting = 7;
  target.hooks.push_back({"sk_lookup", "netns 4026532281", "attached", "atomic", 42, 0, ""});
  target.hooks.push_back(
      {"sock_ops", "cgroup /system.slice/web.service", "attached", "atomic", 43, 0, ""});
  target.transitions.push_back(
      {1767323040000, State::kNormal, State::kShedding, "cpu slow above enter", 0.97, 0.81, 0.5});

  EndpointSnapshot grpc;
  grpc.name = "otlp-grpc";
  grpc.port = 4317;
  grpc.protocol = Protocol::kGrpc;
  grpc.config_line = 12;
  grpc.decision.admit = Probability::admitting(0.25);
  grpc.decision.reason = HEADGATE_REASON_SHARE;
  grpc.policy.flags = HEADGATE_ARM_SHARE;
  grpc.policy.admit_q32 = HEADGATE_ALWAYS_Q32 / 4;
  grpc.policy.max_refuse_q32 = HEADGATE_ALWAYS_Q32;
  grpc.counters.tries = 1010;
  grpc.counters.offered = 1000;
  grpc.counters.admitted = 300;
  grpc.counters.admitted_exempt = 20;
  grpc.counters.admitted_probe = 10;
  grpc.counters.repeats = 10;
  grpc.counters.reset = 700;
  grpc.counters.refused[HEADGATE_REASON_SHARE] = 700;
  grpc.counters.would_refuse[HEADGATE_REASON_SHARE] = 730;
  grpc.rates.offered = 400;
  grpc.rates.admitted = 100;
  grpc.rates.reset = 300;
  grpc.in_flight = 9;
  grpc.in_flight_known = true;
  target.endpoints.push_back(grpc);

  EndpointSnapshot statsd;
  statsd.name = "statsd";
  statsd.port = 8125;
  statsd.protocol = Protocol::kUdp;
  statsd.criticality = Criticality::kSheddable;
  target.endpoints.push_back(statsd);

  agent.targets.push_back(target);
  return agent;
}

/// A port whose requests are looked at, with one route and what has none; of the last 200 requests
/// on it half were for the route.
inline std::vector<EndpointSnapshot> port_with_routes() {
  EndpointSnapshot port;
  port.name = "otlp-http";
  port.port = 4318;
  port.protocol = Protocol::kHttp;
  port.refuse = RefuseForm::kAuto;
  port.sees_requests = true;
  port.unrecognized_ratio = 0.25;
  port.unknown[HEADGATE_UNKNOWN_TLS] = 3;
  EndpointSnapshot route = port;
  route.name = "otlp-http/traces";
  route.refuse = RefuseForm::kHttp429;
  route.requests = true;
  route.path = "/v1/traces";
  route.sees_requests = false;
  route.unknown = {};
  route.criticality = Criticality::kSheddable;
  route.decision.admit = Probability::admitting(0.5);
  route.decision.reason = HEADGATE_REASON_SHARE;
  route.counters.tries = route.counters.offered = 100;
  route.counters.admitted = 60;
  route.counters.admitted_guarded = 4;
  route.counters.answered = 40;
  route.counters.refused[HEADGATE_REASON_SHARE] = 40;
  route.counters.payload_bytes = 102'400;
  route.counters.responses = 55;
  route.counters.response_ns = 550'000'000;
  route.rates.offered = 10;
  route.rates.admitted = 6;
  route.rates.answered = 4;
  route.rates.responses = 5;
  route.rates.response_ns = 50'000'000;
  route.in_flight = 5;
  route.in_flight_known = true;
  EndpointSnapshot rest = route;
  rest.name = "otlp-http/(rest)";
  rest.path.clear();
  rest.refusable = false;
  rest.counters = {};
  rest.rates = {};
  return {port, route, rest};
}

/// A target of which nothing could be read, as in the first tick.
inline TargetSnapshot unknown_target(std::string name) {
  TargetSnapshot target;
  target.name = std::move(name);
  target.instance = "/x";
  target.cgroup_path = "/x";
  target.strategy = "graded";
  target.present = true;
  EndpointSnapshot endpoint;
  endpoint.name = "tcp-80";
  endpoint.port = 80;
  target.endpoints.push_back(endpoint);
  return target;
}

class FixedSource final : public SnapshotSource {
 public:
  explicit FixedSource(SnapshotPtr snapshot, bool alive = true)
      : snapshot_(std::move(snapshot)), alive_(alive) {}
  [[nodiscard]] SnapshotPtr snapshot() override { return snapshot_; }
  [[nodiscard]] bool alive() const override { return alive_; }

 private:
  SnapshotPtr snapshot_;
  bool alive_;
};

}  // namespace headgate::test
