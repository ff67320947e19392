// SPDX-License-Identifier: Apache-2.0
#include "agent/cli/decision_csv.h"

#include <optional>
#include <ostream>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "headgate/units.h"

namespace headgate::cli {
namespace {

std::optional<double> internal(const sim::TickRecord& tick, std::string_view name) {
  const auto it = tick.internals.find(name);
  return it != tick.internals.end() ? std::optional(it->second) : std::nullopt;
}

template <class T>
std::string known(const Measured<T>& measured) {
  return measured.known() ? fmt::format("{}", *measured) : std::string();
}
std::string ratio(const Measured<Ratio>& measured) {
  return measured.known() ? fmt::format("{:.9g}", (*measured).value) : std::string();
}

std::string cell(const sim::TickRecord& tick, const std::string& name, int digits) {
  const auto value = internal(tick, name);
  return value ? fmt::format("{:.{}f}", *value, digits) : std::string();
}

std::string state(const sim::TickRecord& tick) {
  if (const auto value = internal(tick, "state")) return fmt::format("{:.0f}", *value);
  return tick.decision.state == State::kNormal ? "0" : "1";
}

}  // namespace

double admitted_share(const sim::TickRecord& tick, std::size_t endpoint) {
  if (tick.decision.circuit_open) return 0;
  return internal(tick, fmt::format("f{}", endpoint))
      .value_or(tick.decision.endpoints[endpoint].admit.value());
}

void print_decision_header(std::size_t endpoints, std::ostream& out) {
  out << "t,u,nper,nthr,psi,mem";
  for (std::size_t i = 0; i < endpoints; ++i) {
    out << fmt::format(",off{0},adm{0},offKB{0},admKB{0}", i);
  }
  out << ",sat,esc,E,g,base_cores,Bhat_cpus,W_cores,bucket_rate_cores,state";
  for (std::size_t i = 0; i < endpoints; ++i) {
    out << fmt::format(",c{0}_s,d{0}_s_per_KB,f{0}", i);
  }
  out << '\n';
}

void print_decision(const sim::TickRecord& tick, std::ostream& out) {
  const sim::Observation& o = tick.observation;
  const Signals& s = o.signals;
  out << fmt::format("{:.3f},{},{},{},{},{}", o.at_s, ratio(s.cpu), known(s.periods),
                     known(s.throttled_periods), ratio(s.cpu_pressure), ratio(s.memory));
  for (const EndpointActivity& a : o.endpoints) {
    out << fmt::format(",{},{},{:.9g},{:.9g}", a.offered, a.admitted,
                       static_cast<double>(a.offered_bytes) / kBytesPerKb,
                       static_cast<double>(a.admitted_bytes) / kBytesPerKb);
  }
  for (const auto& [name, digits] :
       {std::pair("sat", 0), std::pair("esc", 0), std::pair("E", 1), std::pair("g", 6),
        std::pair("base_cores", 6), std::pair("Bhat_cpus", 6), std::pair("W_cores", 6),
        std::pair("bucket_rate_cores", 6)}) {
    out << ',' << cell(tick, name, digits);
  }
  out << ',' << state(tick);
  for (std::size_t i = 0; i < o.endpoints.size(); ++i) {
    out << ',' << cell(tick, fmt::format("c{}_s", i), 9) << ','
        << cell(tick, fmt::format("d{}_s_per_KB", i), 9)
        << fmt::format(",{:.6f}", admitted_share(tick, i));
  }
  out << '\n';
}

}  // namespace headgate::cli
