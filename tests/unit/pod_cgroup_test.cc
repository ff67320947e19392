// SPDX-License-Identifier: Apache-2.0
#include "agent/targets/pod_cgroup.h"

#include <string>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace headgate {
namespace {

const std::string kUid = "4a163a05-439d-484b-8e53-2968bc15824f";
const std::string kUnderscored = "4a163a05_439d_484b_8e53_2968bc15824f";
const std::string kStaticUid = "7260904bbd08e72e4dff95d9fccd2ee8";
const std::string kId = "0f99ad5f4a163a05439d484b8e532968bc15824f0f99ad5f4a163a05439d484b";

struct Row {
  std::string path;
  std::string uid;
  QosClass qos;
  CgroupDriver driver;
  ContainerRuntime runtime;
  std::string container;
};

void expect_all(const std::vector<Row>& rows) {
  for (const Row& row : rows) {
    const auto found = parse_pod_cgroup(row.path);
    ASSERT_TRUE(found) << row.path;
    EXPECT_EQ(found->uid, row.uid) << row.path;
    EXPECT_EQ(found->qos, row.qos) << row.path;
    EXPECT_EQ(found->driver, row.driver) << row.path;
    EXPECT_EQ(found->container.runtime, row.runtime) << row.path;
    EXPECT_EQ(found->container.id, row.container) << row.path;
  }
}

// https://github.com/grafana/beyla/issues/588
TEST(PodCgroup, B01_UidContainerAndClassOfBothDrivers) {
  expect_all({{"/kubepods/burstable/pod" + kUid + "/" + kId, kUid, QosClass::kBurstable,
               CgroupDriver::kCgroupfs, ContainerRuntime::kUnknown, kId},
              {"/kubepods.slice/kubepods-burstable.slice/"
               "kubepods-burstable-poddde1244b_5bb5_4297_b544_85f3bc0d80bf.slice/"
               "cri-containerd-" +
                   kId + ".scope",
               "dde1244b-5bb5-4297-b544-85f3bc0d80bf", QosClass::kBurstable, CgroupDriver::kSystemd,
               ContainerRuntime::kContainerd, kId},
              {"/kubepods/besteffort/pod" + kUid, kUid, QosClass::kBestEffort,
               CgroupDriver::kCgroupfs, ContainerRuntime::kUnknown, ""}});
}

TEST(PodCgroup, AGuaranteedPodHasNoDirectoryOfItsClass) {
  expect_all({{"/kubepods/pod" + kUid + "/" + kId, kUid, QosClass::kGuaranteed,
               CgroupDriver::kCgroupfs, ContainerRuntime::kUnknown, kId},
              {"/kubepods.slice/kubepods-pod" + kUnderscored + ".slice/crio-" + kId + ".scope",
               kUid, QosClass::kGuaranteed, CgroupDriver::kSystemd, ContainerRuntime::kCrio, kId}});
}

// https://github.com/kinvolk/traceloop/issues/34
TEST(PodCgroup, B03_NamesOfEveryRuntime) {
  const std::string systemd = "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod" +
                              kUnderscored + ".slice/";
  const std::string cgroupfs = "/kubepods/besteffort/pod" + kUid + "/";
  const auto row = [&](const std::string& path, CgroupDriver driver, ContainerRuntime runtime) {
    return Row{path, kUid, QosClass::kBestEffort, driver, runtime, kId};
  };
  using enum ContainerRuntime;
  expect_all(
      {row(systemd + "docker-" + kId + ".scope", CgroupDriver::kSystemd, kDocker),
       row(systemd + "crio-" + kId + ".scope", CgroupDriver::kSystemd, kCrio),
       row(systemd + "cri-containerd-" + kId + ".scope", CgroupDriver::kSystemd, kContainerd),
       row(systemd + kId, CgroupDriver::kSystemd, kUnknown),
       row(cgroupfs + kId, CgroupDriver::kCgroupfs, kUnknown),
       row(cgroupfs + "crio-" + kId, CgroupDriver::kCgroupfs, kCrio),
       row(cgroupfs + "libpod-" + kId, CgroupDriver::kCgroupfs, kUnknown)});
}

// https://github.com/iovisor/kubectl-trace/issues/174
TEST(PodCgroup, B04_IdsOfTheApiAndNamesOfPathsAreTheSame) {
  const auto api = parse_container_id("cri-o://" + kId);
  ASSERT_TRUE(api);
  EXPECT_EQ(api->runtime, ContainerRuntime::kCrio);
  EXPECT_EQ(api->id, kId);
  const auto path = parse_pod_cgroup("/kubepods.slice/kubepods-pod" + kUnderscored +
                                     ".slice/crio-" + kId + ".scope");
  ASSERT_TRUE(path);
  EXPECT_EQ(path->container, *api);
  EXPECT_EQ(path->uid, kUid);
  EXPECT_EQ(parse_container_id("containerd://" + kId)->runtime, ContainerRuntime::kContainerd);
  EXPECT_EQ(parse_container_id("docker://" + kId)->runtime, ContainerRuntime::kDocker);
  EXPECT_EQ(parse_container_id("rkt://" + kId)->id, kId);
  EXPECT_FALSE(parse_container_id("containerd://"));
  EXPECT_FALSE(parse_container_id(""));
  EXPECT_FALSE(parse_container_id("containerd://../" + kId));
}

// https://github.com/vectordotdev/vector/issues/6001, kubernetes#67537
TEST(PodCgroup, B06_AStaticPodsUidHasNoDashes) {
  expect_all({{"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" + kStaticUid +
                   ".slice/cri-containerd-" + kId + ".scope",
               kStaticUid, QosClass::kBurstable, CgroupDriver::kSystemd,
               ContainerRuntime::kContainerd, kId},
              {"/kubepods/pod" + kStaticUid, kStaticUid, QosClass::kGuaranteed,
               CgroupDriver::kCgroupfs, ContainerRuntime::kUnknown, ""}});
}

// https://github.com/containerd/nri/issues/227
TEST(PodCgroup, B09_PrefixesOfKindAndOfTheKubeletsCgroupRoot) {
  expect_all(
      {{"/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-burstable.slice/"
        "kubelet-kubepods-burstable-pod" +
            kUnderscored + ".slice/cri-containerd-" + kId + ".scope",
        kUid, QosClass::kBurstable, CgroupDriver::kSystemd, ContainerRuntime::kContainerd, kId},
       {"/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod" + kUnderscored + ".slice",
        kUid, QosClass::kGuaranteed, CgroupDriver::kSystemd, ContainerRuntime::kUnknown, ""},
       {"/kubelet/kubepods/burstable/pod" + kUid + "/" + kId, kUid, QosClass::kBurstable,
        CgroupDriver::kCgroupfs, ContainerRuntime::kUnknown, kId},
       {"/system.slice/docker-" + kId +
            ".scope/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod" + kUnderscored +
            ".slice/cri-containerd-" + kId + ".scope",
        kUid, QosClass::kGuaranteed, CgroupDriver::kSystemd, ContainerRuntime::kContainerd, kId}});
}

// https://github.com/open-telemetry/opentelemetry-collector/issues/6389
TEST(PodCgroup, A11_ColonsInThePath) {
  const std::string path =
      "/system.slice/containerd.service/"
      "kubepods-burstable-podff49d0be_16b7_4a49_bb9e_8ec1f1f4e27f.slice:cri-containerd:" +
      kId;
  const auto found = parse_pod_cgroup(path);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->uid, "ff49d0be-16b7-4a49-bb9e-8ec1f1f4e27f");
  EXPECT_EQ(found->qos, QosClass::kBurstable);
  EXPECT_EQ(found->container, (ContainerId{ContainerRuntime::kContainerd, kId}));
  EXPECT_EQ(found->pod_path, "");
  EXPECT_EQ(found->container_path, path);
}

TEST(PodCgroup, WhatIsNestedInAContainerBelongsToIt) {
  const std::string container = "/kubepods/burstable/pod" + kUid + "/" + kId;
  for (const char* below : {"/init.scope", "/system.slice/x.service", "/kubepods/pod1"}) {
    const auto found = parse_pod_cgroup(container + below);
    ASSERT_TRUE(found) << below;
    EXPECT_EQ(found->container_path, container);
    EXPECT_EQ(found->pod_path, "/kubepods/burstable/pod" + kUid);
    EXPECT_EQ(found->container.id, kId);
  }
}

TEST(PodCgroup, WhatIsNoPodIsNone) {
  for (const std::string& path :
       {std::string(), std::string("/"), std::string("/kubepods"),
        std::string("/kubepods/burstable"), std::string("/kubepods/burstable/podX"),
        std::string("/system.slice/otelcol.service"), "/kubepods/other/pod" + kUid,
        "/mykubepods/pod" + kUid, "/kubepods/burstable/pod" + kUnderscored,
        "/kubepods/burstable/" + kUid, "/docker/" + kId,
        "/kubepods.slice/kubepods-burstable.slice/other-burstable-pod" + kUnderscored + ".slice",
        "/kubepods.slice/kubepods-burstable-pod" + kUnderscored,
        "/system.slice/kubepods-pod" + kUnderscored + ".slice"}) {
    EXPECT_FALSE(parse_pod_cgroup(path)) << path;
  }
}

TEST(PodCgroup, TheMonitorOfCrioIsNoContainer) {
  const auto found = parse_pod_cgroup("/kubepods.slice/kubepods-pod" + kUnderscored +
                                      ".slice/crio-conmon-" + kId + ".scope");
  ASSERT_TRUE(found);
  EXPECT_EQ(found->container.id, "");
  EXPECT_FALSE(parse_container_directory("crio-conmon-" + kId + ".scope"));
}

TEST(PodCgroup, ClassesAreTheApisWords) {
  EXPECT_EQ(parse_qos("BestEffort"), QosClass::kBestEffort);
  EXPECT_EQ(parse_qos("besteffort"), std::nullopt);
}

// ---------------------------------------------------------------- properties

std::string hex(std::size_t digits) {
  return *rc::gen::container<std::string>(digits,
                                          rc::gen::elementOf(std::string("0123456789abcdef")));
}

std::string any_uid() {
  std::string uid = hex(32);
  if (*rc::gen::arbitrary<bool>()) {
    for (const std::size_t at : {8U, 13U, 18U, 23U}) {
      uid.insert(at, "-");
    }
  }
  return uid;
}

RC_GTEST_PROP(PodCgroupProperty, EveryPathThatIsMadeIsReadBack, ()) {
  const auto root = *rc::gen::elementOf(
      std::vector<PodRoot>{{"/kubepods", CgroupDriver::kCgroupfs},
                           {"/kubelet/kubepods", CgroupDriver::kCgroupfs},
                           {"/kubepods.slice", CgroupDriver::kSystemd},
                           {"/kubelet.slice/kubelet-kubepods.slice", CgroupDriver::kSystemd},
                           {"/a.slice/a-b.slice/a-b-kubepods.slice", CgroupDriver::kSystemd}});
  RC_ASSERT(parse_pod_root(root.path) == root);
  const auto qos =
      *rc::gen::element(QosClass::kGuaranteed, QosClass::kBurstable, QosClass::kBestEffort);
  const auto uid = any_uid();
  const ContainerId container{
      *rc::gen::element(ContainerRuntime::kContainerd, ContainerRuntime::kCrio,
                        ContainerRuntime::kDocker, ContainerRuntime::kUnknown),
      hex(*rc::gen::inRange<std::size_t>(12, 65))};
  const std::string pod = pod_cgroup_path(root, qos, uid);
  const std::string path = pod + "/" + container_directory(root.driver, container);
  const auto found = parse_pod_cgroup(path);
  RC_ASSERT(found.has_value());
  RC_ASSERT(found->uid == uid);
  RC_ASSERT(found->qos == qos);
  RC_ASSERT(found->driver == root.driver);
  RC_ASSERT(found->pod_path == pod);
  RC_ASSERT(found->container_path == path);
  RC_ASSERT(found->container.id == container.id);
  RC_ASSERT(parse_pod_cgroup(pod)->container.id.empty());
}

RC_GTEST_PROP(PodCgroupProperty, NoTextIsTooOdd, (const std::string& text)) {
  const auto part = *rc::gen::elementOf(std::vector<std::string>{
      "/", "kubepods", ".slice", "-", "pod", "burstable", ":", "_", ".scope", "crio-", kUid, kId});
  for (const std::string& path : {text, "/kubepods/" + text, "/kubepods.slice/kubepods-" + text,
                                  text + part + text, part + text + part}) {
    const auto found = parse_pod_cgroup(path);
    if (found) {
      RC_ASSERT(is_pod_uid(found->uid));
      RC_ASSERT(path.starts_with(found->pod_path));
      RC_ASSERT(path.starts_with(found->container_path));
    }
  }
}

}  // namespace
}  // namespace headgate
