// SPDX-License-Identifier: Apache-2.0
#include "deploy/demo/headgate_process.h"

#include <signal.h>
#include <sys/mount.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "deploy/demo/clock.h"

namespace headgate::demo {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kBpffs = "/sys/fs/bpf";
constexpr long kBpffsMagic = 0xcafe4a11;  // BPF_FS_MAGIC, uapi/linux/magic.h

bool bpffs_mounted() {
  struct statfs info {};
  return statfs(kBpffs.data(), &info) == 0 && info.f_type == kBpffsMagic;
}

/// Whether anything is pinned there, beside what the kernel itself puts into a new bpffs
/// (kernel/bpf/preload).
bool pins_left() {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(kBpffs, error)) {
    const std::string name = entry.path().filename();
    if (name != "maps.debug" && name != "progs.debug") {
      return true;
    }
  }
  return static_cast<bool>(error);
}

void remove_stale_pins() {
  std::error_code error;
  std::vector<fs::path> stale;
  for (const auto& entry : fs::directory_iterator(kBpffs, error)) {
    const std::string name = entry.path().filename();
    pid_t pid = 0;
    if (name.compare(0, kPrefix.size(), kPrefix) == 0 &&
        std::from_chars(name.data() + kPrefix.size(), name.data() + name.size(), pid).ec ==
            std::errc{} &&
        pid > 0 && kill(pid, 0) != 0 && errno == ESRCH) {
      stale.push_back(entry.path());
    }
  }
  for (const fs::path& path : stale) {
    fs::remove_all(path, error);
  }
}
}  // namespace

Pins::Pins()
    : root_(fmt::format("{}/{}{}", kBpffs, kPrefix, getpid())), was_mounted_(bpffs_mounted()) {
  remove_stale_pins();
}

Pins::~Pins() {
  std::error_code error;
  if (!bpffs_mounted()) {
    return;
  }
  fs::remove_all(root_, error);
  // Somebody else may have pinned there meanwhile: an unmount would take it away.
  if (!was_mounted_ && !pins_left()) {
    umount2(kBpffs.data(), MNT_DETACH);
  }
}

std::optional<std::uint64_t> refused_requests(const std::string& state_json) {
  const nlohmann::json state = nlohmann::json::parse(state_json, nullptr, false);
  std::uint64_t sum = 0;
  bool known = false;
  if (state.is_object()) {
    for (const auto& target : state.value("targets", nlohmann::json::array())) {
      for (const auto& endpoint : target.value("endpoints", nlohmann::json::array())) {
        const auto counters = endpoint.find("counters");
        if (counters != endpoint.end() && counters->is_object()) {
          sum += counters->value("answered", std::uint64_t{0});
          known = true;
        }
      }
    }
  }
  return known ? std::optional(sum) : std::nullopt;
}

Result<HeadgateProcess> HeadgateProcess::start(const std::string& binary, const Subject& subject,
                                               const Groups& groups, const Cgroup& target,
                                               const std::string& work_directory,
                                               const std::string& pin_root,
                                               const Protection& protection) {
  auto port = free_loopback_port();
  if (!port) {
    return tl::unexpected(port.error());
  }
  const std::string config = work_directory + "/demo.yaml";
  {
    std::ofstream out(config);
    out << fmt::format(
        "apiVersion: headgate/v1\n"
        "targets:\n"
        "  - name: collector\n"
        "    match: {{cgroup: {}}}\n"
        "    strategy: {}\n"
        "    endpoints:\n"
        "      - name: push\n"
        "        port: {}\n"
        "        protocol: {}\n"
        "        refuse: {}\n",
        target.path(), protection.strategy, subject.port, subject.protocol, protection.refuse);
    if (!subject.routes.empty()) {
      out << "        routes:\n";
    }
    for (const std::string& route : subject.routes) {
      out << "          - " << route << "\n";
    }
    if (!out.flush()) {
      return sys_fail(errno, "write " + config);
    }
  }
  Spawn what;
  what.argv = {binary,
               "run",
               "--config",
               config,
               "--web.listen-address",
               fmt::format("127.0.0.1:{}", *port),
               "--pin-root",
               pin_root,
               "--socket",
               work_directory + "/headgate.sock",
               "--on-exit",
               "purge"};
  what.procs_files = groups.agent.procs_files();
  what.log_file = work_directory + "/headgate.log";
  auto pid = spawn(what);
  if (!pid) {
    return tl::unexpected(pid.error());
  }
  HeadgateProcess process(*pid, *port, what.log_file);
  if (auto ready = process.wait_until_ready(); !ready) {
    return tl::unexpected(ready.error());
  }
  return process;
}

std::string HeadgateProcess::failure() {
  if (child_.running() && child_.reap()) {
    failure_ = fmt::format("{} during the run:{}", describe_status(child_.status()),
                           last_lines(log_file_, 5));
  }
  return failure_;
}
double HeadgateProcess::cpu_seconds() const {
  // proc(5), stat: fields 14 and 15.
  std::ifstream in(fmt::format("/proc/{}/stat", child_.pid()));
  std::string text{std::istreambuf_iterator<char>(in), {}};
  const std::size_t end_of_name = text.rfind(')');
  if (end_of_name == std::string::npos) {
    return 0;
  }
  std::istringstream fields(text.substr(end_of_name + 2));
  std::string skipped;
  for (int field = 3; field < 14; ++field) {
    fields >> skipped;
  }
  double user = 0;
  double system = 0;
  fields >> user >> system;
  return (user + system) / static_cast<double>(sysconf(_SC_CLK_TCK));
}

std::uint64_t HeadgateProcess::resident_bytes() const {
  std::ifstream in(fmt::format("/proc/{}/statm", child_.pid()));
  std::uint64_t size = 0;
  std::uint64_t resident = 0;
  in >> size >> resident;
  return resident * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
}

Result<> HeadgateProcess::wait_until_ready() {
  const std::int64_t give_up_ns = now_ns() + 15'000'000'000;
  while (true) {
    if (stop_requested()) {
      return interrupted();
    }
    if (child_.reap()) {
      return fail(fmt::format("headgate {} at its start:{}", describe_status(child_.status()),
                              last_lines(log_file_, 15)));
    }
    const HttpAnswer ready = http_get(port_, "/readyz?verbose");
    if (ready.status == 200) {
      return {};
    }
    if (now_ns() > give_up_ns) {
      return fail(fmt::format("headgate is not ready after 15 s (/readyz: {} {}):{}", ready.status,
                              ready.body, last_lines(log_file_, 15)));
    }
    sleep_until(now_ns() + 100'000'000);
  }
}

}  // namespace headgate::demo
