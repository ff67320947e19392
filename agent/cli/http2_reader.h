// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "headgate/bpf_abi.h"

namespace headgate::cli {

/// One connection of HTTP/2 behind its preface, read with the C of the kernel (bpf/lib/http2.h).
class Http2Reader {
 public:
  struct Request {
    std::optional<std::size_t> method;  ///< which of the methods; empty: none of them
    std::optional<std::string> path;    ///< empty: not seen, or too long to be kept
    std::uint32_t reason = HEADGATE_UNKNOWN_NONE;
    std::uint64_t offset_bytes = 0;  ///< of its HEADERS frame, from behind the preface
  };

  /// `methods`: exact paths, as configured.
  explicit Http2Reader(const std::vector<std::string>& methods);
  ~Http2Reader();
  Http2Reader(Http2Reader&&) noexcept;
  Http2Reader& operator=(Http2Reader&&) = delete;
  Http2Reader(const Http2Reader&) = delete;
  Http2Reader& operator=(const Http2Reader&) = delete;

  /// The requests whose header blocks end in this packet.
  [[nodiscard]] std::vector<Request> feed(std::span<const std::uint8_t> packet);
  /// enum headgate_unknown, once nothing more can be said; else HEADGATE_UNKNOWN_NONE.
  [[nodiscard]] std::uint32_t lost() const;
  /// Where the frame begins that could not be read, or whose end has not come; from behind the
  /// preface.
  [[nodiscard]] std::uint64_t frame_offset_bytes() const;
  /// In the middle of a frame's head or of a header block.
  [[nodiscard]] bool in_request() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace headgate::cli
