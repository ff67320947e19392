// SPDX-License-Identifier: Apache-2.0
#include "agent/base/service.h"

#include <sched.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include <fmt/format.h>

#include "agent/base/unique_fd.h"

namespace headgate {

void notify_service(std::string_view message) {
  const char* path = std::getenv("NOTIFY_SOCKET");  // NOLINT: nobody calls setenv
  if (path == nullptr || *path == '\0') {
    return;
  }
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::size_t length = std::strlen(path);
  if (length >= sizeof(address.sun_path)) {
    return;
  }
  std::memcpy(address.sun_path, path, length);
  if (address.sun_path[0] == '@') {
    address.sun_path[0] = '\0';  // abstract socket
  }
  const UniqueFd fd(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (fd) {
    (void)::sendto(fd.get(), message.data(), message.size(), MSG_NOSIGNAL,
                   reinterpret_cast<const sockaddr*>(&address),  // NOLINT: BSD sockets
                   static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + length));
  }
}

std::chrono::microseconds watchdog_interval() {
  const char* text = std::getenv("WATCHDOG_USEC");  // NOLINT: nobody calls setenv
  return std::chrono::microseconds(text == nullptr ? 0 : std::strtoll(text, nullptr, 10));
}

Result<std::string> raise_priority() {
  sched_param param{};
  param.sched_priority = 10;
  if (::sched_setscheduler(0, SCHED_FIFO | SCHED_RESET_ON_FORK, &param) == 0) {
    return "SCHED_FIFO";
  }
  const int fifo_errno = errno;
  if (::setpriority(PRIO_PROCESS, 0, -20) == 0) {
    return "nice -20";
  }
  return sys_fail(fifo_errno,
                  "neither SCHED_FIFO nor nice -20 (needs CAP_SYS_NICE): on a busy node the agent "
                  "may tick late and its leases run out, which lets everything in");
}

OwnUsage own_usage() {
  OwnUsage out;
  rusage usage{};
  if (::getrusage(RUSAGE_SELF, &usage) == 0) {
    const auto add = [&out](const timeval& t) {
      out.cpu_seconds += static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
    };
    add(usage.ru_utime);
    add(usage.ru_stime);
  }
  std::ifstream statm("/proc/self/statm");
  std::uint64_t size = 0;
  std::uint64_t resident = 0;
  if (statm >> size >> resident) {
    out.resident_bytes = resident * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  }
  return out;
}

unsigned machine_cpus() {
  // Configured rather than online: one that goes offline has counted until then.
  const long cpus = ::sysconf(_SC_NPROCESSORS_CONF);
  return cpus > 0 ? static_cast<unsigned>(cpus) : 0;
}

std::string kernel_release() {
  utsname name{};
  return ::uname(&name) == 0 ? name.release : "unknown";
}

}  // namespace headgate
