// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "headgate/clock.h"

#include "agent/cgroup/sampler.h"
#include "agent/config/config.h"
#include "agent/targets/locate.h"
#include "agent/targets/pod_cgroup.h"
#include "agent/targets/pod_list.h"

namespace headgate {

/// A port that a target protects.
struct PodPort {
  bool udp = false;
  std::uint16_t port = 0;
};

struct PodsFound {
  std::vector<Located> fresh;  ///< one container of each pod that matches and is not held yet
  /// Why a pod that should be there is not: the first of them. "" = nothing is missing.
  std::string missing;
  bool more = false;  ///< there are more fresh ones than were asked for
};

/// Finds what pods are made of in the cgroup trees: the kubelet's directories with whatever prefix
/// (case B09), the pod's by its UID, the container's by its id. Which container of a pod: the one
/// that is named, else the only one, else the one that owns the listening socket (case B14). Limits
/// of the pod as a whole bind it too: limits are the smallest over all ancestors.
class PodLocator {
 public:
  explicit PodLocator(const Locator& locator) : locator_(locator) {}

  struct Query {
    const MatchPods& match;
    std::span<const PodPort> ports;  ///< none: every container, unless one is named
    /// nullptr: nobody tells of pods; then only a UID can be found, and no container by its name.
    const PodList* pods = nullptr;
    std::string_view pods_problem;  ///< why
    /// A container that this target has already, by the id of its cgroup.
    std::function<bool(std::uint64_t cgroup_id)> held;
    std::size_t most = SIZE_MAX;  ///< fresh ones at once
  };
  [[nodiscard]] PodsFound find(const Query& query, Instant now);

 private:
  struct Container {
    std::string name;  ///< the id where names are not known
    std::string path;
  };
  struct Choice;
  void find_pod(const Query& query, const Pod& pod, Instant now, PodsFound& out);
  [[nodiscard]] std::string pod_path(const Pod& pod, Instant now);
  [[nodiscard]] std::vector<Container> containers_of(const Query& query, const Pod& pod,
                                                     const std::string& path) const;
  [[nodiscard]] Choice choose(const Query& query, const Pod& pod,
                              const std::vector<Container>& containers) const;
  [[nodiscard]] const Container* owner_of(PodPort port,
                                          const std::vector<Container>& containers) const;
  void find_roots(Instant now);

  const Locator& locator_;
  std::vector<PodRoot> roots_;
  Instant roots_at_{};
};

/// What stands over or in for the limits of a target that was found.
[[nodiscard]] CapacityOverride capacity_of(const CapacityConfig& config, const Located& located);

/// The pod is known, and `match` does not mean it (any more): its labels have changed, or it has
/// opted out.
[[nodiscard]] bool is_excluded(const Located::Pod& pod, const MatchPods& match,
                               const PodList& pods);

}  // namespace headgate
