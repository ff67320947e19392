// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "headgate/sample.h"

#include "agent/base/unique_fd.h"

namespace headgate {

/// One cgroup file that stays open and is read from its beginning again and again: a pread of an
/// open file costs a fifth of open, read and close. After a failure it is closed, and opened again
/// only by a read that may do so (the ones once a second), so that a file that is not there costs
/// nothing in between. Allocates nothing.
class KeptFile {
 public:
  /// Enough for memory.stat, the longest file read (about 2 KiB on Linux 6.x). What does not fit
  /// is cut at a line.
  static constexpr std::size_t kBufferBytes = 16384;

  KeptFile() = default;
  /// `path`: absolute, or relative to the directory given to read().
  explicit KeptFile(std::string path) : path_(std::move(path)) {}

  struct Text {
    std::string_view text;              ///< valid until the buffer is used again
    Unknown problem = Unknown::kCount;  ///< kCount = read
    bool tried = true;                  ///< false: closed, and this read might not open it
    [[nodiscard]] bool ok() const { return problem == Unknown::kCount; }
  };
  /// `directory_fd`: O_PATH of the directory, so that a file is never taken from another one that
  /// was made under its name; not used for an absolute path.
  [[nodiscard]] Text read(int directory_fd, bool may_open, std::span<char> buffer);
  void close() { fd_.reset(); }
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
  UniqueFd fd_;
  Unknown problem_ = Unknown::kNotRead;  ///< of the last attempt, while fd_ is closed
};

/// Why a call on a cgroup file failed: ENOENT = missing, ENODEV = gone, EOPNOTSUPP = unsupported.
[[nodiscard]] Unknown reason_of_errno(int sys_errno);

}  // namespace headgate
