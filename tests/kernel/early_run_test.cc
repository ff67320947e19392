// SPDX-License-Identifier: Apache-2.0
// The programs in front of the socket layer (tc, XDP), frame by frame (BPF_PROG_TEST_RUN): the same
// table that tests/unit/packet_test.cc reads natively, and what the gate counts. All variants that
// load on this kernel.
#include <arpa/inet.h>
#include <linux/bpf.h>
#include <linux/pkt_cls.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <map>
#include <memory>
#include <numeric>
#include <ostream>
#include <string>
#include <vector>

#include <bpf/bpf.h>
#include <gtest/gtest.h>

#include "headgate/units.h"

#include "agent/dataplane/kernel_maps.h"
#include "tests/kernel/bpf_object.h"
#include "tests/support/frames.h"
#include "tests/support/net_lab.h"

namespace headgate {
namespace {

using test::FrameCase;
using test::FrameSpec;
using test::Seen;

constexpr std::uint32_t kNetns = 4242;
constexpr std::uint16_t kPort = 4317;

struct Hook {
  const char* program;
  bool xdp;
  int pass, drop, answer;
  friend void PrintTo(const Hook& hook, std::ostream* out) { *out << hook.program; }
};
constexpr Hook kTc(const char* program) {
  return {program, false, TC_ACT_UNSPEC, TC_ACT_SHOT, TC_ACT_REDIRECT};
}
constexpr Hook kXdp(const char* program) { return {program, true, XDP_PASS, XDP_DROP, XDP_TX}; }

class Early : public ::testing::TestWithParam<Hook> {
 protected:
  void SetUp() override {
    HEADGATE_REQUIRES_ROOT_KERNEL();
    rig = rig_of(GetParam().program);
    if (rig->no_atomics) {
      GTEST_SKIP() << "this kernel has no BPF atomics";
    }
    ASSERT_EQ(rig->problem, "");
    maps = rig->maps.get();
    const std::uint64_t owner = ++owners;
    target = *maps->claim_target(owner, owner, kNetns, now(), {});
    slot = *maps->claim_endpoint(owner, target, kPort, IPPROTO_TCP, now(), {});
    for (const headgate_endpoint_key& key : keys()) {
      ASSERT_TRUE(maps->map_flow(key, {slot, 0}));
    }
    left_before = maps->left_to_socket();
    policy.target = target;
    policy.flags = HEADGATE_JUDGE_EARLY;
    of_target.valid_until_ns = ~std::uint64_t{0} >> 1;
    of_target.defer_deadline_ns = policy.defer_deadline_ns = 8'000'000'000;
    of_target.waiting_max = policy.waiting_max = policy.waiting_max_other = 100;
  }
  void TearDown() override {
    if (maps == nullptr) {
      return;
    }
    for (const headgate_endpoint_key& key : keys()) {
      maps->unmap_flow(key);
    }
    maps->set_off(false);
    // Under another key nothing is found of what the test before has left in the flows.
    const std::uint32_t zero = 0;
    headgate_control control{};
    ASSERT_EQ(::bpf_map_lookup_elem(maps->fd("headgate_control"), &zero, &control), 0);
    ++control.hash_key[0];
    ASSERT_EQ(::bpf_map_update_elem(maps->fd("headgate_control"), &zero, &control, 0), 0);
  }
  static std::vector<headgate_endpoint_key> keys() {
    std::vector<headgate_endpoint_key> out;
    for (const std::uint8_t protocol : {IPPROTO_TCP, IPPROTO_UDP}) {
      for (const std::uint16_t port : {kPort, std::uint16_t{4789}}) {
        out.push_back({kNetns, port, protocol, 0, {}});
      }
    }
    return out;
  }

  /// Maps and programs, loaded once: the verifier takes its time.
  struct Rig {
    std::unique_ptr<KernelMaps> maps;
    test::Loaded early;
    test::Loaded socket;
    bool no_atomics = false;
    std::string problem;
  };
  static Rig* rig_of(const std::string& program) {
    static std::map<std::string, Rig> rigs;
    const auto [it, fresh] = rigs.try_emplace(program);
    Rig& rig = it->second;
    if (!fresh) {
      return &rig;
    }
    auto opened = KernelMaps::open(PinDirectory::prepare(""));
    if (!opened) {
      rig.problem = opened.error().message;
      return &rig;
    }
    rig.maps = std::move(*opened);
    const bool atomic = program.ends_with("_atomic");
    auto early = test::load_by_name(program, kNetns, rig.maps.get());
    auto socket = test::load_by_name(
        atomic ? "headgate_sk_lookup_atomic" : "headgate_sk_lookup_locked", kNetns, rig.maps.get());
    rig.no_atomics = !early && atomic && early.error().sys_errno == EINVAL;
    if (!early || !socket) {
      rig.problem = !early ? early.error().message : socket.error().message;
      return &rig;
    }
    rig.early = std::move(*early);
    rig.socket = std::move(*socket);
    return &rig;
  }
  static inline std::uint64_t owners = 0;

  static Instant now() { return std::chrono::steady_clock::now(); }

  void refuse_by(headgate_action action) {
    policy.actions = 0;
    for (unsigned reason = 1; reason < HEADGATE_REASON_COUNT; ++reason) {
      policy.actions |= static_cast<std::uint64_t>(action) << (8 * reason);
    }
  }
  void admit(double share) {
    policy.flags |= HEADGATE_ARM_SHARE;
    policy.admit_q32 = Probability::admitting(share).q32();
    publish();
  }
  void publish() {
    maps->store_target(target, of_target);
    maps->store(slot, policy);
  }

  /// What the early hook says to a frame; `answer` is what the frame has become.
  int see_frame(const std::vector<std::uint8_t>& frame,
                std::vector<std::uint8_t>* answer = nullptr) {
    std::vector<std::uint8_t> out(4096);
    LIBBPF_OPTS(bpf_test_run_opts, options, .data_in = frame.data(), .data_out = out.data(),
                .data_size_in = static_cast<__u32>(frame.size()),
                .data_size_out = static_cast<__u32>(out.size()), .repeat = 1);
    if (::bpf_prog_test_run_opts(rig->early.fd, &options) != 0) {
      return -errno;
    }
    out.resize(options.data_size_out);
    if (answer != nullptr) {
      *answer = out;
    }
    return static_cast<int>(options.retval);
  }
  int see(const FrameSpec& spec = {}) { return see_frame(test::make_frame(spec)); }
  /// And the socket's gate behind it: true = it passes.
  bool looked_up(const FrameSpec& spec) {
    bpf_sk_lookup context{};
    context.family = AF_INET;
    context.protocol = spec.protocol;
    context.local_port = spec.destination_port;
    context.remote_port = htons(spec.source_port);
    context.local_ip4 = htonl(0x0a000001);
    context.remote_ip4 = htonl(0x0a000002);
    LIBBPF_OPTS(bpf_test_run_opts, options, .ctx_in = &context, .ctx_size_in = sizeof(context),
                .repeat = 1);
    return ::bpf_prog_test_run_opts(rig->socket.fd, &options) == 0 && options.retval == SK_PASS;
  }
  [[nodiscard]] headgate_counters counters() const { return maps->counters(slot); }
  /// TEST_RUN wants at least an Ethernet header.
  static bool runs(const std::vector<std::uint8_t>& frame) { return frame.size() >= 14 + 20; }

  Rig* rig = nullptr;
  KernelMaps* maps = nullptr;
  std::array<std::uint64_t, HEADGATE_LEFT_COUNT> left_before{};
  std::uint32_t target = 0;
  std::uint32_t slot = 0;
  headgate_endpoint_policy policy{};
  headgate_target_policy of_target{};
};
INSTANTIATE_TEST_SUITE_P(
    Programs, Early,
    ::testing::Values(kTc("headgate_tc_egress_atomic"), kTc("headgate_tc_egress_locked"),
                      kTc("headgate_tc_ingress_atomic"), kTc("headgate_tc_ingress_locked"),
                      kXdp("headgate_xdp_native_atomic"), kXdp("headgate_xdp_native_locked"),
                      kXdp("headgate_xdp_generic_atomic"), kXdp("headgate_xdp_generic_locked")),
    [](const auto& hook) { return std::string(hook.param.program).substr(9); });

/// Where the frame is a socket buffer in TEST_RUN too.
class EarlyGeneric : public Early {};
INSTANTIATE_TEST_SUITE_P(Programs, EarlyGeneric,
                         ::testing::Values(kXdp("headgate_xdp_generic_atomic"),
                                           kXdp("headgate_xdp_generic_locked")),
                         [](const auto& hook) {
                           return std::string(hook.param.program).substr(9);
                         });

/// Cases F01, F02, F04, F06, F07 and the rest of the table.
TEST_P(Early, EachFrameIsDroppedOrLeftAlone) {
  refuse_by(HEADGATE_ACTION_DROP);
  admit(0);
  std::array<std::uint64_t, HEADGATE_LEFT_COUNT> left = left_before;
  for (const FrameCase& row : test::frame_cases()) {
    const std::vector<std::uint8_t> frame = row.frame();
    if (!runs(frame)) {
      continue;
    }
    std::vector<std::uint8_t> after;
    const bool judged = row.seen == Seen::kSyn || row.seen == Seen::kDatagram;
    EXPECT_EQ(see_frame(frame, &after), judged ? GetParam().drop : GetParam().pass) << row.name;
    EXPECT_EQ(after, frame) << row.name << " was changed";
    if (row.seen >= Seen::kFragment) {
      ++left[static_cast<std::size_t>(row.seen) - static_cast<std::size_t>(Seen::kFragment)];
    }
  }
  EXPECT_EQ(maps->left_to_socket(), left);
}

TEST_P(Early, EachSynIsAnsweredByARightReset) {
  refuse_by(HEADGATE_ACTION_RESET);
  admit(0);
  for (const FrameCase& row : test::frame_cases()) {
    const std::vector<std::uint8_t> frame = row.frame();
    if (row.seen != Seen::kSyn || !runs(frame)) {
      continue;
    }
    // tc cannot move TCP: what carries more is left to the socket's gate.
    const bool mute =
        !GetParam().xdp && (row.spec.ip_option_bytes != 0 || !row.spec.extensions.empty() ||
                            row.spec.payload_bytes != 0);
    std::vector<std::uint8_t> answer;
    EXPECT_EQ(see_frame(frame, &answer), mute ? GetParam().pass : GetParam().answer) << row.name;
    EXPECT_EQ(mute ? "" : fault_in_reset(row.spec, answer), "") << row.name;
  }
}

/// A checksum that is left to the device (the field holds the sum of the pseudo header) stays one
/// in generic mode, where the frame is a socket buffer.
TEST_P(EarlyGeneric, PartialChecksumStaysPartial) {
  refuse_by(HEADGATE_ACTION_RESET);
  admit(0);
  for (const bool ipv6 : {false, true}) {
    const FrameSpec spec{.ipv6 = ipv6};
    std::vector<std::uint8_t> frame = test::make_frame(spec);
    const std::size_t ip = 14;
    const std::size_t tcp = ip + (ipv6 ? 40 : 20);
    const auto pseudo = [&](const std::vector<std::uint8_t>& of, std::uint32_t bytes) {
      std::uint32_t sum = bytes + IPPROTO_TCP;
      for (std::size_t at = ip + (ipv6 ? 8 : 12); at < tcp; at += 2) {
        sum += static_cast<std::uint32_t>(of[at] << 8 | of[at + 1]);
      }
      while (sum > 0xffff) sum = (sum & 0xffff) + (sum >> 16);
      return sum;
    };
    const std::uint32_t left = pseudo(frame, static_cast<std::uint32_t>(frame.size() - tcp));
    frame[tcp + 16] = static_cast<std::uint8_t>(left >> 8);
    frame[tcp + 17] = static_cast<std::uint8_t>(left);
    std::vector<std::uint8_t> answer;
    ASSERT_EQ(see_frame(frame, &answer), XDP_TX);
    EXPECT_EQ(static_cast<std::uint32_t>(answer[tcp + 16] << 8 | answer[tcp + 17]),
              pseudo(answer, 20));
  }
}

TEST_P(Early, IdleGateIsLeftToTheSocket) {
  publish();
  EXPECT_EQ(see(), GetParam().pass);
  EXPECT_EQ(counters().tries, 0U);
  EXPECT_TRUE(looked_up({}));
  EXPECT_EQ(counters().offered, 1U);
}

TEST_P(Early, EndpointThatWantsNoEarlyVerdictIsLeftToTheSocket) {
  policy.flags = 0;
  refuse_by(HEADGATE_ACTION_RESET);
  admit(0);
  EXPECT_EQ(see(), GetParam().pass);
  EXPECT_EQ(counters().tries, 0U);
}

/// What a CPU has found before holds for the same address and port only, and until endpoints
/// change.
TEST_P(Early, WhatWasFoundIsForgottenWhenEndpointsChange) {
  refuse_by(HEADGATE_ACTION_DROP);
  admit(0);
  const headgate_endpoint_key any{kNetns, kPort, IPPROTO_TCP, 0, {}};
  headgate_endpoint_key one = any;
  one.address[2] = htonl(0xffff);
  one.address[3] = htonl(0x0a000001);
  ASSERT_TRUE(maps->map_flow(any, {slot, HEADGATE_REF_BY_ADDRESS}));
  ASSERT_TRUE(maps->map_flow(one, {slot, 0}));
  for (int turn = 0; turn < 3; ++turn) {
    const auto isn = static_cast<std::uint32_t>(turn);
    EXPECT_EQ(see({.isn = isn}), GetParam().drop);
    EXPECT_EQ(see({.isn = isn, .destination = "10.0.0.3"}), GetParam().pass);
    EXPECT_EQ(see({.isn = isn, .destination_port = 4318}), GetParam().pass);
    EXPECT_EQ(see({.ipv6 = true, .isn = isn}), GetParam().pass);
    EXPECT_EQ(see({.isn = isn}), GetParam().drop);
  }
  maps->unmap_flow(one);
  EXPECT_EQ(see({.isn = 9}), GetParam().pass) << "the listener has gone";
  ASSERT_TRUE(maps->map_flow(one, {slot, 0}));
  EXPECT_EQ(see({.isn = 9}), GetParam().drop);
  maps->unmap_flow(one);
  ASSERT_TRUE(maps->map_flow(any, {slot, 0}));
  EXPECT_EQ(see({.isn = 9, .destination = "10.0.0.3"}), GetParam().drop);
  maps->unmap_flow(any);  // held twice and once more by the fixture
  maps->unmap_flow(any);
}

TEST_P(Early, AdmittedSynIsNotJudgedCountedOrChargedAgain) {
  for (const std::uint64_t settled : {std::uint64_t{0}, std::uint64_t{HEADGATE_TICKETS_SETTLED}}) {
    policy.flags = HEADGATE_JUDGE_EARLY | HEADGATE_ARM_BUDGET | settled;
    policy.charge_request_ns = 1'000'000'000;
    policy.depth_ns = 0;
    of_target.bucket_depth_max_ns = 0;
    of_target.bucket_charge_max_ns = policy.charge_request_ns;
    publish();
    const FrameSpec spec{.source_port = static_cast<std::uint16_t>(settled != 0 ? 2 : 1)};
    const headgate_counters before = counters();
    if (settled != 0) {
      of_target.bucket_charge_max_ns = 0;  // what is owed is cut to nothing
      publish();
    }
    ASSERT_EQ(see(spec), GetParam().pass);
    EXPECT_TRUE(looked_up(spec));  // the SYN at the socket
    EXPECT_TRUE(looked_up(spec));  // the final ACK under SYN cookies
    const headgate_counters after = counters();
    EXPECT_EQ(after.offered - before.offered, 1U);
    EXPECT_EQ(after.admitted - before.admitted, 1U);
    EXPECT_EQ(after.repeats - before.repeats, 2U);
  }
}

TEST_P(Early, DatagramIsJudgedOnce) {
  refuse_by(HEADGATE_ACTION_RESET);
  admit(0.5);
  const FrameSpec datagram{.protocol = IPPROTO_UDP, .payload_bytes = 10};
  unsigned passed = 0;
  for (int i = 0; i < 100; ++i) {
    if (see(datagram) == GetParam().pass) {
      ++passed;
      EXPECT_TRUE(looked_up(datagram)) << i;
    }
  }
  EXPECT_NEAR(passed, 50, 1);
  EXPECT_EQ(counters().offered, 100U);
  EXPECT_EQ(counters().dropped, 100U - passed);
  EXPECT_EQ(counters().repeats, passed);
}

TEST_P(Early, RetransmitOfADroppedSynMeetsTheSameAnswerAndIsNoNewAttempt) {
  refuse_by(HEADGATE_ACTION_DROP);
  admit(0.5);
  constexpr unsigned kAttempts = 2000;
  unsigned dropped = 0;
  for (unsigned i = 0; i < kAttempts; ++i) {
    const FrameSpec spec{.isn = i * 77, .source_port = static_cast<std::uint16_t>(1024 + i % 40)};
    const int first = see(spec);
    dropped += first == GetParam().drop ? 1 : 0;
    for (int again = 0; again < 3; ++again) {
      // an admitted SYN has its ticket by 4-tuple, and the next attempt from that port uses it too
      if (first == GetParam().drop) {
        EXPECT_EQ(see(spec), first);
      }
    }
  }
  const headgate_counters counted = counters();
  EXPECT_EQ(counted.dropped, dropped);
  EXPECT_EQ(counted.repeats_refused, 3ULL * dropped);
  EXPECT_EQ(counted.offered + counted.repeats - counted.repeats_refused, kAttempts);
}

TEST_P(Early, ShareOfDropsIsWhatItSays) {
  refuse_by(HEADGATE_ACTION_DROP);
  admit(0.3);
  constexpr unsigned kAttempts = 5000;
  unsigned passed = 0;
  for (unsigned i = 0; i < kAttempts; ++i) {
    passed +=
        see({.isn = 7 * i, .source_port = static_cast<std::uint16_t>(1024 + i)}) == GetParam().pass;
  }
  // a hash is a coin: five standard deviations
  EXPECT_NEAR(passed, 0.3 * kAttempts, 5 * 32.4);
  EXPECT_EQ(counters().offered, kAttempts);
}

TEST_P(Early, LargerShareLetsInWhoWasDroppedAndSmallerThrowsNobodyOut) {
  refuse_by(HEADGATE_ACTION_DROP);
  constexpr unsigned kAttempts = 400;
  const auto spec = [](unsigned i) {
    return FrameSpec{.isn = 9 * i, .source_port = static_cast<std::uint16_t>(1024 + i)};
  };
  std::vector<bool> in(kAttempts, false);
  unsigned passed = 0;
  for (const double share : {0.2, 0.4, 0.8, 1.0}) {
    admit(share);
    for (unsigned i = 0; i < kAttempts; ++i) {
      const bool now_in = see(spec(i)) == GetParam().pass;
      EXPECT_TRUE(now_in || !in[i]);
      passed += now_in && !in[i] ? 1 : 0;
      in[i] = now_in;
    }
  }
  EXPECT_EQ(passed, kAttempts);
  EXPECT_EQ(counters().offered, kAttempts);
  EXPECT_EQ(counters().admitted, kAttempts);
  EXPECT_EQ(counters().admitted_deferred, counters().dropped);
}

TEST_P(Early, DroppedForTheBudgetStaysDropped) {
  refuse_by(HEADGATE_ACTION_DROP);
  policy.flags |= HEADGATE_ARM_BUDGET;
  policy.charge_request_ns = 3'600'000'000'000;
  of_target.bucket_charge_max_ns = policy.charge_request_ns;
  publish();
  ASSERT_EQ(see({.source_port = 1}), GetParam().pass);
  ASSERT_EQ(see({.source_port = 2}), GetParam().drop);
  policy.charge_request_ns = of_target.bucket_charge_max_ns = 1;  // room again for newcomers
  policy.depth_ns = 1000;
  publish();
  EXPECT_EQ(see({.source_port = 2}), GetParam().drop);
  EXPECT_EQ(see({.isn = 5, .source_port = 2}), GetParam().pass);  // the next connect
}

TEST_P(Early, NothingIsRefusedWithoutALease) {
  refuse_by(HEADGATE_ACTION_DROP);
  admit(0);
  ASSERT_EQ(see(), GetParam().drop);
  of_target.valid_until_ns = 1;
  publish();
  EXPECT_EQ(see(), GetParam().pass);
  EXPECT_EQ(see({.source_port = 2}), GetParam().pass);
  EXPECT_EQ(counters().admitted_stale, 2U);
  EXPECT_EQ(counters().offered, 2U);
}

TEST_P(Early, ObserveCountsAndRefusesNothing) {
  refuse_by(HEADGATE_ACTION_DROP);
  policy.flags |= HEADGATE_OBSERVE;
  admit(0);
  EXPECT_EQ(see(), GetParam().pass);
  EXPECT_EQ(counters().admitted_observed, 1U);
}

TEST_P(Early, KillSwitchOpensIt) {
  refuse_by(HEADGATE_ACTION_DROP);
  admit(0);
  maps->set_off(true);
  EXPECT_EQ(see(), GetParam().pass);
}

TEST_P(Early, DeferIsSilence) {
  refuse_by(HEADGATE_ACTION_DEFER);
  policy.flags |= HEADGATE_MAY_DEFER;
  admit(0);
  EXPECT_EQ(see(), GetParam().drop);
  EXPECT_EQ(see(), GetParam().drop);
  EXPECT_EQ(counters().deferred, 1U);
  EXPECT_EQ(counters().deferred_tries, 2U);
  EXPECT_EQ(counters().offered, 1U);
}

TEST_P(Early, SourcesOfRefusalsAreMarked) {
  refuse_by(HEADGATE_ACTION_DROP);
  admit(0);
  for (int i = 1; i <= 50; ++i) {
    (void)see({.source = "10.0.1." + std::to_string(i)});
    (void)see({.isn = 2, .source = "10.0.1." + std::to_string(i)});
  }
  EXPECT_NEAR(maps->take_source_bits(slot), 50, 6);
  EXPECT_EQ(maps->take_source_bits(slot), 0U);
}

/// Silence is not to be had at the socket: what comes past the early hooks is reset.
TEST_P(Early, DropAtTheSocketIsAReset) {
  refuse_by(HEADGATE_ACTION_DROP);
  admit(0);
  EXPECT_FALSE(looked_up({}));
  EXPECT_EQ(counters().reset, 1U);
  EXPECT_EQ(counters().dropped, 0U);
}

}  // namespace
}  // namespace headgate
