// SPDX-License-Identifier: Apache-2.0
#include "agent/cli/capture.h"

#include <arpa/inet.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <utility>

#include <fmt/format.h>

namespace headgate::cli {
namespace {

// LINKTYPE_*, https://www.tcpdump.org/linktypes.html
constexpr std::uint32_t kNull = 0;
constexpr std::uint32_t kEthernet = 1;
constexpr std::uint32_t kRawBsd = 12;
constexpr std::uint32_t kRaw = 101;
constexpr std::uint32_t kLoop = 108;
constexpr std::uint32_t kLinuxSll = 113;
constexpr std::uint32_t kIpv4 = 228;
constexpr std::uint32_t kIpv6 = 229;
constexpr std::uint32_t kLinuxSll2 = 276;

constexpr std::uint32_t kPcap = 0xa1b2c3d4;
constexpr std::uint32_t kPcapNanoseconds = 0xa1b23c4d;
constexpr std::uint32_t kSectionHeader = 0x0a0d0d0a;
constexpr std::uint32_t kByteOrder = 0x1a2b3c4d;
constexpr std::uint32_t kInterface = 1;
constexpr std::uint32_t kSimplePacket = 3;
constexpr std::uint32_t kEnhancedPacket = 6;

/// Reads what is there and 0 behind the end.
class Bytes {
 public:
  Bytes(std::string_view data, bool swapped) : data_(data), swapped_(swapped) {}
  [[nodiscard]] bool has(std::size_t at, std::size_t bytes) const {
    return at <= data_.size() && data_.size() - at >= bytes;
  }
  [[nodiscard]] std::uint8_t u8(std::size_t at) const {
    return at < data_.size() ? static_cast<std::uint8_t>(data_[at]) : std::uint8_t{0};
  }
  /// Network byte order.
  [[nodiscard]] std::uint16_t net16(std::size_t at) const {
    return static_cast<std::uint16_t>(u8(at) << 8 | u8(at + 1));
  }
  [[nodiscard]] std::uint32_t net32(std::size_t at) const {
    return static_cast<std::uint32_t>(net16(at)) << 16 | net16(at + 2);
  }
  /// The file's byte order.
  [[nodiscard]] std::uint16_t u16(std::size_t at) const {
    const std::uint16_t value = net16(at);
    return swapped_ ? value : static_cast<std::uint16_t>(value << 8 | value >> 8);
  }
  [[nodiscard]] std::uint32_t u32(std::size_t at) const {
    const std::uint32_t low = u16(at);
    const std::uint32_t high = u16(at + 2);
    return swapped_ ? low << 16 | high : high << 16 | low;
  }
  [[nodiscard]] std::string_view part(std::size_t at, std::size_t bytes) const {
    return at <= data_.size() ? data_.substr(at, bytes) : std::string_view();
  }
  [[nodiscard]] std::size_t size() const { return data_.size(); }

 private:
  std::string_view data_;
  bool swapped_;  ///< big endian
};

/// Where the IP header begins behind the link's; nothing where none is there.
std::optional<std::size_t> ip_offset(std::uint32_t link, const Bytes& frame) {
  constexpr std::uint16_t kIpv4Type = 0x0800;
  constexpr std::uint16_t kIpv6Type = 0x86dd;
  std::size_t at = 0;
  std::uint16_t type = 0;
  switch (link) {
    case kRaw:
    case kRawBsd:
    case kIpv4:
    case kIpv6: return 0;
    case kNull:
    case kLoop: return 4;
    case kLinuxSll: return 16;
    case kLinuxSll2: return 20;
    case kEthernet: break;
    default: return std::nullopt;
  }
  at = 12;
  type = frame.net16(at);
  while ((type == 0x8100 || type == 0x88a8 || type == 0x9100) && frame.has(at, 4)) {
    at += 4;
    type = frame.net16(at);
  }
  return type == kIpv4Type || type == kIpv6Type ? std::optional(at + 2) : std::nullopt;
}

struct Segment {
  std::string client;
  std::string server;
  std::uint16_t port = 0;  ///< of the server
  std::uint32_t sequence = 0;
  bool syn = false;
  bool cut = false;  ///< the capture holds less than was sent
  std::string_view payload;
};

std::string address_text(int family, std::string_view bytes, std::uint16_t port) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  ::inet_ntop(family, bytes.data(), text.data(), text.size());
  return family == AF_INET ? fmt::format("{}:{}", text.data(), port)
                           : fmt::format("[{}]:{}", text.data(), port);
}

std::optional<Segment> segment_of(std::uint32_t link, std::string_view captured) {
  constexpr std::uint8_t kTcp = 6;
  const Bytes frame(captured, true);
  const auto ip = ip_offset(link, frame);
  if (!ip || !frame.has(*ip, 20)) {
    return std::nullopt;
  }
  const int version = frame.u8(*ip) >> 4;
  std::size_t tcp = 0;
  std::size_t end = 0;  // as it was sent
  std::string_view source;
  std::string_view destination;
  if (version == 4) {
    const std::size_t header = (frame.u8(*ip) & 15U) * 4UL;
    if (frame.u8(*ip + 9) != kTcp || (frame.net16(*ip + 6) & 0x3fff) != 0 || header < 20) {
      return std::nullopt;
    }
    tcp = *ip + header;
    // 0: not known yet when it was captured, the card cuts it (TSO)
    const std::size_t total = frame.net16(*ip + 2);
    end = total == 0 ? frame.size() : *ip + total;
    source = frame.part(*ip + 12, 4);
    destination = frame.part(*ip + 16, 4);
  } else if (version == 6 && frame.has(*ip, 40) && frame.u8(*ip + 6) == kTcp) {
    tcp = *ip + 40;
    const std::size_t total = frame.net16(*ip + 4);
    end = total == 0 ? frame.size() : tcp + total;
    source = frame.part(*ip + 8, 16);
    destination = frame.part(*ip + 24, 16);
  } else {
    return std::nullopt;
  }
  if (!frame.has(tcp, 20)) {
    return std::nullopt;
  }
  const std::size_t payload = tcp + (frame.u8(tcp + 12) >> 4) * 4UL;
  Segment out;
  out.port = frame.net16(tcp + 2);
  const int family = version == 4 ? AF_INET : AF_INET6;
  out.client = address_text(family, source, frame.net16(tcp));
  out.server = address_text(family, destination, out.port);
  out.sequence = frame.net32(tcp + 4);
  out.syn = (frame.u8(tcp + 13) & 2) != 0;
  out.cut = end > frame.size();
  if (payload < end) {
    out.payload = frame.part(payload, end - payload);
  }
  return out;
}

/// One connection: what has come in order, and what is ahead of it.
class Reassembly {
 public:
  explicit Reassembly(std::string client) { stream_.client = std::move(client); }

  void add(const Segment& segment) {
    std::uint32_t sequence = segment.sequence;
    if (segment.syn) {
      ++sequence;
    }
    if (!known_) {
      known_ = true;
      next_ = sequence;
      stream_.from_start = segment.syn;
    }
    if (segment.payload.empty() || ended_) {
      return;
    }
    // RFC 9293, section 3.4: sequence numbers wrap
    const auto ahead = static_cast<std::int32_t>(sequence - next_);
    const auto at = static_cast<std::int64_t>(done_) + ahead;
    const auto bytes = static_cast<std::int64_t>(segment.payload.size());
    if (at + bytes <= static_cast<std::int64_t>(done_)) {
      return;  // sent again
    }
    Part& part = ahead_[std::max<std::int64_t>(at, 0)];
    if (segment.payload.size() > part.bytes.size()) {
      part = {std::string(segment.payload), segment.cut};
    }
    take();
  }

  [[nodiscard]] CapturedStream finish() && {
    stream_.gap = ended_ || !ahead_.empty();
    return std::move(stream_);
  }

 private:
  struct Part {
    std::string bytes;
    bool cut = false;
  };

  void take() {
    while (!ahead_.empty() && !ended_) {
      const auto first = ahead_.begin();
      if (first->first > static_cast<std::int64_t>(done_)) {
        return;
      }
      const auto known =
          static_cast<std::uint64_t>(static_cast<std::int64_t>(done_) - first->first);
      Part part = std::move(first->second);
      ahead_.erase(first);
      if (known >= part.bytes.size()) {
        continue;
      }
      part.bytes.erase(0, known);
      done_ += part.bytes.size();
      next_ += static_cast<std::uint32_t>(part.bytes.size());
      ended_ = part.cut;
      stream_.packets.push_back(std::move(part.bytes));
    }
  }

  CapturedStream stream_;
  bool known_ = false;
  bool ended_ = false;      ///< bytes are missing for good
  std::uint32_t next_ = 0;  ///< sequence number of the next byte
  std::uint64_t done_ = 0;  ///< bytes in order so far
  std::map<std::int64_t, Part> ahead_;
};

/// All connections to one port.
class Connections {
 public:
  explicit Connections(std::uint16_t port) : port_(port) {}

  void add(std::uint32_t link, std::string_view captured) {
    const auto segment = segment_of(link, captured);
    if (!segment || segment->port != port_) {
      return;
    }
    const std::string key = segment->client + " " + segment->server;
    auto it = current_.find(key);
    // the same ports again: another connection
    if (it == current_.end() || (segment->syn && isn_[key] != segment->sequence)) {
      all_.emplace_back(segment->client);
      it = current_.insert_or_assign(key, all_.size() - 1).first;
    }
    if (segment->syn) {
      isn_[key] = segment->sequence;
    }
    all_[it->second].add(*segment);
  }

  [[nodiscard]] std::vector<CapturedStream> finish() && {
    std::vector<CapturedStream> out;
    for (Reassembly& one : all_) {
      out.push_back(std::move(one).finish());
    }
    return out;
  }

 private:
  std::uint16_t port_;
  std::vector<Reassembly> all_;
  std::map<std::string, std::size_t> current_;
  std::map<std::string, std::uint32_t> isn_;
};

tl::unexpected<Error> broken(std::size_t at) {
  return fail(fmt::format("the capture is broken at byte {}: it ends within a packet", at));
}

Result<> read_pcap(std::string_view file, bool swapped, Connections& connections) {
  const Bytes bytes(file, swapped);
  if (!bytes.has(0, 24)) {
    return broken(0);
  }
  const std::uint32_t link = bytes.u32(20) & 0x0fffffff;  // above: length of the FCS
  for (std::size_t at = 24; at < bytes.size();) {
    const std::uint32_t captured = bytes.u32(at + 8);
    if (!bytes.has(at, 16) || !bytes.has(at + 16, captured)) {
      return broken(at);
    }
    connections.add(link, bytes.part(at + 16, captured));
    at += 16UL + captured;
  }
  return {};
}

Result<> read_pcapng(std::string_view file, Connections& connections) {
  bool swapped = false;
  std::vector<std::uint32_t> links;
  for (std::size_t at = 0; at < file.size();) {
    if (Bytes(file, false).u32(at) == kSectionHeader) {  // reads alike in both byte orders
      swapped = Bytes(file, false).u32(at + 8) != kByteOrder;
      links.clear();
    }
    const Bytes bytes(file, swapped);
    const std::uint32_t block_bytes = bytes.u32(at + 4);
    if (block_bytes < 12 || !bytes.has(at, block_bytes)) {
      return broken(at);
    }
    const Bytes block(bytes.part(at, block_bytes), swapped);
    switch (block.u32(0)) {
      case kInterface: links.push_back(block.u16(8)); break;
      case kSimplePacket:
        if (!links.empty()) {
          connections.add(links[0],
                          block.part(12, std::min<std::size_t>(block.u32(8), block_bytes - 16)));
        }
        break;
      case kEnhancedPacket:
        if (block.u32(8) < links.size()) {
          connections.add(links[block.u32(8)],
                          block.part(28, std::min<std::size_t>(block.u32(20), block_bytes - 28)));
        }
        break;
      default: break;
    }
    at += block_bytes;
  }
  return {};
}

}  // namespace

bool is_capture(std::string_view file) {
  const Bytes bytes(file, false);
  const Bytes swapped(file, true);
  return bytes.has(0, 4) && (bytes.u32(0) == kSectionHeader || bytes.u32(0) == kPcap ||
                             bytes.u32(0) == kPcapNanoseconds || swapped.u32(0) == kPcap ||
                             swapped.u32(0) == kPcapNanoseconds);
}

Result<std::vector<CapturedStream>> read_capture(std::string_view file, std::uint16_t port) {
  Connections connections(port);
  const Bytes bytes(file, false);
  const bool swapped = bytes.u32(0) != kPcap && bytes.u32(0) != kPcapNanoseconds;
  const auto read = bytes.u32(0) == kSectionHeader ? read_pcapng(file, connections)
                                                   : read_pcap(file, swapped, connections);
  if (!read) {
    return tl::unexpected<Error>(read.error());
  }
  return std::move(connections).finish();
}

}  // namespace headgate::cli
