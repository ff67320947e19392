// SPDX-License-Identifier: Apache-2.0
// A real kube-apiserver, asked with a token that RBAC gives nothing to at first.
#include "agent/targets/api_server.h"

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
#include <nlohmann/json.hpp>

#include "agent/targets/kube_events.h"

namespace headgate {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

const std::string kScripts = std::string(HEADGATE_SOURCE_DIR) + "/tests/kubernetes/";
const std::string kId(64, 'a');

/// What a command writes; its exit status.
std::pair<int, std::string> run(const std::string& command) {
  std::string out;
  FILE* pipe = ::popen(command.c_str(), "r");
  std::array<char, 4096> block{};
  while (pipe != nullptr && std::fgets(block.data(), block.size(), pipe) != nullptr) {
    out += block.data();
  }
  const int status = pipe != nullptr ? ::pclose(pipe) : -1;
  while (!out.empty() && out.back() == '\n') {
    out.pop_back();
  }
  return {status, out};
}

/// Path of the newest binary that tests/kubernetes/build has made; "" = none.
std::string built_binary() {
  const char* cache = std::getenv("HEADGATE_KUBERNETES");
  const char* home = std::getenv("HOME");
  const std::filesystem::path directory =
      cache != nullptr
          ? std::filesystem::path(cache)
          : std::filesystem::path(home != nullptr ? home : "/root") / ".cache/headgate/kubernetes";
  std::string found;
  std::filesystem::file_time_type newest{};
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator(directory, none)) {
    const std::string name = entry.path().filename();
    if (name.starts_with("server-") && !name.ends_with(".new") &&
        (found.empty() || entry.last_write_time() > newest)) {
      found = entry.path();
      newest = entry.last_write_time();
    }
  }
  return found;
}

class RealApiServer : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    binary_ = built_binary();
    if (binary_.empty()) {
      return;
    }
    directory_ = (std::filesystem::temp_directory_path() /
                  fmt::format("headgate-kubernetes-{}", static_cast<int>(::getpid())))
                     .string();
    const auto [status, url] =
        run(fmt::format("{}api-server start {} {}", kScripts, binary_, directory_));
    ASSERT_EQ(status, 0);
    url_ = url;
  }
  static void TearDownTestSuite() {
    if (!directory_.empty()) {
      (void)run(fmt::format("{}api-server stop {} {}", kScripts, binary_, directory_));
    }
  }
  void SetUp() override {
    if (binary_.empty()) {
      GTEST_SKIP() << "no kube-apiserver here: tests/kubernetes/build makes one (needs Go)";
    }
    ASSERT_FALSE(url_.empty());
    allow(false);
    (void)request("DELETE", "/api/v1/namespaces/default/pods?gracePeriodSeconds=0", "");
  }

  static bool request(const std::string& method, const std::string& path, const std::string& body,
                      const std::string& type = "application/json") {
    const std::string file = directory_ + "/body";
    std::ofstream(file) << body;
    const auto [status, answer] = run(fmt::format(
        "curl -sk -o {0}/answer -w '%{{http_code}}' -X {1} -H 'Authorization: Bearer admin' "
        "-H 'Content-Type: {2}' --data-binary @{3} '{4}{5}'",
        directory_, method, type, file, url_, path));
    if (status != 0 || !answer.starts_with('2')) {
      std::ifstream said(directory_ + "/answer");
      last_answer_ = answer + " " + std::string{std::istreambuf_iterator<char>(said), {}};
      return false;
    }
    return true;
  }
  static nlohmann::json get(const std::string& path) {
    if (!request("GET", path, "")) {
      return {};
    }
    std::ifstream said(directory_ + "/answer");
    return nlohmann::json::parse(said, nullptr, false);
  }
  static bool post(const std::string& path, const std::string& body) {
    return request("POST", path, body);
  }
  static bool create_pod(const std::string& name, const std::string& node,
                         const std::string& labels = R"("app":"otel")") {
    return post(
        "/api/v1/namespaces/default/pods",
        fmt::format(R"({{"metadata":{{"name":"{}","labels":{{{}}}}},"spec":{{"nodeName":"{}",)"
                    R"("containers":[{{"name":"otc","image":"x","resources":{{"limits":)"
                    R"({{"cpu":"500m","memory":"64Mi"}}}}}}]}}}})",
                    name, labels, node));
  }
  static bool delete_pod(const std::string& name) {
    return request("DELETE", "/api/v1/namespaces/default/pods/" + name + "?gracePeriodSeconds=0",
                   "");
  }
  /// The document of a kind in deploy/kubernetes/rbac.yaml.
  static std::string deployed(const std::string& kind) {
    std::ifstream file(std::string(HEADGATE_SOURCE_DIR) + "/deploy/kubernetes/rbac.yaml");
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    const std::size_t at = text.find("kind: " + kind + "\n");
    const std::size_t begin = at == std::string::npos ? at : text.rfind("---\n", at);
    return begin == std::string::npos ? std::string()
                                      : text.substr(begin, text.find("---\n", at) - begin);
  }
  /// Gives the agent what the deployment gives it, or takes it away.
  static void allow(bool allowed) {
    const std::string path = "/apis/rbac.authorization.k8s.io/v1/";
    for (const auto& [kind, resource] : {std::pair{"ClusterRole", "clusterroles"},
                                         {"ClusterRoleBinding", "clusterrolebindings"}}) {
      if (allowed) {
        ASSERT_TRUE(request("POST", path + resource, deployed(kind), "application/yaml"))
            << last_answer_;
      } else {
        (void)request("DELETE", path + resource + "/headgate", "");
      }
    }
  }

  static ApiServerOptions options(const std::string& token = "agent") {
    std::ofstream(directory_ + "/token-" + token) << token << "\n";
    ApiServerOptions out;
    out.url = url_;
    out.node_name = "n1";
    out.token_file = directory_ + "/token-" + token;
    out.ca_file = directory_ + "/certs/apiserver.crt";
    out.chance = [] { return 0.5; };
    out.backoff_first = std::chrono::milliseconds(100);
    out.backoff_most = std::chrono::milliseconds(500);
    return out;
  }
  static std::unique_ptr<PodSource> follow(ApiServerOptions o = options()) {
    return std::move(*ApiPods::start(std::move(o)));
  }
  static PodSourceStatus status(const PodSource& source) {
    return source.status(std::chrono::steady_clock::now());
  }
  static std::vector<std::string> names(const PodSource& source) {
    std::vector<std::string> out;
    if (const PodsPtr pods = source.pods()) {
      for (const auto& [uid, pod] : pods->by_uid()) {
        out.push_back(pod->name);
      }
    }
    std::sort(out.begin(), out.end());
    return out;
  }
  template <class Condition>
  static bool eventually(Condition condition) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (!condition()) {
      if (std::chrono::steady_clock::now() > end) {
        return false;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    return true;
  }

  static inline std::string binary_;       // NOLINT(cert-err58-cpp)
  static inline std::string directory_;    // NOLINT(cert-err58-cpp)
  static inline std::string url_;          // NOLINT(cert-err58-cpp)
  static inline std::string last_answer_;  // NOLINT(cert-err58-cpp)
};

TEST_F(RealApiServer, NothingIsSeenUntilRbacAllowsIt) {
  ASSERT_TRUE(create_pod("a", "n1")) << last_answer_;
  const auto pods = follow();
  ASSERT_TRUE(eventually([&] { return status(*pods).errors >= 2; }));
  EXPECT_THAT(status(*pods).problem,
              AllOf(HasSubstr("(403): pods is forbidden: User "
                              "\"system:serviceaccount:headgate:headgate\" cannot list "
                              "resource"),
                    HasSubstr("get, list and watch of pods")));
  EXPECT_EQ(pods->pods(), nullptr);
  allow(true);
  ASSERT_TRUE(eventually([&] { return status(*pods).synced; })) << status(*pods).problem;
  EXPECT_THAT(names(*pods), ElementsAre("a"));
}

TEST_F(RealApiServer, PodsOfThisNodeComeChangeAndGo) {
  allow(true);
  ASSERT_TRUE(create_pod("a", "n1")) << last_answer_;
  ASSERT_TRUE(create_pod("elsewhere", "n2")) << last_answer_;
  const auto pods = follow();
  ASSERT_TRUE(eventually([&] { return names(*pods) == std::vector<std::string>{"a"}; }));
  ASSERT_TRUE(create_pod("b", "n1")) << last_answer_;
  ASSERT_TRUE(eventually([&] { return names(*pods).size() == 2; }));
  ASSERT_TRUE(
      request("PATCH", "/api/v1/namespaces/default/pods/b/status",
              R"({"status":{"phase":"Running","podIPs":[{"ip":"10.1.0.7"},{"ip":"fd00::7"}],)"
              R"("podIP":"10.1.0.7","containerStatuses":[{"name":"otc","image":"x","imageID":"x",)"
              R"("ready":true,"restartCount":0,"containerID":"containerd://)" +
                  kId + R"(","state":{"running":{}}}]}})",
              "application/merge-patch+json"))
      << last_answer_;
  const auto find_b = [&]() -> std::optional<Pod> {
    for (const auto& [uid, pod] : pods->pods()->by_uid()) {
      if (pod->name == "b") {
        return *pod;
      }
    }
    return std::nullopt;
  };
  ASSERT_TRUE(eventually([&] { return find_b() && find_b()->phase == "Running"; }));
  const Pod b = *find_b();
  EXPECT_EQ(b.namespace_name, "default");
  EXPECT_TRUE(is_pod_uid(b.uid)) << b.uid;
  EXPECT_EQ(b.qos, QosClass::kGuaranteed);
  EXPECT_THAT(b.ips, ElementsAre("10.1.0.7", "fd00::7"));
  EXPECT_EQ(b.containers.at(0).id.id, kId);
  EXPECT_TRUE(b.containers.at(0).running);
  EXPECT_EQ(b.containers.at(0).cpu_limit_cores, 0.5);
  EXPECT_EQ(b.containers.at(0).memory_limit_bytes, 64U << 20U);
  ASSERT_TRUE(request("PATCH", "/api/v1/namespaces/default/pods/b",
                      R"({"metadata":{"annotations":{"headgate.io/protect":"false"}}})",
                      "application/merge-patch+json"));
  ASSERT_TRUE(eventually([&] { return find_b() && find_b()->opted_out; }));
  ASSERT_TRUE(delete_pod("a"));
  ASSERT_TRUE(eventually([&] { return names(*pods) == std::vector<std::string>{"b"}; }));
  EXPECT_EQ(status(*pods).lists, 1U);
  EXPECT_EQ(status(*pods).errors, 0U);
}

TEST_F(RealApiServer, BookmarksComeAndWatchesEndInOrder) {
  allow(true);
  ApiServerOptions brief = options();
  brief.watch_time = std::chrono::seconds(3);
  const auto pods = follow(brief);
  // A server sends them where its version has moved on: by a pod of another node.
  ASSERT_TRUE(eventually([&] { return status(*pods).synced; })) << status(*pods).problem;
  ASSERT_TRUE(create_pod("elsewhere", "n2")) << last_answer_;
  ASSERT_TRUE(eventually([&] { return status(*pods).bookmarks >= 1; })) << status(*pods).problem;
  ASSERT_TRUE(eventually([&] { return status(*pods).watches >= 3; }));
  EXPECT_EQ(status(*pods).lists, 1U);
  EXPECT_EQ(status(*pods).errors, 0U);
}

TEST_F(RealApiServer, AVersionFromBeforeARestartIsTooOldAndListedAgain) {
  allow(true);
  ASSERT_TRUE(create_pod("a", "n1")) << last_answer_;
  const auto pods = follow();
  ASSERT_TRUE(eventually([&] { return names(*pods).size() == 1; }));
  // The version moves on by pods that we are not told of.
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(create_pod(fmt::format("elsewhere-{}", i), "n2")) << last_answer_;
  }
  const auto [restarted, url] =
      run(fmt::format("{}api-server restart {} {}", kScripts, binary_, directory_));
  ASSERT_EQ(restarted, 0);
  ASSERT_TRUE(eventually([&] { return status(*pods).expired >= 1; })) << status(*pods).problem;
  ASSERT_TRUE(create_pod("b", "n1")) << last_answer_;
  ASSERT_TRUE(eventually([&] { return names(*pods).size() == 2; })) << status(*pods).problem;
  EXPECT_GE(status(*pods).errors, 1U);  // while it was away
  EXPECT_EQ(status(*pods).problem, "");
}

TEST_F(RealApiServer, AnEventIsTakenAndIsWhatKubectlDescribeLooksFor) {
  allow(true);
  ASSERT_TRUE(create_pod("a", "n1")) << last_answer_;
  const auto pod = get("/api/v1/namespaces/default/pods/a");
  KubeEvent event;
  event.namespace_name = "default";
  event.pod = "a";
  event.uid = pod["metadata"]["uid"];
  event.container = "otc";
  event.warning = true;
  event.reason = "LoadShedding";
  event.action = "RefuseExcess";
  event.note = std::string(2000, 'x');  // more than it takes
  event.unix_us = 1'700'000'000'000'000;
  event.times = 3;
  const auto events = std::move(*KubeEvents::start(options(), {}));
  events->tell("a", event);
  ASSERT_TRUE(eventually([&] { return events->status().sent == 1; })) << events->status().off;
  EXPECT_EQ(events->status().errors, 0U);
  const auto listed =
      get("/api/v1/namespaces/default/events?fieldSelector=involvedObject.kind=Pod,"
          "involvedObject.name=a,involvedObject.uid=" +
          event.uid);
  ASSERT_EQ(listed["items"].size(), 1U) << listed.dump(1);
  const auto& one = listed["items"][0];
  EXPECT_EQ(one["type"], "Warning");
  EXPECT_EQ(one["reason"], "LoadShedding");
  EXPECT_EQ(one["reportingComponent"], "headgate");
  EXPECT_EQ(one["reportingInstance"], "n1");
  EXPECT_EQ(one["message"].get<std::string>().size(), 1024U);
  EXPECT_EQ(one["series"]["count"], 3);
  EXPECT_EQ(one["involvedObject"]["fieldPath"], "spec.containers{otc}");
}

TEST_F(RealApiServer, WithoutTheRightToCreateEventsTheyAreOff) {
  ASSERT_TRUE(create_pod("a", "n1")) << last_answer_;
  KubeEvent event;
  event.namespace_name = "default";
  event.pod = "a";
  event.uid = "1";
  event.warning = true;
  event.reason = "LoadShedding";
  const auto events = std::move(*KubeEvents::start(options(), {}));
  events->tell("a", event);
  ASSERT_TRUE(eventually([&] { return !events->status().off.empty(); }));
  EXPECT_THAT(events->status().off, HasSubstr("cannot create resource \"events\" in API group "
                                              "\"events.k8s.io\""));
}

TEST_F(RealApiServer, AWrongTokenAndAWrongAuthorityAreTold) {
  const auto stranger = ApiPods::list_once(options("nobody"));
  ASSERT_FALSE(stranger);
  EXPECT_THAT(stranger.error().message, HasSubstr("does not accept the token of"));
  ApiServerOptions other = options();
  other.ca_file = "";
  const auto untrusted = ApiPods::list_once(other);
  ASSERT_FALSE(untrusted);
  EXPECT_THAT(untrusted.error().message, HasSubstr("certificate"));
}

}  // namespace
}  // namespace headgate
