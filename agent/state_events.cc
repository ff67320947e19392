// SPDX-License-Identifier: Apache-2.0
#include "agent/state_events.h"

#include <algorithm>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace headgate {
namespace {

constexpr Duration kUntilThereAreNumbers = std::chrono::seconds(1);
constexpr double kMebi = 1024.0 * 1024.0;

/// Refused for good, in whatever form; in observe mode, what would have been.
std::uint64_t kept_out(const headgate_counters& counters, bool observe) {
  return observe ? counters.admitted_observed
                 : counters.reset + counters.expired + counters.dropped + counters.answered;
}

std::uint64_t without(std::uint64_t total, std::uint64_t part) {
  return total - std::min(total, part);
}

std::string percent(double ratio) { return fmt::format("{:.0f} %", 100 * ratio); }

/// "http 62 % of 812/s", of those that keep somebody out.
std::string shares(const TargetSnapshot& target) {
  std::vector<std::string> parts;
  for (const EndpointSnapshot& endpoint : target.endpoints) {
    const std::uint64_t out = kept_out(endpoint.rates, target.mode == Mode::kObserve);
    if (out > 0 && endpoint.rates.offered > 0) {
      const double share = static_cast<double>(out) / static_cast<double>(endpoint.rates.offered);
      parts.push_back(fmt::format("{} {} of {}/s", endpoint.name, percent(std::min(1.0, share)),
                                  endpoint.rates.offered));
    }
    if (endpoint.rates.deferred > 0) {
      parts.push_back(fmt::format("{} {}/s told to wait", endpoint.name, endpoint.rates.deferred));
    }
  }
  return parts.empty() ? "nothing in the last second" : fmt::format("{}", fmt::join(parts, ", "));
}

std::string levels(const TargetSnapshot& target) {
  const Signals& signals = target.signals;
  std::string out = "CPU ";
  if (signals.cpu_fast.known()) {
    out += fmt::format("{} of {:.3g} cores", percent((*signals.cpu_fast).value),
                       signals.capacity_cores);
  } else {
    out += fmt::format("unknown ({})", to_string(signals.cpu_fast.reason));
  }
  out += ", memory ";
  if (signals.memory.known() && signals.memory_limit_bytes.known()) {
    out += fmt::format("{} of {:.0f} MiB", percent((*signals.memory).value),
                       static_cast<double>(*signals.memory_limit_bytes) / kMebi);
  } else {
    out += fmt::format("unknown ({})", to_string(signals.memory.reason));
  }
  return out;
}

}  // namespace

void StateEvents::changed(Instant now) {
  if (changes_ == 0) {
    changed_at_ = now;
  }
  ++changes_;
}

bool StateEvents::due(Instant now) const {
  return changes_ > 0 && now - changed_at_ >= kUntilThereAreNumbers;
}

std::optional<KubeEvent> StateEvents::make(const TargetSnapshot& target, Instant now,
                                           std::int64_t unix_us) {
  const unsigned times = std::exchange(changes_, 0);
  const bool bad = target.state == State::kShedding || target.state == State::kOpen;
  if (!bad && !bad_since_) {
    return std::nullopt;  // began, or tipped over for less than a second
  }
  if (bad && !bad_since_) {
    bad_since_ = now;
    const bool observe = target.mode == Mode::kObserve;
    for (const EndpointSnapshot& endpoint : target.endpoints) {
      before_[endpoint.name] = {
          without(endpoint.counters.offered, endpoint.rates.offered),
          without(kept_out(endpoint.counters, observe), kept_out(endpoint.rates, observe))};
    }
  }
  KubeEvent event;
  event.namespace_name = target.pod->namespace_name;
  event.pod = target.pod->name;
  event.uid = target.pod->uid;
  event.container = target.pod->container;
  event.unix_us = unix_us;
  event.times = times;
  event.warning = target.state != State::kNormal;
  const bool observe = target.mode == Mode::kObserve;
  switch (target.state) {
    case State::kOpen:
      event.reason = "CircuitOpen";
      event.action = observe ? "Observe" : "RefuseAllButProbes";
      break;
    case State::kShedding:
      event.reason = "LoadShedding";
      event.action = observe ? "Observe" : "RefuseExcess";
      break;
    case State::kNormal:
      event.reason = "Recovered";
      event.action = "AdmitAll";
      break;
    case State::kUnknown:
    case State::kCount:
      event.reason = "NotMeasured";
      event.action = "AdmitAll";
      break;
  }
  event.note = note(target, now);
  if (target.state == State::kNormal) {
    bad_since_.reset();
    before_.clear();
  }
  return event;
}

std::string StateEvents::note(const TargetSnapshot& target, Instant now) const {
  const bool observe = target.mode == Mode::kObserve;
  switch (target.state) {
    case State::kOpen:
    case State::kShedding:
      return fmt::format("target {} {}{}: {}; {}; why: {}", target.name,
                         observe ? "would refuse (mode: observe)" : "refuses",
                         target.state == State::kOpen ? " all but probes" : " the excess",
                         shares(target), levels(target), target.why);
    case State::kNormal:
      return fmt::format("target {} takes everything again after {:.0f} s: {}; {}", target.name,
                         seconds(now - bad_since_.value_or(now)), since_then(target),
                         levels(target));
    case State::kUnknown:
    case State::kCount: break;
  }
  return fmt::format("target {} cannot be measured and admits everything: {}; {}", target.name,
                     levels(target), since_then(target));
}

/// "http refused 12345 of 45678", of those that kept somebody out.
std::string StateEvents::since_then(const TargetSnapshot& target) const {
  const bool observe = target.mode == Mode::kObserve;
  std::vector<std::string> parts;
  for (const EndpointSnapshot& endpoint : target.endpoints) {
    const auto found = before_.find(endpoint.name);
    const Totals before = found != before_.end() ? found->second : Totals{};
    const std::uint64_t out = without(kept_out(endpoint.counters, observe), before.kept_out);
    if (out > 0) {
      parts.push_back(fmt::format("{} {} {} of {}", endpoint.name,
                                  observe ? "would have refused" : "refused", out,
                                  without(endpoint.counters.offered, before.offered)));
    }
  }
  return parts.empty() ? "nothing was refused" : fmt::format("{}", fmt::join(parts, ", "));
}

KubeEvent config_event(const std::string& why_refused, const std::string& file,
                       std::int64_t unix_us) {
  KubeEvent event;
  event.unix_us = unix_us;
  event.warning = !why_refused.empty();
  event.reason = event.warning ? "ConfigRefused" : "ConfigTakenOver";
  event.action = event.warning ? "KeepLastGood" : "Reload";
  event.note = event.warning
                   ? fmt::format("{}; the last good configuration stays in force", why_refused)
                   : fmt::format("{} is valid again and in force", file);
  return event;
}

}  // namespace headgate
