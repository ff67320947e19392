// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cerrno>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

#include <tl/expected.hpp>

namespace headgate {

/// What went wrong, for a person: the message names the thing (file, line, key, hook), the value,
/// and what is allowed or what to do. `sys_errno` is 0 where no system call failed.
struct Error {
  std::string message;
  int sys_errno = 0;

  /// The same error with more context in front: "attach to web: open /proc/1/ns/net: ...".
  [[nodiscard]] Error within(std::string_view context) const {
    return {std::string(context) + ": " + message, sys_errno};
  }
};

/// The one way an operation fails across a module border. The names are those of C++23's
/// std::expected, so that tl::expected can go later.
template <class T = void>
using Result = tl::expected<T, Error>;

[[nodiscard]] inline tl::unexpected<Error> fail(std::string message) {
  return tl::unexpected<Error>(Error{std::move(message), 0});
}

/// A failed system call: "<what>: <text of errno>".
[[nodiscard]] inline tl::unexpected<Error> sys_fail(int sys_errno, std::string_view what) {
  return tl::unexpected<Error>(
      Error{std::string(what) + ": " + std::strerror(sys_errno), sys_errno});  // NOLINT: one thread
}

}  // namespace headgate
