// SPDX-License-Identifier: Apache-2.0
#include "agent/strategies/adaptive_parameters.h"

#include <array>
#include <string_view>

#include "agent/strategies/parameters.h"

namespace headgate::adaptive {
namespace {

constexpr std::array<std::string_view, 2> kProfiles{"default", "spec"};
constexpr std::array<std::string_view, 2> kOnOff{"on", "off"};
constexpr std::array<std::string_view, 3> kQuota{"auto", "hard", "soft"};
using Kind = ParamSpec::Kind;
constexpr std::array kParams{
    ParamSpec{
        .name = "profile",
        .kind = Kind::kWord,
        .doc = "spec: as the reference vectors were recorded, connection counts for caps only",
        .default_word = "default",
        .words = kProfiles},
    ParamSpec{.name = "saturated_at",
              .kind = Kind::kRatio,
              .default_value = 0.955,
              .minimum = 0.5,
              .maximum = 2,
              .doc = "CPU use from which an interval counts as saturated; at least target + 0.03"},
    ParamSpec{.name = "pressure_loss",
              .kind = Kind::kRatio,
              .default_value = 0.8,
              .minimum = 0.3,
              .maximum = 1,
              .doc = "cpu.pressure above this, twice, with work pending: capacity was taken away"},
    ParamSpec{.name = "quota",
              .kind = Kind::kWord,
              .doc = "soft: the capacity can be exceeded, so use near it is no saturation; auto: "
                     "hard until use is seen 30 % above it",
              .default_word = "auto",
              .words = kQuota},
    ParamSpec{.name = "prior_cost",
              .kind = Kind::kDuration,
              .default_value = 1e-3,
              .minimum = 1e-7,
              .maximum = 10,
              .doc = "CPU time of a request before anything has been learned"},
    ParamSpec{.name = "prior_byte_share",
              .kind = Kind::kRatio,
              .default_value = 0.6,
              .minimum = 0,
              .maximum = 1,
              .doc = "share of it that is attributed to bytes"},
    ParamSpec{.name = "cost_memory",
              .kind = Kind::kDuration,
              .default_value = 1,
              .minimum = 0.3,
              .maximum = 3,
              .doc = "time constant of the cost that all endpoints have in common"},
    ParamSpec{.name = "relative_memory",
              .kind = Kind::kDuration,
              .default_value = 15,
              .minimum = 5,
              .maximum = 60,
              .doc = "time constant of the costs of endpoints and bytes against each other"},
    ParamSpec{.name = "lower_bound_factor",
              .kind = Kind::kNumber,
              .default_value = 1.5,
              .minimum = 1.1,
              .maximum = 10,
              .doc = "saturated for two ticks, and more work done than this times what the model "
                     "expects of all that came in: the cost is raised at once"},
    ParamSpec{
        .name = "search_growth",
        .kind = Kind::kNumber,
        .default_value = 2,
        .minimum = 1,
        .maximum = 5,
        .doc = "factor per tick of the search for a cost that nothing else tells; 1: no search"},
    ParamSpec{.name = "alarm_sigmas",
              .kind = Kind::kNumber,
              .default_value = 2.5,
              .minimum = 1,
              .maximum = 4,
              .doc = "how surprising a saturation must be to start it"},
    ParamSpec{.name = "enter_margin",
              .kind = Kind::kRatio,
              .default_value = 0.04,
              .minimum = 0,
              .maximum = 0.3,
              .doc = "slow predicted demand above target + this, twice, begins to shed"},
    ParamSpec{.name = "exit",
              .kind = Kind::kRatio,
              .default_value = 0.80,
              .minimum = 0.1,
              .maximum = 0.95,
              .doc = "slow predicted demand below this for half a second ends shedding"},
    ParamSpec{.name = "drain",
              .kind = Kind::kDuration,
              .default_value = 0.2,
              .minimum = 0.1,
              .maximum = 1,
              .doc = "time in which a known backlog is worked off"},
    ParamSpec{.name = "probe",
              .kind = Kind::kRatio,
              .default_value = 0.01,
              .minimum = 0.01,
              .maximum = 0.05,
              .doc = "share that shedding always leaves to every endpoint"},
    ParamSpec{.name = "bucket_rate",
              .kind = Kind::kNumber,
              .default_value = 1.06,
              .minimum = 1.03,
              .maximum = 1.15,
              .doc = "rate of the kernel's CPU budget over the budget of the tick"},
    ParamSpec{.name = "bucket_depth",
              .kind = Kind::kDuration,
              .default_value = 0.05,
              .minimum = 0.02,
              .maximum = 0.2,
              .doc = "its depth, about the worst extra delay"},
    ParamSpec{.name = "in_flight_guard",
              .kind = Kind::kDuration,
              .default_value = 0,
              .minimum = 0,
              .maximum = 1,
              .doc = "cap on live connections, as capacity time of their cost; 0: none"},
    ParamSpec{.name = "connections",
              .kind = Kind::kWord,
              .doc = "off: ignore established, closed and in-flight connections",
              .default_word = "on",
              .words = kOnOff},
    ParamSpec{.name = "oom_time",
              .kind = Kind::kDuration,
              .default_value = 10,
              .minimum = 2,
              .maximum = 60,
              .doc = "memory that would reach the limit within this time is shed for"},
    ParamSpec{.name = "leak_open",
              .kind = Kind::kRatio,
              .default_value = 0.97,
              .minimum = 0.5,
              .maximum = 1,
              .doc = "profile spec: level at which the breaker opens in spite of a leak"},
    ParamSpec{.name = "memory_evidence",
              .kind = Kind::kWord,
              .doc = "on: a level alone does not refuse, it takes pressure, hits of the limit or a "
                     "rise towards it; off: the level alone does",
              .default_word = "on",
              .words = kOnOff},
    ParamSpec{.name = "live_share",
              .kind = Kind::kRatio,
              .default_value = 0.75,
              .minimum = 0.2,
              .maximum = 0.95,
              .doc = "share of the memory limit for base and live connections together"},
    ParamSpec{.name = "live_amplification",
              .kind = Kind::kNumber,
              .default_value = 8,
              .minimum = 1,
              .maximum = 100,
              .doc = "bytes of memory per byte that a live connection has sent"},
};

}  // namespace

std::span<const ParamSpec> parameters() { return kParams; }

Settings settings_of(const Params& params) {
  const auto number = [&](std::string_view name) { return number_of(params, kParams, name); };
  const auto is = [&](std::string_view name, std::string_view word) {
    return word_of(params, kParams, name) == word;
  };
  Settings set;
  set.saturated_at = number("saturated_at");
  set.pressure_loss = number("pressure_loss");
  set.prior_cost_s = number("prior_cost");
  set.prior_byte_share = number("prior_byte_share");
  set.cost_memory_s = number("cost_memory");
  set.relative_memory_s = number("relative_memory");
  set.lower_bound_factor = number("lower_bound_factor");
  set.search_growth = number("search_growth");
  set.alarm_sigmas = number("alarm_sigmas");
  set.enter_margin = number("enter_margin");
  set.exit = number("exit");
  set.drain_s = number("drain");
  set.probe = number("probe");
  set.bucket_rate = number("bucket_rate");
  set.bucket_depth_s = number("bucket_depth");
  set.in_flight_guard_s = number("in_flight_guard");
  set.use_connections = set.count_connections = is("connections", "on");
  set.safe_oom_s = number("oom_time");
  set.leak_open = number("leak_open");
  set.careful_memory = is("memory_evidence", "on");
  set.live_share = number("live_share");
  set.live_amplification = number("live_amplification");
  set.quota = is("quota", "hard")   ? Quota::kHard
              : is("quota", "soft") ? Quota::kSoft
                                    : Quota::kAuto;
  if (is("profile", "spec")) set.to_spec();
  return set;
}

}  // namespace headgate::adaptive
