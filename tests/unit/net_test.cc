// SPDX-License-Identifier: Apache-2.0
#include "agent/dataplane/net.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "agent/base/unique_fd.h"

namespace headgate {
namespace {

using ::testing::HasSubstr;

struct Accepted {
  const char* text;
  const char* address;
  unsigned bits;
};
void PrintTo(const Accepted& row, std::ostream* out) {  // NOLINT: gtest's name
  *out << row.text;
}

class ParsePrefixAccepts : public ::testing::TestWithParam<Accepted> {};

TEST_P(ParsePrefixAccepts, WithBitsOfTheSixteenByteForm) {
  const Result<IpPrefix> prefix = parse_prefix(GetParam().text);
  ASSERT_TRUE(prefix) << prefix.error().message;
  EXPECT_EQ(to_string(prefix->address), GetParam().address);
  EXPECT_EQ(prefix->bits, GetParam().bits);
}

INSTANTIATE_TEST_SUITE_P(Texts, ParsePrefixAccepts,
                         ::testing::Values(Accepted{"10.9.0.0/16", "10.9.0.0", 112},
                                           Accepted{"10.1.2.3", "10.1.2.3", 128},
                                           Accepted{"10.1.2.3/32", "10.1.2.3", 128},
                                           Accepted{"0.0.0.0/0", "0.0.0.0", 96},
                                           Accepted{"128.0.0.0/1", "128.0.0.0", 97},
                                           Accepted{"10.9.8.0/21", "10.9.8.0", 117},
                                           Accepted{"2001:db8::/32", "2001:db8::", 32},
                                           Accepted{"::1", "::1", 128},
                                           Accepted{"fe80::/10", "fe80::", 10},
                                           Accepted{"2000::/3", "2000::", 3},
                                           Accepted{"2001:DB8::1/128", "2001:db8::1", 128},
                                           Accepted{"::ffff:10.1.2.3", "10.1.2.3", 128},
                                           Accepted{"::ffff:10.0.0.0/104", "10.0.0.0", 104}));

struct Refused {
  const char* text;
  const char* says;
};
void PrintTo(const Refused& row, std::ostream* out) {  // NOLINT: gtest's name
  *out << '"' << row.text << '"';
}

class ParsePrefixRefuses : public ::testing::TestWithParam<Refused> {};

TEST_P(ParsePrefixRefuses, AndSaysWhatToWriteInstead) {
  const Result<IpPrefix> prefix = parse_prefix(GetParam().text);
  ASSERT_FALSE(prefix) << to_string(prefix->address) << "/" << prefix->bits;
  EXPECT_THAT(prefix.error().message, HasSubstr(GetParam().text));
  EXPECT_THAT(prefix.error().message, HasSubstr(GetParam().says));
}

INSTANTIATE_TEST_SUITE_P(
    Texts, ParsePrefixRefuses,
    ::testing::Values(
        Refused{"", "10.9.0.0/16"}, Refused{"node", "is no IP address"},
        Refused{"10.9.0/16", "is no IP address"}, Refused{"10.9.0.256", "is no IP address"},
        Refused{"010.1.2.3", "is no IP address"}, Refused{" 10.1.2.3", "is no IP address"},
        Refused{"10.1.2.3 ", "is no IP address"}, Refused{"fe80::1%eth0", "is no IP address"},
        Refused{"/16", "is no IP address"}, Refused{"10.9.0.0/", "0 to 32"},
        Refused{"10.9.0.0/33", "0 to 32"}, Refused{"10.9.0.0/-1", "0 to 32"},
        Refused{"10.9.0.0/+8", "0 to 32"}, Refused{"10.9.0.0/016", "0 to 32"},
        Refused{"10.9.0.0/16/8", "0 to 32"}, Refused{"10.9.0.0/255.255.0.0", "0 to 32"},
        Refused{"10.9.0.0/99999999999", "0 to 32"}, Refused{"2001:db8::/129", "0 to 128"},
        Refused{"10.9.1.0/16", "\"10.9.0.0/16\" for the network or \"10.9.1.0\" for the address"},
        Refused{"10.9.0.1/31", "10.9.0.0/31"}, Refused{"2001:db8::1/32", "2001:db8::/32"},
        // In 16 bytes these hold ::ffff:0:0/96, all of IPv4.
        Refused{"::/0", "every IPv4 address"}, Refused{"::/64", "every IPv4 address"},
        Refused{"::/80", "every IPv4 address"}));

TEST(ParsePrefix, RefusesAnAddressThatHidesBehindAZeroByte) {
  EXPECT_FALSE(parse_prefix(std::string("10.1.2.3\0garbage", 16)));
}

TEST(ParsePrefix, TakesPrefixesNextToTheMappedOnes) {
  EXPECT_TRUE(parse_prefix("::/81"));  // bits 80 to 95 of IPv4 are ones
  EXPECT_TRUE(parse_prefix("64:ff9b::/96"));
}

bool within(const IpAddress& address, const IpPrefix& prefix) {
  for (unsigned bit = 0; bit < prefix.bits; ++bit) {
    const unsigned mask = 0x80U >> (bit % 8);
    if (((address.bytes[bit / 8] ^ prefix.address.bytes[bit / 8]) & mask) != 0) {
      return false;
    }
  }
  return true;
}

TEST(ParsePrefixes, SplitAroundIpv4WhatWouldTakeItIn) {
  const Result<std::vector<IpPrefix>> all = parse_prefixes("::/0");
  ASSERT_TRUE(all) << all.error().message;
  EXPECT_EQ(all->size(), 96u);
  const auto hits = [&](const char* text) {
    const Result<IpPrefix> address = parse_prefix(text);
    EXPECT_TRUE(address) << text;
    return std::count_if(all->begin(), all->end(),
                         [&](const IpPrefix& part) { return within(address->address, part); });
  };
  for (const char* ipv6 : {"::", "::1", "2001:db8::1", "fd00::1", "fe80::1", "64:ff9b::1.2.3.4",
                           "::fffe:1.2.3.4", "::fffe:ffff:1.2.3.4", "ffff::"}) {
    EXPECT_EQ(hits(ipv6), 1) << ipv6;
  }
  for (const char* ipv4 : {"0.0.0.0", "10.1.2.3", "255.255.255.255"}) {
    EXPECT_EQ(hits(ipv4), 0) << ipv4;
  }
  EXPECT_EQ(parse_prefixes("::/80")->size(), 16u);
}

TEST(ParsePrefixes, LeaveEverythingElseWhole) {
  for (const char* text :
       {"0.0.0.0/0", "10.9.0.0/16", "10.1.2.3", "2000::/3", "::ffff:0.0.0.0/96", "::1"}) {
    const Result<std::vector<IpPrefix>> one = parse_prefixes(text);
    ASSERT_TRUE(one) << one.error().message;
    ASSERT_EQ(one->size(), 1u) << text;
    EXPECT_EQ(one->front(), *parse_prefix(text));
  }
  EXPECT_FALSE(parse_prefixes("10.9.0.1/16"));
}

IpAddress address_of(const char* text) {
  const Result<IpPrefix> prefix = parse_prefix(text);
  return prefix ? prefix->address : IpAddress{};
}

TEST(IpAddress, KnowsItsKind) {
  EXPECT_TRUE(address_of("0.0.0.0").is_any());
  EXPECT_TRUE(address_of("::").is_any());
  EXPECT_FALSE(address_of("0.0.0.1").is_any());
  EXPECT_FALSE(address_of("1::").is_any());
  EXPECT_TRUE(address_of("127.255.0.1").is_loopback());
  EXPECT_TRUE(address_of("::1").is_loopback());
  EXPECT_FALSE(address_of("::2").is_loopback());
  EXPECT_FALSE(address_of("128.0.0.1").is_loopback());
  EXPECT_TRUE(address_of("10.1.2.3").is_ipv4());
  EXPECT_FALSE(address_of("::10.1.2.3").is_ipv4());
}

TEST(RunInNetns, SaysWhatIsWrongWithTheFile) {
  const UniqueFd null(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  bool ran = false;
  const Result<> result = run_in_netns(null.get(), [&]() -> Result<> {
    ran = true;
    return {};
  });
  ASSERT_FALSE(result);
  EXPECT_FALSE(ran);
  EXPECT_THAT(result.error().message, HasSubstr("network namespace"));
  EXPECT_EQ(result.error().sys_errno, EINVAL);
  EXPECT_EQ(run_in_netns(-1, []() -> Result<> { return {}; }).error().sys_errno, EBADF);
}

}  // namespace
}  // namespace headgate
