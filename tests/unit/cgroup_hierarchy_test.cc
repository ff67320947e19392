// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "agent/cgroup/hierarchy.h"
#include "agent/cgroup/sampler.h"
#include "tests/support/fake_cgroup_tree.h"

namespace headgate {
namespace {

using Mode = Hierarchy::Mode;
using test::FakeCgroupTree;

TEST(Hierarchy, ControllersAtTheRootAreV2) {
  FakeCgroupTree tree;
  tree.v2();
  const auto found = tree.hierarchy();
  EXPECT_EQ(found.mode, Mode::kV2);
  EXPECT_EQ(found.unified, tree.root());
  EXPECT_EQ(found.of(Controller::kMemory).version, CgroupVersion::kV2);
  EXPECT_EQ(found.of(Controller::kMemory).path, tree.root());
  EXPECT_EQ(found.trees().size(), 1U);
}

TEST(Hierarchy, ACgroupNamedLikeAControllerDoesNotMakeAV2RootV1) {
  FakeCgroupTree tree;
  tree.v2().write("cpu/cpu.max", "max 100000\n").write("memory/memory.max", "max\n");
  const auto found = tree.hierarchy();
  EXPECT_EQ(found.mode, Mode::kV2);
  EXPECT_EQ(found.of(Controller::kCpu).version, CgroupVersion::kV2);
}

TEST(Hierarchy, OneDirectoryAControllerIsV1) {
  FakeCgroupTree tree;
  tree.directory("cpu").directory("cpuacct").directory("cpuset").directory("memory");
  const auto found = tree.hierarchy();
  EXPECT_EQ(found.mode, Mode::kV1);
  EXPECT_EQ(found.of(Controller::kCpu).path, tree.root() + "/cpu");
  EXPECT_EQ(found.of(Controller::kCpuacct).path, tree.root() + "/cpuacct");
  EXPECT_EQ(found.unified, "");
}

TEST(Hierarchy, JointControllersAreFoundThroughTheirLinksAndWithoutThem) {
  FakeCgroupTree tree;
  tree.directory("cpu,cpuacct").directory("memory");
  EXPECT_EQ(tree.hierarchy().of(Controller::kCpuacct).path, tree.root() + "/cpu,cpuacct");
  EXPECT_EQ(tree.hierarchy().of(Controller::kCpu).path, tree.root() + "/cpu,cpuacct");
  tree.link("cpu", "cpu,cpuacct").link("cpuacct", "cpu,cpuacct");
  const auto linked = tree.hierarchy();
  EXPECT_EQ(linked.of(Controller::kCpu).version, CgroupVersion::kV1);
  EXPECT_EQ(linked.of(Controller::kCpu).path, tree.root() + "/cpu,cpuacct");
  EXPECT_EQ(linked.of(Controller::kCpuacct).path, tree.root() + "/cpu,cpuacct");
  EXPECT_EQ(linked.trees().size(), 2U);  // one tree, not one a name
}

TEST(Hierarchy, ALinkToADirectoryElsewhereIsFollowed) {
  FakeCgroupTree tree;
  tree.directory("elsewhere/x").link("cpu", "elsewhere/x");
  EXPECT_EQ(tree.hierarchy().of(Controller::kCpu).path, tree.root() + "/cpu");
}

TEST(Hierarchy, A16_HybridChoosesPerControllerWhoOwnsIt) {  // VictoriaMetrics/metrics#112
  FakeCgroupTree tree;
  tree.write("unified/cgroup.controllers", "memory pids\n")
      .write("cpu/cpu.shares", "1024\n")
      .write("cpuacct/cpuacct.usage", "0\n")
      .directory("memory");  // a left-over mount point: v2 lists the controller
  const auto found = tree.hierarchy();
  EXPECT_EQ(found.mode, Mode::kHybrid);
  EXPECT_EQ(found.of(Controller::kCpu).version, CgroupVersion::kV1);
  EXPECT_EQ(found.of(Controller::kMemory).version, CgroupVersion::kV2);
  EXPECT_EQ(found.of(Controller::kMemory).path, tree.root() + "/unified");
  EXPECT_EQ(found.unified, tree.root() + "/unified");
}

TEST(Hierarchy, A14_AStrayV1MountBesideV2LeavesCpuAndMemoryToV2) {  // coder/clistat#25
  FakeCgroupTree tree;
  tree.v2().directory("net_cls");
  tree.process(7, "1:net_cls:/\n0::/docker/abc\n", "/bin/x");
  const auto found = tree.hierarchy();
  EXPECT_EQ(found.of(Controller::kCpu).version, CgroupVersion::kV2);
  EXPECT_EQ(found.of(Controller::kMemory).version, CgroupVersion::kV2);
}

TEST(Hierarchy, NoTreeIsAnErrorThatSaysWhatWasLookedFor) {
  FakeCgroupTree tree;
  const auto empty = Hierarchy::detect(tree.root());
  ASSERT_FALSE(empty);
  EXPECT_NE(empty.error().message.find("cgroup.controllers"), std::string::npos);
  const auto none = Hierarchy::detect(tree.root() + "/nowhere");
  ASSERT_FALSE(none);
  EXPECT_NE(none.error().message.find("no such directory"), std::string::npos);
}

TEST(Hierarchy, A05_ARootWithoutCpuMaxIsATreeAndNeverATarget) {  // envoy#39978
  FakeCgroupTree tree;
  tree.write("cpu.stat", "usage_usec 5\n").write("cpuset.cpus.effective", "0-3\n");
  const auto found = Hierarchy::detect(tree.root());
  ASSERT_TRUE(found) << found.error().message;
  const auto sampler = CgroupSampler::open(*found, "/", {});
  ASSERT_FALSE(sampler);
  EXPECT_NE(sampler.error().message.find("root of the cgroup tree"), std::string::npos);
}

TEST(Hierarchy, A09_AMountedSubtreeIsTakenOffThePath) {  // golang/go#76390, moby#34584
  FakeCgroupTree tree;
  tree.write("cpu/cpu.cfs_quota_us", "50000\n")
      .write("cpu/cpu.cfs_period_us", "100000\n")
      .write("cpuacct/cpuacct.usage", "77\n");
  std::string mountinfo;
  for (const char* controller : {"cpu", "cpuacct"}) {
    mountinfo += "410 400 0:33 /kubepods/besteffort/podX/C /sys/fs/cgroup/" +
                 std::string(controller) + " ro - cgroup cgroup rw," + controller + "\n";
  }
  tree.write_proc("self/mountinfo", mountinfo);
  const auto found = tree.hierarchy(/*with_proc=*/true);
  EXPECT_EQ(found.of(Controller::kCpu).directory("/kubepods/besteffort/podX/C"),
            tree.root() + "/cpu");
  EXPECT_EQ(found.of(Controller::kCpu).directory("/kubepods/besteffort/podX/C/sub"),
            tree.root() + "/cpu/sub");
  EXPECT_EQ(found.of(Controller::kCpu).directory("/kubepods/besteffort/podX/Cx"),
            tree.root() + "/cpu/kubepods/besteffort/podX/Cx");
  const auto sampler = CgroupSampler::open(found, "/kubepods/besteffort/podX/C", {});
  ASSERT_TRUE(sampler) << sampler.error().message;
  const Sample& sample = (*sampler)->sample(Instant(std::chrono::seconds(1)));
  EXPECT_EQ(sample.cpu_usage_ns.value, 77U);
  EXPECT_EQ(sample.limits.cpu_cores.value, 0.5);
}

TEST(TargetPath, IsNormalisedOrRefused) {
  EXPECT_EQ(*normalise_target_path("//a///b/"), "/a/b");
  for (const char* bad : {"", "a/b", "/", "//", "/a/../b", "/./a"}) {
    EXPECT_FALSE(normalise_target_path(bad)) << bad;
  }
}

TEST(CgroupIdentity, ChangesWhenTheDirectoryIsMadeAgain) {
  FakeCgroupTree tree;
  tree.v2().directory("a");
  const auto hierarchy = tree.hierarchy();
  const auto sampler = CgroupSampler::open(hierarchy, "/a", {});  // holds the old directory
  ASSERT_TRUE(sampler);
  const auto before = cgroup_identity(hierarchy, "/a");
  tree.recreate("a");
  EXPECT_NE(*before, *cgroup_identity(hierarchy, "/a"));
  EXPECT_EQ((*sampler)->cgroup_id(), *before);
}

}  // namespace
}  // namespace headgate
