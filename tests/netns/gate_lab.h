// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fcntl.h>
#include <linux/bpf.h>
#include <net/if.h>
#include <netinet/in.h>

#include <chrono>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <gtest/gtest.h>

#include "headgate/bpf_abi.h"
#include "headgate/units.h"

#include "agent/dataplane/kernel_maps.h"
#include "agent/dataplane/net.h"
#include "agent/dataplane/programs.h"
#include "agent/hooks/cgroup_skb.h"
#include "agent/hooks/node_connects.h"
#include "agent/hooks/sk_lookup.h"
#include "agent/hooks/sock_ops.h"
#include "agent/hooks/tc.h"
#include "agent/hooks/xdp.h"
#include "tests/support/net_lab.h"
#include "tests/support/test_pins.h"

/// The data plane with nobody deciding: maps and hooks of the agent, policies stored by the test.
namespace headgate::lab {

inline Instant now() { return std::chrono::steady_clock::now(); }

inline std::uint64_t ns(Duration d) { return static_cast<std::uint64_t>(d.count()); }

inline std::uint64_t every_reason(headgate_action action) {
  std::uint64_t actions = 0;
  for (unsigned reason = 1; reason < HEADGATE_REASON_COUNT; ++reason) {
    actions |= static_cast<std::uint64_t>(action) << (8 * reason);
  }
  return actions;
}

inline IpAddress address_of(const std::string& text) {
  auto prefix = parse_prefix(text);
  if (!prefix) {
    throw SetupError(prefix.error().message);
  }
  return prefix->address;
}

inline int index_of(const Namespace& netns, const std::string& device) {
  return netns.get<int>([&] { return static_cast<int>(::if_nametoindex(device.c_str())); });
}

/// What the share may miss: one for the diffusion, one for where it began, one a CPU.
inline double tolerance() { return 2 + libbpf_num_possible_cpus(); }

/// Mount point of the v2 tree; "" = there is none.
inline std::string unified_root() {
  const Cgroup probe("find");
  const std::string& directory = probe.v2_directory();
  return directory.empty() ? "" : directory.substr(0, directory.size() - probe.path().size());
}

inline std::string missing_for_sock_ops() {
  return unified_root().empty() ? "needs a cgroup v2 tree" : "";
}

/// Ids of all links of one kind that hang on this namespace or cgroup.
inline std::vector<std::uint32_t> links_on(std::uint32_t link_type, std::uint64_t goal_id) {
  std::vector<std::uint32_t> out;
  for (std::uint32_t id = 0; ::bpf_link_get_next_id(id, &id) == 0;) {
    const UniqueFd fd(::bpf_link_get_fd_by_id(id));
    bpf_link_info info{};
    std::uint32_t bytes = sizeof(info);
    if (fd && ::bpf_obj_get_info_by_fd(fd.get(), &info, &bytes) == 0 && info.type == link_type &&
        (link_type == BPF_LINK_TYPE_NETNS ? info.netns.netns_ino : info.cgroup.cgroup_id) ==
            goal_id) {
      out.push_back(id);
    }
  }
  return out;
}

/// One protected port. Change `policy` and `target_policy`, then publish().
class Port {
 public:
  Port(KernelMaps& maps, std::uint64_t owner, std::uint16_t port, std::uint8_t protocol)
      : maps_(maps) {
    target_ = must(maps.claim_target(owner, owner, 0, now(), Duration::zero()));
    slot_ = must(maps.claim_endpoint(owner, target_, port, protocol, now(), Duration::zero()));
    policy.target = target_;
    policy.actions = every_reason(HEADGATE_ACTION_RESET);
    policy.defer_deadline_ns = ns(std::chrono::seconds(8));
    target_policy.defer_deadline_ns = policy.defer_deadline_ns;
    target_policy.waiting_max = 20000;
    policy.waiting_max = policy.waiting_max_other = 20000;
  }

  /// Stores both policies; the lease runs from now.
  void publish(Duration lease = std::chrono::seconds(60)) {
    target_policy.valid_until_ns = to_ktime_ns(now() + lease);
    maps_.store_target(target_, target_policy);
    maps_.store(slot_, policy);
  }
  /// Only this share is admitted; what else is armed stays.
  void admit(double share, std::uint64_t modifiers = 0) {
    policy.flags &= ~(HEADGATE_ARM_MASK | HEADGATE_OBSERVE);
    policy.flags |= HEADGATE_ARM_SHARE | modifiers;
    policy.admit_q32 = Probability::admitting(share).q32();
    publish();
  }
  void open() {
    policy.flags &= ~HEADGATE_ARM_MASK;
    publish();
  }
  void refuse_by(headgate_action action) {
    policy.actions = every_reason(action);
    if (action == HEADGATE_ACTION_DEFER) {
      policy.flags |= HEADGATE_MAY_DEFER;
    }
  }

  [[nodiscard]] headgate_counters counters() const {
    must_do(maps_.read_all_states());
    return maps_.counters(slot_);
  }
  [[nodiscard]] headgate_endpoint_state state() const {
    must_do(maps_.read_all_states());
    return maps_.endpoint_state(slot_);
  }
  [[nodiscard]] headgate_target_state target_state() const {
    must_do(maps_.read_all_states());
    return maps_.target_state(target_);
  }
  [[nodiscard]] std::uint64_t waiting() const {
    const headgate_target_state state = target_state();
    return state.waiting_started - state.waiting_settled;
  }
  [[nodiscard]] std::uint32_t slot() const { return slot_; }
  [[nodiscard]] std::uint32_t target() const { return target_; }

  headgate_endpoint_policy policy{};
  headgate_target_policy target_policy{};

 private:
  template <class T>
  static T must(Result<T> result) {
    if (!result) {
      throw SetupError(result.error().message);
    }
    return std::move(*result);
  }
  static void must_do(const Result<>& result) {
    if (!result) {
      throw SetupError(result.error().message);
    }
  }
  KernelMaps& maps_;
  std::uint32_t target_ = 0;
  std::uint32_t slot_ = 0;
};

class GateLab {
 public:
  GateLab() : GateLab("") {}
  explicit GateLab(std::string unified)
      : pins(),
        maps(open_maps(*pins)),
        gate(*maps, *pins),
        connections(*maps, *pins, unified),
        payload(*maps, *pins, unified),
        node_connects(*maps, *pins, unified),
        tc(*maps, *pins),
        xdp(*maps, *pins) {}
  ~GateLab() {
    tc.detach_all();
    xdp.detach_all();
  }
  GateLab(const GateLab&) = delete;
  GateLab& operator=(const GateLab&) = delete;

  /// The port on every address of a namespace, gated; admits everything until told otherwise.
  Port protect(const Namespace& netns, std::uint16_t port, std::uint8_t protocol = IPPROTO_TCP) {
    Port out(*maps, ++owners_, port, protocol);
    map(netns, port, protocol, out, 0, nullptr);
    hold(netns);
    out.publish();
    return out;
  }
  /// The port on one address only, as in the namespace of the host.
  Port protect_at(const Namespace& netns, const std::string& address, std::uint16_t port) {
    Port out(*maps, ++owners_, port, IPPROTO_TCP);
    const IpAddress at = address_of(address);
    map(netns, port, IPPROTO_TCP, out, HEADGATE_REF_BY_ADDRESS, nullptr);
    map(netns, port, IPPROTO_TCP, out, 0, &at);
    hold(netns);
    out.publish();
    return out;
  }
  void hold(const Namespace& netns) { must(gate.hold(netns.inode(), netns.fd())); }
  void open_pit(const Namespace& netns) { must(gate.open_pit(netns.inode(), netns.fd())); }
  /// sock_ops on the cgroup of a target; its tickets are settled from now on.
  void count_connections(Port& port, const Cgroup& cgroup, const Namespace& netns) {
    must(connections.hold(port.target(), cgroup.path(), netns.inode(), false));
    port.policy.flags |= HEADGATE_TICKETS_SETTLED;
    port.publish();
  }
  /// cgroup_skb on the cgroup of a target that counts connections already.
  void count_payload(Port& port, const Cgroup& cgroup, const Namespace& netns) {
    must(payload.hold(port.target(), cgroup.path(), netns.inode()));
  }
  /// The program at tc of the other ends of the pod's veths, which are in `host`.
  void judge_early(Port& port, const Namespace& pod, const Namespace& host) {
    tc.set_host(duplicate(host));
    must(tc.hold(pod.inode(), pod.fd()));
    port.policy.flags |= HEADGATE_JUDGE_EARLY;
    port.publish();
  }
  /// XDP on an interface of the namespace that the port is in.
  /// Has the kernel look at requests, by these stages.
  void see_requests(const std::vector<std::pair<std::uint32_t, Program>>& stages) {
    const auto load = [&](Program program) {
      auto loaded = load_program(program, {}, *maps);
      must(loaded ? Result<>() : tl::unexpected<Error>(loaded.error()));
      return std::move(loaded->fd);
    };
    for (const auto& [stage, program] : stages) {
      const UniqueFd loaded = load(program);
      const int fd = loaded.get();
      if (::bpf_map_update_elem(maps->fd("headgate_stream_stages"), &stage, &fd, BPF_ANY) != 0) {
        throw SetupError("headgate_stream_stages");
      }
    }
    const UniqueFd entry = load(Program::kStreamEntry);
    if (::bpf_prog_attach(entry.get(), maps->fd("headgate_streams"), BPF_SK_SKB_VERDICT, 0) != 0) {
      throw SetupError("headgate_streams");
    }
  }
  void judge_at_card(Port& port, const Namespace& host, const std::string& interface) {
    xdp.set_host(duplicate(host), host.inode());
    xdp.use({interface});
    port.policy.flags |= HEADGATE_JUDGE_EARLY;
    port.publish();
  }
  static UniqueFd duplicate(const Namespace& netns) {
    return UniqueFd(::fcntl(netns.fd(), F_DUPFD_CLOEXEC, 0));
  }
  static void must(const Result<>& result) {
    if (!result) {
      throw SetupError(result.error().message);
    }
  }

  test::TestPins pins;
  std::unique_ptr<KernelMaps> maps;
  SkLookupHook gate;
  SockOpsHook connections;
  CgroupSkbHook payload;
  NodeConnectsHook node_connects;
  TcHook tc;
  XdpHook xdp;

 private:
  static std::unique_ptr<KernelMaps> open_maps(const PinDirectory& pins) {
    auto maps = KernelMaps::open(pins);
    if (!maps) {
      throw SetupError(maps.error().message);
    }
    return std::move(*maps);
  }
  void map(const Namespace& netns, std::uint16_t port, std::uint8_t protocol, const Port& to,
           std::uint32_t flags, const IpAddress* address) {
    headgate_endpoint_key key{};
    key.netns_id = netns.inode();
    key.port = port;
    key.protocol = protocol;
    if (address != nullptr) {
      std::memcpy(key.address, address->bytes.data(), sizeof(key.address));
    }
    must(maps->map_flow(key, {to.slot(), flags}));
  }
  std::uint64_t owners_ = 0;
};

/// A server in a cgroup of its own, whose connections are counted, and a client beside it.
class ServerFixture : public ::testing::Test {
 protected:
  explicit ServerFixture(const char* cgroup_name) : cgroup_name_(cgroup_name) {}
  void SetUp() override {
    HEADGATE_REQUIRES_ROOT_KERNEL();
    HEADGATE_REQUIRES(missing_for_sock_ops());
    gates.emplace(unified_root());
    net.emplace();
    cgroup.emplace(cgroup_name_);
  }
  void TearDown() override {
    server.reset();
    gates.reset();
    cgroup.reset();
    net.reset();
  }
  void start_server(const ServerOptions& options) {
    server.emplace(net->server, options, &*cgroup);
    server->start();
  }

  std::optional<GateLab> gates;
  std::optional<Pair> net;
  std::optional<Cgroup> cgroup;
  std::optional<ServerProcess> server;

 private:
  const char* cgroup_name_;
};

}  // namespace headgate::lab
