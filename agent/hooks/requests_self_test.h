// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "headgate/result.h"

#include "agent/dataplane/kernel_maps.h"

namespace headgate {

/// Refuses a request of its own: a server and a client in this process, on loopback, with the
/// programs as targets have them. Error: what this kernel's sockmap gets wrong, so that nothing
/// must be refused with it. Kernels have got wrong (6.1 to 6.18, see the mailing list of
/// netdev, "bpf, sockmap"): data that came before accept(2), data behind what was not read yet, and
/// the count of what has been read.
[[nodiscard]] Result<> test_request_refusal(KernelMaps& maps, const std::string& unified_root);

}  // namespace headgate
