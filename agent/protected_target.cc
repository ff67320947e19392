// SPDX-License-Identifier: Apache-2.0
// The life of a target: opened, ticked, what it has learned, closed. What a tick gathers is in
// protected_target_activity.cc, what it writes in _publish.cc, what lies around a target in
// _surroundings.cc, what people are shown in _snapshot.cc.
#include "agent/protected_target.h"

#include <netinet/in.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "headgate/bpf_abi.h"

#include "agent/base/hash.h"
#include "agent/base/log.h"
#include "agent/base/wall_clock.h"
#include "agent/strategies/registry.h"
#include "agent/targets/locate_pods.h"
#include "agent/version.h"

namespace headgate {
namespace {

constexpr std::size_t kTransitionsKept = 32;
constexpr std::uint32_t kModelVersion = 1;
constexpr Duration kRefreshEvery = std::chrono::seconds(1);
constexpr Duration kModelWhenIdle = std::chrono::seconds(10);

/// The decision would keep somebody out.
bool refuses(const Decision& decision) {
  return decision.circuit_open ||
         std::any_of(decision.endpoints.begin(), decision.endpoints.end(),
                     [](const EndpointDecision& e) { return e.admit < Probability::always(); });
}

std::optional<double> number(const Measured<Ratio>& ratio) {
  return ratio.known() ? std::optional((*ratio).value) : std::nullopt;
}

}  // namespace

std::uint8_t ProtectedTarget::ip_protocol(Protocol protocol) {
  return protocol == Protocol::kUdp ? IPPROTO_UDP : IPPROTO_TCP;
}

ProtectedTarget::ProtectedTarget(const Config& config, const TargetConfig& target,
                                 const Located& located, const Shared& shared)
    : lease_(config.lease),
      tick_(config.tick),
      mode_(effective_mode(config, target)),
      config_(target),
      located_(located),
      shared_(shared),
      instance_(target.name),
      name_hash_(fnv1a(target.name)),
      published_mode_(mode_),
      warnings_(located.warnings) {}

Result<std::unique_ptr<ProtectedTarget>> ProtectedTarget::open(const Config& config,
                                                               const TargetConfig& target,
                                                               const Located& located,
                                                               const Shared& shared, Instant now) {
  std::unique_ptr<ProtectedTarget> out(new ProtectedTarget(config, target, located, shared));
  auto sampler = CgroupSampler::open(shared.hierarchy, located.cgroup_path,
                                     capacity_of(target.capacity, located));
  if (!sampler) {
    return tl::unexpected<Error>(sampler.error());
  }
  out->sampler_ = std::move(*sampler);
  const StrategyInfo* strategy = find_strategy(target.strategy.name);
  if (strategy == nullptr || strategy->make == nullptr) {
    return fail(fmt::format("target {}: no strategy '{}'", target.name, target.strategy.name));
  }
  out->strategy_ = strategy->make(target.strategy.params);
  if (auto claimed = out->claim(now); !claimed) {
    return tl::unexpected<Error>(claimed.error());
  }
  out->opened_at_ = now;
  out->restore_model();
  return out;
}

Result<> ProtectedTarget::claim(Instant now) {
  const std::uint32_t netns = located_.namespaces.empty() ? 0 : located_.namespaces.front().inode;
  auto slot = shared_.maps.claim_target(name_hash_, located_.cgroup_id, netns, now, 2 * lease_);
  if (!slot) {
    return tl::unexpected<Error>(slot.error());
  }
  slot_ = *slot;
  claimed_ = true;
  rest() = Rest{};
  look_again_at({});
  rest().skipped = slot_ % 60;  // calm targets are read in turn, not all in the same tick
  for (const EndpointConfig& config : config_.endpoints) {
    Endpoint endpoint;
    endpoint.config = &config;
    endpoint.port = endpoints_.size();
    if (auto claimed = claim_endpoint(std::move(endpoint), 0, now); !claimed) {
      return claimed;
    }
    if (headgate::sees_requests(config)) {
      if (auto claimed = claim_requests(endpoints_.size() - 1, now); !claimed) {
        return claimed;
      }
    }
  }
  decision_.endpoints.resize(inputs_.size());
  if (auto read = shared_.maps.read_all_states(); !read) {
    return read;
  }
  for (Endpoint& endpoint : endpoints_) {
    endpoint.last = endpoint.second_ago = endpoint.last_second =
        shared_.maps.counters(endpoint.slot);
    slots_.push_back(endpoint.slot);
    rest().add(endpoint.slot);
    endpoint.tickets.resume(shared_.maps.endpoint_policy(endpoint.slot).tickets_written_off);
    endpoint.lives = shared_.maps.lives(endpoint.slot);
    endpoint.refused_seen = endpoint.last.reset + endpoint.last.dropped;
    const headgate_endpoint_policy left = shared_.maps.endpoint_policy(endpoint.slot);
    if (config_.storm && endpoint.config->refuse.form != RefuseForm::kDrop &&
        action_of(left.actions, HEADGATE_REASON_SHARE) == HEADGATE_ACTION_DROP) {
      endpoint.storm.resume(now);
    }
  }
  tickets_.resume(shared_.maps.target_policy(slot_).tickets_written_off);
  waiting_.resume(shared_.maps.target_policy(slot_).waiting_written_off);
  live_ages_.resume(shared_.maps.target_policy(slot_).live_base);
  return {};
}

Result<> ProtectedTarget::claim_endpoint(Endpoint endpoint, std::uint64_t route_hash, Instant now) {
  const EndpointConfig& config = *endpoint.config;
  auto slot = shared_.maps.claim_endpoint(
      name_hash_, slot_, config.port, ip_protocol(config.protocol), now, 2 * lease_, route_hash);
  if (!slot) {
    return tl::unexpected<Error>(slot.error());
  }
  endpoint.slot = *slot;
  // What is only counted is no matter of the strategy.
  endpoint.input = kNoInput;
  if (endpoint.is_port() || endpoint.refuses_requests()) {
    endpoint.input = inputs_.size();
    EndpointInput input;
    input.criticality = config.criticality;
    input.floor = config.floor;
    input.tcp = config.protocol != Protocol::kUdp;
    input.requests = !endpoint.is_port();
    input.refused_by_server = input.requests && config.protocol == Protocol::kGrpc;
    if (endpoint.part == Endpoint::Part::kRoute) {
      input.criticality = config.routes[endpoint.route].criticality;
      input.floor = config.routes[endpoint.route].floor;
    }
    const bool refusable =
        config.protocol != Protocol::kGrpc || endpoint.is_port() ||
        (endpoint.part == Endpoint::Part::kRoute && config.routes[endpoint.route].unary);
    if (!refusable) {
      input.floor = Probability::always();  // others have to give what this one cannot
    }
    inputs_.push_back(input);
  }
  if (endpoint.is_port() && !headgate::sees_requests(config)) {
    shared_.maps.clear_requests(endpoint.slot);  // of a configuration before
  }
  endpoints_.push_back(std::move(endpoint));
  return {};
}

/// The routes of a port, and what has none.
Result<> ProtectedTarget::claim_requests(std::size_t port, Instant now) {
  sees_requests_ = true;
  sees_http2_ = sees_http2_ || endpoints_[port].config->protocol == Protocol::kGrpc;
  Endpoint part;
  part.config = endpoints_[port].config;
  part.port = port;
  part.part = Endpoint::Part::kRoute;
  for (part.route = 0; part.route < part.config->routes.size(); ++part.route) {
    const std::uint64_t hash = fnv1a(part.config->routes[part.route].path);
    if (auto claimed = claim_endpoint(part, hash, now); !claimed) {
      return claimed;
    }
  }
  part.part = Endpoint::Part::kRest;
  return claim_endpoint(std::move(part), fnv1a("the rest"), now);
}

/// The kernel may refuse requests of this port now.
bool ProtectedTarget::requests_gated(const Endpoint& endpoint) const {
  return endpoint.refuses_requests() && counts_connections_ && shared_.requests.refuses();
}

ProtectedTarget::~ProtectedTarget() {
  if (!claimed_) {
    return;
  }
  const Instant now = std::max(last_second_at_, sample_.at);
  for (const Endpoint& endpoint : endpoints_) {
    for (const headgate_endpoint_key& key : endpoint.flows) {
      shared_.maps.unmap_flow(key);
    }
    shared_.maps.release_endpoint(endpoint.slot, now);
  }
  if (counts_connections_) {
    shared_.connections.release(slot_);
  }
  if (counts_payload_) {
    shared_.payload.release(slot_);
  }
  for (const Namespace& space : namespaces_) {
    if (space.gated) {
      shared_.gate.release(space.inode);
    }
    if (space.early) {
      shared_.tc.release(space.inode);
    }
  }
  shared_.maps.release_target(slot_, now);
}

bool ProtectedTarget::tick(Instant now, std::int64_t unix_ms, std::uint32_t generation) {
  const State before = decision_.state;
  sample_ = sampler_->sample(now);
  const Signals& signals = deriver_.update(sample_, lease_, shared_.machine_cpus, shared_.load1);
  decide(now, signals);
  publish(now, generation);
  remember(before, unix_ms, now);
  record_tick();
  if (now - refreshed_at_ >= kRefreshEvery) {
    refreshed_at_ = now;
    refresh(now);
  }
  plan_rest();
  return !sampler_->gone();
}

void ProtectedTarget::expect_new_limits() {
  sampler_->expect_new_limits();
  rest().most = 0;
}

void ProtectedTarget::begin(Instant now, std::uint32_t generation) {
  look_around(now);
  plan_look(now);
  decide(now, deriver_.signals());
  publish(now, generation);
  map_flows(now);
  tell_unseen();
}

void ProtectedTarget::decide(Instant now, const Signals& signals) {
  collect_activity(now);
  decision_.reset();  // what a strategy leaves alone does not refuse
  StrategyInput input{signals,
                      inputs_,
                      config_.target,
                      config_.memory.shed,
                      config_.memory.open,
                      config_.memory.close};
  input.live_bytes_known = counts_payload_;
  live_bytes_seen_ =
      live_bytes(shared_.maps.target_state(slot_), shared_.maps.target_policy(slot_).live_base);
  largest_request_seen_ = largest_request_bytes();
  restarted_ = serving_.has_ended();
  if (std::exchange(began_again_, false)) {
    restarted_ = true;
  } else if (restarted_) {
    ++restarts_;
    opened_at_ = now;  // another one comes up: look often
    look_again_at(now);
    log::info("the serving process has ended", {{"target", config_.name}});
  }
  input.restarted = restarted_;
  input.live_bytes = live_bytes_seen_;
  input.largest_request_bytes = largest_request_seen_;
  strategy_->decide(input, decision_);
  bound_live_bytes();
  // A budget or a cap refuses only what comes: whether it did is in the kernel's counters, which
  // count it in observe mode too.
  const auto radius =
      blast_radius_.update(now, refuses(decision_) || had_no_room_, config_.max_refuse_duration);
  if (radius.changed) {
    log::warn(radius.alert ? "max_refuse_duration exceeded: back to observe"
                           : "enforcing again after max_refuse_duration",
              {{"target", config_.name}});
  }
  published_mode_ = radius.observe ? Mode::kObserve : mode_;
}

/// What was seen and decided, as a line of the trace.
void ProtectedTarget::record_tick() {
  if (recorder_ == nullptr || deriver_.signals().interval == Duration::zero()) {
    return;
  }
  TraceTick tick;
  tick.signals = deriver_.signals();
  tick.restarted = restarted_;
  tick.live_bytes_known = counts_payload_;
  tick.live_bytes = live_bytes_seen_;
  tick.largest_request_bytes = largest_request_seen_;
  for (const EndpointInput& input : inputs_) {
    tick.endpoints.push_back(input.activity);
  }
  tick.state = decision_.state;
  for (const EndpointDecision& endpoint : decision_.endpoints) {
    tick.admitted_share.push_back(decision_.circuit_open ? 0 : endpoint.admit.value());
  }
  recorder_->add(std::move(tick));
}

Recorder::Part ProtectedTarget::record(std::uint64_t from, Instant now) {
  if (recorder_ == nullptr) {
    TraceHeader header;
    header.target = config_.name;
    header.agent_version = kVersion;
    header.started_unix_ms = unix_now<std::chrono::milliseconds>();
    header.strategy = config_.strategy.name;
    header.params = config_.strategy.params;
    header.use_target = config_.target.value;
    header.memory_shed = config_.memory.shed;
    header.memory_open = config_.memory.open;
    header.memory_close = config_.memory.close;
    for (const Endpoint& endpoint : endpoints_) {
      if (endpoint.input == kNoInput) {
        continue;
      }
      const EndpointInput& input = inputs_[endpoint.input];
      header.endpoints.push_back({shown_name(endpoint), input.criticality, input.floor.value(),
                                  input.tcp, input.requests, input.refused_by_server});
    }
    recorder_ = std::make_unique<Recorder>(header, now);
    rest().most = 0;  // every tick is wanted
  }
  return recorder_->fetch(from, now);
}

/// After a decision: how many ticks this target may rest if nothing comes.
void ProtectedTarget::plan_rest() {
  constexpr unsigned kCalmTicks = 4;
  constexpr unsigned kIdleTicks = 9;
  constexpr unsigned kAloneTicks = 59;
  constexpr std::uint32_t kSlack = 5;
  constexpr double kCalmCpu = 0.5;
  constexpr double kCalmMemory = 0.7;
  constexpr double kIdleCpu = 0.1;
  constexpr double kIdleMemory = 0.5;
  constexpr double kIdleOffered = 1e-3;  // a tick, smoothed: none for about 7 s
  const Signals& signals = deriver_.signals();
  const double memory = signals.memory.value_or(Ratio{0}).value;
  const bool calm = decision_.state == State::kNormal && !refuses(decision_) &&
                    signals.cpu_fast.known() && (*signals.cpu_fast).value < kCalmCpu &&
                    signals.cpu_slow.known() && (*signals.cpu_slow).value < kCalmCpu &&
                    memory < kCalmMemory;
  idle_ = calm && rest().usual_offered < kIdleOffered && (*signals.cpu_slow).value < kIdleCpu &&
          memory < kIdleMemory;
  // Nobody is connected: nothing can come that is not announced by an attempt.
  const bool alone =
      idle_ && std::all_of(inputs_.begin(), inputs_.end(), [](const EndpointInput& input) {
        return !input.tcp || (input.activity.in_flight_known && input.activity.in_flight == 0);
      });
  rest().most = recorder_ != nullptr ? 0
                : alone              ? kAloneTicks
                : idle_              ? kIdleTicks
                : calm               ? kCalmTicks
                                     : 0;
  rest().slack = alone ? 0 : kSlack;
  sampler_->set_memory_detail_period(std::chrono::seconds(alone ? 30 : idle_ ? 5 : 1));
}

std::uint64_t ProtectedTarget::largest_request_bytes() const {
  std::uint64_t out = 0;
  for (const Endpoint& endpoint : endpoints_) {
    out = std::max<std::uint64_t>(out,
                                  shared_.maps.endpoint_state(endpoint.slot).largest_request_bytes);
  }
  return out;
}

/// What the configuration says about live bytes stands over the strategy. Two requests of the
/// largest size always fit, or the gate would shut for good behind one of them.
void ProtectedTarget::bound_live_bytes() {
  const auto& configured = config_.memory.live_budget_bytes;
  if (configured && *configured > 0) {
    decision_.live_bytes_max = *configured;
  }
  if (!counts_payload_ || (configured && *configured == 0)) {
    decision_.live_bytes_max = 0;
  }
  if (decision_.live_bytes_max > 0) {
    decision_.live_bytes_max = std::max(decision_.live_bytes_max, 2 * largest_request_seen_);
  }
}

void ProtectedTarget::remember(State before, std::int64_t unix_ms, Instant now) {
  if (decision_.state == before && !transitions_.empty()) {
    return;
  }
  const Signals& signals = deriver_.signals();
  Transition transition;
  transition.unix_ms = unix_ms;
  transition.from = transitions_.empty() ? State::kUnknown : before;
  transition.to = decision_.state;
  transition.why = decision_.why;
  transition.cpu_fast = number(signals.cpu_fast);
  transition.cpu_slow = number(signals.cpu_slow);
  transition.memory = number(signals.memory);
  if (transition.from == transition.to) {
    return;
  }
  const auto text = [](const std::optional<double>& v) {
    return v ? fmt::format("{:.3f}", *v) : std::string("unknown");
  };
  log::info("state", {{"target", config_.name},
                      {"from", to_string(transition.from)},
                      {"to", to_string(transition.to)},
                      {"why", transition.why},
                      {"cpu_fast", text(transition.cpu_fast)},
                      {"cpu_slow", text(transition.cpu_slow)},
                      {"memory", text(transition.memory)}});
  state_events_.changed(now);
  transitions_.push_back(std::move(transition));
  if (transitions_.size() > kTransitionsKept) {
    transitions_.pop_front();
  }
}

void ProtectedTarget::refresh(Instant now) {
  if (recorder_ != nullptr && recorder_->abandoned(now)) {
    recorder_.reset();
  }
  // What an idle target has learned does not change.
  if (deriver_.signals().cpu_slow.known() && (!idle_ || now - model_stored_at_ >= kModelWhenIdle)) {
    model_stored_at_ = now;
    shared_.maps.store_model(slot_, save_model());
  }
  if (!legacy_settled_) {
    count_legacy();
  }
  watch_storms(now);
  mark_second(now);
  if (state_events_.due(now)) {
    tell_state(now);
  }
}

void ProtectedTarget::tell_state(Instant now) {
  if (shared_.events == nullptr || !located_.pod || located_.pod->name.empty()) {
    return;
  }
  if (auto event = state_events_.make(snapshot(now), now, unix_now<std::chrono::microseconds>())) {
    shared_.events->tell(config_.name + " " + located_.pod->uid, std::move(*event));
  }
}

void ProtectedTarget::mark_second(Instant now) {
  if (idle_ && second_ago_at_ != Instant{}) {
    return;  // the rates of an idle target may be of a longer time
  }
  for (Endpoint& endpoint : endpoints_) {
    endpoint.second_ago = endpoint.last_second;
    endpoint.last_second = shared_.maps.counters(endpoint.slot);
  }
  second_ago_at_ = last_second_at_;
  last_second_at_ = now;
}

headgate_model ProtectedTarget::save_model() const {
  headgate_model model{};
  auto bytes = std::as_writable_bytes(std::span(model.data));
  const std::size_t signals = deriver_.save(bytes.first(SignalDeriver::kModelBytes));
  if (signals == 0) {
    return model;
  }
  const std::size_t strategy = strategy_->save(bytes.subspan(SignalDeriver::kModelBytes));
  model.version = kModelVersion;
  model.bytes = static_cast<std::uint32_t>(SignalDeriver::kModelBytes + strategy);
  model.strategy = fnv1a(config_.strategy.name);
  return model;
}

void ProtectedTarget::restore_model() {
  const auto model = shared_.maps.model(slot_);
  if (!model || model->version != kModelVersion || model->bytes < SignalDeriver::kModelBytes ||
      model->bytes > HEADGATE_MODEL_BYTES) {
    return;
  }
  const auto bytes = std::as_bytes(std::span(model->data)).first(model->bytes);
  deriver_.restore(bytes.first(SignalDeriver::kModelBytes));
  if (model->strategy == fnv1a(config_.strategy.name) &&
      bytes.size() > SignalDeriver::kModelBytes) {
    strategy_->restore(bytes.subspan(SignalDeriver::kModelBytes));
  }
}

Learned ProtectedTarget::learned() const {
  Learned out{config_.strategy.name, std::vector<std::byte>(HEADGATE_MODEL_BYTES)};
  out.bytes.resize(strategy_->save(out.bytes));
  return out;
}

bool ProtectedTarget::take_up(const Learned& learned) {
  return learned.strategy == config_.strategy.name && !learned.bytes.empty() &&
         strategy_->restore(learned.bytes);
}

void ProtectedTarget::go_on_from(const Learned& learned) { began_again_ = take_up(learned); }

void ProtectedTarget::inherit(const ProtectedTarget& old) {
  deriver_ = old.deriver_;
  transitions_ = old.transitions_;
  state_events_ = old.state_events_;
  (void)take_up(old.learned());
  decision_.state = old.decision_.state;
  for (Endpoint& endpoint : endpoints_) {
    for (const Endpoint& was : old.endpoints_) {
      if (was.slot == endpoint.slot && config_.storm) {
        endpoint.storm = was.storm;
      }
    }
  }
}

}  // namespace headgate
