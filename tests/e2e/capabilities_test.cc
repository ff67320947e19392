// SPDX-License-Identifier: Apache-2.0
// What the agent can do as a root with the capabilities of the documentation, less one at a time.
// The table in docs/kubernetes.md is held equal to what is expected here.
#include <algorithm>
#include <cctype>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/e2e/agent_process.h"
#include "tests/e2e/readiness.h"
#include "tests/support/leftovers.h"
#include "tests/support/net_lab.h"

namespace headgate::e2e {
namespace {

using lab::Outcome;

const std::vector<std::string> kDocumented{"bpf",       "net_admin", "perfmon",        "sys_ptrace",
                                           "sys_admin", "sys_nice",  "dac_read_search"};

struct Row {
  std::string missing;  ///< capabilities, " and " between them; "" = none
  bool pods;            ///< connections to a target in a network namespace of its own are refused
  bool host;            ///< ... to one on the node's network
  std::string said;     ///< what /readyz?verbose says about it; "" = nothing is degraded
};

std::ostream& operator<<(std::ostream& out, const Row& row) { return out << row.missing; }

const std::vector<Row> kRows{
    {"", true, true, ""},
    {"BPF", true, true, ""},
    {"PERFMON", true, true, ""},
    {"NET_ADMIN", true, true, ""},
    {"SYS_ADMIN", true, false, "needs CAP_SYS_ADMIN"},
    {"SYS_PTRACE", false, false, "needs hostPID and CAP_SYS_PTRACE"},
    {"DAC_READ_SEARCH", true, false, "needs CAP_DAC_READ_SEARCH"},
    {"SYS_NICE", true, true, "needs CAP_SYS_NICE"},
    {"BPF and SYS_ADMIN", false, false, "needs CAP_BPF and CAP_NET_ADMIN"},
    {"PERFMON and SYS_ADMIN", false, false, "needs CAP_BPF and CAP_NET_ADMIN"},
    {"NET_ADMIN and SYS_ADMIN", false, false, "needs CAP_BPF and CAP_NET_ADMIN"},
};

std::vector<std::string> left_of(const Row& row) {
  const auto is_missing = [&](std::string name) {
    std::transform(name.begin(), name.end(), name.begin(), ::toupper);
    return (" " + row.missing + " ").find(" " + name + " ") != std::string::npos;
  };
  std::vector<std::string> out;
  std::remove_copy_if(kDocumented.begin(), kDocumented.end(), std::back_inserter(out), is_missing);
  return out;
}

/// The row as it stands in the documentation.
std::string line_of(const Row& row) {
  const auto gated = [](bool yes) { return yes ? "gated" : "observed only"; };
  return fmt::format("| {} | {} | {} | {} |\n", row.missing.empty() ? "none" : row.missing,
                     gated(row.pods), gated(row.host), row.said.empty() ? "nothing" : row.said);
}

class Capabilities : public ::testing::TestWithParam<Row> {
 protected:
  void SetUp() override {
    HEADGATE_REQUIRES_ROOT_KERNEL();
    pair_ = std::make_unique<lab::Pair>();
    pod_cgroup_ = std::make_unique<lab::Cgroup>("pod");
    host_cgroup_ = std::make_unique<lab::Cgroup>("host");
    // A user's process, as most collectors are: what is root's can be looked at without rights.
    lab::ServerOptions options;
    options.uid = 10001;
    options.port = 8080;
    pod_ = std::make_unique<lab::ServerProcess>(pair_->server, options, pod_cgroup_.get());
    options.address = "127.0.0.1";
    options.port = 0;
    host_server_ = std::make_unique<lab::ServerProcess>(host_, options, host_cgroup_.get());
  }

  [[nodiscard]] bool refused(const lab::Namespace& from, const std::string& address,
                             std::uint16_t port) const {
    lab::ConnectOptions options;
    options.address = address;
    options.port = port;
    return lab::connect_many(from, options).count(Outcome::kRefused) == 1;
  }
  [[nodiscard]] bool pod_refuses() const {
    return refused(pair_->client, pair_->at_server().ipv4, pod_->port());
  }
  [[nodiscard]] bool host_refuses() const {
    return refused(host_, "127.0.0.1", host_server_->port());
  }

  std::unique_ptr<lab::Pair> pair_;
  std::unique_ptr<lab::Cgroup> pod_cgroup_;
  std::unique_ptr<lab::Cgroup> host_cgroup_;
  std::unique_ptr<lab::ServerProcess> pod_;
  std::unique_ptr<lab::ServerProcess> host_server_;
  lab::Namespace host_{lab::Namespace::Host{}};
  AgentProcess agent_;
};

TEST_P(Capabilities, MissingOnesCostWhatTheTableSays) {
  const Row& row = GetParam();
  const std::vector<std::string> left = left_of(row);
  agent_.write_config(fmt::format(
      "apiVersion: headgate/v1\ntargets:\n"
      "  - name: pod\n    match: {{cgroup: {}}}\n    strategy: {{fixed: {{admit: 0}}}}\n"
      "    endpoints: [{{name: e, port: {}, protocol: tcp}}]\n"
      "  - name: host\n    match: {{cgroup: {}}}\n    strategy: {{fixed: {{admit: 0}}}}\n"
      "    endpoints: [{{name: e, port: {}, protocol: tcp}}]\n",
      pod_cgroup_->path(), pod_->port(), host_cgroup_->path(), host_server_->port()));
  const std::uint16_t port = free_port();
  agent_.start_with_capabilities(left, {fmt::format("--web.listen-address=127.0.0.1:{}", port)});
  ASSERT_TRUE(agent_.running()) << agent_.log();
  ASSERT_TRUE(lab::eventually([&] {
    return agent_.target("pod").value("present", false) &&
           agent_.target("host").value("present", false);
  })) << agent_.log();
  EXPECT_TRUE(lab::eventually([&] {
    return (!row.pods || pod_refuses()) && (!row.host || host_refuses());
  })) << agent_.log();
  // What is not refused by now will not be: all has been looked at, and said.
  Readiness readiness;
  EXPECT_TRUE(lab::eventually([&] {
    readiness = e2e::readiness(port);
    return readiness.text.find(row.said) != std::string::npos;
  })) << readiness.text;
  EXPECT_EQ(pod_refuses(), row.pods) << agent_.log();
  EXPECT_EQ(host_refuses(), row.host) << agent_.log();
  EXPECT_EQ(readiness.status, 200) << "an agent that can do less stays: " << readiness.text;
  EXPECT_EQ(readiness.text.find("degraded") != std::string::npos, !row.said.empty())
      << readiness.text;
  auto command = confined_to(left);
  command.insert(command.end(),
                 {AgentProcess::binary(), "doctor", "--pin-root=" + agent_.pin_root(),
                  "--socket=" + agent_.socket_path()});
  const std::string doctor = run_command(command).out;
  if (!row.said.empty()) {
    EXPECT_NE(doctor.find("missing\n"), std::string::npos) << doctor;
  }
  EXPECT_EQ(agent_.terminate(), 0) << agent_.log();
}

TEST(CapabilitiesTable, IsTheOneInTheDocumentation) {
  std::ifstream file(std::string(HEADGATE_SOURCE_DIR) + "/docs/kubernetes.md");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  std::string table =
      "| Missing | Targets in pods | Targets on the node's network | /readyz?verbose |\n"
      "|---|---|---|---|\n";
  for (const Row& row : kRows) {
    table += line_of(row);
  }
  EXPECT_NE(text.find("\n\n" + table + "\n"), std::string::npos) << table;
}

INSTANTIATE_TEST_SUITE_P(Documented, Capabilities, ::testing::ValuesIn(kRows));

}  // namespace
}  // namespace headgate::e2e
