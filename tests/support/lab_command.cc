// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "tests/support/net_lab.h"

namespace headgate::lab {

std::string run_command(const std::vector<std::string>& argv, const std::string& input) {
  std::string shown;
  std::vector<char*> arguments;
  for (const std::string& argument : argv) {
    shown += (shown.empty() ? "" : " ") + argument;
    arguments.push_back(const_cast<char*>(argument.c_str()));  // NOLINT: posix_spawn only reads
  }
  arguments.push_back(nullptr);

  std::array<int, 2> in{};
  std::array<int, 2> out{};
  if (::pipe2(in.data(), O_CLOEXEC) != 0) {
    throw SetupError("pipe: " + std::string(std::strerror(errno)));
  }
  UniqueFd in_read(in[0]);
  UniqueFd in_write(in[1]);
  if (::pipe2(out.data(), O_CLOEXEC) != 0) {
    throw SetupError("pipe: " + std::string(std::strerror(errno)));
  }
  UniqueFd out_read(out[0]);
  UniqueFd out_write(out[1]);

  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, in_read.get(), STDIN_FILENO);
  ::posix_spawn_file_actions_adddup2(&actions, out_write.get(), STDOUT_FILENO);
  ::posix_spawn_file_actions_adddup2(&actions, out_write.get(), STDERR_FILENO);
  pid_t pid = -1;
  // A child starts in the namespaces of the thread that makes it.
  const int error =
      ::posix_spawnp(&pid, arguments[0], &actions, nullptr, arguments.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  if (error != 0) {
    throw SetupError(shown + ": " + std::strerror(error));
  }
  in_read.reset();
  out_write.reset();

  // Reads while it writes, so that neither side can block the other for good.
  std::string output;
  std::size_t written = 0;
  ::fcntl(in_write.get(), F_SETFL, O_NONBLOCK);
  while (out_read) {
    if (in_write && written == input.size()) {
      in_write.reset();
    }
    std::array<pollfd, 2> waiting{pollfd{out_read.get(), POLLIN, 0},
                                  pollfd{in_write.get(), POLLOUT, 0}};
    ::poll(waiting.data(), waiting.size(), -1);
    if (waiting[1].revents != 0) {
      const ssize_t put = ::write(in_write.get(), input.data() + written, input.size() - written);
      if (put > 0) {
        written += static_cast<std::size_t>(put);
      } else if (put < 0 && errno != EAGAIN && errno != EINTR) {
        in_write.reset();
      }
    }
    if (waiting[0].revents != 0) {
      std::array<char, 4096> data{};
      const ssize_t got = ::read(out_read.get(), data.data(), data.size());
      if (got > 0) {
        output.append(data.data(), static_cast<std::size_t>(got));
      } else if (got == 0 || errno != EINTR) {
        out_read.reset();
      }
    }
  }
  int status = 0;
  pid_t ended = -1;
  do {
    ended = ::waitpid(pid, &status, 0);
  } while (ended < 0 && errno == EINTR);
  if (ended != pid || !WIFEXITED(status) || WEXITSTATUS(status) != 0) {
    throw SetupError(shown + ": " + (output.empty() ? "failed" : output));
  }
  return output;
}

}  // namespace headgate::lab
