// SPDX-License-Identifier: Apache-2.0
// Gathers what is known of one target. How it is printed: explain_print.cc.
#include "agent/cli/explain.h"

#include <linux/magic.h>
#include <sys/statfs.h>

#include <algorithm>
#include <optional>
#include <ostream>
#include <thread>

#include <fmt/format.h>

#include "agent/cgroup/hierarchy.h"
#include "agent/cli/failure.h"
#include "agent/cli/json_read.h"
#include "agent/cli/pods.h"
#include "agent/config/load.h"
#include "agent/targets/locate.h"
#include "agent/targets/locate_pods.h"
#include "agent/web/control_socket.h"

namespace headgate {
namespace {

using cli::Json;

constexpr auto kBetweenSamples = std::chrono::seconds(1);

/// Numbers in a copied tree do not move: a second sample would only cost a second.
bool is_live(const std::string& directory) {
  struct statfs found {};
  return statfs(directory.c_str(), &found) == 0 &&
         (found.f_type == CGROUP2_SUPER_MAGIC || found.f_type == CGROUP_SUPER_MAGIC);
}

/// The running agent's view, if one answers.
struct Agent {
  Json state;
  std::string problem;

  /// The target whose `key` has this value.
  [[nodiscard]] const Json* find(const char* key, const std::string& value) const {
    const Json& targets = cli::list_of(state, "targets");
    const auto it = std::find_if(targets.begin(), targets.end(), [&](const Json& target) {
      return cli::text_of(target, key) == value;
    });
    return it == targets.end() ? nullptr : &*it;
  }
};

Agent ask_agent(const std::string& socket_path) {
  Agent agent;
  const auto text = ControlClient(socket_path).state();
  if (!text) {
    agent.problem = text.error().message;
    return agent;
  }
  agent.state = cli::parse_json(*text);
  if (!agent.state.is_object()) {
    agent.problem = "the answer of the agent is not its state";
  }
  return agent;
}

bool says_where(std::string_view target) { return target.find(':') != std::string_view::npos; }

struct Found {
  Match match;
  CapacityConfig capacity;
  std::vector<PodPort> ports;
};

/// A configured name. The file is read even where it has errors elsewhere: a target that was read
/// is worth explaining.
Result<Found> find_configured(const ExplainOptions& options,
                              std::span<const StrategyInfo> strategies) {
  const LoadedConfig loaded = load_config_file(options.config_path, strategies);
  std::string names;
  for (const TargetConfig& target : loaded.config.targets) {
    if (target.name == options.target) {
      Found found{target.match, target.capacity, {}};
      for (const EndpointConfig& endpoint : target.endpoints) {
        found.ports.push_back({endpoint.protocol == Protocol::kUdp, endpoint.port});
      }
      return found;
    }
    names += (names.empty() ? "" : ", ") + target.name;
  }
  if (names.empty() && !loaded.problems.empty()) {
    return fail(fmt::format(
        "no target is named '{}': {}; without a configuration say where to look: cgroup:/PATH, "
        "unit:NAME, pid:NUMBER or pod:NAMESPACE/NAME",
        options.target, to_string(loaded.problems.front())));
  }
  return fail(
      fmt::format("no target is named '{}' in {} (there are: {}); or say where to look: "
                  "cgroup:/PATH, unit:NAME, pid:NUMBER or pod:NAMESPACE/NAME",
                  options.target, options.config_path, names.empty() ? "none" : names));
}

/// What an agent without a file (`run --protect`) or with another one protects under this name;
/// nothing where it does not know the name. Errors: it knows it, and the target is not there.
Result<std::optional<Found>> find_protected(const std::string& name, const Agent& agent) {
  const Json* target = agent.find("name", name);
  if (target == nullptr) {
    return std::nullopt;
  }
  const std::string path = cli::text_of(*target, "cgroup_path");
  if (path.empty()) {
    return fail(
        fmt::format("the running agent protects '{}' (mode {}, strategy {}), but it is not "
                    "there now: {}",
                    name, cli::text_of(*target, "mode"), cli::text_of(*target, "strategy"),
                    cli::text_of(*target, "absent_why")));
  }
  Found found{MatchCgroup{path}, {}, {}};
  const Json& cpu = cli::member(*target, "cpu");
  if (cli::text_of(cpu, "source") == "config") {
    found.capacity.cpu_cores = cli::number_of(cpu, "effective_cores");
  }
  const Json& memory = cli::member(*target, "memory");
  if (cli::text_of(memory, "source") == "config") {
    found.capacity.memory_bytes = cli::count_of(memory, "limit_bytes");
  }
  return found;
}

Result<Found> find_target(const ExplainOptions& options, std::span<const StrategyInfo> strategies,
                          const Locator& locator, const Agent& agent) {
  if (!says_where(options.target)) {
    auto configured = find_configured(options, strategies);
    if (!configured) {
      auto found = find_protected(options.target, agent);
      if (!found) {
        return tl::unexpected<Error>(found.error());
      }
      if (*found) {
        return std::move(**found);
      }
    }
    return configured;
  }
  auto match = parse_target(options.target, locator);
  if (!match) {
    return tl::unexpected<Error>(match.error());
  }
  return Found{std::move(*match), {}, {}};
}

/// Everything that the match means now. Pods are asked for at the API server; where that cannot be
/// had, a UID is still found.
Result<std::vector<Located>> locate(const ExplainOptions& options, const Locator& locator,
                                    const Found& found) {
  const auto* match = std::get_if<MatchPods>(&found.match);
  if (match == nullptr) {
    return locator.locate(found.match);
  }
  const auto listed = list_pods(options.kubernetes);
  const PodsPtr pods = listed ? *listed : nullptr;
  PodLocator pod_locator(locator);
  PodsFound all = pod_locator.find(
      {*match, found.ports, pods.get(), listed ? "" : listed.error().message, {}, SIZE_MAX},
      std::chrono::steady_clock::now());
  if (all.fresh.empty()) {
    return fail(all.missing);
  }
  return std::move(all.fresh);
}

void add_paths(const Hierarchy& hierarchy, const std::string& cgroup_path,
               cli::Explanation& explanation) {
  const auto add = [&](const char* name, const Hierarchy::Mount& mount) {
    if (mount.version != CgroupVersion::kNone) {
      explanation.paths.emplace_back(name, mount.directory(cgroup_path));
    }
  };
  add("cpu", hierarchy.of(Controller::kCpu));
  add("memory", hierarchy.of(Controller::kMemory));
  add("cpuset", hierarchy.of(Controller::kCpuset));
  add("psi", hierarchy.unified_mount);
}

Result<cli::Explanation> explain_one(const ExplainOptions& options, const Hierarchy& hierarchy,
                                     const Located& located, const CapacityConfig& capacity,
                                     const Agent& agent) {
  auto sampler =
      CgroupSampler::open(hierarchy, located.cgroup_path, capacity_of(capacity, located));
  if (!sampler) {
    return tl::unexpected<Error>(sampler.error());
  }
  cli::Explanation explanation;
  explanation.target = options.target;
  if (located.pod && !located.pod->name.empty()) {
    explanation.target = fmt::format("pod:{}/{}/{}", located.pod->namespace_name, located.pod->name,
                                     located.pod->container);
  }
  explanation.cgroup_path = located.cgroup_path;
  explanation.cgroup_mode = to_string(hierarchy.mode);
  explanation.warnings = located.warnings;
  add_paths(hierarchy, located.cgroup_path, explanation);

  const Sample first = (*sampler)->sample(std::chrono::steady_clock::now());
  explanation.sample = first;
  const bool live = std::any_of(explanation.paths.begin(), explanation.paths.end(),
                                [](const auto& path) { return is_live(path.second); });
  if (live) {
    std::this_thread::sleep_for(kBetweenSamples);
    explanation.sample = (*sampler)->sample(std::chrono::steady_clock::now());
  }
  cli::measure(first, explanation.sample, explanation);
  explanation.files = (*sampler)->read_all_raw();
  if (const Json* target = agent.find("cgroup_path", located.cgroup_path)) {
    explanation.agent_target = cli::to_text(*target);
  } else {
    explanation.agent_problem =
        agent.problem.empty() ? "the running agent does not protect this cgroup" : agent.problem;
  }
  return explanation;
}

/// Difference of two readings of a counter, as a rate of `per`.
Measured<double> rate(const Measured<std::uint64_t>& before, const Measured<std::uint64_t>& after,
                      double per) {
  if (!after.known()) return after.reason;
  if (!before.known()) return before.reason;
  if (*after < *before) return Unknown::kWentBack;
  if (per <= 0) return Unknown::kZeroInterval;
  return static_cast<double>(*after - *before) / per;
}

}  // namespace

namespace cli {

void measure(const Sample& before, const Sample& after, Explanation& explanation) {
  if (before.at == after.at) {
    const auto unknown = [](const Measured<std::uint64_t>& value) {
      return value.known() ? Unknown::kFirstSample : value.reason;
    };
    explanation.usage_cores = unknown(after.cpu_usage_ns);
    explanation.throttled_ratio = unknown(after.cpu_throttled_periods);
    explanation.psi_some_ratio = unknown(after.cpu_pressure_some_us);
    return;
  }
  const double interval_ns = seconds(after.at - before.at) * 1e9;
  explanation.usage_cores = rate(before.cpu_usage_ns, after.cpu_usage_ns, interval_ns);
  explanation.psi_some_ratio =
      rate(before.cpu_pressure_some_us, after.cpu_pressure_some_us, interval_ns * 1e-3);
  const Measured<double> periods = rate(before.cpu_periods, after.cpu_periods, 1);
  if (!periods.known()) {
    explanation.throttled_ratio = periods.reason;
  } else if (*periods == 0) {
    explanation.throttled_ratio = Measured<double>(0.0);  // idle: no period began
  } else {
    explanation.throttled_ratio =
        rate(before.cpu_throttled_periods, after.cpu_throttled_periods, *periods);
  }
}

}  // namespace cli

int run_explain(const ExplainOptions& options, std::span<const StrategyInfo> strategies,
                std::ostream& out, std::ostream& err) {
  const auto failed = [&](const Error& error) {
    return cli::failed("explain", error.message, options.json, out, err);
  };
  auto hierarchy = Hierarchy::detect(options.cgroup_root, options.proc_root);
  if (!hierarchy) {
    return failed(hierarchy.error());
  }
  const Locator locator(*hierarchy, options.proc_root);
  const Agent agent = ask_agent(options.socket_path);
  const auto found = find_target(options, strategies, locator, agent);
  if (!found) {
    return failed(found.error());
  }
  const auto located = locate(options, locator, *found);
  if (!located) {
    return failed(located.error());
  }
  bool first = true;
  for (const Located& one : *located) {
    const auto explanation = explain_one(options, *hierarchy, one, found->capacity, agent);
    if (!explanation) {
      return failed(explanation.error());
    }
    if (options.json) {
      out << cli::explain_json(*explanation) << '\n';
    } else {
      out << (first ? "" : "\n") << cli::explain_text(*explanation);
    }
    first = false;
  }
  return kExitOk;
}

}  // namespace headgate
