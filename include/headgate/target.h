// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

namespace headgate {

/// Google's four tiers: what is refused first when not everything can be served.
enum class Criticality : std::uint8_t {
  kSheddable,
  kSheddablePlus,
  kCritical,
  kCriticalPlus,
  kCount
};
[[nodiscard]] std::string_view to_string(Criticality criticality);

enum class Protocol : std::uint8_t { kTcp, kUdp, kHttp, kGrpc, kCount };
[[nodiscard]] std::string_view to_string(Protocol protocol);

/// What the target is under. Label of headgate_state{state}.
enum class State : std::uint8_t {
  kUnknown,   ///< nothing is known for longer than the lease: everything is admitted
  kNormal,    ///< nothing is refused
  kShedding,  ///< a share is refused
  kOpen,      ///< the circuit is open: only probes come in
  kCount,
};
[[nodiscard]] std::string_view to_string(State state);

}  // namespace headgate
