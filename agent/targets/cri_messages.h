// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "headgate/result.h"

#include "agent/config/label_selector.h"
#include "agent/targets/pod_list.h"

namespace headgate {

/// The few messages of the Container Runtime Interface (k8s.io/cri-api, runtime.v1) that tell of
/// pods, read by hand from the wire format of protocol buffers: fields that are not named here are
/// passed over, as the format has it.

/// Of ListPodSandboxResponse.
struct CriSandbox {
  std::string id;
  std::string name, uid, namespace_name;
  bool ready = false;
  std::uint64_t attempt = 0;  ///< a pod that was restarted has old ones beside it
  Labels labels;              ///< the pod's own, and the kubelet's "io.kubernetes.*"
  Labels annotations;         ///< likewise
};
/// Of ListContainersResponse.
struct CriContainer {
  std::string id;
  std::string sandbox_id;
  std::string name;
  bool running = false;
};

/// Errors: not the wire format.
[[nodiscard]] Result<std::vector<CriSandbox>> parse_sandboxes(std::string_view message);
[[nodiscard]] Result<std::vector<CriContainer>> parse_containers(std::string_view message);

/// Both together as pods. What the runtime does not know stays empty: phase but for what runs, QoS
/// class, limits, ports, addresses.
[[nodiscard]] PodList pods_of(const std::vector<CriSandbox>& sandboxes,
                              const std::vector<CriContainer>& containers);

/// gRPC's frame around one message: a byte of flags, four of length (gRPC over HTTP2, "Length-
/// Prefixed-Message").
[[nodiscard]] std::string grpc_frame(std::string_view message);
/// Errors: compressed, cut short, or more than one.
[[nodiscard]] Result<std::string_view> parse_grpc_frame(std::string_view body);

}  // namespace headgate
