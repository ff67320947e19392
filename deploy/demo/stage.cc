// SPDX-License-Identifier: Apache-2.0
#include "deploy/demo/stage.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <utility>

#include <fmt/format.h>

namespace headgate::demo {
namespace {

UniqueFd current_netns() {
  return UniqueFd(open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC));
}

Result<UniqueFd> new_netns() {
  if (unshare(CLONE_NEWNET) != 0) {
    return sys_fail(errno, "make a network namespace");
  }
  UniqueFd fd = current_netns();
  if (!fd) {
    return sys_fail(errno, "open the network namespace");
  }
  if (auto up = run_command({"ip", "link", "set", "lo", "up"}); !up) {
    return tl::unexpected(up.error());
  }
  return fd;
}

/// What the child reports when it cannot become what it should.
struct Failure {
  int error = 0;
  std::array<char, 120> step{};
};

[[noreturn]] void give_up(int report_fd, std::string_view step) {
  Failure failure{errno, {}};
  step.copy(failure.step.data(), failure.step.size() - 1);
  static_cast<void>(!write(report_fd, &failure, sizeof failure));
  _exit(127);
}

[[noreturn]] void become(const Spawn& what, int report_fd) {
  setsid();
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGPIPE, SIGCHLD}) {
    ::signal(number, SIG_DFL);
  }
  for (const std::string& file : what.procs_files) {
    const int fd = open(file.c_str(), O_WRONLY | O_CLOEXEC);
    if (fd < 0 || write(fd, "0", 1) != 1) {
      give_up(report_fd, file);
    }
    close(fd);
  }
  if (what.netns_fd >= 0 && setns(what.netns_fd, CLONE_NEWNET) != 0) {
    give_up(report_fd, "setns");
  }
  if (what.nice != 0) {
    setpriority(PRIO_PROCESS, 0, what.nice);
  }
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
  }
  const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  dup2(null, STDIN_FILENO);
  if (!what.log_file.empty()) {
    const int log = open(what.log_file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (log < 0) {
      give_up(report_fd, what.log_file);
    }
    dup2(log, STDOUT_FILENO);
    dup2(log, STDERR_FILENO);
  }
  if (what.function) {
    close(report_fd);
    _exit(what.function());
  }
  std::vector<std::string> environment = what.environment;
  const char* path = std::getenv("PATH");
  environment.push_back(fmt::format("PATH={}", path != nullptr ? path : "/usr/sbin:/usr/bin"));
  const auto pointers = [](const std::vector<std::string>& strings) {
    std::vector<char*> result;
    for (const std::string& s : strings) {
      result.push_back(const_cast<char*>(s.c_str()));
    }
    result.push_back(nullptr);
    return result;
  };
  execvpe(what.argv[0].c_str(), pointers(what.argv).data(), pointers(environment).data());
  give_up(report_fd, what.argv[0]);
}

}  // namespace

const std::vector<std::string>& Network::client_addresses() {
  static const std::vector<std::string> kAddresses = {"10.77.1.1", "10.77.1.2", "10.77.1.3",
                                                      "10.77.1.4", "10.77.1.5", "10.77.1.6",
                                                      "10.77.1.7", "10.77.1.8"};
  return kAddresses;
}

Result<Network> Network::create() {
  const UniqueFd home = current_netns();
  if (!home) {
    return sys_fail(errno, "open /proc/thread-self/ns/net");
  }
  const auto build = [&]() -> Result<Network> {
    Network network;
    for (UniqueFd* fd : {&network.collector_, &network.clients_}) {
      auto made = new_netns();
      if (!made) {
        return tl::unexpected(made.error());
      }
      *fd = std::move(*made);
    }
    // Now in the clients' namespace.
    const std::string collector = fmt::format("/proc/{}/fd/{}", getpid(), network.collector_.get());
    std::vector<std::vector<std::string>> commands = {
        {"ip", "link", "add", "clients0", "type", "veth", "peer", "name", "collector0"},
        {"ip", "link", "set", "collector0", "netns", collector},
        {"ip", "link", "set", "clients0", "up"}};
    for (const std::string& address : client_addresses()) {
      commands.push_back({"ip", "address", "add", address + "/16", "dev", "clients0"});
    }
    for (const auto& command : commands) {
      if (auto done = run_command(command); !done) {
        return tl::unexpected(done.error());
      }
    }
    if (setns(network.collector_.get(), CLONE_NEWNET) != 0) {
      return sys_fail(errno, "setns to the collector's network namespace");
    }
    for (const auto& command : std::vector<std::vector<std::string>>{
             {"ip", "address", "add", fmt::format("{}/16", server_address()), "dev", "collector0"},
             {"ip", "link", "set", "collector0", "up"}}) {
      if (auto done = run_command(command); !done) {
        return tl::unexpected(done.error());
      }
    }
    return network;
  };
  auto network = build();
  if (setns(home.get(), CLONE_NEWNET) != 0) {
    return sys_fail(errno, "setns back to the first network namespace");
  }
  return network;
}

Result<> within_netns(int netns_fd, const std::function<Result<>()>& work) {
  const UniqueFd home = current_netns();
  if (!home || setns(netns_fd, CLONE_NEWNET) != 0) {
    return sys_fail(errno, "setns");
  }
  auto result = work();
  if (setns(home.get(), CLONE_NEWNET) != 0) {
    return sys_fail(errno, "setns back to the first network namespace");
  }
  return result;
}

Result<pid_t> spawn(const Spawn& what) {
  std::array<int, 2> report{};
  if (pipe2(report.data(), O_CLOEXEC) != 0) {
    return sys_fail(errno, "pipe");
  }
  const UniqueFd read_end(report[0]);
  UniqueFd write_end(report[1]);
  const pid_t pid = fork();
  if (pid < 0) {
    return sys_fail(errno, "fork");
  }
  if (pid == 0) {
    become(what, write_end.get());
  }
  write_end.reset();
  Failure failure;
  ssize_t n = 0;
  do {
    n = read(read_end.get(), &failure, sizeof failure);
  } while (n < 0 && errno == EINTR);
  if (n == static_cast<ssize_t>(sizeof failure)) {
    waitpid(pid, nullptr, 0);
    return sys_fail(failure.error,
                    fmt::format("start {}: {}", what.argv.empty() ? "a child" : what.argv[0],
                                failure.step.data()));
  }
  return pid;
}

Child::Child(Child&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)), grace_ms_(other.grace_ms_), status_(other.status_) {}

Child& Child::operator=(Child&& other) noexcept {
  if (this != &other) {
    stop();
    pid_ = std::exchange(other.pid_, -1);
    grace_ms_ = other.grace_ms_;
    status_ = other.status_;
  }
  return *this;
}

bool Child::reap() {
  if (pid_ > 0 && waitpid(pid_, &status_, WNOHANG) == pid_) {
    pid_ = -1;
    return true;
  }
  return false;
}

void Child::stop() {
  if (pid_ <= 0) {
    return;
  }
  if (grace_ms_ > 0) {
    kill(pid_, SIGTERM);
    for (int waited = 0; waited < grace_ms_ && !reap(); waited += 10) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }
  if (pid_ > 0) {
    kill(pid_, SIGKILL);
    while (waitpid(pid_, &status_, 0) < 0 && errno == EINTR) {
    }
    pid_ = -1;
  }
}

std::string describe_status(int status) {
  return WIFSIGNALED(status) ? fmt::format("killed by signal {}", WTERMSIG(status))
                             : fmt::format("exited with status {}", WEXITSTATUS(status));
}

Result<> run_command(const std::vector<std::string>& argv) {
  std::array<int, 2> output{};
  if (pipe2(output.data(), O_CLOEXEC) != 0) {
    return sys_fail(errno, "pipe");
  }
  const UniqueFd read_end(output[0]);
  UniqueFd write_end(output[1]);
  Spawn what;
  what.argv = argv;
  what.log_file = fmt::format("/proc/self/fd/{}", write_end.get());
  auto pid = spawn(what);
  if (!pid) {
    return tl::unexpected(pid.error());
  }
  write_end.reset();
  std::string text;
  std::array<char, 512> buffer{};
  for (ssize_t n = 0; (n = read(read_end.get(), buffer.data(), buffer.size())) != 0;) {
    if (n < 0 && errno != EINTR) {
      break;
    }
    text.append(buffer.data(), static_cast<std::size_t>(std::max<ssize_t>(n, 0)));
  }
  int status = 0;
  while (waitpid(*pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (status != 0) {
    std::string line;
    for (const std::string& word : argv) {
      line += (line.empty() ? "" : " ") + word;
    }
    while (!text.empty() && text.back() == '\n') {
      text.pop_back();
    }
    return fail(
        fmt::format("{}: {}{}{}", line, describe_status(status), text.empty() ? "" : ": ", text));
  }
  return {};
}

}  // namespace headgate::demo
