// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "headgate/clock.h"
#include "headgate/result.h"

#include "agent/targets/pod_source.h"

namespace headgate {

/// Where container runtimes listen, in the order in which they are looked for: containerd, that of
/// k3s, CRI-O, cri-dockerd.
[[nodiscard]] std::vector<std::string> usual_cri_sockets();

struct CriOptions {
  std::string socket;
  Duration period = std::chrono::seconds(5);    ///< between two looks
  Duration timeout = std::chrono::seconds(10);  ///< of one question
  /// Whether anybody needs it now: the API server, while it answers, tells more and sooner. Called
  /// by one thread.
  std::function<bool()> wanted;
};

/// The pods of this node as the container runtime knows them (Container Runtime Interface v1,
/// ListPodSandbox and ListContainers, gRPC over its unix socket), asked every few seconds on a
/// thread of its own. Names, namespaces, labels, annotations, UIDs and containers are there;
/// addresses, ports, QoS class and limits are not.
class CriPods {
 public:
  [[nodiscard]] static Result<std::unique_ptr<PodSource>> start(CriOptions options);
  /// One look, now, on this thread.
  [[nodiscard]] static Result<PodsPtr> list_once(const CriOptions& options);
};

}  // namespace headgate
