// SPDX-License-Identifier: Apache-2.0
#include "agent/dataplane/method_keys.h"

#include <string>

#include <gtest/gtest.h>

#include "agent/dataplane/hpack_huffman.h"

namespace headgate {
namespace {

std::string hex(const std::string& octets) {
  static constexpr const char* kDigits = "0123456789abcdef";
  std::string out;
  for (const char c : octets) {
    const auto octet = static_cast<unsigned char>(c);
    out += {kDigits[octet >> 4U], kDigits[octet & 15U]};
  }
  return out;
}

std::string octets_of(const headgate_method_key& key) {
  return {reinterpret_cast<const char*>(key.path), key.bytes};
}

/// RFC 7541, C.4 and C.6. tests/property/http2_reference_test.cc compares every octet with nghttp2.
TEST(HpackHuffman, ExamplesOfTheRfc) {
  EXPECT_EQ(hex(hpack_huffman("www.example.com")), "f1e3c2e5f23a6ba0ab90f4ff");
  EXPECT_EQ(hex(hpack_huffman("no-cache")), "a8eb10649cbf");
  EXPECT_EQ(hex(hpack_huffman("302")), "6402");
  EXPECT_EQ(hex(hpack_huffman("Mon, 21 Oct 2013 20:13:21 GMT")),
            "d07abe941054d444a8200595040b8166e082a62d1bff");
  EXPECT_EQ(hpack_huffman(""), "");
}

TEST(HpackHuffman, WhatIsNotOfTheCodeIsNotDecoded) {
  EXPECT_EQ(hpack_huffman_decode(""), "");
  EXPECT_EQ(hpack_huffman_decode("\x64\x02"), "302");
  EXPECT_EQ(hpack_huffman_decode("\x64\x00"), std::nullopt) << "padded with zeros";
  EXPECT_EQ(hpack_huffman_decode("\x64\x02\xff"), std::nullopt) << "a whole octet of padding";
  EXPECT_EQ(hpack_huffman_decode("\xff\xff\xff\xff"), std::nullopt) << "end of string";
}

TEST(MethodKeys, BothFormsOfAMethod) {
  const std::string method = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";
  const auto keys = method_keys(77, method);
  EXPECT_EQ(keys[0].port, 77U);
  EXPECT_EQ(keys[0].huffman, 0);
  EXPECT_EQ(octets_of(keys[0]), method);
  EXPECT_EQ(keys[1].port, 77U);
  EXPECT_EQ(keys[1].huffman, 1);
  EXPECT_EQ(octets_of(keys[1]), hpack_huffman(method));
  for (std::size_t i = method.size(); i < HEADGATE_ROUTE_PATH_BYTES; ++i) {
    EXPECT_EQ(keys[0].path[i], 0) << "zero padded";
  }
}

TEST(MethodKeys, Lengths) {
  EXPECT_FALSE(method_fits(""));
  EXPECT_TRUE(method_fits(std::string(HEADGATE_ROUTE_PATH_BYTES, 'a')));
  EXPECT_FALSE(method_fits(std::string(HEADGATE_ROUTE_PATH_BYTES + 1, 'a')));
  EXPECT_EQ(method_keys(1, std::string(HEADGATE_ROUTE_PATH_BYTES, 'a'))[0].bytes,
            HEADGATE_ROUTE_PATH_BYTES);
  // \x80 takes 20 bits: the coded form does not fit
  const auto grown = method_keys(1, std::string(HEADGATE_ROUTE_PATH_BYTES, '\x80'));
  EXPECT_EQ(grown[1].huffman, 0);
  EXPECT_EQ(grown[1].bytes, HEADGATE_ROUTE_PATH_BYTES);
}

}  // namespace
}  // namespace headgate
