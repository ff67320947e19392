// SPDX-License-Identifier: Apache-2.0
// What a frame asks for (bpf/lib/packet.h) and the RST that answers it (bpf/lib/reset.h), compiled
// natively. tests/kernel/early_run_test.cc shows the same frames to the kernel's programs.
#include <arpa/inet.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <initializer_list>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "bpf/lib/reset.h"
#include "tests/support/frames.h"

namespace headgate {
namespace {

using test::frame_cases;
using test::FrameCase;
using test::FrameSpec;
using test::Seen;

struct Parsed {
  std::uint32_t kind = 0;
  headgate_packet packet{};
  headgate_flow_key flow{};
};

/// Of a copy that ends where the frame ends, so that ASan sees a read behind it, and begins where
/// drivers let it begin: IP's header behind Ethernet's is then aligned (NET_IP_ALIGN).
Parsed parse(const std::vector<std::uint8_t>& frame) {
  Parsed out;
  constexpr std::size_t kIpAlign = 2;
  const auto copy = std::make_unique<std::uint8_t[]>(kIpAlign + frame.size());
  std::uint8_t* const begin = copy.get() + kIpAlign;
  std::copy(frame.begin(), frame.end(), begin);
  out.kind = headgate_parse(begin, begin + frame.size(), &out.packet, &out.flow);
  return out;
}

std::vector<FrameCase> cases_seen_as(std::initializer_list<Seen> seen) {
  std::vector<FrameCase> out;
  for (const FrameCase& row : frame_cases()) {
    if (std::find(seen.begin(), seen.end(), row.seen) != seen.end()) {
      out.push_back(row);
    }
  }
  return out;
}
constexpr auto kName = [](const auto& row) { return row.param.name; };

class Packet : public ::testing::TestWithParam<FrameCase> {};
INSTANTIATE_TEST_SUITE_P(Frames, Packet, ::testing::ValuesIn(frame_cases()), kName);

class JudgedPacket : public Packet {};
INSTANTIATE_TEST_SUITE_P(Frames, JudgedPacket,
                         ::testing::ValuesIn(cases_seen_as({Seen::kSyn, Seen::kDatagram})), kName);

class SynPacket : public Packet {};
INSTANTIATE_TEST_SUITE_P(Frames, SynPacket, ::testing::ValuesIn(cases_seen_as({Seen::kSyn})),
                         kName);

TEST_P(Packet, IsSeenForWhatItIs) {
  const Parsed parsed = parse(GetParam().frame());
  EXPECT_EQ(parsed.kind, static_cast<std::uint32_t>(GetParam().seen));
}

TEST_P(JudgedPacket, FlowIsThatOfTheReceiver) {
  const FrameCase& row = GetParam();
  const Parsed parsed = parse(row.frame());
  EXPECT_EQ(parsed.flow.local_port, row.spec.destination_port);
  EXPECT_EQ(parsed.flow.remote_port, row.spec.source_port);
  std::array<std::uint32_t, 4> local{0, 0, htonl(0xffff), htonl(0x0a000001)};
  std::array<std::uint32_t, 4> remote{0, 0, htonl(0xffff), htonl(0x0a000002)};
  if (row.spec.ipv6) {
    local = {htonl(0xfd000000), 0, 0, htonl(1)};
    remote = {htonl(0xfd000000), 0, 0, htonl(2)};
  }
  EXPECT_EQ(std::memcmp(parsed.flow.local_address, local.data(), sizeof(local)), 0);
  EXPECT_EQ(std::memcmp(parsed.flow.remote_address, remote.data(), sizeof(remote)), 0);
  if (row.seen == Seen::kSyn) {
    EXPECT_EQ(parsed.packet.isn, row.spec.isn);
    EXPECT_EQ(parsed.packet.options != 0,
              row.spec.ip_option_bytes != 0 || !row.spec.extensions.empty());
  }
}

/// Whatever is cut off: never a read behind the end (ASan), never a flow out of what is not there.
TEST_P(Packet, CutAnywhereIsNoOtherConnection) {
  const std::vector<std::uint8_t> whole = GetParam().frame();
  const Parsed all = parse(whole);
  for (std::size_t bytes = 0; bytes < whole.size(); ++bytes) {
    const Parsed cut = parse({whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(bytes)});
    if (cut.kind == HEADGATE_PACKET_SYN || cut.kind == HEADGATE_PACKET_DATAGRAM) {
      EXPECT_EQ(cut.kind, all.kind) << bytes;
      EXPECT_EQ(std::memcmp(&cut.flow, &all.flow, sizeof(cut.flow)), 0) << bytes;
    }
  }
}

/// The RST with a full checksum, as XDP sends it.
TEST_P(SynPacket, IsAnsweredByARightReset) {
  const FrameCase& row = GetParam();
  const std::vector<std::uint8_t> frame = row.frame();
  const Parsed parsed = parse(frame);
  std::vector<std::uint8_t> answer(frame.begin(), frame.begin() + parsed.packet.ip_offset);
  std::swap_ranges(answer.begin(), answer.begin() + 6, answer.begin() + 6);
  const auto append = [&](const void* part, std::size_t bytes) {
    const auto* at = static_cast<const std::uint8_t*>(part);
    answer.insert(answer.end(), at, at + bytes);
  };
  if (row.spec.ipv6) {
    ipv6hdr ip{};
    headgate_make_ipv6(&ip, &parsed.flow);
    append(&ip, sizeof(ip));
  } else {
    iphdr ip{};
    headgate_make_ipv4(&ip, frame[parsed.packet.ip_offset + 1U], &parsed.flow);
    append(&ip, sizeof(ip));
  }
  headgate_reset_tcp tcp{};
  headgate_make_reset(&tcp, &parsed.packet, &parsed.flow);
  const std::uint16_t check = headgate_reset_check(&tcp, &parsed.flow, row.spec.ipv6 ? 1 : 0, 0);
  std::memcpy(reinterpret_cast<std::uint8_t*>(&tcp) + 16, &check, sizeof(check));  // NOLINT: bytes
  append(&tcp, sizeof(tcp));
  EXPECT_EQ(test::fault_in_reset(row.spec, answer), "");
}

/// Sums that fold twice, and the largest there can be.
TEST(Reset, FoldsLikeOnesComplement) {
  EXPECT_EQ(headgate_fold(0), 0);
  EXPECT_EQ(headgate_fold(0xffff), 0xffff);
  EXPECT_EQ(headgate_fold(0x1ffff), 1);
  EXPECT_EQ(headgate_fold(0xffffffff), 0xffff);
  EXPECT_EQ(headgate_fold(0x1'0000'0000), 1);
  EXPECT_EQ(headgate_fold(~0ULL), 0xffff);
}

}  // namespace
}  // namespace headgate
