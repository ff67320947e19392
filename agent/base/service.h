// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "headgate/result.h"

namespace headgate {

/// Tells the service manager (sd_notify(3) protocol on $NOTIFY_SOCKET): "READY=1", "WATCHDOG=1",
/// "STOPPING=1", "STATUS=...". Does nothing where there is none.
void notify_service(std::string_view message);

/// How often the manager wants WATCHDOG=1 ($WATCHDOG_USEC); 0 = not at all.
[[nodiscard]] std::chrono::microseconds watchdog_interval();

/// A starved agent decides on old numbers: asks for SCHED_FIFO, else for nice -20. Returns what it
/// got ("SCHED_FIFO", "nice -20"); errors say what is missing and what that costs.
[[nodiscard]] Result<std::string> raise_priority();

/// CPU time used and memory resident, of this process.
struct OwnUsage {
  double cpu_seconds = 0;
  std::uint64_t resident_bytes = 0;
};
[[nodiscard]] OwnUsage own_usage();

/// CPUs of the machine, whatever this process or its cgroup may use of them; 0 = not known. Reads
/// /sys: once a second is often enough, because CPUs are plugged in by people.
[[nodiscard]] unsigned machine_cpus();

/// uname(2) release, "6.1.0-57-cloud-amd64".
[[nodiscard]] std::string kernel_release();

}  // namespace headgate
