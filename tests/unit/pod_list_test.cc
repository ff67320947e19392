// SPDX-License-Identifier: Apache-2.0
#include "agent/targets/pod_list.h"

#include <string>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace headgate {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

const std::string kUid = "4a163a05-439d-484b-8e53-2968bc15824f";
const std::string kId = "0f99ad5f4a163a05439d484b8e532968bc15824f0f99ad5f4a163a05439d484b";

/// Everything that is read of a pod, with members between that are not.
std::string pod_json(const std::string& metadata = "") {
  return R"({"kind":"Pod","apiVersion":"v1","metadata":{"name":"otc-0","namespace":"obs",
    "uid":")" +
         kUid + R"(","resourceVersion":"7","labels":{"app":"otel","env":"prod","command":"x"},
    "managedFields":[{"manager":"kubelet","fieldsV1":{"f:status":{}}}])" +
         metadata + R"(},
    "spec":{"nodeName":"node-1","hostNetwork":true,
      "volumes":[{"name":"v"}],"initContainers":[
        {"name":"setup","image":"i"},
        {"name":"proxy","image":"i","restartPolicy":"Always"}],
      "containers":[{"name":"otc","image":"i","env":[{"name":"A","value":"b"}],
        "ports":[{"containerPort":4317,"hostPort":14317,"protocol":"TCP"},{"containerPort":4318}],
        "resources":{"limits":{"cpu":"1500m","memory":"512Mi"},"requests":{"cpu":"1","memory":"1e8"}}}]},
    "status":{"phase":"Running","qosClass":"Burstable","podIP":"10.1.2.3",
      "podIPs":[{"ip":"10.1.2.3"},{"ip":"fd00::3"}],
      "conditions":[{"type":"Ready"}],
      "initContainerStatuses":[{"name":"setup","containerID":"containerd://aaaaaaaaaaaaaaaa",
        "state":{"terminated":{"exitCode":0}}}],
      "containerStatuses":[{"name":"otc","containerID":"cri-o://)" +
         kId + R"(","state":{"running":{"startedAt":"2026-01-01T00:00:00Z"}}}]}})";
}

TEST(PodList, ReadsWhatIsNeededOfAPod) {
  const auto pod = parse_pod(pod_json());
  ASSERT_TRUE(pod) << pod.error().message;
  EXPECT_EQ(pod->namespace_name, "obs");
  EXPECT_EQ(pod->name, "otc-0");
  EXPECT_EQ(pod->uid, kUid);
  EXPECT_EQ(pod->config_hash, "");
  EXPECT_EQ(pod->node_name, "node-1");
  EXPECT_EQ(pod->phase, "Running");
  EXPECT_EQ(pod->qos, QosClass::kBurstable);
  EXPECT_TRUE(pod->host_network);
  EXPECT_FALSE(pod->opted_out);
  EXPECT_FALSE(pod->terminating);
  EXPECT_THAT(pod->ips, ElementsAre("10.1.2.3", "fd00::3"));
  ASSERT_EQ(pod->containers.size(), 3U);
  const PodContainer& otc = pod->containers[2];
  EXPECT_EQ(otc.name, "otc");
  EXPECT_EQ(otc.id, (ContainerId{ContainerRuntime::kCrio, kId}));
  EXPECT_TRUE(otc.running);
  EXPECT_THAT(otc.ports, ElementsAre(4317, 4318));
  EXPECT_THAT(otc.host_ports, ElementsAre(14317));
  EXPECT_EQ(otc.cpu_limit_cores, 1.5);
  EXPECT_EQ(otc.cpu_request_cores, 1);
  EXPECT_EQ(otc.memory_limit_bytes, 512U << 20U);
  EXPECT_EQ(otc.memory_request_bytes, 100'000'000U);
}

TEST(PodList, LabelsWithTheNamesOfWhatIsLeftOutAreKept) {
  const auto pod = parse_pod(pod_json());
  ASSERT_TRUE(pod);
  EXPECT_EQ(pod->labels, (Labels{{"app", "otel"}, {"env", "prod"}, {"command", "x"}}));
  EXPECT_EQ(pod->containers.size(), 3U);  // what comes behind them is read as before
}

TEST(PodList, AnInitContainerThatStaysIsASidecar) {
  const auto pod = parse_pod(pod_json());
  ASSERT_TRUE(pod);
  EXPECT_TRUE(pod->containers[0].init);
  EXPECT_FALSE(pod->containers[0].running);
  EXPECT_FALSE(pod->containers[1].init);
}

// https://github.com/vectordotdev/vector/issues/6001
TEST(PodList, B06_AMirrorPodNamesTheUidOfItsCgroup) {
  const std::string hash = "7260904bbd08e72e4dff95d9fccd2ee8";
  const auto pod = parse_pod(pod_json(R"(,"annotations":{"kubernetes.io/config.hash":")" + hash +
                                      R"(","kubernetes.io/config.mirror":"x"})"));
  ASSERT_TRUE(pod);
  EXPECT_EQ(pod->config_hash, hash);
  PodList list;
  list.put(*pod);
  ASSERT_NE(list.find(hash), nullptr);
  EXPECT_EQ(list.find(hash)->name, "otc-0");
  EXPECT_EQ(list.find(""), nullptr);
  EXPECT_TRUE(matches(*pod, {.uid = hash}, *LabelSelector::parse("")));
}

TEST(PodList, AHashThatIsNoneIsNotTakenForAPath) {
  const auto pod =
      parse_pod(pod_json(R"(,"annotations":{"kubernetes.io/config.hash":"../../system.slice"})"));
  ASSERT_TRUE(pod);
  EXPECT_EQ(pod->config_hash, "");
}

TEST(PodList, OnlyFalseOptsOut) {
  const auto opted_out = [](const std::string& value) {
    const auto pod = parse_pod(pod_json(R"(,"annotations":{"headgate.io/protect":)" + value + "}"));
    EXPECT_TRUE(pod);
    return pod && pod->opted_out;
  };
  EXPECT_TRUE(opted_out(R"("false")"));
  EXPECT_FALSE(opted_out(R"("true")"));
  EXPECT_FALSE(opted_out("false"));  // an annotation is a string
}

TEST(PodList, ErrorsNameWhatIsMissing) {
  EXPECT_THAT(parse_pod("{").error().message, HasSubstr("no JSON object"));
  EXPECT_THAT(parse_pod(R"({"metadata":{"name":"a","namespace":"b"}})").error().message,
              HasSubstr("without uid"));
  EXPECT_THAT(parse_pod_list("<html>").error().message, HasSubstr("no list of pods"));
  EXPECT_THAT(parse_pod_list(R"({"kind":"PodList","items":[]})").error().message,
              HasSubstr("no resourceVersion"));
  EXPECT_THAT(parse_pod_event(R"({"type":"MOVED","object":{}})").error().message,
              HasSubstr("unknown type 'MOVED'"));
  EXPECT_THAT(parse_pod_event("").error().message, HasSubstr("no event"));
}

TEST(PodList, OnePodThatCannotBeReadDoesNotSpoilTheOthers) {
  const auto list = parse_pod_list(R"({"kind":"PodList","metadata":{"resourceVersion":"9"},
    "items":[{"metadata":{"name":"x"}},)" +
                                   pod_json() + "]}");
  ASSERT_TRUE(list) << list.error().message;
  EXPECT_EQ(list->resource_version, "9");
  EXPECT_EQ(list->pods.by_uid().size(), 1U);
  EXPECT_THAT(list->problems, ElementsAre(HasSubstr("a pod without uid")));
}

TEST(PodList, EventsOfAWatch) {
  const auto event = [](const std::string& type, const std::string& object) {
    return *parse_pod_event(fmt::format(R"({{"type":"{}","object":{}}})", type, object));
  };
  const PodEvent added = event("ADDED", pod_json());
  EXPECT_EQ(added.kind, PodEvent::Kind::kPut);
  EXPECT_EQ(added.pod.name, "otc-0");
  EXPECT_EQ(added.resource_version, "7");
  EXPECT_EQ(event("MODIFIED", pod_json()).kind, PodEvent::Kind::kPut);
  EXPECT_EQ(event("DELETED", pod_json()).kind, PodEvent::Kind::kRemoved);
  const PodEvent bookmark =
      event("BOOKMARK", R"({"kind":"Pod","metadata":{"resourceVersion":"12746"}})");
  EXPECT_EQ(bookmark.kind, PodEvent::Kind::kBookmark);
  EXPECT_EQ(bookmark.resource_version, "12746");
  const PodEvent gone = event(
      "ERROR", R"j({"kind":"Status","message":"too old resource version: 1 (9)","code":410})j");
  EXPECT_EQ(gone.kind, PodEvent::Kind::kError);
  EXPECT_EQ(gone.code, 410);
  EXPECT_EQ(gone.message, "too old resource version: 1 (9)");
}

TEST(PodList, MatchesByAllThatIsGiven) {
  const Pod pod = *parse_pod(pod_json());
  const auto match = [&](const MatchPods& wanted) {
    return matches(pod, wanted, *LabelSelector::parse(wanted.selector));
  };
  EXPECT_TRUE(match({.namespaces = {"a", "obs"}}));
  EXPECT_FALSE(match({.namespaces = {"a"}}));
  EXPECT_TRUE(match({.namespaces = {"obs"}, .selector = "app=otel", .name = "otc-0", .uid = kUid}));
  EXPECT_FALSE(match({.namespaces = {"obs"}, .selector = "app=other", .name = "otc-0"}));
  EXPECT_FALSE(match({.name = "otc-1"}));
  EXPECT_FALSE(match({.uid = "5a163a05-439d-484b-8e53-2968bc15824f"}));
  Pod out = pod;
  out.opted_out = true;
  EXPECT_FALSE(matches(out, {.name = "otc-0"}, *LabelSelector::parse("")));
}

RC_GTEST_PROP(PodListProperty, NoTextIsTooOdd, ()) {
  std::string text = pod_json();
  const auto cuts = *rc::gen::inRange(0, 6);
  for (int i = 0; i < cuts; ++i) {
    const auto at = *rc::gen::inRange<std::size_t>(0, text.size());
    text.replace(at, *rc::gen::inRange<std::size_t>(0, 12),
                 *rc::gen::elementOf(std::vector<std::string>{"", "{", "]", "\"", "null", "-1e999",
                                                              "\xff", "[]", "{}", "7"}));
  }
  (void)parse_pod(text);
  (void)parse_pod_list(R"({"kind":"PodList","metadata":{"resourceVersion":"9"},"items":[)" + text +
                       "]}");
  (void)parse_pod_event(R"({"type":"ADDED","object":)" + text + "}");
  (void)status_message(text);
}

}  // namespace
}  // namespace headgate
