// SPDX-License-Identifier: Apache-2.0
#include "agent/config/read_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "agent/base/unique_fd.h"

namespace headgate {

Result<std::string> read_small_file(const std::string& path, bool pipes) {
  constexpr std::size_t kMaxBytes = (1U << 20U) + 1;
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd) {
    return sys_fail(errno, "open");
  }
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) {
    return sys_fail(errno, "stat");
  }
  if (pipes && S_ISFIFO(info.st_mode)) {
    if (::fcntl(fd.get(), F_SETFL, 0) != 0) {
      return sys_fail(errno, "fcntl");
    }
  } else if (!S_ISREG(info.st_mode)) {
    return fail(S_ISDIR(info.st_mode) ? "it is a directory" : "it is not a regular file");
  }
  std::string out;
  std::array<char, 16384> chunk{};
  while (out.size() < kMaxBytes) {
    const ssize_t n = ::read(fd.get(), chunk.data(), chunk.size());
    if (n < 0 && errno == EINTR) {
      continue;
    }
    if (n < 0) {
      return sys_fail(errno, "read");
    }
    if (n == 0) {
      break;
    }
    out.append(chunk.data(), static_cast<std::size_t>(n));
  }
  return out;
}

}  // namespace headgate
