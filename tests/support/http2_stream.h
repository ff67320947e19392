// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bpf/lib/http2_native.h"

/// HTTP/2 for tests: frames written by hand, and the kernel's reader compiled natively.
namespace headgate::http2 {

inline constexpr std::string_view kPreface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

inline std::string big_endian(std::uint64_t value, unsigned bytes) {
  std::string out;
  while (bytes-- > 0) {
    out.push_back(static_cast<char>(value >> (8 * bytes) & 0xffU));
  }
  return out;
}

inline std::string frame(unsigned type, unsigned flags, std::uint32_t stream,
                         const std::string& payload) {
  return big_endian(payload.size(), 3) + big_endian(type, 1) + big_endian(flags, 1) +
         big_endian(stream, 4) + payload;
}

inline std::string settings() { return frame(HEADGATE_HTTP2_SETTINGS, 0, 0, ""); }

/// A HEADERS frame that is a whole block.
inline std::string headers(std::uint32_t stream, const std::string& block, unsigned flags = 0) {
  return frame(HEADGATE_HTTP2_HEADERS, HEADGATE_HTTP2_END_HEADERS | flags, stream, block);
}

inline std::string grpc_prefix(std::uint32_t message_bytes, unsigned compressed = 0) {
  return big_endian(compressed, 1) + big_endian(message_bytes, 4);
}

/// The DATA frame of a unary call.
inline std::string unary(std::uint32_t stream, std::size_t message_bytes) {
  return frame(
      HEADGATE_HTTP2_DATA, HEADGATE_HTTP2_END_STREAM, stream,
      grpc_prefix(static_cast<std::uint32_t>(message_bytes)) + std::string(message_bytes, 'm'));
}

/// An integer of HPACK (RFC 7541, 5.1) whose first octet has `bits` for it, below `first`.
inline std::string integer(std::uint64_t value, unsigned bits, unsigned first) {
  const std::uint64_t most = (1ULL << bits) - 1;
  std::string out;
  if (value < most) {
    out.push_back(static_cast<char>(first | value));
    return out;
  }
  out.push_back(static_cast<char>(first | most));
  for (value -= most; value >= 128; value >>= 7U) {
    out.push_back(static_cast<char>(0x80U | (value & 0x7fU)));
  }
  out.push_back(static_cast<char>(value));
  return out;
}

inline std::string plain(std::string_view text) {
  return integer(text.size(), 7, 0) + std::string(text);
}
/// `octets` are in the Huffman code already.
inline std::string coded(std::string_view octets) {
  return integer(octets.size(), 7, 0x80) + std::string(octets);
}

/// What the reader said of one request.
struct Seen {
  std::uint32_t stream = 0;
  std::uint32_t endpoint = 0;
  bool no_path = false;
  friend bool operator==(const Seen&, const Seen&) = default;
};

/// What it was handed over with for the verdict.
struct Judged {
  std::uint32_t stream = 0;
  std::uint32_t endpoint = 0;
  std::uint64_t bytes = 0;
  std::size_t end = 0;  ///< in the stream: behind what had been read
  bool may_poison = false;
  /// The same, where only packets differ.
  [[nodiscard]] bool same(const Judged& other) const {
    return stream == other.stream && endpoint == other.endpoint && bytes == other.bytes &&
           end == other.end;
  }
};

/// One connection, read as the kernel reads it. Routes are by their octets, as in the map.
class Reader {
 public:
  /// (octets, huffman) -> endpoint slot
  using Routes = std::map<std::pair<std::string, bool>, std::uint16_t>;

  explicit Reader(Routes routes) : routes_(std::move(routes)) {
    env_.user = this;
    env_.find = [](void* user, const headgate_method_key* key, headgate_call* call) {
      const Reader& self = *static_cast<Reader*>(user);
      const std::string octets(reinterpret_cast<const char*>(key->path), key->bytes);
      const auto found = self.routes_.find({octets, key->huffman != 0});
      if (found != self.routes_.end()) {
        call->endpoint = found->second;
        call->flags = HEADGATE_ROUTE_UNARY;
      }
    };
    env_.seen = [](void* user, const headgate_http2* h) {
      Reader& self = *static_cast<Reader*>(user);
      self.seen.push_back(
          {h->stream, h->hpack.call.endpoint, (h->hpack.call.flags & HEADGATE_CALL_NO_PATH) != 0});
    };
    env_.put = [](void* user, std::uint32_t stream, const headgate_call* call) {
      static_cast<Reader*>(user)->waiting_[stream] = *call;
      return 0;
    };
    env_.take = [](void* user, std::uint32_t stream, headgate_call* call) {
      Reader& self = *static_cast<Reader*>(user);
      const auto found = self.waiting_.find(stream);
      if (found == self.waiting_.end()) {
        return 0;
      }
      *call = found->second;
      self.waiting_.erase(found);
      return 1;
    };
    env_.judge = [](void* user, const headgate_http2* h, const headgate_http2_judged* one) {
      Reader& self = *static_cast<Reader*>(user);
      self.judged.push_back({one->stream, one->call.endpoint, one->bytes,
                             self.env_.packet_offset + h->at, one->may_poison != 0});
    };
  }
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;
  ~Reader() = default;

  /// One packet; the first begins behind the preface. False: the connection is lost.
  bool feed(std::string_view packet) {
    (void)headgate_http2_feed(&state, reinterpret_cast<const __u8*>(packet.data()),
                              static_cast<__u32>(packet.size()), &env_);
    return headgate_http2_lost(&state) == 0;
  }
  /// In packets that end at `cuts`, in rising order.
  bool feed(std::string_view all, const std::vector<std::size_t>& cuts) {
    std::size_t from = 0;
    bool alive = true;
    for (const std::size_t cut : cuts) {
      alive = feed(all.substr(from, cut - from));
      from = cut;
    }
    alive = feed(all.substr(from));
    return alive;
  }
  /// enum headgate_unknown, once the connection is lost; else HEADGATE_UNKNOWN_NONE.
  [[nodiscard]] int lost() const {
    return headgate_http2_lost(&state) != 0 ? int{state.hpack.reason} : HEADGATE_UNKNOWN_NONE;
  }

  headgate_http2 state{};
  std::vector<Seen> seen;
  std::vector<Judged> judged;

 private:
  Routes routes_;
  headgate_http2_env env_{};
  std::map<std::uint32_t, headgate_call> waiting_;
};

}  // namespace headgate::http2
