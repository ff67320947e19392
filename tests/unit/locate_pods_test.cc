// SPDX-License-Identifier: Apache-2.0
#include "agent/targets/locate_pods.h"

#include <string>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/fake_cgroup_tree.h"

namespace headgate {
namespace {

using test::FakeCgroupTree;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

constexpr unsigned kHostNetns = 4026531840U;
constexpr unsigned kPodNetns = 4026532281U;
const std::string kUid = "4a163a05-439d-484b-8e53-2968bc15824f";
const std::string kOtherUid = "dde1244b-5bb5-4297-b544-85f3bc0d80bf";
const std::string kStaticUid = "7260904bbd08e72e4dff95d9fccd2ee8";

std::string id(char c) { return std::string(64, c); }

Pod pod(const std::string& uid, const std::string& name,
        const std::vector<std::pair<std::string, char>>& containers) {
  Pod out;
  out.namespace_name = "obs";
  out.name = name;
  out.uid = uid;
  out.phase = "Running";
  out.qos = QosClass::kBurstable;
  out.labels = {{"app", "otel"}};
  for (const auto& [container, digit] : containers) {
    PodContainer one;
    one.name = container;
    one.id = {ContainerRuntime::kContainerd, id(digit)};
    one.running = true;
    out.containers.push_back(std::move(one));
  }
  return out;
}

/// A node with a tree, processes and the pods that somebody tells of.
struct Node {
  FakeCgroupTree tree;
  PodList pods;
  int next_pid = 100;

  Node() {
    tree.v2().directory("system.slice");
    tree.process(1, "0::/init.scope\n", "/lib/systemd/systemd", kHostNetns);
  }
  /// A process in a cgroup that listens on the port, by the socket with this inode.
  int process(const std::string& path, unsigned port = 0, unsigned netns = kPodNetns,
              const char* table = "tcp") {
    const int pid = next_pid++;
    tree.write(path.substr(1) + "/cgroup.procs", std::to_string(pid) + "\n");
    tree.process(pid, "0::" + path + "\n", "/c", netns);
    if (port != 0) {
      tree.link_proc(fmt::format("{}/fd/3", pid), fmt::format("socket:[{}]", 7000 + pid));
      sockets[table] += fmt::format(
          "   0: 00000000:{:04X} 00000000:0000 {} 00000000:00000000 00:00000000 00000000     0   "
          "     0 {} 1 0000000000000000 100 0 0 10 0\n",
          port, std::string(table).starts_with("udp") ? "07" : "0A", 7000 + pid);
    }
    return pid;
  }
  std::map<std::string, std::string> sockets;

  PodsFound find(const MatchPods& match, const std::vector<PodPort>& ports = {{false, 4317}},
                 bool known = true, const std::function<bool(std::uint64_t)>& held = {}) {
    for (int pid = 100; pid < next_pid; ++pid) {
      for (const auto& [table, lines] : sockets) {
        tree.write_proc(fmt::format("{}/net/{}", pid, table), "  sl  local_address ...\n" + lines);
      }
    }
    const Locator locator(tree.hierarchy(/*with_proc=*/true), tree.proc_root());
    PodLocator pods_locator(locator);
    return pods_locator.find({match, ports, known ? &pods : nullptr, "403", held, SIZE_MAX},
                             Instant{} + std::chrono::seconds(1));
  }
};

TEST(LocatePods, FindsTheContainerOfAPodByItsIds) {
  Node node;
  const std::string path = "/kubepods/burstable/pod" + kUid + "/" + id('a');
  node.process(path);
  node.process("/kubepods/burstable/pod" + kUid + "/" + id('0'));  // the pause container
  node.pods.put(pod(kUid, "otc-0", {{"otc", 'a'}}));
  const auto found = node.find({.namespaces = {"obs"}, .selector = "app=otel"});
  ASSERT_THAT(found.fresh, SizeIs(1)) << found.missing;
  EXPECT_EQ(found.fresh[0].cgroup_path, path);
  ASSERT_TRUE(found.fresh[0].pod);
  EXPECT_EQ(found.fresh[0].pod->namespace_name, "obs");
  EXPECT_EQ(found.fresh[0].pod->name, "otc-0");
  EXPECT_EQ(found.fresh[0].pod->uid, kUid);
  EXPECT_EQ(found.fresh[0].pod->container, "otc");
  EXPECT_EQ(found.fresh[0].namespaces.at(0).inode, kPodNetns);
  EXPECT_EQ(found.missing, "");
}

TEST(LocatePods, A34_WhatItsContainerRequestsIsToldAndTakenTimesTheFactor) {
  Node node;
  node.process("/kubepods/burstable/pod" + kUid + "/" + id('a'));
  Pod one = pod(kUid, "otc-0", {{"otc", 'a'}});
  one.containers[0].cpu_request_cores = 0.2;
  one.containers[0].memory_request_bytes = 100U << 20;
  node.pods.put(one);
  const auto found = node.find({.namespaces = {"obs"}, .selector = "app=otel"});
  ASSERT_THAT(found.fresh, SizeIs(1)) << found.missing;
  CapacityConfig config;
  EXPECT_FALSE(capacity_of(config, found.fresh[0]).cpu_cores_by_request) << "off by default";
  config.request_factor = 2.5;
  config.memory_bytes = 7;
  const CapacityOverride capacity = capacity_of(config, found.fresh[0]);
  EXPECT_DOUBLE_EQ(capacity.cpu_cores_by_request.value_or(0), 0.5);
  EXPECT_EQ(capacity.memory_bytes_by_request, 250U << 20);
  EXPECT_EQ(capacity.memory_bytes, 7U);
  EXPECT_FALSE(capacity.cpu_cores);
}

// https://github.com/containerd/nri/issues/227
TEST(LocatePods, B09_WhateverThePrefixIs) {
  const std::string underscored = "4a163a05_439d_484b_8e53_2968bc15824f";
  const std::string scope = "/cri-containerd-" + id('a') + ".scope";
  for (const std::string& path :
       {"/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-burstable.slice/"
        "kubelet-kubepods-burstable-pod" +
            underscored + ".slice" + scope,
        "/kubelet/kubepods/burstable/pod" + kUid + "/" + id('a'),
        "/system.slice/docker-" + id('f') +
            ".scope/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-burstable.slice/"
            "kubelet-kubepods-burstable-pod" +
            underscored + ".slice" + scope,
        "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" + underscored +
            ".slice/crio-" + id('a') + ".scope",
        "/kubepods.slice/kubepods-pod" + underscored + ".slice/docker-" + id('a') + ".scope"}) {
    Node node;
    node.process(path);
    node.pods.put(pod(kUid, "otc-0", {{"otc", 'a'}}));
    const auto found = node.find({.selector = "app=otel"});
    ASSERT_THAT(found.fresh, SizeIs(1)) << path << ": " << found.missing;
    EXPECT_EQ(found.fresh[0].cgroup_path, path);
  }
}

// https://github.com/vectordotdev/vector/issues/6001
TEST(LocatePods, B06_AStaticPodByTheHashOfItsAnnotation) {
  Node node;
  const std::string path = "/kubepods/burstable/pod" + kStaticUid + "/" + id('a');
  node.process(path);
  Pod mirror = pod(kUid, "otc-node-1", {{"otc", 'a'}});
  mirror.config_hash = kStaticUid;
  node.pods.put(mirror);
  const auto found = node.find({.name = "otc-node-1"});
  ASSERT_THAT(found.fresh, SizeIs(1)) << found.missing;
  EXPECT_EQ(found.fresh[0].cgroup_path, path);
}

TEST(LocatePods, AnAnnotationDoesNotLeadToTheCgroupOfAnother) {
  Node node;
  node.process("/kubepods/burstable/pod" + kStaticUid + "/" + id('a'));
  const std::string own = "/kubepods/burstable/pod" + kUid + "/" + id('b');
  node.process(own);
  Pod liar = pod(kUid, "liar", {{"c", 'b'}});
  liar.config_hash = kStaticUid;
  node.pods.put(liar);
  const auto found = node.find({.name = "liar"});
  ASSERT_THAT(found.fresh, SizeIs(1)) << found.missing;
  EXPECT_EQ(found.fresh[0].cgroup_path, own);
}

// envoy#20002: which container of a pod with a proxy is meant
TEST(LocatePods, B14_TheContainerThatListensWhereNoneIsNamed) {
  for (const char* table : {"tcp", "tcp6"}) {
    Node node;
    const std::string base = "/kubepods/burstable/pod" + kUid + "/";
    node.process(base + id('a'), 15001, kPodNetns, table);
    node.process(base + id('b'), 4317, kPodNetns, table);
    node.pods.put(pod(kUid, "otc-0", {{"proxy", 'a'}, {"otc", 'b'}}));
    const auto found = node.find({.selector = "app=otel"});
    ASSERT_THAT(found.fresh, SizeIs(1)) << found.missing;
    EXPECT_EQ(found.fresh[0].pod->container, "otc");
    EXPECT_EQ(found.fresh[0].cgroup_path, base + id('b'));
  }
}

TEST(LocatePods, B14_TheContainerThatIsNamed) {
  Node node;
  const std::string base = "/kubepods/burstable/pod" + kUid + "/";
  node.process(base + id('a'), 4317);
  node.process(base + id('b'));
  node.pods.put(pod(kUid, "otc-0", {{"proxy", 'a'}, {"otc", 'b'}}));
  const auto found = node.find({.selector = "app=otel", .container = "otc"});
  ASSERT_THAT(found.fresh, SizeIs(1)) << found.missing;
  EXPECT_EQ(found.fresh[0].cgroup_path, base + id('b'));
  const auto none = node.find({.selector = "app=otel", .container = "otelcol"});
  EXPECT_THAT(none.fresh, IsEmpty());
  EXPECT_EQ(none.missing, "pod obs/otc-0 has no container 'otelcol'; it has: proxy, otc");
}

TEST(LocatePods, B14_TwoThatListenAreSaid) {
  Node node;
  const std::string base = "/kubepods/burstable/pod" + kUid + "/";
  node.process(base + id('a'), 8125, kPodNetns, "udp");
  node.process(base + id('b'), 4317);
  node.pods.put(pod(kUid, "otc-0", {{"statsd", 'a'}, {"otc", 'b'}}));
  const auto found = node.find({.selector = "app=otel"}, {{false, 4317}, {true, 8125}});
  ASSERT_THAT(found.fresh, SizeIs(1)) << found.missing;
  EXPECT_EQ(found.fresh[0].pod->container, "otc");
  EXPECT_THAT(found.fresh[0].warnings,
              ElementsAre(HasSubstr("container statsd listens on port 8125, too")));
}

TEST(LocatePods, WhileNobodyListensItIsWaitedFor) {
  Node node;
  const std::string base = "/kubepods/burstable/pod" + kUid + "/";
  node.process(base + id('a'));
  node.process(base + id('b'));
  node.pods.put(pod(kUid, "otc-0", {{"proxy", 'a'}, {"otc", 'b'}}));
  const auto found = node.find({.selector = "app=otel"});
  EXPECT_THAT(found.fresh, IsEmpty());
  EXPECT_EQ(found.missing,
            "pod obs/otc-0: none of its containers (proxy, otc) listens on 4317 yet");
}

// https://github.com/istio/istio/issues/24626
TEST(LocatePods, B10_TwoPodsOnTheNodesNetworkAreToldApartByTheirOwnSockets) {
  Node node;
  const std::string one = "/kubepods/burstable/pod" + kUid + "/" + id('a');
  const std::string two = "/kubepods/burstable/pod" + kOtherUid + "/" + id('b');
  node.process(one, 4317, kHostNetns);
  node.process(two, 14317, kHostNetns);
  Pod first = pod(kUid, "a", {{"otc", 'a'}});
  Pod second = pod(kOtherUid, "b", {{"otc", 'b'}});
  first.host_network = second.host_network = true;
  first.ips = second.ips = {"172.30.0.2"};
  node.pods.put(first);
  node.pods.put(second);
  const auto found = node.find({.name = "b"}, {{false, 14317}});
  ASSERT_THAT(found.fresh, SizeIs(1)) << found.missing;
  EXPECT_EQ(found.fresh[0].cgroup_path, two);
  EXPECT_TRUE(found.fresh[0].namespaces.at(0).host);
}

TEST(LocatePods, EachMatchingPodIsATargetButThoseHeldAlready) {
  Node node;
  const std::string one = "/kubepods/burstable/pod" + kUid + "/" + id('a');
  const std::string two = "/kubepods/burstable/pod" + kOtherUid + "/" + id('b');
  node.process(one);
  node.process(two);
  node.pods.put(pod(kUid, "a", {{"otc", 'a'}}));
  node.pods.put(pod(kOtherUid, "b", {{"otc", 'b'}}));
  EXPECT_THAT(node.find({.selector = "app=otel"}).fresh, SizeIs(2));
  const auto held = cgroup_identity(node.tree.hierarchy(), one);
  ASSERT_TRUE(held);
  const auto found = node.find({.selector = "app=otel"}, {}, true,
                               [&](std::uint64_t cgroup) { return cgroup == *held; });
  ASSERT_THAT(found.fresh, SizeIs(1));
  EXPECT_EQ(found.fresh[0].cgroup_path, two);
}

TEST(LocatePods, SaysWhyNothingIsFound) {
  Node node;
  EXPECT_EQ(node.find({.namespaces = {"obs", "web"}, .selector = "app=otel"}).missing,
            "none of the 0 pods of this node has namespace obs or web, selector app=otel");
  node.pods.put(pod(kUid, "otc-0", {{"otc", 'a'}}));
  EXPECT_THAT(node.find({.name = "otc-0"}).missing,
              HasSubstr("pod obs/otc-0 has no cgroup below " + node.tree.root() +
                        " yet: the tree has no kubepods at all"));
  node.tree.directory("kubepods/burstable/pod" + kUid);
  EXPECT_EQ(node.find({.name = "otc-0"}).missing, "pod obs/otc-0: no container runs yet");
  Pod ended = pod(kUid, "otc-0", {{"otc", 'a'}});
  ended.phase = "Succeeded";
  node.pods.put(ended);
  EXPECT_THAT(node.find({.name = "otc-0"}).missing, HasSubstr("none of the 1 pods"));
}

TEST(LocatePods, WithoutAnybodyWhoTellsOfPodsAUidIsEnough) {
  Node node;
  const std::string path = "/kubepods/pod" + kUid + "/" + id('a');
  node.process("/kubepods/pod" + kUid + "/" + id('0'));
  node.process(path, 4317);
  const auto found = node.find({.uid = kUid}, {{false, 4317}}, /*known=*/false);
  ASSERT_THAT(found.fresh, SizeIs(1)) << found.missing;
  EXPECT_EQ(found.fresh[0].cgroup_path, path);
  EXPECT_EQ(found.fresh[0].pod->container, id('a'));
  EXPECT_EQ(found.fresh[0].pod->name, "");
}

TEST(LocatePods, WithoutAnybodyWhoTellsOfPodsItIsSaidWhatIsMissing) {
  Node node;
  const auto by_name = node.find({.namespaces = {"obs"}, .selector = "app=otel"}, {}, false);
  EXPECT_THAT(by_name.missing,
              HasSubstr("pods cannot be told by namespace obs, selector app=otel: 403."));
  node.process("/kubepods/pod" + kUid + "/" + id('a'));
  EXPECT_THAT(node.find({.uid = kUid, .container = "otc"}, {}, false).missing,
              HasSubstr("which of its containers is 'otc' is not known (403)"));
}

TEST(LocatePods, APodIsExcludedWhenItIsKnownAndNotMeant) {
  const Located::Pod located{"obs", "otc-0", kUid, "otc"};
  const MatchPods match{.namespaces = {"obs"}, .selector = "app=otel"};
  PodList pods;
  EXPECT_FALSE(is_excluded(located, match, pods));  // gone, or not told of: its cgroup decides
  Pod known = pod(kUid, "otc-0", {});
  pods.put(known);
  EXPECT_FALSE(is_excluded(located, match, pods));
  known.opted_out = true;
  pods.put(known);
  EXPECT_TRUE(is_excluded(located, match, pods));
  known.opted_out = false;
  known.labels = {{"app", "other"}};
  pods.put(known);
  EXPECT_TRUE(is_excluded(located, match, pods));
}

}  // namespace
}  // namespace headgate
