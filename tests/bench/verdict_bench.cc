// SPDX-License-Identifier: Apache-2.0
// What a verdict costs: BPF_PROG_TEST_RUN of the sk_lookup program, least of many short rounds,
// beside a program that returns SK_PASS, all cases in turn so that each meets the same machine.
//
// verdict_bench [--variant atomic|locked]
// Exit: 0 within the bars, 1 above one of them or on an error.
#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <bpf/bpf.h>

#include "headgate/units.h"

#include "agent/dataplane/kernel_maps.h"
#include "bpf/lib/flows.h"
#include "tests/bench/must.h"
#include "tests/kernel/bpf_object.h"

namespace headgate {
namespace {

constexpr std::uint32_t kNetns = 4242;
constexpr std::uint16_t kPort = 4317;
constexpr int kRounds = 200;
constexpr int kRepeat = 5000;

struct Case {
  const char* name;
  double bar = 0;  ///< times the trivial program; 0 = reported only
  std::function<void()> arrange;
  std::uint16_t port = kPort;
  double least_ns = 1e9;
};

double run(int program_fd, std::uint16_t port) {
  bpf_sk_lookup context{};
  context.family = AF_INET;
  context.protocol = IPPROTO_TCP;
  context.local_port = port;
  context.remote_port = htons(1000);
  context.local_ip4 = htonl(0x0a000001);
  context.remote_ip4 = htonl(0x0a000002);
  LIBBPF_OPTS(bpf_test_run_opts, options, .ctx_in = &context, .ctx_size_in = sizeof(context),
              .repeat = kRepeat);
  if (::bpf_prog_test_run_opts(program_fd, &options) != 0) {
    die("BPF_PROG_TEST_RUN (needs root)");
  }
  return options.duration;
}

int bench(const std::string& program_name) {
  auto maps = must(KernelMaps::open(PinDirectory::prepare("")));
  const auto gate = must(test::load_by_name(program_name, kNetns, maps.get()));
  bpf_prog_load_opts load{};
  load.sz = sizeof(load);
  load.expected_attach_type = BPF_SK_LOOKUP;
  const bpf_insn code[] = {{BPF_ALU64 | BPF_MOV | BPF_K, 0, 0, 0, SK_PASS},
                           {BPF_JMP | BPF_EXIT, 0, 0, 0, 0}};
  const UniqueFd trivial(
      ::bpf_prog_load(BPF_PROG_TYPE_SK_LOOKUP, "trivial", "GPL", code, 2, &load));
  if (!trivial) {
    die("the trivial program");
  }
  const auto now = std::chrono::steady_clock::now();
  const std::uint32_t target = must(maps->claim_target(1, 1, kNetns, now, {}));
  const std::uint32_t slot = must(maps->claim_endpoint(1, target, kPort, IPPROTO_TCP, now, {}));
  if (!maps->map_flow({kNetns, kPort, IPPROTO_TCP, 0, {}}, {slot, 0})) {
    die("map_flow");
  }
  // as full as on a node with 250 pods of two ports, 32 exempt networks each
  for (std::uint32_t i = 1; i <= 500; ++i) {
    (void)maps->map_flow(
        {kNetns + i / 2, static_cast<std::uint16_t>(kPort + i % 2), IPPROTO_TCP, 0, {}}, {slot, 0});
  }
  std::vector<ExemptSource> sources;
  for (int i = 0; i < 32; ++i) {
    sources.push_back({*parse_prefix("172.16." + std::to_string(i) + ".0/24")});
  }
  (void)maps->set_exempt(target, sources);
  const UniqueFd netns(::open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC));
  const auto pit = must(Pit::open(netns.get()));
  if (!maps->set_pit(kNetns, AF_INET, pit->ipv4_fd())) {
    die("set_pit");
  }
  const auto publish = [&](std::uint64_t flags, headgate_action action, double admit) {
    headgate_target_policy of_target{};
    of_target.valid_until_ns = ~std::uint64_t{0} >> 1;
    of_target.defer_deadline_ns = ~std::uint64_t{0} >> 2;
    of_target.waiting_max = 1000;
    of_target.bucket_depth_max_ns = 1ULL << 60;
    of_target.bucket_charge_max_ns = 1000;
    headgate_endpoint_policy policy{};
    policy.flags = flags;
    policy.waiting_max = policy.waiting_max_other = 1000;
    policy.target = target;
    policy.defer_deadline_ns = ~std::uint64_t{0} >> 2;
    policy.admit_q32 = Probability::admitting(admit).q32();
    policy.charge_request_ns = 1000;
    policy.depth_ns = 1ULL << 60;
    for (unsigned reason = 1; reason < HEADGATE_REASON_COUNT; ++reason) {
      policy.actions |= static_cast<std::uint64_t>(action) << (8 * reason);
    }
    maps->store_target(target, of_target);
    maps->store(slot, policy);
    headgate_flow_key key{kNetns, kPort, 1000, {}, {}};
    key.local_address[2] = key.remote_address[2] = htonl(0xffff);
    key.local_address[3] = htonl(0x0a000001);
    key.remote_address[3] = htonl(0x0a000002);
    const std::uint32_t zero = 0;
    headgate_control control{};
    (void)::bpf_map_lookup_elem(maps->fd("headgate_control"), &zero, &control);
    const std::uint32_t at = headgate_flow_set_of(headgate_flow_hash(control.hash_key, &key));
    const headgate_flow_set forgotten{};
    (void)::bpf_map_update_elem(maps->fd("headgate_flows"), &at, &forgotten, 0);
    (void)::bpf_map_delete_elem(maps->fd("headgate_ages"), &key);
  };
  constexpr auto kReset = HEADGATE_ACTION_RESET;
  constexpr auto kDefer = HEADGATE_ACTION_DEFER;
  constexpr std::uint64_t kBucket = HEADGATE_ARM_SHARE | HEADGATE_ARM_BUDGET;
  std::vector<Case> cases = {
      {"another port", 0, [&] { publish(0, kReset, 1); }, kPort + 7},
      {"idle", 3, [&] { publish(0, kReset, 1); }},
      {"idle, may defer", 0, [&] { publish(HEADGATE_MAY_DEFER, kDefer, 1); }},
      {"reset", 5.5, [&] { publish(HEADGATE_ARM_SHARE, kReset, 0); }},
      {"reset, node exempt", 0,
       [&] { publish(HEADGATE_ARM_SHARE | HEADGATE_EXEMPT_NODE, kReset, 0); }},
      {"reset, 32 networks exempt", 0,
       [&] { publish(HEADGATE_ARM_SHARE | HEADGATE_EXEMPT_SOURCES, kReset, 0); }},
      // the same flow over and over: every second try finds the ticket of the one before
      {"bucket: ticket written, then used", 0, [&] { publish(kBucket, kReset, 1); }},
      {"bucket: ticket found", 0, [&] { publish(kBucket | HEADGATE_TICKETS_SETTLED, kReset, 1); }},
      {"defer (a later try)", 0,
       [&] { publish(HEADGATE_ARM_SHARE | HEADGATE_MAY_DEFER, kDefer, 0); }},
  };
  double trivial_ns = 1e9;
  for (int round = 0; round < kRounds; ++round) {
    trivial_ns = std::min(trivial_ns, run(trivial.get(), kPort));
    for (Case& each : cases) {
      each.arrange();
      each.least_ns = std::min(each.least_ns, run(gate.fd, each.port));
    }
  }
  std::printf("%s, least of %d rounds of %d\n", program_name.c_str(), kRounds, kRepeat);
  std::printf("%-36s %6.0f ns\n", "trivial SK_PASS", trivial_ns);
  bool within = true;
  for (const Case& each : cases) {
    const double times = each.least_ns / trivial_ns;
    std::printf("%-36s %6.0f ns  %5.2fx", each.name, each.least_ns, times);
    if (each.bar > 0) {
      std::printf("  (bar %.1fx%s)", each.bar, times <= each.bar ? "" : ", EXCEEDED");
      within = within && times <= each.bar;
    }
    std::printf("\n");
  }
  // of a pair the second finds and deletes: at least what a found ticket costs
  const double admitted_ns = 2 * cases[6].least_ns - cases[7].least_ns;
  std::printf("%-36s %6.0f ns  %5.2fx at most, from the two above\n",
              "bucket: admitted with ticket", admitted_ns, admitted_ns / trivial_ns);
  // the variant for old kernels takes the precise clock and a lock: reported only
  return within || program_name == "headgate_sk_lookup_locked" ? 0 : 1;
}

}  // namespace
}  // namespace headgate

int main(int argc, char** argv) {
  const bool locked = argc == 3 && std::string(argv[2]) == "locked";
  return headgate::bench(locked ? "headgate_sk_lookup_locked" : "headgate_sk_lookup_atomic");
}
