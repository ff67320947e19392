// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <span>

#include "headgate/result.h"

#include "agent/base/unique_fd.h"

namespace headgate {

using Bytes = std::span<const std::byte>;

/// The structure at the front of `bytes`, copied out so that alignment never matters; nothing when
/// the message is too short for it (a kernel older than our headers).
template <class T>
[[nodiscard]] std::optional<T> front_as(Bytes bytes) {
  if (bytes.size() < sizeof(T)) {
    return std::nullopt;
  }
  T value;
  std::memcpy(&value, bytes.data(), sizeof(T));
  return value;
}

/// Calls `each` for the attributes that follow a fixed header of `header_bytes` (netlink(7)).
void for_each_attribute(Bytes payload, std::size_t header_bytes,
                        const std::function<void(std::uint16_t type, Bytes value)>& each);

struct NetlinkMessage {
  std::uint16_t type = 0;
  Bytes payload;  ///< behind the nlmsghdr; valid only during the call
};

/// A netlink(7) socket. It belongs for good to the network namespace of the thread that opened it
/// and can then be used from any thread, by one at a time.
class NetlinkSocket {
 public:
  using Each = std::function<void(const NetlinkMessage&)>;

  /// `groups`: multicast groups to join (RTMGRP_*); 0 = none.
  [[nodiscard]] static Result<NetlinkSocket> open(int protocol, std::uint32_t groups);

  /// Sends a dump request and hands over every message of the answer. A dump during which the
  /// kernel's tables changed (NLM_F_DUMP_INTR) or that lost messages begins anew; `begin` is called
  /// at each beginning, so that the caller forgets what came before.
  [[nodiscard]] Result<> dump(std::uint16_t type, Bytes request, const std::function<void()>& begin,
                              const Each& each);

  /// Sends a request for one thing and hands over the answer. Errors: what the kernel says.
  [[nodiscard]] Result<> ask(std::uint16_t type, Bytes request, const Each& each);

  /// Hands over what has been multicast since the last call, without waiting. False: messages were
  /// lost (ENOBUFS), or the socket is broken, and only a dump tells how things stand.
  [[nodiscard]] bool read_pending(const Each& each);

 private:
  /// The largest answer of netlink_dump(). Not kept: an agent has hundreds of these sockets.
  using Buffer = std::array<std::byte, 32768>;
  explicit NetlinkSocket(UniqueFd fd);

  [[nodiscard]] Result<bool> once(std::uint16_t type, std::uint16_t flags, Bytes request,
                                  const Each& each);

  UniqueFd fd_;
  std::uint32_t sequence_ = 0;
};

}  // namespace headgate
