// SPDX-License-Identifier: Apache-2.0
#include "deploy/demo/under_way.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>

namespace headgate::demo {

UniqueFd connect_from(const LoadTarget& target, std::size_t turn) {
  UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  const int on = 1;
  sockaddr_in source{};
  source.sin_family = AF_INET;
  source.sin_addr = target.sources[turn % target.sources.size()];
  // The port is chosen by connect(), by the whole 4-tuple (ip(7)): a source is not used up by
  // 28,000 connections in TIME_WAIT.
  const bool begun =
      fd && setsockopt(fd.get(), IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof on) == 0 &&
      bind(fd.get(), reinterpret_cast<const sockaddr*>(&source), sizeof source) == 0 &&
      (connect(fd.get(), reinterpret_cast<const sockaddr*>(&target.server), sizeof target.server) ==
           0 ||
       errno == EINPROGRESS);
  if (!begun) {
    const int error = errno;
    fd.reset();
    errno = error;
  }
  return fd;
}

}  // namespace headgate::demo
