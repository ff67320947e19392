// SPDX-License-Identifier: Apache-2.0
#include "tests/support/frames.h"

#include <arpa/inet.h>

#include <algorithm>
#include <array>
#include <cstring>

namespace headgate::test {
namespace {

using Frame = std::vector<std::uint8_t>;

constexpr std::array<std::uint8_t, 6> kClientMac{2, 0, 0, 0, 0, 2};
constexpr std::array<std::uint8_t, 6> kServerMac{2, 0, 0, 0, 0, 1};

void put16(Frame& to, std::uint32_t value) {
  to.push_back(static_cast<std::uint8_t>(value >> 8));
  to.push_back(static_cast<std::uint8_t>(value));
}
void put32(Frame& to, std::uint32_t value) {
  put16(to, value >> 16);
  put16(to, value & 0xffff);
}
std::uint32_t get16(const Frame& frame, std::size_t at) {
  return static_cast<std::uint32_t>(frame[at] << 8 | frame[at + 1]);
}
std::uint32_t get32(const Frame& frame, std::size_t at) {
  return get16(frame, at) << 16 | get16(frame, at + 2);
}

Frame address(const std::string& text, bool ipv6, const char* otherwise) {
  Frame out(ipv6 ? 16 : 4);
  ::inet_pton(ipv6 ? AF_INET6 : AF_INET, text.empty() ? otherwise : text.c_str(), out.data());
  return out;
}
Frame source(const FrameSpec& spec) {
  return address(spec.source, spec.ipv6, spec.ipv6 ? "fd00::2" : "10.0.0.2");
}
Frame destination(const FrameSpec& spec) {
  return address(spec.destination, spec.ipv6, spec.ipv6 ? "fd00::1" : "10.0.0.1");
}

void append(Frame& to, const Frame& part) {
  for (const std::uint8_t byte : part) {
    to.push_back(byte);
  }
}

/// Byte by byte, as RFC 1071 has it in its first section.
std::uint16_t checksum(const Frame& bytes) {
  std::uint32_t sum = 0;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    sum += i % 2 == 0 ? static_cast<std::uint32_t>(bytes[i] << 8) : bytes[i];
    sum = (sum & 0xffff) + (sum >> 16);
  }
  return static_cast<std::uint16_t>(~sum);
}

std::uint16_t transport_checksum(const Frame& from, const Frame& to, std::uint8_t protocol,
                                 const Frame& segment) {
  Frame all = from;
  append(all, to);
  put32(all, static_cast<std::uint32_t>(segment.size()));
  put32(all, protocol);
  append(all, segment);
  return checksum(all);
}

Frame make_segment(const FrameSpec& spec) {
  Frame out;
  put16(out, spec.source_port);
  put16(out, spec.destination_port);
  std::size_t check_at = 0;
  if (spec.protocol == IPPROTO_TCP) {
    put32(out, spec.isn);
    put32(out, 0);
    out.push_back(static_cast<std::uint8_t>((20 + spec.tcp_option_bytes) / 4 << 4));
    out.push_back(spec.tcp_flags);
    put16(out, 64240);
    check_at = out.size();
    put32(out, 0);
    out.resize(out.size() + spec.tcp_option_bytes, 1);
  } else if (spec.protocol == IPPROTO_UDP) {
    put16(out, static_cast<std::uint32_t>(8 + spec.payload_bytes));
    check_at = out.size();
    put16(out, 0);
  } else {
    out.resize(8, 0);
  }
  for (std::size_t i = 0; i < spec.payload_bytes; ++i) {
    out.push_back(static_cast<std::uint8_t>('a' + i % 26));
  }
  if (check_at != 0) {
    const std::uint16_t sum =
        transport_checksum(source(spec), destination(spec), spec.protocol, out);
    out[check_at] = static_cast<std::uint8_t>(sum >> 8);
    out[check_at + 1] = static_cast<std::uint8_t>(sum);
  }
  return out;
}

Frame make_ipv4(const FrameSpec& spec, const Frame& segment) {
  Frame out;
  const std::size_t header = 20 + spec.ip_option_bytes;
  out.push_back(static_cast<std::uint8_t>(0x40 | header / 4));
  out.push_back(0x2a);  // a service class with an ECN bit
  put16(out, static_cast<std::uint32_t>(header + segment.size()));
  put16(out, 0x1234);
  put16(out, spec.fragment);
  out.push_back(17);
  out.push_back(spec.protocol);
  put16(out, 0);
  append(out, source(spec));
  append(out, destination(spec));
  out.resize(header, 1);
  const std::uint16_t sum = checksum(out);
  out[10] = static_cast<std::uint8_t>(sum >> 8);
  out[11] = static_cast<std::uint8_t>(sum);
  return out;
}

Frame make_ipv6(const FrameSpec& spec, const Frame& segment) {
  Frame out;
  put32(out, 0x62812345);
  put16(out,
        static_cast<std::uint32_t>(spec.extensions.size() * spec.extension_bytes + segment.size()));
  out.push_back(spec.extensions.empty() ? spec.protocol : spec.extensions.front());
  out.push_back(17);
  append(out, source(spec));
  append(out, destination(spec));
  for (std::size_t i = 0; i < spec.extensions.size(); ++i) {
    const std::size_t begin = out.size();
    out.push_back(i + 1 < spec.extensions.size() ? spec.extensions[i + 1] : spec.protocol);
    out.push_back(static_cast<std::uint8_t>(spec.extension_bytes / 8 - 1));
    out.push_back(1);  // PadN
    out.push_back(0);  // in a routing header: segments left
    out.resize(begin + spec.extension_bytes, 0);
  }
  return out;
}

}  // namespace

Frame make_frame(const FrameSpec& spec) {
  Frame out;
  for (const std::uint8_t byte : kServerMac) {
    out.push_back(spec.broadcast ? 0xff : byte);
  }
  out.insert(out.end(), kClientMac.begin(), kClientMac.end());
  for (const std::uint16_t tag : spec.tags) {
    put16(out, tag);
    put16(out, 0x2064);
  }
  put16(out, spec.ipv6 ? 0x86dd : 0x0800);
  const Frame segment = make_segment(spec);
  const Frame ip = spec.ipv6 ? make_ipv6(spec, segment) : make_ipv4(spec, segment);
  append(out, ip);
  append(out, segment);
  return out;
}

Frame FrameCase::frame() const {
  Frame out = make_frame(spec);
  if (damage) {
    damage(out);
  }
  return out;
}

std::string fault_in_reset(const FrameSpec& spec, const Frame& answer) {
  const std::size_t ip = 14 + 4 * spec.tags.size();
  const std::size_t tcp = ip + (spec.ipv6 ? 40 : 20);
  if (answer.size() < tcp + 20 || answer.size() > tcp + 26) {
    return "length " + std::to_string(answer.size());
  }
  if (std::any_of(answer.begin() + static_cast<std::ptrdiff_t>(tcp + 20), answer.end(),
                  [](std::uint8_t byte) { return byte != 0; })) {
    return "padding that is not zero";
  }
  if (!std::equal(kClientMac.begin(), kClientMac.end(), answer.begin()) ||
      !std::equal(kServerMac.begin(), kServerMac.end(), answer.begin() + 6)) {
    return "Ethernet addresses";
  }
  const Frame frame = make_frame(spec);
  if (!std::equal(frame.begin() + 12, frame.begin() + static_cast<std::ptrdiff_t>(ip),
                  answer.begin() + 12)) {
    return "tags or EtherType";
  }
  const auto part = [&](std::size_t at, std::size_t bytes) {
    const auto begin = answer.begin() + static_cast<std::ptrdiff_t>(at);
    return Frame(begin, begin + static_cast<std::ptrdiff_t>(bytes));
  };
  if (spec.ipv6) {
    if (answer[ip] >> 4 != 6 || get16(answer, ip + 4) != 20 || answer[ip + 6] != 6 ||
        answer[ip + 7] < 32) {
      return "IPv6 header";
    }
    if (part(ip + 8, 16) != destination(spec) || part(ip + 24, 16) != source(spec)) {
      return "IPv6 addresses";
    }
  } else {
    if (answer[ip] != 0x45 || answer[ip + 1] != 0x28 || get16(answer, ip + 2) != 40 ||
        answer[ip + 8] < 32 || answer[ip + 9] != 6 || (get16(answer, ip + 6) & 0x3fff) != 0) {
      return "IPv4 header";
    }
    if (checksum(part(ip, 20)) != 0) {
      return "IPv4 checksum";
    }
    if (part(ip + 12, 4) != destination(spec) || part(ip + 16, 4) != source(spec)) {
      return "IPv4 addresses";
    }
  }
  if (get16(answer, tcp) != spec.destination_port || get16(answer, tcp + 2) != spec.source_port) {
    return "ports";
  }
  const auto acknowledged = static_cast<std::uint32_t>(spec.isn + 1 + spec.payload_bytes);
  if (get32(answer, tcp + 4) != 0 || get32(answer, tcp + 8) != acknowledged) {
    return "sequence numbers";
  }
  if (answer[tcp + 12] != 0x50 || answer[tcp + 13] != 0x14) {
    return "TCP flags";
  }
  if (transport_checksum(destination(spec), source(spec), 6, part(tcp, 20)) != 0) {
    return "TCP checksum";
  }
  return "";
}

const std::vector<FrameCase>& frame_cases() {
  constexpr std::uint16_t kVlan = 0x8100;
  constexpr std::uint16_t kQinQ = 0x88a8;
  static const std::vector<FrameCase> cases = {
      {"Ipv4Syn", {}, Seen::kSyn},
      {"Ipv6Syn", {.ipv6 = true}, Seen::kSyn},
      {"SynWithoutTcpOptions", {.tcp_option_bytes = 0}, Seen::kSyn},
      {"SynWithFortyBytesOfTcpOptions", {.tcp_option_bytes = 40}, Seen::kSyn},
      {"Ipv6SynWithFortyBytesOfTcpOptions", {.ipv6 = true, .tcp_option_bytes = 40}, Seen::kSyn},
      {"SynWithEcn", {.tcp_flags = 0xc2}, Seen::kSyn},
      {"SynWithPush", {.tcp_flags = 0x0a}, Seen::kSyn},
      {"IsnThatWraps", {.isn = 0xffffffff}, Seen::kSyn},
      {"IsnThatWrapsWithPayload", {.isn = 0xfffffffe, .payload_bytes = 7}, Seen::kSyn},
      {"FastOpen", {.payload_bytes = 100}, Seen::kSyn},
      {"Ipv6FastOpen", {.ipv6 = true, .payload_bytes = 33}, Seen::kSyn},
      {"Ipv4Datagram", {.protocol = 17, .payload_bytes = 32}, Seen::kDatagram},
      {"Ipv6Datagram", {.ipv6 = true, .protocol = 17, .payload_bytes = 32}, Seen::kDatagram},
      {"DatagramWithoutPayload", {.protocol = 17}, Seen::kDatagram},
      // F06: the tag present, or (as without) stripped by the card
      {"F06_OneVlanTag", {.tags = {kVlan}}, Seen::kSyn},
      {"F06_Ipv6OneVlanTag", {.tags = {kVlan}, .ipv6 = true}, Seen::kSyn},
      {"QinQ", {.tags = {kQinQ, kVlan}}, Seen::kSyn},
      {"FourTags", {.tags = {kQinQ, kVlan, kVlan, kVlan}}, Seen::kSyn},
      {"Ipv6FourTags", {.tags = {kQinQ, kVlan, kVlan, kVlan}, .ipv6 = true}, Seen::kSyn},
      {"FiveTags", {.tags = {kQinQ, kVlan, kVlan, kVlan, kVlan}}, Seen::kDeep},
      {"DatagramInAVlan", {.tags = {kVlan}, .protocol = 17, .payload_bytes = 9}, Seen::kDatagram},
      // F02
      {"F02_OneIpOption", {.ip_option_bytes = 4}, Seen::kSyn},
      {"F02_FortyBytesOfIpOptions", {.ip_option_bytes = 40}, Seen::kSyn},
      {"F02_FortyBytesOfBothOptions", {.ip_option_bytes = 40, .tcp_option_bytes = 40}, Seen::kSyn},
      {"F02_DatagramWithIpOption",
       {.ip_option_bytes = 4, .protocol = 17, .payload_bytes = 1},
       Seen::kDatagram},
      {"F02_FirstFragment",
       {.fragment = 0x2000, .protocol = 17, .payload_bytes = 64},
       Seen::kFragment},
      // F01: what would be the ports is payload
      {"F01_SecondFragment", {.fragment = 0x00b9}, Seen::kFragment},
      {"F01_SecondFragmentOfADatagram", {.fragment = 0x20b9, .protocol = 17}, Seen::kFragment},
      {"F01_Ipv6Fragment", {.ipv6 = true, .extensions = {44}}, Seen::kFragment},
      {"F01_Ipv6FragmentBehindAnother", {.ipv6 = true, .extensions = {0, 44}}, Seen::kFragment},
      {"DontFragment", {.fragment = 0x4000}, Seen::kSyn},
      // F04
      {"F04_HopByHopAndDestinationOptions", {.ipv6 = true, .extensions = {0, 60}}, Seen::kSyn},
      {"F04_SixHeaders", {.ipv6 = true, .extensions = {0, 60, 43, 60, 60, 60}}, Seen::kSyn},
      {"F04_SevenHeaders", {.ipv6 = true, .extensions = {0, 60, 43, 60, 60, 60, 60}}, Seen::kDeep},
      {"F04_LongHeaders",
       {.ipv6 = true, .extensions = {0, 60, 60}, .extension_bytes = 256},
       Seen::kSyn},
      {"F04_DatagramBehindOptions",
       {.ipv6 = true, .extensions = {60}, .protocol = 17, .payload_bytes = 4},
       Seen::kDatagram},
      {"RoutingHeaderWithSegmentsLeft",
       {.ipv6 = true, .extensions = {43}},
       Seen::kOther,
       [](auto& frame) { frame[14 + 40 + 3] = 1; }},
      {"Authentication", {.ipv6 = true, .extensions = {51}}, Seen::kOther},
      // F07: the outer header of a tunnel is an ordinary datagram to the tunnel's port
      {"F07_Vxlan",
       {.protocol = 17, .payload_bytes = 100, .destination_port = 4789},
       Seen::kDatagram},
      {"F07_Gre", {.protocol = 47}, Seen::kOther},
      {"Icmp", {.protocol = 1}, Seen::kOther},
      {"Icmpv6", {.ipv6 = true, .protocol = 58}, Seen::kOther},
      {"Established", {.tcp_flags = 0x10, .payload_bytes = 100}, Seen::kOther},
      {"SynAck", {.tcp_flags = 0x12}, Seen::kOther},
      {"SynFin", {.tcp_flags = 0x03}, Seen::kOther},
      {"SynRst", {.tcp_flags = 0x06}, Seen::kOther},
      {"NoFlags", {.tcp_flags = 0}, Seen::kOther},
      {"EthernetBroadcast", {.broadcast = true}, Seen::kOther},
      {"ToMulticast", {.protocol = 17, .destination = "224.0.0.251"}, Seen::kOther},
      {"ToLimitedBroadcast", {.protocol = 17, .destination = "255.255.255.255"}, Seen::kOther},
      {"FromMulticast", {.source = "239.1.2.3"}, Seen::kOther},
      {"FromNobody", {.protocol = 17, .source = "0.0.0.0"}, Seen::kOther},
      {"ToIpv6Multicast", {.ipv6 = true, .protocol = 17, .destination = "ff02::fb"}, Seen::kOther},
      {"Arp", {}, Seen::kOther, [](auto& frame) { frame[13] = 6; }},
      {"Ieee8023", {}, Seen::kOther, [](auto& frame) { frame[12] = 0, frame[13] = 46; }},
      {"Empty", {}, Seen::kMalformed, [](auto& frame) { frame.resize(13); }},
      {"CutInTheTag", {.tags = {kVlan}}, Seen::kMalformed, [](auto& frame) { frame.resize(16); }},
      {"CutInTheIpHeader", {}, Seen::kMalformed, [](auto& frame) { frame.resize(14 + 19); }},
      {"CutInTheTcpHeader", {}, Seen::kMalformed, [](auto& frame) { frame.resize(14 + 20 + 19); }},
      {"CutInTheUdpHeader",
       {.protocol = 17},
       Seen::kMalformed,
       [](auto& frame) { frame.resize(14 + 20 + 7); }},
      {"CutInTheExtension",
       {.ipv6 = true, .extensions = {60}},
       Seen::kMalformed,
       [](auto& frame) { frame.resize(14 + 40 + 5); }},
      {"IhlOfFour", {}, Seen::kMalformed, [](auto& frame) { frame[14] = 0x44; }},
      {"VersionFive", {}, Seen::kMalformed, [](auto& frame) { frame[14] = 0x55; }},
      {"Ipv6OfVersionFour",
       {.ipv6 = true},
       Seen::kMalformed,
       [](auto& frame) { frame[14] = 0x42; }},
      {"TotalLengthBelowTheHeader",
       {},
       Seen::kMalformed,
       [](auto& frame) { frame[16] = 0, frame[17] = 19; }},
      {"TotalLengthWithoutTcp",
       {},
       Seen::kMalformed,
       [](auto& frame) { frame[16] = 0, frame[17] = 30; }},
      {"TcpOffsetOfFour", {}, Seen::kMalformed, [](auto& frame) { frame[14 + 20 + 12] = 0x40; }},
      {"TcpHeaderBeyondThePacket",
       {},
       Seen::kMalformed,
       [](auto& frame) { frame[14 + 20 + 12] = 0xf0; }},
      {"ExtensionBeyondThePacket",
       {.ipv6 = true, .extensions = {60}},
       Seen::kMalformed,
       [](auto& frame) { frame[14 + 40 + 1] = 200; }},
  };
  return cases;
}

}  // namespace headgate::test
