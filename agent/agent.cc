// SPDX-License-Identifier: Apache-2.0
#include "agent/agent.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <future>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "agent/base/log.h"
#include "agent/base/service.h"
#include "agent/base/wall_clock.h"
#include "agent/cgroup/limits.h"
#include "agent/cgroup/parse.h"
#include "agent/hooks/remedy.h"
#include "agent/strategies/registry.h"
#include "agent/version.h"

namespace headgate {
namespace {

using std::chrono::milliseconds;

constexpr Duration kSecond = std::chrono::seconds(1);
constexpr Duration kLookForAbsent = milliseconds(500);
constexpr Duration kLookForMore = std::chrono::seconds(10);
/// New instances that one target of the configuration gets in one tick, at most.
constexpr std::size_t kMostAtOnce = 16;
/// Of instances that have gone: pods whose container may be started again.
constexpr std::size_t kMostLearned = 64;
constexpr Duration kOrphansAfterStart = std::chrono::seconds(10);
constexpr Duration kOrphansEvery = std::chrono::seconds(60);

Instant monotonic_now() { return std::chrono::steady_clock::now(); }

Result<> set_period(int timer_fd, Duration period) {
  itimerspec spec{};
  spec.it_interval.tv_sec = period.count() / 1'000'000'000;
  spec.it_interval.tv_nsec = period.count() % 1'000'000'000;
  spec.it_value = spec.it_interval;
  if (::timerfd_settime(timer_fd, 0, &spec, nullptr) != 0) {
    return sys_fail(errno, "timerfd_settime");
  }
  return {};
}

Result<UniqueFd> make_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGUSR1}) {
    sigaddset(&set, signal);
  }
  UniqueFd fd(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!fd) {
    return sys_fail(errno, "signalfd");
  }
  return fd;
}

/// Buckets of the histograms in the snapshot: <= 62.5 us << i, the last is all the rest.
std::size_t bucket_of(Duration value) {
  std::size_t bucket = 0;
  while (bucket + 1 < std::tuple_size_v<decltype(AgentSnapshot::tick_cost_histogram)> &&
         value.count() > (62'500LL << bucket)) {
    ++bucket;
  }
  return bucket;
}

/// The addresses of the node, not of the pod that the agent runs in. A socket stays in the
/// namespace in which it was opened.
Result<std::unique_ptr<NodeAddresses>> open_node_addresses(const Locator& locator,
                                                           const UniqueFd& host) {
  if (locator.proc().own_netns() == locator.host_netns_inode()) {
    return NodeAddresses::open();
  }
  if (!host) {
    return fail(
        "no process of the host's network namespace can be looked at (needs hostPID and "
        "CAP_SYS_PTRACE)");
  }
  std::unique_ptr<NodeAddresses> out;
  auto opened = run_in_netns(host.get(), [&]() -> Result<> {
    auto addresses = NodeAddresses::open();
    if (!addresses) {
      return tl::unexpected<Error>(addresses.error());
    }
    out = std::move(*addresses);
    return {};
  });
  if (!opened) {
    return tl::unexpected<Error>(opened.error());
  }
  return out;
}

/// Where a program runs whatever the identity of its cgroup: the container of a pod by its name,
/// else the path.
std::string place_of(const Located& located) {
  return located.pod ? located.pod->uid + "/" + located.pod->container : located.cgroup_path;
}

std::uint64_t read_counter(int fd) {
  std::uint64_t value = 0;
  return ::read(fd, &value, sizeof(value)) == sizeof(value) ? value : 0;
}

}  // namespace

// ============================================================================ ONE TICK, in order
//
// sample -> signals -> decision -> policies happens inside ProtectedTarget::tick; verdicts happen
// in the kernel (bpf/lib/verdict.h) and know nothing of ticks.

void Agent::tick(Instant now) {
  ++generation_;
  discover(now);
  if (const std::uint64_t written = hierarchy_.limits->poll(now); written != limits_generation_) {
    limits_generation_ = written;
    for (ProtectedTarget* instance : running_) {
      instance->expect_new_limits();  // whose they are is told by reading them
    }
  }
  due_.clear();
  due_targets_.clear();
  due_endpoints_.clear();
  for (const std::uint32_t slot : running_slots_) {
    rests_[slot].prefetch(*maps_);  // all at once: the waits for memory overlap
  }
  for (std::size_t i = 0; i < running_.size(); ++i) {
    const std::uint32_t slot = running_slots_[i];
    Rest& rest = rests_[slot];
    if (rest.goes_on(*maps_, rest.has_more() ? running_[i]->endpoint_slots()
                                             : std::span<const std::uint32_t>{})) {
      maps_->renew_lease(slot, now + options_.config.lease);  // the same decision stands
      continue;
    }
    due_.push_back(running_[i]);
    due_targets_.push_back(slot);
    const auto endpoints = running_[i]->endpoint_slots();
    due_endpoints_.insert(due_endpoints_.end(), endpoints.begin(), endpoints.end());
  }
  if (auto read = maps_->read_states(due_targets_, due_endpoints_); !read) {
    log::write_once(log::Level::kError, "read_states", read.error().message,
                    "the kernel's state cannot be read", {{"reason", read.error().message}});
  }
  const std::int64_t unix_ms = unix_now<milliseconds>();
  for (ProtectedTarget* instance : due_) {
    if (!instance->tick(now, unix_ms, generation_)) {
      someone_gone_ = true;
      discover_at_ = now;
    }
  }
  look_around(now);
}

/// One after the other, and no more in a tick than fits: hundreds of targets at the start must not
/// keep those from their ticks that are protected already.
void Agent::look_around(Instant now) {
  constexpr Duration kMostPerTick = milliseconds(30);
  const Instant begin = monotonic_now();
  const std::size_t most = running_.size() / 5 + 1;  // each is asked twice a second
  for (std::size_t n = 0; n < std::min(most, running_.size()); ++n) {
    if (monotonic_now() - begin >= kMostPerTick) {
      break;
    }
    looks_next_ = (looks_next_ + 1) % running_.size();
    if (now >= looks_[running_slots_[looks_next_]]) {
      running_[looks_next_]->look(now);
    }
  }
}

/// Targets come and go: a cgroup that is not there yet is normal, one that was made again under the
/// same name is another target.
void Agent::discover(Instant now) {
  const bool changed = pods_changed(now);
  if (now < discover_at_ && !changed) {
    return;
  }
  discover_at_ = now + kLookForMore;
  const Shared shared{hierarchy_, locator_,        *maps_, *gate_, *connections_,    *payload_,
                      *requests_, *node_connects_, *tc_,   *xdp_,  addresses_.get(), machine_cpus_,
                      load1_,     listeners_,      rests_, looks_, events_.get()};
  if (someone_gone_) {
    drop_gone();
  }
  bool looked = false;
  for (Configured& configured : targets_) {
    const auto& instances = configured.instances;
    const bool of_pods = std::holds_alternative<MatchPods>(configured.config.match);
    // Looking walks /proc and the trees; what is there tells by itself when it goes.
    const auto due_at = [&] {
      const bool soon = instances.empty() || configured.incomplete;
      if (!soon && std::holds_alternative<MatchCgroup>(configured.config.match)) {
        return Instant::max();  // it names one cgroup, and that is held
      }
      return configured.looked_at + (soon ? kLookForAbsent : kLookForMore);
    };
    if (configured.looked_at == Instant{} || now >= due_at() || (of_pods && changed)) {
      configured.looked_at = now;
      look_for(configured, shared, now);
      looked = true;
    }
    discover_at_ = std::min(discover_at_, due_at());
  }
  if (looked) {
    list_running();
  }
}

void Agent::drop_gone() {
  someone_gone_ = false;
  for (Configured& configured : targets_) {
    auto& instances = configured.instances;
    const auto gone = std::remove_if(instances.begin(), instances.end(), [&](const auto& instance) {
      if (instance->gone()) {
        log::info("target gone", {{"target", configured.config.name}});
        keep_learned(configured, *instance);
      }
      return instance->gone();
    });
    instances.erase(gone, instances.end());
  }
  list_running();
}

void Agent::list_running() {
  running_.clear();
  running_slots_.clear();
  for (Configured& configured : targets_) {
    for (auto& instance : configured.instances) {
      running_.push_back(instance.get());
      running_slots_.push_back(instance->slot());
    }
  }
}

/// Opens what a target of the configuration matches now and is not held yet.
void Agent::look_for(Configured& configured, const Shared& shared, Instant now) {
  auto& instances = configured.instances;
  if (effective_mode(options_.config, configured.config) == Mode::kOff) {
    configured.absent_why = "mode: off";
    return;
  }
  if (std::holds_alternative<MatchPods>(configured.config.match)) {
    look_for_pods(configured, shared, now);
    return;
  }
  auto located = locator_.locate(configured.config.match);
  if (!located) {
    note_absent(configured, located.error().message);
    return;
  }
  for (const Located& found : *located) {
    if (std::none_of(instances.begin(), instances.end(), [&](const auto& instance) {
          return instance->cgroup_id() == found.cgroup_id;
        })) {
      open_found(configured, found, shared, now);
    }
  }
}

/// Pods come by the list that their source keeps, and go when their cgroup does or when they are
/// not meant any more.
void Agent::look_for_pods(Configured& configured, const Shared& shared, Instant now) {
  auto& instances = configured.instances;
  const auto& match = std::get<MatchPods>(configured.config.match);
  const PodsPtr pods = pods_ != nullptr ? pods_->pods() : nullptr;
  const auto excluded = [&](const auto& instance) {
    const auto& pod = instance->located().pod;
    const bool out = pods != nullptr && pod && is_excluded(*pod, match, *pods);
    if (out) {
      log::info("target is not meant any more", {{"target", configured.config.name},
                                                 {"namespace", pod->namespace_name},
                                                 {"pod", pod->name}});
    }
    return out;
  };
  instances.erase(std::remove_if(instances.begin(), instances.end(), excluded), instances.end());

  std::vector<PodPort> ports;
  for (const EndpointConfig& endpoint : configured.config.endpoints) {
    ports.push_back({endpoint.protocol == Protocol::kUdp, endpoint.port});
  }
  const std::string problem = pods_ != nullptr ? pods_->status(now).problem : pods_problem_;
  PodLocator::Query query{match, ports, pods.get(), problem, {}, pods_at_once_};
  query.held = [&](std::uint64_t cgroup_id) {
    return std::any_of(instances.begin(), instances.end(),
                       [&](const auto& instance) { return instance->cgroup_id() == cgroup_id; });
  };
  PodsFound found = pod_locator_.find(query, now);
  configured.incomplete = !found.missing.empty();
  if (found.more) {
    configured.looked_at = Instant{};  // the next tick goes on
  }
  for (const Located& one : found.fresh) {
    if (const Configured* other = holder_of(one, configured); other != nullptr) {
      note_absent(configured,
                  fmt::format("pod {}/{} is protected by target {} on one of these "
                              "ports already",
                              one.pod->namespace_name, one.pod->name, other->config.name));
      continue;
    }
    open_found(configured, one, shared, now);
  }
  if (!found.missing.empty()) {
    note_absent(configured, found.missing);
  }
}

/// The one before may still be there: runtimes make a container before the last of the other's
/// cgroup has gone.
void Agent::go_on_from_learned(const Configured& configured, ProtectedTarget& fresh) {
  const std::string where = place_of(fresh.located());
  for (const auto& instance : configured.instances) {
    if (place_of(instance->located()) == where) {
      fresh.go_on_from(instance->learned());
      return;
    }
  }
  for (const auto& gone : configured.gone) {
    if (gone.where == where) {
      fresh.go_on_from(gone.learned);
    }
  }
}

void Agent::keep_learned(Configured& configured, const ProtectedTarget& gone) {
  auto& all = configured.gone;
  const std::string where = place_of(gone.located());
  all.erase(
      std::remove_if(all.begin(), all.end(), [&](const auto& one) { return one.where == where; }),
      all.end());
  all.push_back({where, gone.learned()});
  if (all.size() > kMostLearned) {
    all.erase(all.begin());
  }
}

/// A pod may be matched by several targets of the configuration; a port of it belongs to the first.
const Agent::Configured* Agent::holder_of(const Located& found, const Configured& besides) const {
  const auto shares_port = [&](const EndpointConfig& mine) {
    return std::any_of(besides.config.endpoints.begin(), besides.config.endpoints.end(),
                       [&](const EndpointConfig& other) {
                         return mine.port == other.port && (mine.protocol == Protocol::kUdp) ==
                                                               (other.protocol == Protocol::kUdp);
                       });
  };
  for (const Configured& other : targets_) {
    const bool holds =
        std::any_of(other.instances.begin(), other.instances.end(),
                    [&](const auto& instance) { return instance->cgroup_id() == found.cgroup_id; });
    if (&other != &besides && holds &&
        std::any_of(other.config.endpoints.begin(), other.config.endpoints.end(), shares_port)) {
      return &other;
    }
  }
  return nullptr;
}

void Agent::note_absent(Configured& configured, const std::string& why) {
  configured.absent_why = why;
  if (configured.instances.empty()) {
    log::write_once(log::Level::kInfo, "absent " + configured.config.name, why,
                    "target is not there", {{"target", configured.config.name}, {"reason", why}});
  }
}

void Agent::open_found(Configured& configured, const Located& found, const Shared& shared,
                       Instant now) {
  auto opened = ProtectedTarget::open(options_.config, configured.config, found, shared, now);
  if (!opened) {
    configured.absent_why = opened.error().message;
    log::write_once(log::Level::kWarn, "open " + configured.config.name, configured.absent_why,
                    "target cannot be protected",
                    {{"target", configured.config.name}, {"reason", configured.absent_why}});
    return;
  }
  if (found.pod) {
    log::info("target found", {{"target", configured.config.name},
                               {"namespace", found.pod->namespace_name},
                               {"pod", found.pod->name},
                               {"container", found.pod->container},
                               {"cgroup", found.cgroup_path}});
  } else {
    log::info("target found", {{"target", configured.config.name}, {"cgroup", found.cgroup_path}});
  }
  (*opened)->set_stagger(static_cast<unsigned>(found.cgroup_id % 10));
  go_on_from_learned(configured, **opened);
  configured.instances.push_back(std::move(*opened));
}

/// The list of pods is another one than at the last look; told twice a second at most.
bool Agent::pods_changed(Instant now) {
  if (pods_ == nullptr || now - pods_looked_at_ < kLookForAbsent ||
      pods_->generation() == pods_generation_) {
    return false;
  }
  pods_looked_at_ = now;
  pods_generation_ = pods_->generation();
  return true;
}

/// Once, when pods are wanted.
void Agent::open_pods() {
  const bool wanted = std::any_of(
      options_.config.targets.begin(), options_.config.targets.end(),
      [](const TargetConfig& target) { return std::holds_alternative<MatchPods>(target.match); });
  if (!wanted || pods_ != nullptr || !pods_problem_.empty()) {
    return;
  }
  auto opened = options_.open_pods ? options_.open_pods()
                                   : Result<std::unique_ptr<PodSource>>(fail("nobody was asked"));
  if (opened) {
    pods_ = std::move(*opened);
    return;
  }
  pods_problem_ = opened.error().message;
  degrade("pods are not known by name: " + pods_problem_);
}

/// Where there is no API server, nobody is told, which is no fault.
void Agent::open_events() {
  if (!options_.open_events) {
    return;
  }
  if (auto opened = options_.open_events(); opened) {
    events_ = std::move(*opened);
  } else {
    log::debug("no Events are sent", {{"reason", opened.error().message}});
  }
}

void Agent::once_a_second(Instant now) {
  machine_cpus_ = machine_cpus();
  std::array<char, 128> buffer{};
  const KeptFile::Text load = load_average_.read(AT_FDCWD, /*may_open=*/true, buffer);
  load1_ = load.ok() ? parse_load1(load.text) : load.problem;
  if (addresses_ != nullptr && addresses_->refresh()) {
    exempt_node_addresses();
  }
  if (now - active_since_ >= kOrphansAfterStart &&
      (last_orphans_ == Instant{} || now - last_orphans_ >= kOrphansEvery)) {
    collect_orphans(now);
  }
}

void Agent::exempt_node_addresses() {
  std::vector<ExemptSource> own;
  for (const IpAddress& address : addresses_->addresses()) {
    own.push_back({IpPrefix{address, 128}, HEADGATE_EXEMPT_KIND_NODE});
  }
  (void)maps_->set_exempt(HEADGATE_EXEMPT_NODE_SET, own);
}

/// What agents before us left for targets that are gone (zombie links, slots, flows).
void Agent::collect_orphans(Instant now) {
  last_orphans_ = now;
  if (options_.config.mode != Mode::kOff) {
    (void)node_connects_->attach();  // new slices come up
    xdp_->refresh();
  }
  std::vector<std::string> keep;
  gate_->add_pin_names(keep);
  connections_->add_pin_names(keep);
  payload_->add_pin_names(keep);
  node_connects_->add_pin_names(keep);
  tc_->add_pin_names(keep);
  xdp_->add_pin_names(keep);
  std::size_t removed = remove_orphan_links(pins_, keep) + maps_->release_unclaimed(now);
  if (!filters_cleared_) {
    filters_cleared_ = true;
    removed += tc_->remove_orphans() + xdp_->remove_orphans();
  }
  orphans_removed_ += removed;
  if (removed > 0) {
    log::info("orphans removed", {{"count", removed}});
  }
}

// ============================================================================ start and stop

Agent::Agent(AgentOptions options, Hierarchy hierarchy)
    : options_(std::move(options)),
      hierarchy_(hierarchy),
      locator_(std::move(hierarchy), options_.proc_root),
      load_average_(options_.proc_root + "/loadavg") {}

Result<std::unique_ptr<Agent>> Agent::open(AgentOptions options) {
  auto hierarchy = Hierarchy::detect(options.cgroup_root, options.proc_root);
  if (!hierarchy) {
    return tl::unexpected<Error>(hierarchy.error());
  }
  std::unique_ptr<Agent> out(new Agent(std::move(options), std::move(*hierarchy)));
  out->hierarchy_.limits->watch();
  out->wake_ = UniqueFd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  out->timer_ = UniqueFd(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
  if (!out->wake_ || !out->timer_) {
    return sys_fail(errno, "eventfd, timerfd");
  }
  out->pins_ = PinDirectory::prepare(out->options_.pin_root);
  if (!out->pins_.warning().empty()) {
    out->degrade(out->pins_.warning());
  }
  if (!out->options_.config_file.empty()) {
    auto watcher = ConfigWatcher::open(out->options_.config_file);
    if (!watcher) {
      return tl::unexpected<Error>(watcher.error());
    }
    out->watcher_ = std::move(*watcher);
    if (!out->watcher_->warning().empty()) {
      log::warn("hot reload", {{"reason", out->watcher_->warning()}});
    }
    // Between the caller's reading and the watcher's the file may have changed.
    LoadedConfig now = load_config(out->watcher_->text(), out->options_.config_file, strategies());
    if (now.valid() && now.config.hash != out->options_.config.hash) {
      out->options_.config = std::move(now.config);
    }
  }
  out->started_ = monotonic_now();
  out->reload_ok_unix_s_ = unix_now<milliseconds>() / 1000;
  out->effective_config_ = to_yaml(out->options_.config);
  return out;
}

Agent::~Agent() = default;

void Agent::degrade(const std::string& text) {
  if (std::find(degraded_.begin(), degraded_.end(), text) == degraded_.end()) {
    degraded_.push_back(text);
    log::warn("degraded", {{"reason", text}});
  }
}

Result<bool> Agent::try_lock() {
  auto locked = pins_.try_lock();
  if (locked && !*locked && options_.wait_for_lock) {
    pins_.stand_in_line();
  }
  return locked;
}

/// The lock of the node: false = another agent has it, and we stand by.
Result<bool> Agent::take_over() {
  auto locked = try_lock();
  if (!locked || !*locked) {
    return locked;
  }
  standby_ = false;
  if (auto started = start_kernel_side(monotonic_now()); !started) {
    return tl::unexpected<Error>(started.error());
  }
  if (options_.on_active) {
    options_.on_active();
  }
  return true;
}

Result<> Agent::start_kernel_side(Instant now) {
  active_since_ = now;
  auto maps = KernelMaps::open(pins_);
  if (!maps) {
    // Better to watch and say so than not to run: nothing is refused, and doctor knows the remedy.
    degrade(with_remedy(maps.error()) + ": nothing can be refused, targets are observed only");
    maps = KernelMaps::detached();
    if (!maps) {
      return tl::unexpected<Error>(maps.error());
    }
  }
  maps_ = std::move(*maps);
  for (const std::string& name : maps_->recreated()) {
    log::warn("a pinned map had another layout and was made anew", {{"map", name}});
  }
  gate_ = std::make_unique<SkLookupHook>(*maps_, pins_);
  connections_ = std::make_unique<SockOpsHook>(*maps_, pins_, hierarchy_.unified);
  payload_ = std::make_unique<CgroupSkbHook>(*maps_, pins_, hierarchy_.unified);
  node_connects_ = std::make_unique<NodeConnectsHook>(*maps_, pins_, hierarchy_.unified);
  tc_ = std::make_unique<TcHook>(*maps_, pins_);
  xdp_ = std::make_unique<XdpHook>(*maps_, pins_);
  UniqueFd host = locator_.open_host_netns();
  requests_ = std::make_unique<RequestsHook>(*maps_, pins_, hierarchy_.unified);
  if (auto addresses = open_node_addresses(locator_, host); addresses) {
    addresses_ = std::move(*addresses);
    exempt_node_addresses();
  } else {
    degrade("the node's addresses are not known: " + addresses.error().message);
  }
  tc_->set_host(UniqueFd(::fcntl(host.get(), F_DUPFD_CLOEXEC, 0)));
  xdp_->set_host(std::move(host), locator_.host_netns_inode());
  if (maps_->off()) {
    log::warn("the kill switch is on: everything is admitted until `headgate on`");
  }
  open_events();
  apply(options_.config, now);
  return {};
}

void Agent::apply(Config config, Instant now) {
  std::vector<Configured> old = std::move(targets_);
  targets_.clear();
  running_.clear();
  running_slots_.clear();
  options_.config = std::move(config);
  if (options_.observe_only && options_.config.mode == Mode::kEnforce) {
    options_.config.mode = Mode::kObserve;
  }
  (void)set_period(timer_.get(), options_.config.tick);
  if (options_.config.mode == Mode::kOff) {
    xdp_->detach_all();
  } else {
    xdp_->use(options_.config.xdp.interfaces);
  }
  if (options_.config.mode == Mode::kOff) {
    node_connects_->detach_all();
  } else if (maps_->is_detached()) {
    // said already, and all that follows from it
  } else if (auto attached = node_connects_->attach(); !attached) {
    degrade(node_connects_->status().problem +
            ": the node's addresses are exempt up to exempt.rate instead of its own connects");
  }
  attach_requests();
  for (const TargetConfig& target : options_.config.targets) {
    Configured configured;
    configured.config = target;
    for (Configured& before : old) {
      if (before.config.name == target.name) {
        configured.gone = std::move(before.gone);
      }
    }
    targets_.push_back(std::move(configured));
  }
  open_pods();
  discover_at_ = now;
  pods_at_once_ = old.empty() ? kMostAtOnce : SIZE_MAX;  // none may be without a gate meanwhile
  discover(now);
  pods_at_once_ = kMostAtOnce;
  // The new ones hold slots, flows and hooks already when the old ones let go of them, and have
  // decided on what they inherit: no gap, also where a name has changed.
  (void)maps_->read_all_states();
  for (Configured& configured : targets_) {
    for (auto& instance : configured.instances) {
      for (const Configured& before : old) {
        for (const auto& was : before.instances) {
          if (was->cgroup_id() == instance->cgroup_id()) {
            instance->inherit(*was);
          }
        }
      }
      if (!old.empty()) {
        instance->begin(now, generation_);  // its programs are there already
      }
    }
  }
  old.clear();
  const std::lock_guard lock(mutex_);
  snapshot_.reset();  // of the configuration before
  effective_config_ = to_yaml(options_.config);
}

/// The request gate, where some endpoint needs it: its programs are the largest of all.
void Agent::attach_requests() {
  const auto& targets = options_.config.targets;
  const bool wanted = std::any_of(targets.begin(), targets.end(), [&](const TargetConfig& target) {
    return effective_mode(options_.config, target) != Mode::kOff &&
           std::any_of(target.endpoints.begin(), target.endpoints.end(), sees_requests);
  });
  if (!wanted || maps_->is_detached() || requests_->sees()) {
    return;
  }
  (void)requests_->attach();
  if (const std::string problem = requests_->status().problem; !problem.empty()) {
    degrade("requests: " + problem);
  }
}

void Agent::stop_kernel_side() {
  running_.clear();
  running_slots_.clear();
  targets_.clear();
  gate_->detach_all();
  connections_->detach_all();
  payload_->detach_all();
  node_connects_->detach_all();
  tc_->detach_all();
  xdp_->detach_all();
  (void)(tc_->remove_orphans() + xdp_->remove_orphans());
  pins_.purge();
}

/// SIGUSR1: one line a target.
void Agent::dump() {
  const SnapshotPtr snapshot = make_snapshot(monotonic_now());
  for (const TargetSnapshot& target : snapshot->targets) {
    const auto text = [](const Measured<Ratio>& v) {
      return v.known() ? fmt::format("{:.3f}", (*v).value) : std::string(to_string(v.reason));
    };
    log::info("dump", {{"target", target.name},
                       {"cgroup", target.present ? target.cgroup_path : target.absent_why},
                       {"state", to_string(target.state)},
                       {"why", target.why},
                       {"cpu_fast", text(target.signals.cpu_fast)},
                       {"cpu_slow", text(target.signals.cpu_slow)},
                       {"memory", text(target.signals.memory)},
                       {"lease_valid", target.lease_valid}});
    for (const EndpointSnapshot& endpoint : target.endpoints) {
      log::info("dump", {{"target", target.name},
                         {"endpoint", endpoint.name},
                         {"admit", endpoint.decision.admit.value()},
                         {"offered", endpoint.counters.offered},
                         {"admitted", endpoint.counters.admitted},
                         {"reset", endpoint.counters.reset}});
    }
  }
}

/// Both agents of an update may be told to end at once: who has the lock then leaves everything to
/// the one that stands by. It ends, too, and takes everything away, if nobody else does.
void Agent::leave_standby() {
  constexpr Duration kLongest = milliseconds(500);
  constexpr Duration kStep = milliseconds(20);
  pins_.leave_line();
  const Instant end = monotonic_now() + kLongest;
  while (options_.purge_unless_awaited && monotonic_now() < end) {
    if (const auto locked = pins_.try_lock(); !locked || *locked) {
      options_.config.mode = Mode::kOff;
      if (locked && !pins_.somebody_waits() && start_kernel_side(monotonic_now())) {
        stop_kernel_side();
        log::info("purged");
      }
      return;
    }
    std::this_thread::sleep_for(kStep);
  }
}

/// The last thing: leave = renew the leases once more, so that a restart within a lease finds the
/// gate as it was; purge = take everything out of the kernel.
void Agent::leave() {
  if (standby_) {
    leave_standby();
    return;
  }
  if (maps_ == nullptr) {
    return;
  }
  if (options_.purge_on_exit || (options_.purge_unless_awaited && !pins_.somebody_waits())) {
    stop_kernel_side();
    log::info("purged");
    return;
  }
  tick(monotonic_now());
  if (maps_->is_detached()) {
    pins_.remove_if_empty();
  } else if (pins_.pinned()) {
    log::info("maps and links stay for the next agent, the leases open the gate",
              {{"pins", pins_.root()}, {"to_remove", "run with --on-exit=purge"}});
  }
  // Pinned slots, flows and links stay as they are: no destructor may give them back.
  for (Configured& configured : targets_) {
    for (auto& instance : configured.instances) {
      instance->leave_in_force();
    }
  }
}

Result<> Agent::run() {
  auto signals = make_signals();
  if (!signals) {
    return tl::unexpected<Error>(signals.error());
  }
  if (auto set = set_period(timer_.get(), options_.config.tick); !set) {
    return set;
  }
  auto taken = take_over();
  if (taken && !*taken && !options_.wait_for_lock) {
    return fail(fmt::format(
        "another headgate agent holds {}: stop it first, or run without --no-wait to stand by",
        pins_.root()));
  }
  if (!taken) {
    return tl::unexpected<Error>(taken.error());
  }
  if (standby_) {
    log::info("standby: another agent holds the lock", {{"lock", pins_.root()}});
  }
  if (auto got = raise_priority(); got) {
    log::info("scheduling", {{"got", *got}});
  } else {
    degrade(got.error().message);
  }
  notify_service("READY=1");
  const auto watchdog = watchdog_interval();
  Instant last_watchdog{};
  {
    const std::lock_guard lock(mutex_);
    accepts_posts_ = true;
  }

  bool stop = false;
  bool first = true;
  while (!stop) {
    std::array<pollfd, 4> fds{{{timer_.get(), POLLIN, 0},
                               {signals->get(), POLLIN, 0},
                               {wake_.get(), POLLIN, 0},
                               {watcher_ != nullptr ? watcher_->fd() : -1, POLLIN, 0}}};
    if (::poll(fds.data(), fds.size(), 1000) < 0 && errno != EINTR) {
      return sys_fail(errno, "poll");
    }
    const Instant now = monotonic_now();
    alive_ns_ = now.time_since_epoch().count();

    // Each tick is for the timer alone: the others are read when they have something to say.
    const auto speaks = [&](std::size_t i) { return fds[i].revents != 0; };
    signalfd_siginfo info{};
    while (speaks(1) && ::read(signals->get(), &info, sizeof(info)) == sizeof(info)) {
      if (info.ssi_signo == SIGHUP) {
        (void)reload_file();
      } else if (info.ssi_signo == SIGUSR1) {
        dump();
      } else {
        log::info("stopping", {{"signal", info.ssi_signo}});
        stop = true;
      }
    }
    if (stop) {
      break;
    }
    if (watcher_ != nullptr && (speaks(3) || first)) {
      if (const auto text = watcher_->poll(now); text) {
        (void)take_over_config(load_config(*text, options_.config_file, strategies()));
      } else if (!watcher_->problem().empty() && reload_error_ != watcher_->problem()) {
        (void)keep_last_good(watcher_->problem());
      }
    }
    first = false;
    if (speaks(2)) {
      (void)read_counter(wake_.get());
      run_posted();
    }
    const std::uint64_t expired = speaks(0) ? read_counter(timer_.get()) : 0;
    if (expired == 0) {
      continue;
    }
    ticks_missed_ +=
        expired - 1;  // never caught up: one late sample tells more than two hasty ones
    if (watchdog.count() > 0 && now - last_watchdog >= watchdog / 3) {
      notify_service("WATCHDOG=1");
      last_watchdog = now;
    }
    if (standby_) {
      taken = take_over();
      if (!taken) {
        return tl::unexpected<Error>(taken.error());
      }
      if (!*taken) {
        continue;
      }
      last_second_ = Instant{};
      log::info("took over from the agent before");
    }
    const Duration interval = last_tick_ == Instant{} ? options_.config.tick : now - last_tick_;
    if (interval < options_.config.tick / 2) {
      continue;  // merged into the next one
    }
    last_tick_lag_ = std::max(Duration::zero(), interval - options_.config.tick);
    last_tick_ = now;
    tick(now);
    if (last_second_ == Instant{} || now - last_second_ >= kSecond) {
      last_second_ = now;
      once_a_second(now);
    }
    last_tick_cost_ = monotonic_now() - now;
    tick_cost_seconds_ += seconds(last_tick_cost_);
    ++tick_cost_histogram_[bucket_of(last_tick_cost_)];
    tick_lag_seconds_ += seconds(last_tick_lag_);
    ++tick_lag_histogram_[bucket_of(last_tick_lag_)];
  }
  notify_service("STOPPING=1");
  {
    const std::lock_guard lock(mutex_);
    accepts_posts_ = false;
  }
  run_posted();
  leave();
  return {};
}

// ============================================================================ configuration

Result<> Agent::reload_file() {
  if (options_.config_file.empty()) {
    return fail("this agent was configured by the command line: there is no file to reload");
  }
  return take_over_config(load_config_file(options_.config_file, strategies()));
}

/// Says that and why the configuration in force stays; nothing is lost by it but the change.
tl::unexpected<Error> Agent::keep_last_good(const std::string& why) {
  reload_ok_ = false;
  reload_error_ = why;
  log::error("the configuration cannot be used; the last good one stays in force",
             {{"file", options_.config_file}, {"reason", why}});
  tell_of_config();
  return fail(why);
}

void Agent::tell_of_config() {
  if (events_ != nullptr) {
    events_->tell_of_own_pod(
        config_event(reload_error_, options_.config_file, unix_now<std::chrono::microseconds>()));
  }
}

/// A new configuration, or the reason why the last good one stays.
Result<> Agent::take_over_config(LoadedConfig loaded) {
  const Instant now = monotonic_now();
  for (const Problem& problem : loaded.problems) {
    log::warn("configuration", {{"problem", to_string(problem)}});
  }
  if (!loaded.valid()) {
    const auto first = std::find_if(
        loaded.problems.begin(), loaded.problems.end(),
        [](const Problem& problem) { return problem.severity == Problem::Severity::kError; });
    return keep_last_good(to_string(*first));
  }
  reload_ok_ = true;
  reload_error_.clear();
  reload_ok_unix_s_ = unix_now<milliseconds>() / 1000;
  log::info("configuration reloaded",
            {{"file", options_.config_file}, {"hash", fmt::format("{:016x}", loaded.config.hash)}});
  tell_of_config();
  if (standby_) {
    options_.config = std::move(loaded.config);
  } else {
    apply(std::move(loaded.config), now);
  }
  return {};
}

// ============================================================================ other threads

Result<> Agent::on_loop(std::function<Result<>()> work) {
  auto promise = std::make_shared<std::promise<Result<>>>();
  auto future = promise->get_future();
  {
    const std::lock_guard lock(mutex_);
    if (!accepts_posts_) {
      return fail("the agent is not running");
    }
    posted_.push_back(
        {std::move(work), [promise](Result<> result) { promise->set_value(std::move(result)); }});
  }
  const std::uint64_t one = 1;
  (void)!::write(wake_.get(), &one, sizeof(one));
  if (future.wait_for(std::chrono::seconds(5)) != std::future_status::ready) {
    return fail("the agent's loop did not answer within 5 s");
  }
  return future.get();
}

void Agent::run_posted() {
  std::vector<Posted> posted;
  {
    const std::lock_guard lock(mutex_);
    posted.swap(posted_);
  }
  for (Posted& p : posted) {
    p.done(p.work());
  }
}

Result<> Agent::request_reload() {
  return on_loop([this] { return reload_file(); });
}

Result<> Agent::set_off(bool off) {
  return on_loop([this, off]() -> Result<> {
    if (maps_ == nullptr) {
      return fail("this agent stands by: ask the one that holds the lock");
    }
    maps_->set_off(off);
    log::warn(off ? "kill switch on: everything is admitted" : "kill switch off");
    return {};
  });
}

Result<Recorder::Part> Agent::record(const std::string& target, std::uint64_t from) {
  auto part = std::make_shared<Recorder::Part>();
  const Result<> done = on_loop([this, target, from, part]() -> Result<> {
    std::string names;
    for (Configured& configured : targets_) {
      names += (names.empty() ? "" : ", ") + configured.config.name;
      if (configured.config.name != target) {
        continue;
      }
      if (configured.instances.empty()) {
        return fail(fmt::format("target {} is not there: {}", target, configured.absent_why));
      }
      *part = configured.instances.front()->record(from, monotonic_now());
      return {};
    }
    return fail(fmt::format("no target is named '{}'; there are: {}", target, names));
  });
  if (!done) {
    return tl::unexpected<Error>(done.error());
  }
  return std::move(*part);
}

/// Made when somebody asks and the last one is older than a second: with 250 targets it costs as
/// much as three ticks, and most seconds nobody looks.
SnapshotPtr Agent::snapshot() {
  const Instant now = monotonic_now();
  {
    const std::lock_guard lock(mutex_);
    if (snapshot_ != nullptr && now - snapshot_at_ < kSecond) {
      return snapshot_;
    }
  }
  if (alive()) {  // a loop that hangs would not answer
    (void)on_loop([this]() -> Result<> {
      if (generation_ == 0 && !standby_) {
        return {};  // before the first tick there is nothing to tell
      }
      const Instant made_at = monotonic_now();
      SnapshotPtr fresh = make_snapshot(made_at);
      const std::lock_guard lock(mutex_);
      snapshot_ = std::move(fresh);
      snapshot_at_ = made_at;
      return {};
    });
  }
  const std::lock_guard lock(mutex_);
  return snapshot_;
}

std::string Agent::effective_config() const {
  const std::lock_guard lock(mutex_);
  return effective_config_;
}

bool Agent::alive() const {
  const Duration silent{monotonic_now().time_since_epoch().count() - alive_ns_.load()};
  return silent < std::max<Duration>(std::chrono::seconds(3), 10 * options_.config.tick);
}

SnapshotPtr Agent::make_snapshot(Instant now) {
  auto out = std::make_shared<AgentSnapshot>();
  out->version = kVersion;
  out->revision = kRevision;
  out->compiler = kCompiler;
  out->unix_ms = unix_now<milliseconds>();
  out->uptime = now - started_;
  out->generation = generation_;
  out->mode = options_.config.mode;
  out->standby = standby_;
  out->killed_switch = maps_ != nullptr && maps_->off();
  out->config_file = options_.config_file;
  out->config_hash = options_.config.hash;
  out->config_last_reload_successful = reload_ok_;
  out->config_last_reload_success_unix_s = reload_ok_unix_s_;
  out->config_last_error = reload_error_;
  out->kernel_release = kernel_release();
  out->cgroup_mode = std::string(to_string(hierarchy_.mode));
  out->pin_path = pins_.root();
  out->pinned = pins_.pinned();
  out->degraded = degraded_;
  out->orphans_removed = orphans_removed_;
  out->ticks_missed = ticks_missed_;
  out->tick = options_.config.tick;
  out->lease = options_.config.lease;
  out->last_tick_cost = last_tick_cost_;
  out->last_tick_lag = last_tick_lag_;
  out->tick_cost_histogram = tick_cost_histogram_;
  out->tick_cost_seconds_sum = tick_cost_seconds_;
  out->tick_lag_histogram = tick_lag_histogram_;
  out->tick_lag_seconds_sum = tick_lag_seconds_;
  if (pods_ != nullptr) {
    out->pods = pods_->status(now);
  }
  if (events_ != nullptr) {
    out->events = events_->status();
  }
  const OwnUsage usage = own_usage();
  out->agent_cpu_seconds = usage.cpu_seconds;
  out->agent_resident_bytes = usage.resident_bytes;
  if (maps_ == nullptr) {
    return out;
  }
  for (std::string& problem : gate_->problems()) {
    out->degraded.push_back(std::move(problem));
  }
  out->map_update_errors = maps_->update_errors();
  const auto add_errors = [&](const char* hook, const std::map<int, std::uint64_t>& errors) {
    for (const auto& [sys_errno, count] : errors) {
      out->attach_errors.push_back({hook, sys_errno, count});
    }
  };
  add_errors("sk_lookup", gate_->attach_errors());
  add_errors("sock_ops", connections_->attach_errors());
  add_errors("cgroup_skb", payload_->attach_errors());
  add_errors("node_connects", node_connects_->attach_errors());
  add_errors("tc", tc_->attach_errors());
  add_errors("xdp", xdp_->attach_errors());
  out->interfaces = xdp_->status();
  for (const HookStatus& interface : out->interfaces) {
    if (!interface.problem.empty()) {
      out->degraded.push_back(
          fmt::format("xdp on {} is {}: {}", interface.where, interface.mode, interface.problem));
    }
  }
  out->left_to_socket = maps_->left_to_socket();
  add_errors("requests", requests_->attach_errors());
  for (Configured& configured : targets_) {
    if (configured.instances.empty()) {
      TargetSnapshot absent;
      absent.name = configured.config.name;
      absent.strategy = configured.config.strategy.name;
      absent.mode = effective_mode(options_.config, configured.config);
      absent.config_line = configured.config.place.line;
      absent.absent_why = configured.absent_why;
      out->targets.push_back(std::move(absent));
    }
    for (auto& instance : configured.instances) {
      out->targets.push_back(instance->snapshot(now));
    }
  }
  return out;
}

}  // namespace headgate
