// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "headgate/result.h"

#include "agent/config/config.h"
#include "agent/config/label_selector.h"
#include "agent/targets/pod_cgroup.h"

namespace headgate {

/// What may be known of a container of a pod, from its specification and its status.
struct PodContainer {
  std::string name;
  ContainerId id;  ///< id "": has not been started
  bool running = false;
  bool init = false;  ///< runs before the others and ends
  std::optional<double> cpu_limit_cores, cpu_request_cores;
  std::optional<std::uint64_t> memory_limit_bytes, memory_request_bytes;
  std::vector<std::uint16_t> ports;       ///< that it says it listens on
  std::vector<std::uint16_t> host_ports;  ///< of the node, led to it
  bool operator==(const PodContainer&) const = default;
};

struct Pod {
  std::string namespace_name;
  std::string name;
  std::string uid;
  std::string config_hash;  ///< of a static pod: the UID that its cgroup is named by; else ""
  std::string node_name;
  std::string phase;  ///< Pending, Running, Succeeded, Failed, Unknown
  std::optional<QosClass> qos;
  Labels labels;
  bool opted_out = false;  ///< by kOptOutAnnotation
  bool host_network = false;
  bool terminating = false;
  std::vector<std::string> ips;  ///< IPv4 and IPv6
  std::vector<PodContainer> containers;

  /// Nothing of it runs any more and nothing will.
  [[nodiscard]] bool ended() const { return phase == "Succeeded" || phase == "Failed"; }
  bool operator==(const Pod&) const = default;
};

/// On a pod: "false" = Headgate leaves it alone, whatever the configuration says.
inline constexpr std::string_view kOptOutAnnotation = "headgate.io/protect";

/// The pods of this node as somebody who knows them has told: the API server, or the container
/// runtime. A copy shares the pods, so that each event may make a new list.
class PodList {
 public:
  using Map = std::map<std::string, std::shared_ptr<const Pod>, std::less<>>;

  void put(Pod pod);
  void remove(std::string_view uid);
  /// By its UID, or by that of a static pod's cgroup; nullptr: none.
  [[nodiscard]] const Pod* find(std::string_view uid) const;
  [[nodiscard]] const Map& by_uid() const { return pods_; }
  /// They say the same.
  [[nodiscard]] bool operator==(const PodList& other) const;

 private:
  Map pods_;
};
using PodsPtr = std::shared_ptr<const PodList>;

/// One object of kind Pod. Errors name what is missing.
[[nodiscard]] Result<Pod> parse_pod(std::string_view json);

/// The answer to a list: its pods, and the version from which to watch on. What is of no use here
/// (managedFields alone are half of a pod) never becomes a tree in memory.
struct ListedPods {
  PodList pods;
  std::string resource_version;
  std::vector<std::string> problems;  ///< pods that were left out, and why
};
[[nodiscard]] Result<ListedPods> parse_pod_list(std::string_view json);

/// One line of a watch.
struct PodEvent {
  enum class Kind : std::uint8_t {
    kPut,       ///< added or modified
    kRemoved,   ///< deleted, or does not match the selector any more
    kBookmark,  ///< nothing has changed up to this version
    kError,     ///< the stream ends: `code` and `message` of the Status
  };
  Kind kind = Kind::kError;
  Pod pod;
  std::string resource_version;
  int code = 0;  ///< 410: the version is too old, list again
  std::string message;
};
[[nodiscard]] Result<PodEvent> parse_pod_event(std::string_view json);

/// An object of kind Status, as the API server answers what it refuses: its message; "" = none.
[[nodiscard]] std::string status_message(std::string_view json);

/// Matched by everything that `match` says, but for the container; opted out pods are never.
[[nodiscard]] bool matches(const Pod& pod, const MatchPods& match, const LabelSelector& selector);

}  // namespace headgate
