// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "headgate/params.h"
#include "headgate/result.h"
#include "headgate/strategy.h"

namespace headgate {

/// A trace is what a strategy saw of one target, tick by tick, and what it decided: `headgate
/// record` writes one from a running agent, `headgate replay` decides on it again.
///
/// The file, version 1, is text. First a line "# headgate-trace {JSON}" with what the target is,
/// then a line with the names of the columns, then a line a tick. Numbers are separated by commas;
/// an empty cell is a number that was not known. Columns may stand in any order; those that are not
/// known to the reader are left alone. Counts are of the tick, not cumulative.
///
///   t         s since the trace began            interval   s since the tick before
///   cores     effective cores                    u          CPU used / capacity, never clipped
///   cpu_fast, cpu_slow                           nper, nthr CFS periods, throttled ones
///   psi       share of time short of CPU, [0,1]  mem        working set / limit
///   mem_slope change of mem a second             mem_psi    share of time short of memory
///   mem_hits, oom                                mem_limit  bytes
///   load1     of the node                        restarted  1: another process than before
///   live_mem  bytes received by what is open     largest    bytes, of one request so far
///
/// and for each endpoint I = 0, 1, ...: offI admI refI defI (attempts), estI closedI, rxBI (bytes
/// of what was closed), liveI, offBI admBI (bytes before the verdict), respI resp_sumI resp_minI
/// resp_p99I (s). What was decided: state (0 normal, 1 shedding, 2 open, empty unknown), fI
/// (admitted share).
///
/// The vectors of the control law's specification have no first line and offKBI, admKBI (of 1024
/// bytes) instead of offBI, admBI. They are read as what they were recorded from: two cores; one
/// endpoint is critical, four are the four classes with floors of 0, .2, .5 and .8.
struct TraceHeader {
  std::string target;
  std::string agent_version;
  std::int64_t started_unix_ms = 0;
  std::string strategy{"adaptive"};
  Params params;
  double use_target = 0.9;
  double memory_shed = 0.80;
  double memory_open = 0.92;
  double memory_close = 0.87;
  bool bucket_enforced = true;
  struct Endpoint {
    std::string name;
    Criticality criticality = Criticality::kCritical;
    double floor = 0;  ///< [0, 1]
    bool tcp = true;
    bool requests = false;           ///< as EndpointInput has it
    bool refused_by_server = false;  ///< the same
  };
  std::vector<Endpoint> endpoints;
};

struct TraceTick {
  double at_s = 0;  ///< since the trace began
  Signals signals;
  bool restarted = false;
  bool live_bytes_known = false;
  std::uint64_t live_bytes = 0;
  std::uint64_t largest_request_bytes = 0;
  std::vector<EndpointActivity> endpoints;
  State state = State::kUnknown;       ///< as decided when it was recorded
  std::vector<double> admitted_share;  ///< the same; empty = not in the trace
};

struct Trace {
  TraceHeader header;
  bool has_header = false;
  std::vector<TraceTick> ticks;
};

/// The first two lines, each with its end.
[[nodiscard]] std::string trace_head(const TraceHeader& header);
/// One tick, with the end of the line. As many endpoints as the header has.
[[nodiscard]] std::string trace_line(const TraceTick& tick);

/// `name`: for errors, which say line and column. Errors: another version, a column missing (t, u,
/// off0, adm0), a cell that is no number or out of its range, time that does not advance.
[[nodiscard]] Result<Trace> read_trace(std::string_view text, const std::string& name);

}  // namespace headgate
