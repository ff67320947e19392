// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "headgate/result.h"

#include "agent/cli/options.h"
#include "agent/targets/kube_events.h"
#include "agent/targets/pod_source.h"

namespace headgate {

/// Who tells of this node's pods, from the command line and the environment, begun. Errors say what
/// is missing.
[[nodiscard]] Result<std::unique_ptr<PodSource>> open_pods(const KubernetesOptions& options);
/// Who tells the API server what happens to this node's pods, begun. The agent's own pod is named
/// by the environment variables POD_NAMESPACE, POD_NAME and POD_UID. Errors: there is no API
/// server.
[[nodiscard]] Result<std::unique_ptr<KubeEvents>> open_events(const KubernetesOptions& options);
/// The pods of this node now, for commands that end.
[[nodiscard]] Result<PodsPtr> list_pods(const KubernetesOptions& options);

}  // namespace headgate
