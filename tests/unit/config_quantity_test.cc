// SPDX-License-Identifier: Apache-2.0
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "agent/config/network.h"
#include "agent/config/quantity.h"

namespace headgate {
namespace {

using std::chrono::hours;
using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using std::chrono::seconds;

TEST(ConfigQuantity, DurationsCarryUnits) {
  EXPECT_EQ(parse_duration("100ms"), Duration(milliseconds(100)));
  EXPECT_EQ(parse_duration("1s"), Duration(seconds(1)));
  EXPECT_EQ(parse_duration("1m30s"), Duration(seconds(90)));
  EXPECT_EQ(parse_duration("1.5s"), Duration(milliseconds(1500)));
  EXPECT_EQ(parse_duration("2h"), Duration(hours(2)));
  EXPECT_EQ(parse_duration("250us"), Duration(microseconds(250)));
  EXPECT_EQ(parse_duration("7ns"), Duration(nanoseconds(7)));
  EXPECT_EQ(parse_duration("0"), Duration(0));
  EXPECT_EQ(parse_duration("0s"), Duration(0));
}

TEST(ConfigQuantity, WhatIsNoDurationIsNotRead) {
  for (const char* text : {"", "1", "s", "-1s", "1s1s", "1s1m", "1 s", "1.s", ".5s", "1e3s", "1d",
                           "0.1ns", "1s ", "9999999999999h", "1h99999999999999999999s", "01s"}) {
    EXPECT_EQ(parse_duration(text), std::nullopt) << text;
  }
}

TEST(ConfigQuantity, SizesAreKubernetesQuantities) {
  const auto bytes = [](const char* text) {
    const auto size = parse_size(text);
    return size ? std::optional(size->value) : std::nullopt;
  };
  EXPECT_EQ(bytes("3Gi"), 3ULL << 30U);
  EXPECT_EQ(bytes("256Mi"), 256ULL << 20U);
  EXPECT_EQ(bytes("1.5Gi"), 3ULL << 29U);
  EXPECT_EQ(bytes("2G"), 2'000'000'000U);
  EXPECT_EQ(bytes("10k"), 10'000U);
  EXPECT_EQ(bytes("1048576"), 1'048'576U);
  for (const char* text :
       {"", "Gi", "1GB", "1 Gi", "-1Gi", "0.3", "0.1k5", "1e3Gi", "1K", "99999999999Ti", "0x10"}) {
    EXPECT_EQ(bytes(text), std::nullopt) << text;
  }
}

TEST(ConfigQuantity, CoresAreNumbersOrThousandths) {
  EXPECT_EQ(parse_cores("1500m"), 1.5);
  EXPECT_EQ(parse_cores("2"), 2.0);
  EXPECT_EQ(parse_cores("0.5"), 0.5);
  for (const char* text : {"", "m", "1.5m", "-1", "2c", "nan", "inf", "1e2m", "0x2"}) {
    EXPECT_EQ(parse_cores(text), std::nullopt) << text;
  }
}

TEST(ConfigQuantity, C06_IntegersInScientificFormAreTakenWhereTheyAreIntegral) {
  const auto million = parse_integer("1.048576e+06");
  ASSERT_TRUE(million);
  EXPECT_EQ(million->value, 1'048'576U);
  EXPECT_TRUE(million->scientific);
  EXPECT_EQ(parse_integer("4.317e3")->value, 4317U);
  EXPECT_EQ(parse_integer("50e-1")->value, 5U);
  EXPECT_FALSE(parse_integer("4317")->scientific);
  for (const char* text : {"1.5e0", "1.5", "1.0", "1e", "e3", "1e99", "-1", "+1", "", "007", "0x1F",
                           "1_000", "18446744073709551616", "1.8446744073709551617e19"}) {
    EXPECT_FALSE(parse_integer(text)) << text;
  }
  EXPECT_EQ(parse_integer("18446744073709551615")->value, 18446744073709551615ULL);
}

TEST(ConfigQuantity, NumbersAreDecimalAndFinite) {
  EXPECT_EQ(parse_plain_number("0.8"), 0.8);
  EXPECT_EQ(parse_plain_number("-0.5"), -0.5);
  EXPECT_EQ(parse_plain_number("1e-3"), 0.001);
  for (const char* text :
       {"", "-", ".5", "1,5", "nan", ".nan", "inf", ".inf", "0x1p3", "1e999", "08", "1 ", "90%"}) {
    EXPECT_EQ(parse_plain_number(text), std::nullopt) << text;
  }
}

struct PortCase {
  const char* text;
  std::vector<std::pair<unsigned, unsigned>> ranges;  ///< empty = refused
};
TEST(ConfigQuantity, C12_PortsAreSinglesRangesAndLists) {
  const std::vector<PortCase> cases{{"4317", {{4317, 4317}}},
                                    {"4317-4318", {{4317, 4318}}},
                                    {"80, 4317-4318", {{80, 80}, {4317, 4318}}},
                                    {"1-65535", {{1, 65535}}},
                                    {"4318-4317", {}},
                                    {"0", {}},
                                    {"65536", {}},
                                    {"80,80", {}},
                                    {"80-90,85", {}},
                                    {"", {}},
                                    {",", {}},
                                    {"80,", {}},
                                    {"-", {}},
                                    {"80-", {}},
                                    {"http", {}},
                                    {"1.5e0", {}}};
  for (const PortCase& c : cases) {
    const Ports ports = parse_ports(c.text);
    std::vector<std::pair<unsigned, unsigned>> ranges;
    for (const PortRange& range : ports.ranges) {
      ranges.emplace_back(range.first, range.last);
    }
    EXPECT_EQ(ranges, c.ranges) << c.text;
    EXPECT_EQ(ports.problem.empty(), !c.ranges.empty()) << c.text;
  }
  EXPECT_EQ(parse_ports("4318-4317").problem, "the range '4318-4317' is reversed; write 4317-4318");
  EXPECT_EQ(parse_ports("80-90,85").problem, "'80-90,85' has port 85 twice");
}

TEST(ConfigQuantity, DistanceCountsSwapsOnce) {
  EXPECT_EQ(edit_distance("", ""), 0U);
  EXPECT_EQ(edit_distance("abc", ""), 3U);
  EXPECT_EQ(edit_distance("treshold", "threshold"), 1U);
  EXPECT_EQ(edit_distance("tagret", "target"), 1U);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3U);
  EXPECT_EQ(edit_distance("citimeout", "ci_timeout"), 1U);
}

TEST(ConfigQuantity, NetworksHaveOneForm) {
  EXPECT_EQ(parse_network("10.9.0.0/16").text, "10.9.0.0/16");
  EXPECT_EQ(parse_network("10.9.0.7").text, "10.9.0.7/32");
  EXPECT_EQ(parse_network("FD00:0:0::/8").text, "fd00::/8");
  EXPECT_EQ(parse_network("::1").text, "::1/128");
  EXPECT_TRUE(parse_network("10.9.1.0/16").host_bits);
  EXPECT_EQ(parse_network("10.9.1.0/16").text, "10.9.0.0/16");
  EXPECT_TRUE(parse_network("0.0.0.0/0").everything);
  EXPECT_TRUE(parse_network("::/0").everything);
  for (const char* text : {"", "/8", "10.0.0.0/33", "fd00::/129", "10.0.0/8", "300.0.0.0/8",
                           "10.0.0.0/", "10.0.0.0/-1", "10.0.0.0/8/8", "fd00:::/8", "localhost"}) {
    EXPECT_EQ(parse_network(text).text, "") << text;
  }
}

}  // namespace
}  // namespace headgate
