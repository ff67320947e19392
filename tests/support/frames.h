// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

/// Frames for tests of what sees frames: one specification a row, built with right checksums by
/// code that shares nothing with bpf/lib. The table is read natively and by the kernel.
namespace headgate::test {

struct FrameSpec {
  std::vector<std::uint16_t> tags{};  ///< EtherTypes of VLAN tags, outermost first
  bool ipv6 = false;
  std::size_t ip_option_bytes = 0;         ///< IPv4; a multiple of 4 (no-operations)
  std::vector<std::uint8_t> extensions{};  ///< IPv6: next-header values, of 8 bytes each
  std::size_t extension_bytes = 8;         ///< of each
  std::uint16_t fragment = 0;              ///< IPv4: flags and offset as in the header
  std::uint8_t protocol = 6;
  std::uint8_t tcp_flags = 0x02;
  std::size_t tcp_option_bytes = 20;
  std::uint32_t isn = 0x01020304;
  std::size_t payload_bytes = 0;
  std::string source{};       ///< empty: 10.0.0.2 or fd00::2
  std::string destination{};  ///< empty: 10.0.0.1 or fd00::1
  std::uint16_t source_port = 40000;
  std::uint16_t destination_port = 4317;
  bool broadcast = false;  ///< of Ethernet
};
[[nodiscard]] std::vector<std::uint8_t> make_frame(const FrameSpec& spec);

enum class Seen : std::uint8_t {
  kOther,
  kSyn,
  kDatagram,
  kFragment,
  kDeep,
  kMalformed,
};

struct FrameCase {
  const char* name;
  FrameSpec spec;
  Seen seen;
  /// Changes the finished frame, where a specification would be too strange.
  std::function<void(std::vector<std::uint8_t>&)> damage{};
  [[nodiscard]] std::vector<std::uint8_t> frame() const;
};
/// One frame a row.
[[nodiscard]] const std::vector<FrameCase>& frame_cases();

/// What is wrong with `answer` as the RST for `frame`, with the same tags; "" = nothing. `options`
/// of IP are not repeated. Ethernet's padding is allowed, as zeros.
[[nodiscard]] std::string fault_in_reset(const FrameSpec& spec,
                                         const std::vector<std::uint8_t>& answer);

}  // namespace headgate::test
