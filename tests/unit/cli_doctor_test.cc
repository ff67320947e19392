// SPDX-License-Identifier: Apache-2.0
#include <linux/capability.h>

#include <cerrno>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "agent/cli/doctor.h"
#include "agent/web/state_json.h"
#include "tests/unit/web_snapshot.h"

namespace headgate::cli {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;
using Severity = Check::Severity;

constexpr std::uint64_t kAllCapabilities = (1ULL << 41) - 1;
constexpr std::uint64_t without(int capability) { return kAllCapabilities & ~(1ULL << capability); }

/// A machine on which everything works.
SystemFacts healthy() {
  SystemFacts facts;
  facts.kernel_release = "6.1.0-57-amd64";
  facts.btf = true;
  facts.root_user = true;
  facts.capabilities = kAllCapabilities;
  facts.seccomp = 0;
  facts.memlock_bytes = 8U << 20;
  facts.bpffs = SystemFacts::BpfFs::kMounted;
  facts.cgroup_mode = "v2";
  facts.cgroup_v2 = true;
  facts.psi = SystemFacts::Psi::kAvailable;
  facts.lockdown = "none";
  facts.bpf_loop = true;
  facts.cards = {"eth0"};
  facts.agent_problem = "no agent is listening";
  return facts;
}

Check find(const SystemFacts& facts, const std::string& name) {
  for (Check& check : diagnose(facts)) {
    if (check.name == name) {
      return check;
    }
  }
  ADD_FAILURE() << "no check named " << name;
  return {};
}

TEST(Doctor, AHealthyMachineIsAllOk) {
  for (const Check& check : diagnose(healthy())) {
    EXPECT_EQ(check.severity, Severity::kOk) << check.name << ": " << check.found;
  }
}

TEST(Doctor, WhateverIsNotOkSaysWhatItCostsAndWhatToDo) {
  SystemFacts facts;  // nothing is known, nothing works
  facts.bpf_errno = EPERM;
  facts.capabilities = 0;
  facts.kernel_release = "4.19.0";
  facts.foreign_errno = EPERM;
  facts.cgroup_problem = "no cgroup tree at /x";
  for (const Check& check : diagnose(facts)) {
    if (check.severity != Severity::kOk) {
      EXPECT_NE(check.costs, "") << check.name;
      EXPECT_NE(check.remedy, "") << check.name;
    }
  }
  EXPECT_TRUE(has_failed(diagnose(facts)));
}

TEST(Doctor, SaysWhichHooksThisMachineCanHaveAndWhatTheOthersCost) {
  SystemFacts facts = healthy();
  EXPECT_EQ(find(facts, "hook requests").severity, Severity::kOk);
  EXPECT_EQ(find(facts, "hook tc").found, "clsact; tcx needs Linux 6.6");
  EXPECT_EQ(find(facts, "hook xdp").found, "network cards: eth0");
  facts.bpf_loop = false;
  EXPECT_EQ(find(facts, "hook requests").severity, Severity::kWarn);
  EXPECT_THAT(find(facts, "hook requests").found, HasSubstr("5.17"));
  EXPECT_THAT(find(facts, "hook requests").costs, HasSubstr("429"));
  EXPECT_EQ(find(facts, "hook sk_lookup").severity, Severity::kOk) << "the others do without";
  facts = healthy();
  facts.btf = false;
  EXPECT_EQ(find(facts, "hook requests").found, "no BTF");
  facts.cgroup_v2 = false;
  EXPECT_EQ(find(facts, "hook sock_ops").severity, Severity::kWarn);
  facts.cards.clear();
  EXPECT_THAT(find(facts, "hook xdp").found, HasSubstr("no network card"));
  facts.bpf_errno = EPERM;
  for (const char* hook : {"hook sk_lookup", "hook sock_ops", "hook requests", "hook tc"}) {
    EXPECT_EQ(find(facts, hook).found, "bpf(2) is not allowed") << hook;
  }
  facts = healthy();
  facts.kernel_release = "6.12.1";
  EXPECT_EQ(find(facts, "hook tc").found, "tcx (Linux 6.6)");
}

TEST(Doctor, KernelsBelow510Fail) {
  SystemFacts facts = healthy();
  facts.kernel_release = "5.9.16";
  EXPECT_EQ(find(facts, "kernel").severity, Severity::kFail);
  facts.kernel_release = "5.10.0-46-cloud-amd64";
  EXPECT_EQ(find(facts, "kernel").severity, Severity::kOk);
  facts.kernel_release = "10.0";
  EXPECT_EQ(find(facts, "kernel").severity, Severity::kOk);
  facts.kernel_release = "strange";
  EXPECT_EQ(find(facts, "kernel").severity, Severity::kWarn);
}

TEST(Doctor, SysAdminStandsForNetAdmin) {
  SystemFacts facts = healthy();
  facts.capabilities = without(CAP_NET_ADMIN);
  EXPECT_EQ(find(facts, "CAP_NET_ADMIN").severity, Severity::kWarn);
  EXPECT_EQ(find(facts, "hook sk_lookup").severity, Severity::kOk);
  facts.capabilities = without(CAP_NET_ADMIN) & without(CAP_SYS_ADMIN);
  EXPECT_EQ(find(facts, "CAP_NET_ADMIN").severity, Severity::kFail);
  EXPECT_EQ(find(facts, "hook sk_lookup").severity, Severity::kWarn);
}

TEST(Doctor, SysAdminStandsForBpfAndPerfmon) {
  SystemFacts facts = healthy();
  facts.capabilities = without(CAP_BPF) & without(CAP_PERFMON);
  EXPECT_EQ(find(facts, "CAP_BPF").severity, Severity::kOk);
  facts.capabilities = without(CAP_BPF) & without(CAP_SYS_ADMIN);
  EXPECT_EQ(find(facts, "CAP_BPF").severity, Severity::kFail);
  EXPECT_EQ(find(facts, "CAP_SYS_ADMIN").severity, Severity::kWarn);
}

// Case F21 (goebpf#45, libbpf-bootstrap#74, ebpf_exporter#330): three causes of one EPERM.
TEST(Doctor, EpermIsToldApart) {
  SystemFacts facts = healthy();
  facts.bpf_errno = EPERM;

  facts.capabilities = without(CAP_NET_ADMIN);
  facts.capabilities = without(CAP_NET_ADMIN) & without(CAP_SYS_ADMIN);
  EXPECT_THAT(find(facts, "bpf").found, HasSubstr("capability"));

  facts = healthy();
  facts.bpf_errno = EPERM;
  facts.kernel_release = "5.10.0";
  facts.memlock_bytes = 64U << 10;
  facts.capabilities = without(CAP_SYS_RESOURCE);
  EXPECT_THAT(find(facts, "bpf").found, HasSubstr("RLIMIT_MEMLOCK"));
  EXPECT_EQ(find(facts, "memlock").severity, Severity::kFail);

  facts = healthy();
  facts.bpf_errno = EPERM;
  facts.seccomp = 2;
  EXPECT_THAT(find(facts, "bpf").found, HasSubstr("seccomp"));
  EXPECT_EQ(find(facts, "seccomp").severity, Severity::kWarn);

  facts.user_namespace = true;
  EXPECT_THAT(find(facts, "bpf").found, HasSubstr("user namespace"));

  facts = healthy();
  facts.bpf_errno = EPERM;
  EXPECT_THAT(find(facts, "bpf").found, HasSubstr("security module"));
  EXPECT_EQ(find(facts, "bpf").severity, Severity::kFail);
}

TEST(Doctor, MemlockDoesNotMatterSince511) {
  SystemFacts facts = healthy();
  facts.kernel_release = "5.11.0";
  facts.memlock_bytes = 0;
  facts.capabilities = without(CAP_SYS_RESOURCE);
  EXPECT_EQ(find(facts, "memlock").severity, Severity::kOk);
}

TEST(Doctor, OtherErrorsOfBpfHaveTheirRemedy) {
  SystemFacts facts = healthy();
  facts.bpf_errno = ENOSYS;
  EXPECT_THAT(find(facts, "bpf").remedy, HasSubstr("CONFIG_BPF_SYSCALL"));
  facts.bpf_errno = EINVAL;
  EXPECT_THAT(find(facts, "bpf").found, HasSubstr("sk_lookup"));
}

// Case F24 (bpfman-operator#525, cilium#3717): a bind mount shows sysfs where bpffs should be.
TEST(Doctor, SysfsAtThePlaceOfBpffsIsNamed) {
  SystemFacts facts = healthy();
  facts.bpffs = SystemFacts::BpfFs::kOtherFileSystem;
  facts.bpffs_type = "sysfs";
  const Check check = find(facts, "bpffs");
  EXPECT_EQ(check.severity, Severity::kWarn);
  EXPECT_THAT(check.found, HasSubstr("is sysfs, not bpffs"));
  EXPECT_THAT(check.remedy, HasSubstr("mount -t bpf"));
}

// Case F22 (tetragon#911, kairos#4237): no BTF. Case F23 (tetragon#5507): lockdown.
TEST(Doctor, MissingBtfAndLockdownCostNothing) {
  SystemFacts facts = healthy();
  facts.btf = false;
  facts.lockdown = "confidentiality";
  EXPECT_EQ(find(facts, "btf").severity, Severity::kOk);
  EXPECT_EQ(find(facts, "lockdown").severity, Severity::kOk);
}

// Case F11: with a foreign redirect and our drop, the foreign one wins.
TEST(Doctor, AForeignSkLookupProgramIsNamed) {
  SystemFacts facts = healthy();
  facts.foreign = {{4026531840, 77, "tubular"}};
  const Check check = find(facts, "foreign programs");
  EXPECT_EQ(check.severity, Severity::kWarn);
  EXPECT_THAT(check.found, AllOf(HasSubstr("tubular"), HasSubstr("77"), HasSubstr("4026531840")));
}

TEST(Doctor, TheProgramOfAnotherAgentIsNamedAsSuch) {
  SystemFacts facts = healthy();
  facts.foreign = {{4026531840, 78, "headgate_sk_loo"}};
  const Check check = find(facts, "another agent");
  EXPECT_EQ(check.severity, Severity::kWarn);
  EXPECT_THAT(check.found, AllOf(HasSubstr("78"), HasSubstr("4026531840")));
  EXPECT_THAT(check.remedy, HasSubstr("--pin-root"));
}

TEST(Doctor, PinsOfAnotherOwnerOrModeOrOfADeadAgentAreNamed) {
  SystemFacts facts = healthy();
  facts.pin_root = {"/sys/fs/bpf/headgate", 65534, 0700, 0, 0, false};
  EXPECT_THAT(find(facts, "pins").found, HasSubstr("belongs to uid 65534"));
  facts.pin_root = {"/sys/fs/bpf/headgate", 0, 0777, 0, 0, false};
  EXPECT_THAT(find(facts, "pins").found, HasSubstr("mode 0777"));
  facts.pin_root = {"/sys/fs/bpf/headgate", 0, 0700, 2, 12, false};
  EXPECT_EQ(find(facts, "pins").severity, Severity::kWarn);
  EXPECT_THAT(find(facts, "pins").found, HasSubstr("2 links, 12 maps of an agent that has ended"));
  facts.pin_root->locked = true;
  EXPECT_EQ(find(facts, "pins").severity, Severity::kOk);
  facts.pin_root = {"/sys/fs/bpf/headgate", 0, 0700, 0, 1, false};
  EXPECT_EQ(find(facts, "pins").severity, Severity::kOk) << "the kill switch outlives a purge";
}

TEST(Doctor, PsiSwitchedOffIsNotPsiMissing) {
  SystemFacts facts = healthy();
  facts.psi = SystemFacts::Psi::kSwitchedOff;
  EXPECT_THAT(find(facts, "psi").remedy, HasSubstr("psi=1"));
  facts.psi = SystemFacts::Psi::kMissing;
  EXPECT_THAT(find(facts, "psi").remedy, HasSubstr("CONFIG_PSI"));
}

// Case F27 (aya#1014): cgroup programs cannot be attached to v1 directories.
TEST(Doctor, AHostWithV1OnlyIsToldWhatItLacks) {
  SystemFacts facts = healthy();
  facts.cgroup_mode = "v1";
  facts.cgroup_v2 = false;
  EXPECT_EQ(find(facts, "cgroup").severity, Severity::kWarn);
}

TEST(Doctor, ARunningAgentIsAskedWhatItLacks) {
  AgentSnapshot agent = test::busy_snapshot();
  agent.degraded = {"no sk_lookup"};
  agent.targets[0].endpoints[0].counters.reset = 100;
  agent.targets[0].endpoints[0].counters.admitted_exempt = 101;
  agent.targets[0].endpoints[0].counters.established = 5;  // long ago
  agent.targets[0].endpoints[1].beside_gate = 5;
  SystemFacts facts = healthy();
  facts.agent_state = web::to_state_json(agent);
  EXPECT_THAT(find(facts, "exempt sources").found, HasSubstr("web/otlp-grpc: 101 of 201"));
  EXPECT_THAT(find(facts, "beside the gate").found, HasSubstr("web/statsd: 5 connections"));
  std::string all;
  for (const Check& check : diagnose(facts)) all += check.found + '\n';
  EXPECT_THAT(all, AllOf(HasSubstr("running, 0.1.0"), HasSubstr("no sk_lookup")));
}

TEST(Doctor, HalfExemptIsNoWarning) {
  AgentSnapshot agent = test::busy_snapshot();
  agent.targets[0].endpoints[0].counters.reset = 100;
  agent.targets[0].endpoints[0].counters.admitted_exempt = 100;
  SystemFacts facts = healthy();
  facts.agent_state = web::to_state_json(agent);
  for (const Check& check : diagnose(facts)) EXPECT_NE(check.name, "exempt sources");
}

TEST(Doctor, TextAndJsonSayTheSame) {
  SystemFacts facts = healthy();
  facts.bpffs = SystemFacts::BpfFs::kMissing;
  const auto checks = diagnose(facts);
  EXPECT_THAT(doctor_text(checks), AllOf(HasSubstr("warn   bpffs"), HasSubstr("costs: maps and"),
                                         HasSubstr("do:    mount"), HasSubstr("2 to look at")));
  const json object = json::parse(doctor_json(checks));
  EXPECT_EQ(object["schema"], 1);
  EXPECT_EQ(object["worst"], "warn");
  EXPECT_EQ(object["checks"].size(), checks.size());
  EXPECT_FALSE(has_failed(checks));
}

TEST(Doctor, LooksAtThisMachine) {
  DoctorOptions options;
  options.cgroup_root = "/sys/fs/cgroup";
  options.proc_root = "/proc";
  options.socket_path = testing::TempDir() + "headgate_no_socket";
  options.json = true;
  const SystemFacts facts = look_around(options);
  EXPECT_NE(facts.kernel_release, "");
  EXPECT_TRUE(facts.capabilities.has_value());
  EXPECT_TRUE(facts.seccomp.has_value());
  EXPECT_THAT(facts.agent_problem, HasSubstr("no agent is listening"));
  std::ostringstream out;
  std::ostringstream err;
  run_doctor(options, out, err);
  EXPECT_EQ(json::parse(out.str())["schema"], 1);
}

}  // namespace
}  // namespace headgate::cli
