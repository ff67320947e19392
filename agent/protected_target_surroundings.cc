// SPDX-License-Identifier: Apache-2.0
// What a target needs around it, looked at once in a while: namespaces and the hooks on them,
// flows, listeners, the serving process, exempt sources, storms.
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "headgate/bpf_abi.h"

#include "agent/base/log.h"
#include "agent/protected_target.h"
#include "agent/request_routes.h"

namespace headgate {
namespace {

constexpr Duration kSettleTime = std::chrono::seconds(10);
constexpr Duration kLookWhenNew = std::chrono::seconds(1);
constexpr Duration kLookWhenSettled = std::chrono::seconds(5);
constexpr Duration kLookWhenIdle = std::chrono::seconds(10);
constexpr Duration kLookWhenFollowed = std::chrono::seconds(30);

headgate_endpoint_key flow_key(std::uint32_t netns, const EndpointConfig& endpoint,
                               std::uint8_t protocol, const IpAddress* address) {
  headgate_endpoint_key key{};
  key.netns_id = netns;
  key.port = endpoint.port;
  key.protocol = protocol;
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

}  // namespace

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
  map_flows(now);
  tell_unseen();
  plan_look(now);
}

void ProtectedTarget::plan_look(Instant now) {
  // Looking into /proc is dear: often while things come up, seldom once they stand. The end of a
  // serving process that is followed is told.
  const bool settled = !namespaces_.empty() && now - opened_at_ > kSettleTime;
  look_again_at(now + (!settled              ? kLookWhenNew
                       : !idle_              ? kLookWhenSettled
                       : serving_.pid() == 0 ? kLookWhenIdle
                                             : kLookWhenFollowed));
}

/// Which namespaces and sources are ours now, and the hooks on them.
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
  follow_serving_process(now);
  exempt_sources();
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
  const std::uint8_t protocol = ip_protocol(endpoint.config->protocol);
  std::vector<headgate_endpoint_key> out;
  for (Namespace& space : namespaces_) {
    if (!space.host) {
      out.push_back(flow_key(space.inode, *endpoint.config, protocol, nullptr));
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
        shared_.listeners.on_port(now, *space.diag, space.inode, protocol, endpoint.config->port);
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
    out.push_back(flow_key(space.inode, *endpoint.config, protocol, nullptr));
    for (const IpAddress& address : addresses) {
      out.push_back(flow_key(space.inode, *endpoint.config, protocol, &address));
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

}  // namespace headgate
