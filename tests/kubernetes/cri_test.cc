// SPDX-License-Identifier: Apache-2.0
// A real container runtime, asked over its socket as the agent does where there is no API server.
#include "agent/targets/cri.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "agent/targets/cri_messages.h"
#include "agent/targets/locate_pods.h"
#include "tests/support/wire_format.h"

namespace headgate {
namespace {

using test::wire::bytes;
using test::wire::entry;
using test::wire::number;
using testing::HasSubstr;
using testing::SizeIs;

const std::string kUid = "4a163a05-439d-484b-8e53-2968bc15824f";

std::pair<int, std::string> run(const std::string& command) {
  std::string out;
  FILE* pipe = ::popen((command + " 2>&1").c_str(), "r");
  std::array<char, 4096> block{};
  while (pipe != nullptr && std::fgets(block.data(), block.size(), pipe) != nullptr) {
    out += block.data();
  }
  return {pipe != nullptr ? ::pclose(pipe) : -1, out};
}

/// The first text of an answer, which is the id in all that are asked here.
std::string first_text(const std::string& message) {
  return message.size() > 2 ? message.substr(2, static_cast<unsigned char>(message[1])) : "";
}

class RealRuntime : public testing::Test {
 protected:
  void SetUp() override {
    if (::geteuid() != 0 || run("command -v containerd runc ctr").first != 0) {
      GTEST_SKIP() << "needs root, and the packages containerd and runc";
    }
    std::filesystem::create_directories(directory_);
    std::ofstream(directory_ / "config.toml") << fmt::format(
        "version = 2\nroot = \"{0}/root\"\nstate = \"{0}/state\"\n"
        "[grpc]\n  address = \"{0}/sock\"\n"
        "[plugins.\"io.containerd.grpc.v1.cri\"]\n  sandbox_image = \"localhost/pause:1\"\n"
        "  restrict_oom_score_adj = true\n  disable_apparmor = true\n",
        directory_.string());
    pid_ = ::fork();
    if (pid_ == 0) {
      const std::string command =
          fmt::format("exec containerd -c {0}/config.toml > {0}/log 2>&1", directory_.string());
      ::execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
      ::_exit(127);
    }
    options_.socket = (directory_ / "sock").string();
    options_.wanted = [] { return true; };
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (!CriPods::list_once(options_)) {
      ASSERT_LT(std::chrono::steady_clock::now(), end) << run("tail -5 " + file("log")).second;
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    const auto [made, said] =
        run(fmt::format("{0}/image {1}/pause.tar localhost/pause:1 /pause {2}:/pause && ctr -a "
                        "{1}/sock -n k8s.io image import "
                        "{1}/pause.tar",
                        HEADGATE_KUBERNETES_DIR, directory_.string(), HEADGATE_PAUSE));
    ASSERT_EQ(made, 0) << said;
  }
  void TearDown() override {
    if (pid_ <= 0) {
      return;
    }
    for (const std::string& sandbox : sandboxes_) {
      (void)call("StopPodSandbox", bytes(1, sandbox));
      (void)call("RemovePodSandbox", bytes(1, sandbox));
    }
    ::kill(pid_, SIGTERM);
    ::waitpid(pid_, nullptr, 0);
    (void)run(fmt::format("find /sys/fs/cgroup -depth -type d -path '*{}*' -exec rmdir {{}} \\;",
                          parent_));
    std::filesystem::remove_all(directory_);
  }

  [[nodiscard]] std::string file(const char* name) const { return (directory_ / name).string(); }

  /// The message that answers a call, over curl(1): another client than the one under test.
  std::string call(const std::string& method, const std::string& message) const {
    std::ofstream(directory_ / "request", std::ios::binary) << grpc_frame(message);
    const auto [status, said] =
        run(fmt::format("curl -s --http2-prior-knowledge --unix-socket {0}/sock -H 'content-type: "
                        "application/grpc' "
                        "-H 'te: trailers' --data-binary @{0}/request -D {0}/headers -o {0}/answer "
                        "http://localhost/runtime.v1.RuntimeService/{1}",
                        directory_.string(), method));
    std::ifstream answer(directory_ / "answer", std::ios::binary);
    const std::string body{std::istreambuf_iterator<char>(answer), {}};
    std::ifstream headers(directory_ / "headers");
    const std::string head{std::istreambuf_iterator<char>(headers), {}};
    EXPECT_THAT(head, HasSubstr("grpc-status: 0")) << method << said;
    const auto framed = parse_grpc_frame(body);
    return framed ? std::string(*framed) : std::string();
  }

  std::string run_pod() {
    constexpr std::uint64_t kNode = 2;
    const std::string config = bytes(1, bytes(1, "otc-0") + bytes(2, kUid) + bytes(3, "obs")) +
                               bytes(3, directory_.string()) + entry(6, "app", "otel") +
                               entry(6, "io.kubernetes.pod.name", "otc-0") +
                               entry(7, "headgate.io/protect", "true") +
                               bytes(8, bytes(1, parent_ + "/kubepods/burstable/pod" + kUid) +
                                            bytes(2, bytes(1, number(1, kNode))));
    const std::string sandbox = first_text(call("RunPodSandbox", bytes(1, config)));
    sandboxes_.push_back(sandbox);
    const std::string container = first_text(
        call("CreateContainer",
             bytes(1, sandbox) +
                 bytes(2, bytes(1, bytes(1, "otc")) + bytes(2, bytes(1, "localhost/pause:1")) +
                              bytes(15, bytes(2, bytes(3, number(1, kNode))))) +
                 bytes(3, config)));
    (void)call("StartContainer", bytes(1, container));
    return container;
  }

  std::filesystem::path directory_ = std::filesystem::temp_directory_path() /
                                     fmt::format("headgate-cri-{}", static_cast<int>(::getpid()));
  std::string parent_ = fmt::format("/headgate-lab-{}-cri", static_cast<int>(::getpid()));
  pid_t pid_ = -1;
  CriOptions options_;
  std::vector<std::string> sandboxes_;
};

TEST_F(RealRuntime, ItsPodsAreSeenAndFoundInTheCgroupTree) {
  auto none = CriPods::list_once(options_);
  ASSERT_TRUE(none) << none.error().message;
  EXPECT_THAT((*none)->by_uid(), SizeIs(0));

  const std::string container = run_pod();
  const auto listed = CriPods::list_once(options_);
  ASSERT_TRUE(listed) << listed.error().message;
  const Pod* pod = (*listed)->find(kUid);
  ASSERT_NE(pod, nullptr);
  EXPECT_EQ(pod->namespace_name, "obs");
  EXPECT_EQ(pod->name, "otc-0");
  EXPECT_EQ(pod->labels, (Labels{{"app", "otel"}}));
  EXPECT_FALSE(pod->opted_out);
  ASSERT_THAT(pod->containers, SizeIs(1));
  EXPECT_EQ(pod->containers[0].name, "otc");
  EXPECT_EQ(pod->containers[0].id.id, container);

  const auto hierarchy = Hierarchy::detect("/sys/fs/cgroup", "/proc");
  ASSERT_TRUE(hierarchy) << hierarchy.error().message;
  const Locator locator(*hierarchy, "/proc");
  PodLocator pods(locator);
  const MatchPods match{.namespaces = {"obs"}, .selector = "app=otel"};
  const PodsFound found = pods.find({match, {}, listed->get(), "", {}, 8}, Instant{});
  ASSERT_THAT(found.fresh, SizeIs(1)) << found.missing;
  EXPECT_EQ(found.fresh[0].cgroup_path,
            parent_ + "/kubepods/burstable/pod" + kUid + "/" + container);
  EXPECT_THAT(found.fresh[0].namespaces, SizeIs(1));
}

TEST_F(RealRuntime, ChangesAreFollowed) {
  CriOptions quick = options_;
  quick.period = std::chrono::milliseconds(100);
  const auto source = std::move(*CriPods::start(quick));
  const auto eventually = [](const auto& condition) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (!condition() && std::chrono::steady_clock::now() < end) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    return condition();
  };
  ASSERT_TRUE(eventually([&] { return source->pods() != nullptr; }));
  (void)run_pod();
  ASSERT_TRUE(eventually([&] {
    const Pod* pod = source->pods()->find(kUid);
    return pod != nullptr && pod->containers.size() == 1;
  }));
  const std::uint64_t before = source->generation();
  (void)call("StopPodSandbox", bytes(1, sandboxes_.front()));
  ASSERT_TRUE(eventually([&] {
    const Pod* pod = source->pods()->find(kUid);
    return pod == nullptr || pod->containers.empty();
  }));
  EXPECT_GT(source->generation(), before);
}

}  // namespace
}  // namespace headgate
