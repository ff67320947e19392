// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <elf.h>

#include <cstring>
#include <memory>
#include <string_view>

#include <bpf/libbpf.h>

#include "headgate/result.h"

#include "agent/base/unique_fd.h"
#include "agent/dataplane/kernel_maps.h"
#include "headgate_bpf.skel.h"

namespace headgate::test {

struct SkeletonDeleter {
  void operator()(headgate_bpf* skeleton) const { headgate_bpf__destroy(skeleton); }
};
using SkeletonPtr = std::unique_ptr<headgate_bpf, SkeletonDeleter>;

/// Bytes of one section of the linked object, as it is embedded in the agent; empty = not there.
inline std::string_view object_section(std::string_view name) {
  std::size_t bytes = 0;
  const auto* base = static_cast<const char*>(headgate_bpf__elf_bytes(&bytes));
  Elf64_Ehdr file{};
  std::memcpy(&file, base, sizeof(file));
  const auto section = [&](std::size_t i) {
    Elf64_Shdr out{};
    std::memcpy(&out, base + file.e_shoff + i * sizeof(out), sizeof(out));
    return out;
  };
  const Elf64_Shdr names = section(file.e_shstrndx);
  for (std::size_t i = 0; i < file.e_shnum; ++i) {
    const Elf64_Shdr header = section(i);
    if (name == base + names.sh_offset + header.sh_name) {
      return {base + header.sh_offset, header.sh_size};
    }
  }
  return {};
}

/// Loads one program by its name, whichever variant the agent would choose here. With `maps`
/// it shares them; without it has its own.
struct Loaded {
  SkeletonPtr skeleton;
  int fd = -1;
};
inline Result<Loaded> load_by_name(std::string_view name, std::uint32_t netns_id,
                                   const KernelMaps* maps) {
  Loaded out;
  out.skeleton.reset(headgate_bpf__open());
  if (!out.skeleton) {
    return sys_fail(errno, "open");
  }
  out.skeleton->rodata->headgate_netns_id = netns_id;
  bpf_program* chosen = nullptr;
  bpf_program* program = nullptr;
  bpf_object__for_each_program(program, out.skeleton->obj) {
    const bool wanted = name == bpf_program__name(program);
    bpf_program__set_autoload(program, wanted);
    chosen = wanted ? program : chosen;
  }
  if (chosen == nullptr) {
    return fail("no program " + std::string(name));
  }
  bpf_map* map = nullptr;
  bpf_object__for_each_map(map, out.skeleton->obj) {
    const int fd = maps == nullptr ? -1 : maps->fd(bpf_map__name(map));
    if (fd >= 0 && bpf_map__reuse_fd(map, fd) != 0) {
      return sys_fail(errno, "reuse");
    }
  }
  if (const int err = headgate_bpf__load(out.skeleton.get()); err != 0) {
    return sys_fail(-err, "load " + std::string(name));
  }
  out.fd = bpf_program__fd(chosen);
  return out;
}

}  // namespace headgate::test
