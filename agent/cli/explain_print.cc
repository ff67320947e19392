// SPDX-License-Identifier: Apache-2.0
// How `headgate explain` prints what explain.cc has gathered.
#include <algorithm>
#include <map>
#include <sstream>

#include <fmt/format.h>

#include "agent/cgroup/parse.h"
#include "agent/cli/explain.h"
#include "agent/cli/json_read.h"
#include "agent/cli/table.h"

namespace headgate::cli {
namespace {

std::string_view base_name(std::string_view path) { return path.substr(path.rfind('/') + 1); }
std::string directory_of(std::string_view path) {
  return std::string(path.substr(0, path.rfind('/')));
}

std::string bytes(std::uint64_t value) {
  constexpr std::array kUnits{"B", "KiB", "MiB", "GiB", "TiB"};
  auto scaled = static_cast<double>(value);
  std::size_t unit = 0;
  while (scaled >= 1024 && unit + 1 < kUnits.size()) {
    scaled /= 1024;
    ++unit;
  }
  return unit == 0 ? fmt::format("{} B", value)
                   : fmt::format("{:.4g} {} ({})", scaled, kUnits[unit], value);
}

/// `unit` in the plural.
template <class T>
std::string meaning(const Measured<T>& value, std::string_view unit) {
  if (value.known()) {
    const double number = static_cast<double>(*value);
    const bool one = number == 1 && unit.ends_with('s');
    return fmt::format("{:g} {}", number, one ? unit.substr(0, unit.size() - 1) : unit);
  }
  if (value.reason == Unknown::kNoLimit) {
    return "no limit";
  }
  return fmt::format("unknown ({})", to_string(value.reason));
}

/// A share of something, as "0.25 of the periods".
std::string share_of(const Measured<double>& value, std::string_view whole) {
  return value.known() ? fmt::format("{:.2f} of the {}", *value, whole) : meaning(value, whole);
}

std::string one_line(std::string_view raw) {
  while (!raw.empty() && (raw.back() == '\n' || raw.back() == ' ')) {
    raw.remove_suffix(1);
  }
  return plain(raw);
}

std::string memory_meaning(const Measured<std::uint64_t>& value) {
  return value.known() ? bytes(*value) : meaning(value, "");
}

Measured<std::uint64_t> working_set(const Sample& sample) {
  if (!sample.memory_current_bytes.known()) return sample.memory_current_bytes.reason;
  if (!sample.memory_inactive_file_bytes.known()) return sample.memory_inactive_file_bytes.reason;
  return *sample.memory_current_bytes -
         std::min(*sample.memory_current_bytes, *sample.memory_inactive_file_bytes);
}

class Unknowns {
 public:
  template <class T>
  Json take(std::string_view signal, const Measured<T>& value) {
    if (value.known()) {
      return Json(*value);
    }
    list_.push_back({{"signal", signal}, {"reason", to_string(value.reason)}});
    return nullptr;
  }
  /// Having no limit is known.
  template <class T>
  Json limit(std::string_view signal, const Measured<T>& value) {
    return !value.known() && value.reason == Unknown::kNoLimit ? Json(nullptr)
                                                               : take(signal, value);
  }
  [[nodiscard]] Json list() && { return std::move(list_); }

 private:
  Json list_ = Json::array();
};

/// Where a limit comes from; null while that is not known.
template <class T>
Json source(const Measured<T>& limit, LimitSource source) {
  const bool settled = limit.known() || limit.reason == Unknown::kNoLimit;
  return settled ? Json(to_string(source)) : Json(nullptr);
}

/// Transitions into a state that refuses, newest first.
Json last_refusals(const Json& target) {
  Json list = Json::array();
  const Json& transitions = list_of(target, "transitions");
  for (auto it = transitions.rbegin(); it != transitions.rend(); ++it) {
    const std::string to = text_of(*it, "to");
    if (to == "shedding" || to == "open") {
      list.push_back(*it);
    }
  }
  return list;
}

Json policy_json(const Json& target) {
  if (!target.is_object()) {
    return nullptr;
  }
  Json policy = Json::object();
  for (const char* key :
       {"mode", "strategy", "why", "lease_valid", "config_line", "thresholds", "endpoints"}) {
    if (target.contains(key)) {
      policy[key] = target[key];
    }
  }
  return policy;
}

std::string share_text(const Json& object, const char* key) {
  const auto value = number_of(object, key);
  return value ? fmt::format("{:.2f}", *value) : "?";
}

std::string transition_line(const Json& t) {
  return fmt::format("{}  {} -> {}: {} (cpu fast {}, slow {}, memory {})", text_of(t, "time"),
                     text_of(t, "from"), text_of(t, "to"), text_of(t, "why"),
                     share_text(t, "cpu_fast_ratio"), share_text(t, "cpu_slow_ratio"),
                     share_text(t, "memory_ratio"));
}

std::string counters_line(const Json& endpoint) {
  const Json& counters = member(endpoint, "counters");
  std::string refused;
  for (const auto& [reason, count] : member(counters, "refused").items()) {
    if (count.is_number_unsigned() && count != 0U) {
      refused +=
          fmt::format("{}{} {}", refused.empty() ? "" : ", ", reason, count.get<std::uint64_t>());
    }
  }
  const bool requests = text_of(endpoint, "unit") == "request";
  return fmt::format("{}: {} {} offered, {} admitted; {} refused: {}", text_of(endpoint, "name"),
                     count_of(counters, "offered"), requests ? "requests" : "attempts",
                     count_of(counters, "admitted"), requests ? "requests" : "tries",
                     refused.empty() ? "none" : refused);
}

/// How requests of a route are refused, and what was let through although they should have been.
std::string requests_line(const Json& endpoint) {
  const Json& counters = member(endpoint, "counters");
  const std::string path = text_of(endpoint, "path");
  const auto response_s = number_of(endpoint, "response_seconds");
  const auto in_flight = number_of(endpoint, "in_flight");
  std::string out =
      fmt::format("  {}; {}", path.empty() ? "requests without a route" : path,
                  flag_of(endpoint, "refusable")
                      ? fmt::format("{} refused by {}", count_of(counters, "answered"),
                                    text_of(endpoint, "refuse"))
                      : "counted only");
  if (const std::uint64_t guarded = count_of(counters, "admitted_guarded"); guarded > 0) {
    out += fmt::format(", {} let through because their socket could not be answered", guarded);
  }
  if (in_flight) {
    out += fmt::format("; {:.0f} in flight", *in_flight);
  }
  return response_s ? out + fmt::format(", answered after {:.1f} ms", *response_s * 1e3) : out;
}

std::string unknown_line(const Json& endpoint) {
  std::string out;
  for (const auto& [reason, what] : member(endpoint, "unknown_requests").items()) {
    out += fmt::format("{}{} ({})", out.empty() ? "" : "; ", count_of(what, "count"),
                       text_of(what, "means"));
  }
  return out;
}

std::string thresholds_line(const Json& target) {
  std::string parts;
  for (const auto& [name, value] : member(target, "thresholds").items()) {
    if (value.is_number()) {
      parts += fmt::format("{}{} {:g}", parts.empty() ? "" : ", ", name, value.get<double>());
    }
  }
  return parts.empty() ? "none" : parts;
}

std::string hook_line(const Json& hook) {
  const std::string problem = text_of(hook, "problem");
  return fmt::format("{} {} at {}{}{}", text_of(hook, "hook"), text_of(hook, "mode"),
                     text_of(hook, "where"), problem.empty() ? "" : ": ", problem);
}

void print_agent(std::string& text, const Explanation& e) {
  const auto line = [&](std::string_view content) { text += "  " + plain(content) + '\n'; };
  text += "\nIn the running agent\n";
  const Json target = parse_json(e.agent_target);
  if (!target.is_object()) {
    line(e.agent_problem);
    return;
  }
  line(fmt::format("state {}: {}", text_of(target, "state"), text_of(target, "why")));
  const std::uint64_t config_line = count_of(target, "config_line");
  line(
      fmt::format("mode {}, strategy {}, configured {}, lease {}", text_of(target, "mode"),
                  text_of(target, "strategy"),
                  config_line == 0 ? "by the command line" : fmt::format("at line {}", config_line),
                  flag_of(target, "lease_valid") ? "valid" : "not valid: all is admitted"));
  line("thresholds: " + thresholds_line(target));
  for (const Json& hook : list_of(target, "hooks")) {
    line("hook " + hook_line(hook));
  }
  for (const Json& endpoint : list_of(target, "endpoints")) {
    line(counters_line(endpoint));
    if (text_of(endpoint, "unit") == "request") {
      line(requests_line(endpoint));
    }
    if (const std::string unknown = unknown_line(endpoint); !unknown.empty()) {
      line("  class unknown: " + unknown);
    }
  }
  text += "\nLast refusals\n";
  const Json refusals = last_refusals(target);
  for (const Json& transition : refusals) {
    line(transition_line(transition));
  }
  if (refusals.empty()) {
    line("none");
  }
}

std::string ratio_to_limit(const Measured<double>& usage, const Measured<double>& cores) {
  return usage.known() && cores.known() && *cores > 0
             ? fmt::format(" = {:.2f} of the limit", *usage / *cores)
             : std::string();
}

}  // namespace

std::vector<std::string> derive_limits(const std::vector<FileRead>& files) {
  std::map<std::string, std::string> periods;  // directory -> cpu.cfs_period_us
  for (const FileRead& file : files) {
    if (file.error.empty() && base_name(file.path) == "cpu.cfs_period_us") {
      periods[directory_of(file.path)] = file.raw;
    }
  }
  std::vector<std::string> lines;
  for (const FileRead& file : files) {
    if (!file.error.empty()) {
      continue;
    }
    const std::string_view name = base_name(file.path);
    std::string means;
    if (name == "cpu.max") {
      means = meaning(parse_cpu_max(file.raw), "cores");
    } else if (name == "cpu.cfs_quota_us") {
      const std::string& period = periods[directory_of(file.path)];
      means = fmt::format("over a period of {} us: {}", one_line(period),
                          meaning(parse_cfs(file.raw, period), "cores"));
    } else if (name.starts_with("cpuset.")) {
      means = meaning(parse_cpu_list(file.raw), "CPUs");
    } else if (name == "memory.max" || name == "memory.limit_in_bytes") {
      means = memory_meaning(parse_memory_limit(file.raw));
    } else {
      continue;
    }
    lines.push_back(fmt::format("{}: {} -> {}", plain(file.path), one_line(file.raw), means));
  }
  return lines;
}

std::string explain_text(const Explanation& e) {
  const Sample& s = e.sample;
  std::string text =
      plain(fmt::format("{}: cgroup {} ({})", e.target, e.cgroup_path, e.cgroup_mode));
  text += '\n';
  for (const auto& [controller, path] : e.paths) {
    text += plain(fmt::format("  {:<7} {}", controller, path)) + '\n';
  }
  for (const std::string& warning : e.warnings) {
    text += "! " + plain(warning) + '\n';
  }
  text += "\nLimits (the smallest counts)\n";
  for (const std::string& line : derive_limits(e.files)) {
    text += "  " + line + '\n';
  }
  const auto limit_line = [&](const char* name, const std::string& value, bool known,
                              LimitSource from) {
    text += fmt::format("  {:<7} {}{}\n", name, value,
                        known ? fmt::format(" (source: {})", to_string(from)) : "");
  };
  limit_line("CPU:", meaning(s.limits.cpu_cores, "cores"), s.limits.cpu_cores.known(),
             s.limits.cpu_source);
  limit_line("memory:", memory_meaning(s.limits.memory_bytes), s.limits.memory_bytes.known(),
             s.limits.memory_source);

  text += "\nSignals\n";
  text += fmt::format("  CPU use           {}{}\n", meaning(e.usage_cores, "cores"),
                      ratio_to_limit(e.usage_cores, s.limits.cpu_cores));
  text += fmt::format("  throttled         {}\n", share_of(e.throttled_ratio, "CFS periods"));
  text += fmt::format("  CPU pressure      {}\n", share_of(e.psi_some_ratio, "time"));
  text += fmt::format("  memory            {}\n", memory_meaning(s.memory_current_bytes));
  text += fmt::format("  - inactive file   {}\n", memory_meaning(s.memory_inactive_file_bytes));
  const Measured<std::uint64_t> set = working_set(s);
  text += fmt::format("  = working set     {}", memory_meaning(set));
  if (set.known() && s.limits.memory_bytes.known() && *s.limits.memory_bytes > 0) {
    text += fmt::format(" = {:.2f} of the limit",
                        static_cast<double>(*set) / static_cast<double>(*s.limits.memory_bytes));
  }
  text += '\n';
  print_agent(text, e);

  text += "\nFiles\n";
  for (const FileRead& file : e.files) {
    text += plain(file.path) + '\n';
    if (!file.error.empty()) {
      text += "    (" + plain(file.error) + ")\n";
      continue;
    }
    std::istringstream raw(file.raw);
    for (std::string line; std::getline(raw, line);) {
      text += "    " + plain(line) + '\n';
    }
  }
  return text;
}

std::string explain_json(const Explanation& e) {
  const Sample& s = e.sample;
  Unknowns unknown;
  Json paths = Json::object();
  for (const char* controller : {"cpu", "memory", "cpuset", "psi"}) {
    const auto it = std::find_if(e.paths.begin(), e.paths.end(),
                                 [&](const auto& path) { return path.first == controller; });
    paths[controller] = it == e.paths.end() ? Json(nullptr) : Json(it->second);
  }
  const Json target = parse_json(e.agent_target);
  Json object{{"schema", 1}, {"target", e.target}};
  object["cgroup"] = {
      {"mode", e.cgroup_mode}, {"path", e.cgroup_path}, {"paths", std::move(paths)}};
  object["cpu"] = {{"effective_cores", unknown.limit("cpu.effective_cores", s.limits.cpu_cores)},
                   {"source", source(s.limits.cpu_cores, s.limits.cpu_source)},
                   {"usage_cores", unknown.take("cpu.usage_cores", e.usage_cores)},
                   {"throttled_ratio", unknown.take("cpu.throttled_ratio", e.throttled_ratio)},
                   {"psi_some_ratio", unknown.take("cpu.psi_some_ratio", e.psi_some_ratio)}};
  object["memory"] = {
      {"limit_bytes", unknown.limit("memory.limit_bytes", s.limits.memory_bytes)},
      {"source", source(s.limits.memory_bytes, s.limits.memory_source)},
      {"current_bytes", unknown.take("memory.current_bytes", s.memory_current_bytes)},
      {"inactive_file_bytes",
       unknown.take("memory.inactive_file_bytes", s.memory_inactive_file_bytes)},
      {"working_set_bytes", unknown.take("memory.working_set_bytes", working_set(s))}};
  Json files = Json::array();
  for (const FileRead& file : e.files) {
    files.push_back({{"path", file.path},
                     {"raw", file.error.empty() ? Json(file.raw) : Json(nullptr)},
                     {"error", file.error.empty() ? Json(nullptr) : Json(file.error)}});
  }
  object["files"] = std::move(files);
  object["unknown"] = std::move(unknown).list();
  object["warnings"] = e.warnings;
  object["state"] = member(target, "state");
  object["policy"] = policy_json(target);
  object["hooks"] = list_of(target, "hooks");
  object["last_refusals"] = last_refusals(target);
  object["agent_problem"] = target.is_object() ? Json(nullptr) : Json(e.agent_problem);
  return to_text(object);
}

}  // namespace headgate::cli
