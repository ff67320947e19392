// SPDX-License-Identifier: Apache-2.0
// The texts of the kernel's files. A-numbers are inputs from public bug reports of this field.
#include <string>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include "agent/cgroup/parse.h"

namespace headgate {
namespace {

template <class T>
::testing::AssertionResult known(const Measured<T>& m, T value) {
  if (!m.known()) {
    return ::testing::AssertionFailure() << "unknown: " << to_string(m.reason);
  }
  return *m == value ? ::testing::AssertionSuccess()
                     : ::testing::AssertionFailure() << "is " << *m << ", not " << value;
}

template <class T>
::testing::AssertionResult unknown(const Measured<T>& m, Unknown reason) {
  if (m.known()) {
    return ::testing::AssertionFailure() << "is known: " << *m;
  }
  return m.reason == reason ? ::testing::AssertionSuccess()
                            : ::testing::AssertionFailure() << to_string(m.reason);
}

TEST(CpuMax, A01_OneNumberHasTheDefaultPeriod) {  // VictoriaMetrics#8808
  EXPECT_TRUE(known(parse_cpu_max("200000\n"), 2.0));
}

TEST(CpuMax, A02_MaxAloneIsNoLimit) {  // VictoriaMetrics, cpu_unset/cpu.max
  EXPECT_TRUE(unknown(parse_cpu_max("max\n"), Unknown::kNoLimit));
  EXPECT_TRUE(unknown(parse_cpu_max("max 100000\n"), Unknown::kNoLimit));
}

class CpuMaxGarbage : public ::testing::TestWithParam<const char*> {};
TEST_P(CpuMaxGarbage, A04_IsAParseErrorAndNeverUnlimited) {  // automaxprocs, testdata v2
  EXPECT_TRUE(unknown(parse_cpu_max(GetParam()), Unknown::kParse));
}
INSTANTIATE_TEST_SUITE_P(Texts, CpuMaxGarbage,
                         ::testing::Values("", "\n", "asdf 100000", "100000 njn", "1 2 3",
                                           "100000 0", "max 0", "max njn", "max 100000 1",
                                           "0 100000", "-1 100000", "100000 -5", "1e5 100000",
                                           "100000\n100000\n", "9223372036854775808 100000",
                                           "0x10 100000", "+100000 100000", " "));

TEST(Load1, IsTheFirstNumberOfLoadavg) {
  EXPECT_TRUE(known(parse_load1("0.20 0.18 0.12 1/80 11206\n"), 0.20));
  EXPECT_TRUE(known(parse_load1("1234.56 0.18 0.12 1/80 11206\n"), 1234.56));
  for (const char* garbage : {"", "\n", "0.20\n", "x 0.18\n", "-1.00 0.18\n", "1 2 3\n",
                              "1.2 3.4\n", ".20 0.18\n", "0.2x 0.18\n", "0.200 0.18\n"}) {
    EXPECT_TRUE(unknown(parse_load1(garbage), Unknown::kParse)) << garbage;
  }
}

TEST(CpuMax, KeepsFractionsOfACore) {
  EXPECT_TRUE(known(parse_cpu_max("125000 100000\n"), 1.25));
  EXPECT_TRUE(known(parse_cpu_max("1000 1000000\n"), 0.001));
}

TEST(CfsQuota, A12_IsSignedAndSixtyFourBitsWide) {  // otel-collector#6443
  EXPECT_TRUE(unknown(parse_cfs("-1\n", "100000\n"), Unknown::kNoLimit));
  EXPECT_TRUE(known(parse_cfs("4000000000\n", "100000\n"), 40000.0));
}

TEST(CfsQuota, GarbageIsAParseError) {
  for (const auto& [quota, period] :
       std::vector<std::pair<const char*, const char*>>{{"100000", "0"},
                                                        {"100000", ""},
                                                        {"", "100000"},
                                                        {"-2", "100000"},
                                                        {"-1", "0"},
                                                        {"0", "100000"},
                                                        {"100000", "-100000"},
                                                        {"100000 1", "100000"},
                                                        {"max", "100000"}}) {
    EXPECT_TRUE(unknown(parse_cfs(quota, period), Unknown::kParse)) << quota << '/' << period;
  }
}

TEST(CpuStat, A17_WithoutTheControllerThrottlingIsAbsentAndUsageIsNot) {  // containerd/cgroups#347
  const auto stat =
      parse_cpu_stat("usage_usec 1500\nuser_usec 1000\nsystem_usec 500\n", CgroupVersion::kV2);
  EXPECT_TRUE(known<std::uint64_t>(stat.usage_ns, 1'500'000));
  EXPECT_TRUE(unknown(stat.periods, Unknown::kAbsent));
  EXPECT_TRUE(unknown(stat.throttled_periods, Unknown::kAbsent));
  EXPECT_TRUE(unknown(stat.throttled_ns, Unknown::kAbsent));
}

TEST(CpuStat, A18_BothFormatsGiveTheSame) {  // netdata#12595
  const auto v1 = parse_cpu_stat(
      "nr_bursts 0\nthrottled_time 127918677000\nnr_throttled 2\n"
      "nr_periods 7\nsomething_new 1 2 3\n",
      CgroupVersion::kV1);
  const auto v2 = parse_cpu_stat(
      "usage_usec 9\nnr_periods 7\nnr_throttled 2\n"
      "throttled_usec 127918677\nsomething_new x\n",
      CgroupVersion::kV2);
  EXPECT_TRUE(known<std::uint64_t>(v1.periods, 7));
  EXPECT_TRUE(known<std::uint64_t>(v1.throttled_periods, 2));
  EXPECT_EQ(v1.periods.value, v2.periods.value);
  EXPECT_EQ(v1.throttled_periods.value, v2.throttled_periods.value);
  EXPECT_EQ(v1.throttled_ns.value, v2.throttled_ns.value);
}

TEST(CpuStat, ABrokenValueIsAParseErrorOfThatNumberOnly) {
  const auto stat =
      parse_cpu_stat("usage_usec x\nnr_periods 7 8\nnr_throttled 2\n", CgroupVersion::kV2);
  EXPECT_TRUE(unknown(stat.usage_ns, Unknown::kParse));
  EXPECT_TRUE(unknown(stat.periods, Unknown::kParse));
  EXPECT_TRUE(known<std::uint64_t>(stat.throttled_periods, 2));
  EXPECT_TRUE(unknown(parse_cpu_stat("", CgroupVersion::kV2).usage_ns, Unknown::kParse));
  // microseconds that do not fit into 64 bits of nanoseconds
  EXPECT_TRUE(
      unknown(parse_cpu_stat("usage_usec 18446744073709551615\n", CgroupVersion::kV2).usage_ns,
              Unknown::kParse));
}

TEST(Number, IsOneWholeDecimalNumber) {
  EXPECT_TRUE(known<std::uint64_t>(parse_number("18446744073709551615\n"), ~0ULL));
  for (const char* bad : {"", "\n", "-1", " 1", "1 ", "1\n2\n", "18446744073709551616", "1.5"}) {
    EXPECT_TRUE(unknown(parse_number(bad), Unknown::kParse)) << bad;
  }
}

class CpuList : public ::testing::TestWithParam<std::pair<const char*, std::uint32_t>> {};
TEST_P(CpuList, A21_IsCounted) {  // netdata#10757, psutil#2973
  EXPECT_TRUE(known(parse_cpu_list(GetParam().first), GetParam().second));
}
INSTANTIATE_TEST_SUITE_P(Lists, CpuList,
                         ::testing::Values(std::pair{"5\n", 1U}, std::pair{"0,2,5\n", 3U},
                                           std::pair{"2-5\n", 4U}, std::pair{"0,1-3,5\n", 5U},
                                           std::pair{"0-1,2,3-5\n", 6U}, std::pair{"0-3,8\n", 5U},
                                           std::pair{"0-3,8,10-11\n", 7U}));

TEST(CpuListText, EmptyIsInheritedAndGarbageIsNot) {
  EXPECT_TRUE(unknown(parse_cpu_list("\n"), Unknown::kAbsent));
  EXPECT_TRUE(unknown(parse_cpu_list(""), Unknown::kAbsent));
  for (const char* bad : {"a", "1-", "-1", "3-1", "0,,1", "0,", ",", "1,0", "0-3,2", "0-65536",
                          "4294967296", "0-3:1/2", "0 1", "0-1\n2\n"}) {
    EXPECT_TRUE(unknown(parse_cpu_list(bad), Unknown::kParse)) << bad;
  }
}

TEST(MemoryLimit, A27_MaxIsNoLimitNotAFailure) {  // ccfos/huatuo#637
  EXPECT_TRUE(unknown(parse_memory_limit("max\n"), Unknown::kNoLimit));
}

TEST(MemoryLimit, A28_TheLargestPageIsUnlimited) {  // VictoriaMetrics, memory.limit_in_bytes
  EXPECT_TRUE(unknown(parse_memory_limit("9223372036854771712\n"), Unknown::kNoLimit));
  EXPECT_TRUE(unknown(parse_memory_limit("9223372036854710272\n"), Unknown::kNoLimit));  // 64 KiB
  EXPECT_TRUE(unknown(parse_memory_limit("18446744073709551615\n"), Unknown::kNoLimit));
  EXPECT_TRUE(
      known<std::uint64_t>(parse_memory_limit("9223372036854706175\n"), 9223372036854706175ULL));
}

TEST(MemoryLimit, GarbageAndZeroAreParseErrors) {
  for (const char* bad : {"", "0", "-1", "1G", "max max", "100\n200"}) {
    EXPECT_TRUE(unknown(parse_memory_limit(bad), Unknown::kParse)) << bad;
  }
}

TEST(MemoryStat, A30_V1PrefersTheTotalAndTakesWhatThereIs) {  // VictoriaMetrics, memory.stat
  EXPECT_TRUE(known<std::uint64_t>(
      parse_inactive_file("inactive_file 5\ntotal_inactive_file 9\n", CgroupVersion::kV1), 9));
  EXPECT_TRUE(known<std::uint64_t>(
      parse_inactive_file("cache 1\ninactive_file 5\n", CgroupVersion::kV1), 5));
  EXPECT_TRUE(known<std::uint64_t>(
      parse_inactive_file("total_inactive_file 9\ninactive_file 5\n", CgroupVersion::kV2), 5));
  EXPECT_TRUE(unknown(parse_inactive_file("cache 1\n", CgroupVersion::kV1), Unknown::kAbsent));
  EXPECT_TRUE(
      unknown(parse_inactive_file("total_inactive_file ?\ninactive_file 5\n", CgroupVersion::kV1),
              Unknown::kParse));
}

TEST(MemoryEvents, AreFoundByKey) {
  const std::string events = "low 0\nhigh 0\nmax 12\noom 1\noom_kill 3\noom_group_kill 0\n";
  EXPECT_TRUE(known<std::uint64_t>(parse_keyed(events, "max"), 12));
  EXPECT_TRUE(known<std::uint64_t>(parse_keyed(events, "oom_kill"), 3));
  EXPECT_TRUE(
      unknown(parse_keyed("oom_kill_disable 0\nunder_oom 0\n", "oom_kill"), Unknown::kAbsent));
  EXPECT_TRUE(unknown(parse_keyed("", "max"), Unknown::kParse));
}

TEST(Pressure, IsTheTotalOfTheSomeLine) {
  EXPECT_TRUE(known<std::uint64_t>(
      parse_pressure_some_us("some avg10=1.00 avg60=0.50 avg300=0.10 total=123456\n"
                             "full avg10=0.00 avg60=0.00 avg300=0.00 total=99\n"),
      123456));
  EXPECT_TRUE(known<std::uint64_t>(
      parse_pressure_some_us("full avg10=0 total=99\nsome avg10=0 total=7\n"), 7));
  for (const char* bad : {"", "full avg10=0.00 total=9\n", "some avg10=0.00\n", "some total=\n",
                          "some total=1x\n", "sometotal=5\n"}) {
    EXPECT_TRUE(unknown(parse_pressure_some_us(bad), Unknown::kParse)) << bad;
  }
}

TEST(ProcCgroup, A11_HasThreeFieldsAndThePathKeepsItsColons) {  // otel-collector#6389
  const auto line = parse_proc_cgroup_line(
      "1:name=systemd:/system.slice/containerd.service/"
      "kubepods-burstable-podff49d0be_16b7_4a49_bb9e_8ec1f1f4e27f.slice:cri-containerd:0f99ad5f");
  ASSERT_TRUE(line);
  EXPECT_EQ(line->hierarchy_id, 1U);
  EXPECT_EQ(line->controllers, "name=systemd");
  EXPECT_EQ(line->path,
            "/system.slice/containerd.service/"
            "kubepods-burstable-podff49d0be_16b7_4a49_bb9e_8ec1f1f4e27f.slice:cri-containerd:"
            "0f99ad5f");
  EXPECT_NE(line->path.find("podff49d0be_16b7_4a49_bb9e_8ec1f1f4e27f"), std::string_view::npos);
  EXPECT_TRUE(line->path.substr(line->path.rfind(':') + 1) == "0f99ad5f");
}

TEST(ProcCgroup, KnowsV2ControllersAndRemovedCgroups) {
  const auto v2 = parse_proc_cgroup_line("0::/a (deleted)");
  ASSERT_TRUE(v2);
  EXPECT_EQ(v2->controllers, "");
  EXPECT_EQ(v2->path, "/a");
  EXPECT_TRUE(v2->deleted);
  const auto joint = parse_proc_cgroup_line("4:cpu,cpuacct:/x");
  ASSERT_TRUE(joint);
  EXPECT_TRUE(has_controller(joint->controllers, "cpuacct"));
  EXPECT_FALSE(has_controller(joint->controllers, "cpuset"));
  EXPECT_FALSE(has_controller("cpuset", "cpu"));
  for (const char* bad : {"", "1", "1:cpu", "x:cpu:/a", "1:cpu:", "1:cpu:a", "-1::/a"}) {
    EXPECT_FALSE(parse_proc_cgroup_line(bad)) << bad;
  }
}

TEST(Mountinfo, GivesTheMountedDirectoryOfCgroupMountsOnly) {
  const auto v1 = parse_mountinfo_line(
      "410 400 0:33 /kubepods/besteffort/podX/C /sys/fs/cgroup/cpu ro,nosuid shared:9 master:10 - "
      "cgroup cgroup rw,cpu");
  ASSERT_TRUE(v1);
  EXPECT_EQ(v1->version, CgroupVersion::kV1);
  EXPECT_EQ(v1->root, "/kubepods/besteffort/podX/C");
  EXPECT_EQ(v1->mount_point, "/sys/fs/cgroup/cpu");
  const auto v2 = parse_mountinfo_line("41 31 0:38 / /mnt/a\\040b rw - cgroup2 cgroup2 rw");
  ASSERT_TRUE(v2);
  EXPECT_EQ(v2->version, CgroupVersion::kV2);
  EXPECT_EQ(v2->mount_point, "/mnt/a b");
  for (const char* other : {"22 1 254:0 / / rw - ext4 /dev/vda rw", "", "1 2 3", "a b c d e f g",
                            "41 31 0:38 / /x rw cgroup2 cgroup2 rw"}) {
    EXPECT_FALSE(parse_mountinfo_line(other)) << other;
  }
}

TEST(NetnsLink, IsAnInodeInBrackets) {
  EXPECT_EQ(parse_netns_link("net:[4026531840]"), 4026531840U);
  for (const char* bad :
       {"", "net:[]", "net:[x]", "mnt:[4026531840]", "net:[4294967296]", "net:[1] "}) {
    EXPECT_FALSE(parse_netns_link(bad)) << bad;
  }
}

}  // namespace
}  // namespace headgate
