// SPDX-License-Identifier: Apache-2.0
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <future>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "agent/base/unique_fd.h"
#include "agent/web/control_socket.h"

namespace headgate {
namespace {

using nlohmann::json;
using testing::HasSubstr;

class ControlSocket : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "headgate_socket_XXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    directory_ = name;
    path_ = (directory_ / "run" / "headgate.sock").string();
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  ControlServer::Handlers handlers() {
    ControlServer::Handlers h;
    h.state = [] { return Result<std::string>(R"({"schema":1,"mode":"enforce"})"); };
    h.config = [] { return Result<std::string>("mode: enforce\n"); };
    h.off = [this]() -> Result<void> {
      off_ = true;
      return {};
    };
    h.on = [this]() -> Result<void> {
      off_ = false;
      return {};
    };
    h.reload = []() -> Result<void> { return fail("headgate.yaml:3: unknown key"); };
    return h;
  }

  std::unique_ptr<ControlServer> start() {
    auto server = ControlServer::start(path_, handlers());
    EXPECT_TRUE(server.has_value()) << (server ? "" : server.error().message);
    return server ? std::move(*server) : nullptr;
  }

  sockaddr_un address() const {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path_.copy(address.sun_path, sizeof(address.sun_path) - 1);
    return address;
  }

  UniqueFd connected() const {
    UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const sockaddr_un to = address();
    EXPECT_EQ(connect(fd.get(), reinterpret_cast<const sockaddr*>(&to), sizeof(to)), 0);
    const timeval timeout{10, 0};
    setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
    return fd;
  }

  json ask(const std::string& bytes) const {
    const UniqueFd fd = connected();
    EXPECT_EQ(send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
    shutdown(fd.get(), SHUT_WR);
    std::string text;
    char buffer[4096];
    for (ssize_t n = 0; (n = recv(fd.get(), buffer, sizeof(buffer), 0)) > 0;) {
      text.append(buffer, static_cast<std::size_t>(n));
    }
    return json::parse(text, nullptr, false);
  }

  std::filesystem::path directory_;
  std::string path_;
  std::atomic<bool> off_{false};
};

TEST_F(ControlSocket, EveryVerbIsAnswered) {
  const auto server = start();
  ASSERT_NE(server, nullptr);
  const ControlClient client(path_);
  EXPECT_EQ(json::parse(client.state().value())["mode"], "enforce");
  EXPECT_EQ(client.config().value(), "mode: enforce\n");
  EXPECT_TRUE(client.off().has_value());
  EXPECT_TRUE(off_);
  EXPECT_TRUE(client.on().has_value());
  EXPECT_FALSE(off_);
  EXPECT_EQ(client.reload().error().message, "headgate.yaml:3: unknown key");
}

TEST_F(ControlSocket, OnlyItsOwnerMayConnect) {
  const auto server = start();
  struct stat made {};
  ASSERT_EQ(stat(path_.c_str(), &made), 0);
  EXPECT_TRUE(S_ISSOCK(made.st_mode));
  EXPECT_EQ(made.st_mode & 07777, 0600U);
  ASSERT_EQ(stat(std::filesystem::path(path_).parent_path().c_str(), &made), 0);
  EXPECT_EQ(made.st_mode & 07777, 0755U);
}

TEST_F(ControlSocket, AnotherUserIsNotHeardEvenIfItCanConnect) {
  if (geteuid() != 0) {
    GTEST_SKIP() << "needs root to become somebody else";
  }
  const auto server = start();
  ASSERT_NE(server, nullptr);
  ASSERT_EQ(chmod(path_.c_str(), 0666), 0);
  ASSERT_EQ(chmod(directory_.c_str(), 0755), 0);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    constexpr uid_t kNobody = 65534;
    if (setuid(kNobody) != 0) _exit(2);
    const auto off = ControlClient(path_).off();
    _exit(!off && off.error().message == "only root may use this socket" ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_FALSE(off_);
}

TEST_F(ControlSocket, NoAgentIsAClearError) {
  const auto state = ControlClient(path_).state();
  ASSERT_FALSE(state.has_value());
  EXPECT_THAT(state.error().message,
              HasSubstr("no agent is listening on " + path_ + ": is headgate running?"));
}

TEST_F(ControlSocket, TheSocketOfADeadAgentIsReplaced) {
  std::filesystem::create_directories(std::filesystem::path(path_).parent_path());
  {
    const UniqueFd dead(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const sockaddr_un at = address();
    ASSERT_EQ(bind(dead.get(), reinterpret_cast<const sockaddr*>(&at), sizeof(at)), 0);
    ASSERT_EQ(listen(dead.get(), 1), 0);
  }
  ASSERT_TRUE(std::filesystem::exists(path_));
  EXPECT_THAT(ControlClient(path_).state().error().message, HasSubstr("is headgate running?"));
  const auto server = start();
  ASSERT_NE(server, nullptr);
  EXPECT_TRUE(ControlClient(path_).state().has_value());
}

TEST_F(ControlSocket, ALivingAgentKeepsItsSocket) {
  const auto first = start();
  ASSERT_NE(first, nullptr);
  const auto second = ControlServer::start(path_, handlers());
  ASSERT_FALSE(second.has_value());
  EXPECT_THAT(second.error().message, HasSubstr("another agent is listening"));
  EXPECT_TRUE(ControlClient(path_).state().has_value());
}

TEST_F(ControlSocket, AFileOfThatNameIsNeverRemoved) {
  std::filesystem::create_directories(std::filesystem::path(path_).parent_path());
  std::ofstream(path_) << "precious";
  const auto server = ControlServer::start(path_, handlers());
  ASSERT_FALSE(server.has_value());
  EXPECT_THAT(server.error().message, HasSubstr("no socket"));
  EXPECT_EQ(std::filesystem::file_size(path_), 8U);
}

TEST_F(ControlSocket, IsRemovedAtTheEndUnlessReplaced) {
  auto first = start();
  ASSERT_NE(first, nullptr);
  first.reset();
  EXPECT_FALSE(std::filesystem::exists(path_));

  auto second = start();
  std::filesystem::remove(path_);
  const auto third = start();
  second.reset();
  EXPECT_TRUE(std::filesystem::exists(path_));
  EXPECT_TRUE(ControlClient(path_).state().has_value());
}

TEST_F(ControlSocket, APathThatIsTooLongIsAClearError) {
  const auto server = ControlServer::start("/" + std::string(200, 'x'), handlers());
  ASSERT_FALSE(server.has_value());
  EXPECT_THAT(server.error().message, HasSubstr("allowed are 1 to 107"));
}

TEST_F(ControlSocket, GarbageIsAnsweredByAnError) {
  const auto server = start();
  ASSERT_NE(server, nullptr);
  EXPECT_EQ(ask("not json\n")["ok"], false);
  EXPECT_EQ(ask("[]\n")["ok"], false);
  EXPECT_EQ(ask("{\"verb\":7}\n")["ok"], false);
  EXPECT_THAT(ask("{\"verb\":\"of\"}\n")["error"], HasSubstr("unknown verb 'of'"));
  EXPECT_THAT(ask(std::string(5000, 'x') + "\n")["error"], HasSubstr("more than 4096 bytes"));
  EXPECT_TRUE(ControlClient(path_).state().has_value());
}

TEST_F(ControlSocket, ClientsThatSayNothingKeepNobodyWaitingAndAreDroppedAfterASecond) {
  const auto server = start();
  ASSERT_NE(server, nullptr);
  std::vector<UniqueFd> silent;
  for (int i = 0; i < 100; ++i) {
    silent.push_back(connected());
    if (i % 2 == 1) {
      ASSERT_EQ(send(silent.back().get(), "{", 1, MSG_NOSIGNAL), 1) << "half a request";
    }
  }
  const auto asked = std::chrono::steady_clock::now();
  const auto state = ControlClient(path_).state();
  EXPECT_TRUE(state.has_value()) << state.error().message;
  EXPECT_LT(std::chrono::steady_clock::now() - asked, std::chrono::milliseconds(500));
  char byte = 0;
  EXPECT_LE(recv(silent.back().get(), &byte, 1, 0), 0) << "closed by the server";
  EXPECT_LT(std::chrono::steady_clock::now() - asked, std::chrono::milliseconds(1500));
}

TEST_F(ControlSocket, AClientThatDoesNotReadItsAnswerKeepsNobodyWaiting) {
  ControlServer::Handlers large = handlers();
  large.config = [] { return Result<std::string>(std::string(8U << 20U, 'x')); };
  const auto server = ControlServer::start(path_, large);
  ASSERT_TRUE(server.has_value());
  const UniqueFd lazy = connected();
  ASSERT_EQ(send(lazy.get(), "{\"verb\":\"config\"}\n", 18, MSG_NOSIGNAL), 18);
  EXPECT_TRUE(ControlClient(path_).state().has_value());
  EXPECT_EQ(ControlClient(path_).config().value().size(), 8U << 20U);
}

TEST_F(ControlSocket, AnAgentThatHangsIsATimeOut) {
  std::filesystem::create_directories(std::filesystem::path(path_).parent_path());
  const UniqueFd hung(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const sockaddr_un at = address();
  ASSERT_EQ(bind(hung.get(), reinterpret_cast<const sockaddr*>(&at), sizeof(at)), 0);
  ASSERT_EQ(listen(hung.get(), 1), 0);
  const auto state = ControlClient(path_, std::chrono::milliseconds(100)).state();
  ASSERT_FALSE(state.has_value());
  EXPECT_THAT(state.error().message, HasSubstr("did not answer within 100 ms"));
}

TEST_F(ControlSocket, AnAgentThatAcceptsNobodyAnyMoreIsATimeOutToo) {
  // The queue of the listener is full: connect(2) itself would wait for ever.
  std::filesystem::create_directories(std::filesystem::path(path_).parent_path());
  const UniqueFd hung(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const sockaddr_un at = address();
  ASSERT_EQ(bind(hung.get(), reinterpret_cast<const sockaddr*>(&at), sizeof(at)), 0);
  ASSERT_EQ(listen(hung.get(), 0), 0);
  const UniqueFd first = connected();
  const auto state = ControlClient(path_, std::chrono::milliseconds(200)).state();
  ASSERT_FALSE(state.has_value());
  EXPECT_THAT(state.error().message, HasSubstr("did not answer within 200 ms"));
}

TEST_F(ControlSocket, AnAnswerThatComesByteByByteIsATimeOut) {
  std::filesystem::create_directories(std::filesystem::path(path_).parent_path());
  const UniqueFd listener(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const sockaddr_un at = address();
  ASSERT_EQ(bind(listener.get(), reinterpret_cast<const sockaddr*>(&at), sizeof(at)), 0);
  ASSERT_EQ(listen(listener.get(), 1), 0);
  std::thread slow([&] {
    const UniqueFd peer(accept(listener.get(), nullptr, nullptr));
    for (int i = 0; i < 40 && send(peer.get(), "x", 1, MSG_NOSIGNAL) == 1; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
  });
  const auto asked = std::chrono::steady_clock::now();
  EXPECT_FALSE(ControlClient(path_, std::chrono::milliseconds(300)).state().has_value());
  EXPECT_LT(std::chrono::steady_clock::now() - asked, std::chrono::milliseconds(1000));
  slow.join();
}

}  // namespace
}  // namespace headgate
