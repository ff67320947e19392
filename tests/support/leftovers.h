// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <optional>
#include <string_view>

namespace headgate::lab {

/// Removes what tests left behind that were interrupted (Ctrl-C, SIGTERM, a time-out) before their
/// destructors could: pins, temporary directories and cgroups whose names are ours and carry the id
/// of a process that is gone, and the processes in such cgroups. Namespaces end with their
/// processes. Looks once in a process; what belongs to a living test stays.
void remove_leftovers();
/// The same, each time.
void remove_leftovers_now();

/// The process id in "headgate-e2e-PID-...", "headgate-test-PID-..." or "headgate-lab-PID-...".
[[nodiscard]] std::optional<pid_t> owner_in_name(std::string_view name);

}  // namespace headgate::lab
