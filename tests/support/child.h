// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <functional>
#include <map>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "agent/base/unique_fd.h"
#include "tests/support/net_lab.h"

namespace headgate::lab {

/// A process in a namespace and a cgroup, with its standard input and output.
class Child {
 public:
  Child(const Namespace& netns, const Cgroup& cgroup, const std::function<void()>& work) {
    std::array<int, 2> in{};
    std::array<int, 2> out{};
    if (::pipe2(in.data(), O_CLOEXEC) != 0 || ::pipe2(out.data(), O_CLOEXEC) != 0) {
      throw SetupError("pipe");
    }
    const UniqueFd in_read(in[0]);
    const UniqueFd out_write(out[1]);
    in_ = UniqueFd(in[1]);
    out_ = UniqueFd(out[0]);
    const std::vector<std::string> procs = cgroup.procs_files();
    netns.run([&] {
      pid_ = ::fork();
      if (pid_ == 0) {
        for (const std::string& file : procs) {
          std::ofstream(file) << 0;  // itself
        }
        ::dup2(in_read.get(), STDIN_FILENO);
        ::dup2(out_write.get(), STDOUT_FILENO);
        work();
        ::_exit(127);
      }
    });
    if (pid_ < 0) {
      throw SetupError("fork");
    }
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child() {
    if (pid_ > 0) {
      ::kill(pid_, SIGKILL);
      ::waitpid(pid_, nullptr, 0);
    }
  }
  void signal(int number) const { ::kill(pid_, number); }
  /// To its standard input.
  void write(const std::string& text) const {
    if (::write(in_.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
      throw SetupError("write to a child");
    }
  }
  /// Ends its input; returns what it has written when it has ended.
  std::string finish() {
    in_.reset();
    std::string all = read(std::string::npos);
    ::waitpid(std::exchange(pid_, -1), nullptr, 0);
    return all;
  }
  /// So many bytes of its output, or all.
  [[nodiscard]] std::string read(std::size_t bytes) const {
    std::string all;
    std::array<char, 65536> part{};
    while (all.size() < bytes) {
      const ssize_t got =
          ::read(out_.get(), part.data(), std::min(part.size(), bytes - all.size()));
      if (got <= 0) {
        break;
      }
      all.append(part.data(), static_cast<std::size_t>(got));
    }
    return all;
  }

 private:
  UniqueFd in_;
  UniqueFd out_;
  pid_t pid_ = -1;
};

/// "NAME NUMBER" on each line.
inline std::map<std::string, int> numbers_of(const std::string& text) {
  std::map<std::string, int> out;
  std::istringstream lines(text);
  std::string name;
  for (int number = 0; lines >> name >> number;) {
    out[name] = number;
  }
  return out;
}

}  // namespace headgate::lab
