// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "agent/config/config.h"

namespace headgate {

/// One stock sender that loses data with a form of refusal, and what its owner can do.
struct SenderWarning {
  std::string_view sender;  ///< "Go SDK, OTLP/HTTP"
  std::string_view effect;  ///< what is lost, and why
  std::string_view remedy;
};

/// Which stock senders lose data when an endpoint of this protocol refuses in this form: measured
/// with collector 0.161, OpenTelemetry Go 1.47, Python 1.45, Java 1.68, JS 0.223 and Prometheus
/// 2.42 at default settings over refusals of 8 s (docs/senders.md; tests/senders/run measures what
/// the Collector, Go and Python do). Empty = none of them. Under defer somebody is let in before
/// the deadline: where nobody is, it ends like a reset. An excess that lasts more than 10 s loses
/// data with every SDK, whatever the form.
[[nodiscard]] std::vector<SenderWarning> sender_warnings(Protocol protocol,
                                                         const RefuseConfig& refuse);

/// "SENDER: EFFECT; REMEDY".
[[nodiscard]] std::string to_string(const SenderWarning& warning);

}  // namespace headgate
