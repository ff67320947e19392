// SPDX-License-Identifier: Apache-2.0
#include "agent/targets/pod_list.h"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "agent/config/quantity.h"

namespace headgate {
namespace {

using json = nlohmann::json;

constexpr std::string_view kConfigHash = "kubernetes.io/config.hash";

/// What a pod's JSON is mostly made of and nothing here reads. Labels and annotations have keys of
/// the users' own and are kept whole.
bool is_ballast(std::string_view key) {
  static constexpr std::array<std::string_view, 16> kBallast{
      "managedFields", "env",           "envFrom",      "volumes",
      "volumeMounts",  "volumeDevices", "conditions",   "tolerations",
      "affinity",      "livenessProbe", "startupProbe", "readinessProbe",
      "lastState",     "args",          "command",      "topologySpreadConstraints"};
  return std::find(kBallast.begin(), kBallast.end(), key) != kBallast.end();
}

json parse(std::string_view text) {
  int kept_depth = -1;  // of the key "labels" or "annotations" that we are below
  return json::parse(
      text,
      [&](int depth, json::parse_event_t event, json& parsed) {
        if (event != json::parse_event_t::key) {
          return true;
        }
        if (kept_depth >= 0 && depth > kept_depth) {
          return true;
        }
        const std::string& key = parsed.get_ref<const std::string&>();
        kept_depth = key == "labels" || key == "annotations" ? depth : -1;
        return !is_ballast(key);
      },
      /*allow_exceptions=*/false);
}

/// The member, or null where there is none of that type: JSON from outside is never trusted to have
/// a shape.
const json& member(const json& object, const char* key) {
  static const json kNull;
  if (!object.is_object()) {
    return kNull;
  }
  const auto it = object.find(key);
  return it != object.end() ? *it : kNull;
}

std::string text_of(const json& object, const char* key) {
  const json& value = member(object, key);
  return value.is_string() ? value.get<std::string>() : std::string();
}

bool is_true(const json& object, const char* key) {
  const json& value = member(object, key);
  return value.is_boolean() && value.get<bool>();
}

const json& list_of(const json& object, const char* key) {
  static const json kEmpty = json::array();
  const json& value = member(object, key);
  return value.is_array() ? value : kEmpty;
}

Labels labels_of(const json& object) {
  Labels out;
  if (object.is_object()) {
    for (const auto& [key, value] : object.items()) {
      if (value.is_string()) {
        out.emplace(key, value.get<std::string>());
      }
    }
  }
  return out;
}

std::optional<double> cores_of(const json& resources) {
  const std::string text = text_of(resources, "cpu");
  return text.empty() ? std::nullopt : parse_cores(text);
}

std::optional<std::uint64_t> bytes_of(const json& resources) {
  const auto size = parse_size(text_of(resources, "memory"));
  return size ? std::optional(size->value) : std::nullopt;
}

void add_port(const json& port, const char* key, std::vector<std::uint16_t>& out) {
  const json& value = member(port, key);
  if (value.is_number_unsigned() && value.get<std::uint64_t>() > 0 &&
      value.get<std::uint64_t>() <= 65535) {
    out.push_back(static_cast<std::uint16_t>(value.get<std::uint64_t>()));
  }
}

/// `init`: of initContainers. One that is restarted always is a sidecar and stays.
PodContainer container_of(const json& spec, const json& statuses, bool init) {
  PodContainer out;
  out.name = text_of(spec, "name");
  out.init = init && text_of(spec, "restartPolicy") != "Always";
  const json* resources = &member(spec, "resources");
  for (const json& port : list_of(spec, "ports")) {
    add_port(port, "containerPort", out.ports);
    add_port(port, "hostPort", out.host_ports);
  }
  for (const json& status : statuses) {
    if (text_of(status, "name") != out.name) {
      continue;
    }
    if (auto id = parse_container_id(text_of(status, "containerID"))) {
      out.id = std::move(*id);
    }
    out.running = member(member(status, "state"), "running").is_object();
    // What is in force; the specification is what is wished for while a resize is under way.
    if (member(status, "resources").is_object()) {
      resources = &member(status, "resources");
    }
  }
  out.cpu_limit_cores = cores_of(member(*resources, "limits"));
  out.memory_limit_bytes = bytes_of(member(*resources, "limits"));
  out.cpu_request_cores = cores_of(member(*resources, "requests"));
  out.memory_request_bytes = bytes_of(member(*resources, "requests"));
  return out;
}

Result<Pod> pod_of(const json& object) {
  const json& metadata = member(object, "metadata");
  const json& spec = member(object, "spec");
  const json& status = member(object, "status");
  Pod out;
  out.namespace_name = text_of(metadata, "namespace");
  out.name = text_of(metadata, "name");
  out.uid = text_of(metadata, "uid");
  if (out.namespace_name.empty() || out.name.empty() || out.uid.empty()) {
    return fail(fmt::format("a pod without {} (namespace '{}', name '{}', uid '{}')",
                            out.uid.empty()    ? "uid"
                            : out.name.empty() ? "name"
                                               : "namespace",
                            out.namespace_name, out.name, out.uid));
  }
  out.labels = labels_of(member(metadata, "labels"));
  const json& annotations = member(metadata, "annotations");
  out.opted_out = text_of(annotations, kOptOutAnnotation.data()) == "false";
  if (std::string hash = text_of(annotations, kConfigHash.data()); is_pod_uid(hash)) {
    out.config_hash = std::move(hash);
  }
  out.terminating = member(metadata, "deletionTimestamp").is_string();
  out.node_name = text_of(spec, "nodeName");
  out.host_network = is_true(spec, "hostNetwork");
  out.phase = text_of(status, "phase");
  out.qos = parse_qos(text_of(status, "qosClass"));
  for (const json& ip : list_of(status, "podIPs")) {
    if (std::string address = text_of(ip, "ip"); !address.empty()) {
      out.ips.push_back(std::move(address));
    }
  }
  if (std::string address = text_of(status, "podIP"); out.ips.empty() && !address.empty()) {
    out.ips.push_back(std::move(address));
  }
  for (const json& one : list_of(spec, "initContainers")) {
    out.containers.push_back(container_of(one, list_of(status, "initContainerStatuses"), true));
  }
  for (const json& one : list_of(spec, "containers")) {
    out.containers.push_back(container_of(one, list_of(status, "containerStatuses"), false));
  }
  return out;
}

std::string resource_version_of(const json& object) {
  return text_of(member(object, "metadata"), "resourceVersion");
}

int code_of(const json& status) {
  const json& code = member(status, "code");
  return code.is_number_integer() ? code.get<int>() : 0;
}

bool is_kind(const json& object, std::string_view kind) { return text_of(object, "kind") == kind; }

}  // namespace

Result<Pod> parse_pod(std::string_view text) {
  const json object = parse(text);
  if (!object.is_object()) {
    return fail("a pod that is no JSON object");
  }
  return pod_of(object);
}

void PodList::put(Pod pod) {
  auto shared = std::make_shared<const Pod>(std::move(pod));
  pods_.insert_or_assign(shared->uid, shared);
}

void PodList::remove(std::string_view uid) {
  if (const auto it = pods_.find(uid); it != pods_.end()) {
    pods_.erase(it);
  }
}

bool PodList::operator==(const PodList& other) const {
  return std::equal(pods_.begin(), pods_.end(), other.pods_.begin(), other.pods_.end(),
                    [](const auto& a, const auto& b) { return *a.second == *b.second; });
}

const Pod* PodList::find(std::string_view uid) const {
  if (const auto it = pods_.find(uid); it != pods_.end()) {
    return it->second.get();
  }
  const auto is_static = [&](const auto& entry) { return entry.second->config_hash == uid; };
  const auto it = uid.empty() ? pods_.end() : std::find_if(pods_.begin(), pods_.end(), is_static);
  return it != pods_.end() ? it->second.get() : nullptr;
}

Result<ListedPods> parse_pod_list(std::string_view text) {
  const json object = parse(text);
  if (!is_kind(object, "PodList") && !is_kind(object, "List")) {
    return fail(fmt::format("the answer is no list of pods ({} bytes, kind '{}')", text.size(),
                            text_of(object, "kind")));
  }
  ListedPods out;
  out.resource_version = resource_version_of(object);
  if (out.resource_version.empty()) {
    return fail("the list of pods has no resourceVersion: there is nothing to watch from");
  }
  for (const json& item : list_of(object, "items")) {
    if (auto pod = pod_of(item)) {
      out.pods.put(std::move(*pod));
    } else {
      out.problems.push_back(pod.error().message);
    }
  }
  return out;
}

Result<PodEvent> parse_pod_event(std::string_view text) {
  const json event = parse(text);
  const std::string type = text_of(event, "type");
  const json& object = member(event, "object");
  PodEvent out;
  if (type == "ERROR") {
    out.code = code_of(object);
    out.message = text_of(object, "message");
    return out;
  }
  out.resource_version = resource_version_of(object);
  if (type == "BOOKMARK") {
    out.kind = PodEvent::Kind::kBookmark;
    if (out.resource_version.empty()) {
      return fail("a bookmark without resourceVersion");
    }
    return out;
  }
  if (type != "ADDED" && type != "MODIFIED" && type != "DELETED") {
    return fail(type.empty() ? fmt::format("no event of a watch: {} bytes", text.size())
                             : fmt::format("an event of unknown type '{}'", type));
  }
  auto pod = pod_of(object);
  if (!pod) {
    return tl::unexpected<Error>(pod.error());
  }
  out.kind = type == "DELETED" ? PodEvent::Kind::kRemoved : PodEvent::Kind::kPut;
  out.pod = std::move(*pod);
  return out;
}

std::string status_message(std::string_view text) {
  const json object = parse(text);
  return is_kind(object, "Status") ? text_of(object, "message") : std::string();
}

bool matches(const Pod& pod, const MatchPods& match, const LabelSelector& selector) {
  const auto& spaces = match.namespaces;
  return !pod.opted_out &&
         (match.uid.empty() || match.uid == pod.uid || match.uid == pod.config_hash) &&
         (match.name.empty() || match.name == pod.name) &&
         (spaces.empty() ||
          std::find(spaces.begin(), spaces.end(), pod.namespace_name) != spaces.end()) &&
         selector.matches(pod.labels);
}

}  // namespace headgate
