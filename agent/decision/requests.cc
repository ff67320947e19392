// SPDX-License-Identifier: Apache-2.0
#include "agent/decision/requests.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace headgate {
namespace {

constexpr double kConnectionsRemembered = 50;

std::uint64_t tighter(std::uint64_t a, std::uint64_t b) {
  return a == 0 ? b : b == 0 ? a : std::min(a, b);
}

}  // namespace

double Unrecognized::share() const { return std::clamp(unseen_ / told_, 0.0, 1.0); }

std::uint64_t Unrecognized::part(std::uint64_t whole, double& carry) const {
  carry += static_cast<double>(whole) * share();
  const double out = std::floor(carry);
  carry -= out;
  return static_cast<std::uint64_t>(out);
}

void Unrecognized::reduce(EndpointActivity& activity, std::uint64_t recognized,
                          std::uint64_t unrecognized) {
  const auto unseen = static_cast<double>(unrecognized);
  const double told = static_cast<double>(recognized) + unseen;
  const double keep = std::exp(-told / kConnectionsRemembered);
  told_ = std::max(1.0, told_ * keep + told);
  unseen_ = unseen_ * keep + unseen;

  activity.established = unrecognized;
  activity.offered = part(activity.offered, offered_);
  activity.admitted = part(activity.admitted, admitted_);
  activity.refused = part(activity.refused, refused_);
  activity.deferred = part(activity.deferred, deferred_);
  activity.closed = part(activity.closed, closed_);
  activity.received_bytes = part(activity.received_bytes, bytes_);
  const std::uint64_t responses = activity.responses;
  activity.responses = part(responses, responses_);
  if (responses > 0) {
    activity.response_s_sum *=
        static_cast<double>(activity.responses) / static_cast<double>(responses);
  }
  activity.in_flight =
      static_cast<std::uint64_t>(std::llround(static_cast<double>(activity.in_flight) * share()));
}

EndpointActivity request_activity(const headgate_counters& now, const headgate_counters& before,
                                  std::uint64_t in_flight, bool answers_seen) {
  EndpointActivity out;
  out.offered = now.offered - before.offered;
  out.admitted = now.admitted - before.admitted;
  out.refused = now.answered - before.answered;
  out.established = out.admitted;
  out.offered_bytes = now.payload_bytes - before.payload_bytes;
  out.admitted_bytes = now.admitted_bytes - before.admitted_bytes;
  out.received_bytes = out.admitted_bytes;
  out.sizes_known = now.payload_bytes > 0;
  if (answers_seen) {
    out.responses = now.responses - before.responses;
    out.response_s_sum = static_cast<double>(now.response_ns - before.response_ns) * 1e-9;
    out.responses_known = true;
    out.closed = out.responses + (now.closed - before.closed);
    out.in_flight = in_flight;
    out.in_flight_known = true;
  }
  return out;
}

EndpointDecision for_unrecognized(const EndpointDecision& port, double share) {
  EndpointDecision out = port;
  if (!(share >= kUnrecognizedLeast)) {
    out.admit = Probability::always();
    out.reason = HEADGATE_REASON_NONE;
    out.charge_request_s = out.charge_kb_s = out.depth_s = 0;
    out.connections_max = 0;
    out.rate_per_s = 0;
    return out;
  }
  out.admit = Probability::admitting(1 - (1 - port.admit.value()) * share);
  if (!(out.admit < Probability::always())) out.reason = HEADGATE_REASON_NONE;
  out.charge_request_s = port.charge_request_s * share;
  out.charge_kb_s = port.charge_kb_s * share;
  out.rate_per_s = port.rate_per_s / share;
  out.connections_max =
      static_cast<std::uint64_t>(std::ceil(static_cast<double>(port.connections_max) / share));
  return out;
}

void spread_in_flight(std::uint64_t cap, std::span<const EndpointInput> endpoints,
                      std::span<EndpointDecision> out) {
  if (cap == 0) return;
  const std::size_t n = std::min(endpoints.size(), out.size());
  for (std::size_t i = 0; i < n; ++i) {
    if (!endpoints[i].requests || !endpoints[i].activity.in_flight_known) continue;
    std::uint64_t others = 0;
    for (std::size_t j = 0; j < n; ++j) {
      if (j != i && endpoints[j].criticality >= endpoints[i].criticality &&
          endpoints[j].activity.in_flight_known) {
        others += endpoints[j].activity.in_flight;
      }
    }
    const std::uint64_t own = others < cap ? cap - others : 1;
    out[i].connections_max = tighter(out[i].connections_max, own);
  }
}

}  // namespace headgate
