// SPDX-License-Identifier: Apache-2.0
#include "agent/trace.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "headgate/smoothed.h"
#include "headgate/units.h"

#include "agent/signals/signals.h"

namespace headgate {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kMagic = "# headgate-trace ";
constexpr int kVersion = 1;
constexpr std::size_t kMostEndpoints = 64;
/// Any instant but the epoch, which means "never" to some.
constexpr Instant kBegin{std::chrono::seconds(1000)};
/// What the vectors of the specification were recorded from.
constexpr double kVectorCores = 2;
constexpr std::array kVectorFloors{0.0, 0.2, 0.5, 0.8};

using Number = std::optional<double>;

// ---------------------------------------------------------------- the columns

enum class Kind : std::uint8_t {
  kReal,      ///< finite
  kPositive,  ///< finite and not negative
  kCount,     ///< a whole number, not negative
  kFlag,      ///< 0 or 1
};

/// A column of the target, or (with its index behind the name) of each endpoint.
struct Column {
  std::string_view name;
  Kind kind = Kind::kReal;
  Number (*get)(const TraceTick& tick, std::size_t i) = nullptr;  ///< nullptr: read only
  void (*set)(TraceTick& tick, std::size_t i, Number value) = nullptr;
};

template <class T>
Number number(const Measured<T>& measured) {
  if (!measured.known()) return std::nullopt;
  if constexpr (std::is_same_v<T, Ratio>) {
    return (*measured).value;
  } else {
    return static_cast<double>(*measured);
  }
}

template <class T>
void assign(Measured<T>& out, Number value) {
  if (!value) {
    out = Unknown::kNotRead;
  } else if constexpr (std::is_same_v<T, Ratio>) {
    out = Ratio{*value};
  } else {
    out = static_cast<T>(*value);
  }
}

std::uint64_t count(Number value) {
  return value ? static_cast<std::uint64_t>(std::llround(*value)) : 0;
}

Number state_number(State state) {
  switch (state) {
    case State::kNormal: return 0;
    case State::kShedding: return 1;
    case State::kOpen: return 2;
    case State::kUnknown:
    case State::kCount: break;
  }
  return std::nullopt;
}

template <auto kMember, Kind kKind = Kind::kReal>
constexpr Column signal(std::string_view name) {
  return {name, kKind,
          [](const TraceTick& tick, std::size_t) { return number(tick.signals.*kMember); },
          [](TraceTick& tick, std::size_t, Number value) { assign(tick.signals.*kMember, value); }};
}

const std::array kTargetColumns{
    Column{"t", Kind::kPositive,
           [](const TraceTick& tick, std::size_t) { return Number(tick.at_s); },
           [](TraceTick& tick, std::size_t, Number value) { tick.at_s = value.value_or(0); }},
    Column{
        "interval", Kind::kPositive,
        [](const TraceTick& tick, std::size_t) { return Number(seconds(tick.signals.interval)); },
        [](TraceTick& tick, std::size_t, Number value) {
          tick.signals.interval = Duration(std::llround(value.value_or(0) * 1e9));
        }},
    Column{"cores", Kind::kPositive,
           [](const TraceTick& tick, std::size_t) {
             return tick.signals.capacity_cores > 0 ? Number(tick.signals.capacity_cores)
                                                    : std::nullopt;
           },
           [](TraceTick& tick, std::size_t, Number value) {
             tick.signals.capacity_cores = value.value_or(0);
           }},
    signal<&Signals::cpu, Kind::kPositive>("u"),
    signal<&Signals::cpu_fast, Kind::kPositive>("cpu_fast"),
    signal<&Signals::cpu_slow, Kind::kPositive>("cpu_slow"),
    signal<&Signals::periods, Kind::kCount>("nper"),
    signal<&Signals::throttled_periods, Kind::kCount>("nthr"),
    signal<&Signals::cpu_pressure, Kind::kPositive>("psi"),
    signal<&Signals::memory, Kind::kPositive>("mem"),
    signal<&Signals::memory_slope_per_second>("mem_slope"),
    signal<&Signals::memory_pressure, Kind::kPositive>("mem_psi"),
    signal<&Signals::memory_limit_hits, Kind::kCount>("mem_hits"),
    signal<&Signals::oom_kills, Kind::kCount>("oom"),
    signal<&Signals::memory_limit_bytes, Kind::kCount>("mem_limit"),
    signal<&Signals::load1, Kind::kPositive>("load1"),
    Column{"restarted", Kind::kFlag,
           [](const TraceTick& tick, std::size_t) { return Number(tick.restarted ? 1 : 0); },
           [](TraceTick& tick, std::size_t, Number value) { tick.restarted = value == 1; }},
    Column{"live_mem", Kind::kCount,
           [](const TraceTick& tick, std::size_t) {
             return tick.live_bytes_known ? Number(static_cast<double>(tick.live_bytes))
                                          : std::nullopt;
           },
           [](TraceTick& tick, std::size_t, Number value) {
             tick.live_bytes = count(value);
             tick.live_bytes_known = value.has_value();
           }},
    Column{"largest", Kind::kCount,
           [](const TraceTick& tick, std::size_t) {
             return Number(static_cast<double>(tick.largest_request_bytes));
           },
           [](TraceTick& tick, std::size_t, Number value) {
             tick.largest_request_bytes = count(value);
           }},
};

template <auto kMember>
constexpr Column activity(std::string_view name) {
  return {name, Kind::kCount,
          [](const TraceTick& tick, std::size_t i) {
            return Number(static_cast<double>(tick.endpoints[i].*kMember));
          },
          [](TraceTick& tick, std::size_t i, Number value) {
            tick.endpoints[i].*kMember = count(value);
          }};
}

/// Known together with a flag: written where the flag is set, and a cell that is there sets it.
template <auto kMember, auto kFlag>
constexpr Column known_activity(std::string_view name) {
  return {name, Kind::kCount,
          [](const TraceTick& tick, std::size_t i) {
            const EndpointActivity& a = tick.endpoints[i];
            return a.*kFlag ? Number(static_cast<double>(a.*kMember)) : std::nullopt;
          },
          [](TraceTick& tick, std::size_t i, Number value) {
            tick.endpoints[i].*kMember = count(value);
            if (value) tick.endpoints[i].*kFlag = true;
          }};
}

template <auto kMember>
constexpr Column response(std::string_view name) {
  return {name, Kind::kPositive,
          [](const TraceTick& tick, std::size_t i) {
            const EndpointActivity& a = tick.endpoints[i];
            return a.responses_known && a.responses > 0 ? Number(a.*kMember) : std::nullopt;
          },
          [](TraceTick& tick, std::size_t i, Number value) {
            tick.endpoints[i].*kMember = value.value_or(0);
          }};
}

template <auto kMember>
constexpr Column kilobytes(std::string_view name) {
  return {name, Kind::kPositive, nullptr, [](TraceTick& tick, std::size_t i, Number value) {
            if (!value) return;
            tick.endpoints[i].*kMember = count(*value * kBytesPerKb);
            tick.endpoints[i].sizes_known = true;
          }};
}

const std::array kEndpointColumns{
    activity<&EndpointActivity::offered>("off"),
    activity<&EndpointActivity::admitted>("adm"),
    activity<&EndpointActivity::refused>("ref"),
    activity<&EndpointActivity::deferred>("def"),
    activity<&EndpointActivity::established>("est"),
    activity<&EndpointActivity::closed>("closed"),
    activity<&EndpointActivity::received_bytes>("rxB"),
    known_activity<&EndpointActivity::in_flight, &EndpointActivity::in_flight_known>("live"),
    known_activity<&EndpointActivity::offered_bytes, &EndpointActivity::sizes_known>("offB"),
    known_activity<&EndpointActivity::admitted_bytes, &EndpointActivity::sizes_known>("admB"),
    kilobytes<&EndpointActivity::offered_bytes>("offKB"),
    kilobytes<&EndpointActivity::admitted_bytes>("admKB"),
    known_activity<&EndpointActivity::responses, &EndpointActivity::responses_known>("resp"),
    response<&EndpointActivity::response_s_sum>("resp_sum"),
    response<&EndpointActivity::response_s_min>("resp_min"),
    response<&EndpointActivity::response_s_p99>("resp_p99"),
    Column{"f", Kind::kPositive,
           [](const TraceTick& tick, std::size_t i) {
             return i < tick.admitted_share.size() ? Number(tick.admitted_share[i]) : std::nullopt;
           },
           [](TraceTick& tick, std::size_t i, Number value) {
             if (value && i < tick.admitted_share.size()) tick.admitted_share[i] = *value;
           }},
};

const Column kStateColumn{
    "state", Kind::kCount,
    [](const TraceTick& tick, std::size_t) { return state_number(tick.state); },
    [](TraceTick& tick, std::size_t, Number value) {
      tick.state = !value        ? State::kUnknown
                   : *value == 0 ? State::kNormal
                   : *value == 1 ? State::kShedding
                                 : State::kOpen;
    }};

// ---------------------------------------------------------------- writing

void put(std::string& line, Number value) {
  if (!line.empty()) line += ',';
  if (value && std::isfinite(*value)) line += fmt::format("{:.12g}", *value);
}

Json params_json(const Params& params) {
  Json out = Json::object();
  for (const auto& [name, value] : params.numbers) out[name] = value;
  for (const auto& [name, word] : params.words) out[name] = word;
  if (!params.points.empty()) {
    Json points = Json::array();
    for (const CurvePoint& point : params.points) {
      points.push_back(Json::array({point.level, point.refuse}));
    }
    out["points"] = points;
  }
  if (!params.parts.empty()) out["parts"] = params.parts;
  return out;
}

// ---------------------------------------------------------------- reading

/// Where reading is, for errors.
struct Place {
  const std::string& file;
  std::size_t line = 1;
  [[nodiscard]] tl::unexpected<Error> error(const std::string& what) const {
    return fail(fmt::format("{}:{}: {}", file, line, what));
  }
};

std::vector<std::string_view> split(std::string_view line) {
  std::vector<std::string_view> out;
  for (std::size_t from = 0;;) {
    const std::size_t comma = line.find(',', from);
    out.push_back(line.substr(from, comma - from));
    if (comma == std::string_view::npos) return out;
    from = comma + 1;
  }
}

/// Takes the first line off `text`.
std::string_view next_line(std::string_view& text) {
  const std::size_t end = text.find('\n');
  std::string_view line = text.substr(0, end);
  text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
  return line;
}

void read_params(const Json& json, Params& params) {
  for (const auto& [name, value] : json.items()) {
    if (name == "points") {
      for (const Json& point : value) {
        params.points.push_back({point.at(0).get<double>(), point.at(1).get<double>()});
      }
    } else if (name == "parts") {
      params.parts = value.get<std::vector<std::string>>();
    } else if (value.is_number()) {
      params.numbers[name] = value.get<double>();
    } else {
      params.words[name] = value.get<std::string>();
    }
  }
}

double share_of(const Json& json, const char* key, double otherwise) {
  const double value = json.value(key, otherwise);
  if (!(value >= 0 && value <= 1)) {
    throw std::out_of_range(fmt::format("'{}' is {}, allowed: 0 to 1", key, value));
  }
  return value;
}

TraceHeader read_head(const Json& json) {
  TraceHeader out;
  out.target = json.value("target", "");
  out.agent_version = json.value("agent", "");
  out.started_unix_ms = json.value("started_unix_ms", std::int64_t{0});
  const Json strategy = json.value("strategy", Json::object());
  out.strategy = strategy.value("name", out.strategy);
  read_params(strategy.value("params", Json::object()), out.params);
  const Json settings = json.value("settings", Json::object());
  out.use_target = share_of(settings, "target", out.use_target);
  out.memory_shed = share_of(settings, "memory_shed", out.memory_shed);
  out.memory_open = share_of(settings, "memory_open", out.memory_open);
  out.memory_close = share_of(settings, "memory_close", out.memory_close);
  out.bucket_enforced = settings.value("bucket_enforced", true);
  for (const Json& one : json.at("endpoints")) {
    TraceHeader::Endpoint endpoint;
    endpoint.name = one.value("name", "");
    const std::string tier = one.value("criticality", "critical");
    bool known = false;
    for (std::uint8_t i = 0; i < static_cast<std::uint8_t>(Criticality::kCount); ++i) {
      if (tier == to_string(static_cast<Criticality>(i))) {
        endpoint.criticality = static_cast<Criticality>(i);
        known = true;
      }
    }
    if (!known) throw std::out_of_range("unknown criticality '" + tier + "'");
    endpoint.floor = share_of(one, "floor", 0);
    endpoint.tcp = one.value("tcp", true);
    endpoint.requests = one.value("requests", false);
    endpoint.refused_by_server = one.value("refused_by_server", false);
    out.endpoints.push_back(std::move(endpoint));
  }
  return out;
}

struct Cell {
  const Column* column = nullptr;  ///< nullptr: not known to this reader
  std::size_t endpoint = 0;
};

/// The column that a name means, and of which endpoint.
Cell find_column(std::string_view name, std::size_t& endpoints) {
  for (const Column& column : kTargetColumns) {
    if (column.name == name) return {&column, 0};
  }
  if (name == kStateColumn.name) return {&kStateColumn, 0};
  // The names themselves may end in digits (resp_p99): what is behind a name must be the number.
  for (const Column& column : kEndpointColumns) {
    const std::string_view tail = name.substr(std::min(column.name.size(), name.size()));
    if (!name.starts_with(column.name) || tail.empty() || tail.size() > 2) continue;
    std::size_t index = 0;
    const auto [end, problem] = std::from_chars(tail.data(), tail.data() + tail.size(), index);
    if (problem == std::errc{} && end == tail.data() + tail.size() && index < kMostEndpoints) {
      endpoints = std::max(endpoints, index + 1);
      return {&column, index};
    }
  }
  return {};
}

/// The number in a cell, or what is wrong with it.
Result<Number> read_cell(std::string_view text, Kind kind) {
  if (text.empty()) return Number{};
  double value = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (problem != std::errc{} || end != text.data() + text.size() || !std::isfinite(value)) {
    return fail(fmt::format("'{}' is no number", text));
  }
  constexpr double kMostCount = 9e15;  // exact in a double
  const bool fits = kind == Kind::kReal       ? true
                    : kind == Kind::kPositive ? value >= 0
                    : kind == Kind::kFlag
                        ? value == 0 || value == 1
                        : value >= 0 && value <= kMostCount && value == std::floor(value);
  if (!fits) {
    return fail(fmt::format("'{}' is {}", text,
                            kind == Kind::kPositive ? "negative; allowed: 0 and more"
                            : kind == Kind::kFlag   ? "neither 0 nor 1"
                                                  : "no count; allowed: whole numbers from 0 on"));
  }
  return Number(value);
}

/// Signals that a trace without them does not need: derived as the agent derives them.
class Deriver {
 public:
  void fill(TraceTick& tick, bool has_fast, bool has_slow, bool has_slope) {
    Signals& s = tick.signals;
    if (s.cpu.known()) {
      fast_.add((*s.cpu).value, s.interval);
      slow_.add((*s.cpu).value, s.interval);
      if (!has_fast) s.cpu_fast = Ratio{fast_.value()};
      if (!has_slow) s.cpu_slow = Ratio{slow_.value()};
    }
    if (s.memory.known()) {
      const double level = (*s.memory).value;
      const double dt_s = seconds(s.interval);
      if (memory_ && dt_s > 0) slope_.add((level - *memory_) / dt_s, s.interval);
      if (!has_slope && slope_.started()) s.memory_slope_per_second = slope_.value();
      memory_ = level;
    }
    if (s.periods.known() && s.throttled_periods.known() && *s.periods > 0) {
      s.throttled = Ratio{std::min(
          1.0, static_cast<double>(*s.throttled_periods) / static_cast<double>(*s.periods))};
    }
  }

 private:
  Smoothed fast_{kCpuFastTimeConstant};
  Smoothed slow_{kCpuSlowTimeConstant};
  Smoothed slope_{kMemorySlopeTimeConstant};
  Number memory_;
};

}  // namespace

std::string trace_head(const TraceHeader& header) {
  Json json;
  json["version"] = kVersion;
  json["target"] = header.target;
  json["agent"] = header.agent_version;
  json["started_unix_ms"] = header.started_unix_ms;
  json["strategy"] = {{"name", header.strategy}, {"params", params_json(header.params)}};
  json["settings"] = {{"target", header.use_target},
                      {"memory_shed", header.memory_shed},
                      {"memory_open", header.memory_open},
                      {"memory_close", header.memory_close},
                      {"bucket_enforced", header.bucket_enforced}};
  json["endpoints"] = Json::array();
  for (const TraceHeader::Endpoint& endpoint : header.endpoints) {
    json["endpoints"].push_back({{"name", endpoint.name},
                                 {"criticality", to_string(endpoint.criticality)},
                                 {"floor", endpoint.floor},
                                 {"tcp", endpoint.tcp},
                                 {"requests", endpoint.requests},
                                 {"refused_by_server", endpoint.refused_by_server}});
  }
  std::string out(kMagic);
  out += json.dump(-1, ' ', false, Json::error_handler_t::replace);
  out += '\n';
  std::string names;
  const auto add = [&](const std::string& name) { names += (names.empty() ? "" : ",") + name; };
  for (const Column& column : kTargetColumns) add(std::string(column.name));
  for (std::size_t i = 0; i < header.endpoints.size(); ++i) {
    for (const Column& column : kEndpointColumns) {
      if (column.get != nullptr) add(fmt::format("{}{}", column.name, i));
    }
  }
  add(std::string(kStateColumn.name));
  return out + names + '\n';
}

std::string trace_line(const TraceTick& tick) {
  std::string line;
  for (const Column& column : kTargetColumns) put(line, column.get(tick, 0));
  for (std::size_t i = 0; i < tick.endpoints.size(); ++i) {
    for (const Column& column : kEndpointColumns) {
      if (column.get != nullptr) put(line, column.get(tick, i));
    }
  }
  put(line, kStateColumn.get(tick, 0));
  return line + '\n';
}

Result<Trace> read_trace(std::string_view text, const std::string& name) {
  Trace out;
  Place place{name};
  std::string_view line = next_line(text);
  if (line.substr(0, kMagic.size()) == kMagic) {
    try {
      const Json json = Json::parse(line.substr(kMagic.size()));
      const int version = json.value("version", 0);
      if (version != kVersion) {
        return place.error(fmt::format("a trace of version {}; this headgate reads version {}",
                                       version, kVersion));
      }
      out.header = read_head(json);
      out.has_header = true;
    } catch (const std::exception& e) {
      return place.error(fmt::format("the first line is broken: {}", e.what()));
    }
    line = next_line(text);
    ++place.line;
  }

  std::size_t endpoints = 0;
  std::vector<Cell> cells;
  std::map<std::string_view, std::size_t> seen;
  for (const std::string_view column : split(line)) {
    if (!seen.emplace(column, cells.size()).second) {
      return place.error(fmt::format("column '{}' is there twice", column));
    }
    cells.push_back(find_column(column, endpoints));
  }
  for (const char* needed : {"t", "u", "off0", "adm0"}) {
    if (seen.count(needed) == 0) {
      return place.error(
          fmt::format("no column '{}': is this a trace (`headgate record`) or a vector of the "
                      "control law?",
                      needed));
    }
  }
  if (out.has_header && endpoints != out.header.endpoints.size()) {
    return place.error(fmt::format("columns of {} endpoints, but the first line has {}", endpoints,
                                   out.header.endpoints.size()));
  }
  if (!out.has_header) {
    out.header.endpoints.resize(endpoints);
    for (std::size_t i = 0; i < endpoints; ++i) {
      out.header.endpoints[i].name = fmt::format("endpoint{}", i);
      if (endpoints == kVectorFloors.size()) {
        out.header.endpoints[i].criticality = static_cast<Criticality>(i);
        out.header.endpoints[i].floor = kVectorFloors[i];
      }
    }
  }

  const bool has_interval = seen.count("interval") != 0;
  const bool has_cores = seen.count("cores") != 0;
  const bool has_shares = seen.count("f0") != 0;
  Deriver deriver;
  double before_s = 0;
  while (!text.empty()) {
    line = next_line(text);
    ++place.line;
    if (line.empty() || line.front() == '#') continue;
    const std::vector<std::string_view> fields = split(line);
    if (fields.size() != cells.size()) {
      return place.error(fmt::format("{} cells, but {} columns", fields.size(), cells.size()));
    }
    TraceTick tick;
    tick.endpoints.resize(endpoints);
    if (has_shares) tick.admitted_share.assign(endpoints, 1.0);
    for (std::size_t i = 0; i < cells.size(); ++i) {
      if (cells[i].column == nullptr) continue;
      const auto value = read_cell(fields[i], cells[i].column->kind);
      if (!value) {
        const auto column = std::find_if(seen.begin(), seen.end(),
                                         [&](const auto& entry) { return entry.second == i; });
        return place.error(fmt::format("column '{}': {}", column->first, value.error().message));
      }
      cells[i].column->set(tick, cells[i].endpoint, *value);
    }
    if (!out.ticks.empty() && tick.at_s <= before_s) {
      return place.error(fmt::format("time does not advance: {} after {}", tick.at_s, before_s));
    }
    if (!has_interval && tick.at_s > before_s) {
      tick.signals.interval = Duration(std::llround((tick.at_s - before_s) * 1e9));
    }
    if (!has_cores) tick.signals.capacity_cores = kVectorCores;
    tick.signals.at = kBegin + Duration(std::llround(tick.at_s * 1e9));
    deriver.fill(tick, seen.count("cpu_fast") != 0, seen.count("cpu_slow") != 0,
                 seen.count("mem_slope") != 0);
    before_s = tick.at_s;
    out.ticks.push_back(std::move(tick));
  }
  if (out.ticks.empty()) {
    return place.error("no tick in it");
  }
  return out;
}

}  // namespace headgate
