// SPDX-License-Identifier: Apache-2.0
// Every way in which a configuration file is changed in the field is noticed once, within 2 s.
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "agent/config/watch.h"

namespace headgate {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::steady_clock;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class ConfigWatch : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "headgate-watch-XXXXXX";
    dir = ::mkdtemp(name.data());
  }
  void TearDown() override { fs::remove_all(dir); }

  void write(const fs::path& path, const std::string& text) {
    std::ofstream stream(path, std::ios::binary | std::ios::trunc);
    stream << text;
  }
  std::unique_ptr<ConfigWatcher> open(const fs::path& path) {
    auto watcher = ConfigWatcher::open(path.string());
    EXPECT_TRUE(watcher) << watcher.error().message;
    return std::move(*watcher);
  }
  /// What poll() returns within this time, waiting on the fd as the agent does.
  static std::vector<std::string> texts(ConfigWatcher& watcher, Duration time) {
    std::vector<std::string> out;
    auto end = steady_clock::now() + time;
    while (steady_clock::now() < end) {
      const auto left = std::chrono::duration_cast<milliseconds>(end - steady_clock::now());
      pollfd waiting{watcher.fd(), POLLIN, 0};
      (void)::poll(&waiting, 1, static_cast<int>(std::max<std::int64_t>(left.count(), 1)));
      if (auto text = watcher.poll(steady_clock::now())) {
        out.push_back(*text);
        // A second one would come with the next look, 1 s later at most.
        end = std::min(end, steady_clock::now() + milliseconds(1250));
      }
    }
    return out;
  }
  /// kubelet's volume: ..STAMP/headgate.yaml, ..data -> ..STAMP, headgate.yaml -> ..data/...
  void projected(const std::string& stamp, const std::string& text) {
    fs::create_directory(dir / stamp);
    write(dir / stamp / "headgate.yaml", text);
  }

  fs::path dir;
};

TEST_F(ConfigWatch, BeginsWithTheTextThatIsThere) {
  write(dir / "c.yaml", "one");
  auto watcher = open(dir / "c.yaml");
  EXPECT_EQ(watcher->text(), "one");
  EXPECT_THAT(texts(*watcher, milliseconds(1300)), IsEmpty());
}

TEST_F(ConfigWatch, AFileThatIsGoneIsSaidWithinASecondAndNoticedWhenItIsBack) {
  write(dir / "c.yaml", "one");
  auto watcher = open(dir / "c.yaml");
  fs::remove(dir / "c.yaml");
  EXPECT_THAT(texts(*watcher, seconds(1)), IsEmpty());
  EXPECT_THAT(watcher->problem(), HasSubstr("c.yaml: open: No such file"));
  EXPECT_EQ(watcher->text(), "one") << "the last text stays";
  write(dir / "c.yaml", "one");
  EXPECT_THAT(texts(*watcher, seconds(1)), ElementsAre("one")) << "back, though nothing is new";
  EXPECT_EQ(watcher->problem(), "");
}

TEST_F(ConfigWatch, ADirectoryInThePlaceOfTheFileIsSaid) {
  write(dir / "c.yaml", "one");
  auto watcher = open(dir / "c.yaml");
  fs::remove(dir / "c.yaml");
  fs::create_directory(dir / "c.yaml");
  EXPECT_THAT(texts(*watcher, seconds(2)), IsEmpty());
  EXPECT_THAT(watcher->problem(), HasSubstr("c.yaml: it is a directory"));
  fs::remove(dir / "c.yaml");
  write(dir / "c.yaml", "two");
  EXPECT_THAT(texts(*watcher, seconds(2)), ElementsAre("two"));
  EXPECT_EQ(watcher->problem(), "");
}

TEST_F(ConfigWatch, AnEditorThatRemovesTheFileForAMomentIsNoProblem) {
  write(dir / "c.yaml", "one");
  auto watcher = open(dir / "c.yaml");
  for (int i = 0; i < 5; ++i) {
    fs::remove(dir / "c.yaml");
    EXPECT_THAT(texts(*watcher, milliseconds(100)), IsEmpty());
    EXPECT_EQ(watcher->problem(), "");
    write(dir / "c.yaml", "one");
    EXPECT_THAT(texts(*watcher, milliseconds(200)), IsEmpty());
  }
}

TEST_F(ConfigWatch, C01_ASwapOfDataIsNoticedOnce) {
  projected("..2026_a", "one");
  fs::create_symlink("..2026_a", dir / "..data");
  fs::create_symlink("..data/headgate.yaml", dir / "headgate.yaml");
  auto watcher = open(dir / "headgate.yaml");
  projected("..2026_b", "two");
  fs::create_symlink("..2026_b", dir / "..data_tmp");
  fs::rename(dir / "..data_tmp", dir / "..data");
  fs::remove_all(dir / "..2026_a");
  EXPECT_THAT(texts(*watcher, seconds(2)), ElementsAre("two"));
  EXPECT_EQ(watcher->text(), "two");
  // ... and the next swap, too: the watch follows the link.
  projected("..2026_c", "three");
  fs::create_symlink("..2026_c", dir / "..data_tmp");
  fs::rename(dir / "..data_tmp", dir / "..data");
  EXPECT_THAT(texts(*watcher, seconds(2)), ElementsAre("three"));
}

TEST_F(ConfigWatch, C01_ASwapThatChangesNothingIsNoReload) {
  projected("..2026_a", "one");
  fs::create_symlink("..2026_a", dir / "..data");
  fs::create_symlink("..data/headgate.yaml", dir / "headgate.yaml");
  auto watcher = open(dir / "headgate.yaml");
  projected("..2026_b", "one");
  fs::create_symlink("..2026_b", dir / "..data_tmp");
  fs::rename(dir / "..data_tmp", dir / "..data");
  EXPECT_THAT(texts(*watcher, milliseconds(1500)), IsEmpty());
}

TEST_F(ConfigWatch, C02_LnSfnOfTheFileIsNoticedOnce) {
  write(dir / "a.yaml", "one");
  write(dir / "b.yaml", "two");
  fs::create_symlink("a.yaml", dir / "c.yaml");
  auto watcher = open(dir / "c.yaml");
  fs::remove(dir / "c.yaml");  // ln -sfn of coreutils before 9: unlink, then symlink
  fs::create_symlink("b.yaml", dir / "c.yaml");
  EXPECT_THAT(texts(*watcher, seconds(2)), ElementsAre("two"));
}

TEST_F(ConfigWatch, C02_LnSfnOfTheDirectoryIsNoticedOnce) {
  fs::create_directory(dir / "v1");
  fs::create_directory(dir / "v2");
  write(dir / "v1/c.yaml", "one");
  write(dir / "v2/c.yaml", "two");
  fs::create_symlink("v1", dir / "now");
  auto watcher = open(dir / "now/c.yaml");
  fs::create_symlink("v2", dir / "tmp");
  fs::rename(dir / "tmp", dir / "now");
  EXPECT_THAT(texts(*watcher, seconds(2)), ElementsAre("two"));
  write(dir / "v2/c.yaml", "three");
  EXPECT_THAT(texts(*watcher, milliseconds(600)), ElementsAre("three")) << "by the hint";
}

TEST_F(ConfigWatch, C02_MvOverTheFileIsNoticedOnce) {
  write(dir / "c.yaml", "one");
  auto watcher = open(dir / "c.yaml");
  write(dir / "new", "two");
  fs::rename(dir / "new", dir / "c.yaml");
  EXPECT_THAT(texts(*watcher, seconds(2)), ElementsAre("two"));
}

TEST_F(ConfigWatch, C02_ARewriteInPlaceIsNoticedOnce) {
  write(dir / "c.yaml", "one");
  auto watcher = open(dir / "c.yaml");
  write(dir / "c.yaml", "two");
  EXPECT_THAT(texts(*watcher, seconds(2)), ElementsAre("two"));
}

TEST_F(ConfigWatch, C02_ARewriteOfALinksGoalElsewhereIsNoticedByTheHint) {
  fs::create_directory(dir / "etc");
  fs::create_directory(dir / "store");
  write(dir / "store/c.yaml", "one");
  fs::create_symlink(dir / "store/c.yaml", dir / "etc/c.yaml");
  auto watcher = open(dir / "etc/c.yaml");
  write(dir / "store/c.yaml", "two");
  EXPECT_THAT(texts(*watcher, milliseconds(600)), ElementsAre("two"));
}

TEST_F(ConfigWatch, AFileThatIsWrittenInPiecesIsReturnedWhole) {
  write(dir / "c.yaml", "one");
  auto watcher = open(dir / "c.yaml");
  std::thread writer([&] {
    std::ofstream stream(dir / "c.yaml", std::ios::trunc);
    for (int i = 0; i < 20; ++i) {
      stream << "piece " << i << "\n" << std::flush;
      std::this_thread::sleep_for(milliseconds(20));
    }
  });
  const auto seen = texts(*watcher, seconds(2));
  writer.join();
  ASSERT_FALSE(seen.empty());
  EXPECT_THAT(seen.back(), HasSubstr("piece 19\n"));
  EXPECT_LE(seen.size(), 2U) << "a busy machine may stall the writer for 100 ms once";
}

TEST_F(ConfigWatch, AChangeThatIsTakenBackIsNone) {
  write(dir / "c.yaml", "one");
  auto watcher = open(dir / "c.yaml");
  const Instant start = steady_clock::now();
  EXPECT_EQ(watcher->poll(start), std::nullopt);
  write(dir / "c.yaml", "two");
  EXPECT_EQ(watcher->poll(start + milliseconds(60)), std::nullopt);
  write(dir / "c.yaml", "one");
  EXPECT_EQ(watcher->poll(start + milliseconds(200)), std::nullopt);
  EXPECT_EQ(watcher->poll(start + milliseconds(2000)), std::nullopt);
  EXPECT_EQ(watcher->poll(start + milliseconds(4000)), std::nullopt);
}

TEST_F(ConfigWatch, AChangeMustStandFor100Milliseconds) {
  write(dir / "c.yaml", "one");
  auto watcher = open(dir / "c.yaml");
  const Instant start = steady_clock::now();
  EXPECT_EQ(watcher->poll(start), std::nullopt);
  write(dir / "c.yaml", "two");
  EXPECT_EQ(watcher->poll(start + milliseconds(60)), std::nullopt) << "seen for the first time";
  EXPECT_EQ(watcher->poll(start + milliseconds(130)), std::nullopt);
  EXPECT_EQ(watcher->poll(start + milliseconds(161)), "two");
  EXPECT_EQ(watcher->poll(start + milliseconds(1200)), std::nullopt);
}

TEST_F(ConfigWatch, AFileThatIsAwayIsNoChange) {
  write(dir / "c.yaml", "one");
  auto watcher = open(dir / "c.yaml");
  fs::remove(dir / "c.yaml");
  EXPECT_THAT(texts(*watcher, milliseconds(1300)), IsEmpty());
  write(dir / "c.yaml", "two");
  EXPECT_THAT(texts(*watcher, seconds(2)), ElementsAre("two"));
}

TEST_F(ConfigWatch, ABusyDirectoryCostsFewReadings) {
  write(dir / "c.yaml", "one");
  auto watcher = open(dir / "c.yaml");
  int wakeups = 0;
  const auto end = steady_clock::now() + milliseconds(500);
  while (steady_clock::now() < end) {
    write(dir / "other", std::to_string(wakeups));
    pollfd waiting{watcher->fd(), POLLIN, 0};
    (void)::poll(&waiting, 1, 10);
    EXPECT_EQ(watcher->poll(steady_clock::now()), std::nullopt);
    ++wakeups;
  }
  EXPECT_GT(wakeups, 20);
}

TEST_F(ConfigWatch, NeedsAFileThatCanBeRead) {
  const auto watcher = ConfigWatcher::open((dir / "none.yaml").string());
  ASSERT_FALSE(watcher);
  EXPECT_THAT(watcher.error().message, HasSubstr("none.yaml: open: No such file"));
  EXPECT_FALSE(ConfigWatcher::open(dir.string()));
}

TEST_F(ConfigWatch, C04_APlainFileHasNoWarning) {
  write(dir / "c.yaml", "one");
  EXPECT_EQ(open(dir / "c.yaml")->warning(), "");
}

TEST(ConfigMount, C04_AFileThatIsAMountPointHasAWarning) {
  const std::string mounts =
      "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n"
      "90 22 8:1 /var/lib/kubelet/pods/u/volume-subpaths/config/headgate/0 "
      "/etc/headgate/headgate.yaml ro,relatime - ext4 /dev/sda1 rw\n"
      "91 22 8:1 /x /etc/with\\040blank/c.yaml ro,relatime - ext4 /dev/sda1 rw\n";
  EXPECT_THAT(mount_warning("/etc/headgate/headgate.yaml", mounts),
              HasSubstr("config is not on a projected volume directory; hot reload will not work"));
  EXPECT_NE(mount_warning("/etc/with blank/c.yaml", mounts), "");
  EXPECT_EQ(mount_warning("/etc/headgate/other.yaml", mounts), "");
  EXPECT_EQ(mount_warning("/etc/headgate", mounts), "");
  EXPECT_EQ(mount_warning("/etc/headgate/headgate.yaml", ""), "");
  EXPECT_EQ(mount_warning("/etc/headgate/headgate.yaml", "garbage\n\n \n"), "");
}

/// Exit code of `body` in a child with a mount namespace of its own; 77 = could not be had.
int in_mount_namespace(const std::function<int()>& body) {
  const pid_t child = ::fork();
  if (child == 0) {
    const bool apart = ::unshare(CLONE_NEWNS) == 0 || ::unshare(CLONE_NEWUSER | CLONE_NEWNS) == 0;
    if (!apart || ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) {
      ::_exit(77);
    }
    ::_exit(body());
  }
  int status = 0;
  (void)::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST_F(ConfigWatch, C04_ABoundFileIsFoundForReal) {
  write(dir / "goal", "one");
  write(dir / "c.yaml", "");
  fs::create_symlink("c.yaml", dir / "link.yaml");
  const int code = in_mount_namespace([&] {
    if (::mount((dir / "goal").c_str(), (dir / "c.yaml").c_str(), nullptr, MS_BIND, nullptr) != 0) {
      return 77;
    }
    const auto direct = ConfigWatcher::open((dir / "c.yaml").string());
    const auto by_link = ConfigWatcher::open((dir / "link.yaml").string());
    return direct && by_link && !(*direct)->warning().empty() && !(*by_link)->warning().empty() ? 0
                                                                                                : 1;
  });
  if (code == 77) {
    GTEST_SKIP() << "no mount namespace to be had here";
  }
  EXPECT_EQ(code, 0);
}

}  // namespace
}  // namespace headgate
