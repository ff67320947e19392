// SPDX-License-Identifier: Apache-2.0
#include "agent/cgroup/kept_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

namespace headgate {

Unknown reason_of_errno(int sys_errno) {
  switch (sys_errno) {
    case ENOENT: return Unknown::kMissing;
    case ENODEV: return Unknown::kGone;
    case EOPNOTSUPP: return Unknown::kUnsupported;
    default: return Unknown::kIo;
  }
}

KeptFile::Text KeptFile::read(int directory_fd, bool may_open, std::span<char> buffer) {
  if (!fd_.valid()) {
    if (!may_open) {
      return {{}, problem_, false};
    }
    fd_.reset(::openat(directory_fd, path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    if (!fd_.valid()) {
      problem_ = reason_of_errno(errno);
      return {{}, problem_, true};
    }
  }
  ssize_t got = 0;
  do {
    got = ::pread(fd_.get(), buffer.data(), buffer.size(), 0);
  } while (got < 0 && errno == EINTR);
  if (got < 0) {
    problem_ = reason_of_errno(errno);
    fd_.reset();
    return {{}, problem_, true};
  }
  std::string_view text(buffer.data(), static_cast<std::size_t>(got));
  if (text.size() == buffer.size()) {
    text = text.substr(0, text.rfind('\n') + 1);
    if (text.empty()) {
      return {{}, Unknown::kParse, true};
    }
  }
  return {text, Unknown::kCount, true};
}

}  // namespace headgate
