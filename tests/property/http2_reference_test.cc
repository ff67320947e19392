// SPDX-License-Identifier: Apache-2.0
// What the kernel's reader of HTTP/2 says of each request against nghttp2, which decodes
// everything.
#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <nghttp2/nghttp2.h>

#include "agent/dataplane/hpack_huffman.h"
#include "tests/support/http2_stream.h"

namespace headgate::http2 {
namespace {

using Random = std::mt19937_64;
using Field = std::pair<std::string, std::string>;

unsigned below(Random& random, unsigned n) { return static_cast<unsigned>(random() % n); }
bool one_in(Random& random, unsigned n) { return below(random, n) == 0; }
template <class T>
const T& any_of(Random& random, const std::vector<T>& all) {
  return all[random() % all.size()];
}

/// Routes of the first half of the paths; the others have none.
const std::vector<std::string>& paths() {
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
constexpr std::size_t kRouted = 6;

Reader::Routes routes() {
  Reader::Routes out;
  for (std::size_t i = 0; i < kRouted; ++i) {
    out[{paths()[i], false}] = static_cast<std::uint16_t>(i);
    out[{hpack_huffman(paths()[i]), true}] = static_cast<std::uint16_t>(i);
  }
  return out;
}

std::uint32_t endpoint_of(const std::string& path) {
  const auto end = paths().begin() + kRouted;
  const auto found = std::find(paths().begin(), end, path);
  return found == end ? HEADGATE_CALL_REST : static_cast<std::uint32_t>(found - paths().begin());
}

/// The path of each stream, as a server built on nghttp2 is told.
class Reference {
 public:
  Reference() {
    nghttp2_session_callbacks* callbacks = nullptr;
    nghttp2_session_callbacks_new(&callbacks);
    nghttp2_session_callbacks_set_on_header_callback(callbacks, [](nghttp2_session*,
                                                                   const nghttp2_frame* frame,
                                                                   const std::uint8_t* name,
                                                                   std::size_t name_bytes,
                                                                   const std::uint8_t* value,
                                                                   std::size_t value_bytes,
                                                                   std::uint8_t /*flags*/,
                                                                   void* user) {
      if (frame->headers.cat == NGHTTP2_HCAT_REQUEST &&
          std::string_view(reinterpret_cast<const char*>(name), name_bytes) == ":path") {
        static_cast<Reference*>(user)->open_ = {reinterpret_cast<const char*>(value), value_bytes};
      }
      return 0;
    });
    nghttp2_session_callbacks_set_on_frame_recv_callback(
        callbacks, [](nghttp2_session*, const nghttp2_frame* frame, void* user) {
          if (frame->hd.type == NGHTTP2_HEADERS && frame->headers.cat == NGHTTP2_HCAT_REQUEST) {
            Reference& self = *static_cast<Reference*>(user);
            self.path[static_cast<std::uint32_t>(frame->hd.stream_id)] =
                std::exchange(self.open_, "");
          }
          return 0;
        });
    nghttp2_session_callbacks_set_send_callback(
        callbacks, [](nghttp2_session*, const std::uint8_t*, std::size_t bytes, int, void*) {
          return static_cast<ssize_t>(bytes);
        });
    nghttp2_option* option = nullptr;
    nghttp2_option_new(&option);
    nghttp2_option_set_no_http_messaging(option, 1);  // blocks need not make up a request
    nghttp2_session_server_new2(&session_, callbacks, this, option);
    nghttp2_option_del(option);
    nghttp2_session_callbacks_del(callbacks);
    // room for as many streams and octets as a test likes
    const std::array<nghttp2_settings_entry, 2> settings = {
        {{NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, 1U << 20U},
         {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, 0x7fffffff}}};
    nghttp2_submit_settings(session_, NGHTTP2_FLAG_NONE, settings.data(), settings.size());
    nghttp2_session_set_local_window_size(session_, NGHTTP2_FLAG_NONE, 0, 0x7fffffff);
    nghttp2_session_send(session_);
  }
  Reference(const Reference&) = delete;
  Reference& operator=(const Reference&) = delete;
  ~Reference() { nghttp2_session_del(session_); }

  /// False where it would end the connection.
  bool feed(const std::string& all) {
    const ssize_t took = nghttp2_session_mem_recv(
        session_, reinterpret_cast<const std::uint8_t*>(all.data()), all.size());
    nghttp2_session_send(session_);
    return took == static_cast<ssize_t>(all.size()) && nghttp2_session_want_read(session_) != 0;
  }
  std::map<std::uint32_t, std::string> path;

 private:
  nghttp2_session* session_ = nullptr;
  std::string open_;
};

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

/// nghttp2's own way of writing them.
class Deflater {
 public:
  Deflater() { nghttp2_hd_deflate_new(&deflater_, 4096); }
  Deflater(const Deflater&) = delete;
  Deflater& operator=(const Deflater&) = delete;
  ~Deflater() { nghttp2_hd_deflate_del(deflater_); }
  std::string block(const std::vector<Field>& fields) {
    std::vector<nghttp2_nv> pairs;
    for (const Field& field : fields) {
      const auto octets = [](const std::string& text) {
        return const_cast<std::uint8_t*>(reinterpret_cast<const std::uint8_t*>(text.data()));
      };
      pairs.push_back({octets(field.first), octets(field.second), field.first.size(),
                       field.second.size(), NGHTTP2_NV_FLAG_NONE});
    }
    std::string out(nghttp2_hd_deflate_bound(deflater_, pairs.data(), pairs.size()), '\0');
    const ssize_t bytes =
        nghttp2_hd_deflate_hd(deflater_, reinterpret_cast<std::uint8_t*>(out.data()), out.size(),
                              pairs.data(), pairs.size());
    out.resize(static_cast<std::size_t>(bytes));
    return out;
  }

 private:
  nghttp2_hd_deflater* deflater_ = nullptr;
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

std::string padding(Random& random, std::string* payload, unsigned* flags) {
  if (!one_in(random, 3)) {
    return "";
  }
  *flags |= HEADGATE_HTTP2_PADDED;
  const unsigned pad = one_in(random, 2) ? 0 : below(random, 256);
  *payload += std::string(pad, '\0');
  return std::string(1, static_cast<char>(pad));
}

/// A block as HEADERS and CONTINUATION, wherever it is cut.
std::string block_frames(Random& random, std::uint32_t stream, std::string block, bool ends) {
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

std::string other_frame(Random& random) {
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

std::vector<std::size_t> some_cuts(Random& random, std::size_t bytes) {
  std::vector<std::size_t> out;
  for (unsigned n = below(random, 40); n > 0; --n) {
    out.push_back(random() % (bytes + 1));
  }
  std::sort(out.begin(), out.end());
  return out;
}

/// `displaced`: more paths were inserted than are remembered, so that one may be unknown.
void expect_as_reference(const Connection& connection, const std::vector<std::size_t>& cuts,
                         bool displaced, std::size_t* unknown) {
  Reference reference;
  ASSERT_TRUE(reference.feed(std::string(kPreface) + connection.octets));
  Reader reader(routes());
  ASSERT_TRUE(reader.feed(connection.octets, cuts)) << "lost for " << reader.lost();
  ASSERT_EQ(reader.seen.size(), reference.path.size());
  for (const Seen& seen : reader.seen) {
    ASSERT_TRUE(reference.path.contains(seen.stream));
    if (seen.no_path) {
      EXPECT_TRUE(displaced) << "stream " << seen.stream;
      ++*unknown;
      continue;
    }
    EXPECT_EQ(seen.endpoint, endpoint_of(reference.path.at(seen.stream))) << seen.stream;
  }
  ASSERT_EQ(reader.judged.size(), reference.path.size()) << "each once";
  std::map<std::uint32_t, int> times;
  for (const Judged& judged : reader.judged) {
    EXPECT_EQ(++times[judged.stream], 1);
    const auto message = connection.messages.find(judged.stream);
    if (message == connection.messages.end()) {
      EXPECT_FALSE(judged.may_poison);
      continue;
    }
    EXPECT_EQ(judged.bytes, message->second.bytes);
    EXPECT_EQ(judged.end, message->second.end);
    const bool straddles = std::any_of(cuts.begin(), cuts.end(), [&](std::size_t cut) {
      return cut > judged.end - 4 && cut < judged.end;
    });
    EXPECT_EQ(judged.may_poison, !straddles);
  }
}

TEST(Http2Reference, BlocksInEveryFormOfHpack) {
  std::size_t unknown = 0;
  std::size_t requests = 0;
  for (std::uint64_t seed = 1; seed <= 1500; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    Encoder encoder(random);
    const unsigned count = 1 + below(random, 30);
    const Connection connection = make_connection(random, encoder, count);
    expect_as_reference(connection, some_cuts(random, connection.octets.size()),
                        encoder.paths_inserted > HEADGATE_HPACK_PATHS, &unknown);
    requests += count;
    if (HasFailure()) {
      return;
    }
  }
  // Twelve paths at random on each connection are more than a client has; few are lost even so.
  EXPECT_LT(unknown, requests / 10);
  RecordProperty("requests", static_cast<int>(requests));
}

TEST(Http2Reference, BlocksAsNghttp2WritesThem) {
  std::size_t unknown = 0;
  for (std::uint64_t seed = 1; seed <= 500; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    Deflater deflater;
    const Connection connection = make_connection(random, deflater, 1 + below(random, 40));
    expect_as_reference(connection, some_cuts(random, connection.octets.size()), true, &unknown);
    if (HasFailure()) {
      return;
    }
  }
}

/// Every cut point of a few connections.
TEST(Http2Reference, EveryCutPoint) {
  for (std::uint64_t seed = 1; seed <= 12; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    Encoder encoder(random);
    const Connection connection = make_connection(random, encoder, 6);
    std::size_t unknown = 0;
    for (std::size_t cut = 0; cut <= std::min<std::size_t>(connection.octets.size(), 1500); ++cut) {
      expect_as_reference(connection, {cut}, false, &unknown);
      if (HasFailure()) {
        return;
      }
    }
  }
}

/// Whatever comes: where both still say something, they say the same.
TEST(Http2Reference, NeverAnotherRouteThanTheReference) {
  std::size_t compared = 0;
  std::size_t lost = 0;
  for (std::uint64_t seed = 1; seed <= 6000; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    Encoder encoder(random);
    Connection connection = make_connection(random, encoder, 1 + below(random, 8));
    for (unsigned n = 1 + below(random, 6); n > 0; --n) {
      char& octet = connection.octets[random() % connection.octets.size()];
      octet = static_cast<char>(one_in(random, 2) ? octet ^ (1 << below(random, 8))
                                                  : static_cast<int>(below(random, 256)));
    }
    Reference reference;
    (void)reference.feed(std::string(kPreface) + connection.octets);
    Reader reader(routes());
    lost += reader.feed(connection.octets, some_cuts(random, connection.octets.size())) ? 0 : 1;
    for (const Seen& seen : reader.seen) {
      const auto path = reference.path.find(seen.stream);
      if (seen.no_path || path == reference.path.end()) {
        continue;
      }
      EXPECT_EQ(seen.endpoint, endpoint_of(path->second)) << seen.stream;
      ++compared;
    }
    if (HasFailure()) {
      return;
    }
  }
  EXPECT_GT(compared, 6000U);
  EXPECT_GT(lost, 1000U);
}

TEST(Http2Reference, HuffmanCodeOfEveryOctet) {
  std::string all;
  for (unsigned octet = 0; octet < 256; ++octet) {
    all.push_back(static_cast<char>(octet));
  }
  std::vector<std::string> texts = {all};
  for (const char octet : all) {
    texts.emplace_back(1, octet);
  }
  for (const std::string& text : texts) {
    const std::string block = std::string(1, '\0') + plain("x") + coded(hpack_huffman(text));
    nghttp2_hd_inflater* inflater = nullptr;
    nghttp2_hd_inflate_new(&inflater);
    nghttp2_nv field{};
    int flags = 0;
    std::string decoded;
    const auto* at = reinterpret_cast<const std::uint8_t*>(block.data());
    std::size_t left = block.size();
    while ((flags & NGHTTP2_HD_INFLATE_FINAL) == 0) {
      const ssize_t took = nghttp2_hd_inflate_hd2(inflater, &field, &flags, at, left, 1);
      ASSERT_GE(took, 0) << testing::PrintToString(text);
      at += took;
      left -= static_cast<std::size_t>(took);
      if ((flags & NGHTTP2_HD_INFLATE_EMIT) != 0) {
        decoded.assign(reinterpret_cast<const char*>(field.value), field.valuelen);
      }
    }
    EXPECT_EQ(decoded, text);
    nghttp2_hd_inflate_del(inflater);
  }
}

}  // namespace
}  // namespace headgate::http2
