// SPDX-License-Identifier: Apache-2.0
// The verifier of this kernel takes every program. Runs in the VMs of the oldest and of the common
// kernel too: no namespaces, no agent.
#include <linux/bpf.h>
#include <linux/btf.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <set>
#include <string>
#include <thread>

#include <bpf/bpf.h>
#include <gtest/gtest.h>

#include "agent/dataplane/programs.h"
#include "tests/kernel/bpf_object.h"

namespace headgate {
namespace {

using test::load_by_name;

constexpr std::array kPrograms = {
    Program::kSkLookup,     Program::kSockOps,   Program::kIngress,
    Program::kEgress,       Program::kTcEgress,  Program::kTcIngress,
    Program::kNodeConnects, Program::kXdpNative, Program::kXdpGeneric};

struct Kernel {
  int major = 0;
  int minor = 0;
  std::string release;
  [[nodiscard]] bool has_atomics() const { return major > 5 || (major == 5 && minor >= 12); }
};

Kernel this_kernel() {
  Kernel out;
  utsname name{};
  ::uname(&name);
  out.release = static_cast<const char*>(name.release);
  std::sscanf(out.release.c_str(), "%d.%d", &out.major, &out.minor);  // NOLINT: two numbers
  return out;
}

bool required() {
  const char* value = std::getenv("HEADGATE_REQUIRE_KERNEL");  // NOLINT: one thread
  return value != nullptr && std::string(value) == "1";
}

class Load : public ::testing::Test {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) {
      if (required()) {
        FAIL() << "HEADGATE_REQUIRE_KERNEL: needs root";
      }
      GTEST_SKIP() << "needs root";
    }
  }
};

/// bpf_loop and the kernel's BTF; where they are missing, the others have loaded all the same.
TEST_F(Load, ProgramsOnLiveConnectionsLoadFromLinux5_17On) {
  const Kernel kernel = this_kernel();
  auto maps = KernelMaps::open(PinDirectory::prepare(""));
  ASSERT_TRUE(maps) << maps.error().message;
  const bool can = kernel.major > 5 || (kernel.major == 5 && kernel.minor >= 17);
  for (const Program program :
       {Program::kStreamEntry, Program::kStreamHttp1, Program::kStreamHttp2}) {
    const auto loaded = load_program(program, {}, **maps);
    if (can) {
      EXPECT_TRUE(loaded) << static_cast<int>(program) << ": " << loaded.error().message;
    } else if (program != Program::kStreamEntry) {
      EXPECT_FALSE(loaded) << static_cast<int>(program);
    }
  }
}

TEST_F(Load, EveryProgramLoadsInTheVariantThatTheAgentChooses) {
  const Kernel kernel = this_kernel();
  auto maps = KernelMaps::open(PinDirectory::prepare(""));
  ASSERT_TRUE(maps) << maps.error().message;
  for (const Program program : kPrograms) {
    const auto loaded = load_program(program, {4711, 0, /*http2=*/true}, **maps);
    ASSERT_TRUE(loaded) << static_cast<int>(program) << ": " << loaded.error().message;
    EXPECT_GT(loaded->id, 0U);
    std::cout << "kernel " << kernel.release << ", program " << static_cast<int>(program) << ": "
              << loaded->variant << "\n";
    if (program == Program::kSkLookup || program == Program::kSockOps) {
      EXPECT_EQ(loaded->variant, kernel.has_atomics() ? "atomic" : "spin_lock");
    }
  }
}

/// Case F30: also the variant that is not chosen here.
TEST_F(Load, BothVariantsLoadWhereTheKernelHasAtomics) {
  for (const std::string name :
       {"headgate_sk_lookup", "headgate_sock_ops", "headgate_tc_egress", "headgate_tc_ingress",
        "headgate_xdp_native", "headgate_xdp_generic"}) {
    const auto locked = load_by_name(name + "_locked", 4711, nullptr);
    EXPECT_TRUE(locked) << locked.error().message;
    const auto atomic = load_by_name(name + "_atomic", 4711, nullptr);
    EXPECT_EQ(atomic.has_value(), this_kernel().has_atomics()) << name;
  }
}

/// Loaded apart from the others: where it is refused, only requests of HTTP/2 go unseen.
TEST_F(Load, StageHttp2LoadsWhereTheKernelHasBpfLoop) {
  const Kernel kernel = this_kernel();
  const bool has_bpf_loop = kernel.major > 5 || (kernel.major == 5 && kernel.minor >= 17);
  const auto loaded = load_by_name("headgate_stream_http2", 4711, nullptr);
  EXPECT_EQ(loaded.has_value(), has_bpf_loop)
      << (loaded ? "loads below 5.17" : loaded.error().message);
}

TEST_F(Load, CountersAndStatesAreReadWhateverTheKernel) {
  auto maps = KernelMaps::open(PinDirectory::prepare(""));
  ASSERT_TRUE(maps) << maps.error().message;
  const Instant now = std::chrono::steady_clock::now();
  const auto target = (*maps)->claim_target(1, 2, 3, now, {});
  ASSERT_TRUE(target) << target.error().message;
  const auto endpoint = (*maps)->claim_endpoint(1, *target, 4317, 6, now, {});
  ASSERT_TRUE(endpoint) << endpoint.error().message;
  const auto cpus = static_cast<std::uint32_t>(libbpf_num_possible_cpus());
  headgate_counters counted{};
  counted.offered = 5;
  for (std::uint32_t cpu = 0; cpu < cpus; ++cpu) {
    const std::uint32_t at = cpu * HEADGATE_MAX_ENDPOINTS + *endpoint;
    ASSERT_EQ(::bpf_map_update_elem((*maps)->fd("headgate_counts"), &at, &counted, 0), 0);
  }
  headgate_endpoint_state state{};
  state.in_flight = 3;
  ASSERT_EQ(::bpf_map_update_elem((*maps)->fd("headgate_states"), &*endpoint, &state, 0), 0);
  const auto read = (*maps)->read_all_states();
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ((*maps)->endpoint_state(*endpoint).in_flight, 3U);
  EXPECT_EQ((*maps)->counters(*endpoint).offered, 5ULL * cpus);
  EXPECT_EQ((*maps)->offered(*endpoint), 5ULL * cpus);
}

/// Case F23: under lockdown=confidentiality bpf_probe_read*() is forbidden; none of ours calls it.
TEST(Object, CallsNoProbeRead) {
  const std::set<int> forbidden = {BPF_FUNC_probe_read,          BPF_FUNC_probe_read_str,
                                   BPF_FUNC_probe_read_user,     BPF_FUNC_probe_read_kernel,
                                   BPF_FUNC_probe_read_user_str, BPF_FUNC_probe_read_kernel_str};
  const test::SkeletonPtr skeleton(headgate_bpf__open());
  ASSERT_NE(skeleton, nullptr);
  std::set<int> called;
  bpf_program* program = nullptr;
  bpf_object__for_each_program(program, skeleton->obj) {
    const bpf_insn* code = bpf_program__insns(program);
    for (std::size_t i = 0; i < bpf_program__insn_cnt(program); ++i) {
      if (code[i].code == (BPF_JMP | BPF_CALL) && code[i].src_reg == 0) {
        called.insert(code[i].imm);
        EXPECT_EQ(forbidden.count(code[i].imm), 0U)
            << bpf_program__name(program) << ", instruction " << i;
      }
    }
  }
  EXPECT_EQ(called.count(BPF_FUNC_map_lookup_elem), 1U) << "calls are not found at all";
}

/// Case F22, by the object: nothing in it is to be relocated against the BTF of the kernel.
TEST(Object, HasNoCoReRelocations) {
  const std::string_view section = test::object_section(".BTF.ext");
  ASSERT_GE(section.size(), 24U);
  struct {  // struct btf_ext_header, tools/lib/bpf/libbpf_internal.h
    __u16 magic;
    __u8 version, flags;
    __u32 hdr_len, func_info_off, func_info_len, line_info_off, line_info_len, core_relo_off,
        core_relo_len;
  } header{};
  std::memcpy(&header, section.data(), std::min(sizeof(header), section.size()));
  ASSERT_EQ(header.magic, BTF_MAGIC);
  ASSERT_GT(header.func_info_len, 0U);
  if (header.hdr_len >= sizeof(header)) {
    EXPECT_EQ(header.core_relo_len, 0U);
  }
}

/// Case F22, by doing: /sys/kernel/btf is hidden by an empty directory.
TEST_F(Load, NeedsNoBtfOfTheKernel) {
  std::string problem;
  bool hidden = false;
  std::thread([&] {
    if (::unshare(CLONE_NEWNS) != 0 ||
        ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        ::mount("none", "/sys/kernel/btf", "tmpfs", 0, nullptr) != 0) {
      return;
    }
    hidden = ::access("/sys/kernel/btf/vmlinux", F_OK) != 0;
    auto maps = KernelMaps::open(PinDirectory::prepare(""));
    if (!maps) {
      problem = maps.error().message;
      return;
    }
    for (const Program program : kPrograms) {
      if (const auto loaded = load_program(program, {4711, 0, /*http2=*/true}, **maps); !loaded) {
        problem = loaded.error().message;
      }
    }
  }).join();
  if (!hidden && ::access("/sys/kernel/btf/vmlinux", F_OK) != 0) {
    hidden = true;  // this kernel has none: the other tests have shown it
  }
  if (!hidden) {
    const char* required = std::getenv("HEADGATE_REQUIRE_KERNEL");  // NOLINT: nobody calls setenv
    ASSERT_FALSE(required != nullptr && std::string(required) == "1")
        << "could not hide /sys/kernel/btf";
    GTEST_SKIP() << "could not hide /sys/kernel/btf (in a chroot whose / is no mount point?)";
  }
  EXPECT_EQ(problem, "");
}

}  // namespace
}  // namespace headgate
