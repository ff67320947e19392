// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "headgate/sample.h"

#include "agent/cgroup/hierarchy.h"

namespace headgate {

/// The texts of the cgroup files and of /proc, as pure functions: strict, 64 bits wide, allocating
/// nothing. Text that is not what the kernel documents is `kParse`, never a guess; a documented
/// "no limit" is `kNoLimit`; a key that is not there is `kAbsent`. Keys may come in any order and
/// unknown ones are passed over, because kernels add them.
/// Sources: Documentation/admin-guide/cgroup-v2.rst, cgroup-v1/{memory,cpusets,cpuacct}.rst,
/// scheduler/sched-bwc.rst, accounting/psi.rst, proc(5), cgroups(7).

/// One decimal number in [0, 2^64), alone on its line: cpuacct.usage, memory.current, failcnt.
[[nodiscard]] Measured<std::uint64_t> parse_number(std::string_view text);

/// cpu.max, "QUOTA [PERIOD]" in us, in cores; (0, inf). "max" = kNoLimit; PERIOD is 100000 where it
/// is left out (the kernel's default, and how people write it).
[[nodiscard]] Measured<double> parse_cpu_max(std::string_view text);

/// cpu.cfs_quota_us (-1 = kNoLimit) over cpu.cfs_period_us, in cores; (0, inf).
[[nodiscard]] Measured<double> parse_cfs(std::string_view quota, std::string_view period);

/// cpu.stat of either version, in nanoseconds. Without the cpu controller there are no nr_ keys
/// (v2), and v1 has no usage: those are kAbsent, not 0.
struct CpuStat {
  Measured<std::uint64_t> usage_ns = Unknown::kAbsent;
  Measured<std::uint64_t> periods = Unknown::kAbsent;
  Measured<std::uint64_t> throttled_periods = Unknown::kAbsent;
  Measured<std::uint64_t> throttled_ns = Unknown::kAbsent;
};
[[nodiscard]] CpuStat parse_cpu_stat(std::string_view text, CgroupVersion version);

/// A list of CPUs, "0-3,8,10-11", as their number; (0, 65536]. Empty = kAbsent: inherited.
/// Ranges must rise, as the kernel prints them.
[[nodiscard]] Measured<std::uint32_t> parse_cpu_list(std::string_view text);

/// memory.max or memory.limit_in_bytes; (0, 2^63 - 64 KiB). "max", and the numbers by which v1
/// says unlimited (LONG_MAX rounded down to a page, of up to 64 KiB), are kNoLimit. A limit of 0
/// leaves no ratio to compute and is kParse.
[[nodiscard]] Measured<std::uint64_t> parse_memory_limit(std::string_view text);

/// memory.stat: page cache that reclaim takes first. v1 counts descendants only in
/// total_inactive_file, which is preferred there.
[[nodiscard]] Measured<std::uint64_t> parse_inactive_file(std::string_view text,
                                                          CgroupVersion version);

/// "key value" in memory.events and memory.oom_control: "max", "oom_kill".
[[nodiscard]] Measured<std::uint64_t> parse_keyed(std::string_view text, std::string_view key);

/// /proc/loadavg: the mean of the last minute, its first number; [0, inf).
[[nodiscard]] Measured<double> parse_load1(std::string_view text);

/// cpu.pressure, memory.pressure: total of the "some" line, in us.
[[nodiscard]] Measured<std::uint64_t> parse_pressure_some_us(std::string_view text);

/// One line of /proc/PID/cgroup: "ID:CONTROLLERS:PATH". Only the first two colons divide: systemd
/// and container runtimes put further ones into the path. The views point into `line`.
struct ProcCgroupLine {
  std::uint64_t hierarchy_id = 0;  ///< 0 = the v2 hierarchy
  std::string_view controllers;    ///< "cpu,cpuacct", "name=systemd", "" on v2
  std::string_view path;           ///< begins with '/'; " (deleted)" is taken off
  bool deleted = false;            ///< the cgroup was removed under the process
};
[[nodiscard]] std::optional<ProcCgroupLine> parse_proc_cgroup_line(std::string_view line);
[[nodiscard]] bool has_controller(std::string_view controllers, std::string_view name);

/// One line of /proc/PID/mountinfo that mounts a cgroup hierarchy; others are nullopt.
struct CgroupMount {
  CgroupVersion version = CgroupVersion::kNone;
  std::string root;         ///< which directory of the hierarchy is mounted
  std::string mount_point;  ///< where
};
[[nodiscard]] std::optional<CgroupMount> parse_mountinfo_line(std::string_view line);

/// Target of /proc/PID/ns/net, "net:[4026531840]", as the inode; nullopt otherwise.
[[nodiscard]] std::optional<std::uint32_t> parse_netns_link(std::string_view link);

/// Takes the next line off `rest` (without its newline).
[[nodiscard]] std::string_view next_line(std::string_view& rest);

}  // namespace headgate
