// SPDX-License-Identifier: Apache-2.0
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "agent/config/senders.h"

namespace headgate {
namespace {

using testing::HasSubstr;
using testing::Not;

std::string senders(Protocol protocol, RefuseForm form,
                    Duration deadline = std::chrono::seconds(8)) {
  std::string out;
  for (const SenderWarning& warning : sender_warnings(protocol, {form, deadline})) {
    out += to_string(warning) + "\n";
  }
  return out;
}

TEST(ConfigSenders, AResetLosesWithThoseThatGiveUpAtTheFirstError) {
  EXPECT_THAT(senders(Protocol::kHttp, RefuseForm::kReset), HasSubstr("Go SDK, OTLP/HTTP"));
  EXPECT_THAT(senders(Protocol::kHttp, RefuseForm::kReset), Not(HasSubstr("gRPC")));
  EXPECT_THAT(senders(Protocol::kGrpc, RefuseForm::kReset), HasSubstr("JS SDK, OTLP/gRPC"));
  EXPECT_THAT(senders(Protocol::kGrpc, RefuseForm::kReset), Not(HasSubstr("OTLP/HTTP")));
  EXPECT_THAT(senders(Protocol::kTcp, RefuseForm::kReset), HasSubstr("Go SDK, OTLP/HTTP"));
  EXPECT_THAT(senders(Protocol::kTcp, RefuseForm::kReset), HasSubstr("JS SDK, OTLP/gRPC"));
}

TEST(ConfigSenders, AutoIsWarnedOfAsTheResetThatItMayBe) {
  EXPECT_EQ(senders(Protocol::kHttp, RefuseForm::kAuto),
            senders(Protocol::kHttp, RefuseForm::kReset));
}

TEST(ConfigSenders, ADeferOfUpTo8SecondsLosesWithNobody) {
  for (const Protocol protocol : {Protocol::kTcp, Protocol::kHttp, Protocol::kGrpc}) {
    EXPECT_EQ(senders(protocol, RefuseForm::kDefer), "");
    EXPECT_THAT(senders(protocol, RefuseForm::kDefer, std::chrono::seconds(9)),
                HasSubstr("every SDK"));
  }
}

TEST(ConfigSenders, APythonSenderGivesUpWhateverRefusesIt) {
  EXPECT_THAT(senders(Protocol::kGrpc, RefuseForm::kReset), HasSubstr("Python SDK: can lose"));
  EXPECT_THAT(senders(Protocol::kHttp, RefuseForm::kReset), HasSubstr("Python SDK: can lose"));
  EXPECT_THAT(senders(Protocol::kHttp, RefuseForm::kHttp503), HasSubstr("Python SDK, OTLP/HTTP"));
  EXPECT_THAT(senders(Protocol::kHttp, RefuseForm::kHttp429), HasSubstr("Python SDK, OTLP/HTTP"));
}

TEST(ConfigSenders, Http503IsSafeForRemoteWriteAnd429IsNot) {
  EXPECT_THAT(senders(Protocol::kHttp, RefuseForm::kHttp503), Not(HasSubstr("Prometheus")));
  EXPECT_THAT(senders(Protocol::kHttp, RefuseForm::kHttp429), HasSubstr("Prometheus remote write"));
}

TEST(ConfigSenders, ResourceExhaustedIsPermanentForMost) {
  EXPECT_THAT(senders(Protocol::kGrpc, RefuseForm::kGrpcExhausted), HasSubstr("Collector"));
}

TEST(ConfigSenders, ADatagramIsGone) {
  EXPECT_EQ(senders(Protocol::kUdp, RefuseForm::kReset),
            "every UDP sender: loses each refused datagram: nothing sends it again; give the "
            "endpoint a floor, or leave it out\n");
}

TEST(ConfigSenders, EveryWarningHasARemedy) {
  for (const RefuseForm form :
       {RefuseForm::kReset, RefuseForm::kDrop, RefuseForm::kHttp429, RefuseForm::kGrpcExhausted}) {
    for (const Protocol protocol : {Protocol::kTcp, Protocol::kHttp, Protocol::kGrpc}) {
      for (const SenderWarning& warning : sender_warnings(protocol, {form, {}})) {
        EXPECT_FALSE(warning.remedy.empty()) << warning.sender;
      }
    }
  }
}

}  // namespace
}  // namespace headgate
