// SPDX-License-Identifier: Apache-2.0
#include "agent/sim/kernel_gate.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "agent/decision/publish_policy.h"
#include "agent/sim/clock.h"
#include "bpf/lib/verdict.h"

namespace headgate::sim {
namespace {

constexpr int kAtomics = 0;  // the variant without the spin lock

std::uint64_t whole(double x) { return x > 0 ? static_cast<std::uint64_t>(x + 0.5) : 0; }

}  // namespace

struct KernelGate::Words {
  struct Endpoint {
    headgate_endpoint_policy policy{};
    headgate_endpoint_state state{};
  };
  std::vector<Endpoint> endpoints;
  headgate_target_policy target{};
  headgate_target_state target_state{};
  double largest_kb = 0;  ///< seen so far: what the largest charge is made from

  /// What the bucket may owe is bounded by its depth and the largest charge: the debt is a time,
  /// and one from when the rate was low would shut a faster bucket for many seconds. The bound must
  /// not forgive most of the charge of a request that is larger than any before it, so it counts at
  /// once.
  void make_room_for(double size_kb) {
    largest_kb = size_kb;
    for (const Endpoint& endpoint : endpoints) {
      target.bucket_charge_max_ns = std::max<__u64>(
          target.bucket_charge_max_ns,
          endpoint.policy.charge_request_ns + endpoint.policy.charge_kb_ns * whole(size_kb));
    }
  }
};

KernelGate::KernelGate(std::size_t endpoints) : words_(std::make_unique<Words>()) {
  words_->endpoints.resize(endpoints);
  // The error diffusion of a gate that has been at work for a while is somewhere on its way from
  // one admission to the next.
  for (Words::Endpoint& endpoint : words_->endpoints) {
    endpoint.state.share_q32 = HEADGATE_ALWAYS_Q32 / 2;
  }
}

KernelGate::~KernelGate() = default;

void KernelGate::publish(const Decision& decision, double now_s, Duration lease) {
  const PolicyContext context;
  for (std::size_t i = 0; i < words_->endpoints.size(); ++i) {
    words_->endpoints[i].policy = make_endpoint_policy(decision.endpoints[i], decision, context);
  }
  TargetPolicyContext target;
  target.now = instant(now_s);
  target.lease = lease;
  target.largest_request_kb = words_->largest_kb;
  words_->target = make_target_policy(decision, target);
}

void KernelGate::see_load(const Guard::Load& load) {
  double all = 0;
  for (std::size_t i = 0; i < words_->endpoints.size(); ++i) {
    words_->endpoints[i].state.in_flight = whole(load.in_flight[i]);
    all += load.in_flight[i];
  }
  words_->target_state.in_flight = whole(all);
  words_->target_state.live_bytes = whole(load.live_bytes);
}

bool KernelGate::admits(const Attempt& attempt) {
  Words::Endpoint& endpoint = words_->endpoints[attempt.endpoint];
  if (attempt.size_kb > words_->largest_kb) words_->make_room_for(attempt.size_kb);
  const std::uint64_t now_ns = to_ktime_ns(instant(attempt.now_s));
  const std::uint32_t reason =
      headgate_judge(&endpoint.policy, &words_->target, &endpoint.state, &words_->target_state,
                     now_ns, whole(attempt.size_kb), kAtomics);
  if (reason == HEADGATE_REASON_NONE) return true;
  return headgate_resolve(&endpoint.policy, &words_->target, &endpoint.state, &words_->target_state,
                          reason, 0, nullptr, now_ns, 0, kAtomics)
             .verdict == HEADGATE_ADMIT;
}

}  // namespace headgate::sim
