// SPDX-License-Identifier: Apache-2.0
// The sampler on cgroups of this kernel, in whatever hierarchy it has. Makes its own cgroups and
// removes them.
#include <sched.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "agent/cgroup/hierarchy.h"
#include "agent/cgroup/sampler.h"
#include "agent/targets/locate.h"
#include "tests/support/fake_cgroup_tree.h"

namespace headgate {
namespace {

using std::chrono::milliseconds;

Instant now() { return std::chrono::time_point_cast<Duration>(std::chrono::steady_clock::now()); }

/// Why this machine cannot run the test; where HEADGATE_REQUIRE_KERNEL=1 that is a failure.
#define HEADGATE_SKIP_OR_FAIL(why)                                    \
  do {                                                                \
    const char* required = std::getenv("HEADGATE_REQUIRE_KERNEL");    \
    if (required != nullptr && std::string(required) == "1") {        \
      FAIL() << (why) << " (HEADGATE_REQUIRE_KERNEL=1: no skipping)"; \
    }                                                                 \
    GTEST_SKIP() << (why);                                            \
  } while (false)

bool write_file(const std::string& path, const std::string& text) {
  std::ofstream out(path);
  out << text;
  out.close();
  return static_cast<bool>(out);
}

/// A file of this kernel that opens and whose read fails with EOPNOTSUPP, as cpu.pressure does with
/// psi=0 (below#8135): cgroup.procs of a threaded cgroup (cgroup-v2.rst, "Threads").
class UnsupportedFile {
 public:
  explicit UnsupportedFile(const std::string& unified)
      : domain_(unified + "/hg-cgroup-threaded-" + std::to_string(::getpid())) {
    made_ = ::mkdir(domain_.c_str(), 0755) == 0 && ::mkdir((domain_ + "/t").c_str(), 0755) == 0 &&
            write_file(domain_ + "/t/cgroup.type", "threaded");
  }
  UnsupportedFile(const UnsupportedFile&) = delete;
  UnsupportedFile& operator=(const UnsupportedFile&) = delete;
  UnsupportedFile(UnsupportedFile&&) = delete;
  UnsupportedFile& operator=(UnsupportedFile&&) = delete;
  ~UnsupportedFile() {
    ::rmdir((domain_ + "/t").c_str());
    ::rmdir(domain_.c_str());
  }
  [[nodiscard]] bool made() const { return made_; }
  [[nodiscard]] std::string path() const { return domain_ + "/t/cgroup.procs"; }

 private:
  std::string domain_;
  bool made_ = false;
};

TEST(KernelSampler, A32_PressureThatIsSwitchedOffIsUnsupportedAndTriedOnceASecondOnly) {
  const auto hierarchy = Hierarchy::detect("/sys/fs/cgroup", "/proc");
  if (!hierarchy || hierarchy->unified.empty()) {
    GTEST_SKIP() << "no v2 tree here";
  }
  const UnsupportedFile unsupported(hierarchy->unified);
  if (!unsupported.made()) {
    HEADGATE_SKIP_OR_FAIL("no threaded cgroup can be made here");
  }
  test::FakeCgroupTree tree;
  tree.v2()
      .write("a/cpu.max", "50000 100000\n")
      .write("a/cpu.stat", "usage_usec 1\nnr_periods 1\nnr_throttled 0\nthrottled_usec 0\n")
      .link("a/cpu.pressure", unsupported.path());
  const Hierarchy fake = tree.hierarchy();
  auto sampler = CgroupSampler::open(fake, "/a", {});
  ASSERT_TRUE(sampler) << sampler.error().message;
  for (int tick = 0; tick < 20; ++tick) {
    const Sample& s =
        (*sampler)->sample(Instant(std::chrono::seconds(1000)) + tick * milliseconds(100));
    EXPECT_EQ(s.cpu_pressure_some_us.reason, Unknown::kUnsupported);
    EXPECT_TRUE(s.cpu_usage_ns.known()) << "the rest goes on";
  }
  std::uint64_t tries = 0;
  for (const auto& [where, count] : (*sampler)->errors()) {
    if (where.first.ends_with("cpu.pressure")) {
      EXPECT_EQ(where.second, Unknown::kUnsupported);
      tries += count;
    }
  }
  EXPECT_EQ(tries, 2U);
}

/// A cgroup of the kernel in every tree that sampling reads, with a quota of 20 % of one CPU.
class RealCgroup {
 public:
  static constexpr std::size_t kTouchedBytes = 8U << 20;

  explicit RealCgroup(const Hierarchy& hierarchy, const std::string& name) : path_("/" + name) {
    for (const auto& tree : hierarchy.trees()) {
      const std::string directory = tree.directory(path_);
      if (tree.path == hierarchy.systemd_mount.path) {
        continue;
      }
      if (hierarchy.mode == Hierarchy::Mode::kV2) {
        enable(tree.path + "/cgroup.subtree_control", "cpu");
        enable(tree.path + "/cgroup.subtree_control", "memory");
      }
      if (::mkdir(directory.c_str(), 0755) != 0) {
        problem_ = "mkdir " + directory + ": " + std::strerror(errno);
        return;
      }
      directories_.push_back(directory);
      // a v1 cpuset takes no process before it has CPUs and memory nodes
      for (const char* file : {"cpuset.cpus", "cpuset.mems"}) {
        std::string inherited;
        std::getline(std::ifstream(tree.path + "/" + file), inherited);
        if (tree.version == CgroupVersion::kV1 && !inherited.empty()) {
          write_file(directory + "/" + file, inherited);
        }
      }
    }
    const auto& cpu = hierarchy.of(Controller::kCpu);
    const std::string cpu_directory = cpu.directory(path_);
    quota_file_ =
        cpu_directory + (cpu.version == CgroupVersion::kV2 ? "/cpu.max" : "/cpu.cfs_quota_us");
    v2_quota_ = cpu.version == CgroupVersion::kV2;
    if (!set_quota_us(20000)) {
      problem_ = "cannot write " + quota_file_;
    }
  }
  RealCgroup(const RealCgroup&) = delete;
  RealCgroup& operator=(const RealCgroup&) = delete;
  ~RealCgroup() { remove(); }

  bool set_quota_us(int quota) const {
    return write_file(quota_file_, std::to_string(quota) + (v2_quota_ ? " 100000" : ""));
  }
  [[nodiscard]] const std::string& problem() const { return problem_; }
  [[nodiscard]] const std::string& path() const { return path_; }

  /// A process that burns CPU inside the cgroup for at most `limit_s` seconds.
  pid_t burn(unsigned limit_s) {
    const pid_t child = ::fork();
    if (child == 0) {
      ::alarm(limit_s);
      const std::string self = std::to_string(::getpid());
      for (const auto& directory : directories_) {
        if (!write_file(directory + "/cgroup.procs", self)) {
          ::_exit(1);
        }
      }
      // charged to the cgroup that it is in when it touches the pages
      std::vector<char> touched(kTouchedBytes);
      for (std::size_t i = 0; i < touched.size(); i += 1024) {
        static_cast<volatile char*>(touched.data())[i] = 1;
      }
      volatile unsigned long spin = 0;
      while (true) {
        spin = spin + 1;
      }
    }
    child_ = child;
    return child;
  }
  void stop() {
    if (child_ > 0) {
      ::kill(child_, SIGKILL);
      ::waitpid(child_, nullptr, 0);
      child_ = 0;
    }
  }
  void remove() {
    stop();
    for (const auto& directory : directories_) {
      for (int i = 0; i < 50 && ::rmdir(directory.c_str()) != 0 && errno == EBUSY; ++i) {
        std::this_thread::sleep_for(milliseconds(20));  // the kernel lets go a moment later
      }
    }
    directories_.clear();
    for (const auto& [file, controller] : enabled_) {
      write_file(file, "-" + controller);
    }
    enabled_.clear();
  }

 private:
  /// A service manager has it on already; on a bare machine it is put back as it was.
  void enable(const std::string& file, const std::string& controller) {
    std::ifstream in(file);
    for (std::string word; in >> word;) {
      if (word == controller) {
        return;
      }
    }
    if (write_file(file, "+" + controller)) {
      enabled_.emplace_back(file, controller);
    }
  }

  std::string path_;
  std::string quota_file_;
  bool v2_quota_ = false;
  std::vector<std::string> directories_;
  std::vector<std::pair<std::string, std::string>> enabled_;
  std::string problem_;
  pid_t child_ = 0;
};

class CgroupKernel : public ::testing::Test {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) {
      HEADGATE_SKIP_OR_FAIL("needs root to make cgroups");
    }
    auto found = Hierarchy::detect("/sys/fs/cgroup", "/proc");
    if (!found) {
      HEADGATE_SKIP_OR_FAIL(found.error().message);
    }
    hierarchy_ = std::move(*found);
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    cgroup_.emplace(*hierarchy_,
                    std::string("hg-cgroup-") + test->name() + "-" + std::to_string(::getpid()));
    if (!cgroup_->problem().empty()) {
      HEADGATE_SKIP_OR_FAIL(cgroup_->problem());
    }
    auto sampler = CgroupSampler::open(*hierarchy_, cgroup_->path(), {});
    ASSERT_TRUE(sampler) << sampler.error().message;
    sampler_ = std::move(*sampler);
  }

  std::optional<Hierarchy> hierarchy_;
  std::optional<RealCgroup> cgroup_;
  std::unique_ptr<CgroupSampler> sampler_;
};

TEST_F(CgroupKernel, ReadsUseAndThrottlingOfAQuotaBack) {
  const Sample before = sampler_->sample(now());
  ASSERT_TRUE(before.cpu_usage_ns.known()) << to_string(before.cpu_usage_ns.reason);
  ASSERT_TRUE(before.cpu_throttled_periods.known());
  ASSERT_TRUE(before.memory_current_bytes.known());
  EXPECT_EQ(before.limits.cpu_cores.value, 0.2);
  EXPECT_EQ(before.limits.cpu_source, LimitSource::kOwn);
  EXPECT_FALSE(before.limits.memory_bytes.known());  // none was set

  ASSERT_GT(cgroup_->burn(20), 0);
  const auto start = std::chrono::steady_clock::now();
  Sample after;
  double used_s = 0;
  // On a busy machine the quota may be reached late: wait for the evidence, not for a time.
  do {
    std::this_thread::sleep_for(milliseconds(100));
    after = sampler_->sample(now());
    used_s = static_cast<double>(*after.cpu_usage_ns - *before.cpu_usage_ns) / 1e9;
  } while ((used_s < 0.2 || *after.memory_current_bytes < RealCgroup::kTouchedBytes ||
            *after.cpu_throttled_periods < *before.cpu_throttled_periods + 3) &&
           std::chrono::steady_clock::now() - start < std::chrono::seconds(15));
  const double wall_s =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  EXPECT_GE(used_s, 0.2);
  EXPECT_LE(used_s, 0.2 * wall_s * 1.2 + 0.06) << "more than the quota lets through";
  EXPECT_GE(*after.cpu_throttled_periods, *before.cpu_throttled_periods + 3);
  EXPECT_GE(*after.cpu_periods, *after.cpu_throttled_periods);
  EXPECT_GT(*after.cpu_throttled_ns, *before.cpu_throttled_ns);
  EXPECT_GE(*after.memory_current_bytes, RealCgroup::kTouchedBytes);
}

TEST_F(CgroupKernel, A26_AQuotaChangedAtRunTimeIsNoticedWithinASecond) {
  Instant t = now();
  EXPECT_EQ(sampler_->sample(t).limits.cpu_cores.value, 0.2);
  ASSERT_TRUE(cgroup_->set_quota_us(150000));
  Sample last;
  for (int tick = 0; tick < 10; ++tick) {
    t += milliseconds(100);
    last = sampler_->sample(t);
  }
  EXPECT_EQ(last.limits.cpu_cores.value, 1.5);
}

TEST_F(CgroupKernel, A25_ARemovedDirectoryIsGoneInTheSameTick) {
  const Instant t = now();
  sampler_->sample(t);
  EXPECT_FALSE(sampler_->gone());
  cgroup_->remove();
  // in the same second: the files that are held answer ENODEV, no path is looked up
  const Sample s = sampler_->sample(t + Duration(1));
  EXPECT_TRUE(sampler_->gone());
  EXPECT_EQ(s.cpu_usage_ns.reason, Unknown::kGone);
  EXPECT_EQ(s.memory_current_bytes.reason, Unknown::kGone);
}

TEST_F(CgroupKernel, ACgroupMadeAgainHasAnotherIdentity) {
  const auto before = sampler_->cgroup_id();
  cgroup_->remove();
  const RealCgroup again(*hierarchy_, cgroup_->path().substr(1));
  ASSERT_EQ(again.problem(), "");
  sampler_->sample(now());
  EXPECT_TRUE(sampler_->gone());
  EXPECT_NE(*cgroup_identity(*hierarchy_, cgroup_->path()), before);
}

TEST_F(CgroupKernel, TheLocatorFindsAProcessInIt) {
  const pid_t child = cgroup_->burn(10);
  ASSERT_GT(child, 0);
  const Locator locator(*hierarchy_, "/proc");
  std::vector<int> pids;
  for (int i = 0; i < 50 && pids.empty(); ++i) {
    std::this_thread::sleep_for(milliseconds(20));
    pids = locator.pids_of(cgroup_->path());
  }
  ASSERT_EQ(pids, std::vector<int>{child});
  // it enters the trees one by one
  Result<std::string> path = locator.cgroup_of(child);
  for (int i = 0; i < 50 && !path; ++i) {
    std::this_thread::sleep_for(milliseconds(20));
    path = locator.cgroup_of(child);
  }
  ASSERT_TRUE(path) << path.error().message;
  EXPECT_EQ(*path, cgroup_->path());
  const auto target = parse_target("pid:" + std::to_string(child), locator);
  ASSERT_TRUE(target) << target.error().message;
  const auto located = locator.locate(*target);
  ASSERT_TRUE(located) << located.error().message;
  ASSERT_EQ(located->size(), 1U);
  EXPECT_EQ(located->front().cgroup_id, sampler_->cgroup_id());
  ASSERT_EQ(located->front().namespaces.size(), 1U);
  struct stat own {};
  ASSERT_EQ(::stat("/proc/self/ns/net", &own), 0);
  EXPECT_EQ(located->front().namespaces[0].inode, own.st_ino);
}

}  // namespace
}  // namespace headgate
