// SPDX-License-Identifier: Apache-2.0
#include "agent/web/health.h"

#include <algorithm>

#include <fmt/format.h>

#include "agent/web/words.h"

namespace headgate::web {
namespace {

using Outcome = HealthCheck::Outcome;

HealthCheck config_check(const AgentSnapshot& s) {
  if (s.config_last_reload_successful) {
    return {"config", Outcome::kOk, {}};
  }
  return {
      "config", Outcome::kDegraded,
      "the last reload failed, the configuration before it is in force: " + s.config_last_error};
}

bool sampled(const TargetSnapshot& target) {
  return target.sample_age_s.has_value() || !target.sample_errors_by_file.empty();
}

// One target is enough: a target that was added a moment ago must not make the agent unready.
HealthCheck sample_check(const AgentSnapshot& s) {
  const auto present = [](const TargetSnapshot& t) { return t.present; };
  if (std::none_of(s.targets.begin(), s.targets.end(), present)) {
    return {"sample", Outcome::kOk, "no target is there now"};
  }
  for (const TargetSnapshot& target : s.targets) {
    if (target.present && sampled(target)) {
      return {"sample", Outcome::kOk, {}};
    }
  }
  return {"sample", Outcome::kFailed, "no target has been sampled yet"};
}

HealthCheck programs_check(const AgentSnapshot& s) {
  bool tried = !s.degraded.empty();
  bool wanted = false;
  for (const TargetSnapshot& target : s.targets) {
    if (target.present && target.mode != Mode::kOff) {
      wanted = true;
      tried = tried || !target.hooks.empty();
    }
  }
  if (!wanted || tried) {
    return {"programs", Outcome::kOk, {}};
  }
  return {"programs", Outcome::kFailed, "no hook has been attached or tried yet"};
}

void add_degraded(std::vector<HealthCheck>& checks, const AgentSnapshot& s) {
  for (const std::string& what : s.degraded) {
    checks.push_back({"agent", Outcome::kDegraded, what});
  }
  for (const TargetSnapshot& target : s.targets) {
    for (const HookStatus& hook : target.hooks) {
      if (hook.problem.empty()) {
        continue;
      }
      const std::string cause =
          hook.sys_errno != 0 ? fmt::format(" ({})", errno_name(hook.sys_errno)) : std::string();
      checks.push_back(
          {"hook", Outcome::kDegraded,
           fmt::format("{} of {}{}: {}", hook.hook, target.name, cause, hook.problem)});
    }
    if (target.present && !target.sample_errors_by_file.empty() && !target.sample_age_s) {
      const auto& [where, count] = target.sample_errors_by_file.front();
      checks.push_back({"sample", Outcome::kDegraded,
                        fmt::format("{} cannot be read: {}: {}", target.name, where.first,
                                    headgate::to_string(where.second))});
    }
  }
  if (s.killed_switch) {
    checks.push_back({"kill-switch", Outcome::kDegraded,
                      "everything is admitted since `headgate off`; `headgate on` ends it"});
  }
}

}  // namespace

std::vector<HealthCheck> readiness(const AgentSnapshot* snapshot) {
  if (snapshot == nullptr) {
    return {{"loop", Outcome::kFailed, "the first tick has not run yet"}};
  }
  std::vector<HealthCheck> checks{{"loop", Outcome::kOk, {}}, config_check(*snapshot)};
  if (snapshot->standby) {
    checks.push_back({"standby", Outcome::kOk, "another agent on this node holds the lock"});
    return checks;
  }
  checks.push_back(programs_check(*snapshot));
  checks.push_back(sample_check(*snapshot));
  add_degraded(checks, *snapshot);
  return checks;
}

bool is_ready(const std::vector<HealthCheck>& checks) {
  return std::none_of(checks.begin(), checks.end(),
                      [](const HealthCheck& c) { return c.outcome == Outcome::kFailed; });
}

std::string to_text(const std::vector<HealthCheck>& checks, bool verbose) {
  const bool ready = is_ready(checks);
  if (ready && !verbose) {
    return "ok\n";
  }
  std::string text;
  for (const HealthCheck& check : checks) {
    switch (check.outcome) {
      case Outcome::kOk:
        if (verbose) text += fmt::format("[+]{} ok", check.name);
        break;
      case Outcome::kDegraded:
        if (verbose) text += fmt::format("[!]{} degraded", check.name);
        break;
      case Outcome::kFailed: text += fmt::format("[-]{} failed", check.name); break;
    }
    if (verbose || check.outcome == Outcome::kFailed) {
      text += check.detail.empty() ? "\n" : fmt::format(": {}\n", check.detail);
    }
  }
  text += ready ? "readyz check passed\n" : "readyz check failed\n";
  return text;
}

}  // namespace headgate::web
