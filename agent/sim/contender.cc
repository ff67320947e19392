// SPDX-License-Identifier: Apache-2.0
#include "agent/sim/contender.h"

#include <algorithm>
#include <array>
#include <optional>
#include <set>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "agent/config/schema.h"
#include "agent/sim/baselines.h"
#include "agent/sim/strategy_guard.h"
#include "agent/strategies/registry.h"

namespace headgate::sim {
namespace {

/// A form of a strategy under the name that it has in publications.
struct Form {
  std::string_view name;
  std::string_view strategy;
  std::string_view doc;
  void (*adjust)(Params& params, StrategyGuard::Options& options) = nullptr;
};

constexpr std::array kForms{
    Form{"adaptive-no-bucket", "adaptive", "adaptive by shares alone: no budget in the kernel",
         [](Params& /*params*/, StrategyGuard::Options& options) {
           options.enforces_budget = false;
         }},
    Form{"adaptive+guard", "adaptive", "adaptive with its cap on what is in flight",
         [](Params& params, StrategyGuard::Options& /*options*/) {
           params.numbers["in_flight_guard"] = 0.05;
         }},
    Form{"CPUStep", "curve", "refuses all above 0.8 of the CPU",
         [](Params& params, StrategyGuard::Options& /*options*/) {
           params.words["signal"] = "cpu_fast";
           params.points = {{0.8, 0}, {0.8, 1}};
         }},
    Form{"CPUGraded", "curve", "refuses nothing at 0.7 of the CPU, all at 1, linear between",
         [](Params& params, StrategyGuard::Options& /*options*/) {
           params.words["signal"] = "cpu_fast";
           params.points = {{0.7, 0}, {1, 1}};
         }},
    Form{"PlanB", "graded", "the same as graded", nullptr},
    Form{"AIMD", "aimd", "the same as aimd", nullptr},
    Form{"go-zero", "bbr", "bbr as in go-zero",
         [](Params& params, StrategyGuard::Options& /*options*/) {
           params.words["variant"] = "go_zero";
         }},
    Form{"aegis", "bbr", "bbr as in Kratos' aegis",
         [](Params& params, StrategyGuard::Options& /*options*/) {
           params.words["variant"] = "aegis";
         }},
    Form{"Gradient2", "gradient", "the same as gradient", nullptr},
    Form{"CoDel", "codel", "the same as codel", nullptr},
    Form{"SREclient", "sre", "the same as sre", nullptr},
    Form{"FourLayer", "four_layer", "the same as four_layer", nullptr},
    Form{"Envoy", "scaled", "the same as scaled", nullptr},
    Form{"KLimiter", "klimiter", "the same as klimiter", nullptr},
};

bool has_param(const StrategyInfo& info, std::string_view name) {
  return std::any_of(info.params.begin(), info.params.end(),
                     [&](const ParamSpec& spec) { return spec.name == name; });
}

/// --param NAME=VALUE.
struct Given {
  std::string name;
  std::string value;
};

Result<std::vector<Given>> split(const std::vector<std::string>& params) {
  std::vector<Given> out;
  for (const std::string& text : params) {
    const auto equals = text.find('=');
    if (equals == std::string::npos || equals == 0) {
      return fail(fmt::format("'{}' is no parameter; allowed: NAME=VALUE", printable(text)));
    }
    out.push_back({text.substr(0, equals), text.substr(equals + 1)});
  }
  return out;
}

/// Puts the value of one parameter of the strategy in; nothing where the strategy has no such.
Result<> apply(const Given& given, const StrategyInfo& info, Params& params) {
  for (const ParamSpec& spec : info.params) {
    if (spec.name != given.name) continue;
    const Value value = read_value(field_of(spec), given.value);
    if (!value.problem.empty()) {
      return fail(fmt::format("parameter {} of {}: '{}': {}", spec.name, info.name,
                              printable(given.value), value.problem));
    }
    switch (spec.kind) {
      case ParamSpec::Kind::kWord: params.words[given.name] = value.text; break;
      case ParamSpec::Kind::kDuration: params.numbers[given.name] = seconds(value.duration); break;
      case ParamSpec::Kind::kCount:
        params.numbers[given.name] = static_cast<double>(value.integer);
        break;
      case ParamSpec::Kind::kRatio:
      case ParamSpec::Kind::kNumber: params.numbers[given.name] = value.number; break;
    }
  }
  return {};
}

Result<Contender> of_strategy(std::string name, const StrategyInfo& info, const Form* form,
                              const ContenderOptions& options, std::span<const Given> given) {
  if (!info.built) {
    return fail(fmt::format("strategy '{}' is not built yet; use {}", info.name, info.instead));
  }
  Params params;
  StrategyGuard::Options guard = options.guard;
  guard.target = options.target;
  if (form != nullptr && form->adjust != nullptr) form->adjust(params, guard);
  if (options.spec_profile && has_param(info, "profile")) params.words["profile"] = "spec";
  for (const Given& one : given) {
    if (const auto done = apply(one, info, params); !done) {
      return tl::unexpected<Error>(done.error());
    }
  }
  if (info.check != nullptr) {
    if (const std::string problem = info.check(params); !problem.empty()) {
      return fail(fmt::format("parameters of {}: {}", info.name, problem));
    }
  }
  return Contender{std::move(name), [&info, params, guard](const Scenario& scenario) {
                     return std::make_unique<StrategyGuard>(info.make(params), scenario, guard);
                   }};
}

Result<Contender> find_one(const std::string& name, const ContenderOptions& options,
                           std::span<const Given> given) {
  if (const StrategyInfo* info = find_strategy(name)) {
    return of_strategy(name, *info, nullptr, options, given);
  }
  for (const Form& form : kForms) {
    if (form.name != name) continue;
    const StrategyInfo* info = find_strategy(form.strategy);
    if (info == nullptr) break;
    return of_strategy(name, *info, &form, options, given);
  }
  for (const BaselineInfo& baseline : baselines()) {
    if (baseline.name == name) return Contender{name, baseline.make};
  }
  const std::vector<ContenderDoc> docs = contender_docs();
  std::vector<std::string_view> names;
  for (const ContenderDoc& doc : docs) names.emplace_back(doc.name);
  return fail(fmt::format("unknown strategy '{}'{} Allowed: {}", printable(name),
                          suggestion(nearest_of(name, names)), fmt::join(names, ", ")));
}

/// Every parameter given must be one of something that was chosen.
Result<> check_used(std::span<const Given> given, const std::vector<std::string>& names) {
  std::set<std::string_view> known;
  for (const std::string& name : names) {
    const StrategyInfo* info = find_strategy(name);
    for (const Form& form : kForms) {
      if (form.name == name) info = find_strategy(form.strategy);
    }
    if (info == nullptr) continue;
    for (const ParamSpec& spec : info->params) known.insert(spec.name);
  }
  for (const Given& one : given) {
    if (known.contains(one.name)) continue;
    const std::vector<std::string_view> names_known(known.begin(), known.end());
    return fail(fmt::format(
        "no chosen strategy has a parameter '{}'{}", printable(one.name),
        known.empty() ? "; they have none" : suggestion(nearest_of(one.name, names_known))));
  }
  return {};
}

}  // namespace

std::vector<ContenderDoc> contender_docs() {
  std::vector<ContenderDoc> docs;
  for (const StrategyInfo& info : strategies()) {
    if (info.built) docs.push_back({std::string(info.name), std::string(info.doc)});
  }
  for (const Form& form : kForms) {
    const StrategyInfo* info = find_strategy(form.strategy);
    if (info != nullptr && info->built) {
      docs.push_back({std::string(form.name), std::string(form.doc)});
    }
  }
  for (const BaselineInfo& baseline : baselines()) {
    docs.push_back({std::string(baseline.name), std::string(baseline.doc)});
  }
  return docs;
}

Result<std::vector<Contender>> find_contenders(const std::vector<std::string>& names,
                                               const ContenderOptions& options) {
  const auto given = split(options.params);
  if (!given) return tl::unexpected<Error>(given.error());
  std::vector<std::string> wanted;
  for (const std::string& name : names) {
    if (name != "all") {
      wanted.push_back(name);
      continue;
    }
    for (const BaselineInfo& baseline : baselines()) wanted.emplace_back(baseline.name);
    for (const StrategyInfo& info : strategies()) {
      // hybrid is nothing without its parts, and fixed is for drills
      if (info.built && info.name != "hybrid" && info.name != "fixed") {
        wanted.emplace_back(info.name);
      }
    }
  }
  std::vector<Contender> out;
  for (const std::string& name : wanted) {
    const bool twice =
        std::any_of(out.begin(), out.end(), [&](const Contender& c) { return c.name == name; });
    if (twice) continue;
    auto contender = find_one(name, options, *given);
    if (!contender) return tl::unexpected<Error>(contender.error());
    out.push_back(std::move(*contender));
  }
  if (const auto used = check_used(*given, wanted); !used) {
    return tl::unexpected<Error>(used.error());
  }
  return out;
}

}  // namespace headgate::sim
