// SPDX-License-Identifier: Apache-2.0
#include "agent/hooks/requests.h"

#include <linux/bpf.h>
#include <unistd.h>

#include <cerrno>
#include <ctime>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <fmt/format.h>

#include "agent/hooks/cgroup_directory.h"
#include "agent/hooks/remedy.h"
#include "agent/hooks/requests_self_test.h"

namespace headgate {
namespace {

constexpr const char* kLost = "requests on live connections are not seen";

/// What this kernel lacks; empty = nothing that is known.
std::string missing() {
  if (::access("/sys/kernel/btf/vmlinux", R_OK) != 0) {
    return "the kernel has no BTF (CONFIG_DEBUG_INFO_BTF), by which the state of a socket is read";
  }
  if (::libbpf_probe_bpf_helper(BPF_PROG_TYPE_SK_SKB, BPF_FUNC_loop, nullptr) == 0) {
    return "the kernel has no bpf_loop: Linux 5.17 or newer is needed";
  }
  return {};
}

}  // namespace

Result<> RequestsHook::attach() {
  if (sees_) {
    return {};
  }
  if (auto attached = attach_programs(); !attached) {
    failed_ = attached.error();
    ++attach_errors_[failed_.sys_errno];
    return attached;
  }
  failed_ = {};
  sees_ = true;
  generation_ = static_cast<std::uint32_t>(std::time(nullptr));  // not one of the agent before
  if (auto sound = test_request_refusal(maps_, unified_root_); !sound) {
    unsound_ = fmt::format(
        "requests are seen and not refused, because the self-test on a connection of the agent's "
        "own failed: {}; a newer kernel of the same series may be sound",
        sound.error().message);
    return {};
  }
  refuses_ = true;
  return {};
}

Result<> RequestsHook::attach_programs() {
  if (maps_.is_detached()) {
    return tl::unexpected<Error>(no_maps());
  }
  if (unified_root_.empty()) {
    return tl::unexpected<Error>(no_unified(kLost));
  }
  if (!pins_.pinned()) {
    return fail(
        fmt::format("nothing is pinned, and live connections would lose data when this "
                    "agent ended: {}; give --pin-root a directory on a BPF file system",
                    kLost));
  }
  if (const std::string what = missing(); !what.empty()) {
    return tl::unexpected<Error>(Error{fmt::format("{}: {}", what, kLost), EOPNOTSUPP});
  }
  if (auto http1 = set_stage(HEADGATE_STAGE_HTTP1, Program::kStreamHttp1); !http1) {
    return http1;
  }
  if (auto http2 = set_stage(HEADGATE_STAGE_HTTP2, Program::kStreamHttp2); !http2) {
    return http2;
  }
  auto entry = load_program(Program::kStreamEntry, {}, maps_);
  if (!entry) {
    return tl::unexpected<Error>(entry.error());
  }
  // Replaces the one of an agent before, for connections to come. The map holds the program.
  if (::bpf_prog_attach(entry->fd.get(), maps_.fd("headgate_streams"), BPF_SK_SKB_VERDICT, 0) !=
      0) {
    return sys_fail(errno, "attach to headgate_streams");
  }
  program_id_ = entry->id;
  return {};
}

Result<> RequestsHook::set_stage(std::uint32_t stage, Program program) {
  auto loaded = load_program(program, {}, maps_);
  if (!loaded) {
    return tl::unexpected<Error>(loaded.error());
  }
  const int fd = loaded->fd.get();
  if (::bpf_map_update_elem(maps_.fd("headgate_stream_stages"), &stage, &fd, BPF_ANY) != 0) {
    return sys_fail(errno, fmt::format("enter stage {} of the request gate", stage));
  }
  return {};
}

HookStatus RequestsHook::status() const {
  HookStatus out;
  out.hook = "requests";
  out.where = "live connections";
  out.mode = sees_ ? "attached" : "off";
  out.program_id = program_id_;
  out.sys_errno = failed_.sys_errno;
  out.problem = !failed_.message.empty() ? with_remedy(failed_) : unsound_;
  return out;
}

}  // namespace headgate
