// SPDX-License-Identifier: Apache-2.0
// What the kernel's reader of HTTP/2 says of each request against nghttp2, which decodes
// everything.
#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <nghttp2/nghttp2.h>

#include "tests/support/http2_traffic.h"

namespace headgate::http2 {
namespace {

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
    EXPECT_EQ(hpack_huffman_decode(hpack_huffman(text)), text);
    nghttp2_hd_inflate_del(inflater);
  }
}

}  // namespace
}  // namespace headgate::http2
