// SPDX-License-Identifier: Apache-2.0
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>

#include <gtest/gtest.h>

#include "agent/targets/serving_process.h"

namespace headgate {
namespace {

std::uint32_t inode_of(int fd) {
  struct stat st {};
  return ::fstat(fd, &st) == 0 ? static_cast<std::uint32_t>(st.st_ino) : 0;
}

/// A process that holds a socket of ours, or none, until it is killed.
class Child {
 public:
  explicit Child(int keep_fd) : pid_(::fork()) {
    if (pid_ == 0) {
      ::close_range(3, static_cast<unsigned>(keep_fd < 3 ? 2 : keep_fd - 1), 0);
      ::close_range(static_cast<unsigned>(keep_fd < 3 ? 3 : keep_fd + 1), ~0U, 0);
      for (;;) {
        ::pause();
      }
    }
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  Child(Child&&) = delete;
  Child& operator=(Child&&) = delete;
  ~Child() { kill(); }
  void kill() {
    if (pid_ > 0) {
      ::kill(pid_, SIGKILL);
      ::waitpid(pid_, nullptr, 0);
      pid_ = -1;
    }
  }
  [[nodiscard]] int pid() const { return pid_; }

 private:
  pid_t pid_;
};

TEST(ServingProcess, IsTheOneThatHoldsTheSocketAndItsEndIsToldOnce) {
  Child stranger(-1);
  UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const std::uint32_t inode = inode_of(socket.get());
  Child server(socket.get());
  socket.reset();
  ServingProcess process;
  process.follow("/proc", std::array{stranger.pid(), server.pid()}, {inode});
  EXPECT_EQ(process.pid(), server.pid());
  EXPECT_FALSE(process.has_ended());
  stranger.kill();
  EXPECT_FALSE(process.has_ended());
  server.kill();
  EXPECT_TRUE(process.has_ended());
  EXPECT_FALSE(process.has_ended());
  EXPECT_EQ(process.pid(), 0);
}

TEST(ServingProcess, NobodyHoldsTheSocket) {
  const Child stranger(-1);
  const UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ServingProcess process;
  process.follow("/proc", std::array{stranger.pid(), 0x7ffffffe}, {inode_of(socket.get())});
  EXPECT_EQ(process.pid(), 0);
  EXPECT_FALSE(process.has_ended());
}

}  // namespace
}  // namespace headgate
