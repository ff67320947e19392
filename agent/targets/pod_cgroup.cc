// SPDX-License-Identifier: Apache-2.0
#include "agent/targets/pod_cgroup.h"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>

namespace headgate {
namespace {

constexpr std::string_view kSlice = ".slice";
constexpr std::string_view kScope = ".scope";
constexpr std::string_view kKubepods = "kubepods";

bool is_hex(char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); }

bool all_hex(std::string_view text) { return std::all_of(text.begin(), text.end(), is_hex); }

/// Takes `end` off; false where the text does not end with it.
bool strip_end(std::string_view& text, std::string_view end) {
  if (!text.ends_with(end)) {
    return false;
  }
  text.remove_suffix(end.size());
  return true;
}

bool strip_begin(std::string_view& text, std::string_view begin) {
  if (!text.starts_with(begin)) {
    return false;
  }
  text.remove_prefix(begin.size());
  return true;
}

/// systemd reserves '-' for nesting, so the kubelet writes '_' in names of slices.
std::string with_dashes(std::string_view uid) {
  std::string out(uid);
  std::replace(out.begin(), out.end(), '_', '-');
  return out;
}

std::string with_underscores(std::string_view uid) {
  std::string out(uid);
  std::replace(out.begin(), out.end(), '-', '_');
  return out;
}

std::string_view qos_part(QosClass qos) {
  switch (qos) {
    case QosClass::kBurstable: return "burstable";
    case QosClass::kBestEffort: return "besteffort";
    case QosClass::kGuaranteed: break;
  }
  return "";
}

struct PodName {
  std::string uid;
  QosClass qos = QosClass::kGuaranteed;
};

/// "[STEM-burstable-]podU_I_D" with the stem taken off: "-burstable-podU_I_D" or "-podU_I_D".
std::optional<PodName> parse_pod_slice(std::string_view behind_stem) {
  PodName out;
  for (const QosClass qos : {QosClass::kBurstable, QosClass::kBestEffort}) {
    if (strip_begin(behind_stem, fmt::format("-{}", qos_part(qos)))) {
      out.qos = qos;
      break;
    }
  }
  if (!strip_begin(behind_stem, "-pod")) {
    return std::nullopt;
  }
  out.uid = with_dashes(behind_stem);
  return is_pod_uid(out.uid) ? std::optional(out) : std::nullopt;
}

/// The name of a pod's slice wherever it stands: "kubelet-kubepods-burstable-podU_I_D.slice".
std::optional<PodName> parse_whole_pod_slice(std::string_view name) {
  const std::size_t at = name.find(kKubepods);
  if (!strip_end(name, kSlice) || at == std::string_view::npos ||
      (at != 0 && name[at - 1] != '-')) {
    return std::nullopt;
  }
  return parse_pod_slice(name.substr(at + kKubepods.size()));
}

/// Steps through the parts of a path and knows where it is.
class Steps {
 public:
  explicit Steps(std::string_view path) : path_(path) {}
  /// The next part; "" at the end.
  std::string_view next() {
    while (at_ < path_.size() && path_[at_] == '/') {
      ++at_;
    }
    const std::size_t begin = at_;
    at_ = std::min(path_.find('/', at_), path_.size());
    return path_.substr(begin, at_ - begin);
  }
  /// Up to and with the part that next() gave last.
  [[nodiscard]] std::string_view so_far() const { return path_.substr(0, at_); }

 private:
  std::string_view path_;
  std::size_t at_ = 0;
};

/// Below a root: the pod, and its container if the path goes so deep.
std::optional<PodCgroup> parse_below(const PodRoot& root, Steps steps) {
  PodCgroup out;
  out.driver = root.driver;
  std::string_view part = steps.next();
  std::optional<PodName> pod;
  if (root.driver == CgroupDriver::kSystemd) {
    std::string_view stem = std::string_view(root.path).substr(root.path.rfind('/') + 1);
    strip_end(stem, kSlice);
    const auto is_qos = [&](QosClass qos) {
      return part == fmt::format("{}-{}{}", stem, qos_part(qos), kSlice);
    };
    if (is_qos(QosClass::kBurstable) || is_qos(QosClass::kBestEffort)) {
      part = steps.next();
    }
    if (!strip_end(part, kSlice) || !strip_begin(part, stem)) {
      return std::nullopt;
    }
    pod = parse_pod_slice(part);
  } else {
    PodName name;
    for (const QosClass qos : {QosClass::kBurstable, QosClass::kBestEffort}) {
      if (part == qos_part(qos)) {
        name.qos = qos;
        part = steps.next();
        break;
      }
    }
    if (strip_begin(part, "pod") && is_pod_uid(part)) {
      name.uid = part;
      pod = std::move(name);
    }
  }
  if (!pod) {
    return std::nullopt;
  }
  out.uid = std::move(pod->uid);
  out.qos = pod->qos;
  out.pod_path = steps.so_far();
  if (auto container = parse_container_directory(steps.next())) {
    out.container = std::move(*container);
    out.container_path = steps.so_far();
  }
  return out;
}

/// containerd with the cgroupfs driver under a kubelet with systemd's makes one directory of what
/// was meant for systemd: "kubepods-burstable-podU_I_D.slice:cri-containerd:ID" (case A11).
std::optional<PodCgroup> parse_colons(std::string_view part, std::string_view path_so_far) {
  const std::size_t first = part.find(':');
  const std::size_t last = part.rfind(':');
  if (first == std::string_view::npos || first == last) {
    return std::nullopt;
  }
  const auto pod = parse_whole_pod_slice(part.substr(0, first));
  auto container = parse_container_directory(
      fmt::format("{}-{}", part.substr(first + 1, last - first - 1), part.substr(last + 1)));
  if (!pod || !container) {
    return std::nullopt;
  }
  PodCgroup out;
  out.uid = pod->uid;
  out.qos = pod->qos;
  out.driver = CgroupDriver::kSystemd;
  out.container = std::move(*container);
  out.container_path = path_so_far;
  return out;
}

struct RuntimeName {
  ContainerRuntime runtime;
  std::string_view scheme;  ///< of ids in the API, "containerd://"
  std::string_view prefix;  ///< of names of cgroups
  bool with_cgroupfs;       ///< the prefix stands in names of the cgroupfs driver, too
};
constexpr std::array<RuntimeName, 3> kRuntimes{
    {{ContainerRuntime::kContainerd, "containerd", "cri-containerd-", false},
     {ContainerRuntime::kCrio, "cri-o", "crio-", true},
     {ContainerRuntime::kDocker, "docker", "docker-", false}}};

bool is_container_id(std::string_view text) {
  return text.size() >= 12 && text.size() <= 64 && all_hex(text);
}

}  // namespace

std::string_view to_string(QosClass qos) {
  switch (qos) {
    case QosClass::kBurstable: return "Burstable";
    case QosClass::kBestEffort: return "BestEffort";
    case QosClass::kGuaranteed: break;
  }
  return "Guaranteed";
}

std::string_view to_string(ContainerRuntime runtime) {
  for (const RuntimeName& name : kRuntimes) {
    if (name.runtime == runtime) {
      return name.scheme;
    }
  }
  return "unknown";
}

std::optional<QosClass> parse_qos(std::string_view word) {
  for (const QosClass qos : {QosClass::kGuaranteed, QosClass::kBurstable, QosClass::kBestEffort}) {
    if (word == to_string(qos)) {
      return qos;
    }
  }
  return std::nullopt;
}

bool is_pod_uid(std::string_view text) {
  if (text.size() == 32) {
    return all_hex(text);
  }
  constexpr std::array<std::size_t, 4> kDashes{8, 13, 18, 23};
  if (text.size() != 36) {
    return false;
  }
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool dash = std::find(kDashes.begin(), kDashes.end(), i) != kDashes.end();
    if (dash ? text[i] != '-' : !is_hex(text[i])) {
      return false;
    }
  }
  return true;
}

std::optional<PodRoot> parse_pod_root(std::string_view path) {
  const std::string_view name = path.substr(path.rfind('/') + 1);
  if (name == kKubepods) {
    return PodRoot{std::string(path), CgroupDriver::kCgroupfs};
  }
  if (name == "kubepods.slice" || name.ends_with("-kubepods.slice")) {
    return PodRoot{std::string(path), CgroupDriver::kSystemd};
  }
  return std::nullopt;
}

std::string pod_cgroup_path(const PodRoot& root, QosClass qos, std::string_view uid) {
  const std::string_view part = qos_part(qos);
  if (root.driver == CgroupDriver::kCgroupfs) {
    return part.empty() ? fmt::format("{}/pod{}", root.path, uid)
                        : fmt::format("{}/{}/pod{}", root.path, part, uid);
  }
  std::string_view stem = std::string_view(root.path).substr(root.path.rfind('/') + 1);
  strip_end(stem, kSlice);
  const std::string name = with_underscores(uid);
  return part.empty()
             ? fmt::format("{}/{}-pod{}.slice", root.path, stem, name)
             : fmt::format("{0}/{1}-{2}.slice/{1}-{2}-pod{3}.slice", root.path, stem, part, name);
}

std::optional<ContainerId> parse_container_id(std::string_view text) {
  ContainerId out;
  if (const std::size_t end = text.find("://"); end != std::string_view::npos) {
    for (const RuntimeName& name : kRuntimes) {
      if (text.substr(0, end) == name.scheme) {
        out.runtime = name.runtime;
      }
    }
    text.remove_prefix(end + 3);
  }
  if (!is_container_id(text)) {
    return std::nullopt;
  }
  out.id = text;
  return out;
}

std::optional<ContainerId> parse_container_directory(std::string_view name) {
  strip_end(name, kScope);
  ContainerId out;
  for (const RuntimeName& runtime : kRuntimes) {
    if (strip_begin(name, runtime.prefix)) {
      out.runtime = runtime.runtime;
      break;
    }
  }
  if (out.runtime == ContainerRuntime::kUnknown) {
    strip_begin(name, "libpod-");
  }
  if (!is_container_id(name)) {
    return std::nullopt;
  }
  out.id = name;
  return out;
}

std::string container_directory(CgroupDriver driver, const ContainerId& container) {
  for (const RuntimeName& name : kRuntimes) {
    if (name.runtime != container.runtime) {
      continue;
    }
    if (driver == CgroupDriver::kSystemd) {
      return fmt::format("{}{}{}", name.prefix, container.id, kScope);
    }
    return name.with_cgroupfs ? fmt::format("{}{}", name.prefix, container.id) : container.id;
  }
  return container.id;
}

std::optional<PodCgroup> parse_pod_cgroup(std::string_view path) {
  Steps steps(path);
  for (std::string_view part = steps.next(); !part.empty(); part = steps.next()) {
    if (const auto root = parse_pod_root(steps.so_far())) {
      if (auto found = parse_below(*root, steps)) {
        return found;
      }
    } else if (auto found = parse_colons(part, steps.so_far())) {
      return found;
    }
  }
  return std::nullopt;
}

}  // namespace headgate
