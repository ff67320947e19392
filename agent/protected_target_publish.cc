// SPDX-License-Identifier: Apache-2.0
// A target's decision, as policies in the kernel.
#include <algorithm>

#include "headgate/bpf_abi.h"

#include "agent/decision/publish_policy.h"
#include "agent/protected_target.h"
#include "agent/request_routes.h"

namespace headgate {
namespace {

/// An admitted SYN that has not established after this time will not: its client has gone, or
/// nothing listens (the kernel's ticket is older than that anyway).
constexpr Duration kTicketHorizon = std::chrono::seconds(2);

}  // namespace

bool ProtectedTarget::defers(const Endpoint& endpoint) const {
  const RefuseForm form = connection_form(*endpoint.config);
  return (form == RefuseForm::kDefer || form == RefuseForm::kAuto) &&
         endpoint.config->protocol != Protocol::kUdp;
}

/// The decision becomes policies. A blind target's lease is not renewed: the gate opens by itself.
void ProtectedTarget::publish(Instant now, std::uint32_t generation) {
  const bool first_sample =
      !deriver_.signals().cpu_slow.known() && !deriver_.signals().memory.known();
  if (cold_ && first_sample && shared_.maps.adopted_target(slot_) &&
      shared_.maps.target_policy(slot_).valid_until_ns >= to_ktime_ns(now)) {
    return;  // the policy of the agent before us stands until its lease ends or we know better
  }
  cold_ = false;

  Duration deadline{};
  const headgate_target_state& target_state = shared_.maps.target_state(slot_);
  const bool somebody_waits =
      static_cast<std::int64_t>(target_state.waiting_started - target_state.waiting_settled -
                                waiting_.written_off()) > 0;
  spread_in_flight(decision_.connections_max, inputs_, decision_.endpoints);
  PolicyContext shared;
  shared.closes_per_s = closes_per_s_;
  shared.somebody_waits = somebody_waits;
  shared.observe = published_mode_ != Mode::kEnforce;
  shared.max_refuse = config_.max_refuse;
  shared.exempt_node = exempts_node_;
  shared.exempt_sources = exempts_sources_;
  shared.exempt_rate_per_s = config_.exempt.rate_per_s;
  shared.tickets_settled = counts_connections_;
  shared.target = slot_;
  shared.generation = generation;
  const bool early = is_early();
  bool connections_gated = false;
  for (Endpoint& endpoint : endpoints_) {
    if (!endpoint.is_port()) {
      publish_requests(endpoint, shared);
      continue;
    }
    PolicyContext context = shared;
    context.early = early;
    publish_endpoint(endpoint, context, now);
    connections_gated = connections_gated || gates_connections(endpoint);
    if (defers(endpoint) && !(early && wants_silence(endpoint))) {
      deadline = std::max(deadline, endpoint.config->refuse.defer_deadline);
    }
  }

  const headgate_target_state& state = shared_.maps.target_state(slot_);
  TargetPolicyContext context;
  context.now = now;
  context.lease = decision_.state == State::kUnknown ? Duration::zero() : lease_;
  context.defer_deadline = deadline;
  context.generation = generation;
  for (const Endpoint& endpoint : endpoints_) {
    context.connections_legacy += endpoint.legacy_connections;
  }
  context.tickets_written_off =
      tickets_.update(now, state.tickets_issued, state.tickets_settled, kTicketHorizon);
  context.waiting_written_off = waiting_.update(now, state.waiting_started, state.waiting_settled,
                                                std::max<Duration>(deadline, lease_));
  // Where no response can be seen, bytes are taken to be live for twice a connection's usual life.
  constexpr double kLeastResidence_s = 0.5;
  constexpr double kMostResidence_s = 5;
  const double residence_s =
      response_s_ > 0 ? std::clamp(2 * response_s_, kLeastResidence_s, kMostResidence_s) : 1;
  context.largest_request_kb =
      sees_requests_ ? static_cast<double>(largest_request_seen_) / kBytesPerKb : 0;
  context.live_base = live_ages_.update(
      now, state, std::chrono::duration_cast<Duration>(std::chrono::duration<double>(residence_s)));
  headgate_target_policy policy = make_target_policy(decision_, context);
  // What is in flight is, to the strategy, requests and the connections that carry none; the kernel
  // counts connections.
  if (policy.connections_max > 0) {
    policy.connections_max =
        connections_gated ? policy.connections_max + recognized_in_flight() : 0;
  }
  if (decision_.state == State::kUnknown) {
    policy.valid_until_ns = shared_.maps.target_policy(slot_).valid_until_ns;
  }
  shared_.maps.store_target(slot_, policy);
}

/// Enough of a port's connections carry no requests that they are worth a gate.
bool ProtectedTarget::gates_connections(const Endpoint& endpoint) const {
  return !requests_gated(endpoint) || endpoint.unrecognized.share() >= kUnrecognizedLeast;
}

/// Connections that are judged request by request.
std::uint64_t ProtectedTarget::recognized_in_flight() const {
  double out = 0;
  for (const Endpoint& endpoint : endpoints_) {
    if (endpoint.is_port() && requests_gated(endpoint)) {
      out += static_cast<double>(in_flight(endpoint)) * (1 - endpoint.unrecognized.share());
    }
  }
  return static_cast<std::uint64_t>(out);
}

void ProtectedTarget::publish_endpoint(Endpoint& endpoint, PolicyContext context, Instant now) {
  const headgate_endpoint_state& state = shared_.maps.endpoint_state(endpoint.slot);
  const RefuseForm form = connection_form(*endpoint.config);
  context.automatic = form == RefuseForm::kAuto;
  context.may_defer = defers(endpoint);
  context.refuse =
      context.may_defer && !context.automatic ? HEADGATE_ACTION_DEFER : HEADGATE_ACTION_RESET;
  if (context.early && wants_silence(endpoint)) {
    context.refuse = HEADGATE_ACTION_DROP;
    context.automatic = context.may_defer = false;
  }
  context.target_cap = gates_connections(endpoint);
  context.connections_legacy = endpoint.legacy_connections;
  context.tickets_written_off =
      endpoint.tickets.update(now, state.tickets_issued, state.tickets_settled, kTicketHorizon);
  const EndpointDecision& whole = decision_.endpoints[endpoint.input];
  headgate_endpoint_policy policy = make_endpoint_policy(
      requests_gated(endpoint) ? for_unrecognized(whole, endpoint.unrecognized.share()) : whole,
      decision_, context);
  if (context.may_defer) {
    policy.defer_deadline_ns =
        static_cast<std::uint64_t>(endpoint.config->refuse.defer_deadline.count());
  }
  shared_.maps.store(endpoint.slot, policy);
}

/// The policy of a route, or of what has none. Where requests are not gated it is idle, and says
/// only whose it is.
void ProtectedTarget::publish_requests(const Endpoint& endpoint, PolicyContext context) {
  context.level = HEADGATE_LEVEL_ROUTE;
  context.parent = endpoints_[endpoint.port].slot;
  context.refuse = request_action(endpoint.config->refuse.form);
  context.target_cap = false;
  const bool gated = requests_gated(endpoint);
  Decision nothing;
  shared_.maps.store(
      endpoint.slot,
      gated ? make_endpoint_policy(decision_.endpoints[endpoint.input], decision_, context)
            : make_endpoint_policy(EndpointDecision{}, nothing, context));
}

}  // namespace headgate
