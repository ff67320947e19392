// SPDX-License-Identifier: Apache-2.0
// headgate_lab_server: stdin is a pipe whose end means stop, fd 3 holds the shared counters.
// Arguments: KEY=VALUE with address, port, ipv6_only, udp, mode, backlog, work_us, uid, procs
// (repeatable).
#include <fcntl.h>
#include <grp.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "tests/support/server_loop.h"

namespace {

bool join_cgroup(const std::string& procs_file) {
  const int fd = ::open(procs_file.c_str(), O_WRONLY | O_CLOEXEC);
  const bool joined = fd >= 0 && ::write(fd, "0", 1) == 1;
  if (!joined) {
    std::perror(procs_file.c_str());
  }
  ::close(fd);
  return joined;
}

/// Starts again as this user, as a container runtime starts a program: in the cgroup that it has
/// joined, with a /proc of its own (a process that only changes its user leaves that to root).
void become(unsigned uid, int argc, char** argv) {
  std::vector<char*> arguments;
  for (int i = 0; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (!argument.starts_with("uid=") && !argument.starts_with("procs=")) {
      arguments.push_back(argv[i]);
    }
  }
  arguments.push_back(nullptr);
  if (::setgroups(0, nullptr) == 0 && ::setresgid(uid, uid, uid) == 0 &&
      ::setresuid(uid, uid, uid) == 0) {
    (void)::execv("/proc/self/exe", arguments.data());
  }
  std::perror("headgate_lab_server: another user");
}

}  // namespace

int main(int argc, char** argv) {
  headgate::lab::ServerOptions options;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    const std::size_t equals = argument.find('=');
    const std::string key = argument.substr(0, equals);
    const std::string value = equals == std::string::npos ? "" : argument.substr(equals + 1);
    if (key == "address") {
      options.address = value;
    } else if (key == "port") {
      options.port = static_cast<std::uint16_t>(std::atoi(value.c_str()));
    } else if (key == "ipv6_only") {
      options.ipv6_only = value == "1";
    } else if (key == "udp") {
      options.udp = value == "1";
    } else if (key == "mode") {
      options.mode = static_cast<headgate::lab::ServerMode>(std::atoi(value.c_str()));
    } else if (key == "backlog") {
      options.backlog = std::atoi(value.c_str());
    } else if (key == "work_us") {
      options.work_us = static_cast<unsigned>(std::atoi(value.c_str()));
    } else if (key == "uid") {
      options.uid = static_cast<unsigned>(std::atoi(value.c_str()));
    } else if (key == "procs") {
      // Before it listens: connections inherit the cgroup of the listener.
      if (!join_cgroup(value)) {
        return 1;
      }
    } else {
      (void)std::fprintf(stderr, "headgate_lab_server: unknown argument %s\n", argv[i]);
      return 2;
    }
  }
  if (options.uid != 0) {
    become(options.uid, argc, argv);
    return 1;
  }
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) == 0) {
    files.rlim_cur = files.rlim_max;
    (void)::setrlimit(RLIMIT_NOFILE, &files);
  }
  void* shared = ::mmap(nullptr, sizeof(headgate::lab::ServerCounters), PROT_READ | PROT_WRITE,
                        MAP_SHARED, 3, 0);
  if (shared == MAP_FAILED) {
    std::perror("headgate_lab_server: map the counters on fd 3");
    return 1;
  }
  return headgate::lab::serve(options, *static_cast<headgate::lab::ServerCounters*>(shared),
                              STDIN_FILENO)
             ? 0
             : 1;
}
