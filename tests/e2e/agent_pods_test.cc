// SPDX-License-Identifier: Apache-2.0
// Targets that are pods: an API server tells of them, their cgroups are named as the kubelet names
// them, and everything else is real.
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <mutex>
#include <ostream>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/e2e/agent_process.h"
#include "tests/e2e/learned.h"
#include "tests/support/http_script.h"
#include "tests/support/leftovers.h"
#include "tests/support/net_lab.h"

namespace headgate::e2e {
namespace {

namespace fs = std::filesystem;
using lab::Outcome;

const std::string kUid = "4a163a05-439d-484b-8e53-2968bc15824f";
const std::string kFirst(64, 'a');
const std::string kSecond(64, 'b');
const std::string kPause(64, '0');

std::string pod(int version, const std::string& container_id, const std::string& annotations = "",
                const std::string& label = "otel", const std::string& runtime = "containerd") {
  return fmt::format(R"({{"kind":"Pod","metadata":{{"name":"otc-0","namespace":"obs","uid":"{}",)"
                     R"("resourceVersion":"{}","labels":{{"app":"{}"}},"annotations":{{{}}}}},)"
                     R"("spec":{{"nodeName":"n1","containers":[{{"name":"otc"}}]}},)"
                     R"("status":{{"phase":"Running","qosClass":"Burstable","containerStatuses":)"
                     R"([{{"name":"otc","containerID":"{}://{}","state":{{"running":{{}}}}}}]}}}})",
                     kUid, version, label, annotations, runtime, container_id);
}

/// An API server that knows one pod and tells what is said to happen to it.
class Events {
 public:
  std::string runtime = "containerd";
  void say(const std::string& type, const std::string& object) {
    const std::lock_guard lock(mutex_);
    lines_.push_back(fmt::format("{{\"type\":\"{}\",\"object\":{}}}\n", type, object));
    changed_.notify_all();
  }
  /// The Event with this reason that the agent has sent; null: none yet.
  [[nodiscard]] nlohmann::json posted(const std::string& reason) {
    const std::lock_guard lock(mutex_);
    for (const std::string& body : posted_) {
      auto event = nlohmann::json::parse(body);
      if (event["reason"] == reason) {
        return event;
      }
    }
    return {};
  }
  void end() {
    const std::lock_guard lock(mutex_);
    ended_ = true;
    changed_.notify_all();
  }
  void answer(const test::HttpExchange& exchange) {
    if (exchange.asks_for("POST ")) {
      const std::lock_guard lock(mutex_);
      posted_.push_back(exchange.body());
      exchange.answer(201, exchange.body());
      return;
    }
    if (!exchange.asks_for("watch=true")) {
      exchange.answer(200, R"({"kind":"PodList","metadata":{"resourceVersion":"1"},"items":[)" +
                               pod(1, kFirst, "", "otel", runtime) + "]}");
      return;
    }
    exchange.begin_stream();
    std::unique_lock lock(mutex_);
    for (std::size_t sent = 0; !ended_;) {
      if (sent < lines_.size()) {
        exchange.piece(lines_[sent++]);
        continue;
      }
      changed_.wait(lock);
    }
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> lines_;
  std::vector<std::string> posted_;
  bool ended_ = false;
};

class AgentPodsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    HEADGATE_REQUIRES_ROOT_KERNEL();
    pair_ = std::make_unique<lab::Pair>();
    base_ = std::make_unique<lab::Cgroup>("pods");
    begin({"kubepods", "burstable", "pod" + kUid}, kFirst);
    server_api_ = std::make_unique<test::HttpScript>(
        [this](const test::HttpExchange& exchange) { events_.answer(exchange); });
  }
  void TearDown() override {
    events_.end();
    end();
  }

  /// The cgroups of a pod, one in the other, and a container in it.
  void begin(const std::vector<std::string>& levels, const std::string& container) {
    end();
    for (const std::string& name : levels) {
      levels_.push_back(
          std::make_unique<lab::Cgroup>(levels_.empty() ? *base_ : *levels_.back(), name));
    }
    run_container(container);
  }
  void end() {
    server_.reset();
    container_.reset();
    while (!levels_.empty()) {
      levels_.pop_back();
    }
  }

  void run_container(const std::string& id) {
    server_.reset();
    container_.reset();
    container_ = std::make_unique<lab::Cgroup>(*levels_.back(), id);
    container_->limit_cpu(1.0);
    lab::ServerOptions options;
    options.port = 8080;
    options.work_us = work_us_;
    server_ = std::make_unique<lab::ServerProcess>(pair_->server, options, container_.get());
    server_->start();
  }

  [[nodiscard]] std::vector<std::string> flags() const {
    return {"--kubernetes.api-server=" + server_api_->url(), "--kubernetes.node-name=n1",
            "--kubernetes.cri-socket=none"};
  }

  void start(const std::string& match, const std::string& strategy = "{fixed: {admit: 0}}") {
    agent_.write_config(fmt::format(
        "apiVersion: headgate/v1\ntargets:\n  - name: gateway\n    match: {{pods: {}}}\n"
        "    strategy: {}\n"
        "    endpoints: [{{name: e, port: 8080, protocol: tcp}}]\n",
        match, strategy));
    agent_.start(flags());
    ASSERT_TRUE(agent_.running()) << agent_.log();
  }

  [[nodiscard]] testing::AssertionResult comes_to(Outcome outcome) const {
    const bool came = lab::eventually([&] {
      lab::ConnectOptions options;
      options.attempts = 1;
      options.address = pair_->at_server().ipv4;
      options.port = 8080;
      options.timeout = std::chrono::milliseconds(2000);
      return lab::connect_many(pair_->client, options).count(outcome) == 1;
    });
    return came ? testing::AssertionSuccess()
                : testing::AssertionFailure() << agent_.log() << agent_.state().dump(2);
  }

  unsigned work_us_ = 0;
  std::unique_ptr<lab::Pair> pair_;
  std::unique_ptr<lab::Cgroup> base_;
  std::vector<std::unique_ptr<lab::Cgroup>> levels_;
  std::unique_ptr<lab::Cgroup> container_;
  std::unique_ptr<lab::ServerProcess> server_;
  Events events_;
  std::unique_ptr<test::HttpScript> server_api_;
  AgentProcess agent_;
};

TEST_F(AgentPodsTest, APodIsProtectedUntilItOptsOut) {
  start("{namespaces: [obs], selector: app=otel}");
  ASSERT_TRUE(comes_to(Outcome::kRefused));
  const auto target = agent_.target("gateway");
  EXPECT_EQ(target["pod"]["namespace"], "obs");
  EXPECT_EQ(target["pod"]["name"], "otc-0");
  EXPECT_EQ(target["pod"]["container"], "otc");
  EXPECT_EQ(target["instance"], "obs/otc-0/otc");
  EXPECT_EQ(target["cgroup_path"], container_->path());
  const auto pods = agent_.state()["pods"];
  EXPECT_EQ(pods["source"], "api");
  EXPECT_EQ(pods["pods"], 1);
  EXPECT_EQ(pods["synced"], true);

  events_.say("MODIFIED", pod(2, kFirst, R"("headgate.io/protect":"false")"));
  ASSERT_TRUE(comes_to(Outcome::kConnected));
  EXPECT_TRUE(lab::eventually([&] { return agent_.target("gateway")["present"] == false; }))
      << agent_.state().dump(2);
  events_.say("MODIFIED", pod(3, kFirst));
  ASSERT_TRUE(comes_to(Outcome::kRefused));
  events_.say("MODIFIED", pod(4, kFirst, "", "other"));
  ASSERT_TRUE(comes_to(Outcome::kConnected));
}

struct Layout {
  const char* name;
  const char* runtime;              ///< in the container's ID
  std::vector<std::string> levels;  ///< down to the pod
  std::string container;
};
void PrintTo(const Layout& layout, std::ostream* out) { *out << layout.name; }

class AgentPodLayouts : public AgentPodsTest, public ::testing::WithParamInterface<Layout> {};

/// Cgroups as other runtimes, drivers and classes name them, each with a real process in it: the
/// pod that the API server tells of is found there, and protected.
TEST_P(AgentPodLayouts, AreFoundAndProtected) {
  events_.runtime = GetParam().runtime;
  begin(GetParam().levels, GetParam().container);
  start("{namespaces: [obs]}");
  ASSERT_TRUE(comes_to(Outcome::kRefused));
  EXPECT_EQ(agent_.target("gateway")["cgroup_path"], container_->path());
  EXPECT_EQ(agent_.target("gateway")["instance"], "obs/otc-0/otc");
}

/// A container as those runtimes have it made: by runc, which names its cgroup as it is told to, in
/// all hierarchies there are.
class RuncContainer {
 public:
  RuncContainer(const lab::Namespace& netns, const lab::Cgroup& pod, const std::string& name)
      : pod_(pod.path()), cgroup_path_(pod.path() + "/" + name) {
    const fs::path rootfs = bundle_ / "rootfs";
    for (const char* directory : {"usr", "proc", "dev"}) {
      fs::create_directories(rootfs / directory);
    }
    for (const char* link : {"bin", "lib", "lib64"}) {
      fs::create_symlink(std::string("usr/") + link, rootfs / link);
    }
    const char* const serve =
        "use IO::Socket::INET; my $s = IO::Socket::INET->new(LocalAddr => '0.0.0.0', LocalPort => "
        "8080, Listen => 128, ReuseAddr => 1) or die; while (my $c = $s->accept) { close $c }";
    const nlohmann::json config = {
        {"ociVersion", "1.0.2"},
        {"process",
         {{"user", {{"uid", 0}, {"gid", 0}}},
          {"cwd", "/"},
          {"args", {"/usr/bin/perl", "-e", serve}}}},
        {"root", {{"path", "rootfs"}, {"readonly", true}}},
        {"mounts",
         {{{"destination", "/proc"}, {"type", "proc"}, {"source", "proc"}},
          {{"destination", "/usr"},
           {"type", "bind"},
           {"source", "/usr"},
           {"options", {"rbind", "ro"}}}}},
        {"linux",
         {{"cgroupsPath", cgroup_path_},
          {"resources", {{"cpu", {{"quota", 100'000}, {"period", 100'000}}}}},
          {"namespaces",
           {{{"type", "mount"}},
            {{"type", "pid"}},
            {{"type", "network"}, {"path", netns.path()}}}}}}};
    std::ofstream(bundle_ / "config.json") << config.dump();
    runc("run --detach --no-pivot --bundle " + bundle_.string());
  }
  RuncContainer(const RuncContainer&) = delete;
  RuncContainer& operator=(const RuncContainer&) = delete;
  ~RuncContainer() {
    runc("delete --force");
    // In hierarchies that the lab has no cgroups in runc has made the levels above, too.
    const std::string top = pod_.substr(1, pod_.find('/', 1) - 1);
    for (const auto& hierarchy : fs::directory_iterator("/sys/fs/cgroup")) {
      if (hierarchy.is_directory() && !hierarchy.is_symlink()) {
        remove_empty(hierarchy.path() / top);
      }
    }
    std::error_code error;
    fs::remove_all(bundle_, error);
  }
  [[nodiscard]] const std::string& cgroup_path() const { return cgroup_path_; }
  [[nodiscard]] const std::string& problem() const { return problem_; }

 private:
  static fs::path made() {
    std::string name = "/tmp/headgate-runc.XXXXXX";
    return ::mkdtemp(name.data()) != nullptr ? name : "";
  }
  void runc(const std::string& arguments) {
    const fs::path log = bundle_ / "log";
    const int status =
        std::system(fmt::format("runc --root {} {} headgate-{} > {} 2>&1 < /dev/null",
                                (bundle_ / "state").string(), arguments, ::getpid(), log.string())
                        .c_str());
    if (status != 0) {
      problem_ = "runc " + arguments + ": " + read_text(log);
    }
  }
  /// Directories from the bottom up; what is in use stays.
  static void remove_empty(const fs::path& top) {
    std::error_code error;
    std::vector<fs::path> directories{top};
    for (const auto& entry : fs::recursive_directory_iterator(top, error)) {
      if (entry.is_directory()) {
        directories.push_back(entry.path());
      }
    }
    for (auto it = directories.rbegin(); it != directories.rend(); ++it) {
      ::rmdir(it->c_str());
    }
  }

  fs::path bundle_ = made();
  std::string pod_;
  std::string cgroup_path_;
  std::string problem_;
};

TEST_P(AgentPodLayouts, AreFoundWhereRuncMakesThem) {
  HEADGATE_REQUIRES(
      std::system("command -v runc > /dev/null") == 0 ? "" : "needs the Debian package runc");
  events_.runtime = GetParam().runtime;
  begin(GetParam().levels, GetParam().container);
  server_.reset();
  container_.reset();
  const RuncContainer container(pair_->server, *levels_.back(), GetParam().container);
  ASSERT_EQ(container.problem(), "");
  start("{namespaces: [obs]}");
  ASSERT_TRUE(comes_to(Outcome::kRefused));
  EXPECT_EQ(agent_.target("gateway")["cgroup_path"], container.cgroup_path());
  EXPECT_EQ(agent_.target("gateway")["instance"], "obs/otc-0/otc");
  EXPECT_NEAR(agent_.target("gateway")["cpu"]["effective_cores"].get<double>(), 1.0, 1e-9);
}

std::string underscored(std::string uid) {
  std::replace(uid.begin(), uid.end(), '-', '_');
  return uid;
}

INSTANTIATE_TEST_SUITE_P(
    Pods, AgentPodLayouts,
    testing::Values(
        Layout{"ContainerdSystemd",
               "containerd",
               {"kubepods.slice", "kubepods-burstable.slice",
                "kubepods-burstable-pod" + underscored(kUid) + ".slice"},
               "cri-containerd-" + kFirst + ".scope"},
        Layout{"CrioSystemd",
               "cri-o",
               {"kubepods.slice", "kubepods-besteffort.slice",
                "kubepods-besteffort-pod" + underscored(kUid) + ".slice"},
               "crio-" + kFirst + ".scope"},
        Layout{"CrioSystemdGuaranteed",
               "cri-o",
               {"kubepods.slice", "kubepods-pod" + underscored(kUid) + ".slice"},
               "crio-" + kFirst + ".scope"},
        Layout{"CrioCgroupfs", "cri-o", {"kubepods", "burstable", "pod" + kUid}, "crio-" + kFirst},
        Layout{"DockerSystemd",
               "docker",
               {"kubepods.slice", "kubepods-burstable.slice",
                "kubepods-burstable-pod" + underscored(kUid) + ".slice"},
               "docker-" + kFirst + ".scope"},
        Layout{"DockerCgroupfsGuaranteed", "docker", {"kubepods", "pod" + kUid}, kFirst},
        Layout{"KindInDocker",
               "containerd",
               {"docker", kSecond, "kubelet.slice", "kubelet-kubepods.slice",
                "kubelet-kubepods-burstable.slice",
                "kubelet-kubepods-burstable-pod" + underscored(kUid) + ".slice"},
               "cri-containerd-" + kFirst + ".scope"},
        Layout{"KindCgroupfs",
               "containerd",
               {"docker", kSecond, "kubelet", "kubepods", "besteffort", "pod" + kUid},
               kFirst}),
    [](const auto& layout) { return layout.param.name; });

TEST_F(AgentPodsTest, AContainerThatIsStartedAgainIsAnotherOne) {
  start("{name: otc-0}");
  ASSERT_TRUE(comes_to(Outcome::kRefused));
  run_container(kSecond);
  events_.say("MODIFIED", pod(2, kSecond));
  ASSERT_TRUE(comes_to(Outcome::kRefused));
  ASSERT_TRUE(lab::eventually([&] {
    return agent_.target("gateway")["cgroup_path"] == container_->path();
  })) << agent_.state().dump(2);
}

TEST_F(AgentPodsTest, AContainerThatIsStartedAgainGoesOnFromWhatWasLearned) {
  work_us_ = 2000;
  run_container(kFirst);
  start("{name: otc-0}", "adaptive");
  const auto learned = [&] { return learned_about(agent_.pin_root(), container_->path()); };
  const auto before = learn_costs(
      [this](lab::ConnectOptions options) {
        options.address = pair_->at_server().ipv4;
        options.port = 8080;
        (void)lab::connect_many(pair_->client, options);
      },
      agent_.pin_root(), container_->path());
  ASSERT_TRUE(before) << agent_.state().dump(2);
  run_container(kSecond);
  events_.say("MODIFIED", pod(2, kSecond));
  // Nobody has connected since.
  std::optional<adaptive::Saved> after;
  ASSERT_TRUE(lab::eventually(
      [&] {
        after = learned();
        return after.has_value();
      },
      std::chrono::seconds(15)))
      << agent_.log();
  EXPECT_GE(after->header.cost.windows, before->header.cost.windows);
  EXPECT_NEAR(cost_s(*after), cost_s(*before), 0.5 * cost_s(*before));
}

TEST_F(AgentPodsTest, AStateThatChangesIsAnEventOnThePod) {
  start("{name: otc-0}");
  ASSERT_TRUE(comes_to(Outcome::kRefused));
  nlohmann::json event;
  ASSERT_TRUE(lab::eventually(
      [&] {
        (void)comes_to(Outcome::kRefused);
        event = events_.posted("LoadShedding");
        return !event.is_null();
      },
      std::chrono::seconds(10)))
      << agent_.log();
  EXPECT_EQ(event["type"], "Warning");
  EXPECT_EQ(event["metadata"]["namespace"], "obs");
  EXPECT_EQ(event["regarding"]["name"], "otc-0");
  EXPECT_EQ(event["regarding"]["uid"], kUid);
  EXPECT_EQ(event["regarding"]["fieldPath"], "spec.containers{otc}");
  EXPECT_EQ(event["reportingInstance"], "n1");
  const std::string note = event["note"];
  EXPECT_NE(note.find("target gateway refuses the excess: e 100 % of "), std::string::npos) << note;
  EXPECT_TRUE(lab::eventually([&] { return agent_.state()["events"]["sent"] == 1; }));
}

TEST_F(AgentPodsTest, ARefusedConfigurationIsAnEventOnTheAgentsOwnPod) {
  ::setenv("POD_NAMESPACE", "headgate", 1);
  ::setenv("POD_NAME", "headgate-x7", 1);
  ::setenv("POD_UID", "uid-own", 1);
  start("{name: otc-0}");
  ::unsetenv("POD_UID");
  ASSERT_TRUE(comes_to(Outcome::kRefused));
  agent_.write_config("apiVersion: headgate/v1\ntick: fast\n");
  nlohmann::json event;
  ASSERT_TRUE(lab::eventually([&] {
    event = events_.posted("ConfigRefused");
    return !event.is_null();
  })) << agent_.log();
  EXPECT_EQ(event["metadata"]["namespace"], "headgate");
  EXPECT_EQ(event["regarding"]["name"], "headgate-x7");
  EXPECT_EQ(event["regarding"]["uid"], "uid-own");
  const std::string note = event["note"];
  EXPECT_NE(note.find("headgate.yaml:1:1: error: targets: is missing"), std::string::npos) << note;
  EXPECT_TRUE(comes_to(Outcome::kRefused)) << "the last good one is in force";
}

TEST_F(AgentPodsTest, EventsCanBeSwitchedOff) {
  agent_.write_config(
      "apiVersion: headgate/v1\ntargets:\n  - name: gateway\n    match: {pods: {name: otc-0}}\n"
      "    strategy: {fixed: {admit: 0}}\n    endpoints: [{name: e, port: 8080, protocol: tcp}]\n");
  auto more = flags();
  more.emplace_back("--kubernetes.no-events");
  agent_.start(more);
  ASSERT_TRUE(comes_to(Outcome::kRefused));
  EXPECT_TRUE(agent_.state()["events"].is_null());
}

TEST_F(AgentPodsTest, WithoutAnApiServerAUidIsEnoughAndNamesAreSaidToBeMissing) {
  agent_.write_config(fmt::format(
      "apiVersion: headgate/v1\ntargets:\n"
      "  - {{name: by-uid, match: {{pods: {{uid: {}}}}}, strategy: {{fixed: {{admit: 0}}}},\n"
      "     endpoints: [{{name: e, port: 8080, protocol: tcp}}]}}\n"
      "  - {{name: by-name, match: {{pods: {{namespaces: [obs]}}}},\n"
      "     endpoints: [{{name: e, port: 8081, protocol: tcp}}]}}\n",
      kUid));
  agent_.start({"--kubernetes.api-server=none", "--kubernetes.cri-socket=none"});
  ASSERT_TRUE(agent_.running()) << agent_.log();
  ASSERT_TRUE(comes_to(Outcome::kRefused));
  EXPECT_EQ(agent_.target("by-uid")["pod"]["uid"], kUid);
  const auto by_name = agent_.target("by-name");
  EXPECT_EQ(by_name["present"], false);
  EXPECT_NE(by_name["absent_why"].get<std::string>().find(
                "pods cannot be told by namespace obs: --kubernetes.api-server is none"),
            std::string::npos)
      << by_name["absent_why"];
}

TEST_F(AgentPodsTest, ExplainFindsAPodByItsName) {
  auto arguments = flags();
  arguments.insert(arguments.begin(), {"explain", "pod:obs/otc-0", "--json"});
  const auto ran = agent_.run(arguments);
  ASSERT_EQ(ran.status, 0) << ran.err << ran.out;
  const auto said = nlohmann::json::parse(ran.out);
  EXPECT_EQ(said["target"], "pod:obs/otc-0/otc");
  EXPECT_EQ(said["cpu"]["effective_cores"], 1.0);
  arguments[1] = "pod:obs/other";
  const auto none = agent_.run(arguments);
  EXPECT_EQ(none.status, 1);
  EXPECT_NE((none.err + none.out)
                .find("none of the 1 pods of this node has namespace obs, name "
                      "other"),
            std::string::npos)
      << none.err << none.out;
}

}  // namespace
}  // namespace headgate::e2e
