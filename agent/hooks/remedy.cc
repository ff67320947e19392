// SPDX-License-Identifier: Apache-2.0
#include "agent/hooks/remedy.h"

#include <cerrno>

namespace headgate {

std::string with_remedy(const Error& error) {
  switch (error.sys_errno) {
    case EPERM:
    case EACCES:
      return error.message +
             " (needs CAP_BPF and CAP_NET_ADMIN, CAP_SYS_ADMIN for other namespaces, a seccomp "
             "profile that allows bpf(2), and RLIMIT_MEMLOCK below kernel 5.11: `headgate doctor` "
             "says which is missing)";
    case ENOSYS: return error.message + " (this kernel has no bpf(2): CONFIG_BPF_SYSCALL)";
    case EINVAL:
    case EOPNOTSUPP:
      return error.message + " (the kernel is too old or lacks the hook: 5.10 is needed)";
    case E2BIG: return error.message + " (too many programs are attached there already)";
    default: return error.message;
  }
}

Error no_maps() { return {"the BPF maps could not be made, so no gate can be attached", EPERM}; }

}  // namespace headgate
