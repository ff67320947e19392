// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <spawn.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <new>

#include "tests/support/net_lab.h"

namespace headgate::lab {

void Server::await_listening() {
  const bool answered =
      eventually([&] { return counters_->port.load() != 0 || counters_->sys_errno.load() != 0; },
                 std::chrono::seconds(10));
  if (counters_->port.load() != 0) {
    options_.port = static_cast<std::uint16_t>(counters_->port.load());
    return;
  }
  throw SetupError("the lab server does not listen on " + options_.address + " port " +
                   std::to_string(options_.port) + ": " +
                   (answered ? std::strerror(counters_->sys_errno.load()) : "no answer"));
}

ServerThread::ServerThread(const Namespace& netns, ServerOptions options)
    : Server(std::move(options)), netns_(netns), own_counters_(std::make_unique<ServerCounters>()) {
  count_in(own_counters_.get());
  try {
    start();
  } catch (...) {
    stop();  // no destructor runs for what was not constructed, and a thread must be joined
    throw;
  }
}

ServerThread::~ServerThread() { stop(); }

void ServerThread::start() {
  stop();
  counters().sys_errno = 0;
  stop_.reset(::eventfd(0, EFD_CLOEXEC));
  thread_ = std::thread([this, options = options(), stop_fd = stop_.get()] {
    try {
      netns_.run([&] { serve(options, counters(), stop_fd); });
    } catch (const SetupError&) {
      counters().sys_errno = EIO;
    }
  });
  await_listening();
}

void ServerThread::stop() {
  if (!thread_.joinable()) {
    return;
  }
  const std::uint64_t one = 1;
  (void)!::write(stop_.get(), &one, sizeof(one));
  thread_.join();
}

ServerProcess::ServerProcess(const Namespace& netns, ServerOptions options, const Cgroup* cgroup)
    : Server(std::move(options)),
      netns_(netns),
      shared_(::memfd_create("headgate-lab-server", MFD_CLOEXEC)) {
  if (cgroup != nullptr) {
    procs_files_ = cgroup->procs_files();
  }
  if (!shared_ || ::ftruncate(shared_.get(), sizeof(ServerCounters)) != 0) {
    throw SetupError("memfd_create: " + std::string(std::strerror(errno)));
  }
  void* mapped =
      ::mmap(nullptr, sizeof(ServerCounters), PROT_READ | PROT_WRITE, MAP_SHARED, shared_.get(), 0);
  if (mapped == MAP_FAILED) {
    throw SetupError("mmap: " + std::string(std::strerror(errno)));
  }
  count_in(new (mapped) ServerCounters);
  try {
    start();
  } catch (...) {
    kill();
    ::munmap(&counters(), sizeof(ServerCounters));
    throw;
  }
}

ServerProcess::~ServerProcess() {
  stop();
  ::munmap(&counters(), sizeof(ServerCounters));
}

void ServerProcess::start() {
  stop();
  counters().sys_errno = 0;
  std::array<int, 2> pipe_ends{};
  if (::pipe2(pipe_ends.data(), O_CLOEXEC) != 0) {
    throw SetupError("pipe: " + std::string(std::strerror(errno)));
  }
  const UniqueFd stop_read(pipe_ends[0]);
  stop_.reset(pipe_ends[1]);

  std::vector<std::string> argv{HEADGATE_LAB_SERVER,
                                "address=" + options().address,
                                "port=" + std::to_string(options().port),
                                std::string("ipv6_only=") + (options().ipv6_only ? "1" : "0"),
                                std::string("udp=") + (options().udp ? "1" : "0"),
                                "mode=" + std::to_string(static_cast<int>(options().mode)),
                                "backlog=" + std::to_string(options().backlog),
                                "work_us=" + std::to_string(options().work_us),
                                "uid=" + std::to_string(options().uid)};
  for (const std::string& file : procs_files_) {
    argv.push_back("procs=" + file);
  }
  std::vector<char*> arguments;
  arguments.reserve(argv.size() + 1);
  for (std::string& argument : argv) {
    arguments.push_back(argument.data());
  }
  arguments.push_back(nullptr);

  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, stop_read.get(), STDIN_FILENO);
  ::posix_spawn_file_actions_adddup2(&actions, shared_.get(), 3);
  int error = 0;
  netns_.run([&] {
    error = ::posix_spawn(&pid_, arguments[0], &actions, nullptr, arguments.data(), environ);
  });
  ::posix_spawn_file_actions_destroy(&actions);
  if (error != 0) {
    pid_ = -1;
    throw SetupError(argv[0] + ": " + std::strerror(error));
  }
  const pid_t pid = pid_;
  (void)eventually(
      [&] {
        siginfo_t info{};
        ::waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG | WNOWAIT);
        if (info.si_pid == pid && counters().sys_errno.load() == 0) {
          counters().sys_errno = ECHILD;  // it died without a word, which stderr has
        }
        return counters().port.load() != 0 || counters().sys_errno.load() != 0;
      },
      std::chrono::seconds(10));
  await_listening();
}

void ServerProcess::stop() {
  if (pid_ < 0) {
    return;
  }
  stop_.reset();
  const bool ended = eventually([&] {
    siginfo_t info{};
    ::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT);
    return info.si_pid == pid_;
  });
  if (!ended) {
    ::kill(pid_, SIGKILL);
  }
  reap();
}

void ServerProcess::kill() {
  if (pid_ >= 0) {
    ::kill(pid_, SIGKILL);
    reap();
    stop_.reset();
  }
}

void ServerProcess::reap() {
  while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
  pid_ = -1;
  counters().port = 0;
  counters().closed = counters().accepted.load();
}

}  // namespace headgate::lab
