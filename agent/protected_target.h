// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "headgate/result.h"
#include "headgate/strategy.h"

#include "agent/base/unique_fd.h"
#include "agent/beside_gate.h"
#include "agent/cgroup/hierarchy.h"
#include "agent/cgroup/sampler.h"
#include "agent/config/config.h"
#include "agent/dataplane/kernel_maps.h"
#include "agent/dataplane/listener_table.h"
#include "agent/dataplane/net.h"
#include "agent/decision/blast_radius.h"
#include "agent/decision/live_ages.h"
#include "agent/decision/publish_policy.h"
#include "agent/decision/requests.h"
#include "agent/decision/storm.h"
#include "agent/hooks/cgroup_skb.h"
#include "agent/hooks/node_connects.h"
#include "agent/hooks/requests.h"
#include "agent/hooks/sk_lookup.h"
#include "agent/hooks/sock_ops.h"
#include "agent/hooks/tc.h"
#include "agent/hooks/xdp.h"
#include "agent/outstanding.h"
#include "agent/recorder.h"
#include "agent/rest.h"
#include "agent/signals/signals.h"
#include "agent/snapshot.h"
#include "agent/state_events.h"
#include "agent/targets/kube_events.h"
#include "agent/targets/locate.h"
#include "agent/targets/serving_process.h"

namespace headgate {

/// What all targets share; lives in the agent and outlives them.
struct Shared {
  const Hierarchy& hierarchy;
  const Locator& locator;
  KernelMaps& maps;
  SkLookupHook& gate;
  SockOpsHook& connections;
  CgroupSkbHook& payload;
  RequestsHook& requests;
  NodeConnectsHook& node_connects;
  TcHook& tc;
  XdpHook& xdp;
  const NodeAddresses* addresses;  ///< nullptr: not known
  const unsigned& machine_cpus;    ///< 0: not known
  const Measured<double>& load1;   ///< of the node
  ListenerTable& listeners;
  std::span<Rest> rests;     ///< by target slot
  std::span<Instant> looks;  ///< by target slot: when it wants look() next
  KubeEvents* events;        ///< nullptr: nobody is told
};

/// What a strategy has learned about a target, for one of the same name alone.
struct Learned {
  std::string strategy;
  std::vector<std::byte> bytes;  ///< of Strategy::save(); empty = nothing yet
};

/// One living instance of a target of the configuration, from its cgroup to its policies in the
/// kernel. tick() is the product in four lines; look() finds, seldom, what has come around it.
class ProtectedTarget {
 public:
  /// Errors: no slot left, the cgroup is gone. A gate that cannot be attached is no error: the
  /// target is then observed, and says why.
  [[nodiscard]] static Result<std::unique_ptr<ProtectedTarget>> open(const Config& config,
                                                                     const TargetConfig& target,
                                                                     const Located& located,
                                                                     const Shared& shared,
                                                                     Instant now);
  ProtectedTarget(const ProtectedTarget&) = delete;
  ProtectedTarget& operator=(const ProtectedTarget&) = delete;
  ProtectedTarget(ProtectedTarget&&) = delete;
  ProtectedTarget& operator=(ProtectedTarget&&) = delete;
  /// Gives slots, flows and hooks back; what nobody else holds is detached.
  ~ProtectedTarget();

  [[nodiscard]] std::uint32_t slot() const { return slot_; }
  [[nodiscard]] std::span<const std::uint32_t> endpoint_slots() const { return slots_; }
  /// Where it does not rest, and when its states have been read. False: its cgroup is gone.
  [[nodiscard]] bool tick(Instant now, std::int64_t unix_ms, std::uint32_t generation);
  /// Which namespaces, listeners and sources are its own now; attaches what has come. A program for
  /// a new namespace takes the verifier a tenth of a second and more. Due by Shared::looks.
  void look(Instant now);
  /// Somebody wrote a limit, perhaps one of its own: the next tick does not rest, and reads them.
  void expect_new_limits();
  /// Right after open, instead of the first look(): the kernel finds its endpoints only once their
  /// policies, decided on what was inherited, are there.
  void begin(Instant now, std::uint32_t generation);
  /// A reload opens targets anew over the old slots: what was learned goes over.
  void inherit(const ProtectedTarget& old);
  /// What it has learned about its program.
  [[nodiscard]] Learned learned() const;
  /// The same program runs again in another cgroup: what one before has learned. Right after open.
  void go_on_from(const Learned& learned);

  /// The agent ends and its pins stay: the destructor gives nothing back.
  void leave_in_force() { claimed_ = false; }

  [[nodiscard]] bool gone() const { return sampler_->gone(); }
  [[nodiscard]] std::uint64_t cgroup_id() const { return located_.cgroup_id; }
  [[nodiscard]] const Located& located() const { return located_; }
  [[nodiscard]] TargetSnapshot snapshot(Instant now);
  /// The trace of this target from line `from` on. The first call begins it; it ends by itself when
  /// nobody calls any more.
  [[nodiscard]] Recorder::Part record(std::uint64_t from, Instant now);
  void set_stagger(unsigned stagger) { sampler_->set_stagger(stagger); }

 private:
  /// A port, then its routes, then what has none: each with a slot of its own. Routes and rest are
  /// there where the port's requests are looked at.
  struct Endpoint {
    enum class Part : std::uint8_t { kPort, kRoute, kRest };
    Part part = Part::kPort;
    const EndpointConfig* config = nullptr;  ///< of the port, in config_
    std::size_t port = 0;                    ///< index of the port in endpoints_
    std::size_t route = 0;                   ///< kRoute: index in config.routes
    std::size_t input = 0;                   ///< index in inputs_; kNoInput: only counted
    std::uint32_t slot = 0;
    Unrecognized unrecognized;        ///< kPort
    std::optional<bool> looked_at;    ///< kPort: its requests are; true = and refused
    headgate_counters last{};         ///< at the last tick
    std::uint64_t stirred = ~0ULL;    ///< KernelMaps::stirred() then
    headgate_counters second_ago{};   ///< one to two seconds ago
    headgate_counters last_second{};  ///< at the last mark_second()
    std::vector<headgate_endpoint_key> flows;
    std::uint64_t legacy_connections = 0;
    bool legacy_settled = false;      ///< there are none, and there will be none
    headgate_life_histogram lives{};  ///< at the last tick
    double datagram_bytes = 0;        ///< mean of those admitted last; 0 = not known
    Outstanding tickets;
    BesideGate beside;
    StormWatch storm;
    std::uint64_t refused_seen = 0;  ///< by `storm`

    [[nodiscard]] bool is_port() const { return part == Part::kPort; }
    /// Its connections are told from its requests, which are refused one by one.
    [[nodiscard]] bool refuses_requests() const {
      return headgate::refuses_requests(config->refuse.form);
    }
  };
  static constexpr std::size_t kNoInput = ~std::size_t{0};
  struct Namespace {
    std::uint32_t inode = 0;
    UniqueFd fd;
    bool host = false;
    bool gated = false;
    bool early = false;  ///< tc is attached
    std::unique_ptr<SockDiag> diag;
  };

  ProtectedTarget(const Config& config, const TargetConfig& target, const Located& located,
                  const Shared& shared);
  [[nodiscard]] Result<> claim(Instant now);
  [[nodiscard]] Result<> claim_endpoint(Endpoint endpoint, std::uint64_t route_hash, Instant now);
  [[nodiscard]] Result<> claim_requests(std::size_t port, Instant now);
  [[nodiscard]] bool requests_gated(const Endpoint& endpoint) const;
  void look_at_requests(std::size_t port);
  void collect_activity(Instant now);
  void collect_port(Endpoint& endpoint, const headgate_counters& counters,
                    EndpointActivity& activity) const;
  void collect_requests(Endpoint& endpoint, const headgate_counters& counters,
                        EndpointActivity& activity);
  [[nodiscard]] std::uint64_t in_flight(const Endpoint& endpoint) const;
  void collect_lives(Endpoint& endpoint, EndpointActivity& activity) const;
  void collect_responses(Endpoint& endpoint, const headgate_counters& counters,
                         EndpointActivity& activity) const;
  void collect_sizes(Endpoint& endpoint, const headgate_counters& counters,
                     EndpointActivity& activity) const;
  void bound_live_bytes();
  [[nodiscard]] std::uint64_t largest_request_bytes() const;
  [[nodiscard]] bool wants_payload() const;
  void hold_payload();
  [[nodiscard]] Rest& rest() { return shared_.rests[slot_]; }
  void look_again_at(Instant at) { shared_.looks[slot_] = at; }
  void plan_rest();
  /// In the first tick of each second: what need not be done in each.
  void refresh(Instant now);
  /// Notes the counters, for the rates of snapshot().
  void mark_second(Instant now);
  void record_tick();
  void decide(Instant now, const Signals& signals);
  void publish(Instant now, std::uint32_t generation);
  void publish_endpoint(Endpoint& endpoint, PolicyContext context, Instant now);
  void publish_requests(const Endpoint& endpoint, PolicyContext context);
  [[nodiscard]] std::uint64_t recognized_in_flight() const;
  [[nodiscard]] bool gates_connections(const Endpoint& endpoint) const;
  [[nodiscard]] static std::uint8_t ip_protocol(Protocol protocol);
  [[nodiscard]] static std::string shown_name(const Endpoint& endpoint);
  void snapshot_port(const Endpoint& endpoint, EndpointSnapshot& out) const;
  void snapshot_requests(const Endpoint& endpoint, EndpointSnapshot& out) const;
  void remember(State before, std::int64_t unix_ms, Instant now);
  void tell_state(Instant now);
  void restore_model();
  bool take_up(const Learned& learned);
  [[nodiscard]] headgate_model save_model() const;

  void look_around(Instant now);
  void plan_look(Instant now);
  void hold_namespaces();
  void hold_namespace(const Located::Netns& found);
  void map_flows(Instant now);
  [[nodiscard]] std::vector<headgate_endpoint_key> wanted_flows(Instant now,
                                                                const Endpoint& endpoint);
  void follow_serving_process(Instant now);
  void tell_unseen();
  void exempt_sources();
  void count_legacy();
  [[nodiscard]] bool defers(const Endpoint& endpoint) const;
  void watch_storms(Instant now);
  [[nodiscard]] static bool wants_silence(const Endpoint& endpoint);
  [[nodiscard]] bool wants_early() const;
  [[nodiscard]] bool may_be_early() const;
  [[nodiscard]] bool is_early() const;
  void hold_early(Namespace& space);
  void warn(const std::string& text);

  const Duration lease_;
  const Duration tick_;
  const Mode mode_;
  const TargetConfig config_;
  Located located_;
  Shared shared_;
  std::string instance_;  ///< name in logs
  std::uint64_t name_hash_ = 0;

  bool claimed_ = false;
  std::uint32_t slot_ = 0;
  std::vector<Endpoint> endpoints_;
  std::vector<std::uint32_t> slots_;  ///< of endpoints_
  bool sees_requests_ = false;        ///< some endpoint has routes or refuses requests
  bool sees_http2_ = false;           ///< some of them in HTTP/2
  bool legacy_settled_ = false;       ///< of all of them
  std::vector<Namespace> namespaces_;
  Instant opened_at_{};
  Instant refreshed_at_{};
  bool counts_connections_ = false;  ///< sock_ops is attached
  bool counts_payload_ = false;      ///< the programs on cgroup_skb are
  bool exempts_node_ = false;
  bool exempts_sources_ = false;

  std::unique_ptr<CgroupSampler> sampler_;
  Sample sample_;
  SignalDeriver deriver_;
  std::unique_ptr<Strategy> strategy_;
  std::vector<EndpointInput> inputs_;  ///< of the endpoints that are judged
  Decision decision_;
  // As the strategy saw them in the last tick.
  std::uint64_t live_bytes_seen_ = 0;
  std::uint64_t largest_request_seen_ = 0;
  ServingProcess serving_;
  bool restarted_ = false;      ///< seen in the last tick
  bool began_again_ = false;    ///< go_on_from(), and no tick since
  std::uint64_t restarts_ = 0;  ///< seen since the target was opened
  bool had_no_room_ = false;    ///< for some attempt since the tick before
  BlastRadius blast_radius_;
  std::unique_ptr<Recorder> recorder_;  ///< nullptr: nobody records
  Mode published_mode_ = Mode::kEnforce;
  bool idle_ = false;  ///< nothing comes and nothing is used
  Instant model_stored_at_{};
  Outstanding tickets_;
  Outstanding waiting_;
  LiveAges live_ages_;
  Instant collected_at_{};
  double closes_per_s_ = 0;  ///< smoothed over a second
  double response_s_ = 0;    ///< mean life of connections, smoothed; 0 = not known
  bool cold_ = true;  ///< nothing published yet: an adopted policy stays until signals are there
  Instant second_ago_at_{};
  Instant last_second_at_{};
  std::deque<Transition> transitions_;
  StateEvents state_events_;
  std::vector<std::string> warnings_;
  std::string unseen_;  ///< what of it may not be looked at, so that it is not gated; "" = nothing
};

}  // namespace headgate
