// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "agent/targets/locate.h"
#include "tests/support/fake_cgroup_tree.h"

namespace headgate {
namespace {

using test::FakeCgroupTree;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr unsigned kHostNetns = 4026531840U;
constexpr unsigned kPodNetns = 4026532281U;

struct Host {
  FakeCgroupTree tree;
  Host() {
    tree.v2().directory("system.slice");
    tree.process(1, "0::/init.scope\n", "/lib/systemd/systemd", kHostNetns);
  }
  [[nodiscard]] Locator locator() const {
    return Locator(tree.hierarchy(/*with_proc=*/true), tree.proc_root());
  }
};

TEST(Locate, FindsACgroupWithTheNamespacesOfItsProcesses) {
  Host host;
  host.tree.write("my/collector/cgroup.procs", "100\n101\n")
      .write("my/collector/child/cgroup.procs", "102\n0\n")
      .process(100, "0::/my/collector\n", "/c", kHostNetns)
      .process(101, "0::/my/collector\n", "/c", kPodNetns)
      .process(102, "0::/my/collector/child\n", "/c", kPodNetns);
  const auto found = host.locator().locate(MatchCgroup{"/my/collector/"});
  ASSERT_TRUE(found) << found.error().message;
  ASSERT_EQ(found->size(), 1U);
  const auto& target = found->front();
  EXPECT_EQ(target.cgroup_path, "/my/collector");
  EXPECT_NE(target.cgroup_id, 0U);
  ASSERT_EQ(target.namespaces.size(), 2U);
  EXPECT_EQ(target.namespaces[0].inode, kHostNetns);
  EXPECT_TRUE(target.namespaces[0].host);
  EXPECT_THAT(target.namespaces[0].pids, ElementsAre(100));
  EXPECT_FALSE(target.namespaces[1].host);
  EXPECT_THAT(target.namespaces[1].pids, ElementsAre(101, 102));
  EXPECT_THAT(target.warnings, IsEmpty());
}

TEST(Locate, KeepsAtMostSixteenProcessesANamespace) {
  Host host;
  std::string procs;
  for (int pid = 1000; pid < 1040; ++pid) {
    procs += std::to_string(pid) + "\n";
    host.tree.process(pid, "0::/a\n", "/c", kPodNetns);
  }
  host.tree.write("a/cgroup.procs", procs);
  const auto namespaces = host.locator().namespaces_of("/a");
  ASSERT_EQ(namespaces.size(), 1U);
  EXPECT_EQ(namespaces[0].pids.size(), 16U);
}

TEST(Locate, ATargetThatIsNotThereIsAnErrorThatSaysWhatWasLookedFor) {
  const Host host;
  const auto cgroup = host.locator().locate(MatchCgroup{"/nowhere"});
  ASSERT_FALSE(cgroup);
  EXPECT_THAT(cgroup.error().message, HasSubstr(host.tree.root() + "/nowhere"));
  const auto unit = host.locator().locate(MatchUnit{"otelcol.service"});
  ASSERT_FALSE(unit);
  EXPECT_THAT(unit.error().message, HasSubstr("otelcol.service"));
  const auto exe = host.locator().locate(MatchProcess{"/usr/bin/otelcol"});
  ASSERT_FALSE(exe);
  EXPECT_THAT(exe.error().message, HasSubstr("no process runs /usr/bin/otelcol"));
}

TEST(Locate, A05_TheRootIsRefusedAndTheMessageSaysSo) {
  const Host host;
  const auto root = host.locator().locate(MatchCgroup{"/"});
  ASSERT_FALSE(root);
  EXPECT_THAT(root.error().message, HasSubstr("root of the cgroup tree"));
}

TEST(Locate, FindsAUnitInSystemSliceNestedSlicesAndUserSlices) {
  Host host;
  host.tree.directory("system.slice/a.service")
      .directory("obs.slice/obs-telemetry.slice/b.service")
      .directory("user.slice/user-1000.slice/user@1000.service/app.slice/c.service")
      .directory("kubepods.slice/pod/system.slice/d.service");
  const auto path_of = [&](const char* unit) {
    const auto found = host.locator().locate(MatchUnit{unit});
    return found ? found->front().cgroup_path : found.error().message;
  };
  EXPECT_EQ(path_of("a.service"), "/system.slice/a.service");
  EXPECT_EQ(path_of("a"), "/system.slice/a.service");
  EXPECT_EQ(path_of("b.service"), "/obs.slice/obs-telemetry.slice/b.service");
  EXPECT_EQ(path_of("c.service"),
            "/user.slice/user-1000.slice/user@1000.service/app.slice/c.service");
  EXPECT_EQ(path_of("obs-telemetry.slice"), "/obs.slice/obs-telemetry.slice");
  EXPECT_THAT(path_of("d.service"), HasSubstr("no cgroup of unit"));  // pods are matched as pods
}

TEST(Locate, SaysWhenSeveralCgroupsBearTheUnitsName) {
  Host host;
  host.tree.directory("user.slice/user-1.slice/user@1.service/c.service")
      .directory("user.slice/user-2.slice/user@2.service/c.service");
  const auto found = host.locator().locate(MatchUnit{"c.service"});
  ASSERT_TRUE(found);
  ASSERT_EQ(found->size(), 2U);
  EXPECT_THAT(found->front().warnings, ElementsAre(HasSubstr("2 cgroups are named c.service")));
}

TEST(Locate, FindsAUnitInWhicheverV1TreeHasItAndSaysWhatIsNotAccounted) {
  FakeCgroupTree tree;
  tree.directory("cpu,cpuacct").directory("memory/system.slice/x.service").directory("systemd");
  tree.write("systemd/system.slice/x.service/cgroup.procs", "50\n");
  tree.process(50, "5:name=systemd:/system.slice/x.service\n", "/x", kPodNetns);
  const Locator locator(tree.hierarchy(), tree.proc_root());
  const auto found = locator.locate(MatchUnit{"x.service"});
  ASSERT_TRUE(found) << found.error().message;
  EXPECT_EQ(found->front().cgroup_path, "/system.slice/x.service");
  EXPECT_THAT(found->front().warnings, ElementsAre(HasSubstr("CPUAccounting")));
  ASSERT_EQ(found->front().namespaces.size(), 1U);  // read from the tree that lists processes
}

TEST(Locate, FindsAnExecutableEvenAfterItWasReplaced) {
  Host host;
  host.tree.write("a/cgroup.procs", "100\n101\n")
      .process(100, "0::/a\n", "/usr/bin/otelcol (deleted)")
      .process(101, "0::/a\n", "/usr/bin/otelcol");
  const auto found = host.locator().locate(MatchProcess{"/usr/bin/otelcol"});
  ASSERT_TRUE(found) << found.error().message;
  ASSERT_EQ(found->size(), 1U);
  EXPECT_EQ(found->front().cgroup_path, "/a");
  EXPECT_THAT(found->front().warnings, IsEmpty());
}

TEST(Locate, WarnsWhenTheCgroupOfAnExecutableHoldsOthers) {
  Host host;
  host.tree.write("a/cgroup.procs", "100\n")
      .write("a/sub/cgroup.procs", "101\n")
      .process(100, "0::/a\n", "/usr/bin/otelcol")
      .process(101, "0::/a/sub\n", "/bin/sh");
  const auto found = host.locator().locate(MatchProcess{"/usr/bin/otelcol"});
  ASSERT_TRUE(found);
  EXPECT_THAT(found->front().warnings, ElementsAre(HasSubstr("1 other process")));
}

TEST(Locate, ResolvesLinksInTheConfiguredExecutable) {
  Host host;
  host.tree.write("bin/real", "").link("bin/name", "real");
  host.tree.write("a/cgroup.procs", "100\n")
      .process(100, "0::/a\n", host.tree.root() + "/bin/real");
  EXPECT_TRUE(host.locator().locate(MatchProcess{host.tree.root() + "/bin/name"}));
}

TEST(Locate, AProcessInTheRootCgroupIsAnErrorWithARemedy) {
  Host host;
  host.tree.process(100, "0::/\n", "/usr/bin/otelcol");
  const auto found = host.locator().locate(MatchProcess{"/usr/bin/otelcol"});
  ASSERT_FALSE(found);
  EXPECT_THAT(found.error().message, HasSubstr("root cgroup"));
  EXPECT_THAT(found.error().message, HasSubstr("systemd-run"));
}

TEST(CgroupOf, A14_AStrayV1LineIsPassedOver) {  // coder/clistat#25
  Host host;
  host.tree.process(100, "1:net_cls:/\n0::/docker/abc\n", "/x");
  EXPECT_EQ(*host.locator().cgroup_of(100), "/docker/abc");
}

TEST(CgroupOf, A11_ColonsInThePathAreKept) {
  Host host;
  host.tree.process(100, "0::/system.slice/x.slice:cri-containerd:0f99\n", "/x");
  EXPECT_EQ(*host.locator().cgroup_of(100), "/system.slice/x.slice:cri-containerd:0f99");
}

TEST(CgroupOf, OnV1TheFirstTreeThatPlacesTheProcessDecides) {
  FakeCgroupTree tree;
  tree.directory("cpu").directory("cpuacct").directory("memory").directory("unified");
  tree.process(100, "9:pids:/z\n4:memory:/m\n1:cpu:/\n0::/\n", "/x");
  const Locator locator(tree.hierarchy(), tree.proc_root());
  EXPECT_EQ(*locator.cgroup_of(100), "/m");
}

TEST(CgroupOf, PathsInAPrivateCgroupNamespaceAreMadeWhole) {
  FakeCgroupTree tree;
  tree.v2()
      .write("kubepods/podA/agent/cgroup.procs", "40\n")
      .write("system.slice/o.service/cgroup.procs", "100\n");
  tree.process(1, "0::/../../../init.scope\n", "/sbin/init", kHostNetns)
      .process(40, "0::/\n", "/headgate", kPodNetns)
      .process(41, "0::/../../podB/c\n", "/c", kPodNetns)
      .process(100, "0::/../../../system.slice/o.service\n", "/o", kHostNetns)
      .process(101, "0::/../../../../x\n", "/o", kHostNetns)
      .link_proc("self", "40");
  const Locator locator(tree.hierarchy(), tree.proc_root());
  EXPECT_EQ(*locator.cgroup_of(100), "/system.slice/o.service");
  EXPECT_EQ(*locator.cgroup_of(41), "/kubepods/podB/c");
  EXPECT_EQ(*locator.cgroup_of(40), "/kubepods/podA/agent");
  EXPECT_FALSE(locator.cgroup_of(101));
}

TEST(CgroupOf, SaysWhenThereIsNoSuchProcessOrItsCgroupWasRemoved) {
  Host host;
  host.tree.process(100, "0::/a (deleted)\n", "/x");
  EXPECT_THAT(host.locator().cgroup_of(4711).error().message, HasSubstr("no process 4711"));
  EXPECT_THAT(host.locator().cgroup_of(100).error().message, HasSubstr("was removed"));
}

TEST(HostNetns, IsThatOfProcessOne) {
  const Host host;
  EXPECT_EQ(host.locator().host_netns_inode(), kHostNetns);
}

TEST(HostNetns, IsTheKernelThreadsWhereProcessOneCannotBeRead) {
  FakeCgroupTree tree;
  tree.v2();
  tree.process(1, "0::/init.scope\n", "/sbin/init", 0).process(2, "0::/\n", "", kHostNetns);
  EXPECT_EQ(Locator(tree.hierarchy(), tree.proc_root()).host_netns_inode(), kHostNetns);
}

TEST(HostNetns, IsThatOfMostServicesElse) {
  FakeCgroupTree tree;
  tree.v2();
  tree.process(10, "0::/system.slice/private.service\n", "/p", 7)
      .process(11, "0::/system.slice/sshd.service\n", "/s", kHostNetns)
      .process(12, "0::/system.slice/kubelet.service\n", "/k", kHostNetns)
      .process(13, "0::/system.slice/docker-1.scope\n", "/c", kPodNetns)
      .process(14, "0::/system.slice/docker-1.scope\n", "/c", kPodNetns)
      .process(15, "0::/system.slice/docker-1.scope\n", "/c", kPodNetns);
  EXPECT_EQ(Locator(tree.hierarchy(), tree.proc_root()).host_netns_inode(), kHostNetns);
}

TEST(ParseTarget, KnowsItsForms) {
  Host host;
  host.tree.process(100, "0::/a/b\n", "/x");
  const auto locator = host.locator();
  EXPECT_EQ(std::get<MatchCgroup>(*parse_target("cgroup:/x/y/", locator)).path, "/x/y");
  EXPECT_EQ(std::get<MatchCgroup>(*parse_target("cgroup:" + host.tree.root() + "/x", locator)).path,
            "/x");
  EXPECT_EQ(std::get<MatchUnit>(*parse_target("unit:otelcol", locator)).unit, "otelcol.service");
  EXPECT_EQ(std::get<MatchCgroup>(*parse_target("pid:100", locator)).path, "/a/b");
}

TEST(ParseTarget, PodsByNameOrByUid) {
  const Host host;
  const auto pod = [&](const char* text) {
    return std::get<MatchPods>(*parse_target(text, host.locator()));
  };
  EXPECT_EQ(pod("pod:ns/name"), (MatchPods{.namespaces = {"ns"}, .name = "name"}));
  EXPECT_EQ(pod("pod:ns/name/otc"),
            (MatchPods{.namespaces = {"ns"}, .name = "name", .container = "otc"}));
  EXPECT_EQ(pod("pod:7260904bbd08e72e4dff95d9fccd2ee8/otc"),
            (MatchPods{.uid = "7260904bbd08e72e4dff95d9fccd2ee8", .container = "otc"}));
}

class BadTarget : public ::testing::TestWithParam<std::pair<const char*, const char*>> {};
TEST_P(BadTarget, IsAnErrorThatHelps) {
  const Host host;
  const auto target = parse_target(GetParam().first, host.locator());
  ASSERT_FALSE(target);
  EXPECT_THAT(target.error().message, HasSubstr(GetParam().second));
}
INSTANTIATE_TEST_SUITE_P(
    Texts, BadTarget,
    ::testing::Values(std::pair{"", "cgroup:/path"}, std::pair{"web", "cgroup:/path"},
                      std::pair{"/a", "cgroup:/path"}, std::pair{"container:x", "unknown kind"},
                      std::pair{"cgroup:", "does not begin"},
                      std::pair{"cgroup:a", "does not begin"},
                      std::pair{"cgroup:/", "root of the cgroup tree"},
                      std::pair{"cgroup:/a/../b", ".."}, std::pair{"unit:", "unit's name"},
                      std::pair{"unit:a/b", "unit's name"}, std::pair{"pid:", "whole number"},
                      std::pair{"pid:0", "whole number"}, std::pair{"pid:12x", "whole number"},
                      std::pair{"pid:-1", "whole number"}, std::pair{"pid:4711", "no process"}));

}  // namespace
}  // namespace headgate
