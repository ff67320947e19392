// SPDX-License-Identifier: Apache-2.0
// Pins, layouts and slots: what a restarted or upgraded agent finds, and what it must not take.
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <string>

#include <bpf/bpf.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "agent/dataplane/kernel_maps.h"
#include "agent/dataplane/route_keys.h"
#include "tests/support/net_lab.h"
#include "tests/support/test_pins.h"

namespace headgate {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr Duration kQuarantine = seconds(2);
constexpr Instant kNow = Instant(seconds(1000));

class Maps : public ::testing::Test {
 protected:
  void SetUp() override { HEADGATE_REQUIRES_ROOT_KERNEL(); }
  std::unique_ptr<KernelMaps> open() {
    auto maps = KernelMaps::open(*pins);
    EXPECT_TRUE(maps) << maps.error().message;
    return maps ? std::move(*maps) : nullptr;
  }
  test::TestPins pins;
};

// ------------------------------------------------------------------------------- pins

/// Case F24: a path that is no BPF file system (a bind mount of sysfs, a plain directory).
TEST_F(Maps, DirectoryThatIsNoBpffsMeansUnpinnedAndSaysWhat) {
  std::string directory = "/tmp/headgate-pins-XXXXXX";
  ASSERT_NE(::mkdtemp(directory.data()), nullptr);
  const PinDirectory none = PinDirectory::prepare(directory + "/headgate");
  EXPECT_FALSE(none.pinned());
  EXPECT_THAT(none.warning(), HasSubstr(directory));
  EXPECT_THAT(none.warning(), HasSubstr("mount -t bpf"));
  EXPECT_THAT(none.warning(), ::testing::Not(HasSubstr("could be mounted")));  // none was tried
  EXPECT_FALSE(std::filesystem::exists(directory + "/headgate"));
  auto maps = KernelMaps::open(none);  // and everything else works
  ASSERT_TRUE(maps) << maps.error().message;
  EXPECT_FALSE((*maps)->adopted());
  std::filesystem::remove_all(directory);
}

TEST_F(Maps, EmptyRootPinsNothing) {
  const PinDirectory none = PinDirectory::prepare("");
  EXPECT_FALSE(none.pinned());
  EXPECT_THAT(none.warning(), HasSubstr("nothing is pinned"));
}

TEST_F(Maps, PinsAreOnlyForTheirOwner) {
  struct stat status {};
  ASSERT_EQ(::stat(pins->root().c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0700U);
}

TEST_F(Maps, PurgeLeavesNothingBehind) {
  open();
  EXPECT_TRUE(std::filesystem::exists(pins->map_path("headgate_policies")));
  pins->purge();
  EXPECT_FALSE(std::filesystem::exists(pins->root()));
}

TEST_F(Maps, RestartFindsTheSameMaps) {
  const auto id_of = [](int fd) {
    bpf_map_info info{};
    std::uint32_t bytes = sizeof(info);
    EXPECT_EQ(::bpf_obj_get_info_by_fd(fd, &info, &bytes), 0);
    return info.id;
  };
  auto first = open();
  EXPECT_FALSE(first->adopted());
  const std::uint32_t policies = id_of(first->fd("headgate_policies"));
  const std::uint32_t flows = id_of(first->fd("headgate_flows"));
  headgate_endpoint_policy policy{};
  policy.admit_q32 = 12345;
  first->store(7, policy);
  first->set_off(true);
  first.reset();
  const auto second = open();
  EXPECT_TRUE(second->adopted());
  EXPECT_THAT(second->recreated(), IsEmpty());
  EXPECT_EQ(id_of(second->fd("headgate_policies")), policies);
  EXPECT_EQ(id_of(second->fd("headgate_flows")), flows);
  EXPECT_EQ(second->endpoint_policy(7).admit_q32, 12345U);
  EXPECT_TRUE(second->off());  // the kill switch outlives the agent
}

/// Case F25: after an upgrade a pin of another layout is in the way.
TEST_F(Maps, MapOfAnotherLayoutIsMadeAnewNotAdopted) {
  const auto put_in_the_way = [&](const char* name, bpf_map_type type, std::uint32_t value_bytes,
                                  std::uint32_t entries) {
    const std::string path = pins->map_path(name);
    ::unlink(path.c_str());
    const UniqueFd fd(::bpf_map_create(type, "other", 4, value_bytes, entries, nullptr));
    ASSERT_TRUE(fd) << name;
    ASSERT_EQ(::bpf_obj_pin(fd.get(), path.c_str()), 0) << name;
  };
  put_in_the_way("headgate_policies", BPF_MAP_TYPE_ARRAY, 144, HEADGATE_MAX_ENDPOINTS);
  put_in_the_way("headgate_target_ids", BPF_MAP_TYPE_ARRAY, sizeof(headgate_target_identity), 8);
  put_in_the_way("headgate_counts", BPF_MAP_TYPE_ARRAY, sizeof(headgate_counters),
                 HEADGATE_MAX_ENDPOINTS);
  // the right sizes, but not to be mapped into memory
  put_in_the_way("headgate_targets", BPF_MAP_TYPE_ARRAY, sizeof(headgate_target_policy),
                 HEADGATE_MAX_TARGETS);
  auto maps = open();
  ASSERT_NE(maps, nullptr);
  std::vector<std::string> recreated = maps->recreated();
  std::sort(recreated.begin(), recreated.end());
  EXPECT_THAT(recreated, ElementsAre("headgate_counts", "headgate_policies", "headgate_target_ids",
                                     "headgate_targets"));
  EXPECT_EQ(maps->endpoint_policy(0).flags, 0U);
  maps.reset();
  EXPECT_THAT(open()->recreated(), IsEmpty());  // the pins are now those of the new ones
}

/// A file that is no map at all: bpffs holds programs and links too.
TEST_F(Maps, PinThatIsNoMapIsReplaced) {
  open();
  const std::string path = pins->map_path("headgate_flows");
  ::unlink(path.c_str());
  const bpf_insn code[] = {{0xb7, 0, 0, 0, 0}, {0x95, 0, 0, 0, 0}};
  const UniqueFd program(
      ::bpf_prog_load(BPF_PROG_TYPE_SOCKET_FILTER, "other", "GPL", code, 2, nullptr));
  ASSERT_TRUE(program);
  ASSERT_EQ(::bpf_obj_pin(program.get(), path.c_str()), 0);
  const auto maps = open();
  ASSERT_NE(maps, nullptr);
  EXPECT_THAT(maps->recreated(), ElementsAre("headgate_flows"));
}

/// Case F29: the meaning of the words is kept in the map; under another one they are emptied.
TEST_F(Maps, PoliciesOfAnotherMeaningAreEmptied) {
  auto maps = open();
  headgate_endpoint_policy policy{};
  policy.flags = HEADGATE_ARM_CIRCUIT;
  headgate_target_policy target{};
  target.valid_until_ns = ~std::uint64_t{0};
  maps->store(HEADGATE_MAX_ENDPOINTS - 1, policy);
  maps->store_target(HEADGATE_MAX_TARGETS - 1, target);
  const std::uint32_t zero = 0;
  headgate_control control{};
  ASSERT_EQ(::bpf_map_lookup_elem(maps->fd("headgate_control"), &zero, &control), 0);
  EXPECT_EQ(control.abi_version, std::uint64_t{HEADGATE_ABI_VERSION});
  EXPECT_NE(control.policy_version, 0U);
  control.policy_version += 1;
  ASSERT_EQ(::bpf_map_update_elem(maps->fd("headgate_control"), &zero, &control, 0), 0);
  maps.reset();
  maps = open();
  EXPECT_EQ(maps->endpoint_policy(HEADGATE_MAX_ENDPOINTS - 1).flags, 0U);
  EXPECT_EQ(maps->target_policy(HEADGATE_MAX_TARGETS - 1).valid_until_ns, 0U);
  maps->store(1, policy);
  maps.reset();
  EXPECT_EQ(open()->endpoint_policy(1).flags, policy.flags);  // once
}

// ------------------------------------------------------------------------------- slots

TEST_F(Maps, OwnerFindsItsSlotsAgainAfterARestart) {
  auto maps = open();
  for (std::uint64_t owner = 1; owner <= 3; ++owner) {
    const auto target = maps->claim_target(owner, 100 + owner, 1, kNow, kQuarantine);
    ASSERT_TRUE(target);
    EXPECT_EQ(*target, owner - 1);
    EXPECT_FALSE(maps->adopted_target(*target));
    for (const std::uint16_t port : {std::uint16_t{4317}, std::uint16_t{4318}}) {
      EXPECT_EQ(*maps->claim_endpoint(owner, *target, port, IPPROTO_TCP, kNow, kQuarantine),
                2 * (owner - 1) + port - 4317);
    }
  }
  maps.reset();
  maps = open();
  for (std::uint64_t owner = 3; owner >= 1; --owner) {  // in whatever order
    EXPECT_EQ(*maps->claim_target(owner, 100 + owner, 1, kNow, kQuarantine), owner - 1);
    EXPECT_TRUE(maps->adopted_target(static_cast<std::uint32_t>(owner - 1)));
    EXPECT_EQ(*maps->claim_endpoint(owner, static_cast<std::uint32_t>(owner - 1), 4318, IPPROTO_TCP,
                                    kNow, kQuarantine),
              2 * (owner - 1) + 1);
  }
}

TEST_F(Maps, AnotherCgroupOfTheSameNameIsAnotherTarget) {
  const auto maps = open();
  const auto first = maps->claim_target(1, 100, 1, kNow, kQuarantine);
  const auto second = maps->claim_target(1, 101, 1, kNow, kQuarantine);
  EXPECT_NE(*first, *second);
  EXPECT_NE(*maps->claim_endpoint(1, *first, 80, IPPROTO_TCP, kNow, kQuarantine),
            *maps->claim_endpoint(1, *second, 80, IPPROTO_TCP, kNow, kQuarantine));
  EXPECT_NE(*maps->claim_endpoint(1, *first, 80, IPPROTO_TCP, kNow, kQuarantine),
            *maps->claim_endpoint(1, *first, 80, IPPROTO_UDP, kNow, kQuarantine));
}

TEST_F(Maps, FreedSlotRestsBeforeItHasAnotherOwner) {
  const auto maps = open();
  headgate_endpoint_policy shut{};
  shut.flags = HEADGATE_ARM_CIRCUIT;
  const auto target = maps->claim_target(1, 100, 1, kNow, kQuarantine);
  const auto endpoint = maps->claim_endpoint(1, *target, 80, IPPROTO_TCP, kNow, kQuarantine);
  maps->store(*endpoint, shut);
  headgate_target_policy lease{};
  lease.valid_until_ns = ~std::uint64_t{0};
  maps->store_target(*target, lease);
  maps->release_endpoint(*endpoint, kNow);
  maps->release_target(*target, kNow);
  EXPECT_EQ(maps->endpoint_policy(*endpoint).flags, 0U);  // never leaks to the next owner
  EXPECT_EQ(maps->target_policy(*target).valid_until_ns, 0U);
  const Instant soon = kNow + kQuarantine - milliseconds(1);
  EXPECT_NE(*maps->claim_target(2, 200, 1, soon, kQuarantine), *target);
  EXPECT_NE(*maps->claim_endpoint(2, 5, 80, IPPROTO_TCP, soon, kQuarantine), *endpoint);
  const Instant later = kNow + kQuarantine;
  EXPECT_EQ(*maps->claim_target(3, 300, 1, later, kQuarantine), *target);
  EXPECT_EQ(*maps->claim_endpoint(3, 5, 80, IPPROTO_TCP, later, kQuarantine), *endpoint);
}

TEST_F(Maps, SlotOfANewOwnerBeginsAtZero) {
  const auto maps = open();
  const auto target = maps->claim_target(1, 100, 1, kNow, Duration::zero());
  const auto endpoint = maps->claim_endpoint(1, *target, 80, IPPROTO_TCP, kNow, Duration::zero());
  headgate_endpoint_state state{};
  state.in_flight = 9;
  headgate_target_state target_state{};
  target_state.waiting_started = 9;
  headgate_counters counted{};
  counted.offered = 9;
  const std::uint32_t of_first_cpu = *endpoint;
  headgate_model model{};
  model.bytes = 8;
  ASSERT_EQ(::bpf_map_update_elem(maps->fd("headgate_states"), &*endpoint, &state, 0), 0);
  ASSERT_EQ(::bpf_map_update_elem(maps->fd("headgate_target_states"), &*target, &target_state, 0),
            0);
  ASSERT_EQ(::bpf_map_update_elem(maps->fd("headgate_counts"), &of_first_cpu, &counted, 0), 0);
  maps->store_model(*target, model);
  ASSERT_TRUE(maps->read_all_states());
  EXPECT_EQ(maps->endpoint_state(*endpoint).in_flight, 9U);
  EXPECT_EQ(maps->counters(*endpoint).offered, 9U);
  EXPECT_EQ(maps->offered(*endpoint), 9U);
  EXPECT_TRUE(maps->model(*target));
  maps->release_endpoint(*endpoint, kNow);
  maps->release_target(*target, kNow);
  EXPECT_EQ(*maps->claim_target(2, 200, 1, kNow, Duration::zero()), *target);
  EXPECT_EQ(*maps->claim_endpoint(2, *target, 80, IPPROTO_TCP, kNow, Duration::zero()), *endpoint);
  ASSERT_TRUE(maps->read_all_states());
  EXPECT_EQ(maps->endpoint_state(*endpoint).in_flight, 0U);
  EXPECT_EQ(maps->target_state(*target).waiting_started, 0U);
  EXPECT_EQ(maps->counters(*endpoint).offered, 0U);
  EXPECT_FALSE(maps->model(*target));
}

TEST_F(Maps, ReloadClaimsTwiceAndTheLastReleaseFrees) {
  const auto maps = open();
  const auto old_slot = maps->claim_target(1, 100, 1, kNow, kQuarantine);
  const auto new_slot = maps->claim_target(1, 100, 1, kNow, kQuarantine);
  EXPECT_EQ(*old_slot, *new_slot);
  headgate_target_policy lease{};
  lease.valid_until_ns = 77;
  maps->store_target(*old_slot, lease);
  maps->release_target(*old_slot, kNow);
  EXPECT_EQ(maps->target_policy(*old_slot).valid_until_ns, 77U);
  maps->release_target(*old_slot, kNow);
  EXPECT_EQ(maps->target_policy(*old_slot).valid_until_ns, 0U);
}

TEST_F(Maps, ReleaseUnclaimedFreesWhatADeadAgentLeft) {
  const headgate_endpoint_key stale_flow{1, 80, IPPROTO_TCP, 0, {}};
  const headgate_endpoint_key live_flow{2, 80, IPPROTO_TCP, 0, {}};
  auto maps = open();
  const auto gone = maps->claim_target(1, 100, 1, kNow, kQuarantine);
  const auto gone_endpoint = maps->claim_endpoint(1, *gone, 80, IPPROTO_TCP, kNow, kQuarantine);
  const auto kept = maps->claim_target(2, 200, 2, kNow, kQuarantine);
  const auto kept_endpoint = maps->claim_endpoint(2, *kept, 80, IPPROTO_TCP, kNow, kQuarantine);
  ASSERT_TRUE(maps->map_flow(stale_flow, {*gone_endpoint, 0}));
  ASSERT_TRUE(maps->map_flow(live_flow, {*kept_endpoint, 0}));
  headgate_endpoint_policy policy{};
  policy.admit_q32 = 5;
  maps->store(*gone_endpoint, policy);
  maps->store(*kept_endpoint, policy);
  maps.reset();
  maps = open();
  ASSERT_EQ(*maps->claim_target(2, 200, 2, kNow, kQuarantine), *kept);
  ASSERT_EQ(*maps->claim_endpoint(2, *kept, 80, IPPROTO_TCP, kNow, kQuarantine), *kept_endpoint);
  ASSERT_TRUE(maps->map_flow(live_flow, {*kept_endpoint, 0}));
  EXPECT_EQ(maps->release_unclaimed(kNow), 3U);  // a flow, an endpoint, a target
  EXPECT_EQ(maps->release_unclaimed(kNow), 0U);
  EXPECT_EQ(maps->endpoint_policy(*gone_endpoint).admit_q32, 0U);
  EXPECT_EQ(maps->endpoint_policy(*kept_endpoint).admit_q32, 5U);
  const auto flows = maps->flows();
  ASSERT_EQ(flows.size(), 1U);
  EXPECT_EQ(flows[0].first.netns_id, 2U);
}

TEST_F(Maps, FullTablesAreAnErrorThatSaysSo) {
  const auto maps = open();
  for (std::uint64_t i = 0; i < HEADGATE_MAX_TARGETS; ++i) {
    ASSERT_TRUE(maps->claim_target(1, i + 1, 1, kNow, kQuarantine));
  }
  const auto more = maps->claim_target(2, 1, 1, kNow, kQuarantine);
  ASSERT_FALSE(more);
  EXPECT_THAT(more.error().message, HasSubstr("1024"));
}

// ------------------------------------------------------------------------------- exemptions

TEST_F(Maps, ExemptionsAreReplacedAlsoThoseOfTheAgentBefore) {
  const auto kind_of = [](const KernelMaps& maps, const std::string& text) {
    const IpPrefix prefix = *parse_prefix(text);
    headgate_exempt_key key{32 + prefix.bits, 3, {}};
    std::memcpy(key.address, prefix.address.bytes.data(), sizeof(key.address));
    std::uint32_t kind = 0;
    return ::bpf_map_lookup_elem(maps.fd("headgate_exempt"), &key, &kind) == 0 ? kind : 0;
  };
  auto maps = open();
  ASSERT_TRUE(maps->set_exempt(3, {{*parse_prefix("10.0.0.1"), HEADGATE_EXEMPT_KIND_NODE},
                                   {*parse_prefix("10.0.0.2"), HEADGATE_EXEMPT_KIND_SOURCE},
                                   {*parse_prefix("10.0.0.3"), HEADGATE_EXEMPT_KIND_NODE}}));
  ASSERT_TRUE(maps->set_exempt(4, {{*parse_prefix("10.0.0.9"), HEADGATE_EXEMPT_KIND_NODE}}));
  maps.reset();
  maps = open();
  // the kind of .1 and .2 has changed meanwhile, .3 is gone
  ASSERT_TRUE(maps->set_exempt(3, {{*parse_prefix("10.0.0.1"), HEADGATE_EXEMPT_KIND_SOURCE},
                                   {*parse_prefix("10.0.0.2"), HEADGATE_EXEMPT_KIND_NODE}}));
  EXPECT_EQ(kind_of(*maps, "10.0.0.1"), HEADGATE_EXEMPT_KIND_SOURCE);
  EXPECT_EQ(kind_of(*maps, "10.0.0.2"), HEADGATE_EXEMPT_KIND_NODE);
  EXPECT_EQ(kind_of(*maps, "10.0.0.3"), 0U);
  ASSERT_TRUE(maps->set_exempt(3, {}));
  EXPECT_EQ(kind_of(*maps, "10.0.0.1"), 0U);
}

// ------------------------------------------------------------------------------- requests

/// Endpoint slot that a path of port 9 meets; 0 = none.
std::uint32_t route_of(const KernelMaps& maps, const std::string& path) {
  headgate_route_key key = route_key(9, path);
  headgate_route route{};
  return ::bpf_map_lookup_elem(maps.fd("headgate_routes"), &key, &route) == 0 ? route.endpoint : 0;
}

TEST_F(Maps, ALongestPathEndsAtABorderOfSegments) {
  const auto maps = open();
  ASSERT_TRUE(maps->set_requests(9, headgate_request_port{},
                                 {{{route_key(9, "/v1/traces"), {1, 0}},
                                   {route_key(9, "/v1"), {2, 0}},
                                   {route_key(8, "/"), {3, 0}}},
                                  {}}));
  EXPECT_EQ(route_of(*maps, "/v1/traces"), 1U);
  EXPECT_EQ(route_of(*maps, "/v1/traces/x"), 1U);
  EXPECT_EQ(route_of(*maps, "/v1/tracesx"), 2U);
  EXPECT_EQ(route_of(*maps, "/v1"), 2U);
  EXPECT_EQ(route_of(*maps, "/v10"), 0U) << "the root of another port is no route of this one";
  EXPECT_EQ(route_of(*maps, "/"), 0U);
  ASSERT_TRUE(maps->set_requests(9, headgate_request_port{}, {{{route_key(9, "/"), {4, 0}}}, {}}));
  EXPECT_EQ(route_of(*maps, "/v1/traces"), 4U) << "those of before are gone";
  headgate_route_key other = route_key(8, "/x");
  headgate_route route{};
  EXPECT_EQ(::bpf_map_lookup_elem(maps->fd("headgate_routes"), &other, &route), 0);
}

/// What the kernel compares of port 9.
std::uint32_t generation_of(const KernelMaps& maps) {
  const std::uint32_t port = 9;
  headgate_request_port rules{};
  EXPECT_EQ(::bpf_map_lookup_elem(maps.fd("headgate_request_ports"), &port, &rules), 0);
  return rules.generation & 0xffU;
}

/// E10: after each reload every call on a live connection was let through, because its path had
/// been looked up under another generation.
TEST_F(Maps, AGenerationEndsWithTheRoutesAndNotWithAReload) {
  const auto maps = open();
  const auto set = [&](std::uint32_t generation, const RequestRoutes& routes,
                       std::uint32_t flags = 0) {
    headgate_request_port rules{};
    rules.generation = generation;
    rules.flags = flags;
    ASSERT_TRUE(maps->set_requests(9, rules, routes));
  };
  headgate_method_key method{};
  method.port = 9;
  method.bytes = 4;
  const RequestRoutes routes{{{route_key(9, "/a"), {1, 0}}}, {{method, {2, 0}}}};
  set(5, routes);
  EXPECT_EQ(generation_of(*maps), 5U);
  set(6, routes, HEADGATE_REQUESTS_REFUSE);
  EXPECT_EQ(generation_of(*maps), 5U) << "a reload, or observe to enforce";
  set(7, {routes.paths, {{method, {2, HEADGATE_ROUTE_UNARY}}}});
  EXPECT_EQ(generation_of(*maps), 7U) << "a method is another";
  set(8, {routes.paths, {}});
  EXPECT_EQ(generation_of(*maps), 8U) << "a method is gone";
  set(9, {{{route_key(9, "/a"), {1, 0}}, {route_key(9, "/b"), {1, 0}}}, {}});
  EXPECT_EQ(generation_of(*maps), 9U) << "a path is new";
  set(9 + 256, {{{route_key(9, "/a"), {3, 0}}, {route_key(9, "/b"), {1, 0}}}, {}});
  EXPECT_EQ(generation_of(*maps), 10U) << "a path leads elsewhere, and the octet must differ";
}

TEST_F(Maps, RequestsEndWithTheirPort) {
  auto maps = open();
  const auto target = maps->claim_target(1, 100, 1, kNow, kQuarantine);
  const auto claim = [&](std::uint64_t route) {
    return *maps->claim_endpoint(1, *target, 80, IPPROTO_TCP, kNow, kQuarantine, route);
  };
  const std::uint32_t port = claim(0);
  const std::uint32_t route = claim(7);
  EXPECT_NE(port, route);
  EXPECT_NE(route, claim(8));
  maps.reset();
  maps = open();
  EXPECT_EQ(route, claim(7)) << "a route finds its slot again after a restart";
  EXPECT_EQ(port, claim(0));
  headgate_method_key method{};
  method.port = port;
  method.bytes = 4;
  ASSERT_TRUE(maps->set_requests(port, headgate_request_port{},
                                 {{{route_key(port, "/a"), {route, 0}}}, {{method, {route, 0}}}}));
  const headgate_unknown_key unknown{port, HEADGATE_UNKNOWN_TLS};
  const std::uint64_t count = 5;
  ASSERT_EQ(::bpf_map_update_elem(maps->fd("headgate_unknowns"), &unknown, &count, 0), 0);
  EXPECT_EQ(maps->unknowns(port)[HEADGATE_UNKNOWN_TLS], 5U);
  EXPECT_EQ(maps->unknowns(port)[HEADGATE_UNKNOWN_OLD], 0U);

  maps->release_endpoint(port, kNow);
  headgate_request_port rules{};
  headgate_route found{};
  headgate_route_key key = route_key(port, "/a");
  EXPECT_NE(::bpf_map_lookup_elem(maps->fd("headgate_request_ports"), &port, &rules), 0);
  EXPECT_NE(::bpf_map_lookup_elem(maps->fd("headgate_routes"), &key, &found), 0);
  EXPECT_NE(::bpf_map_lookup_elem(maps->fd("headgate_methods"), &method, &found), 0);
  EXPECT_EQ(maps->unknowns(port)[HEADGATE_UNKNOWN_TLS], 0U) << "the next owner begins at none";
}

}  // namespace
}  // namespace headgate
