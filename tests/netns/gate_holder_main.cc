// SPDX-License-Identifier: Apache-2.0
// The data plane's part of an agent, for tests that kill it: takes the lock, opens or adopts
// everything pinned, shuts the port, and renews the lease until it is killed.
//
// gate_holder PIN_ROOT NETNS_PATH PORT LEASE_MS [UNIFIED_ROOT CGROUP_PATH]
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

#include "agent/hooks/sk_lookup.h"
#include "agent/hooks/sock_ops.h"

namespace headgate {
namespace {

using std::chrono::milliseconds;

constexpr std::uint64_t kOwner = 7;

int fail_with(const std::string& message) {
  std::fprintf(stderr, "gate_holder: %s\n", message.c_str());
  return 1;
}

int hold(int argc, char** argv) {
  const auto port = static_cast<std::uint16_t>(std::atoi(argv[3]));  // NOLINT: from the test
  const milliseconds lease(std::atoi(argv[4]));                      // NOLINT
  const auto now = [] { return Instant(std::chrono::steady_clock::now()); };

  PinDirectory pins = PinDirectory::prepare(argv[1]);
  for (auto locked = pins.try_lock(); !locked || !*locked; locked = pins.try_lock()) {
    if (!locked) {
      return fail_with(locked.error().message);
    }
    std::this_thread::sleep_for(milliseconds(2));
  }
  const UniqueFd netns(::open(argv[2], O_RDONLY | O_CLOEXEC));
  struct stat status {};
  if (!netns || ::fstat(netns.get(), &status) != 0) {
    return fail_with("no namespace");
  }
  const auto inode = static_cast<std::uint32_t>(status.st_ino);
  auto maps = KernelMaps::open(pins);
  if (!maps) {
    return fail_with(maps.error().message);
  }
  const auto target = (*maps)->claim_target(kOwner, kOwner, inode, now(), 2 * lease);
  const auto slot =
      target ? (*maps)->claim_endpoint(kOwner, *target, port, IPPROTO_TCP, now(), 2 * lease)
             : target;
  if (!slot) {
    return fail_with(slot.error().message);
  }
  const auto publish = [&] {
    headgate_target_policy of_target{};
    of_target.valid_until_ns = to_ktime_ns(now() + lease);
    (*maps)->store_target(*target, of_target);
    headgate_endpoint_policy policy{};
    policy.flags = HEADGATE_ARM_SHARE;
    policy.target = *target;
    (*maps)->store(*slot, policy);
  };
  SkLookupHook gate(**maps, pins);
  SockOpsHook connections(**maps, pins, argc > 5 ? argv[5] : "");
  headgate_endpoint_key key{};
  key.netns_id = inode;
  key.port = port;
  key.protocol = IPPROTO_TCP;
  publish();
  if (const auto mapped = (*maps)->map_flow(key, {*slot, 0}); !mapped) {
    return fail_with(mapped.error().message);
  }
  if (const auto held = gate.hold(inode, netns.get()); !held) {
    return fail_with(held.error().message);
  }
  if (argc > 6) {
    if (const auto held = connections.hold(*target, argv[6], inode, false); !held) {
      return fail_with(held.error().message);
    }
  }
  std::printf("%s %u %u\n", (*maps)->adopted() ? "adopted" : "fresh", *target, *slot);
  std::fflush(stdout);
  while (true) {
    publish();
    std::this_thread::sleep_for(lease / 10);
  }
}

}  // namespace
}  // namespace headgate

int main(int argc, char** argv) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  return argc < 5 ? 2 : headgate::hold(argc, argv);
}
