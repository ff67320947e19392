// SPDX-License-Identifier: Apache-2.0
#include "agent/dataplane/programs.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <mutex>
#include <system_error>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <fmt/format.h>

#include "agent/base/log.h"
#include "headgate_bpf.skel.h"
#include "headgate_http1_bpf.skel.h"

namespace headgate {
namespace {

struct SkeletonDeleter {
  template <class Skeleton>
  void operator()(Skeleton* skeleton) const {
    Skeleton::destroy(skeleton);
  }
};

/// libbpf's own words go to our log, as debug: what matters comes back as an Error.
int print_libbpf(libbpf_print_level /*level*/, const char* format, va_list args) {
  std::array<char, 2048> line{};
  (void)std::vsnprintf(line.data(), line.size(), format, args);
  std::string text(line.data());
  while (!text.empty() && text.back() == '\n') {
    text.pop_back();
  }
  log::debug("libbpf", {{"text", text}});
  return 0;
}

/// The last lines of a verifier log are the ones that say why.
std::string tail(const std::string& text) {
  constexpr std::size_t kMost = 400;
  return text.size() <= kMost ? text : "..." + text.substr(text.size() - kMost);
}

/// Loads a program of the object that the skeleton holds.
template <class Skeleton>
Result<LoadedProgram> load_variant(const char* name, const char* variant, const Serves& serves,
                                   const KernelMaps& maps) {
  const std::unique_ptr<Skeleton, SkeletonDeleter> skeleton(Skeleton::open());
  if (!skeleton) {
    return sys_fail(errno, "open the BPF object");
  }
  skeleton->rodata->headgate_netns_id = serves.netns_id;
  skeleton->rodata->headgate_target_slot = serves.target;
  skeleton->rodata->headgate_serves_http2 = serves.http2 ? 1 : 0;
  bpf_program* chosen = nullptr;
  bpf_program* program = nullptr;
  bpf_object__for_each_program(program, skeleton->obj) {
    const bool wanted = std::string_view(bpf_program__name(program)) == name;
    bpf_program__set_autoload(program, wanted);
    chosen = wanted ? program : chosen;
  }
  std::string log_text(64UL * 1024, '\0');
  bpf_program__set_log_buf(chosen, log_text.data(), log_text.size());
  bpf_program__set_log_level(chosen, 0);
  bpf_map* map = nullptr;
  bpf_object__for_each_map(map, skeleton->obj) {
    const int fd = maps.fd(bpf_map__name(map));
    if (fd >= 0) {
      if (const int err = bpf_map__reuse_fd(map, fd); err != 0) {
        return sys_fail(-err, fmt::format("reuse map {}", bpf_map__name(map)));
      }
    }
  }
  if (const int err = Skeleton::load(skeleton.get()); err != 0) {
    return sys_fail(-err, fmt::format("load program {}: {}", name, tail(log_text.c_str())));
  }
  LoadedProgram out;
  out.fd = UniqueFd(::fcntl(bpf_program__fd(chosen), F_DUPFD_CLOEXEC, 0));
  out.variant = variant;
  bpf_prog_info info{};
  __u32 bytes = sizeof(info);
  if (::bpf_obj_get_info_by_fd(out.fd.get(), &info, &bytes) == 0) {
    out.id = info.id;
  }
  return out;
}

}  // namespace

std::string program_name(std::uint32_t id) {
  const UniqueFd fd(::bpf_prog_get_fd_by_id(id));
  bpf_prog_info info{};
  __u32 bytes = sizeof(info);
  return fd && ::bpf_obj_get_info_by_fd(fd.get(), &info, &bytes) == 0 ? info.name : std::string();
}

void route_libbpf_log() {
  static std::once_flag once;
  std::call_once(once, [] { libbpf_set_print(print_libbpf); });
}

std::vector<AttachedProgram> sk_lookup_programs(int netns_fd) {
  std::array<__u32, 64> ids{};  // the kernel allows 64 (net_namespace.c, netns_bpf_max_progs)
  __u32 count = ids.size();
  __u32 flags = 0;
  std::vector<AttachedProgram> out;
  if (::bpf_prog_query(netns_fd, BPF_SK_LOOKUP, 0, &flags, ids.data(), &count) == 0) {
    for (std::size_t i = 0; i < count && i < ids.size(); ++i) {
      out.push_back({ids[i], program_name(ids[i])});
    }
  }
  return out;
}

Result<LoadedProgram> load_program(Program program, const Serves& serves, const KernelMaps& maps) {
  route_libbpf_log();
  struct Variants {
    const char* atomic = nullptr;
    const char* locked = nullptr;  ///< nullptr: one program does for all kernels
  };
  Variants names;
  switch (program) {
    case Program::kSkLookup:
      names = {"headgate_sk_lookup_atomic", "headgate_sk_lookup_locked"};
      break;
    case Program::kSockOps: names = {"headgate_sock_ops_atomic", "headgate_sock_ops_locked"}; break;
    case Program::kIngress: names = {"headgate_ingress", nullptr}; break;
    case Program::kEgress: names = {"headgate_egress", nullptr}; break;
    case Program::kNodeConnects: names = {"headgate_node_connects", nullptr}; break;
    case Program::kStreamEntry: names = {"headgate_stream_entry", nullptr}; break;
    case Program::kStreamHttp2: names = {"headgate_stream_http2", nullptr}; break;
    case Program::kStreamHttp1:
      return load_variant<headgate_http1_bpf>("headgate_stream_http1", "atomic", serves, maps);
    case Program::kTcEgress:
      names = {"headgate_tc_egress_atomic", "headgate_tc_egress_locked"};
      break;
    case Program::kTcIngress:
      names = {"headgate_tc_ingress_atomic", "headgate_tc_ingress_locked"};
      break;
    case Program::kXdpNative:
      names = {"headgate_xdp_native_atomic", "headgate_xdp_native_locked"};
      break;
    case Program::kXdpGeneric:
      names = {"headgate_xdp_generic_atomic", "headgate_xdp_generic_locked"};
      break;
  }
  if (names.locked == nullptr) {
    return load_variant<headgate_bpf>(names.atomic, "atomic", serves, maps);
  }
  static std::atomic<bool> locked{false};
  if (!locked) {
    auto loaded = load_variant<headgate_bpf>(names.atomic, "atomic", serves, maps);
    // EPERM is a matter of rights, and the other variant would not get them either.
    if (loaded || loaded.error().sys_errno == EPERM) {
      return loaded;
    }
    auto fallback = load_variant<headgate_bpf>(names.locked, "spin_lock", serves, maps);
    if (!fallback) {
      return loaded;
    }
    locked = true;
    return fallback;
  }
  return load_variant<headgate_bpf>(names.locked, "spin_lock", serves, maps);
}

namespace {

/// Does the pinned link still hang on what we want to protect? A link whose namespace or cgroup has
/// died stays pinned as a zombie (netns_ino 0).
bool hangs_on(int link_fd, int attach_type, std::uint64_t goal_id) {
  bpf_link_info info{};
  __u32 bytes = sizeof(info);
  if (::bpf_obj_get_info_by_fd(link_fd, &info, &bytes) != 0) {
    return false;
  }
  switch (attach_type) {
    case BPF_SK_LOOKUP: return info.netns.netns_ino == goal_id;
    case kTcxIngress:
    case kTcxEgress:  // has its device where XDP has (include/uapi/linux/bpf.h)
    case BPF_XDP: return info.xdp.ifindex == goal_id;
    default: return info.cgroup.cgroup_id == goal_id;
  }
}

}  // namespace

Result<Link> Link::attach(const LoadedProgram& program, int goal_fd, int attach_type,
                          std::uint64_t goal_id, const PinDirectory& pins,
                          const std::string& pin_name, std::uint32_t flags) {
  Link out;
  if (pins.pinned()) {
    out.pin_path_ = pins.link_path(pin_name);
    UniqueFd old(::bpf_obj_get(out.pin_path_.c_str()));
    if (old) {
      if (hangs_on(old.get(), attach_type, goal_id) &&
          ::bpf_link_update(old.get(), program.fd.get(), nullptr) == 0) {
        out.fd_ = std::move(old);
        out.adopted_ = true;
        return out;
      }
      ::bpf_link_detach(old.get());
      ::unlink(out.pin_path_.c_str());
    }
  }
  bpf_link_create_opts options{};
  options.sz = sizeof(options);
  options.flags = flags;
  out.fd_ = UniqueFd(::bpf_link_create(program.fd.get(), goal_fd,
                                       static_cast<bpf_attach_type>(attach_type), &options));
  if (!out.fd_) {
    return sys_fail(errno, "attach " + pin_name);
  }
  if (pins.pinned() && ::bpf_obj_pin(out.fd_.get(), out.pin_path_.c_str()) != 0) {
    return sys_fail(errno, "pin " + out.pin_path_);
  }
  return out;
}

std::uint32_t Link::pinned_program(int attach_type, std::uint64_t goal_id, const PinDirectory& pins,
                                   const std::string& pin_name) {
  if (!pins.pinned()) {
    return 0;
  }
  const UniqueFd link(::bpf_obj_get(pins.link_path(pin_name).c_str()));
  bpf_link_info info{};
  __u32 bytes = sizeof(info);
  return link && hangs_on(link.get(), attach_type, goal_id) &&
                 ::bpf_obj_get_info_by_fd(link.get(), &info, &bytes) == 0
             ? info.prog_id
             : 0;
}

void Link::detach() {
  if (fd_) {
    ::bpf_link_detach(fd_.get());
    fd_.reset();
  }
  if (!pin_path_.empty()) {
    ::unlink(pin_path_.c_str());
  }
}

std::size_t remove_orphan_links(const PinDirectory& pins, const std::vector<std::string>& keep) {
  std::size_t removed = 0;
  if (!pins.pinned()) {
    return removed;
  }
  std::error_code ec;
  for (const auto& entry : std::filesystem::directory_iterator(pins.links_directory(), ec)) {
    if (std::find(keep.begin(), keep.end(), entry.path().filename().string()) != keep.end()) {
      continue;
    }
    const UniqueFd link(::bpf_obj_get(entry.path().c_str()));
    if (link) {
      ::bpf_link_detach(link.get());
    }
    ::unlink(entry.path().c_str());
    ++removed;
  }
  return removed;
}

}  // namespace headgate
