// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "headgate/bpf_abi.h"

namespace headgate::web {

// The words for the enums of bpf_abi.h: label values and JSON, so they are an interface.
[[nodiscard]] std::string_view to_string(headgate_reason reason);
[[nodiscard]] std::string_view to_string(headgate_action action);
[[nodiscard]] std::string_view to_string(headgate_left why);

/// "EPERM" for 1; "errno 9999" for what has no name.
[[nodiscard]] std::string errno_name(int sys_errno);

/// "2026-03-01T12:00:00Z".
[[nodiscard]] std::string utc_time(std::int64_t unix_ms);

/// The same text with every byte that is no UTF-8 replaced by U+FFFD: a label value that is not
/// UTF-8 would make Prometheus refuse the whole scrape, and cgroup names may hold any byte.
[[nodiscard]] std::string valid_utf8(std::string_view text);

}  // namespace headgate::web
