// SPDX-License-Identifier: Apache-2.0
#include "agent/cli/state_view.h"

#include <algorithm>

#include <fmt/format.h>

#include "agent/cli/json_read.h"
#include "agent/web/state_json.h"

namespace headgate::cli {
namespace {

std::string duration(double s) {
  if (s < 120) return fmt::format("{:.0f} s", s);
  if (s < 7200) return fmt::format("{:.0f} min", s / 60);
  if (s < 172800) return fmt::format("{:.0f} h", s / 3600);
  return fmt::format("{:.0f} d", s / 86400);
}

EndpointView endpoint_view(const Json& e) {
  EndpointView view;
  view.name = text_of(e, "name");
  view.port = fmt::format("{:.0f}/{}", number_of(e, "port").value_or(0), text_of(e, "protocol"));
  if (text_of(e, "unit") == "request") {
    view.port = text_of(e, "path");
    view.counted_only = !flag_of(e, "refusable");
  }
  const Json& rates = member(e, "rates_per_second");
  view.offered_per_s = number_of(rates, "offered").value_or(0);
  view.admitted_per_s = number_of(rates, "admitted").value_or(0);
  view.refused_per_s =
      number_of(rates, "reset").value_or(0) + number_of(rates, "expired").value_or(0) +
      number_of(rates, "dropped").value_or(0) + number_of(rates, "answered").value_or(0);
  view.deferred_per_s = number_of(rates, "deferred").value_or(0);
  view.in_flight = number_of(e, "in_flight");
  view.admit_ratio = number_of(e, "admit_ratio");
  view.reason = text_of(e, "reason");
  return view;
}

TargetView target_view(const Json& t) {
  TargetView view;
  view.name = text_of(t, "name");
  view.instance = text_of(t, "instance");
  view.present = flag_of(t, "present");
  view.absent_why = text_of(t, "absent_why");
  view.state = text_of(t, "state");
  view.mode = text_of(t, "mode");
  view.why = text_of(t, "why");
  view.cpu_fast = number_of(member(t, "cpu"), "fast_ratio");
  view.memory = number_of(member(t, "memory"), "raw_ratio");
  view.lease_valid = flag_of(t, "lease_valid");
  view.waiting = number_of(t, "waiting").value_or(0);
  for (const Json& e : list_of(t, "endpoints")) {
    view.endpoints.push_back(endpoint_view(e));
  }
  for (const Json& hook : list_of(t, "hooks")) {
    if (const std::string problem = text_of(hook, "problem"); !problem.empty()) {
      view.notes.push_back(fmt::format("{}: {}: {}", view.name, text_of(hook, "hook"), problem));
    }
  }
  for (const Json& warning : list_of(t, "warnings")) {
    if (warning.is_string()) {
      view.notes.push_back(fmt::format("{}: {}", view.name, warning.get<std::string>()));
    }
  }
  return view;
}

void add_agent_notes(StateView& view, const Json& s) {
  if (flag_of(s, "kill_switch")) {
    view.notes.emplace_back("switched off: everything is admitted until `headgate on`");
  }
  if (flag_of(s, "standby")) {
    view.notes.emplace_back("standby: another agent on this node holds the lock");
  }
  if (const std::string mode = text_of(s, "mode"); mode == "observe" || mode == "off") {
    view.notes.push_back(fmt::format("mode {}: nothing is refused", mode));
  }
  const Json& config = member(s, "config");
  if (config.is_object() && !flag_of(config, "last_reload_successful")) {
    view.notes.push_back("the last reload failed, the configuration before it is in force: " +
                         text_of(config, "last_error"));
  }
  for (const Json& what : list_of(s, "degraded")) {
    if (what.is_string()) {
      view.notes.push_back(what.get<std::string>());
    }
  }
}

/// An agent that ticks makes a state each second; three are missing.
constexpr double kHangsAfterSeconds = 4;

void add_age(StateView& view, double age_s) {
  view.title += fmt::format(" · {:.1f} s ago", age_s);
  if (age_s >= kHangsAfterSeconds) {
    view.notes.push_back(
        fmt::format("the agent's loop has not ticked for {}: what stands here is old, and the "
                    "leases have run out (everything is admitted)",
                    duration(age_s)));
  }
}

std::string share(const std::optional<double>& value) {
  return value ? fmt::format("{:.2f}", *value) : "?";
}
std::string rate(double value) { return fmt::format("{:.0f}", value); }

Color state_color(const TargetView& target) {
  if (!target.present || target.state == "unknown") return Color::kDim;
  if (target.state == "normal") return Color::kGreen;
  if (target.state == "shedding") return Color::kYellow;
  return target.state == "open" ? Color::kRed : Color::kNone;
}

std::string state_word(const TargetView& target) {
  if (!target.present) return "absent";
  return target.mode == "enforce" || target.mode.empty()
             ? target.state
             : fmt::format("{} ({})", target.state, target.mode);
}

std::string why_of(const TargetView& target) {
  if (!target.present) return target.absent_why;
  std::string why = target.why;
  if (!target.lease_valid && target.mode == "enforce") {
    why = why.empty() ? "no lease: all admitted" : "no lease: all admitted; " + why;
  }
  if (target.waiting > 0) {
    why += fmt::format("{}{:.0f} waiting", why.empty() ? "" : "; ", target.waiting);
  }
  return why;
}

void add_rows(Table& table, const TargetView& target) {
  const std::size_t rows = std::max<std::size_t>(1, target.endpoints.size());
  for (std::size_t i = 0; i < rows; ++i) {
    std::vector<Table::Cell> row(12);
    if (i == 0) {
      row[0] = {target.name, Color::kBold};
      row[1] = {state_word(target), state_color(target)};
      row[2].text = target.present ? share(target.cpu_fast) : "-";
      row[3].text = target.present ? share(target.memory) : "-";
      row[11].text = why_of(target);
    }
    if (i < target.endpoints.size()) {
      const EndpointView& e = target.endpoints[i];
      row[4].text = e.name;
      row[5].text = e.port;
      row[6].text = rate(e.offered_per_s);
      row[7].text = rate(e.admitted_per_s);
      row[8] = {rate(e.refused_per_s), e.refused_per_s > 0 ? Color::kYellow : Color::kNone};
      row[9].text = rate(e.deferred_per_s);
      row[10].text = e.counted_only ? "counted only" : share(e.admit_ratio);
      if (e.reason != "none" && !e.reason.empty()) {
        row[10].text += ' ' + e.reason;
      }
    }
    table.add(std::move(row));
  }
}

}  // namespace

Result<StateView> parse_state(std::string_view state_json, std::int64_t now_unix_ms) {
  const Json s = parse_json(state_json);
  if (!s.is_object()) {
    return fail("the answer of the agent is not its state");
  }
  const auto schema = number_of(s, "schema");
  if (schema != web::kStateSchema) {
    return fail(
        fmt::format("the agent answers in schema {}, this program knows {}: use the "
                    "program of the agent's version",
                    schema.value_or(0), web::kStateSchema));
  }
  StateView view;
  const Json& config = member(s, "config");
  const std::string file = text_of(config, "file");
  view.title =
      fmt::format("headgate {} · {} · up {} · Linux {} · cgroup {} · {}", text_of(s, "version"),
                  text_of(s, "mode"), duration(number_of(s, "uptime_seconds").value_or(0)),
                  text_of(s, "kernel_release"), text_of(s, "cgroup_mode"),
                  file.empty() ? "no configuration file" : file);
  if (const auto made = number_of(s, "unix_ms"); made && now_unix_ms > 0) {
    add_age(view, std::max(0.0, (static_cast<double>(now_unix_ms) - *made) / 1000));
  }
  add_agent_notes(view, s);
  for (const Json& t : list_of(s, "targets")) {
    view.targets.push_back(target_view(t));
  }
  return view;
}

std::string render(const StateView& view, std::size_t width, bool color) {
  const auto line = [&](const std::string& line_text, Color line_color) {
    const std::string clean = plain(line_text);
    return paint(width > 0 ? cut(clean, width) : clean, line_color, color) + '\n';
  };
  std::string out = line(view.title, Color::kBold);
  for (const std::string& note : view.notes) {
    out += line("! " + note, Color::kYellow);
  }
  for (const TargetView& target : view.targets) {
    for (const std::string& note : target.notes) {
      out += line("! " + note, Color::kYellow);
    }
  }
  out += '\n';
  if (view.targets.empty()) {
    return out + "no target is configured\n";
  }
  Table table({{"TARGET"},
               {"STATE"},
               {"CPU", true},
               {"MEM", true},
               {"ENDPOINT"},
               {"PORT", false, 2},
               {"OFFERED/S", true},
               {"ADMIT/S", true, 3},
               {"REFUSE/S", true},
               {"DEFER/S", true, 1},
               {"P"},
               {"WHY"}});
  for (const TargetView& target : view.targets) {
    add_rows(table, target);
  }
  return out + table.render(width, color);
}

}  // namespace headgate::cli
