// SPDX-License-Identifier: Apache-2.0
// What has come to a target since its last tick, from the kernel's counters.
#include <algorithm>
#include <cmath>

#include "headgate/bpf_abi.h"

#include "agent/decision/lives.h"
#include "agent/protected_target.h"

namespace headgate {

/// What has come since the last decision, from the kernel's exact counters.
void ProtectedTarget::collect_activity(Instant now_at) {
  std::uint64_t would_refuse = 0;
  std::uint64_t closed = 0;
  double lives_s = 0;
  std::uint64_t lives = 0;
  for (Endpoint& endpoint : endpoints_) {
    if (endpoint.input == kNoInput) {
      continue;
    }
    EndpointActivity& activity = inputs_[endpoint.input].activity;
    const std::uint64_t stirred = shared_.maps.stirred(endpoint.slot);
    if (stirred == endpoint.stirred && activity.in_flight_known && activity.in_flight == 0 &&
        counts_connections_) {
      const bool responses_known = activity.responses_known;
      const bool sizes_known = activity.sizes_known;
      activity = {};
      activity.in_flight_known = true;
      activity.responses_known = responses_known;
      activity.sizes_known = sizes_known;
      endpoint.beside.update(now_at, endpoint.last.tries + endpoint.last.repeats,
                             endpoint.last.established);
      continue;
    }
    endpoint.stirred = stirred;
    const headgate_counters now = shared_.maps.counters(endpoint.slot);
    if (endpoint.is_port()) {
      collect_port(endpoint, now, activity);
      endpoint.beside.update(now_at, now.tries + now.repeats, now.established);
      closed += activity.closed;
      lives += activity.responses;
      lives_s += activity.response_s_sum;
      if (requests_gated(endpoint)) {
        endpoint.unrecognized.reduce(activity, now.recognized - endpoint.last.recognized,
                                     now.unrecognized - endpoint.last.unrecognized);
      }
    } else {
      collect_requests(endpoint, now, activity);
    }
    for (std::size_t reason = 0; reason < HEADGATE_REASON_COUNT; ++reason) {
      would_refuse += now.would_refuse[reason] - endpoint.last.would_refuse[reason];
    }
    endpoint.last = now;
  }
  had_no_room_ = would_refuse > 0;
  const double elapsed_s = collected_at_ == Instant{} ? 0 : seconds(now_at - collected_at_);
  collected_at_ = now_at;
  if (elapsed_s > 0) {
    const double weight = 1 - std::exp(-elapsed_s);
    closes_per_s_ += weight * (static_cast<double>(closed) / elapsed_s - closes_per_s_);
    if (lives > 0) {
      const double mean_s = lives_s / static_cast<double>(lives);
      response_s_ += (response_s_ > 0 ? weight : 1) * (mean_s - response_s_);
    }
  }
}

/// Connections and datagrams.
void ProtectedTarget::collect_port(Endpoint& endpoint, const headgate_counters& counters,
                                   EndpointActivity& activity) const {
  const headgate_counters& before = endpoint.last;
  activity.offered = counters.offered - before.offered;
  activity.admitted = counters.admitted - before.admitted;
  activity.refused = counters.reset + counters.expired + counters.dropped - before.reset -
                     before.expired - before.dropped;
  activity.deferred = counters.deferred - before.deferred;
  activity.established = counters.established - before.established;
  activity.closed = counters.closed - before.closed;
  activity.received_bytes = counters.received_bytes - before.received_bytes;
  activity.in_flight = in_flight(endpoint) + endpoint.legacy_connections;
  activity.in_flight_known = counts_connections_ && endpoint.config->protocol != Protocol::kUdp;
  collect_responses(endpoint, counters, activity);
  collect_sizes(endpoint, counters, activity);
}

/// Requests of a route, or of none. While they are not gated they are work of their connections,
/// and must not be counted twice.
void ProtectedTarget::collect_requests(Endpoint& endpoint, const headgate_counters& counters,
                                       EndpointActivity& activity) {
  if (!requests_gated(endpoint)) {
    activity = {};
    activity.in_flight_known = activity.responses_known = true;
    return;
  }
  activity = request_activity(counters, endpoint.last, in_flight(endpoint), counts_payload_);
  collect_lives(endpoint, activity);
}

/// The kernel's count since the attach: for a moment it may be below zero.
std::uint64_t ProtectedTarget::in_flight(const Endpoint& endpoint) const {
  const auto live = static_cast<std::int64_t>(shared_.maps.endpoint_state(endpoint.slot).in_flight);
  return static_cast<std::uint64_t>(std::max<std::int64_t>(live, 0));
}

/// How the times of the responses in this tick were spread.
void ProtectedTarget::collect_lives(Endpoint& endpoint, EndpointActivity& activity) const {
  activity.response_s_min = activity.response_s_p99 = 0;
  if (activity.responses == 0) {
    return;
  }
  const headgate_life_histogram& histogram = shared_.maps.lives(endpoint.slot);
  const Lives lives = lives_between(endpoint.lives, histogram);
  endpoint.lives = histogram;
  activity.response_s_min = lives.min_s;
  activity.response_s_p99 = lives.p99_s;
}

/// A connection that carried one request tells a response time by its life. On gRPC's connections,
/// which live on, nothing is known until requests are seen.
void ProtectedTarget::collect_responses(Endpoint& endpoint, const headgate_counters& counters,
                                        EndpointActivity& activity) const {
  activity.responses_known = counts_connections_ && endpoint.config->protocol != Protocol::kUdp &&
                             endpoint.config->protocol != Protocol::kGrpc;
  activity.responses = counters.responses - endpoint.last.responses;
  activity.response_s_sum =
      static_cast<double>(counters.response_ns - endpoint.last.response_ns) * 1e-9;
  collect_lives(endpoint, activity);
}

/// sk_lookup sees no size: what was let in is counted behind it. The share is blind for sizes, so
/// what was offered had the same mean.
void ProtectedTarget::collect_sizes(Endpoint& endpoint, const headgate_counters& counters,
                                    EndpointActivity& activity) const {
  if (endpoint.config->protocol != Protocol::kUdp || !counts_payload_) {
    return;
  }
  activity.admitted_bytes = counters.payload_bytes - endpoint.last.payload_bytes;
  if (activity.admitted > 0 && activity.admitted_bytes > 0) {
    endpoint.datagram_bytes =
        static_cast<double>(activity.admitted_bytes) / static_cast<double>(activity.admitted);
  }
  activity.sizes_known = endpoint.datagram_bytes > 0;
  activity.offered_bytes =
      static_cast<std::uint64_t>(static_cast<double>(activity.offered) * endpoint.datagram_bytes);
}

}  // namespace headgate
