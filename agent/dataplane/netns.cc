// SPDX-License-Identifier: Apache-2.0
#include <pthread.h>
#include <sched.h>

#include <cerrno>
#include <csignal>
#include <system_error>
#include <thread>

#include "agent/dataplane/net.h"

namespace headgate {
namespace {

// A thread inherits the signal mask of its maker: with everything blocked, no handler of the
// process ever runs inside a foreign namespace.
class AllSignalsBlocked {
 public:
  AllSignalsBlocked() {
    sigset_t all;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  AllSignalsBlocked(const AllSignalsBlocked&) = delete;
  AllSignalsBlocked& operator=(const AllSignalsBlocked&) = delete;
  ~AllSignalsBlocked() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_{};
};

Result<> enter(int netns_fd) {
  if (::setns(netns_fd, CLONE_NEWNET) == 0) {
    return {};
  }
  const int error = errno;
  if (error == EPERM) {
    return sys_fail(error, "enter a network namespace (needs CAP_SYS_ADMIN)");
  }
  if (error == EINVAL) {
    return sys_fail(error, "enter a network namespace (the file is none: open /proc/PID/ns/net)");
  }
  return sys_fail(error, "enter a network namespace");
}

}  // namespace

Result<> run_in_netns(int netns_fd, const std::function<Result<>()>& work) {
  Result<> result;
  try {
    std::thread thread;
    {
      const AllSignalsBlocked blocked;
      thread = std::thread([&] {
        result = enter(netns_fd);
        if (result) {
          result = work();
        }
      });
    }
    thread.join();
  } catch (const std::system_error& e) {  // no thread to be had
    return sys_fail(e.code().value(), "start a thread for a network namespace");
  }
  return result;
}

}  // namespace headgate
