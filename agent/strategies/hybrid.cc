// SPDX-License-Identifier: Apache-2.0
// hybrid (plan D): several laws in a given order, first hit. Every part sees every tick, so that
// what it learns does not depend on the others. The first part that refuses now (a share, the
// circuit, or a cap or rate that is reached) gives the shares, the circuit, the state and the
// reason. Limits that cost nothing until an attempt reaches them hold for all attempts: of the
// parts' caps on connections, rates and live bytes the smallest, and the CPU budget of the first
// part that has one.
//
// The parts have the defaults of their parameters. A part that does not know refuses nothing and
// is passed over.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "agent/strategies/activity.h"
#include "agent/strategies/laws.h"
#include "agent/strategies/registry.h"

namespace headgate {
namespace {

/// Of two limits of which 0 is none.
template <class T>
T tighter(T a, T b) {
  return a > 0 && b > 0 ? std::min(a, b) : std::max(a, b);
}

class Hybrid final : public Strategy {
 public:
  explicit Hybrid(std::vector<std::unique_ptr<Strategy>> parts) : parts_(std::move(parts)) {
    decisions_.resize(parts_.size());
  }

  void decide(const StrategyInput& in, Decision& out) override;
  [[nodiscard]] std::size_t save(std::span<std::byte> out) const override;
  bool restore(std::span<const std::byte> data) override;
  [[nodiscard]] std::vector<Threshold> thresholds() const override {
    return gather(&Strategy::thresholds);
  }
  [[nodiscard]] std::vector<Threshold> internals() const override {
    return gather(&Strategy::internals);
  }

 private:
  [[nodiscard]] std::vector<Threshold> gather(std::vector<Threshold> (Strategy::*what)()
                                                  const) const {
    std::vector<Threshold> all;
    for (const auto& part : parts_) {
      const auto more = ((*part).*what)();
      all.insert(all.end(), more.begin(), more.end());
    }
    return all;
  }

  std::vector<std::unique_ptr<Strategy>> parts_;
  std::vector<Decision> decisions_;  ///< of each part
};

bool refuses(const Decision& decision) {
  return decision.circuit_open || decision.state == State::kShedding ||
         decision.state == State::kOpen;
}

void unite_limits(const Decision& part, Decision& out) {
  out.connections_max = tighter(out.connections_max, part.connections_max);
  out.live_bytes_max = tighter(out.live_bytes_max, part.live_bytes_max);
  out.waiting_max = std::max(out.waiting_max, part.waiting_max);
  for (std::size_t i = 0; i < out.endpoints.size(); ++i) {
    EndpointDecision& endpoint = out.endpoints[i];
    const EndpointDecision& other = part.endpoints[i];
    endpoint.connections_max = tighter(endpoint.connections_max, other.connections_max);
    if (other.rate_per_s > 0 &&
        (!(endpoint.rate_per_s > 0) || other.rate_per_s < endpoint.rate_per_s)) {
      endpoint.rate_per_s = other.rate_per_s;
      endpoint.rate_burst_s = other.rate_burst_s;
    }
    if (!(endpoint.depth_s > 0) && other.depth_s > 0) {
      endpoint.depth_s = other.depth_s;
      endpoint.charge_request_s = other.charge_request_s;
      endpoint.charge_kb_s = other.charge_kb_s;
    }
    endpoint.probe = endpoint.probe && other.probe;
  }
}

void Hybrid::decide(const StrategyInput& in, Decision& out) {
  const Decision* hit = nullptr;
  const Decision* known = nullptr;
  for (std::size_t p = 0; p < parts_.size(); ++p) {
    Decision& mine = decisions_[p];
    if (mine.endpoints.size() != in.endpoints.size()) mine.endpoints.resize(in.endpoints.size());
    mine.reset();
    parts_[p]->decide(in, mine);
    if (mine.state == State::kUnknown) continue;
    if (known == nullptr) known = &mine;
    if (hit == nullptr && refuses(mine)) hit = &mine;
    unite_limits(mine, out);
  }
  if (known == nullptr) {
    admit_unknown(out, parts_.empty() ? "hybrid: it has no parts, everything is admitted"
                                      : decisions_.front().why);
    return;
  }
  const Decision& from = hit != nullptr ? *hit : *known;
  out.circuit_open = from.circuit_open;
  out.state = from.state;
  out.why = from.why;
  for (std::size_t i = 0; i < out.endpoints.size(); ++i) {
    out.endpoints[i].admit = from.endpoints[i].admit;
    out.endpoints[i].reason = from.endpoints[i].reason;
  }
}

// Each part's bytes behind their number, in order; a part that has nothing or finds no room has 0.
// The agent gives them back only to a target of the same strategy, but its parts may have changed:
// a part refuses what is not its own.
std::size_t Hybrid::save(std::span<std::byte> out) const {
  std::size_t used = 0;
  for (const auto& part : parts_) {
    std::uint32_t bytes = 0;
    if (out.size() - used < sizeof bytes) break;
    bytes = static_cast<std::uint32_t>(part->save(out.subspan(used + sizeof bytes)));
    std::memcpy(out.data() + used, &bytes, sizeof bytes);
    used += sizeof bytes + bytes;
  }
  return used;
}

bool Hybrid::restore(std::span<const std::byte> data) {
  bool any = false;
  for (const auto& part : parts_) {
    std::uint32_t bytes = 0;
    if (data.size() < sizeof bytes) break;
    std::memcpy(&bytes, data.data(), sizeof bytes);
    data = data.subspan(sizeof bytes);
    if (bytes > data.size()) return any;
    any = (bytes > 0 && part->restore(data.first(bytes))) || any;
    data = data.subspan(bytes);
  }
  return any;
}

}  // namespace

StrategyInfo hybrid_info() {
  StrategyInfo info;
  info.name = "hybrid";
  info.doc = "several strategies, first hit in the given order";
  info.make = [](const Params& params) -> std::unique_ptr<Strategy> {
    std::vector<std::unique_ptr<Strategy>> parts;
    for (const std::string& name : params.parts) {
      const StrategyInfo* part = find_strategy(name);
      if (part != nullptr && part->make != nullptr && part->name != "hybrid") {
        parts.push_back(part->make({}));
      }
    }
    return std::make_unique<Hybrid>(std::move(parts));
  };
  return info;
}

}  // namespace headgate
