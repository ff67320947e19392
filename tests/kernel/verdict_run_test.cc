// SPDX-License-Identifier: Apache-2.0
// The gate in the kernel, try by try (BPF_PROG_TEST_RUN): what a table of
// tries is answered, and which counters each moves. Both variants.
#include <arpa/inet.h>
#include <linux/bpf.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/utsname.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include <bpf/bpf.h>
#include <gtest/gtest.h>

#include "agent/dataplane/kernel_maps.h"
#include "bpf/lib/flows.h"
#include "tests/kernel/bpf_object.h"
#include "tests/support/net_lab.h"

namespace headgate {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr std::uint32_t kNetns = 4242;
constexpr std::uint16_t kPort = 4317;

class VerdictRun : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    HEADGATE_REQUIRES_ROOT_KERNEL();
    auto opened = KernelMaps::open(PinDirectory::prepare(""));
    ASSERT_TRUE(opened) << opened.error().message;
    maps = std::move(*opened);
    auto program = test::load_by_name(GetParam(), kNetns, maps.get());
    ASSERT_TRUE(program) << program.error().message;
    loaded = std::move(*program);
    target = *maps->claim_target(1, 1, kNetns, now(), {});
    slot = *maps->claim_endpoint(1, target, kPort, IPPROTO_TCP, now(), {});
    for (const std::uint8_t protocol : {IPPROTO_TCP, IPPROTO_UDP}) {
      ASSERT_TRUE(maps->map_flow({kNetns, kPort, protocol, 0, {}}, {slot, 0}));
    }
    policy.target = target;
    policy.defer_deadline_ns = 8'000'000'000;
    of_target.defer_deadline_ns = 8'000'000'000;
    of_target.waiting_max = 100;
    policy.waiting_max = policy.waiting_max_other = 1'000'000;
    of_target.valid_until_ns = ~std::uint64_t{0} >> 1;
  }
  static Instant now() { return std::chrono::steady_clock::now(); }

  void publish() {
    maps->store_target(target, of_target);
    maps->store(slot, policy);
  }
  void defer() {
    for (unsigned reason = 1; reason < HEADGATE_REASON_COUNT; ++reason) {
      policy.actions |= std::uint64_t{HEADGATE_ACTION_DEFER} << (8 * reason);
    }
    policy.flags |= HEADGATE_MAY_DEFER;
  }
  /// SK_PASS, SK_DROP, or kPit where a socket was chosen.
  static constexpr int kPit = 100;
  int try_from(std::uint16_t source_port, std::uint8_t protocol = IPPROTO_TCP,
               std::uint16_t to_port = kPort, bool ipv6 = false) {
    bpf_sk_lookup context{};
    context.family = ipv6 ? AF_INET6 : AF_INET;
    context.protocol = protocol;
    context.local_port = to_port;
    context.remote_port = htons(source_port);
    if (ipv6) {
      context.local_ip6[3] = htonl(1);
      context.remote_ip6[3] = htonl(2);
    } else {
      context.local_ip4 = htonl(0x0a000001);
      context.remote_ip4 = htonl(0x0a000002);
    }
    LIBBPF_OPTS(bpf_test_run_opts, options, .ctx_in = &context, .ctx_out = &context,
                .ctx_size_in = sizeof(context), .ctx_size_out = sizeof(context));
    EXPECT_EQ(::bpf_prog_test_run_opts(loaded.fd, &options), 0) << std::strerror(errno);
    return context.cookie != 0 ? kPit : static_cast<int>(options.retval);
  }
  headgate_counters counters() {
    EXPECT_TRUE(maps->read_all_states());
    return maps->counters(slot);
  }
  std::uint64_t waiting() {
    EXPECT_TRUE(maps->read_all_states());
    const headgate_target_state& state = maps->target_state(target);
    return state.waiting_started - state.waiting_settled;
  }
  headgate_flow_key flow(std::uint16_t source_port) const {
    headgate_flow_key key{};
    key.netns_id = kNetns;
    key.local_port = kPort;
    key.remote_port = source_port;
    key.local_address[2] = key.remote_address[2] = htonl(0xffff);
    key.local_address[3] = htonl(0x0a000001);
    key.remote_address[3] = htonl(0x0a000002);
    return key;
  }

  /// Kind of what is remembered of a flow.
  std::uint32_t known(const headgate_flow_key& key) {
    std::uint64_t hash = 0;
    const headgate_flow_set set = set_of(key, hash);
    return static_cast<std::uint32_t>(headgate_flow_find(&set, hash) >> 62);
  }
  void remember(const headgate_flow_key& key, headgate_flow_kind kind, std::uint64_t at_ns) {
    std::uint64_t hash = 0;
    headgate_flow_set set = set_of(key, hash);
    headgate_flow_put(&set, hash, kind, at_ns, 0);
    store(set, hash);
  }
  void forget(const headgate_flow_key& key) {
    std::uint64_t hash = 0;
    headgate_flow_set set = set_of(key, hash);
    headgate_flow_drop(&set, headgate_flow_find(&set, hash), 0);
    store(set, hash);
  }
  headgate_flow_set set_of(const headgate_flow_key& key, std::uint64_t& hash) {
    const std::uint32_t zero = 0;
    headgate_control control{};
    EXPECT_EQ(::bpf_map_lookup_elem(maps->fd("headgate_control"), &zero, &control), 0);
    hash = headgate_flow_hash(control.hash_key, &key);
    const std::uint32_t at = headgate_flow_set_of(hash);
    headgate_flow_set set{};
    EXPECT_EQ(::bpf_map_lookup_elem(maps->fd("headgate_flows"), &at, &set), 0);
    return set;
  }
  void store(const headgate_flow_set& set, std::uint64_t hash) {
    const std::uint32_t at = headgate_flow_set_of(hash);
    EXPECT_EQ(::bpf_map_update_elem(maps->fd("headgate_flows"), &at, &set, 0), 0);
  }

  std::unique_ptr<KernelMaps> maps;
  test::Loaded loaded;
  std::uint32_t target = 0;
  std::uint32_t slot = 0;
  headgate_endpoint_policy policy{};
  headgate_target_policy of_target{};
};
/// Those that this kernel loads: the one with atomics from 5.12 on (load_test.cc holds it to that).
std::vector<const char*> variants() {
  int major = 0;
  int minor = 0;
  utsname kernel{};
  ::uname(&kernel);
  std::sscanf(static_cast<const char*>(kernel.release), "%d.%d", &major, &minor);  // NOLINT
  std::vector<const char*> out = {"headgate_sk_lookup_locked"};
  if (major > 5 || (major == 5 && minor >= 12)) {
    out.push_back("headgate_sk_lookup_atomic");
  }
  return out;
}
INSTANTIATE_TEST_SUITE_P(Variants, VerdictRun, ::testing::ValuesIn(variants()),
                         [](const auto& variant) {
                           return std::string(variant.param) == "headgate_sk_lookup_atomic"
                                      ? "Atomic"
                                      : "Locked";
                         });

TEST_P(VerdictRun, OnlyTheProtectedPortIsLookedAt) {
  policy.flags = HEADGATE_ARM_CIRCUIT;
  publish();
  EXPECT_EQ(try_from(1000, IPPROTO_TCP, kPort + 1), SK_PASS);
  EXPECT_EQ(try_from(1000, IPPROTO_SCTP), SK_PASS);
  EXPECT_EQ(counters().tries, 0U);
  EXPECT_EQ(try_from(1000), SK_DROP);
  EXPECT_EQ(try_from(1000, IPPROTO_TCP, kPort, true), SK_DROP);
  EXPECT_EQ(try_from(1000, IPPROTO_UDP), SK_DROP);
  EXPECT_EQ(counters().tries, 3U);
  EXPECT_EQ(counters().reset, 3U);
  EXPECT_EQ(counters().refused[HEADGATE_REASON_CIRCUIT], 3U);
}

TEST_P(VerdictRun, FlowWithoutAPolicyIsAdmitted) {
  ASSERT_TRUE(maps->map_flow({kNetns, 80, IPPROTO_TCP, 0, {}}, {HEADGATE_MAX_ENDPOINTS, 0}));
  EXPECT_EQ(try_from(1000, IPPROTO_TCP, 80), SK_PASS);
  policy.flags = HEADGATE_ARM_CIRCUIT;
  policy.target = HEADGATE_MAX_TARGETS;  // of a target that does not exist
  publish();
  EXPECT_EQ(try_from(1000), SK_PASS);
}

TEST_P(VerdictRun, ReferenceByAddressTellsListenersApart) {
  headgate_endpoint_key key{kNetns, 9000, IPPROTO_TCP, 0, {}};
  ASSERT_TRUE(maps->map_flow(key, {slot, HEADGATE_REF_BY_ADDRESS}));
  policy.flags = HEADGATE_ARM_CIRCUIT;
  publish();
  EXPECT_EQ(try_from(1000, IPPROTO_TCP, 9000), SK_PASS);
  key.address[2] = htonl(0xffff);
  key.address[3] = htonl(0x0a000001);
  ASSERT_TRUE(maps->map_flow(key, {slot, 0}));
  EXPECT_EQ(try_from(1000, IPPROTO_TCP, 9000), SK_DROP);
  EXPECT_EQ(try_from(1000, IPPROTO_TCP, 9000, true), SK_PASS);
}

TEST_P(VerdictRun, ShareIsExact) {
  policy.flags = HEADGATE_ARM_SHARE;
  policy.admit_q32 = HEADGATE_ALWAYS_Q32 / 10 * 3;
  publish();
  int passed = 0;
  for (std::uint16_t port = 1; port <= 10'000; ++port) {
    passed += try_from(port) == SK_PASS ? 1 : 0;
  }
  EXPECT_NEAR(passed, 3000, 1);
}

TEST_P(VerdictRun, TicketIsForOneRepeatWhereNobodySettlesIt) {
  policy.flags = HEADGATE_ARM_SHARE;
  policy.admit_q32 = HEADGATE_ALWAYS_Q32;
  publish();
  EXPECT_EQ(try_from(1000), SK_PASS);
  policy.admit_q32 = 0;
  publish();
  EXPECT_EQ(try_from(1000), SK_PASS);  // the ACK of a cookie
  EXPECT_EQ(try_from(1000), SK_DROP);
  EXPECT_EQ(counters().repeats, 1U);
  EXPECT_EQ(counters().offered, 2U);
  EXPECT_EQ(maps->endpoint_state(slot).tickets_issued, 1U);
  EXPECT_EQ(maps->endpoint_state(slot).tickets_settled, 1U);
}

TEST_P(VerdictRun, TicketStaysForRetransmitsWhereSockOpsSettlesIt) {
  policy.flags = HEADGATE_ARM_SHARE | HEADGATE_TICKETS_SETTLED;
  policy.admit_q32 = HEADGATE_ALWAYS_Q32;
  publish();
  EXPECT_EQ(try_from(1000), SK_PASS);
  policy.admit_q32 = 0;
  publish();
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(try_from(1000), SK_PASS);
  }
  EXPECT_EQ(try_from(1001), SK_DROP);
  EXPECT_EQ(maps->endpoint_state(slot).tickets_settled, 0U);
}

TEST_P(VerdictRun, OldTicketIsNone) {
  policy.flags = HEADGATE_ARM_CIRCUIT;
  for (const auto& [modifier, ttl_ns] :
       {std::pair<std::uint64_t, std::uint64_t>{0, HEADGATE_TICKET_UNSETTLED_TTL_NS},
        {HEADGATE_TICKETS_SETTLED, HEADGATE_TICKET_TTL_NS}}) {
    policy.flags = HEADGATE_ARM_CIRCUIT | modifier;
    publish();
    const headgate_flow_key key = flow(1000);
    const std::uint64_t issued_ns = to_ktime_ns(now()) - ttl_ns - 50'000'000;
    remember(key, HEADGATE_FLOW_TICKET, issued_ns);
    EXPECT_EQ(try_from(1000), SK_DROP) << modifier;
    remember(key, HEADGATE_FLOW_TICKET, issued_ns + 500'000'000);
    EXPECT_EQ(try_from(1000), SK_PASS) << modifier;
  }
}

/// sock_ops has noted that the server closed first. The refused SYN of a reconnect comes twice.
TEST_P(VerdictRun, RefusedOutOfTimeWaitIsAnsweredTwiceAndCountedOnce) {
  policy.flags = HEADGATE_ARM_CIRCUIT | HEADGATE_TICKETS_SETTLED;
  publish();
  remember(flow(1000), HEADGATE_FLOW_TIME_WAIT, to_ktime_ns(now()) - 1'000'000'000);
  EXPECT_EQ(try_from(1000), SK_DROP);
  EXPECT_EQ(known(flow(1000)), HEADGATE_FLOW_REFUSED);
  policy.flags = HEADGATE_ARM_SHARE | HEADGATE_TICKETS_SETTLED;
  policy.admit_q32 = HEADGATE_ALWAYS_Q32;
  publish();
  EXPECT_EQ(try_from(1000), SK_DROP);  // the same answer
  EXPECT_EQ(known(flow(1000)), HEADGATE_FLOW_NONE);
  EXPECT_EQ(try_from(1000), SK_PASS);  // the next connect
  const headgate_counters counts = counters();
  EXPECT_EQ(counts.tries, 3U);
  EXPECT_EQ(counts.offered, 2U);
  EXPECT_EQ(counts.reset, 1U);
  EXPECT_EQ(counts.repeats, 1U);
  EXPECT_EQ(counts.repeats_refused, 1U);
  EXPECT_EQ(counts.admitted, 1U);
}

TEST_P(VerdictRun, AdmittedOutOfTimeWaitLeavesATicketOnly) {
  policy.flags = HEADGATE_ARM_SHARE | HEADGATE_TICKETS_SETTLED;
  policy.admit_q32 = HEADGATE_ALWAYS_Q32;
  publish();
  remember(flow(1000), HEADGATE_FLOW_TIME_WAIT, to_ktime_ns(now()));
  EXPECT_EQ(try_from(1000), SK_PASS);
  EXPECT_EQ(known(flow(1000)), HEADGATE_FLOW_TICKET);
  EXPECT_EQ(counters().offered, 1U);
}

TEST_P(VerdictRun, OldTimeWaitIsNone) {
  policy.flags = HEADGATE_ARM_CIRCUIT | HEADGATE_TICKETS_SETTLED;
  publish();
  remember(flow(1000), HEADGATE_FLOW_TIME_WAIT,
           to_ktime_ns(now()) - HEADGATE_TIME_WAIT_TTL_NS - 200'000'000);
  EXPECT_EQ(try_from(1000), SK_DROP);
  EXPECT_EQ(try_from(1000), SK_DROP);
  EXPECT_EQ(counters().offered, 2U);
  EXPECT_EQ(counters().repeats, 0U);
}

/// What is remembered refuses nobody whom the policy may not refuse, nor for long.
TEST_P(VerdictRun, RememberedRefusalEndsWithLeaseModeKillSwitchAndTime) {
  policy.flags = HEADGATE_ARM_SHARE | HEADGATE_TICKETS_SETTLED;
  policy.admit_q32 = HEADGATE_ALWAYS_Q32;
  const auto refused = [&](std::uint64_t age_ns = 0) {
    publish();
    remember(flow(1000), HEADGATE_FLOW_REFUSED, to_ktime_ns(now()) - age_ns);
  };
  refused();
  EXPECT_EQ(try_from(1000), SK_DROP);
  refused(HEADGATE_REFUSED_TTL_NS + 200'000'000);
  EXPECT_EQ(try_from(1000), SK_PASS);
  refused();
  maps->set_off(true);
  EXPECT_EQ(try_from(1000), SK_PASS);
  maps->set_off(false);
  policy.flags |= HEADGATE_OBSERVE;
  refused();
  EXPECT_EQ(try_from(1000), SK_PASS);
  policy.flags = HEADGATE_TICKETS_SETTLED;  // the gate is idle
  refused();
  EXPECT_EQ(try_from(1000), SK_PASS);
  policy.flags |= HEADGATE_ARM_SHARE;
  of_target.valid_until_ns = to_ktime_ns(now()) - 20'000'000;
  refused();
  EXPECT_EQ(try_from(1000), SK_PASS);
}

TEST_P(VerdictRun, DeferredTriesAgeAndEnd) {
  auto pit = Pit::open(lab::Namespace().fd());
  ASSERT_TRUE(pit) << pit.error().message;
  ASSERT_TRUE(maps->set_pit(kNetns, AF_INET, (*pit)->ipv4_fd()));
  policy.flags = HEADGATE_ARM_CIRCUIT;
  defer();
  publish();
  EXPECT_EQ(try_from(1000), kPit);
  EXPECT_EQ(waiting(), 1U);
  const headgate_flow_key key = flow(1000);
  headgate_age age{};
  ASSERT_EQ(::bpf_map_lookup_elem(maps->fd("headgate_ages"), &key, &age), 0);
  EXPECT_EQ(age.first_ns, age.last_ns);
  EXPECT_EQ(age.endpoint, slot);
  const std::uint64_t clock = to_ktime_ns(now());
  age = {clock - 3'000'000'000, clock - 2'000'000'000, slot, 0};  // the try after 3 s
  ASSERT_EQ(::bpf_map_update_elem(maps->fd("headgate_ages"), &key, &age, 0), 0);
  EXPECT_EQ(try_from(1000), kPit);
  headgate_age after{};
  ASSERT_EQ(::bpf_map_lookup_elem(maps->fd("headgate_ages"), &key, &after), 0);
  EXPECT_EQ(after.first_ns, age.first_ns);
  EXPECT_GE(after.last_ns + 20'000'000, clock);
  age = {clock - 7'000'000'000, clock - 4'000'000'000, slot, 0};  // the try after 7 s
  ASSERT_EQ(::bpf_map_update_elem(maps->fd("headgate_ages"), &key, &age, 0), 0);
  EXPECT_EQ(try_from(1000), SK_DROP);
  EXPECT_NE(::bpf_map_lookup_elem(maps->fd("headgate_ages"), &key, &age), 0);
  EXPECT_EQ(waiting(), 0U);
  const headgate_counters counts = counters();
  EXPECT_EQ(counts.offered, 1U);
  EXPECT_EQ(counts.tries, 3U);
  EXPECT_EQ(counts.deferred, 1U);
  EXPECT_EQ(counts.deferred_tries, 2U);
  EXPECT_EQ(counts.expired, 1U);
  EXPECT_EQ(counts.reset, 0U);
  EXPECT_EQ(counts.would_refuse[HEADGATE_REASON_CIRCUIT], 3U);
  EXPECT_EQ(counts.refused[HEADGATE_REASON_CIRCUIT], 2U);
  EXPECT_EQ(counts.refused[HEADGATE_REASON_WAITED], 1U);
}

TEST_P(VerdictRun, AgeOfAnotherConnectFromThePortIsForgotten) {
  auto pit = Pit::open(lab::Namespace().fd());
  ASSERT_TRUE(pit) << pit.error().message;
  ASSERT_TRUE(maps->set_pit(kNetns, AF_INET, (*pit)->ipv4_fd()));
  policy.flags = HEADGATE_ARM_CIRCUIT;
  defer();
  publish();
  EXPECT_EQ(try_from(1000), kPit);
  const headgate_flow_key key = flow(1000);
  const std::uint64_t clock = to_ktime_ns(now());
  const headgate_age age{clock - 20'000'000'000, clock - 9'000'000'000, slot, 0};
  ASSERT_EQ(::bpf_map_update_elem(maps->fd("headgate_ages"), &key, &age, 0), 0);
  EXPECT_EQ(try_from(1000), kPit);
  EXPECT_EQ(counters().offered, 2U);
  EXPECT_EQ(counters().deferred, 2U);
}

TEST_P(VerdictRun, DeferredAndThenAdmittedIsCountedOnce) {
  auto pit = Pit::open(lab::Namespace().fd());
  ASSERT_TRUE(pit) << pit.error().message;
  ASSERT_TRUE(maps->set_pit(kNetns, AF_INET, (*pit)->ipv4_fd()));
  policy.flags = HEADGATE_ARM_CIRCUIT;
  defer();
  publish();
  EXPECT_EQ(try_from(1000), kPit);
  policy.flags = HEADGATE_MAY_DEFER;  // the gate is idle, ages are still kept
  publish();
  EXPECT_EQ(try_from(1000), SK_PASS);
  EXPECT_EQ(try_from(1001), SK_PASS);
  const headgate_counters counts = counters();
  EXPECT_EQ(counts.offered, 2U);
  EXPECT_EQ(counts.admitted, 2U);
  EXPECT_EQ(counts.admitted_deferred, 1U);
  EXPECT_EQ(waiting(), 0U);
  EXPECT_EQ(maps->endpoint_state(slot).tickets_issued, 0U);  // none needed while idle
}

TEST_P(VerdictRun, DeferOfADatagramIsAReset) {
  policy.flags = HEADGATE_ARM_CIRCUIT;
  defer();
  publish();
  EXPECT_EQ(try_from(1000, IPPROTO_UDP), SK_DROP);
  EXPECT_EQ(counters().reset, 1U);
  EXPECT_EQ(counters().pit_missing + counters().deferred + waiting(), 0U);
}

/// The note bears the precise clock, the verdict the coarse one, which is behind it.
TEST_P(VerdictRun, NoteOfTheNodesConnectCountsAtOnceAndForTenSeconds) {
  policy.flags = HEADGATE_ARM_CIRCUIT | HEADGATE_EXEMPT_NODE;
  publish();
  headgate_node_flow_key key{};
  key.source_address[2] = htonl(0xffff);
  key.source_address[3] = htonl(0x0a000002);
  key.source_port = 1000;
  for (int i = 0; i < 100; ++i) {
    const std::uint64_t noted_ns = to_ktime_ns(now());
    ASSERT_EQ(::bpf_map_update_elem(maps->fd("headgate_node_flows"), &key, &noted_ns, 0), 0);
    ASSERT_EQ(try_from(1000), SK_PASS);
    forget(flow(1000));
  }
  EXPECT_EQ(counters().admitted_exempt, 100U);
  EXPECT_EQ(try_from(1001), SK_DROP);
  const std::uint64_t old_ns = to_ktime_ns(now()) - HEADGATE_NODE_FLOW_TTL_NS - 50'000'000;
  ASSERT_EQ(::bpf_map_update_elem(maps->fd("headgate_node_flows"), &key, &old_ns, 0), 0);
  EXPECT_EQ(try_from(1000), SK_DROP);
}

TEST_P(VerdictRun, KillSwitchAndLease) {
  policy.flags = HEADGATE_ARM_CIRCUIT;
  publish();
  maps->set_off(true);
  EXPECT_EQ(try_from(1000), SK_PASS);
  EXPECT_EQ(counters().tries, 0U);
  maps->set_off(false);
  EXPECT_EQ(try_from(1000), SK_DROP);
  of_target.valid_until_ns = to_ktime_ns(now()) - 20'000'000;
  publish();
  EXPECT_EQ(try_from(1000), SK_PASS);
  EXPECT_EQ(counters().admitted_stale, 1U);
}

/// However tries end, the books balance.
TEST_P(VerdictRun, CountersBalance) {
  auto pit = Pit::open(lab::Namespace().fd());
  ASSERT_TRUE(pit) << pit.error().message;
  ASSERT_TRUE(maps->set_pit(kNetns, AF_INET, (*pit)->ipv4_fd()));
  policy.flags = HEADGATE_ARM_SHARE | HEADGATE_ARM_RATE | HEADGATE_ARM_MAX_REFUSE;
  policy.admit_q32 = HEADGATE_ALWAYS_Q32 / 2;
  policy.rate_interval_ns = 1'000;
  policy.rate_burst_ns = 100'000;
  policy.max_refuse_q32 = HEADGATE_ALWAYS_Q32 / 3;
  policy.probe_interval_ns = 20'000'000;
  policy.actions = std::uint64_t{HEADGATE_ACTION_DEFER} << (8 * HEADGATE_REASON_SHARE);
  policy.flags |= HEADGATE_MAY_DEFER;
  of_target.waiting_max = 50;
  publish();
  std::uint64_t passed = 0;
  std::uint64_t dropped = 0;
  std::uint64_t silent = 0;
  for (int i = 0; i < 3000; ++i) {
    const int answer = try_from(static_cast<std::uint16_t>(1 + i % 700));
    (answer == SK_PASS ? passed : answer == SK_DROP ? dropped : silent) += 1;
  }
  const headgate_counters c = counters();
  EXPECT_EQ(c.tries, 3000U);
  EXPECT_EQ(passed, c.admitted + c.repeats - c.repeats_refused);
  EXPECT_EQ(dropped, c.reset + c.expired + c.dropped + c.repeats_refused);
  EXPECT_EQ(silent, c.deferred_tries);
  const auto sum = [](const auto& words) {
    return std::accumulate(std::begin(words), std::end(words), std::uint64_t{0});
  };
  EXPECT_EQ(sum(c.refused), dropped + silent);
  EXPECT_EQ(sum(c.would_refuse), dropped + silent + c.admitted_exempt + c.admitted_stale +
                                     c.admitted_probe + c.admitted_observed + c.admitted_capped);
  EXPECT_GT(silent, 0U);
  EXPECT_GT(c.admitted_deferred, 0U);
  EXPECT_GT(c.admitted_capped, 0U);
}

}  // namespace
}  // namespace headgate
