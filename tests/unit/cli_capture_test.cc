// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "agent/cli/capture.h"
#include "agent/cli/classify.h"
#include "tests/unit/http1_streams.h"

namespace headgate {
namespace {

using cli::read_capture;
using testing::ElementsAre;
using testing::HasSubstr;

std::string net(std::uint64_t value, int bytes) {
  std::string out;
  for (int i = bytes - 1; i >= 0; --i) {
    out += static_cast<char>(value >> (8 * i));
  }
  return out;
}
std::string little(std::uint64_t value, int bytes) {
  const std::string big = net(value, bytes);
  return {big.rbegin(), big.rend()};
}

struct Packet {
  std::uint32_t sequence = 0;
  std::string payload{};
  bool syn = false;
  std::uint16_t from = 40000;
  std::uint16_t to = 4318;
};

std::string tcp(const Packet& p) {
  return net(p.from, 2) + net(p.to, 2) + net(p.sequence, 4) + net(0, 4) + "\x50" +
         std::string(1, p.syn ? '\x02' : '\x18') + net(100, 2) + net(0, 4) + p.payload;
}
std::string ipv4(const Packet& p) {
  const std::string segment = tcp(p);
  return std::string("\x45\0", 2) + net(20 + segment.size(), 2) + net(0, 2) + net(0x4000, 2) +
         "\x40\x06" + net(0, 2) + std::string("\x0a\0\0\1", 4) + std::string("\x0a\0\0\2", 4) +
         segment;
}
std::string ipv6(const Packet& p) {
  const std::string segment = tcp(p);
  return net(0x60000000, 4) + net(segment.size(), 2) + "\x06\x40" + std::string(15, '\0') + "\1" +
         std::string(15, '\0') + "\2" + segment;
}
std::string ethernet(const std::string& ip, const std::string& tags = {}) {
  return std::string(12, 'm') + tags + net((ip[0] & 0x70) == 0x40 ? 0x0800 : 0x86dd, 2) + ip;
}

std::string pcap(std::uint32_t link, const std::vector<std::string>& frames, bool big = false) {
  const auto number = [big](std::uint64_t value, int bytes) {
    return big ? net(value, bytes) : little(value, bytes);
  };
  std::string out = number(0xa1b2c3d4, 4) + number(2, 2) + number(4, 2) + number(0, 8) +
                    number(65535, 4) + number(link, 4);
  for (const std::string& frame : frames) {
    out += number(0, 8) + number(frame.size(), 4) + number(frame.size(), 4) + frame;
  }
  return out;
}

std::string block(std::uint32_t type, const std::string& body) {
  const std::string padded = body + std::string((4 - body.size() % 4) % 4, '\0');
  const std::string size = little(padded.size() + 12, 4);
  return little(type, 4) + size + padded + size;
}
std::string pcapng(std::uint32_t link, const std::vector<std::string>& frames) {
  std::string out = block(0x0a0d0d0a, little(0x1a2b3c4d, 4) + little(1, 4) + little(~0ULL, 8)) +
                    block(1, little(link, 2) + little(0, 2) + little(0, 4));
  for (const std::string& frame : frames) {
    out += block(5, "statistics")  // passed over
           + block(6, little(0, 4) + little(0, 8) + little(frame.size(), 4) +
                          little(frame.size(), 4) + frame);
  }
  return out;
}

const std::vector<Packet> kTwoParts{
    {.sequence = 99, .syn = true}, {.sequence = 100, .payload = "GET "}, {104, "/ HTTP"}};

template <class Frame>
std::vector<std::string> frames(const std::vector<Packet>& packets, Frame frame) {
  std::vector<std::string> out;
  for (const Packet& packet : packets) {
    out.push_back(frame(packet));
  }
  return out;
}
std::vector<std::string> on_ethernet(const std::vector<Packet>& packets) {
  return frames(packets, [](const Packet& p) { return ethernet(ipv4(p)); });
}

void expect_two_parts(const std::string& file) {
  ASSERT_TRUE(cli::is_capture(file));
  const auto streams = read_capture(file, 4318);
  ASSERT_TRUE(streams) << streams.error().message;
  ASSERT_EQ(streams->size(), 1U);
  EXPECT_THAT((*streams)[0].packets, ElementsAre("GET ", "/ HTTP"));
  EXPECT_TRUE((*streams)[0].from_start);
  EXPECT_FALSE((*streams)[0].gap);
}

TEST(Capture, EveryFormatAndLinkGivesTheSame) {
  const auto plain = [](const Packet& p) { return ipv4(p); };
  expect_two_parts(pcap(1, on_ethernet(kTwoParts)));
  expect_two_parts(pcap(1, on_ethernet(kTwoParts), true));
  expect_two_parts(pcapng(1, on_ethernet(kTwoParts)));
  expect_two_parts(pcap(101, frames(kTwoParts, plain)));
  expect_two_parts(pcap(
      1, frames(kTwoParts, [](const Packet& p) { return ethernet(ipv6(p), net(0x81000007, 4)); })));
  expect_two_parts(pcap(113, frames(kTwoParts, [](const Packet& p) {
                          return std::string(14, '\0') + net(0x0800, 2) + ipv4(p);
                        })));
  expect_two_parts(pcap(276, frames(kTwoParts, [](const Packet& p) {
                          return net(0x86dd, 2) + std::string(18, '\0') + ipv6(p);
                        })));
  expect_two_parts(
      pcap(0, frames(kTwoParts, [](const Packet& p) { return little(2, 4) + ipv4(p); })));
}

TEST(Capture, SegmentsArePutInOrderAndEachByteIsReadOnce) {
  const auto streams =
      read_capture(pcap(1, on_ethernet({{.sequence = 0xfffffffe, .syn = true},
                                        {1, "cd"},
                                        {0xffffffff, "ab"},
                                        {0xffffffff, "ab"},
                                        {0, "bcde"},
                                        {.sequence = 9, .payload = "x", .to = 99}})),
                   4318);
  ASSERT_TRUE(streams);
  ASSERT_EQ(streams->size(), 1U);
  EXPECT_EQ((*streams)[0].client, "10.0.0.1:40000");
  EXPECT_THAT((*streams)[0].packets, ElementsAre("ab", "cd", "e"));
}

TEST(Capture, MissingBytesAreAGap) {
  const auto streams = read_capture(
      pcap(1, on_ethernet({{.sequence = 0, .syn = true}, {1, "ab"}, {5, "ef"}})), 4318);
  ASSERT_TRUE(streams);
  EXPECT_THAT((*streams)[0].packets, ElementsAre("ab"));
  EXPECT_TRUE((*streams)[0].gap);
}

TEST(Capture, WhatTheSnapLengthCutIsAGap) {
  std::string cut = ethernet(ipv4({1, "abcdef"}));
  cut.resize(cut.size() - 2);
  const auto streams =
      read_capture(pcap(1, {ethernet(ipv4({.sequence = 0, .syn = true})), cut}), 4318);
  ASSERT_TRUE(streams);
  EXPECT_THAT((*streams)[0].packets, ElementsAre("abcd"));
  EXPECT_TRUE((*streams)[0].gap);
}

TEST(Capture, TheSamePortsAgainAreAnotherConnection) {
  const auto streams =
      read_capture(pcap(1, on_ethernet({{.sequence = 0, .syn = true},
                                        {.sequence = 0, .syn = true},  // sent again
                                        {1, "a"},
                                        {.sequence = 700, .syn = true},
                                        {701, "b"},
                                        {.sequence = 5, .payload = "c", .from = 40001}})),
                   4318);
  ASSERT_TRUE(streams);
  ASSERT_EQ(streams->size(), 3U);
  EXPECT_THAT((*streams)[0].packets, ElementsAre("a"));
  EXPECT_THAT((*streams)[1].packets, ElementsAre("b"));
  EXPECT_FALSE((*streams)[2].from_start);
}

TEST(Capture, BrokenFilesAreErrorsWithTheirPlace) {
  const std::string whole = pcap(1, on_ethernet(kTwoParts));
  const auto error = read_capture(whole.substr(0, whole.size() - 1), 4318);
  ASSERT_FALSE(error);
  EXPECT_THAT(error.error().message, HasSubstr("broken at byte 168"));
  // every beginning of a file, and every byte of it changed: an answer, no crash
  for (const std::string& file : {whole, pcapng(1, on_ethernet(kTwoParts))}) {
    for (std::size_t at = 0; at < file.size(); ++at) {
      (void)read_capture(file.substr(0, at), 4318);
      for (const char byte : {'\0', '\xff', '\x7f'}) {
        std::string changed = file;
        changed[at] = byte;
        (void)read_capture(changed, 4318);
      }
    }
  }
}

TEST(Classify, AConnectionOlderThanTheCaptureIsOfUnknownClass) {
  const std::string request = "GET /v1/traces HTTP/1.1\r\n\r\n";
  const auto seen =
      cli::classify(pcap(1, on_ethernet({{7, request},
                                         {.sequence = 0, .syn = true, .from = 40001},
                                         {.sequence = 1, .payload = request, .from = 40001}})),
                    4318, {}, test::otlp_routes());
  ASSERT_TRUE(seen) << seen.error().message;
  ASSERT_EQ(seen->size(), 2U);
  EXPECT_EQ((*seen)[0].requests.at(0).reason, static_cast<unsigned>(HEADGATE_UNKNOWN_OLD));
  EXPECT_EQ((*seen)[1].requests.at(0).route, "traces");
  EXPECT_EQ((*seen)[1].client, "10.0.0.1:40001");
}

TEST(Classify, ACaptureHasItsOwnPacketsAndConnections) {
  const std::string file = pcap(1, on_ethernet(kTwoParts));
  EXPECT_FALSE(cli::classify(file, 4318, {3}, test::otlp_routes()));
  const auto none = cli::classify(file, 80, {}, test::otlp_routes());
  ASSERT_FALSE(none);
  EXPECT_THAT(none.error().message, HasSubstr("no TCP connection to port 80"));
}

}  // namespace
}  // namespace headgate
