// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "headgate/result.h"

#include "agent/targets/api_server.h"
#include "agent/targets/event_queue.h"

namespace headgate {

/// How the sending of Events fares, for metrics and people.
struct KubeEventsStatus {
  std::uint64_t sent = 0;
  std::uint64_t merged = 0;   ///< became part of another one
  std::uint64_t dropped = 0;  ///< too many, too old, or not taken by the server
  std::uint64_t errors = 0;   ///< requests that failed
  std::string off;            ///< why none are sent any more; "" = they are
};

/// The pod that the agent itself runs in; without a UID, it is not known.
struct OwnPod {
  std::string namespace_name;
  std::string name;
  std::string uid;
};

/// Tells the API server what happens to pods, as Events of events.k8s.io/v1 (Kubernetes 1.19), from
/// a thread of its own. It needs no right but `create events`; without it (403) it is silent for
/// good. A server that is away or busy (429, Retry-After) is asked again, later and later, with the
/// newest state of each pod.
class KubeEvents {
 public:
  [[nodiscard]] static Result<std::unique_ptr<KubeEvents>> start(ApiServerOptions options,
                                                                 OwnPod own);
  KubeEvents() = default;
  KubeEvents(const KubeEvents&) = delete;
  KubeEvents& operator=(const KubeEvents&) = delete;
  KubeEvents(KubeEvents&&) = delete;
  KubeEvents& operator=(KubeEvents&&) = delete;
  virtual ~KubeEvents() = default;

  /// Never waits. `key` names the target that this is about.
  virtual void tell(const std::string& key, KubeEvent event) = 0;
  /// The same about the agent's own pod, where it is known.
  virtual void tell_of_own_pod(KubeEvent event) = 0;
  [[nodiscard]] virtual KubeEventsStatus status() const = 0;
};

/// The body of the request. Pure.
[[nodiscard]] std::string to_json(const EventQueue::Due& due, const std::string& node_name);

}  // namespace headgate
