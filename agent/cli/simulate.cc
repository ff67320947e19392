// SPDX-License-Identifier: Apache-2.0
#include "agent/cli/simulate.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <optional>
#include <ostream>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "agent/cli/decision_csv.h"
#include "agent/cli/table.h"
#include "agent/config/quantity.h"
#include "agent/config/schema.h"
#include "agent/sim/contender.h"
#include "agent/sim/plot.h"
#include "agent/sim/scenario.h"
#include "agent/sim/scenario_file.h"
#include "agent/sim/simulate.h"
#include "agent/sim/summary.h"

namespace headgate {
namespace cli {
namespace {

using sim::Contender;
using sim::Scenario;
using json = nlohmann::ordered_json;

/// A chart of more rows than this is no chart.
constexpr std::size_t kMostRows = 64;

class Simulate {
 public:
  Simulate(const SimulateOptions& options, std::ostream& out, std::ostream& err)
      : options_(options), out_(out), err_(err) {}

  int run();

 private:
  int list();
  int fuzz();
  int table();
  int trace();
  int plot();
  bool choose_scenarios();
  bool choose_contenders();
  /// One line for a person; with --json also an object, so that a reader never meets nothing.
  int failed(std::string_view message, int status) {
    err_ << "headgate simulate: " << message << '\n';
    if (prints(SimulateOptions::Output::kJson)) {
      out_ << json{{"schema", 1}, {"error", message}}.dump() << '\n';
    }
    return status;
  }
  int usage(std::string_view message) { return failed(message, kExitUsage); }
  [[nodiscard]] bool prints(SimulateOptions::Output output) const {
    return options_.output == output;
  }

  const SimulateOptions& options_;
  std::ostream& out_;
  std::ostream& err_;
  std::vector<Scenario> scenarios_;
  std::vector<Contender> contenders_;
};

// ---------------------------------------------------------------- what is wanted

bool Simulate::choose_scenarios() {
  for (const std::string& file : options_.files) {
    sim::LoadedScenario loaded = sim::load_scenario_file(file);
    for (const Problem& problem : loaded.problems) err_ << to_string(problem) << '\n';
    if (!loaded.valid()) {
      usage(fmt::format("{} is no valid scenario; `headgate simulate --list` shows the keys",
                        printable(file)));
      return false;
    }
    scenarios_.push_back(std::move(loaded.scenario));
  }
  std::vector<std::string> names = options_.scenarios;
  if (names.empty() && options_.files.empty()) names.emplace_back("all");
  for (const std::string& name : names) {
    if (name == "all") {
      scenarios_.insert(scenarios_.end(), sim::named_scenarios().begin(),
                        sim::named_scenarios().end());
      continue;
    }
    const Scenario* found = sim::find_scenario(name);
    if (found == nullptr) {
      std::vector<std::string_view> known;
      for (const Scenario& s : sim::named_scenarios()) known.emplace_back(s.name);
      usage(
          fmt::format("unknown scenario '{}', the nearest is '{}'; `headgate simulate --list` "
                      "shows all",
                      printable(name), nearest_of(name, known).name));
      return false;
    }
    scenarios_.push_back(*found);
  }
  return true;
}

bool Simulate::choose_contenders() {
  sim::ContenderOptions wanted;
  wanted.target = options_.target;
  wanted.spec_profile = options_.spec_profile;
  wanted.params = options_.params;
  auto found = sim::find_contenders(options_.strategies, wanted);
  if (!found) {
    usage(found.error().message);
    return false;
  }
  contenders_ = std::move(*found);
  return true;
}

int Simulate::run() {
  if (options_.list) return list();
  if (!choose_contenders()) return kExitUsage;
  if (options_.fuzz > 0) return fuzz();
  if (!choose_scenarios()) return kExitUsage;
  if (!options_.plot.empty()) return plot();
  const bool one_run = scenarios_.size() == 1 && contenders_.size() == 1 && options_.seeds == 1;
  if (prints(SimulateOptions::Output::kCsv) && one_run) return trace();
  return table();
}

// ---------------------------------------------------------------- --list

int Simulate::list() {
  if (prints(SimulateOptions::Output::kJson)) {
    json scenarios = json::array();
    for (const Scenario& s : sim::named_scenarios()) {
      scenarios.push_back({{"name", s.name}, {"doc", s.doc}, {"duration_s", s.duration_s}});
    }
    json strategies = json::array();
    for (const sim::ContenderDoc& doc : sim::contender_docs()) {
      strategies.push_back({{"name", doc.name}, {"doc", doc.doc}});
    }
    out_ << json{{"schema", 1}, {"scenarios", scenarios}, {"strategies", strategies}}.dump(2)
         << '\n';
    return kExitOk;
  }
  out_ << "Scenarios:\n";
  for (const Scenario& s : sim::named_scenarios()) {
    out_ << fmt::format("  {:<14}{}\n", s.name, s.doc);
  }
  out_ << "\nStrategies:\n";
  for (const sim::ContenderDoc& doc : sim::contender_docs()) {
    out_ << fmt::format("  {:<20}{}\n", doc.name, doc.doc);
  }
  out_ << "\n" << sim::scenario_file_help();
  return kExitOk;
}

// ---------------------------------------------------------------- metrics

/// One column of every form of output, so that they cannot differ.
struct Column {
  std::string_view title;  ///< of the table
  std::string_view key;    ///< of CSV and JSON
  int digits;
  double (*value)(const sim::Summary&);
};
constexpr std::array kColumns{
    Column{"goodput", "goodput", 3, [](const sim::Summary& s) { return s.mean.goodput; }},
    Column{"min", "goodput_min", 3, [](const sim::Summary& s) { return s.goodput_min; }},
    Column{"useful cpu-s", "useful_cpu_s", 1,
           [](const sim::Summary& s) { return s.mean.useful_work_s; }},
    Column{"p99 ms", "p99_delay_ms", 1, [](const sim::Summary& s) { return s.mean.p99_delay_ms; }},
    Column{"p50 ms", "p50_delay_ms", 1, [](const sim::Summary& s) { return s.mean.p50_delay_ms; }},
    Column{"peak cpu-s", "peak_backlog_cpu_s", 3,
           [](const sim::Summary& s) { return s.mean.peak_backlog_s; }},
    Column{"danger s", "danger_s", 2, [](const sim::Summary& s) { return s.mean.danger_s; }},
    Column{"protect s", "time_to_protect_s", 2,
           [](const sim::Summary& s) { return s.mean.time_to_protect_s; }},
    Column{"recover s", "time_to_recover_s", 2,
           [](const sim::Summary& s) { return s.mean.time_to_recover_s; }},
    Column{"refused", "refused_share", 4,
           [](const sim::Summary& s) { return s.mean.refused_share; }},
    Column{"false", "false_refused_share", 4,
           [](const sim::Summary& s) { return s.mean.false_refused_share; }},
    Column{"flips", "flips", 1, [](const sim::Summary& s) { return s.flips; }},
    Column{"TV", "total_variation", 1,
           [](const sim::Summary& s) { return s.mean.total_variation; }},
    Column{"adherence", "adherence", 3, [](const sim::Summary& s) { return s.mean.adherence; }},
    Column{"kills", "oom_kills", 1, [](const sim::Summary& s) { return s.oom_kills; }},
    Column{"MiB", "memory_peak_mib", 0,
           [](const sim::Summary& s) { return s.mean.memory_peak_mib; }},
};

std::string cell(const Column& column, const sim::Summary& summary) {
  const std::string text = fmt::format("{:.{}f}", column.value(summary), column.digits);
  // A delay may be less than nothing by the last bit of a float.
  return text.find_first_not_of("-0.") == std::string::npos && text.starts_with('-')
             ? text.substr(1)
             : text;
}

/// JSON has no NaN, and 17 digits of a mean help nobody.
json rounded(double value) {
  if (!std::isfinite(value)) return nullptr;
  return std::round(value * 1e6) / 1e6;
}

int Simulate::table() {
  std::vector<Table::Column> columns{{"scenario"}, {"strategy"}};
  for (const Column& column : kColumns) columns.push_back({column.title, true});
  Table text(std::move(columns));
  json results = json::array();
  if (prints(SimulateOptions::Output::kCsv)) {
    out_ << "scenario,strategy,seeds";
    for (const Column& column : kColumns) out_ << ',' << column.key;
    out_ << '\n';
  }
  for (const Scenario& scenario : scenarios_) {
    for (const Contender& contender : contenders_) {
      const sim::Summary summary =
          sim::summarize(scenario, contender, options_.first_seed, options_.seeds);
      switch (options_.output) {
        case SimulateOptions::Output::kCsv:
          out_ << fmt::format("{},{},{}", summary.scenario, summary.contender, summary.seeds);
          for (const Column& column : kColumns) out_ << ',' << cell(column, summary);
          out_ << '\n';
          break;
        case SimulateOptions::Output::kJson: {
          json one{{"scenario", summary.scenario},
                   {"strategy", summary.contender},
                   {"seeds", summary.seeds}};
          for (const Column& column : kColumns) {
            one[std::string(column.key)] = rounded(column.value(summary));
          }
          json shares = json::array();
          for (const double share : summary.mean.admitted_share) shares.push_back(rounded(share));
          one["admitted_share"] = std::move(shares);
          results.push_back(std::move(one));
          break;
        }
        case SimulateOptions::Output::kTable: {
          std::vector<Table::Cell> row{{summary.scenario}, {summary.contender}};
          for (const Column& column : kColumns) row.push_back({cell(column, summary)});
          text.add(std::move(row));
          break;
        }
      }
    }
  }
  if (prints(SimulateOptions::Output::kJson)) {
    out_ << json{{"schema", 1}, {"first_seed", options_.first_seed}, {"results", results}}.dump(2)
         << '\n';
  } else if (prints(SimulateOptions::Output::kTable)) {
    out_ << text.render(0, false);
  }
  return kExitOk;
}

// ---------------------------------------------------------------- --csv of one run

int Simulate::trace() {
  const Scenario& scenario = scenarios_.front();
  const auto guard = contenders_.front().make(scenario);
  if (guard->decision() == nullptr) {
    return usage(
        fmt::format("{} decides nothing, so there is no trace of it; leave --csv out, or "
                    "ask for several seeds",
                    contenders_.front().name));
  }
  const sim::Outcome outcome =
      sim::simulate(scenario, *guard, {.seed = options_.first_seed, .keeps_ticks = true});
  print_decision_header(scenario.endpoints.size(), out_);
  for (const sim::TickRecord& tick : outcome.ticks) print_decision(tick, out_);
  return kExitOk;
}

// ---------------------------------------------------------------- --fuzz

json fuzz_json(const sim::FuzzSummary& s) {
  json each = json::array();
  for (const sim::FuzzOutcome& o : s.outcomes) {
    each.push_back({{"seed", o.seed},
                    {"capacity_cores", o.capacity_cores},
                    {"goodput", rounded(o.metrics.goodput)},
                    {"peak_backlog_s", rounded(o.peak_s())},
                    {"p99_delay_ms", rounded(o.metrics.p99_delay_ms)},
                    {"danger_s", rounded(o.metrics.danger_s)},
                    {"total_variation", rounded(o.metrics.total_variation)}});
  }
  return {{"scenarios", s.outcomes.size()},
          {"goodput",
           {{"mean", rounded(s.goodput_mean)},
            {"p10", rounded(s.goodput_p10)},
            {"p2", rounded(s.goodput_p2)},
            {"min", rounded(s.goodput_min)}}},
          {"peak_backlog_s",
           {{"p50", rounded(s.peak_p50_s)},
            {"p90", rounded(s.peak_p90_s)},
            {"max", rounded(s.peak_max_s)}}},
          {"p99_delay_ms", {{"p90", rounded(s.p99_delay_p90_ms)}}},
          {"danger_s", {{"mean", rounded(s.danger_mean_s)}}},
          {"total_variation", {{"mean", rounded(s.total_variation_mean)}}},
          {"per_scenario", std::move(each)}};
}

int Simulate::fuzz() {
  Table text({{"strategy"},
              {"pods", true},
              {"goodput", true},
              {"p10", true},
              {"p2", true},
              {"min", true},
              {"peak p50 s", true},
              {"p90 s", true},
              {"max s", true},
              {"p99 p90 ms", true},
              {"danger s", true},
              {"TV", true}});
  json all = json::array();
  if (prints(SimulateOptions::Output::kCsv)) {
    out_ << "strategy,seed,capacity_cores,goodput,peak_backlog_s,p99_delay_ms,danger_s,"
            "total_variation\n";
  }
  for (const Contender& contender : contenders_) {
    const sim::FuzzSummary s = sim::fuzz(contender, options_.fuzz_seed, options_.fuzz);
    if (prints(SimulateOptions::Output::kJson)) {
      json one{{"schema", 1}, {"strategy", contender.name}, {"seed", options_.fuzz_seed}};
      one.update(fuzz_json(s));
      all.push_back(std::move(one));
    } else if (prints(SimulateOptions::Output::kCsv)) {
      for (const sim::FuzzOutcome& o : s.outcomes) {
        out_ << fmt::format("{},{},{:g},{:.6f},{:.6f},{:.3f},{:.1f},{:.3f}\n", contender.name,
                            o.seed, o.capacity_cores, o.metrics.goodput, o.peak_s(),
                            o.metrics.p99_delay_ms, o.metrics.danger_s, o.metrics.total_variation);
      }
    } else {
      text.add({{contender.name},
                {fmt::format("{}", s.outcomes.size())},
                {fmt::format("{:.3f}", s.goodput_mean)},
                {fmt::format("{:.3f}", s.goodput_p10)},
                {fmt::format("{:.3f}", s.goodput_p2)},
                {fmt::format("{:.3f}", s.goodput_min)},
                {fmt::format("{:.3f}", s.peak_p50_s)},
                {fmt::format("{:.3f}", s.peak_p90_s)},
                {fmt::format("{:.3f}", s.peak_max_s)},
                {fmt::format("{:.1f}", s.p99_delay_p90_ms)},
                {fmt::format("{:.2f}", s.danger_mean_s)},
                {fmt::format("{:.1f}", s.total_variation_mean)}});
    }
  }
  if (prints(SimulateOptions::Output::kTable)) {
    out_ << text.render(0, false);
  } else if (prints(SimulateOptions::Output::kJson)) {
    out_ << (all.size() == 1 ? all.front() : json{{"schema", 1}, {"strategies", all}}).dump(2)
         << '\n';
  }
  return kExitOk;
}

// ---------------------------------------------------------------- --plot

int Simulate::plot() {
  if (scenarios_.size() * contenders_.size() > kMostRows) {
    return usage(fmt::format(
        "--plot: {} scenarios and {} strategies are {} rows; allowed: at "
        "most {}",
        scenarios_.size(), contenders_.size(), scenarios_.size() * contenders_.size(), kMostRows));
  }
  std::vector<sim::PlotRow> rows;
  for (const Scenario& scenario : scenarios_) {
    for (const Contender& contender : contenders_) {
      const auto guard = contender.make(scenario);
      sim::Outcome outcome =
          sim::simulate(scenario, *guard, {.seed = options_.first_seed, .keeps_windows = true});
      rows.push_back(
          {&scenario, contender.name, std::move(outcome.metrics), std::move(outcome.windows)});
    }
  }
  std::ofstream file(options_.plot, std::ios::binary | std::ios::trunc);
  file << (options_.plot.ends_with(".svg") ? sim::plot_svg(rows) : sim::plot_html(rows));
  file.close();
  if (!file) {
    return failed(fmt::format("cannot write {}", printable(options_.plot)), kExitFailure);
  }
  err_ << fmt::format("wrote {}: {} rows\n", options_.plot, rows.size());
  return kExitOk;
}

}  // namespace
}  // namespace cli

int run_simulate(const SimulateOptions& options, std::ostream& out, std::ostream& err) {
  return cli::Simulate(options, out, err).run();
}

}  // namespace headgate
