// SPDX-License-Identifier: Apache-2.0
#include "agent/web/metrics.h"

#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>

#include "agent/base/unknown_class.h"
#include "agent/web/words.h"

namespace headgate::web {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;

using Label = std::pair<std::string_view, std::string_view>;
using Labels = std::initializer_list<Label>;

ClientMetric labelled(Labels labels) {
  ClientMetric metric;
  metric.label.reserve(labels.size());
  for (const auto& [name, value] : labels) {
    metric.label.push_back({std::string(name), valid_utf8(value)});
  }
  return metric;
}

/// One metric family under construction. A family in which nothing is known is left out whole.
class Family {
 public:
  Family(std::string_view name, std::string_view help, MetricType type) {
    family_.name = name;
    family_.help = help;
    family_.type = type;
  }

  void add(Labels labels, double value) {
    if (!std::isfinite(value)) {
      return;
    }
    ClientMetric metric = labelled(labels);
    if (family_.type == MetricType::Counter) {
      metric.counter.value = value;
    } else {
      metric.gauge.value = value;
    }
    family_.metric.push_back(std::move(metric));
  }
  void add(Labels labels, std::uint64_t value) { add(labels, static_cast<double>(value)); }
  void add(Labels labels, bool value) { add(labels, value ? 1.0 : 0.0); }
  void add(Labels labels, const Measured<Ratio>& value) {
    if (value.known()) {
      add(labels, (*value).value);
    }
  }
  void add(Labels labels, const Measured<std::uint64_t>& value) {
    if (value.known()) {
      add(labels, *value);
    }
  }
  void add(Labels labels, const Measured<double>& value) {
    if (value.known()) {
      add(labels, *value);
    }
  }
  void add(const ClientMetric::Histogram& histogram) {
    ClientMetric metric;
    metric.histogram = histogram;
    family_.metric.push_back(std::move(metric));
  }

  void move_to(std::vector<MetricFamily>& families) {
    if (!family_.metric.empty()) {
      families.push_back(std::move(family_));
    }
  }
  [[nodiscard]] std::vector<ClientMetric>& metrics() { return family_.metric; }

 private:
  MetricFamily family_;
};

/// What stands in the labels of a target that is a container of a pod.
struct PodLabels {
  std::string target;
  std::string namespace_name;
  std::string pod;
  std::string container;
};
using PodLabelsByTarget = std::map<std::string, PodLabels, std::less<>>;

class Families {
 public:
  explicit Families(PodLabelsByTarget pods) : pods_(std::move(pods)) {}
  void one(std::string_view name, std::string_view help, MetricType type, double value) {
    Family family(name, help, type);
    family.add({}, value);
    family.move_to(families_);
  }
  void add(Family family) {
    for (ClientMetric& metric : family.metrics()) {
      name_pod(metric);
    }
    family.move_to(families_);
  }
  [[nodiscard]] std::string serialize() const {
    return prometheus::TextSerializer().Serialize(families_);
  }

 private:
  /// A label "target" that stands for a pod becomes the target of the configuration, and the pod
  /// has labels of its own: one target may be many pods.
  void name_pod(ClientMetric& metric) const {
    if (pods_.empty() || metric.label.empty() || metric.label.front().name != "target") {
      return;
    }
    const auto pod = pods_.find(metric.label.front().value);
    if (pod == pods_.end()) {
      return;
    }
    metric.label.front().value = pod->second.target;
    metric.label.push_back({"namespace", pod->second.namespace_name});
    metric.label.push_back({"pod", pod->second.pod});
    metric.label.push_back({"container", pod->second.container});
  }

  std::vector<MetricFamily> families_;
  PodLabelsByTarget pods_;
};

Family gauge(std::string_view name, std::string_view help) {
  return {name, help, MetricType::Gauge};
}
Family counter(std::string_view name, std::string_view help) {
  return {name, help, MetricType::Counter};
}

/// A target with its value of the label "target". Two things that one target of the configuration
/// matches have one name; two equal label sets would make the whole scrape fail, so that from the
/// second on the instance is part of the value.
struct Named {
  const TargetSnapshot& target;
  std::string label;
};

std::vector<Named> name_targets(const AgentSnapshot& snapshot) {
  std::vector<Named> named;
  std::set<std::string> used;
  named.reserve(snapshot.targets.size());
  for (const TargetSnapshot& target : snapshot.targets) {
    std::string label = target.name;
    if (used.contains(label) || target.pod) {
      label += '@' + target.instance;
    }
    for (int n = 2; !used.insert(label).second; ++n) {
      label = fmt::format("{}@{}#{}", target.name, target.instance, n);
    }
    named.push_back({target, std::move(label)});
  }
  return named;
}

PodLabelsByTarget pod_labels(std::span<const Named> targets) {
  PodLabelsByTarget out;
  for (const auto& [target, label] : targets) {
    if (target.pod) {
      // Without a name the UID tells pods apart.
      out[valid_utf8(label)] = {valid_utf8(target.name), target.pod->namespace_name,
                                target.pod->name.empty() ? target.pod->uid : target.pod->name,
                                target.pod->container};
    }
  }
  return out;
}

/// The hook that makes the verdicts of an endpoint: sock_ops only counts.
std::string verdict_hook(const TargetSnapshot& target, const EndpointSnapshot& endpoint) {
  if (endpoint.requests) {
    return "requests";
  }
  for (const HookStatus& hook : target.hooks) {
    if (hook.hook != "sock_ops" && hook.hook != "requests" && hook.program_id != 0) {
      return hook.hook;
    }
  }
  return "sk_lookup";
}

std::string file_name(std::string_view path) {
  const auto slash = path.rfind('/');
  return std::string(slash == std::string_view::npos ? path : path.substr(slash + 1));
}

// Reading per CPU and part by part may see a part before its sum: never below 0.
std::uint64_t minus(std::uint64_t whole, std::uint64_t part) {
  return whole > part ? whole - part : 0;
}

void add_verdicts(Families& out, std::span<const Named> targets) {
  Family verdicts = counter(
      "headgate_verdicts_total",
      "Verdicts in the kernel, one a try (a retransmitted SYN is judged again), by the reason for "
      "it. verdict is admit or refuse; headgate_attempts_* say in which form it was refused. Of "
      "requests on live connections: hook is requests, and endpoint ENDPOINT/ROUTE.");
  Family would = counter("headgate_would_refuse_total",
                         "Tries that the policy speaks against, refused or not (mode observe, "
                         "exempt source, lease run out), by reason.");
  for (const auto& [target, label] : targets) {
    for (const EndpointSnapshot& endpoint : target.endpoints) {
      const std::string hook = verdict_hook(target, endpoint);
      const headgate_counters& c = endpoint.counters;
      const auto verdict = [&, &label = label](std::string_view word, std::string_view reason,
                                               std::uint64_t value) {
        verdicts.add({{"target", label},
                      {"endpoint", endpoint.name},
                      {"hook", hook},
                      {"verdict", word},
                      {"reason", reason}},
                     value);
      };
      const std::uint64_t special = c.admitted_exempt + c.admitted_stale + c.admitted_probe +
                                    c.admitted_observed + c.admitted_capped + c.admitted_guarded;
      verdict("admit", "none", minus(c.admitted, special));
      verdict("admit", "exempt", c.admitted_exempt);
      verdict("admit", "stale", c.admitted_stale);
      verdict("admit", "probe", c.admitted_probe);
      verdict("admit", "observed", c.admitted_observed);
      verdict("admit", "capped", c.admitted_capped);
      if (endpoint.requests) {
        verdict("admit", "guarded", c.admitted_guarded);
      } else {
        verdict("admit", "ticket", c.repeats - c.repeats_refused);
      }
      for (int r = HEADGATE_REASON_CIRCUIT; r < HEADGATE_REASON_COUNT; ++r) {
        const std::string_view reason = to_string(static_cast<headgate_reason>(r));
        verdict("refuse", reason, c.refused[r]);
        would.add(
            {{"target", label}, {"endpoint", endpoint.name}, {"hook", hook}, {"reason", reason}},
            std::uint64_t{c.would_refuse[r]});
      }
    }
  }
  out.add(std::move(verdicts));
  out.add(std::move(would));
}

struct Column {
  std::string_view name;
  std::string_view help;
  __u64 headgate_counters::*field;
};

/// A family a column, of the ports or of their routes.
void add_columns(Families& out, std::span<const Named> targets, std::span<const Column> columns,
                 bool requests) {
  for (const Column& column : columns) {
    Family family = counter(column.name, column.help);
    for (const auto& [target, label] : targets) {
      for (const EndpointSnapshot& endpoint : target.endpoints) {
        if (endpoint.requests == requests) {
          family.add({{"target", label}, {"endpoint", endpoint.name}},
                     std::uint64_t{endpoint.counters.*column.field});
        }
      }
    }
    out.add(std::move(family));
  }
}

void add_endpoints(Families& out, std::span<const Named> targets) {
  static constexpr std::array kColumns{
      Column{"headgate_attempts_offered_total", "Attempts (distinct connects) that came in.",
             &headgate_counters::offered},
      Column{"headgate_attempts_admitted_total", "Attempts admitted, for whatever cause.",
             &headgate_counters::admitted},
      Column{"headgate_attempts_reset_total", "Attempts answered by RST, or ICMP for UDP.",
             &headgate_counters::reset},
      Column{"headgate_attempts_deferred_total", "Attempts met with silence at their first try.",
             &headgate_counters::deferred},
      Column{"headgate_attempts_deferred_admitted_total", "Attempts admitted at a later try.",
             &headgate_counters::admitted_deferred},
      Column{"headgate_attempts_expired_total",
             "Deferred attempts reset because they had waited for the deadline.",
             &headgate_counters::expired},
      Column{"headgate_attempts_dropped_total", "Attempts dropped silently for good.",
             &headgate_counters::dropped},
      Column{"headgate_pit_missing_total", "Deferrals that had to be resets: no pit socket.",
             &headgate_counters::pit_missing},
      Column{"headgate_connections_established_total",
             "Connections whose handshake the server completed, seen by sock_ops.",
             &headgate_counters::established},
      Column{"headgate_connections_closed_total", "Connections closed, seen by sock_ops.",
             &headgate_counters::closed},
      Column{"headgate_received_bytes_total", "Payload received by connections that have closed.",
             &headgate_counters::received_bytes},
  };
  add_columns(out, targets, kColumns, /*requests=*/false);

  Family admit = gauge("headgate_admit_ratio",
                       "Share of the attempts that the last decision admits; with the circuit open "
                       "0, whatever the probe lets in.");
  Family in_flight = gauge("headgate_connections_in_flight", "Connections that are open now.");
  Family beside = gauge("headgate_connections_beside_gate",
                        "Connections established in the last minute in which the gate saw no try: "
                        "something leads them past it.");
  Family storm =
      gauge("headgate_storm", "1 while clients that reconnect in a hot loop get silence.");
  for (const auto& [target, label] : targets) {
    for (const EndpointSnapshot& endpoint : target.endpoints) {
      const Labels labels{{"target", label}, {"endpoint", endpoint.name}};
      storm.add(labels, endpoint.storm);
      if (target.state != State::kUnknown) {
        const bool circuit = (endpoint.policy.flags & HEADGATE_ARM_CIRCUIT) != 0;
        admit.add(labels, circuit ? 0.0 : endpoint.decision.admit.value());
      }
      if (endpoint.in_flight_known && !endpoint.requests) {
        in_flight.add(labels, endpoint.in_flight);
        beside.add(labels, endpoint.beside_gate);
      }
    }
  }
  out.add(std::move(admit));
  out.add(std::move(in_flight));
  out.add(std::move(beside));
  out.add(std::move(storm));
}

/// Requests on live connections: routes, what has none, and what could not be read.
void add_requests(Families& out, std::span<const Named> targets) {
  static constexpr std::array kColumns{
      Column{"headgate_requests_offered_total",
             "Requests on live connections; endpoint is ENDPOINT/ROUTE, (rest) those without one.",
             &headgate_counters::offered},
      Column{"headgate_requests_admitted_total", "Requests admitted, for whatever cause.",
             &headgate_counters::admitted},
      Column{"headgate_requests_answered_total",
             "Requests refused by an answer: 429, 503 or RESOURCE_EXHAUSTED, as configured.",
             &headgate_counters::answered},
      Column{"headgate_request_bytes_total", "Size of the requests, where it is announced.",
             &headgate_counters::payload_bytes},
      Column{"headgate_request_admitted_bytes_total", "The same of those that were admitted.",
             &headgate_counters::admitted_bytes},
      Column{"headgate_request_responses_total", "Answers of the server that were seen (HTTP/1.1).",
             &headgate_counters::responses},
  };
  add_columns(out, targets, kColumns, /*requests=*/true);
  Family response = counter("headgate_request_response_seconds_total",
                            "Time from the first byte of a request to that of its answer, summed.");
  Family in_flight = gauge("headgate_requests_in_flight", "Requests admitted and not answered.");
  Family unknown = counter("headgate_requests_unknown_total",
                           "Requests and connections that could not be read, by reason; they meet "
                           "the rule of their port.");
  Family unrecognized =
      gauge("headgate_unrecognized_connections_ratio",
            "Share of the connections that carry no requests which can be seen: they are gated as "
            "connections.");
  for (const auto& [target, label] : targets) {
    for (const EndpointSnapshot& endpoint : target.endpoints) {
      const Labels labels{{"target", label}, {"endpoint", endpoint.name}};
      if (endpoint.requests && endpoint.in_flight_known) {
        response.add(labels, static_cast<double>(endpoint.counters.response_ns) * 1e-9);
        in_flight.add(labels, endpoint.in_flight);
      }
      if (!endpoint.sees_requests) {
        continue;
      }
      unrecognized.add(labels, endpoint.unrecognized_ratio);
      for (unsigned reason = HEADGATE_UNKNOWN_NOT_HTTP; reason < HEADGATE_UNKNOWN_COUNT; ++reason) {
        unknown.add(
            {{"target", label}, {"endpoint", endpoint.name}, {"reason", unknown_word(reason)}},
            endpoint.unknown[reason]);
      }
    }
  }
  for (Family* family : {&response, &in_flight, &unknown, &unrecognized}) {
    out.add(std::move(*family));
  }
}

/// The limit is known, or known not to exist.
template <class T>
bool is_settled(const Measured<T>& limit) {
  return limit.known() || limit.reason == Unknown::kNoLimit;
}

void add_levels(Families& out, std::span<const Named> targets) {
  Family level = gauge("headgate_water_level_ratio",
                       "Use over the target's own limit. cpu: raw, fast (110 ms) and slow (2 s) "
                       "means, above 1 in bursts; memory: working set.");
  Family throttled =
      gauge("headgate_throttled_ratio", "Share of the CFS periods in which the quota ran out.");
  Family pressure = gauge("headgate_pressure_ratio",
                          "Share of the time in which some task waited for the resource (PSI).");
  Family thresholds = gauge("headgate_threshold_ratio", "Levels at which the strategy acts.");
  Family cores = gauge("headgate_cpu_limit_cores", "Cores that the target may use.");
  Family memory_limit = gauge("headgate_memory_limit_bytes", "Memory that the target may use.");
  Family working_set =
      gauge("headgate_memory_working_set_bytes", "Memory in use without inactive file cache.");
  Family usage = counter("headgate_cpu_usage_seconds_total", "CPU time used by the target.");
  Family limit_source =
      gauge("headgate_limit_source", "Where the limit of a resource comes from; always 1.");
  for (const auto& [target, label] : targets) {
    const Signals& s = target.signals;
    level.add({{"target", label}, {"resource", "cpu"}, {"kind", "raw"}}, s.cpu);
    level.add({{"target", label}, {"resource", "cpu"}, {"kind", "fast"}}, s.cpu_fast);
    level.add({{"target", label}, {"resource", "cpu"}, {"kind", "slow"}}, s.cpu_slow);
    level.add({{"target", label}, {"resource", "memory"}, {"kind", "raw"}}, s.memory);
    throttled.add({{"target", label}}, s.throttled);
    pressure.add({{"target", label}, {"resource", "cpu"}}, s.cpu_pressure);
    pressure.add({{"target", label}, {"resource", "memory"}}, s.memory_pressure);
    for (const Strategy::Threshold& threshold : target.thresholds) {
      thresholds.add({{"target", label}, {"threshold", threshold.name}}, threshold.value);
    }
    const Sample& sample = target.sample;
    cores.add({{"target", label}}, sample.limits.cpu_cores);
    memory_limit.add({{"target", label}}, sample.limits.memory_bytes);
    if (sample.cpu_usage_ns.known()) {
      usage.add({{"target", label}}, static_cast<double>(*sample.cpu_usage_ns) * 1e-9);
    }
    if (sample.memory_current_bytes.known() && sample.memory_inactive_file_bytes.known()) {
      working_set.add({{"target", label}},
                      minus(*sample.memory_current_bytes, *sample.memory_inactive_file_bytes));
    }
    const auto add_source = [&, &label = label](std::string_view resource, bool settled,
                                                LimitSource source) {
      if (settled) {
        limit_source.add(
            {{"target", label}, {"resource", resource}, {"source", headgate::to_string(source)}},
            true);
      }
    };
    add_source("cpu", is_settled(sample.limits.cpu_cores), sample.limits.cpu_source);
    add_source("memory", is_settled(sample.limits.memory_bytes), sample.limits.memory_source);
  }
  for (Family* family : {&level, &throttled, &pressure, &thresholds, &cores, &memory_limit,
                         &working_set, &usage, &limit_source}) {
    out.add(std::move(*family));
  }
}

constexpr std::array kModes{Mode::kEnforce, Mode::kObserve, Mode::kOff};

void add_hook(Family& hooks, std::string_view target, const HookStatus& hook) {
  const std::string prog_id = fmt::format("{}", hook.program_id);
  hooks.add({{"target", target},
             {"hook", hook.hook},
             {"where", hook.where},
             {"mode", hook.mode},
             {"variant", hook.variant},
             {"prog_id", prog_id}},
            true);
}

void add_targets(Families& out, std::span<const Named> targets, const AgentSnapshot& snapshot) {
  Family state = gauge("headgate_state", "State of the target: 1 for the one it is in.");
  Family mode = gauge("headgate_target_mode", "Mode of the target: 1 for the one in force.");
  Family present = gauge("headgate_target_present", "1 while the target's cgroup exists.");
  Family age = gauge("headgate_sample_age_seconds", "Age of the target's last sample.");
  Family lease =
      gauge("headgate_lease_valid",
            "1 while the lease of the target's policy runs; without it all is admitted.");
  Family waiting = gauge("headgate_waiting_attempts", "Deferred attempts that wait now.");
  Family restarts = counter("headgate_target_restarts_total",
                            "Ends of the process that serves the target, seen by the agent.");
  Family hooks = gauge("headgate_hook_info", "Hooks of the targets; always 1.");
  for (const auto& [target, label] : targets) {
    for (int s = 0; s < static_cast<int>(State::kCount); ++s) {
      const auto value = static_cast<State>(s);
      state.add({{"target", label}, {"state", headgate::to_string(value)}}, target.state == value);
    }
    for (const Mode value : kModes) {
      mode.add({{"target", label}, {"mode", headgate::to_string(value)}}, target.mode == value);
    }
    present.add({{"target", label}}, target.present);
    if (target.sample_age_s) {
      age.add({{"target", label}}, *target.sample_age_s);
    }
    lease.add({{"target", label}}, target.lease_valid);
    waiting.add({{"target", label}}, target.waiting);
    restarts.add({{"target", label}}, target.restarts);
    for (const HookStatus& hook : target.hooks) {
      add_hook(hooks, label, hook);
    }
  }
  for (const HookStatus& hook : snapshot.interfaces) {
    add_hook(hooks, "", hook);
  }
  for (Family* family : {&state, &mode, &present, &age, &lease, &waiting, &restarts, &hooks}) {
    out.add(std::move(*family));
  }
}

void add_errors(Families& out, const AgentSnapshot& snapshot) {
  std::map<std::pair<std::string, Unknown>, std::uint64_t> by_file;
  for (const TargetSnapshot& target : snapshot.targets) {
    for (const auto& [where, count] : target.sample_errors_by_file) {
      by_file[{file_name(where.first), where.second}] += count;
    }
  }
  Family samples = counter("headgate_sample_errors_total",
                           "Reads of kernel files that gave no number, by file and reason.");
  for (const auto& [where, count] : by_file) {
    samples.add({{"file", where.first}, {"reason", headgate::to_string(where.second)}}, count);
  }
  out.add(std::move(samples));

  Family attach = counter("headgate_attach_errors_total", "Attaches of hooks that failed.");
  for (const AttachErrors& errors : snapshot.attach_errors) {
    const std::string name = errno_name(errors.sys_errno);
    attach.add({{"hook", errors.hook}, {"errno", name}}, errors.count);
  }
  out.add(std::move(attach));
  Family left = counter("headgate_packets_left_total",
                        "Packets that tc and XDP left to the socket's gate without looking for "
                        "their endpoint.");
  for (std::size_t why = 0; why < snapshot.left_to_socket.size(); ++why) {
    left.add({{"reason", to_string(static_cast<headgate_left>(why))}},
             snapshot.left_to_socket[why]);
  }
  out.add(std::move(left));
  out.one("headgate_map_update_errors_total", "Policies that could not be stored in the kernel.",
          MetricType::Counter, static_cast<double>(snapshot.map_update_errors));
  out.one("headgate_orphans_removed_total", "Pins and slots of targets that are gone, removed.",
          MetricType::Counter, static_cast<double>(snapshot.orphans_removed));
}

ClientMetric::Histogram tick_histogram(std::span<const std::uint64_t> counts, double sum_s) {
  ClientMetric::Histogram histogram;
  constexpr double kFirstBoundSeconds = 62.5e-6;
  const std::size_t last = counts.size() - 1;
  std::uint64_t cumulative = 0;
  for (std::size_t i = 0; i <= last; ++i) {
    cumulative += counts[i];
    const double bound = i == last ? std::numeric_limits<double>::infinity()
                                   : kFirstBoundSeconds * static_cast<double>(1ULL << i);
    histogram.bucket.push_back({cumulative, bound});
  }
  histogram.sample_count = cumulative;
  histogram.sample_sum = sum_s;
  return histogram;
}

void add_agent(Families& out, const AgentSnapshot& snapshot) {
  Family build = gauge("headgate_build_info", "What is running; always 1.");
  build.add({{"version", snapshot.version},
             {"revision", snapshot.revision},
             {"compiler", snapshot.compiler}},
            true);
  out.add(std::move(build));

  Family mode = gauge("headgate_mode", "Global mode: 1 for the one in force.");
  for (const Mode value : kModes) {
    mode.add({{"mode", headgate::to_string(value)}}, snapshot.mode == value);
  }
  out.add(std::move(mode));
  out.one("headgate_kill_switch", "1 after `headgate off`: everything is admitted.",
          MetricType::Gauge, snapshot.killed_switch ? 1 : 0);
  out.one("headgate_standby", "1 while another agent on the node holds the lock.",
          MetricType::Gauge, snapshot.standby ? 1 : 0);
  out.one("headgate_pinned", "1 while the maps outlive the agent in bpffs.", MetricType::Gauge,
          snapshot.pinned ? 1 : 0);

  out.one("headgate_config_last_reload_successful", "1 if the last reload was taken over.",
          MetricType::Gauge, snapshot.config_last_reload_successful ? 1 : 0);
  if (snapshot.config_last_reload_success_unix_s > 0) {
    out.one("headgate_config_last_reload_success_timestamp_seconds",
            "When the configuration in force was taken over.", MetricType::Gauge,
            static_cast<double>(snapshot.config_last_reload_success_unix_s));
  }
  // A sample is a double: 48 bits are exact, 64 are not.
  out.one("headgate_config_hash", "Low 48 bits of the hash of the configuration in force.",
          MetricType::Gauge, static_cast<double>(snapshot.config_hash & 0xffff'ffff'ffffULL));

  Family ticks =
      Family("headgate_tick_duration_seconds", "Time spent in a tick.", MetricType::Histogram);
  ticks.add(tick_histogram(snapshot.tick_cost_histogram, snapshot.tick_cost_seconds_sum));
  out.add(std::move(ticks));
  Family lag = Family("headgate_tick_lag_seconds",
                      "How late a tick, and the sampling in it, began.", MetricType::Histogram);
  lag.add(tick_histogram(snapshot.tick_lag_histogram, snapshot.tick_lag_seconds_sum));
  out.add(std::move(lag));
  out.one("headgate_ticks_missed_total", "Ticks left out because the agent was late.",
          MetricType::Counter, static_cast<double>(snapshot.ticks_missed));

  out.one("process_cpu_seconds_total", "CPU time used by the agent.", MetricType::Counter,
          snapshot.agent_cpu_seconds);
  if (snapshot.agent_resident_bytes > 0) {
    out.one("process_resident_memory_bytes", "Resident memory of the agent.", MetricType::Gauge,
            static_cast<double>(snapshot.agent_resident_bytes));
  }
  if (snapshot.unix_ms > 0) {
    out.one("process_start_time_seconds", "When the agent started.", MetricType::Gauge,
            static_cast<double>(snapshot.unix_ms) * 1e-3 - seconds(snapshot.uptime));
  }
}

void add_pods(Families& out, const PodSourceStatus& pods) {
  Family info = gauge("headgate_pods_info", "Who tells of this node's pods; always 1.");
  info.add({{"source", pods.source}, {"where", pods.where}, {"node", pods.node_name}}, true);
  out.add(std::move(info));
  out.one("headgate_pods_synced", "1 since the whole list of pods was had.", MetricType::Gauge,
          pods.synced ? 1 : 0);
  out.one("headgate_pods_known", "Pods of this node that are known.", MetricType::Gauge,
          static_cast<double>(pods.pods));
  if (pods.heard_age_s) {
    out.one("headgate_pods_heard_age_seconds",
            "Since the source of pods has said anything that tells that the list is right.",
            MetricType::Gauge, *pods.heard_age_s);
  }
  struct Counted {
    std::string_view name;
    std::string_view help;
    std::uint64_t value;
  };
  for (const Counted& one :
       {Counted{"headgate_pods_lists_total", "Whole lists of pods asked for.", pods.lists},
        Counted{"headgate_pods_watches_total", "Watches of pods begun.", pods.watches},
        Counted{"headgate_pods_events_total", "Changes of pods told.", pods.events},
        Counted{"headgate_pods_expired_total",
                "Lists asked for again because the version was too old (410).", pods.expired},
        Counted{"headgate_pods_errors_total", "Requests for pods that failed.", pods.errors},
        Counted{"headgate_pods_received_bytes_total", "Bytes of lists and watches.",
                pods.received_bytes}}) {
    out.one(one.name, one.help, MetricType::Counter, static_cast<double>(one.value));
  }
}

void add_events(Families& out, const KubeEventsStatus& events) {
  Family total = counter(
      "headgate_kubernetes_events_total",
      "Events about pods: sent, merged into another, dropped; error: requests that failed.");
  total.add({{"result", "sent"}}, static_cast<double>(events.sent));
  total.add({{"result", "merged"}}, static_cast<double>(events.merged));
  total.add({{"result", "dropped"}}, static_cast<double>(events.dropped));
  total.add({{"result", "error"}}, static_cast<double>(events.errors));
  out.add(std::move(total));
  out.one("headgate_kubernetes_events_enabled",
          "0 after the API server has denied the right to create Events.", MetricType::Gauge,
          events.off.empty() ? 1 : 0);
}

}  // namespace

std::string to_metrics(const AgentSnapshot& snapshot) {
  const std::vector<Named> targets = name_targets(snapshot);
  Families out(pod_labels(targets));
  if (snapshot.pods) {
    add_pods(out, *snapshot.pods);
  }
  if (snapshot.events) {
    add_events(out, *snapshot.events);
  }
  add_agent(out, snapshot);
  add_targets(out, targets, snapshot);
  add_levels(out, targets);
  add_verdicts(out, targets);
  add_endpoints(out, targets);
  add_requests(out, targets);
  add_errors(out, snapshot);
  return out.serialize();
}

}  // namespace headgate::web
