// SPDX-License-Identifier: Apache-2.0
#include "agent/targets/locate_pods.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include <fmt/format.h>

namespace headgate {
namespace {

/// "/system.slice/docker-ID.scope/kubelet.slice/kubelet-kubepods.slice" has four parts; nobody puts
/// the root deeper than a few below that.
constexpr int kDeepestRoot = 7;
constexpr Duration kLookForRoots = std::chrono::seconds(10);

std::string title(const Pod& pod) {
  return pod.name.empty() ? "pod " + pod.uid
                          : fmt::format("pod {}/{}", pod.namespace_name, pod.name);
}

std::string describe(const MatchPods& match) {
  std::string out;
  const auto add = [&](std::string_view key, const std::string& value) {
    if (!value.empty()) {
      out += fmt::format("{}{} {}", out.empty() ? "" : ", ", key, value);
    }
  };
  add("namespace", fmt::format("{}", fmt::join(match.namespaces, " or ")));
  add("name", match.name);
  add("uid", match.uid);
  add("selector", match.selector);
  return out;
}

void add_requests(const Pod& pod, Located::Pod& out) {
  for (const PodContainer& container : pod.containers) {
    if (container.name == out.container) {
      out.cpu_request_cores = container.cpu_request_cores;
      out.memory_request_bytes = container.memory_request_bytes;
    }
  }
}

std::string names(const std::vector<std::string>& all) {
  return all.empty() ? "none" : fmt::format("{}", fmt::join(all, ", "));
}

}  // namespace

/// The container to protect (or all to be looked at), or why there is none yet.
struct PodLocator::Choice {
  std::vector<const Container*> containers;
  std::string problem;
  std::vector<std::string> warnings;
};

PodsFound PodLocator::find(const Query& query, Instant now) {
  PodsFound out;
  if (query.pods == nullptr) {
    if (query.match.uid.empty()) {
      out.missing = fmt::format(
          "pods cannot be told by {}: {}. Without the API server and the container runtime's "
          "socket "
          "only UIDs and ids of containers are known, from the cgroup tree: match by uid, or make "
          "one of the two reachable",
          describe(query.match), query.pods_problem);
      return out;
    }
    Pod pod;
    pod.uid = query.match.uid;
    find_pod(query, pod, now, out);
    return out;
  }
  const auto selector = LabelSelector::parse(query.match.selector);
  if (!selector) {
    out.missing = selector.error().message;
    return out;
  }
  std::size_t matched = 0;
  for (const auto& [uid, pod] : query.pods->by_uid()) {
    if (!matches(*pod, query.match, *selector) || pod->ended()) {
      continue;
    }
    ++matched;
    find_pod(query, *pod, now, out);
    if (out.more) {
      return out;
    }
  }
  if (matched == 0) {
    out.missing = fmt::format("none of the {} pods of this node has {}",
                              query.pods->by_uid().size(), describe(query.match));
  }
  return out;
}

void PodLocator::find_pod(const Query& query, const Pod& pod, Instant now, PodsFound& out) {
  const auto missing = [&](std::string why) {
    if (out.missing.empty()) {
      out.missing = std::move(why);
    }
  };
  const std::string path = pod_path(pod, now);
  if (path.empty()) {
    missing(fmt::format("{} has no cgroup below {} yet{}", title(pod), locator_.hierarchy().root,
                        roots_.empty() ? ": the tree has no kubepods at all" : ""));
    return;
  }
  const auto containers = containers_of(query, pod, path);
  const auto id_of = [&](const Container& container) {
    return cgroup_identity(locator_.hierarchy(), container.path).value_or(0);
  };
  const bool held = std::any_of(containers.begin(), containers.end(), [&](const Container& one) {
    return query.held && query.held(id_of(one));
  });
  if (held) {
    return;
  }
  const Choice choice = choose(query, pod, containers);
  if (choice.containers.empty()) {
    missing(choice.problem);
    return;
  }
  if (out.fresh.size() >= query.most) {
    out.more = true;
    return;
  }
  for (const Container* container : choice.containers) {
    auto located = locator_.describe(container->path);
    if (!located) {
      missing(std::move(located.error().message));
      return;
    }
    located->pod = Located::Pod{pod.namespace_name, pod.name, pod.uid, container->name};
    add_requests(pod, *located->pod);
    located->warnings.insert(located->warnings.end(), choice.warnings.begin(),
                             choice.warnings.end());
    out.fresh.push_back(std::move(*located));
  }
}

/// A pod's own UID comes before that of its annotation, which anybody may write.
std::string PodLocator::pod_path(const Pod& pod, Instant now) {
  const auto look = [&]() -> std::string {
    std::vector<QosClass> classes{QosClass::kGuaranteed, QosClass::kBurstable,
                                  QosClass::kBestEffort};
    if (pod.qos) {
      std::stable_partition(classes.begin(), classes.end(),
                            [&](QosClass qos) { return qos == *pod.qos; });
    }
    for (const std::string& uid : {pod.uid, pod.config_hash}) {
      for (const PodRoot& root : roots_) {
        for (const QosClass qos : classes) {
          std::string path = uid.empty() ? std::string() : pod_cgroup_path(root, qos, uid);
          if (!path.empty() && cgroup_identity(locator_.hierarchy(), path)) {
            return path;
          }
        }
      }
    }
    return {};
  };
  std::string path = look();
  if (path.empty() && (roots_at_ == Instant{} || now - roots_at_ >= kLookForRoots)) {
    find_roots(now);
    path = look();
  }
  return path;
}

void PodLocator::find_roots(Instant now) {
  roots_at_ = now;
  roots_.clear();
  std::set<std::string> seen;
  const auto walk = [&](const auto& self, const std::string& directory, const std::string& path,
                        int depth) -> void {
    for (const std::string& name : subdirectories(directory)) {
      const std::string child = path + "/" + name;
      if (auto root = parse_pod_root(child)) {
        if (seen.insert(child).second) {
          roots_.push_back(std::move(*root));
        }
      } else if (depth > 1) {
        self(self, directory + "/" + name, child, depth - 1);
      }
    }
  };
  for (const auto& tree : locator_.hierarchy().trees()) {
    walk(walk, tree.path, "", kDeepestRoot);
    if (!roots_.empty()) {  // the kubelet makes its directories in every tree
      return;
    }
  }
}

/// Those that have a cgroup and stay: what has to be chosen from.
std::vector<PodLocator::Container> PodLocator::containers_of(const Query& query, const Pod& pod,
                                                             const std::string& path) const {
  std::map<std::string, std::string> paths;  // by id
  for (const auto& tree : locator_.hierarchy().trees()) {
    for (const std::string& name : subdirectories(tree.directory(path))) {
      if (const auto id = parse_container_directory(name)) {
        paths.emplace(id->id, path + "/" + name);
      }
    }
    if (!paths.empty()) {  // runtimes make their directories in every tree
      break;
    }
  }
  std::vector<Container> out;
  if (query.pods == nullptr) {
    for (auto& [id, container_path] : paths) {
      out.push_back({id, std::move(container_path)});
    }
    return out;
  }
  for (const PodContainer& container : pod.containers) {
    const auto found = paths.find(container.id.id);
    const bool wanted =
        query.match.container.empty() ? !container.init : query.match.container == container.name;
    if (wanted && found != paths.end()) {
      out.push_back({container.name, found->second});
    }
  }
  return out;
}

/// The container whose processes hold the socket that listens on the port.
const PodLocator::Container* PodLocator::owner_of(PodPort port,
                                                  const std::vector<Container>& containers) const {
  const Proc& proc = locator_.proc();
  for (const Container& container : containers) {
    const std::vector<int> pids = locator_.pids_of(container.path);
    const auto sockets = pids.empty() ? std::set<std::uint64_t>()
                                      : proc.listening_sockets(pids.front(), port.udp, port.port);
    if (!sockets.empty() && std::any_of(pids.begin(), pids.end(),
                                        [&](int pid) { return proc.holds_socket(pid, sockets); })) {
      return &container;
    }
  }
  return nullptr;
}

PodLocator::Choice PodLocator::choose(const Query& query, const Pod& pod,
                                      const std::vector<Container>& containers) const {
  Choice out;
  if (!query.match.container.empty() && query.pods == nullptr) {
    out.problem = fmt::format(
        "{}: which of its containers is '{}' is not known ({}); leave it out "
        "to protect the one that listens",
        title(pod), query.match.container, query.pods_problem);
    return out;
  }
  std::vector<std::string> stay;
  for (const PodContainer& container : pod.containers) {
    if (!container.init) {
      stay.push_back(container.name);
    }
  }
  const bool named = !query.match.container.empty();
  if (named && std::none_of(pod.containers.begin(), pod.containers.end(),
                            [&](const auto& one) { return one.name == query.match.container; })) {
    out.problem = fmt::format("{} has no container '{}'; it has: {}", title(pod),
                              query.match.container, names(stay));
    return out;
  }
  if (containers.empty()) {
    out.problem = fmt::format("{}: no container runs yet", title(pod));
    return out;
  }
  if (named || query.ports.empty() || (containers.size() == 1 && stay.size() == 1)) {
    for (const Container& container : containers) {
      out.containers.push_back(&container);
    }
    return out;
  }
  for (const PodPort& port : query.ports) {
    const Container* owner = owner_of(port, containers);
    if (owner == nullptr) {
      continue;
    }
    if (out.containers.empty()) {
      out.containers.push_back(owner);
    } else if (out.containers.front() != owner) {
      out.warnings.push_back(fmt::format(
          "{}: container {} listens on port {}, too, and is not protected; write a target with "
          "container: {} for it",
          title(pod), owner->name, port.port, owner->name));
    }
  }
  if (out.containers.empty()) {
    std::vector<std::string> ports;
    for (const PodPort& port : query.ports) {
      ports.push_back(fmt::format("{}{}", port.port, port.udp ? "/udp" : ""));
    }
    out.problem = fmt::format("{}: none of its containers ({}) listens on {} yet", title(pod),
                              names(stay), names(ports));
  }
  return out;
}

CapacityOverride capacity_of(const CapacityConfig& config, const Located& located) {
  CapacityOverride out{config.cpu_cores, config.memory_bytes, {}, {}};
  if (!located.pod || config.request_factor <= 0) {
    return out;
  }
  if (const auto& cores = located.pod->cpu_request_cores; cores && *cores > 0) {
    out.cpu_cores_by_request = config.request_factor * *cores;
  }
  if (const auto& bytes = located.pod->memory_request_bytes; bytes && *bytes > 0) {
    out.memory_bytes_by_request =
        static_cast<std::uint64_t>(config.request_factor * static_cast<double>(*bytes));
  }
  return out;
}

bool is_excluded(const Located::Pod& located, const MatchPods& match, const PodList& pods) {
  const Pod* pod = pods.find(located.uid);
  const auto selector = LabelSelector::parse(match.selector);
  return pod != nullptr && selector && !matches(*pod, match, *selector);
}

}  // namespace headgate
