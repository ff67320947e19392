// SPDX-License-Identifier: Apache-2.0
// What a frame costs in front of the socket layer: BPF_PROG_TEST_RUN of the XDP and tc programs,
// least of many short rounds, beside programs that only pass, and beside xdp-filter's own drop
// where Debian's package xdp-tools is installed. All cases in turn, so that each meets the same
// machine.
//
// early_bench [FILTER.o]      the object of xdp-filter (default: xdpfilt_alw_all.o of the package)
// Exit: 0 within the bars, 1 above one of them or on an error.
#include <linux/bpf.h>
#include <linux/pkt_cls.h>
#include <netinet/in.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include "headgate/units.h"

#include "agent/dataplane/kernel_maps.h"
#include "tests/bench/must.h"
#include "tests/kernel/bpf_object.h"
#include "tests/support/frames.h"

namespace headgate {
namespace {

constexpr std::uint32_t kNetns = 4242;
constexpr std::uint16_t kPort = 4317;
constexpr int kRounds = 200;
constexpr int kRepeat = 5000;

double run(int program_fd, const std::vector<std::uint8_t>& frame, int expected) {
  std::array<std::uint8_t, 4096> out{};
  LIBBPF_OPTS(bpf_test_run_opts, options, .data_in = frame.data(), .data_out = out.data(),
              .data_size_in = static_cast<__u32>(frame.size()),
              .data_size_out = static_cast<__u32>(out.size()), .repeat = kRepeat);
  if (::bpf_prog_test_run_opts(program_fd, &options) != 0) {
    die("BPF_PROG_TEST_RUN (needs root)");
  }
  if (static_cast<int>(options.retval) != expected) {
    die("a program said " + std::to_string(options.retval) + ", not " + std::to_string(expected));
  }
  return options.duration;
}

UniqueFd trivial(bpf_prog_type type, int verdict) {
  const bpf_insn code[] = {{BPF_ALU64 | BPF_MOV | BPF_K, 0, 0, 0, verdict},
                           {BPF_JMP | BPF_EXIT, 0, 0, 0, 0}};
  UniqueFd fd(::bpf_prog_load(type, "trivial", "GPL", code, 2, nullptr));
  if (!fd) {
    die("the trivial program");
  }
  return fd;
}

struct Case {
  std::string name;
  int fd = -1;
  std::vector<std::uint8_t> frame;
  int expected = 0;
  std::function<void()> arrange;
  const char* against = "";  ///< name of another case
  double bar = 0;            ///< times that; 0 = reported only
  double least_ns = 1e9;
};

int bench(std::uint32_t filter_id) {
  auto maps = must(KernelMaps::open(PinDirectory::prepare("")));
  const auto xdp = must(test::load_by_name("headgate_xdp_native_atomic", kNetns, maps.get()));
  const auto tc = must(test::load_by_name("headgate_tc_egress_atomic", kNetns, maps.get()));
  const UniqueFd xdp_pass = trivial(BPF_PROG_TYPE_XDP, XDP_PASS);
  const UniqueFd tc_pass = trivial(BPF_PROG_TYPE_SCHED_CLS, TC_ACT_UNSPEC);
  const auto now = std::chrono::steady_clock::now();
  const std::uint32_t target = must(maps->claim_target(1, 1, kNetns, now, {}));
  const std::uint32_t slot = must(maps->claim_endpoint(1, target, kPort, IPPROTO_TCP, now, {}));
  // As of a target on the host: by address.
  headgate_endpoint_key key{kNetns, kPort, IPPROTO_TCP, 0, {}};
  if (!maps->map_flow(key, {slot, HEADGATE_REF_BY_ADDRESS})) {
    die("map_flow");
  }
  key.address[2] = htonl(0xffff);
  key.address[3] = htonl(0x0a000001);  // where make_frame's go to
  if (!maps->map_flow(key, {slot, 0})) {
    die("map_flow");
  }
  const auto publish = [&](std::uint64_t flags, headgate_action action, double admit) {
    headgate_target_policy of_target{};
    of_target.valid_until_ns = ~std::uint64_t{0} >> 1;
    headgate_endpoint_policy policy{};
    policy.flags = flags;
    policy.target = target;
    policy.admit_q32 = Probability::admitting(admit).q32();
    for (unsigned reason = 1; reason < HEADGATE_REASON_COUNT; ++reason) {
      policy.actions |= static_cast<std::uint64_t>(action) << (8 * reason);
    }
    maps->store_target(target, of_target);
    maps->store(slot, policy);
    // Under another key nothing is found of what was remembered of the flow.
    const std::uint32_t zero = 0;
    headgate_control control{};
    (void)::bpf_map_lookup_elem(maps->fd("headgate_control"), &zero, &control);
    ++control.hash_key[0];
    (void)::bpf_map_update_elem(maps->fd("headgate_control"), &zero, &control, 0);
  };
  constexpr std::uint64_t kEarly = HEADGATE_JUDGE_EARLY;
  const auto idle = [&] { publish(kEarly, HEADGATE_ACTION_RESET, 1); };
  const auto admitting = [&] {
    publish(kEarly | HEADGATE_ARM_SHARE | HEADGATE_TICKETS_SETTLED, HEADGATE_ACTION_RESET, 1);
  };
  const auto dropping = [&] { publish(kEarly | HEADGATE_ARM_SHARE, HEADGATE_ACTION_DROP, 0); };
  const auto syn = make_frame(test::FrameSpec{});
  const auto ack = make_frame(test::FrameSpec{.tcp_flags = 0x10, .payload_bytes = 100});
  const auto other = make_frame(test::FrameSpec{.destination_port = 80});
  const UniqueFd filter(filter_id != 0 ? ::bpf_prog_get_fd_by_id(filter_id) : -1);
  const auto nothing = [] {};
  std::vector<Case> cases = {
      {"XDP_PASS and nothing else", xdp_pass.get(), syn, XDP_PASS, nothing},
      {"xdp: an established connection", xdp.fd, ack, XDP_PASS, idle, "XDP_PASS and nothing else",
       2},
      {"xdp: SYN to another port", xdp.fd, other, XDP_PASS, idle, "XDP_PASS and nothing else"},
      {"xdp: SYN, gate idle", xdp.fd, syn, XDP_PASS, idle, "XDP_PASS and nothing else"},
      {"xdp: SYN admitted, its ticket found", xdp.fd, syn, XDP_PASS, admitting,
       "XDP_PASS and nothing else"},
      {"tc: passes and nothing else", tc_pass.get(), syn, TC_ACT_UNSPEC, nothing},
      {"tc: an established connection", tc.fd, ack, TC_ACT_UNSPEC, idle,
       "tc: passes and nothing else"},
      {"tc: SYN, gate idle", tc.fd, syn, TC_ACT_UNSPEC, idle, "tc: passes and nothing else"},
      {"tc: SYN dropped, sent again", tc.fd, syn, TC_ACT_SHOT, dropping,
       "tc: passes and nothing else"},
  };
  if (filter) {
    cases.push_back({"xdp-filter: drop", filter.get(), syn, XDP_DROP, nothing});
    cases.push_back({"xdp-filter: pass", filter.get(), other, XDP_PASS, nothing});
  }
  cases.push_back({"xdp: SYN dropped, sent again", xdp.fd, syn, XDP_DROP, dropping,
                   filter ? "xdp-filter: drop" : "XDP_PASS and nothing else", filter ? 1.0 : 0});
  for (int round = 0; round < kRounds; ++round) {
    for (Case& each : cases) {
      each.arrange();
      each.least_ns = std::min(each.least_ns, run(each.fd, each.frame, each.expected));
    }
  }
  bool within = true;
  for (const Case& each : cases) {
    std::printf("%-36s %6.0f ns", each.name.c_str(), each.least_ns);
    const auto base = std::find_if(cases.begin(), cases.end(),
                                   [&](const Case& c) { return c.name == each.against; });
    if (base != cases.end()) {
      const double times = each.least_ns / base->least_ns;
      std::printf("  %5.2fx of '%s'", times, each.against);
      if (each.bar > 0) {
        std::printf("  (bar %.1fx%s)", each.bar, times <= each.bar ? "" : ", EXCEEDED");
        within = within && times <= each.bar;
      }
    }
    std::printf("\n");
  }
  if (!filter) {
    std::printf("no program of xdp-filter's was named: nothing to compare a drop with\n");
  }
  return within ? 0 : 1;
}

}  // namespace
}  // namespace headgate

int main(int argc, char** argv) {
  return headgate::bench(argc > 1 ? static_cast<std::uint32_t>(std::atoi(argv[1])) : 0);  // NOLINT
}
