// SPDX-License-Identifier: Apache-2.0
#include "agent/targets/cri_messages.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "tests/support/wire_format.h"

namespace headgate {
namespace {

using test::wire::bytes;
using test::wire::entry;
using test::wire::number;
using testing::HasSubstr;
using testing::SizeIs;

const std::string kUid = "4a163a05-439d-484b-8e53-2968bc15824f";
const std::string kId(64, 'a');

/// As containerd 1.6 sends it, with a field that is not known here (runtime_handler).
std::string sandbox(const std::string& id, std::uint64_t attempt, bool ready) {
  return bytes(1, id) +
         bytes(2, bytes(1, "otc-0") + bytes(2, kUid) + bytes(3, "obs") +
                      (attempt == 0 ? "" : number(4, attempt))) +
         (ready ? "" : number(3, 1)) + number(4, 1'700'000'000'000'000'000) +
         entry(5, "app", "otel") + entry(5, "io.kubernetes.pod.name", "otc-0") +
         entry(6, "headgate.io/protect", "true") + bytes(7, "runc");
}

std::string container(const std::string& id, const std::string& sandbox_id, const std::string& name,
                      std::uint64_t state) {
  return bytes(1, id) + bytes(2, sandbox_id) + bytes(3, bytes(1, name) + number(2, 3)) +
         bytes(4, bytes(1, "image")) + bytes(5, "sha256:x") + (state == 0 ? "" : number(6, state)) +
         number(7, 1) + entry(8, "io.kubernetes.container.name", name);
}

TEST(CriMessages, PodsAndTheirContainers) {
  const auto sandboxes = parse_sandboxes(bytes(1, sandbox("s1", 0, true)));
  ASSERT_TRUE(sandboxes) << sandboxes.error().message;
  ASSERT_THAT(*sandboxes, SizeIs(1));
  EXPECT_EQ(sandboxes->front().id, "s1");
  EXPECT_TRUE(sandboxes->front().ready);
  const auto containers =
      parse_containers(bytes(1, container(kId, "s1", "otc", 1)) +
                       bytes(1, container(std::string(64, 'b'), "s1", "setup", 2)) +
                       bytes(1, container(std::string(64, 'c'), "other", "x", 1)));
  ASSERT_TRUE(containers) << containers.error().message;
  ASSERT_THAT(*containers, SizeIs(3));
  const PodList pods = pods_of(*sandboxes, *containers);
  const Pod* pod = pods.find(kUid);
  ASSERT_NE(pod, nullptr);
  EXPECT_EQ(pod->namespace_name, "obs");
  EXPECT_EQ(pod->name, "otc-0");
  EXPECT_EQ(pod->labels, (Labels{{"app", "otel"}}));
  EXPECT_FALSE(pod->opted_out);
  EXPECT_EQ(pod->phase, "Running");
  ASSERT_THAT(pod->containers, SizeIs(1));
  EXPECT_EQ(pod->containers[0].name, "otc");
  EXPECT_EQ(pod->containers[0].id.id, kId);
  EXPECT_TRUE(pod->containers[0].running);
}

TEST(CriMessages, OfAPodThatWasRestartedTheNewestSandboxCounts) {
  for (const bool newest_first : {true, false}) {
    const std::string old_one = bytes(1, sandbox("old", 0, false));
    const std::string new_one = bytes(1, sandbox("new", 1, true));
    const auto sandboxes = parse_sandboxes(newest_first ? new_one + old_one : old_one + new_one);
    ASSERT_TRUE(sandboxes);
    const auto containers = parse_containers(bytes(1, container(kId, "new", "otc", 1)));
    ASSERT_TRUE(containers);
    const PodList pods = pods_of(*sandboxes, *containers);
    const Pod* pod = pods.find(kUid);
    ASSERT_NE(pod, nullptr);
    EXPECT_EQ(pod->phase, "Running");
    EXPECT_THAT(pod->containers, SizeIs(1));
  }
}

TEST(CriMessages, TheAnnotationOptsOut) {
  CriSandbox one;
  one.uid = kUid;
  one.name = "a";
  one.annotations = {{"headgate.io/protect", "false"}};
  EXPECT_TRUE(pods_of({one}, {}).find(kUid)->opted_out);
}

TEST(CriMessages, AnEmptyListIsAnEmptyMessage) {
  EXPECT_THAT(parse_sandboxes("").value(), SizeIs(0));
  EXPECT_THAT(parse_containers("").value(), SizeIs(0));
}

TEST(CriMessages, WhatIsCutShortIsAnErrorAtEveryPlace) {
  const std::string whole = bytes(1, sandbox("s1", 2, false));
  for (std::size_t size = 1; size < whole.size(); ++size) {
    EXPECT_FALSE(parse_sandboxes(whole.substr(0, size))) << size;
  }
  EXPECT_THAT(parse_containers("\x0a").error().message, HasSubstr("list of containers"));
}

TEST(CriMessages, AGrpcFrameIsReadBack) {
  EXPECT_EQ(grpc_frame("ab"), std::string("\0\0\0\0\2ab", 7));
  EXPECT_EQ(*parse_grpc_frame(grpc_frame("ab")), "ab");
  EXPECT_EQ(*parse_grpc_frame(grpc_frame(std::string(300, 'x'))), std::string(300, 'x'));
  EXPECT_FALSE(parse_grpc_frame(""));
  EXPECT_FALSE(parse_grpc_frame(std::string("\1\0\0\0\2ab", 7)));  // compressed
  EXPECT_FALSE(parse_grpc_frame(std::string("\0\0\0\0\3ab", 7)));
  EXPECT_FALSE(parse_grpc_frame(grpc_frame("a") + grpc_frame("b")));
}

RC_GTEST_PROP(CriMessagesProperty, NoBytesAreTooOdd, ()) {
  std::string text = bytes(1, sandbox("s1", 1, true)) + bytes(1, container(kId, "s1", "otc", 1));
  const auto changes = *rc::gen::inRange(0, 8);
  for (int i = 0; i < changes; ++i) {
    text[*rc::gen::inRange<std::size_t>(0, text.size())] = *rc::gen::arbitrary<char>();
  }
  const auto sandboxes = parse_sandboxes(text);
  const auto containers = parse_containers(text);
  if (sandboxes && containers) {
    (void)pods_of(*sandboxes, *containers);
  }
  (void)parse_grpc_frame(text);
}

}  // namespace
}  // namespace headgate
