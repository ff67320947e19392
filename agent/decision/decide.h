// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "headgate/strategy.h"

namespace headgate {

/// Spreads a share that must be refused over the endpoints: the least critical class gives first,
/// each endpoint keeps its floor in the first round; what is then still missing is taken from
/// everybody equally (second round). Writes `admit` and `reason` of each endpoint. Allocates
/// nothing.
///   refuse_share: share of the whole demand to refuse, [0, 1]; NaN = 0
///   demand: attempts per second of each endpoint (any common unit), >= 0; what is not a finite
///           positive number is no demand; all 0 = refuse the same share everywhere
///   minimum: no endpoint's share falls below this (probe), [0, 1]
void allocate(double refuse_share, std::span<const EndpointInput> endpoints,
              std::span<const double> demand, double minimum, std::span<EndpointDecision> out);

}  // namespace headgate
