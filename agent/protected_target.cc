// SPDX-License-Identifier: Apache-2.0
#include "agent/protected_target.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "headgate/bpf_abi.h"

#include "agent/base/hash.h"
#include "agent/base/log.h"
#include "agent/decision/lives.h"
#include "agent/request_routes.h"
#include "agent/strategies/registry.h"
#include "agent/targets/locate_pods.h"
#include "agent/version.h"

namespace headgate {
namespace {

constexpr std::size_t kTransitionsKept = 32;
/// An admitted SYN that has not established after this time will not: its client has gone, or
/// nothing listens (the kernel's ticket is older than that anyway).
constexpr Duration kTicketHorizon = std::chrono::seconds(2);
constexpr std::uint32_t kModelVersion = 1;
constexpr Duration kRefreshEvery = std::chrono::seconds(1);
constexpr Duration kSettleTime = std::chrono::seconds(10);
constexpr Duration kLookWhenNew = std::chrono::seconds(1);
constexpr Duration kLookWhenSettled = std::chrono::seconds(5);
constexpr Duration kLookWhenIdle = std::chrono::seconds(10);
constexpr Duration kLookWhenFollowed = std::chrono::seconds(30);
constexpr Duration kModelWhenIdle = std::chrono::seconds(10);

std::uint8_t ip_protocol(Protocol protocol) {
  return protocol == Protocol::kUdp ? IPPROTO_UDP : IPPROTO_TCP;
}

headgate_endpoint_key flow_key(std::uint32_t netns, const EndpointConfig& endpoint,
                               const IpAddress* address) {
  headgate_endpoint_key key{};
  key.netns_id = netns;
  key.port = endpoint.port;
  key.protocol = ip_protocol(endpoint.protocol);
  if (address != nullptr) {
    std::memcpy(key.address, address->bytes.data(), sizeof(key.address));
  }
  return key;
}

bool any_address(const headgate_endpoint_key& key) {
  return (key.address[0] | key.address[1] | key.address[2] | key.address[3]) == 0;
}

bool same_flow(const headgate_endpoint_key& a, const headgate_endpoint_key& b) {
  return std::memcmp(&a, &b, sizeof(a)) == 0;
}

bool in_pods(const std::string& cgroup_path) {
  return cgroup_path.find("kubepods") != std::string::npos;
}

IpAddress loopback_ipv4() {
  IpAddress out;
  out.bytes[10] = out.bytes[11] = 0xff;
  out.bytes[12] = 127;
  out.bytes[15] = 1;
  return out;
}

IpAddress loopback_ipv6() {
  IpAddress out;
  out.bytes[15] = 1;
  return out;
}

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

/// Has the kernel look at the requests of a port, by its routes.
void ProtectedTarget::look_at_requests(std::size_t port) {
  Endpoint& endpoint = endpoints_[port];
  const bool gated = requests_gated(endpoint);
  if (endpoint.looked_at == gated) {
    return;  // nothing else about it changes
  }
  std::vector<std::uint32_t> routes;
  std::size_t next = port + 1;
  for (; endpoints_[next].part == Endpoint::Part::kRoute; ++next) {
    routes.push_back(endpoints_[next].slot);
  }
  const RequestSlots slots{endpoint.slot, endpoints_[next].slot, routes};
  const auto set = shared_.maps.set_requests(
      endpoint.slot,
      make_request_port(*endpoint.config, slots.rest, gated, shared_.requests.next_generation()),
      make_request_routes(*endpoint.config, config_.exempt.paths, slots));
  if (set) {
    endpoint.looked_at = gated;
  } else {
    log::write_once(log::Level::kError, "requests " + config_.name, set.error().message,
                    "routes could not be entered",
                    {{"target", config_.name}, {"reason", set.error().message}});
  }
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
  decide(now, deriver_.signals());
  publish(now, generation);
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
    header.started_unix_ms = std::chrono::duration_cast<std::chrono::milliseconds>(
                                 std::chrono::system_clock::now().time_since_epoch())
                                 .count();
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
      header.endpoints.push_back(
          {shown_name(endpoint), input.criticality, input.floor.value(), input.tcp});
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

// ---------------------------------------------------------------- once a second

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
  const std::int64_t unix_us = std::chrono::duration_cast<std::chrono::microseconds>(
                                   std::chrono::system_clock::now().time_since_epoch())
                                   .count();
  if (auto event = state_events_.make(snapshot(now), now, unix_us)) {
    shared_.events->tell(config_.name + " " + located_.pod->uid, std::move(*event));
  }
}

/// Only where silence can be had: storm mode without it would change nothing.
void ProtectedTarget::watch_storms(Instant now) {
  const bool wanted = wants_early();
  for (Endpoint& endpoint : endpoints_) {
    if (!endpoint.is_port()) {
      continue;
    }
    const std::uint64_t refused = endpoint.last.reset + endpoint.last.dropped;
    const std::uint32_t bits =
        refused != endpoint.refused_seen ? shared_.maps.take_source_bits(endpoint.slot) : 0;
    if (config_.storm && endpoint.config->protocol != Protocol::kUdp && may_be_early()) {
      const auto outcome = endpoint.storm.update(now, refused - endpoint.refused_seen,
                                                 estimate_sources(bits, HEADGATE_SOURCE_BITS));
      if (outcome.changed) {
        log::info(outcome.storm ? "storm: clients that reconnect in a hot loop get silence"
                                : "storm is over: refusals have their usual form",
                  {{"target", config_.name},
                   {"endpoint", endpoint.config->name},
                   {"per_source_per_s", endpoint.storm.per_source_per_s()}});
      }
    }
    endpoint.refused_seen = refused;
  }
  if (wants_early() != wanted) {
    look_again_at(now);  // attaches or detaches
  }
}

bool ProtectedTarget::wants_silence(const Endpoint& endpoint) {
  return endpoint.config->refuse.form == RefuseForm::kDrop || endpoint.storm.storm();
}

bool ProtectedTarget::wants_early() const {
  return std::any_of(endpoints_.begin(), endpoints_.end(), wants_silence);
}

/// There are hooks for silence, or there may be: nobody has tried.
bool ProtectedTarget::may_be_early() const {
  return std::all_of(namespaces_.begin(), namespaces_.end(), [this](const Namespace& space) {
    return space.host ? shared_.xdp.serves(space.inode) : shared_.tc.may_serve(space.inode);
  });
}

/// Hooks in front of the socket see what comes into all namespaces of this target.
bool ProtectedTarget::is_early() const {
  return !namespaces_.empty() &&
         std::all_of(namespaces_.begin(), namespaces_.end(), [this](const Namespace& space) {
           return space.host ? shared_.xdp.serves(space.inode) : space.early;
         });
}

void ProtectedTarget::look(Instant now) {
  look_around(now);
  // Looking into /proc is dear: often while things come up, seldom once they stand. The end of a
  // serving process that is followed is told.
  const bool settled = !namespaces_.empty() && now - opened_at_ > kSettleTime;
  look_again_at(now + (!settled              ? kLookWhenNew
                       : !idle_              ? kLookWhenSettled
                       : serving_.pid() == 0 ? kLookWhenIdle
                                             : kLookWhenFollowed));
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

/// Which namespaces, listeners and sources are ours now.
void ProtectedTarget::look_around(Instant now) {
  located_.namespaces = shared_.locator.namespaces_of(located_.cgroup_path);
  unseen_.clear();
  if (located_.namespaces.empty() && !shared_.locator.pids_of(located_.cgroup_path).empty()) {
    unseen_ =
        "none of its processes may be looked at, so its network namespace is not known (needs "
        "hostPID and CAP_SYS_PTRACE)";
  }
  hold_namespaces();
  if (!counts_connections_ && !namespaces_.empty()) {
    const Namespace& space = namespaces_.front();
    const auto held =
        shared_.connections.hold(slot_, located_.cgroup_path, space.inode, space.host, sees_http2_);
    counts_connections_ = held.has_value();
    if (!held) {
      log::write_once(log::Level::kWarn, "sock_ops " + config_.name, held.error().message,
                      "connections are not counted",
                      {{"target", config_.name}, {"reason", held.error().message}});
    }
  }
  hold_payload();
  for (std::size_t i = 0; i < endpoints_.size() && shared_.requests.sees(); ++i) {
    if (endpoints_[i].is_port() && headgate::sees_requests(*endpoints_[i].config)) {
      look_at_requests(i);
    }
  }
  map_flows(now);
  follow_serving_process(now);
  exempt_sources();
  tell_unseen();
}

void ProtectedTarget::tell_unseen() {
  if (!unseen_.empty()) {
    log::write_once(log::Level::kWarn, "unseen " + config_.name, unseen_,
                    "the gate does not see this target; it is observed only",
                    {{"target", config_.name}, {"reason", unseen_}});
  }
}

/// Whose end is the target's end: the process that listens on its ports.
void ProtectedTarget::follow_serving_process(Instant now) {
  if (serving_.pid() != 0) {
    return;
  }
  for (const Located::Netns& found : located_.namespaces) {
    const auto space =
        std::find_if(namespaces_.begin(), namespaces_.end(),
                     [&](const Namespace& n) { return n.inode == found.inode && n.diag; });
    if (space == namespaces_.end()) {
      continue;
    }
    std::set<std::uint32_t> sockets;
    for (const EndpointConfig& endpoint : config_.endpoints) {
      const auto listeners = shared_.listeners.on_port(
          now, *space->diag, space->inode, ip_protocol(endpoint.protocol), endpoint.port);
      if (listeners) {
        for (const Listener& listener : *listeners) {
          sockets.insert(listener.inode);
        }
      }
    }
    serving_.follow(shared_.locator.proc().root(), found.pids, sockets);
  }
}

/// Live bytes matter where memory has a limit; datagrams show their size nowhere else.
bool ProtectedTarget::wants_payload() const {
  const bool has_udp = std::any_of(
      endpoints_.begin(), endpoints_.end(),
      [](const Endpoint& endpoint) { return endpoint.config->protocol == Protocol::kUdp; });
  const bool live_budget =
      !config_.memory.live_budget_bytes || *config_.memory.live_budget_bytes > 0;
  // ... and answers are seen by it alone.
  const bool answers = sees_requests_ && counts_connections_;
  return has_udp || answers ||
         (live_budget && counts_connections_ &&
          (deriver_.signals().memory_limit_bytes.known() ||
           config_.memory.live_budget_bytes.has_value()));
}

void ProtectedTarget::hold_payload() {
  if (counts_payload_ || namespaces_.empty() || !wants_payload()) {
    return;
  }
  const auto held =
      shared_.payload.hold(slot_, located_.cgroup_path, namespaces_.front().inode, sees_http2_);
  counts_payload_ = held.has_value();
  if (!held) {
    log::write_once(log::Level::kWarn, "cgroup_skb " + config_.name, held.error().message,
                    "live bytes are not known",
                    {{"target", config_.name}, {"reason", held.error().message}});
  }
}

/// Attaches the gate to namespaces that have come, lets go of those that have gone.
void ProtectedTarget::hold_namespaces() {
  for (const Located::Netns& found : located_.namespaces) {
    hold_namespace(found);
  }
  // A namespace without a process of ours is let go, unless all processes are gone: a server that
  // is being restarted comes back into the same one.
  if (located_.namespaces.empty()) {
    return;
  }
  const auto lost = [this](const Namespace& space) {
    return std::none_of(located_.namespaces.begin(), located_.namespaces.end(),
                        [&](const Located::Netns& n) { return n.inode == space.inode; });
  };
  for (const Namespace& space : namespaces_) {
    if (space.gated && lost(space)) {
      shared_.gate.release(space.inode);
    }
    if (space.early && lost(space)) {
      shared_.tc.release(space.inode);
    }
  }
  namespaces_.erase(std::remove_if(namespaces_.begin(), namespaces_.end(), lost),
                    namespaces_.end());
}

void ProtectedTarget::hold_namespace(const Located::Netns& found) {
  auto space = std::find_if(namespaces_.begin(), namespaces_.end(),
                            [&](const Namespace& n) { return n.inode == found.inode; });
  if (space == namespaces_.end()) {
    Namespace fresh;
    fresh.inode = found.inode;
    fresh.host = found.host;
    for (const int pid : found.pids) {
      fresh.fd =
          UniqueFd(::open(fmt::format("/proc/{}/ns/net", pid).c_str(), O_RDONLY | O_CLOEXEC));
      struct stat st {};
      if (fresh.fd && ::fstat(fresh.fd.get(), &st) == 0 && st.st_ino == found.inode) {
        break;
      }
      fresh.fd.reset();
    }
    if (!fresh.fd) {
      return;  // its processes have just ended
    }
    namespaces_.push_back(std::move(fresh));
    space = std::prev(namespaces_.end());
  }
  if (!space->gated) {
    const auto held = shared_.gate.hold(space->inode, space->fd.get());
    space->gated = held.has_value();
    if (!held) {
      log::write_once(log::Level::kWarn, "sk_lookup " + config_.name, held.error().message,
                      "the gate could not be attached; the target is observed only",
                      {{"target", config_.name}, {"reason", held.error().message}});
    }
  }
  hold_early(*space);
  if (const std::string& others = shared_.gate.look_for_others(space->inode, space->fd.get());
      !others.empty()) {
    log::write_once(log::Level::kWarn, "others " + config_.name, others,
                    "this gate is not the only one",
                    {{"target", config_.name}, {"reason", others}});
  }
  const bool needs_pit = std::any_of(endpoints_.begin(), endpoints_.end(),
                                     [this](const Endpoint& endpoint) { return defers(endpoint); });
  if (space->gated && needs_pit && !shared_.gate.has_pit(space->inode)) {
    if (const auto pit = shared_.gate.open_pit(space->inode, space->fd.get()); !pit) {
      log::write_once(log::Level::kWarn, "pit " + config_.name, pit.error().message,
                      "no pit: what should be deferred is reset",
                      {{"target", config_.name}, {"reason", pit.error().message}});
    }
  }
  if (space->diag == nullptr) {
    if (auto diag = SockDiag::open(space->fd.get()); diag) {
      space->diag = std::move(*diag);
    }
  }
}

/// tc is there while silence is wanted, and not before: it runs for every packet of the pod.
void ProtectedTarget::hold_early(Namespace& space) {
  if (space.host) {
    return;  // the interfaces of the configuration are the agent's matter
  }
  if (!wants_early()) {
    if (space.early) {
      shared_.tc.release(space.inode);
      space.early = false;
    }
    return;
  }
  if (space.early) {
    return;
  }
  const auto held = shared_.tc.hold(space.inode, space.fd.get());
  space.early = held.has_value();
  if (!held) {
    for (Endpoint& endpoint : endpoints_) {
      endpoint.storm.reset();
    }
    log::write_once(log::Level::kWarn, "tc " + config_.name, held.error().message,
                    "refusals cannot be silence: they are resets",
                    {{"target", config_.name}, {"reason", held.error().message}});
  }
}

/// The keys under which the kernel finds this endpoint. In a namespace of its own a target owns its
/// ports on every address; in the host's the port belongs to it only where its own processes
/// listen, address by address (a wildcard there would catch other people's sockets).
std::vector<headgate_endpoint_key> ProtectedTarget::wanted_flows(Instant now,
                                                                 const Endpoint& endpoint) {
  std::vector<headgate_endpoint_key> out;
  for (Namespace& space : namespaces_) {
    if (!space.host) {
      out.push_back(flow_key(space.inode, *endpoint.config, nullptr));
      continue;
    }
    const auto owner =
        std::find_if(located_.namespaces.begin(), located_.namespaces.end(),
                     [&](const Located::Netns& n) { return n.inode == space.inode; });
    if (space.diag == nullptr) {
      unseen_ = "the listeners of the node's network cannot be listed (needs CAP_SYS_ADMIN)";
    }
    if (space.diag == nullptr || owner == located_.namespaces.end()) {
      continue;
    }
    const std::string descriptors =
        fmt::format("{}/{}/fd", shared_.locator.proc().root(), owner->pids.front());
    if (::access(descriptors.c_str(), R_OK | X_OK) != 0 && errno == EACCES) {
      unseen_ = descriptors +
                " may not be read, so its sockets cannot be told from others' (needs "
                "CAP_DAC_READ_SEARCH)";
    }
    const auto listeners =
        shared_.listeners.on_port(now, *space.diag, space.inode,
                                  ip_protocol(endpoint.config->protocol), endpoint.config->port);
    if (!listeners) {
      log::write_once(log::Level::kWarn, "listeners " + config_.name, listeners.error().message,
                      "listeners cannot be read",
                      {{"target", config_.name}, {"reason", listeners.error().message}});
      continue;
    }
    if (listeners->empty()) {
      continue;
    }
    const std::set<std::uint32_t> own = sockets_of(shared_.locator.proc().root(), owner->pids);
    std::set<IpAddress> addresses;
    std::set<IpAddress> foreign;
    for (const Listener& listener : *listeners) {
      const bool ours = own.count(listener.inode) != 0;
      if (!listener.address.is_any()) {
        (ours ? addresses : foreign).insert(listener.address);
        continue;
      }
      if (!ours) {
        continue;
      }
      const bool takes_ipv6 = !listener.address.is_ipv4();
      const bool takes_ipv4 = listener.address.is_ipv4() || !listener.ipv6_only;
      if (takes_ipv4) {
        addresses.insert(loopback_ipv4());
      }
      if (takes_ipv6) {
        addresses.insert(loopback_ipv6());
      }
      if (shared_.addresses != nullptr) {
        for (const IpAddress& address : shared_.addresses->addresses()) {
          if (address.is_ipv4() ? takes_ipv4 : takes_ipv6) {
            addresses.insert(address);
          }
        }
      }
    }
    for (const IpAddress& address : foreign) {
      addresses.erase(address);
    }
    if (addresses.empty()) {
      continue;
    }
    out.push_back(flow_key(space.inode, *endpoint.config, nullptr));
    for (const IpAddress& address : addresses) {
      out.push_back(flow_key(space.inode, *endpoint.config, &address));
    }
  }
  return out;
}

void ProtectedTarget::map_flows(Instant now) {
  for (Endpoint& endpoint : endpoints_) {
    if (!endpoint.is_port()) {
      continue;
    }
    const std::uint32_t requests =
        headgate::sees_requests(*endpoint.config) && shared_.requests.sees() ? HEADGATE_REF_REQUESTS
                                                                             : 0U;
    const std::vector<headgate_endpoint_key> wanted = wanted_flows(now, endpoint);
    const auto holds = [](const std::vector<headgate_endpoint_key>& keys,
                          const headgate_endpoint_key& key) {
      return std::any_of(keys.begin(), keys.end(),
                         [&](const headgate_endpoint_key& k) { return same_flow(k, key); });
    };
    std::vector<headgate_endpoint_key> mapped;
    for (const headgate_endpoint_key& key : wanted) {
      const bool host = std::any_of(
          namespaces_.begin(), namespaces_.end(),
          [&](const Namespace& space) { return space.inode == key.netns_id && space.host; });
      const headgate_endpoint_ref ref{
          endpoint.slot, requests | (host && any_address(key) ? HEADGATE_REF_BY_ADDRESS : 0U)};
      if (holds(endpoint.flows, key)) {
        mapped.push_back(key);
      } else if (auto done = shared_.maps.map_flow(key, ref); done) {
        mapped.push_back(key);
      } else {
        log::write_once(log::Level::kError, "flow " + config_.name, done.error().message,
                        "an endpoint could not be entered",
                        {{"target", config_.name}, {"reason", done.error().message}});
      }
    }
    for (const headgate_endpoint_key& key : endpoint.flows) {
      if (!holds(mapped, key)) {
        shared_.maps.unmap_flow(key);
      }
    }
    endpoint.flows = std::move(mapped);
  }
}

/// The node's own connects are exempt by default for pods only: on a plain host every local sender
/// is "the node", and loopback may be where the load comes from.
void ProtectedTarget::exempt_sources() {
  const std::vector<std::string> words = config_.exempt.sources.value_or(
      in_pods(located_.cgroup_path) ? std::vector<std::string>{"node"}
                                    : std::vector<std::string>{});
  std::vector<ExemptSource> sources;
  exempts_node_ = false;
  for (const std::string& word : words) {
    if (word == "node") {
      exempts_node_ = shared_.node_connects.attached();
      if (!exempts_node_ && shared_.addresses != nullptr) {
        for (const IpAddress& address : shared_.addresses->addresses()) {
          sources.push_back({IpPrefix{address, 128}, HEADGATE_EXEMPT_KIND_NODE});
        }
      }
    } else if (const auto prefixes = parse_prefixes(word); prefixes) {
      for (const IpPrefix& prefix : *prefixes) {
        sources.push_back({prefix, HEADGATE_EXEMPT_KIND_SOURCE});
      }
    }
  }
  exempts_sources_ = !sources.empty();
  if (const auto set = shared_.maps.set_exempt(slot_, sources); !set) {
    log::write_once(log::Level::kError, "exempt " + config_.name, set.error().message,
                    "exempt sources could not be written",
                    {{"target", config_.name}, {"reason", set.error().message}});
  }
}

/// Connections older than the attach of sock_ops carry no mark: what the kernel's socket table has
/// and the counter has not is legacy.
void ProtectedTarget::count_legacy() {
  legacy_settled_ = counts_connections_;
  for (Endpoint& endpoint : endpoints_) {
    endpoint.legacy_settled = endpoint.legacy_settled || !endpoint.is_port() ||
                              endpoint.config->protocol == Protocol::kUdp;
    if (!counts_connections_ || endpoint.legacy_settled) {
      continue;
    }
    std::uint64_t live = 0;
    bool known = false;
    for (const Namespace& space : namespaces_) {
      if (space.diag == nullptr) {
        continue;
      }
      if (const auto n = space.diag->live_connections(endpoint.config->port, nullptr); n) {
        live += *n;
        known = true;
      }
    }
    if (known) {
      const std::uint64_t counted = in_flight(endpoint);
      endpoint.legacy_connections = live > counted ? live - counted : 0;
      // Nothing can become legacy any more: once they have ended, nobody need count them.
      endpoint.legacy_settled = endpoint.legacy_connections == 0;
    }
    legacy_settled_ = legacy_settled_ && endpoint.legacy_settled;
  }
}

// ---------------------------------------------------------------- what outlives the agent

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

std::vector<std::byte> ProtectedTarget::learned() const {
  std::vector<std::byte> out(HEADGATE_MODEL_BYTES);
  out.resize(strategy_->save(out));
  return out;
}

void ProtectedTarget::go_on_from(std::span<const std::byte> learned) {
  began_again_ = !learned.empty() && strategy_->restore(learned);
}

void ProtectedTarget::inherit(const ProtectedTarget& old) {
  deriver_ = old.deriver_;
  transitions_ = old.transitions_;
  state_events_ = old.state_events_;
  if (old.config_.strategy.name == config_.strategy.name) {
    std::array<std::byte, HEADGATE_MODEL_BYTES> bytes{};
    const std::size_t used = old.strategy_->save(bytes);
    if (used > 0) {
      strategy_->restore(std::span(bytes).first(used));
    }
  }
  decision_.state = old.decision_.state;
  for (Endpoint& endpoint : endpoints_) {
    for (const Endpoint& was : old.endpoints_) {
      if (was.slot == endpoint.slot && config_.storm) {
        endpoint.storm = was.storm;
      }
    }
  }
}

// ---------------------------------------------------------------- for people

namespace {

headgate_counters per_second(const headgate_counters& now, const headgate_counters& before,
                             double elapsed_s) {
  constexpr std::size_t kWords = sizeof(headgate_counters) / sizeof(std::uint64_t);
  std::array<std::uint64_t, kWords> a{};
  std::array<std::uint64_t, kWords> b{};
  std::memcpy(a.data(), &now, sizeof(now));
  std::memcpy(b.data(), &before, sizeof(before));
  for (std::size_t i = 0; i < kWords; ++i) {
    a[i] = elapsed_s > 0
               ? static_cast<std::uint64_t>(static_cast<double>(a[i] - b[i]) / elapsed_s + 0.5)
               : 0;
  }
  headgate_counters out{};
  std::memcpy(&out, a.data(), sizeof(out));
  return out;
}

}  // namespace

std::string ProtectedTarget::shown_name(const Endpoint& endpoint) {
  switch (endpoint.part) {
    case Endpoint::Part::kPort: break;
    case Endpoint::Part::kRoute:
      return endpoint.config->name + "/" + endpoint.config->routes[endpoint.route].name;
    case Endpoint::Part::kRest: return endpoint.config->name + "/(rest)";
  }
  return endpoint.config->name;
}

void ProtectedTarget::snapshot_port(const Endpoint& endpoint, EndpointSnapshot& out) const {
  out.in_flight = in_flight(endpoint) + endpoint.legacy_connections;
  out.in_flight_known = counts_connections_ && endpoint.config->protocol != Protocol::kUdp;
  out.beside_gate = endpoint.beside.connections();
  out.storm = endpoint.storm.storm();
  if (requests_gated(endpoint)) {
    out.unrecognized_ratio = endpoint.unrecognized.share();
    out.decision = for_unrecognized(out.decision, out.unrecognized_ratio);
  }
  out.sees_requests = headgate::sees_requests(*endpoint.config) && shared_.requests.sees();
  if (out.sees_requests) {
    out.unknown = shared_.maps.unknowns(endpoint.slot);
  }
}

void ProtectedTarget::snapshot_requests(const Endpoint& endpoint, EndpointSnapshot& out) const {
  const EndpointConfig& config = *endpoint.config;
  out.requests = true;
  out.refusable = requests_gated(endpoint);
  if (endpoint.part == Endpoint::Part::kRoute) {
    const RouteConfig& route = config.routes[endpoint.route];
    out.path = route.path;
    out.criticality = route.criticality;
    out.config_line = route.place.line;
    out.refusable = out.refusable && (config.protocol != Protocol::kGrpc || route.unary);
  } else {
    out.refusable = out.refusable && config.protocol != Protocol::kGrpc;
  }
  if (!requests_gated(endpoint)) {
    out.decision = {};
  }
  out.in_flight = in_flight(endpoint);
  out.in_flight_known = counts_payload_;
}

TargetSnapshot ProtectedTarget::snapshot(Instant now) {
  TargetSnapshot out;
  out.name = config_.name;
  out.instance = located_.cgroup_path;
  if (located_.pod && !located_.pod->name.empty()) {
    out.instance = fmt::format("{}/{}/{}", located_.pod->namespace_name, located_.pod->name,
                               located_.pod->container);
  }
  out.pod = located_.pod;
  out.cgroup_path = located_.cgroup_path;
  out.strategy = config_.strategy.name;
  out.mode = mode_;
  out.config_line = config_.place.line;
  out.present = true;
  out.state = decision_.state;
  out.why = decision_.why;
  out.sample = sample_;
  out.signals = deriver_.signals();
  if (sample_.cpu_usage_ns.known() || sample_.memory_current_bytes.known()) {
    out.sample_age_s = seconds(now - sample_.at);
  }
  out.thresholds = strategy_->thresholds();
  out.policy = shared_.maps.target_policy(slot_);
  out.lease_valid = out.policy.valid_until_ns >= to_ktime_ns(now);
  const headgate_target_state& state = shared_.maps.target_state(slot_);
  const auto waiting = static_cast<std::int64_t>(state.waiting_started - state.waiting_settled -
                                                 waiting_.written_off());
  out.waiting = waiting > 0 ? static_cast<std::uint64_t>(waiting) : 0;
  out.restarts = restarts_;
  const double elapsed_s = second_ago_at_ == Instant{} ? 0 : seconds(now - second_ago_at_);
  for (const Endpoint& endpoint : endpoints_) {
    EndpointSnapshot e;
    e.name = shown_name(endpoint);
    e.port = endpoint.config->port;
    e.protocol = endpoint.config->protocol;
    e.criticality = endpoint.config->criticality;
    e.refuse =
        endpoint.is_port() ? connection_form(*endpoint.config) : endpoint.config->refuse.form;
    e.config_line = endpoint.config->place.line;
    if (endpoint.input != kNoInput) {
      e.decision = decision_.endpoints[endpoint.input];
    }
    if (endpoint.is_port()) {
      snapshot_port(endpoint, e);
    } else {
      snapshot_requests(endpoint, e);
    }
    e.policy = shared_.maps.endpoint_policy(endpoint.slot);
    e.counters = shared_.maps.counters(endpoint.slot);
    e.rates = per_second(e.counters, endpoint.second_ago, elapsed_s);
    out.endpoints.push_back(std::move(e));
  }
  if (!unseen_.empty()) {
    out.hooks.push_back(
        {"sk_lookup", "cgroup " + located_.cgroup_path, "off", "", 0, EACCES, unseen_});
  }
  for (const Namespace& space : namespaces_) {
    out.hooks.push_back(shared_.gate.status(space.inode));
    if (!space.host && wants_early()) {
      out.hooks.push_back(shared_.tc.status(space.inode));
    }
    if (space.host) {
      for (HookStatus& status : shared_.xdp.status()) {
        out.hooks.push_back(std::move(status));
      }
    }
  }
  out.hooks.push_back(shared_.connections.status(slot_));
  if (wants_payload()) {
    out.hooks.push_back(shared_.payload.status(slot_));
  }
  if (sees_requests_) {
    out.hooks.push_back(shared_.requests.status());
  }
  out.transitions.assign(transitions_.begin(), transitions_.end());
  out.sample_errors_by_file = sampler_->errors();
  const SignalDeriver::Distrusted& distrusted = deriver_.distrusted();
  for (const auto& [reason, count] : {std::pair{Unknown::kWentBack, distrusted.went_back},
                                      std::pair{Unknown::kImpossible, distrusted.impossible}}) {
    if (count > 0) {
      out.sample_errors_by_file.push_back({{"cpu_usage", reason}, count});
    }
  }
  for (const auto& [what, count] : out.sample_errors_by_file) {
    out.sample_errors[static_cast<std::size_t>(what.second)] += count;
  }
  out.warnings = warnings_;
  return out;
}

}  // namespace headgate
