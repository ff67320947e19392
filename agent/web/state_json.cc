// SPDX-License-Identifier: Apache-2.0
#include "agent/web/state_json.h"

#include <array>
#include <cmath>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "agent/base/unknown_class.h"
#include "agent/web/words.h"

namespace headgate::web {
namespace {

using json = nlohmann::ordered_json;

std::string dump(const json& value, int indent = -1) {
  return value.dump(indent, ' ', false, json::error_handler_t::replace);
}

json number(double value) { return std::isfinite(value) ? json(value) : json(nullptr); }
json number(const std::optional<double>& value) { return value ? number(*value) : json(nullptr); }

double q32(std::uint64_t value) {
  return static_cast<double>(value) / static_cast<double>(HEADGATE_ALWAYS_Q32);
}
double ns(std::uint64_t value) { return static_cast<double>(value) * 1e-9; }

/// Writes numbers that may be unknown: null, and the reason beside the others.
class Unknowns {
 public:
  template <class T>
  json take(std::string_view signal, const Measured<T>& measured) {
    if (!measured.known()) {
      list_.push_back({{"signal", signal}, {"reason", headgate::to_string(measured.reason)}});
      return nullptr;
    }
    if constexpr (std::is_same_v<T, Ratio>) {
      return number((*measured).value);
    } else {
      return json(*measured);
    }
  }
  [[nodiscard]] json list() && { return std::move(list_); }

 private:
  json list_ = json::array();
};

/// A limit that does not exist is known: null with the source "unlimited", not an unknown.
template <class T>
json limit(Unknowns& unknown, std::string_view signal, const Measured<T>& value,
           LimitSource source) {
  if (source == LimitSource::kUnlimited && !value.known() && value.reason == Unknown::kNoLimit) {
    return nullptr;
  }
  return unknown.take(signal, value);
}

/// Where a limit comes from; null while that is not known.
template <class T>
json source(const Measured<T>& limit, LimitSource source) {
  const bool settled = limit.known() || limit.reason == Unknown::kNoLimit;
  return settled ? json(headgate::to_string(source)) : json(nullptr);
}

json cpu(const TargetSnapshot& target, Unknowns& unknown) {
  const Signals& s = target.signals;
  const Limits& limits = target.sample.limits;
  return {{"effective_cores",
           limit(unknown, "cpu.effective_cores", limits.cpu_cores, limits.cpu_source)},
          {"source", source(limits.cpu_cores, limits.cpu_source)},
          {"raw_ratio", unknown.take("cpu.raw_ratio", s.cpu)},
          {"fast_ratio", unknown.take("cpu.fast_ratio", s.cpu_fast)},
          {"slow_ratio", unknown.take("cpu.slow_ratio", s.cpu_slow)},
          {"throttled_ratio", unknown.take("cpu.throttled_ratio", s.throttled)},
          {"psi_some_ratio", unknown.take("cpu.psi_some_ratio", s.cpu_pressure)}};
}

Measured<std::uint64_t> working_set(const Sample& sample) {
  if (!sample.memory_current_bytes.known()) {
    return sample.memory_current_bytes.reason;
  }
  if (!sample.memory_inactive_file_bytes.known()) {
    return sample.memory_inactive_file_bytes.reason;
  }
  const std::uint64_t current = *sample.memory_current_bytes;
  const std::uint64_t inactive = *sample.memory_inactive_file_bytes;
  return current > inactive ? current - inactive : 0;
}

json memory(const TargetSnapshot& target, Unknowns& unknown) {
  const Signals& s = target.signals;
  const Sample& sample = target.sample;
  const Limits& limits = sample.limits;
  return {{"limit_bytes",
           limit(unknown, "memory.limit_bytes", limits.memory_bytes, limits.memory_source)},
          {"source", source(limits.memory_bytes, limits.memory_source)},
          {"current_bytes", unknown.take("memory.current_bytes", sample.memory_current_bytes)},
          {"inactive_file_bytes",
           unknown.take("memory.inactive_file_bytes", sample.memory_inactive_file_bytes)},
          {"working_set_bytes", unknown.take("memory.working_set_bytes", working_set(sample))},
          {"raw_ratio", unknown.take("memory.raw_ratio", s.memory)},
          {"slope_per_second", unknown.take("memory.slope_per_second", s.memory_slope_per_second)},
          {"psi_some_ratio", unknown.take("memory.psi_some_ratio", s.memory_pressure)},
          {"oom_kills", unknown.take("memory.oom_kills", sample.memory_oom_kills)}};
}

json counters(const headgate_counters& c) {
  json would = json::object();
  json refused = json::object();
  for (int r = HEADGATE_REASON_CIRCUIT; r < HEADGATE_REASON_COUNT; ++r) {
    const std::string reason(to_string(static_cast<headgate_reason>(r)));
    would[reason] = c.would_refuse[r];
    refused[reason] = c.refused[r];
  }
  return {{"tries", c.tries},
          {"offered", c.offered},
          {"admitted", c.admitted},
          {"admitted_exempt", c.admitted_exempt},
          {"admitted_stale", c.admitted_stale},
          {"admitted_probe", c.admitted_probe},
          {"admitted_observed", c.admitted_observed},
          {"admitted_capped", c.admitted_capped},
          {"admitted_deferred", c.admitted_deferred},
          {"admitted_last_try", c.admitted_last_try},
          {"repeats", c.repeats},
          {"repeats_refused", c.repeats_refused},
          {"reset", c.reset},
          {"deferred", c.deferred},
          {"deferred_tries", c.deferred_tries},
          {"expired", c.expired},
          {"dropped", c.dropped},
          {"pit_missing", c.pit_missing},
          {"established", c.established},
          {"closed", c.closed},
          {"received_bytes", c.received_bytes},
          {"answered", c.answered},
          {"admitted_guarded", c.admitted_guarded},
          {"payload_bytes", c.payload_bytes},
          {"admitted_bytes", c.admitted_bytes},
          {"responses", c.responses},
          {"response_seconds", ns(c.response_ns)},
          {"would_refuse", std::move(would)},
          {"refused", std::move(refused)}};
}

json endpoint_policy(const headgate_endpoint_policy& p) {
  struct Arm {
    std::uint64_t bit;
    std::string_view word;
  };
  static constexpr std::array kArms{Arm{HEADGATE_ARM_CIRCUIT, "circuit"},
                                    Arm{HEADGATE_ARM_CONNECTIONS, "connections"},
                                    Arm{HEADGATE_ARM_RATE, "rate"},
                                    Arm{HEADGATE_ARM_SHARE, "share"},
                                    Arm{HEADGATE_ARM_BUDGET, "budget"},
                                    Arm{HEADGATE_ARM_MEMORY, "memory"},
                                    Arm{HEADGATE_ARM_MAX_REFUSE, "max_refuse"}};
  json armed = json::array();
  for (const Arm& arm : kArms) {
    if ((p.flags & arm.bit) != 0) {
      armed.push_back(arm.word);
    }
  }
  json actions = json::object();
  for (unsigned r = HEADGATE_REASON_CIRCUIT; r < HEADGATE_REASON_COUNT; ++r) {
    const auto action = static_cast<headgate_action>((p.actions >> (8 * r)) & 0xff);
    actions[std::string(to_string(static_cast<headgate_reason>(r)))] = to_string(action);
  }
  return {{"armed", std::move(armed)},
          {"observe", (p.flags & HEADGATE_OBSERVE) != 0},
          {"admit_ratio", q32(p.admit_q32)},
          {"actions", std::move(actions)},
          {"charge_request_seconds", ns(p.charge_request_ns)},
          {"charge_kilobyte_seconds", ns(p.charge_kb_ns)},
          {"depth_seconds", ns(p.depth_ns)},
          {"rate_interval_seconds", ns(p.rate_interval_ns)},
          {"connections_max", p.connections_max},
          {"probe_interval_seconds", ns(p.probe_interval_ns)},
          {"max_refuse_ratio", q32(p.max_refuse_q32)},
          {"exempt_interval_seconds", ns(p.exempt_interval_ns)},
          {"generation", p.generation}};
}

json target_policy(const headgate_target_policy& p) {
  return {{"valid_until_ns", p.valid_until_ns},
          {"bucket_depth_max_seconds", ns(p.bucket_depth_max_ns)},
          {"defer_deadline_seconds", ns(p.defer_deadline_ns)},
          {"waiting_max", p.waiting_max},
          {"live_bytes_max", p.live_bytes_max},
          {"connections_max", p.connections_max},
          {"generation", p.generation}};
}

/// What could not be read of a port's requests, and why: only what has happened.
json unknown_requests(const EndpointSnapshot& e) {
  json out = json::object();
  for (unsigned reason = HEADGATE_UNKNOWN_NOT_HTTP; reason < HEADGATE_UNKNOWN_COUNT; ++reason) {
    if (e.unknown[reason] > 0) {
      out[std::string(unknown_word(reason))] = {{"count", e.unknown[reason]},
                                                {"means", unknown_text(reason)}};
    }
  }
  return out;
}

/// What the kernel does with newcomers now: without a lease it admits all, whatever is in the
/// policy that an earlier decision left there.
json endpoint(const EndpointSnapshot& e, bool lease_valid) {
  const bool circuit = lease_valid && (e.policy.flags & HEADGATE_ARM_CIRCUIT) != 0;
  const double admit = circuit ? 0.0 : lease_valid ? e.decision.admit.value() : 1.0;
  const headgate_reason reason = circuit       ? HEADGATE_REASON_CIRCUIT
                                 : lease_valid ? e.decision.reason
                                               : HEADGATE_REASON_NONE;
  return {{"name", e.name},
          {"unit", e.requests                     ? "request"
                   : e.protocol == Protocol::kUdp ? "datagram"
                                                  : "connection"},
          {"path", e.path.empty() ? json(nullptr) : json(e.path)},
          {"hook", e.requests ? "requests" : "sk_lookup"},
          {"refusable", e.refusable},
          {"port", e.port},
          {"protocol", headgate::to_string(e.protocol)},
          {"criticality", headgate::to_string(e.criticality)},
          {"refuse", headgate::to_string(e.refuse)},
          {"config_line", e.config_line},
          {"admit_ratio", admit},
          {"reason", to_string(reason)},
          {"in_flight", e.in_flight_known ? json(e.in_flight) : json(nullptr)},
          {"response_seconds", e.rates.responses > 0 ? json(ns(e.rates.response_ns) /
                                                            static_cast<double>(e.rates.responses))
                                                     : json(nullptr)},
          {"beside_gate", e.beside_gate},
          {"storm", e.storm},
          {"sees_requests", e.sees_requests},
          {"unrecognized_ratio", e.sees_requests ? json(e.unrecognized_ratio) : json(nullptr)},
          {"unknown_requests", unknown_requests(e)},
          {"policy", endpoint_policy(e.policy)},
          {"counters", counters(e.counters)},
          {"rates_per_second", counters(e.rates)}};
}

json hook(const HookStatus& h) {
  return {{"hook", h.hook},
          {"where", h.where},
          {"mode", h.mode},
          {"variant", h.variant},
          {"program_id", h.program_id != 0 ? json(h.program_id) : json(nullptr)},
          {"errno", h.sys_errno != 0 ? json(errno_name(h.sys_errno)) : json(nullptr)},
          {"problem", h.problem}};
}

json hooks(const TargetSnapshot& target) {
  json list = json::array();
  for (const HookStatus& h : target.hooks) {
    list.push_back(hook(h));
  }
  return list;
}

json transitions(const TargetSnapshot& target) {
  json list = json::array();
  for (const Transition& t : target.transitions) {
    list.push_back({{"time", utc_time(t.unix_ms)},
                    {"unix_ms", t.unix_ms},
                    {"from", headgate::to_string(t.from)},
                    {"to", headgate::to_string(t.to)},
                    {"why", t.why},
                    {"cpu_fast_ratio", number(t.cpu_fast)},
                    {"cpu_slow_ratio", number(t.cpu_slow)},
                    {"memory_ratio", number(t.memory)}});
  }
  return list;
}

json sample_errors(const TargetSnapshot& target) {
  json list = json::array();
  for (const auto& [where, count] : target.sample_errors_by_file) {
    list.push_back(
        {{"file", where.first}, {"reason", headgate::to_string(where.second)}, {"count", count}});
  }
  return list;
}

json thresholds(const TargetSnapshot& target) {
  json object = json::object();
  for (const Strategy::Threshold& t : target.thresholds) {
    object[std::string(t.name)] = number(t.value);
  }
  return object;
}

json pod(const TargetSnapshot& t) {
  if (!t.pod) {
    return nullptr;
  }
  return {{"namespace", t.pod->namespace_name},
          {"name", t.pod->name},
          {"uid", t.pod->uid},
          {"container", t.pod->container}};
}

/// Who tells of this node's pods, and how that goes; null where no target is matched by pods.
json pods(const AgentSnapshot& s) {
  if (!s.pods) {
    return nullptr;
  }
  const PodSourceStatus& p = *s.pods;
  return {{"source", p.source},
          {"where", p.where},
          {"node", p.node_name},
          {"synced", p.synced},
          {"problem", p.problem},
          {"pods", p.pods},
          {"lists", p.lists},
          {"watches", p.watches},
          {"events", p.events},
          {"bookmarks", p.bookmarks},
          {"expired", p.expired},
          {"errors", p.errors},
          {"received_bytes", p.received_bytes},
          {"heard_age_seconds", number(p.heard_age_s)}};
}

/// Events about pods; null where nobody is told.
json events(const AgentSnapshot& s) {
  if (!s.events) {
    return nullptr;
  }
  return {{"sent", s.events->sent},
          {"merged", s.events->merged},
          {"dropped", s.events->dropped},
          {"errors", s.events->errors},
          {"off", s.events->off}};
}

json target(const TargetSnapshot& t, Duration lease) {
  Unknowns unknown;
  json object = {{"name", t.name},
                 {"instance", t.instance},
                 {"cgroup_path", t.cgroup_path},
                 {"pod", pod(t)},
                 {"strategy", t.strategy},
                 {"mode", headgate::to_string(t.mode)},
                 {"config_line", t.config_line},
                 {"present", t.present},
                 {"absent_why", t.absent_why},
                 {"state", headgate::to_string(t.state)},
                 {"why", t.why},
                 {"sample_age_seconds", number(t.sample_age_s)},
                 {"lease_valid", t.lease_valid},
                 {"lease_seconds", seconds(lease)},
                 {"waiting", t.waiting},
                 {"restarts", t.restarts}};
  object["cpu"] = cpu(t, unknown);
  object["memory"] = memory(t, unknown);
  object["thresholds"] = thresholds(t);
  object["policy"] = target_policy(t.policy);
  json endpoints = json::array();
  for (const EndpointSnapshot& e : t.endpoints) {
    endpoints.push_back(endpoint(e, t.lease_valid));
  }
  object["endpoints"] = std::move(endpoints);
  object["hooks"] = hooks(t);
  object["transitions"] = transitions(t);
  object["sample_errors"] = sample_errors(t);
  object["unknown"] = std::move(unknown).list();
  object["warnings"] = t.warnings;
  return object;
}

}  // namespace

std::string to_state_json(const AgentSnapshot& s) {
  json state = {
      {"schema", kStateSchema},
      {"version", s.version},
      {"revision", s.revision},
      {"compiler", s.compiler},
      {"time", utc_time(s.unix_ms)},
      {"unix_ms", s.unix_ms},
      {"uptime_seconds", seconds(s.uptime)},
      {"generation", s.generation},
      {"mode", headgate::to_string(s.mode)},
      {"standby", s.standby},
      {"kill_switch", s.killed_switch},
      {"config",
       {{"file", s.config_file},
        {"hash", fmt::format("{:016x}", s.config_hash)},
        {"last_reload_successful", s.config_last_reload_successful},
        {"last_reload_success_unix_s", s.config_last_reload_success_unix_s},
        {"last_error", s.config_last_error}}},
      {"kernel_release", s.kernel_release},
      {"cgroup_mode", s.cgroup_mode},
      {"pin_path", s.pin_path},
      {"pinned", s.pinned},
      {"degraded", s.degraded},
      {"tick_seconds", seconds(s.tick)},
      {"lease_seconds", seconds(s.lease)},
      {"ticks_missed", s.ticks_missed},
      {"last_tick_cost_seconds", seconds(s.last_tick_cost)},
      {"last_tick_lag_seconds", seconds(s.last_tick_lag)},
      {"map_update_errors", s.map_update_errors},
      {"orphans_removed", s.orphans_removed},
      {"agent",
       {{"cpu_seconds", number(s.agent_cpu_seconds)}, {"resident_bytes", s.agent_resident_bytes}}}};
  json attach = json::array();
  for (const AttachErrors& errors : s.attach_errors) {
    attach.push_back(
        {{"hook", errors.hook}, {"errno", errno_name(errors.sys_errno)}, {"count", errors.count}});
  }
  state["attach_errors"] = std::move(attach);
  state["pods"] = pods(s);
  state["events"] = events(s);
  json interfaces = json::array();
  for (const HookStatus& interface : s.interfaces) {
    interfaces.push_back(hook(interface));
  }
  state["interfaces"] = std::move(interfaces);
  json left = json::object();
  for (std::size_t why = 0; why < s.left_to_socket.size(); ++why) {
    left[std::string(to_string(static_cast<headgate_left>(why)))] = s.left_to_socket[why];
  }
  state["left_to_socket"] = std::move(left);
  json targets = json::array();
  for (const TargetSnapshot& t : s.targets) {
    targets.push_back(target(t, s.lease));
  }
  state["targets"] = std::move(targets);
  return dump(state);
}

std::string to_targets_json(const AgentSnapshot& s) {
  json list = json::array();
  for (const TargetSnapshot& t : s.targets) {
    Unknowns unknown;
    json object = {
        {"name", t.name},
        {"instance", t.instance},
        {"cgroup_path", t.cgroup_path},
        {"pod", pod(t)},
        {"config", t.config_line == 0 ? std::string("command line")
                                      : fmt::format("{}:{}", s.config_file, t.config_line)},
        {"present", t.present},
        {"absent_why", t.absent_why},
        {"state", headgate::to_string(t.state)},
        {"why", t.why}};
    object["cpu"] = cpu(t, unknown);
    object["memory"] = memory(t, unknown);
    json endpoints = json::array();
    for (const EndpointSnapshot& e : t.endpoints) {
      endpoints.push_back({{"name", e.name},
                           {"port", e.port},
                           {"protocol", headgate::to_string(e.protocol)},
                           {"admit_ratio", e.decision.admit.value()}});
    }
    object["endpoints"] = std::move(endpoints);
    object["hooks"] = hooks(t);
    object["unknown"] = std::move(unknown).list();
    object["warnings"] = t.warnings;
    list.push_back(std::move(object));
  }
  return dump({{"schema", kStateSchema}, {"targets", std::move(list)}}, 2) + "\n";
}

std::optional<std::string> to_decisions_json(const AgentSnapshot& s, std::string_view name) {
  json list = json::array();
  for (const TargetSnapshot& t : s.targets) {
    if (!name.empty() && t.name != name) {
      continue;
    }
    json endpoints = json::array();
    for (const EndpointSnapshot& e : t.endpoints) {
      endpoints.push_back({{"name", e.name},
                           {"admit_ratio", e.decision.admit.value()},
                           {"reason", to_string(e.decision.reason)}});
    }
    list.push_back({{"target", t.name},
                    {"instance", t.instance},
                    {"state", headgate::to_string(t.state)},
                    {"why", t.why},
                    {"endpoints", std::move(endpoints)},
                    {"transitions", transitions(t)}});
  }
  if (list.empty() && !name.empty()) {
    return std::nullopt;
  }
  return dump({{"schema", kStateSchema}, {"decisions", std::move(list)}}, 2) + "\n";
}

}  // namespace headgate::web
