// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace headgate {

/// Where the kubelet and the container runtimes put the cgroups of pods, as pure text: from pod
/// UID, QoS class and container id to paths, and back. The forms (kubelet pkg/kubelet/cm, runc
/// libcontainer/cgroups, and the reports that the tests name):
///
///   cgroupfs  ROOT = [/PREFIX]/kubepods
///             ROOT[/burstable|/besteffort]/podUID/[crio-|libpod-]ID
///   systemd   ROOT = [/PREFIX.slice]/[PREFIX-]kubepods.slice, STEM = its name without ".slice"
///             ROOT[/STEM-burstable.slice]/STEM[-burstable]-podU_I_D.slice/RUNTIME-ID.scope
///
/// A Guaranteed pod has no directory of its class. UIDs of static pods are 32 hex digits without
/// dashes (kubernetes#67537).

enum class CgroupDriver : std::uint8_t { kCgroupfs, kSystemd };
enum class QosClass : std::uint8_t { kGuaranteed, kBurstable, kBestEffort };
enum class ContainerRuntime : std::uint8_t { kUnknown, kContainerd, kCrio, kDocker };
[[nodiscard]] std::string_view to_string(QosClass qos);
[[nodiscard]] std::string_view to_string(ContainerRuntime runtime);
/// As the API writes it, "Burstable"; nullopt for other words.
[[nodiscard]] std::optional<QosClass> parse_qos(std::string_view word);

/// "4a163a05-439d-484b-8e53-2968bc15824f", or 32 hex digits; lower case.
[[nodiscard]] bool is_pod_uid(std::string_view text);

/// The directory that all pods of a kubelet are below, "/kubepods" or
/// "/kubelet.slice/kubelet-kubepods.slice".
struct PodRoot {
  std::string path;
  CgroupDriver driver = CgroupDriver::kCgroupfs;
  bool operator==(const PodRoot&) const = default;
};
/// `path` as a root; nullopt where its last part is not the name of one.
[[nodiscard]] std::optional<PodRoot> parse_pod_root(std::string_view path);

[[nodiscard]] std::string pod_cgroup_path(const PodRoot& root, QosClass qos, std::string_view uid);

/// One container's id as the API gives it, "cri-o://a8077b...", or as part of a path.
struct ContainerId {
  ContainerRuntime runtime = ContainerRuntime::kUnknown;
  std::string id;  ///< 12 to 64 hex digits
  bool operator==(const ContainerId&) const = default;
};
[[nodiscard]] std::optional<ContainerId> parse_container_id(std::string_view text);
/// The name of the directory of a container below its pod's; nullopt: it is none of a container
/// (that of conmon, CRI-O's helper, among them).
[[nodiscard]] std::optional<ContainerId> parse_container_directory(std::string_view name);
[[nodiscard]] std::string container_directory(CgroupDriver driver, const ContainerId& container);

/// What a cgroup path says of the pod it belongs to.
struct PodCgroup {
  std::string uid;
  QosClass qos = QosClass::kGuaranteed;
  CgroupDriver driver = CgroupDriver::kCgroupfs;
  std::string pod_path;        ///< of the whole pod; "" where the path does not go through it
  ContainerId container;       ///< id "": the path is the pod's own
  std::string container_path;  ///< without what is nested below the container; "" likewise
};
/// nullopt: in no pod.
[[nodiscard]] std::optional<PodCgroup> parse_pod_cgroup(std::string_view path);

}  // namespace headgate
