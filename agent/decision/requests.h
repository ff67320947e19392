// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "headgate/bpf_abi.h"
#include "headgate/strategy.h"

namespace headgate {

/// Of a port on which requests are refused: the connections that carry none that can be seen (TLS,
/// HTTP/2 where HTTP/1.1 is configured, older than the agent). What is recognised is judged and
/// paid for request by request, so its connections cost nothing by themselves; the others are gated
/// as connections, as on any port. Pure.
class Unrecognized {
 public:
  /// Share of the connections that carry no requests: over the last fifty or so. Begins with none,
  /// because requests are what the port is configured for.
  [[nodiscard]] double share() const;

  /// What a tick brought the whole port becomes what its unrecognised connections brought. Which
  /// kind a connection is, its first bytes tell: before them it is no work of either.
  void reduce(EndpointActivity& activity, std::uint64_t recognized, std::uint64_t unrecognized);

 private:
  [[nodiscard]] std::uint64_t part(std::uint64_t whole, double& carry) const;

  double told_ = 1;    ///< of which kind they are, lately: fading with each that comes
  double unseen_ = 0;  ///< of those
  double offered_ = 0, admitted_ = 0, refused_ = 0, deferred_ = 0, closed_ = 0, bytes_ = 0,
         responses_ = 0;  ///< fractions carried from tick to tick
};

/// What came to a route, or to what has none, between two readings of its counters. A request is to
/// a strategy what a connection is elsewhere: it is established when it is admitted and closed when
/// it is answered. `answers_seen`: false where no answer is (the programs on cgroup_skb are not
/// attached): then what is in flight and how long it takes are not known.
[[nodiscard]] EndpointActivity request_activity(const headgate_counters& now,
                                                const headgate_counters& before,
                                                std::uint64_t in_flight, bool answers_seen);

/// The decision for a port, of which only this share of the connections is unrecognised: charge and
/// share fall with it, a rate rises; nothing of them is left where it is next to none. Circuit,
/// caps and the budget of live bytes are no part of it and stay.
[[nodiscard]] EndpointDecision for_unrecognized(const EndpointDecision& port, double share);
/// From this share on a port's connections are gated.
inline constexpr double kUnrecognizedLeast = 0.05;

/// A cap on what the whole target has in flight, for the part that is made of requests: each route
/// may have what those at least as critical leave of it, and one in any case. Writes
/// `connections_max` of the endpoints that are requests.
void spread_in_flight(std::uint64_t cap, std::span<const EndpointInput> endpoints,
                      std::span<EndpointDecision> out);

}  // namespace headgate
