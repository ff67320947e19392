// SPDX-License-Identifier: Apache-2.0
#include "agent/cli/replay.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iostream>
#include <iterator>
#include <memory>
#include <optional>
#include <ostream>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "headgate/units.h"

#include "agent/cli/decision_csv.h"
#include "agent/cli/failure.h"
#include "agent/cli/table.h"
#include "agent/config/schema.h"
#include "agent/sim/contender.h"
#include "agent/sim/strategy_guard.h"
#include "agent/strategies/registry.h"
#include "agent/trace.h"

namespace headgate {
namespace cli {
namespace {

using OrderedJson = nlohmann::ordered_json;

struct Transition {
  double at_s = 0;
  State from = State::kUnknown;
  State to = State::kUnknown;
  std::string why;
};

/// One strategy over the whole trace.
struct Replay {
  std::string strategy;
  std::vector<sim::TickRecord> ticks;
  std::vector<Transition> transitions;
  std::vector<double> admitted;  ///< of each endpoint: share of what was offered in the trace
  double shedding_s = 0;
};

Result<std::string> read_text(const std::string& file) {
  if (file == "-") {
    return std::string(std::istreambuf_iterator<char>(std::cin), {});
  }
  std::ifstream in(file, std::ios::binary);
  if (!in)
    return fail(fmt::format("cannot read {}: no such file, or no right to", printable(file)));
  std::string text(std::istreambuf_iterator<char>(in), {});
  if (in.bad()) return fail(fmt::format("cannot read {}", printable(file)));
  return text;
}

/// What the simulator's guard needs to know of the target.
sim::Scenario scenario_of(const Trace& trace) {
  sim::Scenario out;
  out.name = trace.header.target;
  for (const TraceHeader::Endpoint& endpoint : trace.header.endpoints) {
    sim::EndpointLoad load;
    load.name = endpoint.name;
    load.criticality = endpoint.criticality;
    load.floor = endpoint.floor;
    load.tcp = endpoint.tcp;
    load.requests = endpoint.requests;
    load.refused_by_server = endpoint.refused_by_server;
    out.endpoints.push_back(std::move(load));
  }
  std::vector<double> intervals;
  for (const TraceTick& tick : trace.ticks) intervals.push_back(seconds(tick.signals.interval));
  const auto middle = intervals.begin() + static_cast<std::ptrdiff_t>(intervals.size() / 2);
  std::nth_element(intervals.begin(), middle, intervals.end());
  if (*middle > 0) out.tick_s = *middle;
  return out;
}

sim::StrategyGuard::Options guard_options(const TraceHeader& header, double target) {
  sim::StrategyGuard::Options options;
  options.target = target;
  options.enforces_budget = header.bucket_enforced;
  options.memory_shed = header.memory_shed;
  options.memory_open = header.memory_open;
  options.memory_close = header.memory_close;
  return options;
}

/// The attempts of one tick, evenly spread over it, before the gate with the policy in force.
void play(const TraceTick& tick, sim::Guard& guard, std::vector<double>& admitted) {
  struct Due {
    double at_s;
    std::uint32_t endpoint;
    double size_kb;
  };
  std::vector<Due> due;
  std::vector<double> in_flight;
  const double interval_s = seconds(tick.signals.interval);
  for (std::size_t i = 0; i < tick.endpoints.size(); ++i) {
    const EndpointActivity& a = tick.endpoints[i];
    const auto came = static_cast<double>(a.offered);
    const double size_kb = a.sizes_known && a.offered > 0
                               ? static_cast<double>(a.offered_bytes) / kBytesPerKb / came
                               : 0;
    for (std::uint64_t n = 0; n < a.offered; ++n) {
      due.push_back({tick.at_s - interval_s * (1 - (static_cast<double>(n) + 0.5) / came),
                     static_cast<std::uint32_t>(i), size_kb});
    }
    in_flight.push_back(static_cast<double>(a.in_flight));
  }
  std::stable_sort(due.begin(), due.end(),
                   [](const Due& a, const Due& b) { return a.at_s < b.at_s; });
  guard.see_load({in_flight, static_cast<double>(tick.live_bytes)});
  for (const Due& one : due) {
    if (guard.admits({one.endpoint, one.size_kb, one.at_s})) admitted[one.endpoint] += 1;
  }
}

Replay replay(std::string name, sim::Guard& guard, const Trace& trace) {
  Replay out;
  out.strategy = std::move(name);
  out.admitted.assign(trace.header.endpoints.size(), 0.0);
  std::vector<double> offered(out.admitted.size(), 0.0);
  State before = State::kUnknown;
  for (const TraceTick& tick : trace.ticks) {
    sim::TickRecord record;
    play(tick, guard, out.admitted);
    record.observation.at_s = tick.at_s;
    record.observation.tick_s = seconds(tick.signals.interval);
    record.observation.signals = tick.signals;
    record.observation.endpoints = tick.endpoints;
    record.observation.restarted = tick.restarted;
    record.observation.live_bytes_known = tick.live_bytes_known;
    record.observation.live_bytes = tick.live_bytes;
    record.observation.largest_request_bytes = tick.largest_request_bytes;
    guard.observe(record.observation, tick.at_s);
    record.decision = *guard.decision();
    record.internals = sim::owned(guard.internals());
    if (record.decision.state != before) {
      out.transitions.push_back(
          {tick.at_s, before, record.decision.state, std::string(record.decision.why)});
      before = record.decision.state;
    }
    if (before == State::kShedding || before == State::kOpen) {
      out.shedding_s += seconds(tick.signals.interval);
    }
    for (std::size_t i = 0; i < offered.size(); ++i) {
      offered[i] += static_cast<double>(tick.endpoints[i].offered);
    }
    out.ticks.push_back(std::move(record));
  }
  for (std::size_t i = 0; i < offered.size(); ++i) {
    out.admitted[i] = offered[i] > 0 ? out.admitted[i] / offered[i] : 1.0;
  }
  return out;
}

/// The strategies asked for; none = that of the trace, with its parameters.
Result<std::vector<sim::Contender>> contenders(const ReplayOptions& options, const Trace& trace) {
  const double target = options.target.value_or(trace.header.use_target);
  if (options.strategies.empty() && options.params.empty()) {
    const StrategyInfo* info = find_strategy(trace.header.strategy);
    if (info == nullptr || !info->built) {
      return fail(
          fmt::format("the trace was made with strategy '{}', which this headgate does not "
                      "have: choose one with --strategy",
                      printable(trace.header.strategy)));
    }
    Params params = trace.header.params;
    if (options.spec_profile && info->name == "adaptive") params.words["profile"] = "spec";
    const auto guard = guard_options(trace.header, target);
    return std::vector{sim::Contender{
        std::string(info->name), [info, params, guard](const sim::Scenario& scenario) {
          return std::make_unique<sim::StrategyGuard>(info->make(params), scenario, guard);
        }}};
  }
  sim::ContenderOptions wanted;
  wanted.target = target;
  wanted.spec_profile = options.spec_profile;
  wanted.params = options.params;
  wanted.guard = guard_options(trace.header, target);
  const std::vector<std::string> names =
      options.strategies.empty() ? std::vector{trace.header.strategy} : options.strategies;
  return sim::find_contenders(names, wanted);
}

std::string percent(double share) { return fmt::format("{:.1f} %", 100 * share); }

void print_table(const Trace& trace, const std::vector<Replay>& replays, std::ostream& out) {
  const double length_s = trace.ticks.back().at_s - trace.ticks.front().at_s;
  out << fmt::format(
      "{} ticks, {:.1f} s{}\n\n", trace.ticks.size(), length_s,
      trace.header.target.empty() ? std::string() : " of target " + printable(trace.header.target));
  Table table({{"STRATEGY"}, {"SHEDDING", true}, {"CHANGES", true}, {"ADMITTED"}});
  for (const Replay& one : replays) {
    std::string admitted;
    for (std::size_t i = 0; i < one.admitted.size(); ++i) {
      admitted += fmt::format("{}{} {}", i == 0 ? "" : ", ",
                              printable(trace.header.endpoints[i].name), percent(one.admitted[i]));
    }
    table.add({{one.strategy},
               {fmt::format("{:.1f} s", one.shedding_s)},
               {fmt::format("{}", one.transitions.size() - 1)},
               {admitted}});
  }
  out << table.render(0, false);
  for (const Replay& one : replays) {
    out << '\n' << one.strategy << '\n';
    for (const Transition& t : one.transitions) {
      out << fmt::format("  {:>9.1f} s  {} -> {}: {}\n", t.at_s, to_string(t.from), to_string(t.to),
                         t.why);
    }
  }
}

void print_json(const Trace& trace, const std::vector<Replay>& replays, std::ostream& out) {
  OrderedJson json;
  json["schema"] = 1;
  json["target"] = trace.header.target;
  json["ticks"] = trace.ticks.size();
  json["replays"] = OrderedJson::array();
  for (const Replay& one : replays) {
    OrderedJson row;
    row["strategy"] = one.strategy;
    row["shedding_s"] = one.shedding_s;
    row["admitted_ratio"] = one.admitted;
    row["transitions"] = OrderedJson::array();
    for (const Transition& t : one.transitions) {
      row["transitions"].push_back(
          {{"t", t.at_s}, {"from", to_string(t.from)}, {"to", to_string(t.to)}, {"why", t.why}});
    }
    row["decisions"] = OrderedJson::array();
    for (const sim::TickRecord& tick : one.ticks) {
      OrderedJson decision;
      decision["t"] = tick.observation.at_s;
      decision["state"] = to_string(tick.decision.state);
      decision["endpoints"] = OrderedJson::array();
      for (std::size_t i = 0; i < tick.decision.endpoints.size(); ++i) {
        const EndpointDecision& e = tick.decision.endpoints[i];
        decision["endpoints"].push_back({{"name", trace.header.endpoints[i].name},
                                         {"admit", admitted_share(tick, i)},
                                         {"charge_request_s", e.charge_request_s},
                                         {"charge_kb_s", e.charge_kb_s},
                                         {"depth_s", e.depth_s},
                                         {"connections_max", e.connections_max},
                                         {"rate_per_s", e.rate_per_s}});
      }
      for (const auto& [name, value] : tick.internals) {
        decision["internals"][name] = value;
      }
      row["decisions"].push_back(std::move(decision));
    }
    json["replays"].push_back(std::move(row));
  }
  out << json.dump(-1, ' ', false, OrderedJson::error_handler_t::replace) << '\n';
}

}  // namespace
}  // namespace cli

int run_replay(const ReplayOptions& options, std::ostream& out, std::ostream& err) {
  const bool json = options.output == ReplayOptions::Output::kJson;
  const auto failed = [&](const std::string& message, int status) {
    return cli::failed("replay", message, json, out, err, status);
  };
  const auto text = cli::read_text(options.file);
  if (!text) return failed(text.error().message, kExitFailure);
  const auto trace = read_trace(*text, options.file == "-" ? "stdin" : options.file);
  if (!trace) return failed(trace.error().message, kExitFailure);
  const auto contenders = cli::contenders(options, *trace);
  if (!contenders) return failed(contenders.error().message, kExitUsage);
  if (options.output == ReplayOptions::Output::kCsv && contenders->size() != 1) {
    return failed("--csv prints one strategy: name one with --strategy", kExitUsage);
  }

  const sim::Scenario scenario = cli::scenario_of(*trace);
  std::vector<cli::Replay> replays;
  for (const sim::Contender& contender : *contenders) {
    const auto guard = contender.make(scenario);
    if (guard->decision() == nullptr) {
      return failed(
          fmt::format("{} decides nothing, so there is nothing to replay: name a strategy",
                      contender.name),
          kExitUsage);
    }
    replays.push_back(cli::replay(contender.name, *guard, *trace));
  }
  switch (options.output) {
    case ReplayOptions::Output::kCsv:
      cli::print_decision_header(trace->header.endpoints.size(), out);
      for (const sim::TickRecord& tick : replays.front().ticks) cli::print_decision(tick, out);
      break;
    case ReplayOptions::Output::kJson: cli::print_json(*trace, replays, out); break;
    case ReplayOptions::Output::kTable: cli::print_table(*trace, replays, out); break;
  }
  return kExitOk;
}

}  // namespace headgate
