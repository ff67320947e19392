// SPDX-License-Identifier: Apache-2.0
#include "agent/targets/api_server.h"

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <thread>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "tests/support/api_options.h"
#include "tests/support/http_script.h"

namespace headgate {
namespace {

using test::HttpExchange;
using test::HttpScript;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr auto kLongest = std::chrono::seconds(20);

/// Waits for what another thread brings about.
template <class Condition>
testing::AssertionResult eventually(Condition condition) {
  const auto end = std::chrono::steady_clock::now() + kLongest;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) {
      return testing::AssertionFailure() << "not within " << kLongest.count() << " s";
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return testing::AssertionSuccess();
}

std::string pod(const std::string& name, int version) {
  return fmt::format(
      R"({{"kind":"Pod","metadata":{{"name":"{0}","namespace":"obs","uid":"uid-{0}",)"
      R"("resourceVersion":"{1}"}},"spec":{{"nodeName":"n1"}},"status":{{"phase":"Running"}}}})",
      name, version);
}

std::string list_of(int version, const std::vector<std::string>& names) {
  std::vector<std::string> items;
  for (const std::string& name : names) {
    items.push_back(pod(name, version));
  }
  return fmt::format(R"({{"kind":"PodList","metadata":{{"resourceVersion":"{}"}},"items":[{}]}})",
                     version, fmt::join(items, ","));
}

std::string event(const std::string& type, const std::string& object) {
  return fmt::format("{{\"type\":\"{}\",\"object\":{}}}\n", type, object);
}

std::string bookmark(int version) {
  return event("BOOKMARK",
               fmt::format(R"({{"kind":"Pod","metadata":{{"resourceVersion":"{}"}}}})", version));
}

const std::string kExpired = event(
    "ERROR",
    R"({"kind":"Status","message":"too old resource version","reason":"Expired","code":410})");

std::unique_ptr<PodSource> follow(const HttpScript& server) {
  auto started = ApiPods::start(test::quick_api_options(server.url()));
  EXPECT_TRUE(started);
  return std::move(*started);
}

PodSourceStatus status(const PodSource& source) {
  return source.status(std::chrono::steady_clock::now());
}

std::vector<std::string> names(const PodSource& source) {
  std::vector<std::string> out;
  if (const PodsPtr pods = source.pods()) {
    for (const auto& [uid, one] : pods->by_uid()) {
      out.push_back(one->name);
    }
  }
  return out;
}

using Names = std::vector<std::string>;

bool is_watch(const HttpExchange& exchange) { return exchange.asks_for("watch=true"); }

using Script = std::function<void(const HttpExchange&)>;

void begins_and_stays(const HttpExchange& exchange) {
  exchange.begin_stream();
  exchange.wait_for_end();
}

/// A server with these pods at version 5; what it does with a watch.
Script lists(const Names& names, Script watch = begins_and_stays) {
  return [names, watch = std::move(watch)](const HttpExchange& exchange) {
    if (is_watch(exchange)) {
      watch(exchange);
    } else {
      exchange.answer(200, list_of(5, names));
    }
  };
}

TEST(ApiServer, ListsFromTheCacheAndWatchesFromThere) {
  HttpScript server(lists({"a", "b"}));
  const auto pods = follow(server);
  ASSERT_TRUE(eventually([&] { return server.heads().size() >= 2; }));
  EXPECT_EQ(names(*pods), (Names{"a", "b"}));
  EXPECT_THAT(server.heads()[0],
              HasSubstr("GET /api/v1/pods?fieldSelector=spec.nodeName%3Dn1&resourceVersion=0 "));
  EXPECT_THAT(server.heads()[0], Not(HasSubstr("Authorization")));
  EXPECT_THAT(server.heads()[1],
              AllOf(HasSubstr("&watch=true&allowWatchBookmarks=true&resourceVersion=5"),
                    HasSubstr("&timeoutSeconds=450 ")));
  EXPECT_TRUE(status(*pods).synced);
  EXPECT_EQ(status(*pods).problem, "");
  EXPECT_EQ(status(*pods).pods, 2U);
  EXPECT_EQ(status(*pods).lists, 1U);
}

TEST(ApiServer, EventsThatComeByteByByteChangeTheList) {
  HttpScript server(lists({"a", "b"}, [](const HttpExchange& exchange) {
    exchange.begin_stream();
    for (const char c : event("ADDED", pod("c", 6)) + event("DELETED", pod("a", 7)) +
                            event("MODIFIED", pod("b", 8))) {
      exchange.piece(std::string(1, c));
    }
    exchange.wait_for_end();
  }));
  const auto pods = follow(server);
  ASSERT_TRUE(eventually([&] { return status(*pods).events == 3; }));
  ASSERT_TRUE(eventually([&] { return names(*pods) == Names{"b", "c"}; }));
  EXPECT_GE(pods->generation(), 3U);
  EXPECT_TRUE(status(*pods).heard_age_s.has_value());
}

TEST(ApiServer, ABookmarkMovesTheVersionWithoutAList) {
  HttpScript server(lists({"a"}, [](const HttpExchange& exchange) {
    exchange.begin_stream();
    if (exchange.number() == 1) {
      exchange.piece(bookmark(50));
      exchange.end_stream();  // as a server does when timeoutSeconds have passed
      return;
    }
    exchange.wait_for_end();
  }));
  const auto pods = follow(server);
  ASSERT_TRUE(eventually([&] { return server.heads().size() >= 3; }));
  EXPECT_THAT(server.heads()[2], HasSubstr("&resourceVersion=50&"));
  EXPECT_EQ(status(*pods).lists, 1U);
  EXPECT_EQ(status(*pods).bookmarks, 1U);
  EXPECT_EQ(status(*pods).errors, 0U);
}

TEST(ApiServer, AVersionThatIsTooOldIsListedAgainNotOlderThanBefore) {
  for (const bool in_stream : {true, false}) {
    HttpScript server([in_stream](const HttpExchange& exchange) {
      if (!is_watch(exchange)) {
        exchange.answer(200, exchange.number() == 0 ? list_of(5, {"a"}) : list_of(90, {"z"}));
        return;
      }
      if (exchange.number() == 1) {  // moves on from the list, then breaks
        exchange.begin_stream();
        exchange.piece(bookmark(7));
        exchange.end_stream();
      } else if (exchange.number() == 2 && !in_stream) {
        exchange.answer(410, R"({"kind":"Status","message":"too old","code":410})");
      } else if (exchange.number() == 2) {
        exchange.begin_stream();
        exchange.piece(kExpired);
        exchange.end_stream();
      } else {
        exchange.begin_stream();
        exchange.wait_for_end();
      }
    });
    const auto pods = follow(server);
    ASSERT_TRUE(eventually([&] { return server.heads().size() >= 5; }));
    EXPECT_EQ(names(*pods), Names{"z"});
    EXPECT_THAT(server.heads()[3],
                AllOf(HasSubstr("&resourceVersion=7 "), Not(HasSubstr("watch"))));
    EXPECT_THAT(server.heads()[4], HasSubstr("&resourceVersion=90&"));
    EXPECT_EQ(status(*pods).expired, 1U);
    EXPECT_EQ(status(*pods).errors, 0U);
  }
}

TEST(ApiServer, AVersionThatIsNotToBeHadIsGivenUp) {
  HttpScript server([](const HttpExchange& exchange) {
    if (is_watch(exchange)) {
      exchange.begin_stream();
      exchange.piece(kExpired);
      exchange.end_stream();
    } else if (exchange.asks_for("resourceVersion=5 ")) {  // restored from an older copy
      exchange.answer(504, R"({"kind":"Status","message":"Too large resource version: 5"})");
    } else {
      exchange.answer(200, list_of(5, {"a"}));
    }
  });
  const auto pods = follow(server);
  ASSERT_TRUE(eventually([&] { return status(*pods).lists >= 3; }));
  EXPECT_EQ(names(*pods), Names{"a"});
  EXPECT_GE(status(*pods).errors, 1U);  // each round costs a wait
}

TEST(ApiServer, AStreamThatBreaksGoesOnWhereItWas) {
  HttpScript server(lists({"a"}, [](const HttpExchange& exchange) {
    exchange.begin_stream();
    if (exchange.number() == 1) {
      const std::string next = event("ADDED", pod("c", 7));
      exchange.piece(event("ADDED", pod("b", 6)));
      exchange.piece(next.substr(0, next.size() / 2));
      return;  // neither the line nor the last piece ends
    }
    exchange.piece(event("ADDED", pod("c", 7)));
    exchange.wait_for_end();
  }));
  const auto pods = follow(server);
  ASSERT_TRUE(eventually([&] { return names(*pods) == Names{"a", "b", "c"}; }));
  EXPECT_THAT(server.heads().at(2), HasSubstr("&resourceVersion=6&"));
  EXPECT_EQ(status(*pods).lists, 1U);
  EXPECT_EQ(status(*pods).errors, 1U);
  EXPECT_EQ(status(*pods).problem, "");
}

TEST(ApiServer, AStreamThatIsSilentIsBegunAnew) {
  HttpScript server(lists({"a"}));
  ApiServerOptions quick = test::quick_api_options(server.url());
  quick.watch_silence = std::chrono::milliseconds(30);
  const auto pods = std::move(*ApiPods::start(quick));
  ASSERT_TRUE(eventually([&] { return status(*pods).watches >= 3; }));
  EXPECT_EQ(status(*pods).lists, 1U);
  EXPECT_EQ(names(*pods), Names{"a"});
}

TEST(ApiServer, WhatIsNoEventMakesANewList) {
  HttpScript server(lists({"a"}, [](const HttpExchange& exchange) {
    exchange.begin_stream();
    if (exchange.number() == 1) {
      exchange.piece("<html>a proxy speaks</html>\n");
      exchange.end_stream();
      return;
    }
    exchange.wait_for_end();
  }));
  const auto pods = follow(server);
  ASSERT_TRUE(eventually([&] { return status(*pods).lists == 2; }));
  EXPECT_EQ(names(*pods), Names{"a"});
}

TEST(ApiServer, RefusalsSayWhatToDoAndEndWhenTheyEnd) {
  std::atomic<int> answer{403};
  HttpScript server([&](const HttpExchange& exchange) {
    if (answer != 200) {
      exchange.answer(answer, R"({"kind":"Status","message":"pods is forbidden: User \"x\""})");
    } else if (!is_watch(exchange)) {
      exchange.answer(200, list_of(5, {"a"}));
    } else {
      exchange.begin_stream();
      exchange.wait_for_end();
    }
  });
  const auto pods = follow(server);
  ASSERT_TRUE(eventually([&] { return status(*pods).errors >= 2; }));
  EXPECT_THAT(status(*pods).problem,
              AllOf(HasSubstr("does not let us see the pods of node n1 (403): pods is forbidden"),
                    HasSubstr("get, list and watch of pods"), HasSubstr("ClusterRole")));
  EXPECT_EQ(pods->pods(), nullptr);
  EXPECT_FALSE(status(*pods).synced);
  answer = 401;
  ASSERT_TRUE(eventually([&] {
    return status(*pods).problem.find("wants a token, and there is none (401)") !=
           std::string::npos;
  }));
  answer = 200;
  ASSERT_TRUE(eventually([&] { return status(*pods).synced; }));
  EXPECT_EQ(names(*pods), Names{"a"});
}

TEST(ApiServer, WhatWasKnownStaysWhileTheServerIsAway) {
  auto server = std::make_unique<HttpScript>(lists({"a"}));
  const auto pods = follow(*server);
  ASSERT_TRUE(eventually([&] { return server->heads().size() >= 2; }));
  server.reset();
  ASSERT_TRUE(eventually([&] { return status(*pods).errors >= 2; }));
  EXPECT_EQ(names(*pods), Names{"a"});
  EXPECT_THAT(status(*pods).problem, HasSubstr("http://127.0.0.1:"));
  EXPECT_TRUE(status(*pods).synced);
}

TEST(ApiServer, TheTokenIsReadAgainForEachRequest) {
  const auto path = std::filesystem::temp_directory_path() /
                    fmt::format("headgate-token-{}", static_cast<int>(::getpid()));
  std::ofstream(path) << "first\n";
  HttpScript server([&](const HttpExchange& exchange) {
    if (!is_watch(exchange)) {
      std::ofstream(path) << "second\n";
      exchange.answer(200, list_of(5, {"a"}));
      return;
    }
    exchange.begin_stream();
    exchange.piece(bookmark(6));
    exchange.end_stream();
  });
  ApiServerOptions with_token = test::quick_api_options(server.url());
  with_token.token_file = path;
  {
    const auto pods = std::move(*ApiPods::start(with_token));
    ASSERT_TRUE(eventually([&] { return server.heads().size() >= 3; }));
  }
  EXPECT_THAT(server.heads()[0], HasSubstr("\r\nAuthorization: Bearer first\r\n"));
  EXPECT_THAT(server.heads()[2], HasSubstr("\r\nAuthorization: Bearer second\r\n"));
  std::filesystem::remove(path);
}

TEST(ApiServer, EndsAtOnceInTheMiddleOfAWatch) {
  HttpScript server(lists({"a"}));
  auto pods = follow(server);
  ASSERT_TRUE(eventually([&] { return server.heads().size() >= 2; }));
  pods.reset();  // would last for the watch's 450 s
  const auto once = ApiPods::list_once(test::quick_api_options(server.url()));
  ASSERT_TRUE(once) << once.error().message;
  EXPECT_EQ((*once)->by_uid().size(), 1U);
}

// ---------------------------------------------------------------- TLS

/// openssl(1) as a server with a certificate for 127.0.0.1 of an authority of its own.
class TlsServer {
 public:
  TlsServer() {
    std::filesystem::create_directories(dir_);
    const std::string make = fmt::format(
        "cd {} && openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days "
        "2 "
        "-subj /CN=authority -keyout ca.key -out ca.crt && "
        "openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN=server "
        "-keyout server.key -out server.csr && "
        "printf 'subjectAltName=IP:127.0.0.1' > san && "
        "openssl x509 -req -in server.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 2 "
        "-extfile san -out server.crt && "
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 "
        "-subj /CN=stranger -keyout other.key -out other.crt",
        dir_.string());
    made_ = std::system(("(" + make + ") > /dev/null 2>&1").c_str()) == 0;  // NOLINT
  }
  ~TlsServer() { std::filesystem::remove_all(dir_); }
  TlsServer(const TlsServer&) = delete;
  TlsServer& operator=(const TlsServer&) = delete;
  TlsServer(TlsServer&&) = delete;
  TlsServer& operator=(TlsServer&&) = delete;

  [[nodiscard]] bool made() const { return made_; }
  [[nodiscard]] std::string file(const char* name) const { return (dir_ / name).string(); }

  /// Asks for a list at `host`, trusting `ca`, while the server answers one connection.
  [[nodiscard]] Result<PodsPtr> list(const std::string& host, const std::string& ca) const {
    std::ofstream(dir_ / "answer") << fmt::format("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{}",
                                                  list_of(5, {"a"}).size(), list_of(5, {"a"}));
    // -rev and -www answer by themselves; as a filter it sends its standard input.
    const std::string serve = fmt::format(
        "cd {} && (cat answer; sleep 20) | openssl s_server -accept 127.0.0.1:0 "
        "-cert server.crt -key server.key -naccept 1 > log 2>&1",
        dir_.string());
    std::filesystem::remove(dir_ / "log");
    const pid_t child = ::fork();
    if (child == 0) {
      ::setpgid(0, 0);
      ::execl("/bin/sh", "sh", "-c", serve.c_str(), nullptr);
      ::_exit(127);
    }
    ::setpgid(child, child);
    std::string port;
    EXPECT_TRUE(eventually([&] {
      std::ifstream log(dir_ / "log");
      const std::string text{std::istreambuf_iterator<char>(log), {}};
      const std::size_t at = text.find("ACCEPT 127.0.0.1:");
      if (at == std::string::npos || text.find('\n', at) == std::string::npos) {
        return false;
      }
      port = text.substr(at + 17, text.find('\n', at) - at - 17);
      return true;
    }));
    ApiServerOptions secure = test::quick_api_options(fmt::format("https://{}:{}", host, port));
    secure.ca_file = ca;
    secure.list_timeout = std::chrono::seconds(15);
    auto result = ApiPods::list_once(secure);
    ::kill(-child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    return result;
  }

 private:
  std::filesystem::path dir_ = std::filesystem::temp_directory_path() /
                               fmt::format("headgate-tls-{}", static_cast<int>(::getpid()));
  bool made_ = false;
};

TEST(ApiServer, TheServersCertificateMustBeOfTheGivenAuthorityAndForItsAddress) {
  const TlsServer server;
  ASSERT_TRUE(server.made()) << "openssl(1) could not make certificates";
  const auto good = server.list("127.0.0.1", server.file("ca.crt"));
  ASSERT_TRUE(good) << good.error().message;
  EXPECT_EQ((*good)->by_uid().size(), 1U);
  const auto stranger = server.list("127.0.0.1", server.file("other.crt"));
  ASSERT_FALSE(stranger);
  EXPECT_THAT(stranger.error().message, HasSubstr("certificate"));
  const auto unknown = server.list("127.0.0.1", "");
  ASSERT_FALSE(unknown);
  EXPECT_THAT(unknown.error().message, HasSubstr("certificate"));
  const auto other_name = server.list("localhost", server.file("ca.crt"));
  ASSERT_FALSE(other_name);
  EXPECT_THAT(other_name.error().message, HasSubstr("localhost"));
}

// ---------------------------------------------------------------- pure parts

TEST(ApiServerBackoff, DoublesUpToTheMostAndHalfOfItIsChance) {
  ApiServerOptions o;
  const auto at = [&](unsigned failures, double chance) {
    return seconds(backoff(o, failures, chance));
  };
  EXPECT_DOUBLE_EQ(at(1, 0), 0.4);
  EXPECT_DOUBLE_EQ(at(1, 1), 0.8);
  EXPECT_DOUBLE_EQ(at(2, 1), 1.6);
  EXPECT_DOUBLE_EQ(at(3, 1), 3.2);
  EXPECT_DOUBLE_EQ(at(10, 1), 30);
  EXPECT_DOUBLE_EQ(at(10, 0), 15);
  EXPECT_DOUBLE_EQ(at(4'000'000'000U, 1), 30);
}

struct FindApiServer : testing::Test {
  std::map<std::string, std::string> variables{{"KUBERNETES_SERVICE_HOST", "10.96.0.1"},
                                               {"KUBERNETES_SERVICE_PORT", "443"},
                                               {"NODE_NAME", "node-1"}};
  std::filesystem::path dir = std::filesystem::temp_directory_path() /
                              fmt::format("headgate-account-{}", static_cast<int>(::getpid()));
  FindApiServer() {
    std::filesystem::create_directories(dir);
    std::ofstream(dir / "token") << "t";
    std::ofstream(dir / "ca.crt") << "c";
  }
  ~FindApiServer() override { std::filesystem::remove_all(dir); }
  FindApiServer(const FindApiServer&) = delete;
  FindApiServer& operator=(const FindApiServer&) = delete;
  FindApiServer(FindApiServer&&) = delete;
  FindApiServer& operator=(FindApiServer&&) = delete;

  [[nodiscard]] Result<ApiServerOptions> find(const std::string& url = "auto",
                                              const std::string& node = "") const {
    return find_api_server(url, node, dir.string(), [this](const char* name) -> const char* {
      const auto it = variables.find(name);
      return it != variables.end() ? it->second.c_str() : nullptr;
    });
  }
};

TEST_F(FindApiServer, InAPod) {
  const auto found = find();
  ASSERT_TRUE(found) << found.error().message;
  EXPECT_EQ(found->url, "https://10.96.0.1:443");
  EXPECT_EQ(found->node_name, "node-1");
  EXPECT_EQ(found->token_file, dir.string() + "/token");
  EXPECT_EQ(found->ca_file, dir.string() + "/ca.crt");
  variables["KUBERNETES_SERVICE_HOST"] = "fd00::1";
  EXPECT_EQ(find()->url, "https://[fd00::1]:443");
  EXPECT_EQ(find("auto", "node-2")->node_name, "node-2");
}

TEST_F(FindApiServer, ByItsUrl) {
  EXPECT_EQ(find("https://api.example:6443/")->url, "https://api.example:6443");
  EXPECT_THAT(find("api.example").error().message,
              HasSubstr("--kubernetes.api-server: 'api.example' is no URL"));
}

TEST_F(FindApiServer, SaysWhatIsMissing) {
  std::filesystem::remove(dir / "token");
  EXPECT_THAT(find().error().message, HasSubstr("automountServiceAccountToken"));
  variables.erase("NODE_NAME");
  EXPECT_THAT(find().error().message, HasSubstr("NODE_NAME"));
  variables.erase("KUBERNETES_SERVICE_HOST");
  EXPECT_THAT(find().error().message, HasSubstr("KUBERNETES_SERVICE_HOST is not set"));
}

}  // namespace
}  // namespace headgate
