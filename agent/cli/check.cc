// SPDX-License-Identifier: Apache-2.0
#include "agent/cli/check.h"

#include <algorithm>
#include <map>
#include <ostream>
#include <sstream>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "agent/cli/failure.h"
#include "agent/cli/table.h"
#include "agent/config/senders.h"
#include "agent/web/control_socket.h"

namespace headgate {
namespace cli {
namespace {

using json = nlohmann::ordered_json;

std::string describe(const Match& match) {
  struct Describe {
    std::string operator()(const MatchPods& m) const {
      std::string which = m.name.empty() ? m.uid : m.name;
      if (!m.selector.empty()) {
        which += (which.empty() ? "" : " ") + m.selector;
      }
      return fmt::format("pods {} in {}{}", which.empty() ? "(all)" : which,
                         m.namespaces.empty() ? "every namespace"
                                              : fmt::format("{}", fmt::join(m.namespaces, ", ")),
                         m.container.empty() ? "" : ", container " + m.container);
    }
    std::string operator()(const MatchUnit& m) const { return "unit " + m.unit; }
    std::string operator()(const MatchCgroup& m) const { return "cgroup " + m.path; }
    std::string operator()(const MatchProcess& m) const { return "processes of " + m.exe; }
  };
  return std::visit(Describe{}, match);
}

std::string refusal(const RefuseConfig& refuse) {
  if (refuse.form != RefuseForm::kDefer) {
    return std::string(to_string(refuse.form));
  }
  return fmt::format("defer {:g}s", seconds(refuse.defer_deadline));
}

json problem_json(const Problem& p) {
  return {{"severity", p.severity == Problem::Severity::kError ? "error" : "warning"},
          {"file", p.file},
          {"line", p.place.line},
          {"column", p.place.column},
          {"key", p.key},
          {"value", p.value},
          {"message", p.message},
          {"nearest", p.nearest.empty() ? json(nullptr) : json(p.nearest)}};
}

json endpoint_json(const EndpointConfig& e) {
  json loses = json::array();
  for (const SenderWarning& warning : sender_warnings(e.protocol, e.refuse)) {
    loses.push_back(
        {{"sender", warning.sender}, {"effect", warning.effect}, {"remedy", warning.remedy}});
  }
  json routes = json::array();
  for (const RouteConfig& route : e.routes) {
    routes.push_back({{"name", route.name},
                      {"path", route.path},
                      {"unary", e.protocol == Protocol::kGrpc ? json(route.unary) : json(nullptr)},
                      {"criticality", to_string(route.criticality)},
                      {"floor", route.floor.value()},
                      {"line", route.place.line}});
  }
  return {{"name", e.name},
          {"port", e.port},
          {"protocol", to_string(e.protocol)},
          {"criticality", to_string(e.criticality)},
          {"floor", e.floor.value()},
          {"refuse", to_string(e.refuse.form)},
          {"line", e.place.line},
          {"routes", std::move(routes)},
          {"senders_that_lose", std::move(loses)}};
}

json target_json(const Config& config, const TargetConfig& t) {
  json endpoints = json::array();
  for (const EndpointConfig& e : t.endpoints) {
    endpoints.push_back(endpoint_json(e));
  }
  return {{"name", t.name},
          {"match", describe(t.match)},
          {"mode", to_string(effective_mode(config, t))},
          {"strategy", t.strategy.name},
          {"line", t.place.line},
          {"endpoints", std::move(endpoints)}};
}

/// The same warning for several endpoints is said once, with all of them.
std::string senders_text(const Config& config) {
  std::vector<std::pair<std::string, std::vector<std::string>>> by_warning;
  for (const TargetConfig& target : config.targets) {
    for (const EndpointConfig& e : target.endpoints) {
      for (const SenderWarning& warning : sender_warnings(e.protocol, e.refuse)) {
        const std::string text = to_string(warning);
        auto it = std::find_if(by_warning.begin(), by_warning.end(),
                               [&](const auto& entry) { return entry.first == text; });
        if (it == by_warning.end()) {
          by_warning.push_back({text, {}});
          it = std::prev(by_warning.end());
        }
        it->second.push_back(fmt::format("{}/{}", target.name, e.name));
      }
    }
  }
  if (by_warning.empty()) {
    return {};
  }
  std::string text = "\nStock senders that lose data when they are refused so:\n";
  for (const auto& [warning, endpoints] : by_warning) {
    text += fmt::format("  {}\n    at {}\n", warning, fmt::join(endpoints, ", "));
  }
  return text;
}

/// A route stands below its endpoint.
std::vector<Table::Cell> route_row(const EndpointConfig& e, const RouteConfig& route) {
  const bool refusable =
      refuses_requests(e.refuse.form) && (e.protocol != Protocol::kGrpc || route.unary);
  std::vector<Table::Cell> row(9);
  row[4].text = "  " + route.name;
  row[5].text = route.path;
  row[6].text = to_string(route.criticality);
  row[7].text = fmt::format("{:g}", route.floor.value());
  row[8].text = refusable ? std::string(to_string(e.refuse.form)) : "counted only";
  return row;
}

}  // namespace

std::string check_text(const LoadedConfig& loaded, const std::string& file) {
  std::string text;
  std::size_t errors = 0;
  for (const Problem& problem : loaded.problems) {
    text += to_string(problem) + '\n';
    errors += problem.severity == Problem::Severity::kError ? 1U : 0U;
  }
  if (!loaded.valid()) {
    return text +
           fmt::format("{}: not valid: {} {}\n", file, errors, errors == 1 ? "error" : "errors");
  }
  const Config& config = loaded.config;
  text += fmt::format("{}: valid; mode {}, {} {}\n\n", file, to_string(config.mode),
                      config.targets.size(), config.targets.size() == 1 ? "target" : "targets");
  Table table({{"TARGET"},
               {"MATCH"},
               {"MODE"},
               {"STRATEGY"},
               {"ENDPOINT"},
               {"PORT"},
               {"CLASS"},
               {"FLOOR", true},
               {"REFUSE"}});
  for (const TargetConfig& target : config.targets) {
    bool first = true;
    for (const EndpointConfig& e : target.endpoints) {
      std::vector<Table::Cell> row(9);
      if (first) {
        row[0].text = target.name;
        row[1].text = describe(target.match);
        row[2].text = to_string(effective_mode(config, target));
        row[3].text = target.strategy.name;
      }
      first = false;
      row[4].text = e.name;
      row[5].text = fmt::format("{}/{}", e.port, to_string(e.protocol));
      row[6].text = to_string(e.criticality);
      row[7].text = fmt::format("{:g}", e.floor.value());
      row[8].text = refusal(e.refuse);
      table.add(std::move(row));
      for (const RouteConfig& route : e.routes) {
        table.add(route_row(e, route));
      }
    }
  }
  return text + table.render(0, false) + senders_text(config);
}

std::string check_json(const LoadedConfig& loaded, const std::string* difference) {
  json problems = json::array();
  for (const Problem& problem : loaded.problems) {
    problems.push_back(problem_json(problem));
  }
  json targets = json::array();
  for (const TargetConfig& target : loaded.config.targets) {
    targets.push_back(target_json(loaded.config, target));
  }
  json object{{"schema", 1},
              {"valid", loaded.valid()},
              {"problems", std::move(problems)},
              {"targets", std::move(targets)}};
  if (difference != nullptr) {
    json lines = json::array();
    std::istringstream text(*difference);
    for (std::string line; std::getline(text, line);) {
      lines.push_back(line);
    }
    object["diff"] = std::move(lines);
  }
  return object.dump(-1, ' ', false, json::error_handler_t::replace);
}

}  // namespace cli

namespace {

/// What would change in the running agent.
Result<std::string> difference_to_agent(const CheckOptions& options, const Config& config,
                                        std::span<const StrategyInfo> strategies) {
  const auto yaml = ControlClient(options.socket_path).config();
  if (!yaml) {
    return tl::unexpected<Error>(yaml.error());
  }
  const LoadedConfig running = load_config(*yaml, "the running agent", strategies);
  if (!running.valid()) {
    return fail("the configuration of the running agent cannot be read by this version: " +
                to_string(running.problems.front()));
  }
  return diff(running.config, config);
}

}  // namespace

int run_check(const CheckOptions& options, std::span<const StrategyInfo> strategies,
              std::ostream& out, std::ostream& err) {
  if (options.schema) {
    out << json_schema(strategies) << '\n';
    return kExitOk;
  }
  const LoadedConfig loaded = load_config_file(options.config_path, strategies);
  std::string difference;
  const bool compare = options.diff && loaded.valid();
  if (compare) {
    auto found = difference_to_agent(options, loaded.config, strategies);
    if (!found) {
      return cli::failed("check --diff", found.error().message, options.json, out, err);
    }
    difference = std::move(*found);
  }
  if (options.json) {
    out << cli::check_json(loaded, compare ? &difference : nullptr) << '\n';
  } else {
    out << cli::check_text(loaded, options.config_path);
    if (compare) {
      out << (difference.empty() ? "\nThe running agent has the same configuration.\n"
                                 : "\nIn the running agent this would change:\n" + difference);
    }
  }
  return loaded.valid() ? kExitOk : kExitUsage;
}

}  // namespace headgate
