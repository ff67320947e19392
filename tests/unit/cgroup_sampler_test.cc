// SPDX-License-Identifier: Apache-2.0
// What a sampler makes of a tree. A-numbers are inputs from public bug reports of this field.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <map>
#include <memory>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "agent/cgroup/limits.h"
#include "agent/cgroup/sampler.h"
#include "tests/support/fake_cgroup_tree.h"

namespace headgate {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using test::FakeCgroupTree;

Instant at(Duration since_start) { return Instant(seconds(1000) + since_start); }

std::unique_ptr<CgroupSampler> open(const FakeCgroupTree& tree, const std::string& path,
                                    const CapacityOverride& capacity = {}) {
  auto sampler = CgroupSampler::open(tree.hierarchy(), path, capacity);
  EXPECT_TRUE(sampler) << sampler.error().message;
  return sampler ? std::move(*sampler) : nullptr;
}

std::uint64_t errors_of(const CgroupSampler& sampler, const std::string& file, Unknown reason) {
  for (const auto& [key, count] : sampler.errors()) {
    if (key.first == file && key.second == reason) {
      return count;
    }
  }
  return 0;
}

/// A healthy v2 cgroup "a" with half a core and 1 MiB.
struct V2 {
  FakeCgroupTree tree;
  V2() {
    tree.v2()
        .write("cpuset.cpus.effective", "0-3\n")
        .write("a/cpu.stat", "usage_usec 5000\nnr_periods 10\nnr_throttled 4\nthrottled_usec 300\n")
        .write("a/cpu.pressure", "some avg10=0.00 avg60=0.00 avg300=0.00 total=42\n")
        .write("a/cpu.max", "50000 100000\n")
        .write("a/memory.current", "500000\n")
        .write("a/memory.max", "1048576\n")
        .write("a/memory.stat", "anon 1\ninactive_file 100000\n")
        .write("a/memory.pressure", "some avg10=0.00 avg60=0.00 avg300=0.00 total=7\n")
        .write("a/memory.events", "low 0\nhigh 0\nmax 3\noom 1\noom_kill 2\n");
  }
};

TEST(Sampler, ReadsEverythingOfAV2Cgroup) {
  const V2 v2;
  const auto sampler = open(v2.tree, "/a");
  const Sample& s = sampler->sample(at({}));
  EXPECT_EQ(s.at, at({}));
  EXPECT_EQ(s.cpu_usage_ns.value, 5'000'000U);
  EXPECT_EQ(s.cpu_periods.value, 10U);
  EXPECT_EQ(s.cpu_throttled_periods.value, 4U);
  EXPECT_EQ(s.cpu_throttled_ns.value, 300'000U);
  EXPECT_EQ(s.cpu_pressure_some_us.value, 42U);
  EXPECT_EQ(s.memory_current_bytes.value, 500'000U);
  EXPECT_EQ(s.memory_inactive_file_bytes.value, 100'000U);
  EXPECT_EQ(s.memory_pressure_some_us.value, 7U);
  EXPECT_EQ(s.memory_events_max.value, 3U);
  EXPECT_EQ(s.memory_oom_kills.value, 2U);
  EXPECT_EQ(s.limits.cpu_cores.value, 0.5);
  EXPECT_EQ(s.limits.cpu_source, LimitSource::kOwn);
  EXPECT_EQ(s.limits.memory_bytes.value, 1'048'576U);
  EXPECT_EQ(s.limits.memory_source, LimitSource::kOwn);
  EXPECT_TRUE(sampler->errors().empty());
}

TEST(Sampler, A16_HybridTakesThrottlingFromV1AndPressureFromV2) {  // VictoriaMetrics/metrics#112
  FakeCgroupTree tree;
  tree.write("unified/cgroup.controllers", "hugetlb\n")
      .write("unified/a/cpu.stat", "usage_usec 1\nuser_usec 1\nsystem_usec 0\n")
      .write("unified/a/cpu.pressure", "some avg10=0.00 avg60=0.00 avg300=0.00 total=5\n")
      .write("unified/a/memory.pressure", "some avg10=0.00 avg60=0.00 avg300=0.00 total=6\n")
      .write("cpu/a/cpu.stat", "nr_periods 7\nnr_throttled 2\nthrottled_time 127918677\n")
      .write("cpu/a/cpu.cfs_quota_us", "200000\n")
      .write("cpu/a/cpu.cfs_period_us", "100000\n")
      .write("cpuacct/a/cpuacct.usage", "12345\n")
      .write("memory/a/memory.usage_in_bytes", "4096\n")
      .write("memory/a/memory.limit_in_bytes", "1000000\n")
      .write("memory/a/memory.stat", "inactive_file 1\ntotal_inactive_file 2\n")
      .write("memory/a/memory.failcnt", "9\n")
      .write("memory/a/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n");
  const auto sampler = open(tree, "/a");
  const Sample& s = sampler->sample(at({}));
  EXPECT_EQ(s.cpu_usage_ns.value, 12345U);  // nanoseconds in v1
  EXPECT_EQ(s.cpu_periods.value, 7U);
  EXPECT_EQ(s.cpu_throttled_periods.value, 2U);
  EXPECT_EQ(s.cpu_throttled_ns.value, 127918677U);
  EXPECT_EQ(s.cpu_pressure_some_us.value, 5U);
  EXPECT_EQ(s.memory_pressure_some_us.value, 6U);
  EXPECT_EQ(s.memory_current_bytes.value, 4096U);
  EXPECT_EQ(s.memory_inactive_file_bytes.value, 2U);
  EXPECT_EQ(s.memory_events_max.value, 9U);
  EXPECT_EQ(s.memory_oom_kills.value, 1U);
  EXPECT_EQ(s.limits.cpu_cores.value, 2.0);
  EXPECT_EQ(s.limits.memory_bytes.value, 1'000'000U);
  EXPECT_TRUE(sampler->errors().empty());
}

TEST(Sampler, A07_LimitsAreTheSmallestOfTheAncestors) {  // VictoriaMetrics#10635, v2slice
  FakeCgroupTree tree;
  tree.v2()
      .write("cpu.max", "max 100000\n")
      .write("memory.max", "max\n")
      .write("vm.slice/cpu.max", "200000 100000\n")
      .write("vm.slice/memory.max", "1073741824\n")
      .write("vm.slice/leaf/cpu.max", "max 100000\n")
      .write("vm.slice/leaf/memory.max", "max\n");
  const auto sampler = open(tree, "/vm.slice/leaf");
  const auto& limits = sampler->sample(at({})).limits;
  EXPECT_EQ(limits.cpu_cores.value, 2.0);
  EXPECT_EQ(limits.cpu_source, LimitSource::kAncestor);
  EXPECT_EQ(limits.memory_bytes.value, 1073741824U);
  EXPECT_EQ(limits.memory_source, LimitSource::kAncestor);
}

TEST(Sampler, A01_OneNumberIsTwoCores) {
  V2 v2;
  v2.tree.write("a/cpu.max", "200000\n");
  EXPECT_EQ(open(v2.tree, "/a")->sample(at({})).limits.cpu_cores.value, 2.0);
}

TEST(Sampler, A02_MaxAloneIsUnlimitedHereAndNoError) {
  V2 v2;
  v2.tree.write("a/cpu.max", "max\n");
  const auto sampler = open(v2.tree, "/a");
  const auto& limits = sampler->sample(at({})).limits;
  EXPECT_EQ(limits.cpu_cores.reason, Unknown::kNoLimit);
  EXPECT_FALSE(limits.cpu_cores.known());
  EXPECT_TRUE(sampler->errors().empty());
}

class BrokenCpuMax : public ::testing::TestWithParam<const char*> {};
TEST_P(BrokenCpuMax, A04_MakesTheCpuLimitUnknownAndLeavesMemoryAlone) {
  V2 v2;
  v2.tree.write("cpu.max", "100000 100000\n").write("a/cpu.max", GetParam());
  const auto sampler = open(v2.tree, "/a");
  const Sample& s = sampler->sample(at({}));
  EXPECT_FALSE(s.limits.cpu_cores.known());
  EXPECT_EQ(s.limits.cpu_cores.reason, Unknown::kParse);
  EXPECT_EQ(s.limits.memory_bytes.value, 1'048'576U);
  EXPECT_EQ(s.memory_current_bytes.value, 500'000U);
  EXPECT_EQ(errors_of(*sampler, "cpu.max", Unknown::kParse), 1U);
}
INSTANTIATE_TEST_SUITE_P(Texts, BrokenCpuMax,
                         ::testing::Values("", "asdf 100000", "100000 njn", "1 2 3", "100000 0"));

TEST(Sampler, A04_ABrokenUsageFileIsCountedOncePerSample) {
  V2 v2;
  v2.tree.write("a/cpu.stat", "usage_usec ?\nnr_periods ?\n");
  const auto sampler = open(v2.tree, "/a");
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(sampler->sample(at(milliseconds(100 * i))).cpu_usage_ns.reason, Unknown::kParse);
  }
  EXPECT_EQ(errors_of(*sampler, "cpu.stat", Unknown::kParse), 5U);
}

TEST(Sampler, A12_AHugeQuotaIsClippedToTheCpus) {  // otel-collector#6443
  FakeCgroupTree tree;
  tree.write("cpu/a/cpu.cfs_quota_us", "4000000000\n")
      .write("cpu/a/cpu.cfs_period_us", "100000\n")
      .write("cpuset/cpuset.cpus", "0-7\n")
      .write("cpuset/a/cpuset.cpus", "\n");
  const auto sampler = open(tree, "/a");
  EXPECT_EQ(sampler->sample(at({})).limits.cpu_cores.value, 8.0);
  EXPECT_EQ(sampler->sample(at({})).limits.cpu_source, LimitSource::kCpuset);
  tree.write("cpu/a/cpu.cfs_quota_us", "-1\n");
  const auto& limits = sampler->sample(at(seconds(1))).limits;
  EXPECT_FALSE(limits.cpu_cores.known());  // the host's CPUs are no limit by themselves
  EXPECT_EQ(limits.cpu_cores.reason, Unknown::kNoLimit);
  EXPECT_EQ(limits.cpu_source, LimitSource::kUnlimited);
}

TEST(Sampler, A17_WithoutTheCpuControllerThrottlingIsAbsentAndUsageIsUsed) {
  V2 v2;
  v2.tree.write("a/cpu.stat", "usage_usec 8\nuser_usec 8\nsystem_usec 0\n");
  const auto sampler = open(v2.tree, "/a");
  const Sample& s = sampler->sample(at({}));
  EXPECT_EQ(s.cpu_usage_ns.value, 8000U);
  EXPECT_FALSE(s.cpu_throttled_periods.known());
  EXPECT_EQ(s.cpu_throttled_periods.reason, Unknown::kAbsent);
  EXPECT_TRUE(sampler->errors().empty());
}

TEST(Sampler, A19_MissingOptionalFilesEndNothing) {  // zeromicro/go-zero#24
  FakeCgroupTree tree;
  tree.write("cpuacct/a/cpuacct.usage", "5\n");  // no usage_percpu, and nothing else either
  const auto sampler = open(tree, "/a");
  const Sample& s = sampler->sample(at({}));
  EXPECT_EQ(s.cpu_usage_ns.value, 5U);
  EXPECT_EQ(s.memory_current_bytes.reason, Unknown::kMissing);
  EXPECT_EQ(s.cpu_pressure_some_us.reason, Unknown::kMissing);
  EXPECT_FALSE(sampler->gone());
}

TEST(Sampler, A21_A23_ACpusetSmallerThanTheHostsIsALimit) {  // sysdig#1546
  FakeCgroupTree tree;
  tree.directory("cpu/p/a")
      .write("cpuset/cpuset.cpus", "0-11\n")
      .write("cpuset/p/cpuset.cpus", "0-3,8\n")
      .write("cpuset/p/a/cpuset.cpus", "0-1\n");
  const auto sampler = open(tree, "/p/a");
  EXPECT_EQ(sampler->sample(at({})).limits.cpu_cores.value, 2.0);
  EXPECT_EQ(sampler->sample(at({})).limits.cpu_source, LimitSource::kCpuset);
  tree.write("cpuset/p/a/cpuset.cpus", "\n");  // inherited: go to the parent
  EXPECT_EQ(sampler->sample(at(seconds(1))).limits.cpu_cores.value, 5.0);
  tree.write("cpuset/p/a/cpuset.cpus", "0-\n");
  EXPECT_EQ(sampler->sample(at(seconds(2))).limits.cpu_cores.reason, Unknown::kParse);
  EXPECT_EQ(errors_of(*sampler, "cpuset.cpus", Unknown::kParse), 1U);
}

TEST(Sampler, TheEffectiveCpusetComesBeforeTheConfiguredOne) {
  V2 v2;
  v2.tree.write("a/cpu.max", "max 100000\n")
      .write("a/cpuset.cpus", "0-3\n")
      .write("a/cpuset.cpus.effective", "2\n");
  EXPECT_EQ(open(v2.tree, "/a")->sample(at({})).limits.cpu_cores.value, 1.0);
}

TEST(Sampler, A24_FractionsOfACoreAreKept) {  // Sentinel#3120, #1844
  V2 v2;
  v2.tree.write("a/cpu.max", "125000 100000\n").write("a/cpu.stat", "usage_usec 0\n");
  const auto sampler = open(v2.tree, "/a");
  const auto before = *sampler->sample(at({})).cpu_usage_ns;
  v2.tree.write("a/cpu.stat", "usage_usec 1250000\n");
  const Sample& s = sampler->sample(at(seconds(1)));
  const double used_cores = static_cast<double>(*s.cpu_usage_ns - before) / 1e9;
  EXPECT_DOUBLE_EQ(used_cores / *s.limits.cpu_cores, 1.0);
}

TEST(Sampler, A25_ADirectoryThatGoesMakesTheTargetGoneForGood) {  // cadvisor#1843, podman#23789
  V2 v2;
  const auto sampler = open(v2.tree, "/a");
  sampler->sample(at({}));
  v2.tree.remove("a");
  const Sample& s = sampler->sample(at(seconds(1)));
  EXPECT_TRUE(sampler->gone());
  EXPECT_EQ(s.cpu_usage_ns.reason, Unknown::kGone);
  EXPECT_FALSE(s.cpu_usage_ns.known());
  EXPECT_FALSE(s.limits.memory_bytes.known());
  v2.tree.write("a/cpu.stat", "usage_usec 1\n");
  sampler->sample(at(seconds(2)));
  EXPECT_TRUE(sampler->gone());
}

TEST(Sampler, ADirectoryMadeAgainIsAnotherCgroup) {
  V2 v2;
  const auto sampler = open(v2.tree, "/a");
  sampler->sample(at({}));
  v2.tree.recreate("a").write("a/cpu.stat", "usage_usec 1\n");
  sampler->sample(at(seconds(1)));
  EXPECT_TRUE(sampler->gone());
  const auto next = open(v2.tree, "/a");
  EXPECT_EQ(next->sample(at(seconds(1))).cpu_usage_ns.value, 1000U);
  EXPECT_NE(next->cgroup_id(), sampler->cgroup_id());
}

TEST(Sampler, A26_AResizeIsNoticedWithinASecond) {  // VictoriaMetrics#11276
  V2 v2;
  v2.tree.write("a/memory.max", "134217728\n").write("a/memory.current", "137363456\n");
  const auto sampler = open(v2.tree, "/a");
  const auto ratio = [](const Sample& s) {
    return static_cast<double>(*s.memory_current_bytes) /
           static_cast<double>(*s.limits.memory_bytes);
  };
  EXPECT_NEAR(ratio(sampler->sample(at({}))), 1.02, 0.005);
  v2.tree.write("a/memory.max", "432013312\n").write("a/cpu.max", "150000 100000\n");
  Duration later{};
  for (int tick = 1; tick <= 10; ++tick) {
    later = milliseconds(100 * tick);
    sampler->sample(at(later));
  }
  const Sample& s = sampler->sample(at(later));
  EXPECT_NEAR(ratio(s), 0.32, 0.005);
  EXPECT_EQ(s.limits.cpu_cores.value, 1.5);
}

TEST(Sampler, AResizeOfAnAncestorIsNoticedWithinASecond) {
  FakeCgroupTree tree;
  tree.v2().write("p/cpu.max", "100000 100000\n").directory("p/a");
  const auto sampler = open(tree, "/p/a");
  EXPECT_EQ(sampler->sample(at({})).limits.cpu_cores.value, 1.0);
  tree.write("p/cpu.max", "200000 100000\n");
  for (int tick = 1; tick <= 10; ++tick) {
    sampler->sample(at(milliseconds(100 * tick)));
  }
  EXPECT_EQ(sampler->sample(at(seconds(1))).limits.cpu_cores.value, 2.0);
}

TEST(Sampler, AWrittenLimitIsReadInTheNextTick) {
  FakeCgroupTree tree;
  tree.v2().write("p/cpu.max", "400000 100000\n").write("p/a/cpu.max", "100000 100000\n");
  const Hierarchy hierarchy = tree.hierarchy();
  LimitCache& limits = *hierarchy.limits;
  limits.watch();
  auto sampler = CgroupSampler::open(hierarchy, "/p/a", {});
  ASSERT_TRUE(sampler);
  EXPECT_EQ((*sampler)->sample(at({})).limits.cpu_cores.value, 1.0);
  const std::uint64_t before = limits.poll(at({}));
  EXPECT_EQ(limits.poll(at(milliseconds(600))), before) << "nobody has written";

  tree.write("p/cpu.max", "50000 100000\n");
  EXPECT_NE(limits.poll(at(milliseconds(700))), before);
  (*sampler)->expect_new_limits();
  EXPECT_EQ((*sampler)->sample(at(milliseconds(700))).limits.cpu_cores.value, 0.5);

  const std::uint64_t once = limits.poll(at(milliseconds(700)));
  tree.write("p/a/cpu.max", "20000 100000\n");
  EXPECT_EQ(limits.poll(at(milliseconds(800))), once) << "twice a second at most";
  EXPECT_NE(limits.poll(at(milliseconds(1200))), once) << "but it is not lost";
}

TEST(Sampler, AWatchedLimitIsReadAgainWithoutAWriteTooButSeldom) {
  FakeCgroupTree tree;
  tree.v2().write("a/cpu.max", "100000 100000\n");
  const Hierarchy hierarchy = tree.hierarchy();
  hierarchy.limits->watch();
  auto sampler = CgroupSampler::open(hierarchy, "/a", {});
  ASSERT_TRUE(sampler);
  EXPECT_EQ((*sampler)->sample(at({})).limits.cpu_cores.value, 1.0);
  // Through a mapping, because inotify does not tell of that.
  const int fd = ::open((tree.root() + "/a/cpu.max").c_str(), O_RDWR);
  ASSERT_GE(fd, 0);
  void* text = ::mmap(nullptr, 6, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  ASSERT_NE(text, MAP_FAILED);
  std::memcpy(text, "200000", 6);
  ::munmap(text, 6);
  ::close(fd);
  EXPECT_EQ((*sampler)->sample(at(seconds(2))).limits.cpu_cores.value, 1.0);
  EXPECT_EQ((*sampler)->sample(at(seconds(11))).limits.cpu_cores.value, 2.0);
}

TEST(Sampler, ABrokenLimitIsReadAgainWhenItIsWhole) {
  FakeCgroupTree tree;
  tree.v2().write("a/cpu.max", "100000 100000\n");
  const Hierarchy hierarchy = tree.hierarchy();
  LimitCache& limits = *hierarchy.limits;
  limits.watch();
  auto sampler = CgroupSampler::open(hierarchy, "/a", {});
  ASSERT_TRUE(sampler);
  EXPECT_EQ((*sampler)->sample(at({})).limits.cpu_cores.value, 1.0);
  const auto seen_at = [&](Duration when) {
    (void)limits.poll(at(when));
    (*sampler)->expect_new_limits();
    return (*sampler)->sample(at(when)).limits.cpu_cores;
  };
  ASSERT_EQ(::truncate((tree.root() + "/a/cpu.max").c_str(), 0), 0);  // what it reads is no limit
  EXPECT_FALSE(seen_at(seconds(1)).known());
  tree.write("a/cpu.max", "300000 100000\n");
  EXPECT_EQ(seen_at(seconds(2)).value, 3.0);
}

TEST(Sampler, A27_NoMemoryLimitHereLooksAtTheAncestors) {  // ccfos/huatuo#637
  V2 v2;
  v2.tree.write("a/b/memory.current", "4096\n").write("a/b/memory.max", "max\n");
  const auto sampler = open(v2.tree, "/a/b");
  const Sample& s = sampler->sample(at({}));
  EXPECT_EQ(s.limits.memory_bytes.value, 1'048'576U);
  EXPECT_EQ(errors_of(*sampler, "memory.max", Unknown::kParse), 0U);
}

TEST(Sampler, A28_TheV1NumberForUnlimitedIsNoLimit) {
  FakeCgroupTree tree;
  tree.write("memory/a/memory.limit_in_bytes", "9223372036854771712\n")
      .write("memory/memory.limit_in_bytes", "9223372036854771712\n");
  const auto sampler = open(tree, "/a");
  EXPECT_EQ(sampler->sample(at({})).limits.memory_bytes.reason, Unknown::kNoLimit);
  EXPECT_EQ(sampler->sample(at({})).limits.memory_source, LimitSource::kUnlimited);
}

TEST(Sampler, A30_WithoutInactiveFileTheWorkingSetIsSaidToBeDegraded) {
  FakeCgroupTree tree;
  tree.write("memory/a/memory.stat", "cache 1\nrss 2\n")
      .write("memory/a/memory.usage_in_bytes", "5\n");
  const auto sampler = open(tree, "/a");
  const Sample& s = sampler->sample(at({}));
  EXPECT_FALSE(s.memory_inactive_file_bytes.known());
  EXPECT_EQ(s.memory_inactive_file_bytes.reason, Unknown::kAbsent);
  EXPECT_EQ(s.memory_current_bytes.value, 5U);
}

TEST(Sampler, A31_EvidenceBeyondTheWorkingSetIsThere) {  // kubernetes#43916, cadvisor#1529
  V2 v2;
  v2.tree.write("a/memory.max", "1073741824\n")
      .write("a/memory.current", "1069547520\n")
      .write("a/memory.stat",
             "anon 104857600\nfile 943718400\nactive_file 943718400\ninactive_file 10485760\n")
      .write("a/memory.pressure", "some avg10=0.00 avg60=0.00 avg300=0.00 total=0\n")
      .write("a/memory.events", "low 0\nhigh 0\nmax 0\noom 0\noom_kill 0\n");
  const auto sampler = open(v2.tree, "/a");
  const Sample& s = sampler->sample(at({}));
  const auto working_set = *s.memory_current_bytes - *s.memory_inactive_file_bytes;
  EXPECT_NEAR(static_cast<double>(working_set) / static_cast<double>(*s.limits.memory_bytes), 0.986,
              0.001);
  EXPECT_EQ(s.memory_pressure_some_us.value, 0U);
  EXPECT_EQ(s.memory_events_max.value, 0U);
}

TEST(Sampler, A32_AbsentPressureIsTriedOnceASecondOnly) {  // below#8135, runc#3900, netdata#7531
  V2 v2;
  v2.tree.remove("a/cpu.pressure").remove("a/memory.pressure");
  const auto sampler = open(v2.tree, "/a");
  for (int tick = 0; tick < 30; ++tick) {
    const Sample& s = sampler->sample(at(milliseconds(100 * tick)));
    EXPECT_EQ(s.cpu_pressure_some_us.reason, Unknown::kMissing);
    EXPECT_TRUE(s.cpu_usage_ns.known());
  }
  EXPECT_EQ(errors_of(*sampler, "cpu.pressure", Unknown::kMissing), 3U);
  v2.tree.write("a/cpu.pressure", "some avg10=0.00 avg60=0.00 avg300=0.00 total=1\n");
  EXPECT_EQ(sampler->sample(at(seconds(3))).cpu_pressure_some_us.value, 1U);
}

// cgroup-v1/memory.rst, "Hierarchy support": below a parent with use_hierarchy 0 each cgroup is
// accounted alone, so the parent's limit is not the child's.
TEST(Sampler, AParentWithoutHierarchyDoesNotLimitItsChildren) {
  FakeCgroupTree tree;
  tree.write("cpuacct/p/a/cpuacct.usage", "1\n")
      .write("memory/memory.use_hierarchy", "1\n")
      .write("memory/p/memory.use_hierarchy", "0\n")
      .write("memory/p/memory.limit_in_bytes", "1000\n")
      .write("memory/p/a/memory.use_hierarchy", "0\n")
      .write("memory/p/a/memory.usage_in_bytes", "4096\n")
      .write("memory/p/a/memory.limit_in_bytes", "1000000\n");
  auto sampler = open(tree, "/p/a");
  EXPECT_EQ(sampler->sample(at({})).limits.memory_bytes.value, 1'000'000U);
  const auto files = sampler->read_all_raw();
  EXPECT_TRUE(std::any_of(files.begin(), files.end(), [](const FileRead& file) {
    return file.path.ends_with("/memory/p/memory.use_hierarchy") && file.raw == "0\n";
  })) << "explain shows why";

  tree.write("memory/p/memory.use_hierarchy", "1\n");
  EXPECT_EQ(open(tree, "/p/a")->sample(at({})).limits.memory_bytes.value, 1000U);
  tree.remove("memory/p/memory.use_hierarchy");
  EXPECT_EQ(open(tree, "/p/a")->sample(at({})).limits.memory_bytes.value, 1000U)
      << "newer kernels have it no more, and are hierarchical";
}

/// A v2 pod on a host of 64 CPUs, without a limit on any level.
struct Unlimited {
  FakeCgroupTree tree;
  Unlimited() {
    tree.v2()
        .write("cpuset.cpus.effective", "0-63\n")
        .write("kubepods/cpu.max", "max 100000\n")
        .write("kubepods/memory.max", "max\n")
        .write("kubepods/pod/cpu.max", "max 100000\n")
        .write("kubepods/pod/memory.max", "max\n")
        .write("kubepods/pod/cpuset.cpus.effective", "0-63\n");
  }
};

TEST(Sampler, A34_NoLimitAnywhereIsSaidAndTheHostsCoresAreNotTaken) {  // automaxprocs#92
  Unlimited unlimited;
  FakeCgroupTree& tree = unlimited.tree;
  const auto limits = open(tree, "/kubepods/pod")->sample(at({})).limits;
  EXPECT_FALSE(limits.cpu_cores.known());
  EXPECT_EQ(limits.cpu_cores.reason, Unknown::kNoLimit);
  EXPECT_EQ(limits.cpu_source, LimitSource::kUnlimited);
  EXPECT_EQ(limits.memory_bytes.reason, Unknown::kNoLimit);

  CapacityOverride configured;
  configured.cpu_cores = 1.5;
  configured.memory_bytes = 3ULL << 30;
  const auto set = open(tree, "/kubepods/pod", configured)->sample(at({})).limits;
  EXPECT_EQ(set.cpu_cores.value, 1.5);
  EXPECT_EQ(set.cpu_source, LimitSource::kConfig);
  EXPECT_EQ(set.memory_bytes.value, 3ULL << 30);
  EXPECT_EQ(set.memory_source, LimitSource::kConfig);
}

TEST(Sampler, A34_WhatThePodRequestsStandsInWhereNothingLimitsAndNowhereElse) {
  Unlimited unlimited;
  FakeCgroupTree& tree = unlimited.tree;
  CapacityOverride requested;
  requested.cpu_cores_by_request = 0.5;
  requested.memory_bytes_by_request = 256ULL << 20;
  auto limits = open(tree, "/kubepods/pod", requested)->sample(at({})).limits;
  EXPECT_EQ(limits.cpu_cores.value, 0.5);
  EXPECT_EQ(limits.cpu_source, LimitSource::kRequest);
  EXPECT_EQ(limits.memory_bytes.value, 256ULL << 20);
  EXPECT_EQ(limits.memory_source, LimitSource::kRequest);

  requested.cpu_cores = 3;  // the configuration stands over it
  limits = open(tree, "/kubepods/pod", requested)->sample(at({})).limits;
  EXPECT_EQ(limits.cpu_cores.value, 3);
  EXPECT_EQ(limits.cpu_source, LimitSource::kConfig);

  requested.cpu_cores.reset();  // and so does a limit, of an ancestor too
  tree.write("kubepods/cpu.max", "400000 100000\n")
      .write("kubepods/pod/memory.max", "1073741824\n");
  limits = open(tree, "/kubepods/pod", requested)->sample(at({})).limits;
  EXPECT_EQ(limits.cpu_cores.value, 4);
  EXPECT_EQ(limits.cpu_source, LimitSource::kAncestor);
  EXPECT_EQ(limits.memory_bytes.value, 1ULL << 30);

  tree.write("kubepods/cpu.max", "garbage\n");  // what cannot be read is no missing limit
  limits = open(tree, "/kubepods/pod", requested)->sample(at({})).limits;
  EXPECT_FALSE(limits.cpu_cores.known());
  EXPECT_EQ(limits.cpu_source, LimitSource::kUnlimited);
}

TEST(Sampler, A35_AFileThatCannotBeReadLeavesNoOldValueBehind) {
  V2 v2;
  const auto sampler = open(v2.tree, "/a");
  EXPECT_TRUE(sampler->sample(at({})).cpu_usage_ns.known());
  v2.tree.remove("a");
  for (int tick = 1; tick <= 10; ++tick) {
    sampler->sample(at(milliseconds(100 * tick)));
  }
  const Sample& s = sampler->sample(at(seconds(1)));
  for (const auto& m : {s.cpu_usage_ns, s.cpu_throttled_periods, s.memory_current_bytes,
                        s.memory_inactive_file_bytes, s.memory_events_max, s.limits.memory_bytes}) {
    EXPECT_FALSE(m.known());
  }
}

TEST(Sampler, ReadsTheDetailsOnceASecondInItsOwnTenth) {
  V2 v2;
  const auto sampler = open(v2.tree, "/a");
  sampler->set_stagger(3);
  sampler->sample(at({}));  // the first sample is complete
  v2.tree.write("a/memory.stat", "inactive_file 7\n").write("a/cpu.stat", "usage_usec 6000\n");
  for (int tick = 1; tick < 10; ++tick) {
    const Sample& s = sampler->sample(at(milliseconds(100 * tick)));
    EXPECT_EQ(s.cpu_usage_ns.value, 6'000'000U) << tick;  // every tick
    EXPECT_EQ(s.memory_inactive_file_bytes.value, tick < 3 ? 100'000U : 7U) << tick;
    EXPECT_EQ(s.details_at, at(milliseconds(tick < 3 ? 0 : 300))) << tick;
  }
}

TEST(Sampler, ReadsTheMemoryDetailsEveryTickWhileMemoryIsHigh) {
  V2 v2;
  const auto sampler = open(v2.tree, "/a");
  sampler->sample(at({}));
  v2.tree
      .write("a/memory.current", "900000\n")  // 800000 of 1048576 is in use
      .write("a/memory.events", "max 4\noom_kill 2\n")
      .write("a/memory.max", "1048000\n");
  const Sample& s = sampler->sample(at(milliseconds(100)));
  EXPECT_EQ(s.details_at, at(milliseconds(100)));
  EXPECT_EQ(s.memory_events_max.value, 4U);
  EXPECT_EQ(s.limits.memory_bytes.value, 1'048'000U);
}

TEST(Sampler, PageCacheAloneDoesNotMakeMemoryHigh) {
  V2 v2;
  v2.tree.write("a/memory.current", "1000000\n").write("a/memory.stat", "inactive_file 900000\n");
  const auto sampler = open(v2.tree, "/a");
  sampler->sample(at({}));
  EXPECT_EQ(sampler->sample(at(milliseconds(100))).details_at, at({}));
}

TEST(Sampler, CountsLimitHitsWhereTheLimitIs) {
  FakeCgroupTree tree;
  tree.v2()
      .write("p/memory.max", "1000\n")
      .write("p/memory.events", "max 50\noom_kill 9\n")
      .write("p/a/memory.max", "max\n")
      .write("p/a/memory.current", "1\n")
      .write("p/a/memory.events", "max 2\noom_kill 1\n");
  const auto sampler = open(tree, "/p/a");
  EXPECT_EQ(sampler->sample(at({})).memory_events_max.value, 50U);
  EXPECT_EQ(sampler->sample(at({})).memory_oom_kills.value, 1U);  // its own processes
  // the own limit binds now: the count goes on without a jump
  tree.write("p/a/memory.max", "500\n");
  EXPECT_EQ(sampler->sample(at(seconds(1))).memory_events_max.value, 50U);
  tree.write("p/a/memory.events", "max 5\noom_kill 1\n");
  EXPECT_EQ(sampler->sample(at(seconds(2))).memory_events_max.value, 53U);
}

TEST(Sampler, AControllerEnabledLaterIsFound) {
  FakeCgroupTree tree;
  tree.write("cpuacct/a/cpuacct.usage", "5\n").directory("memory").directory("cpu");
  const auto sampler = open(tree, "/a");
  EXPECT_EQ(sampler->sample(at({})).memory_current_bytes.reason, Unknown::kMissing);
  tree.write("memory/a/memory.usage_in_bytes", "4096\n")
      .write("memory/a/memory.limit_in_bytes", "8192\n");
  const Sample& s = sampler->sample(at(seconds(1)));
  EXPECT_EQ(s.memory_current_bytes.value, 4096U);
  EXPECT_EQ(s.limits.memory_bytes.value, 8192U);
  EXPECT_FALSE(sampler->gone());
}

TEST(Sampler, AQuotaWithoutItsPeriodIsNotUnlimited) {
  FakeCgroupTree tree;
  tree.write("cpu/a/cpu.cfs_quota_us", "50000\n");
  EXPECT_EQ(open(tree, "/a")->sample(at({})).limits.cpu_cores.reason, Unknown::kParse);
}

TEST(Sampler, NoSuchCgroupIsAnErrorThatNamesThePlaces) {
  const V2 v2;
  const auto none = CgroupSampler::open(v2.tree.hierarchy(), "/b", {});
  ASSERT_FALSE(none);
  EXPECT_NE(none.error().message.find(v2.tree.root() + "/b"), std::string::npos);
}

TEST(Sampler, ShowsEveryFileRawWithAncestorsAndFailures) {
  V2 v2;
  v2.tree.write("a/b/cpu.stat", "usage_usec 1\n").write("a/b/cpu.max", "garbage\n");
  const auto sampler = open(v2.tree, "/a/b");
  std::map<std::string, FileRead> files;
  for (auto& file : sampler->read_all_raw()) {
    EXPECT_TRUE(files.emplace(file.path, file).second) << "twice: " << file.path;
  }
  EXPECT_EQ(files.at(v2.tree.root() + "/a/b/cpu.stat").raw, "usage_usec 1\n");
  EXPECT_EQ(files.at(v2.tree.root() + "/a/b/cpu.max").raw, "garbage\n");
  EXPECT_EQ(files.at(v2.tree.root() + "/a/cpu.max").raw, "50000 100000\n");
  EXPECT_EQ(files.at(v2.tree.root() + "/a/memory.max").raw, "1048576\n");
  EXPECT_EQ(files.at(v2.tree.root() + "/cpuset.cpus.effective").raw, "0-3\n");
  const auto& missing = files.at(v2.tree.root() + "/a/b/memory.current");
  EXPECT_EQ(missing.raw, "");
  EXPECT_NE(missing.error.find("No such file"), std::string::npos);
}

TEST(Sampler, NamesItsPathsByController) {
  const V2 v2;
  EXPECT_THAT(open(v2.tree, "/a")->paths(),
              ::testing::UnorderedElementsAre(::testing::Pair("cpu", v2.tree.root() + "/a"),
                                              ::testing::Pair("cpuacct", v2.tree.root() + "/a"),
                                              ::testing::Pair("memory", v2.tree.root() + "/a"),
                                              ::testing::Pair("cpuset", v2.tree.root() + "/a"),
                                              ::testing::Pair("psi", v2.tree.root() + "/a")));
}

}  // namespace
}  // namespace headgate
