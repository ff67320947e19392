// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "headgate/strategy.h"

namespace headgate {

/// Gives each endpoint its part of a rate of the whole target, as a hard cap in the kernel. What
/// does not fit is taken away by criticality with floors, as allocate() does; what is to spare is
/// there for everybody. Writes rate_per_s and rate_burst_s of each endpoint. Allocates nothing.
///   rate_per_s: attempts per second of the target, > 0
///   burst: attempts that may come at once, >= 1
///   demand: attempts per second of each endpoint
void split_rate(double rate_per_s, double burst, std::span<const EndpointInput> endpoints,
                std::span<const double> demand, std::span<EndpointDecision> out);

}  // namespace headgate
