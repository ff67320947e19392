// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "agent/dataplane/hpack_huffman.h"
#include "tests/support/http2_stream.h"

/// Connections of HTTP/2 by chance: any frames in any order that RFC 9113 allows, header blocks in
/// any form that RFC 7541 allows.
namespace headgate::http2 {

using Random = std::mt19937_64;
using Field = std::pair<std::string, std::string>;

inline unsigned below(Random& random, unsigned n) { return static_cast<unsigned>(random() % n); }
inline bool one_in(Random& random, unsigned n) { return below(random, n) == 0; }
template <class T>
const T& any_of(Random& random, const std::vector<T>& all) {
  return all[random() % all.size()];
}

/// Routes of the first half of the paths; the others have none.
inline const std::vector<std::string>& paths() {
  static const std::vector<std::string> all = {
      "/opentelemetry.proto.collector.trace.v1.TraceService/Export",
      "/opentelemetry.proto.collector.logs.v1.LogsService/Export",
      "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export",
      "/a.B/C",
      "/" + std::string(HEADGATE_ROUTE_PATH_BYTES - 1, 'e'),
      "/grpc.health.v1.Health/Check",
      "/a.B/D",
      "/",
      "/index.html",
      "/" + std::string(HEADGATE_ROUTE_PATH_BYTES, 'e'),
      "/x/" + std::string(3000, 'y'),
      "/%00\x80\xff?q",
  };
  return all;
}
inline constexpr std::size_t kRouted = 6;

inline Reader::Routes routes() {
  Reader::Routes out;
  for (std::size_t i = 0; i < kRouted; ++i) {
    out[{paths()[i], false}] = static_cast<std::uint16_t>(i);
    out[{hpack_huffman(paths()[i]), true}] = static_cast<std::uint16_t>(i);
  }
  return out;
}

inline std::uint32_t endpoint_of(const std::string& path) {
  const auto end = paths().begin() + kRouted;
  const auto found = std::find(paths().begin(), end, path);
  return found == end ? HEADGATE_CALL_REST : static_cast<std::uint32_t>(found - paths().begin());
}

/// Writes header blocks in every way that RFC 7541 allows: which one is left to chance.
class Encoder {
 public:
  explicit Encoder(Random& random) : random_(random) {}

  std::string block(const std::vector<Field>& fields) {
    std::string out;
    while (one_in(random_, 8)) {
      const unsigned size = one_in(random_, 3) ? 0 : below(random_, 4097);
      out += integer(size, 5, 0x20);
      limit_ = size;
      evict();
    }
    for (const Field& field : fields) {
      out += write(field);
    }
    return out;
  }
  /// Entries named ":path" that have been inserted.
  unsigned paths_inserted = 0;

 private:
  std::string text(const std::string& value) {
    return one_in(random_, 2) ? plain(value) : coded(hpack_huffman(value));
  }
  static std::size_t size_of(const Field& field) {
    return field.first.size() + field.second.size() + 32;  // RFC 7541, 4.1
  }
  void evict() {
    while (used_ > limit_) {
      used_ -= size_of(table_.back());
      table_.pop_back();
    }
  }
  std::string write(const Field& field) {
    std::vector<std::uint64_t> same;
    std::vector<std::uint64_t> same_name;
    static const std::map<std::string, std::vector<std::pair<std::string, unsigned>>> kStatic = {
        {":path", {{"/", 4}, {"/index.html", 5}}},
        {":method", {{"GET", 2}, {"POST", 3}}},
        {":scheme", {{"http", 6}}},
        {"user-agent", {{"", 58}}},
    };
    if (const auto found = kStatic.find(field.first); found != kStatic.end()) {
      for (const auto& [value, index] : found->second) {
        same_name.push_back(index);
        if (value == field.second) {
          same.push_back(index);
        }
      }
    }
    for (std::size_t i = 0; i < table_.size(); ++i) {
      if (table_[i].first == field.first) {
        same_name.push_back(62 + i);
        if (table_[i].second == field.second) {
          same.push_back(62 + i);
        }
      }
    }
    if (!same.empty() && !one_in(random_, 4)) {
      return integer(any_of(random_, same), 7, 0x80);
    }
    const bool by_index = !same_name.empty() && !one_in(random_, 4);
    const std::uint64_t index = by_index ? any_of(random_, same_name) : 0;
    std::string out;
    switch (below(random_, 4)) {
      case 0: out = integer(index, 4, 0x00); break;
      case 1: out = integer(index, 4, 0x10); break;
      default:
        out = integer(index, 6, 0x40);
        insert(field);
        break;
    }
    if (!by_index) {
      out += text(field.first);
    }
    return out + text(field.second);
  }
  void insert(const Field& field) {
    paths_inserted += field.first == ":path" ? 1 : 0;
    used_ += size_of(field);
    table_.push_front(field);
    evict();  // an entry larger than the table empties it and is not there itself
  }

  Random& random_;
  std::deque<Field> table_;
  std::size_t used_ = 0;
  std::size_t limit_ = 4096;
};

/// A connection behind its preface, and where its messages are.
struct Connection {
  std::string octets = settings();
  struct Message {
    std::size_t end = 0;  ///< behind its prefix
    std::uint64_t bytes = 0;
  };
  std::map<std::uint32_t, Message> messages;
};

inline std::string padding(Random& random, std::string* payload, unsigned* flags) {
  if (!one_in(random, 3)) {
    return "";
  }
  *flags |= HEADGATE_HTTP2_PADDED;
  const unsigned pad = one_in(random, 2) ? 0 : below(random, 256);
  *payload += std::string(pad, '\0');
  return std::string(1, static_cast<char>(pad));
}

/// A block as HEADERS and CONTINUATION, wherever it is cut.
inline std::string block_frames(Random& random, std::uint32_t stream, std::string block,
                                bool ends) {
  std::string out;
  for (unsigned parts = 0;; ++parts) {
    const bool first = parts == 0;
    // nghttp2 takes eight CONTINUATIONs at most (CVE-2024-28182)
    const bool whole = block.size() <= 16'000 && (parts >= 8 || !one_in(random, 3));
    const std::size_t part =
        whole ? block.size() : random() % (std::min<std::size_t>(block.size(), 16'000) + 1);
    std::string payload = block.substr(0, part);
    block.erase(0, part);
    unsigned flags = whole ? HEADGATE_HTTP2_END_HEADERS : 0;
    if (first) {
      std::string lead;
      if (one_in(random, 4)) {
        flags |= HEADGATE_HTTP2_HAS_PRIORITY;
        lead = big_endian(0, 4) + "\x10";
      }
      const std::string pad = padding(random, &payload, &flags);
      payload = pad + lead + payload;
      flags |= ends ? HEADGATE_HTTP2_END_STREAM : 0;
    }
    out +=
        frame(first ? HEADGATE_HTTP2_HEADERS : HEADGATE_HTTP2_CONTINUATION, flags, stream, payload);
    if (whole) {
      return out;
    }
  }
}

inline std::string other_frame(Random& random) {
  switch (below(random, 5)) {
    case 0: return frame(HEADGATE_HTTP2_PING, 0, 0, std::string(8, 'p'));
    case 1: return frame(HEADGATE_HTTP2_WINDOW_UPDATE, 0, 0, big_endian(1, 4));
    case 2:
      return frame(0x42, below(random, 256), below(random, 99),
                   std::string(below(random, 40), 'u'));
    case 3:
      return frame(HEADGATE_HTTP2_PRIORITY, 0, 1 + 2 * below(random, 9), big_endian(0, 4) + "\x07");
    default: return settings();
  }
}

/// Requests one after the other and among each other, on one connection.
template <class Blocks>
Connection make_connection(Random& random, Blocks& blocks, unsigned requests) {
  Connection out;
  std::vector<std::uint32_t> open;
  const auto data = [&](std::size_t which) {
    const std::uint32_t stream = open[which];
    open.erase(open.begin() + static_cast<std::ptrdiff_t>(which));
    const std::size_t bytes = one_in(random, 10) ? below(random, 16'000) : below(random, 60);
    std::string payload = grpc_prefix(static_cast<std::uint32_t>(bytes)) + std::string(bytes, 'd');
    unsigned flags = HEADGATE_HTTP2_END_STREAM;
    const std::string pad = padding(random, &payload, &flags);
    out.messages[stream] = {out.octets.size() + 9 + pad.size() + 5, bytes + 5};
    out.octets += frame(HEADGATE_HTTP2_DATA, flags, stream, pad + payload);
  };
  for (unsigned i = 0; i < requests; ++i) {
    const std::uint32_t stream = 1 + 2 * i;
    std::vector<Field> fields = {{":method", one_in(random, 4) ? "GET" : "POST"},
                                 {":scheme", "http"},
                                 {":path", any_of(random, paths())},
                                 {"te", "trailers"}};
    while (one_in(random, 2)) {
      fields.insert(fields.begin() + below(random, static_cast<unsigned>(fields.size() + 1)),
                    {one_in(random, 2) ? "user-agent" : "grpc-timeout",
                     std::string(below(random, 200), static_cast<char>('a' + below(random, 9)))});
    }
    const bool ends = one_in(random, 6);
    out.octets += block_frames(random, stream, blocks.block(fields), ends);
    if (!ends) {
      open.push_back(stream);
    }
    while (one_in(random, 3)) {
      out.octets += other_frame(random);
    }
    while (!open.empty() && !one_in(random, 3)) {
      data(random() % open.size());
    }
  }
  while (!open.empty()) {
    data(0);
  }
  return out;
}

inline std::vector<std::size_t> some_cuts(Random& random, std::size_t bytes) {
  std::vector<std::size_t> out;
  for (unsigned n = below(random, 40); n > 0; --n) {
    out.push_back(random() % (bytes + 1));
  }
  std::sort(out.begin(), out.end());
  return out;
}

}  // namespace headgate::http2
