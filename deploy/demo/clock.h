// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "headgate/result.h"

namespace headgate::demo {

/// CLOCK_MONOTONIC.
[[nodiscard]] std::int64_t now_ns();

/// Asks whatever runs to end soon; callable from a signal handler.
void request_stop();
[[nodiscard]] bool stop_requested();
[[nodiscard]] tl::unexpected<Error> interrupted();

/// Returns early when asked to stop.
void sleep_until(std::int64_t at_ns);

}  // namespace headgate::demo
