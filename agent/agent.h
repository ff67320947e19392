// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "headgate/result.h"

#include "agent/base/service.h"
#include "agent/base/unique_fd.h"
#include "agent/cgroup/hierarchy.h"
#include "agent/cgroup/kept_file.h"
#include "agent/config/config.h"
#include "agent/config/load.h"
#include "agent/config/watch.h"
#include "agent/dataplane/bpffs.h"
#include "agent/dataplane/kernel_maps.h"
#include "agent/dataplane/net.h"
#include "agent/hooks/node_connects.h"
#include "agent/hooks/sk_lookup.h"
#include "agent/hooks/sock_ops.h"
#include "agent/hooks/tc.h"
#include "agent/hooks/xdp.h"
#include "agent/protected_target.h"
#include "agent/snapshot.h"
#include "agent/targets/kube_events.h"
#include "agent/targets/locate.h"
#include "agent/targets/locate_pods.h"
#include "agent/targets/pod_source.h"

namespace headgate {

struct AgentOptions {
  Config config;            ///< valid
  std::string config_file;  ///< empty: made from the command line, nothing to reload
  std::string pin_root = "/sys/fs/bpf/headgate";  ///< empty: nothing is pinned
  std::string cgroup_root = "/sys/fs/cgroup";
  std::string proc_root = "/proc";
  bool observe_only = false;  ///< --observe: whatever the configuration says, refuse nothing
  bool wait_for_lock = true;  ///< false: another agent on the node is an error
  /// Called on the loop when this agent has become the active one of the node.
  std::function<void()> on_active;
  bool purge_on_exit = false;         ///< --on-exit=purge
  bool purge_unless_awaited = false;  ///< --on-exit=handover
  /// Opens who tells of this node's pods; called when the configuration matches pods for the first
  /// time.
  std::function<Result<std::unique_ptr<PodSource>>()> open_pods;
  /// Opens who tells the API server what happens to pods; nullptr: nobody is to. Called once, by
  /// the active agent.
  std::function<Result<std::unique_ptr<KubeEvents>>()> open_events;
};

/// The agent: one loop on one thread. START READING AT tick().
///
/// Other threads see snapshots, and may ask for what request_reload() and set_off() do.
class Agent final : public SnapshotSource {
 public:
  /// Errors: no cgroup tree. Everything else that is missing leaves the agent running, degraded.
  [[nodiscard]] static Result<std::unique_ptr<Agent>> open(AgentOptions options);
  ~Agent() override;
  Agent(const Agent&) = delete;
  Agent& operator=(const Agent&) = delete;
  Agent(Agent&&) = delete;
  Agent& operator=(Agent&&) = delete;

  /// Runs until SIGTERM or SIGINT (which must be blocked in all threads before). Returns after a
  /// last renewal of the leases, in less than a second.
  [[nodiscard]] Result<> run();

  /// Takes the node's lock, if it is free, before run() does: true = this agent has it and will be
  /// the active one. Call before run() only.
  [[nodiscard]] Result<bool> try_lock();

  // -- for other threads
  [[nodiscard]] SnapshotPtr snapshot() override;
  [[nodiscard]] bool alive() const override;
  [[nodiscard]] std::string effective_config() const;
  /// Reads the configuration again now; the error says why the last good one stays.
  [[nodiscard]] Result<> request_reload();
  /// Lines of the trace of a target, from number `from` on; the first call begins it. Errors: no
  /// such target, or it is not there.
  [[nodiscard]] Result<Recorder::Part> record(const std::string& target, std::uint64_t from);
  /// The kill switch: one cell that kernel and agents honour, kept over restarts.
  [[nodiscard]] Result<> set_off(bool off);

 private:
  /// One target of the configuration and what lives of it.
  struct Configured {
    TargetConfig config;
    std::vector<std::unique_ptr<ProtectedTarget>> instances;
    std::string absent_why;
    Instant looked_at{};
    bool incomplete = false;  ///< there is more to be found, soon
    /// What instances that have gone had learned, by where they were: containers and services that
    /// are started again have a cgroup of another identity.
    struct Gone {
      std::string where;
      Learned learned;
    };
    std::vector<Gone> gone;
  };

  explicit Agent(AgentOptions options, Hierarchy hierarchy);

  void tick(Instant now);
  void discover(Instant now);
  void drop_gone();
  void list_running();
  void look_around(Instant now);
  void look_for(Configured& configured, const Shared& shared, Instant now);
  void look_for_pods(Configured& configured, const Shared& shared, Instant now);
  void open_found(Configured& configured, const Located& found, const Shared& shared, Instant now);
  [[nodiscard]] const Configured* holder_of(const Located& found, const Configured& besides) const;
  static void go_on_from_learned(const Configured& configured, ProtectedTarget& fresh);
  static void keep_learned(Configured& configured, const ProtectedTarget& gone);
  void note_absent(Configured& configured, const std::string& why);
  [[nodiscard]] bool pods_changed(Instant now);
  void open_pods();
  void open_events();
  void once_a_second(Instant now);
  void exempt_node_addresses();
  void collect_orphans(Instant now);

  [[nodiscard]] Result<bool> take_over();
  [[nodiscard]] Result<> start_kernel_side(Instant now);
  void stop_kernel_side();
  [[nodiscard]] Result<> reload_file();
  [[nodiscard]] Result<> take_over_config(LoadedConfig loaded);
  tl::unexpected<Error> keep_last_good(const std::string& why);
  void tell_of_config();
  void apply(Config config, Instant now);
  void dump();
  void leave();
  void leave_standby();
  [[nodiscard]] Result<> on_loop(std::function<Result<>()> work);
  void run_posted();
  [[nodiscard]] SnapshotPtr make_snapshot(Instant now);
  void degrade(const std::string& text);
  void attach_requests();

  AgentOptions options_;
  Hierarchy hierarchy_;
  Locator locator_;
  PodLocator pod_locator_{locator_};
  std::unique_ptr<PodSource> pods_;    ///< nullptr: no pods are wanted, or nobody tells of them
  std::string pods_problem_;           ///< why nobody does
  std::uint64_t pods_generation_ = 0;  ///< of what was looked at last
  Instant pods_looked_at_{};
  std::unique_ptr<KubeEvents> events_;  ///< nullptr: nobody is told
  std::size_t pods_at_once_ = 0;        ///< new instances that a target gets in one tick, at most
  PinDirectory pins_;
  std::unique_ptr<ConfigWatcher> watcher_;
  bool standby_ = true;
  unsigned machine_cpus_ = machine_cpus();
  KeptFile load_average_;
  Measured<double> load1_;

  // Destroyed in reverse order: targets give their hooks back, hooks their maps.
  std::unique_ptr<KernelMaps> maps_;
  ListenerTable listeners_;
  std::unique_ptr<SkLookupHook> gate_;
  std::unique_ptr<SockOpsHook> connections_;
  std::unique_ptr<CgroupSkbHook> payload_;
  std::unique_ptr<NodeConnectsHook> node_connects_;
  std::unique_ptr<TcHook> tc_;
  std::unique_ptr<XdpHook> xdp_;
  std::unique_ptr<RequestsHook> requests_;
  std::unique_ptr<NodeAddresses> addresses_;
  std::vector<Configured> targets_;
  std::vector<ProtectedTarget*> running_;  ///< all instances of targets_, as discover() left them
  std::size_t looks_next_ = 0;             ///< index in running_: whose turn it is to look around
  std::vector<std::uint32_t> running_slots_;                                 ///< of the same
  std::vector<Rest> rests_ = std::vector<Rest>(HEADGATE_MAX_TARGETS);        ///< by target slot
  std::vector<Instant> looks_ = std::vector<Instant>(HEADGATE_MAX_TARGETS);  ///< by target slot
  std::uint64_t limits_generation_ = 0;  ///< of LimitCache, seen
  // Of one tick, kept for their memory.
  std::vector<ProtectedTarget*> due_;
  std::vector<std::uint32_t> due_targets_;
  std::vector<std::uint32_t> due_endpoints_;

  std::uint32_t generation_ = 0;
  Instant started_{};
  Instant active_since_{};  ///< has the lock since
  Instant last_tick_{};
  Instant last_second_{};
  Instant last_orphans_{};
  bool filters_cleared_ = false;  ///< those of agents before us
  Instant discover_at_{};         ///< nothing to look for before
  bool someone_gone_ = false;     ///< seen in the last tick
  std::uint64_t orphans_removed_ = 0;
  std::uint64_t ticks_missed_ = 0;
  Duration last_tick_cost_{};
  Duration last_tick_lag_{};
  std::array<std::uint64_t, 12> tick_cost_histogram_{};
  double tick_cost_seconds_ = 0;
  std::array<std::uint64_t, 12> tick_lag_histogram_{};
  double tick_lag_seconds_ = 0;
  std::vector<std::string> degraded_;
  bool reload_ok_ = true;
  std::int64_t reload_ok_unix_s_ = 0;
  std::string reload_error_;

  UniqueFd timer_;
  UniqueFd wake_;  ///< eventfd: something was posted
  mutable std::mutex mutex_;
  SnapshotPtr snapshot_;          ///< guarded by mutex_
  Instant snapshot_at_{};         ///< guarded by mutex_
  std::string effective_config_;  ///< guarded by mutex_
  struct Posted {
    std::function<Result<>()> work;
    std::function<void(Result<>)> done;
  };
  std::vector<Posted> posted_;  ///< guarded by mutex_
  bool accepts_posts_ = false;  ///< guarded by mutex_
  std::atomic<std::int64_t> alive_ns_{0};
};

}  // namespace headgate
