// SPDX-License-Identifier: Apache-2.0
#include "tests/e2e/agent_process.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <thread>

#include <fmt/format.h>

#include "agent/dataplane/bpffs.h"
#include "agent/web/control_socket.h"
#include "tests/support/leftovers.h"

extern char** environ;  // NOLINT: POSIX

namespace headgate::e2e {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

/// `command`: the program, found by PATH, and its arguments.
pid_t spawn(const std::vector<std::string>& command, const std::string& out_path,
            const std::string& err_path) {
  std::vector<char*> argv;
  std::vector<std::string> copies = command;
  for (std::string& argument : copies) {
    argv.push_back(argument.data());
  }
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, out_path.c_str(),
                                   O_WRONLY | O_CREAT | O_APPEND, 0600);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, err_path.c_str(),
                                   O_WRONLY | O_CREAT | O_APPEND, 0600);
  pid_t pid = -1;
  const int rc = ::posix_spawnp(&pid, argv.front(), &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (rc != 0) {
    throw std::runtime_error(fmt::format("spawn {}: {}", command.front(), rc));
  }
  return pid;
}

int exit_status(int status) {
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

std::filesystem::path make_directory() {
  static std::atomic<unsigned> serial{0};
  const auto path = std::filesystem::temp_directory_path() /
                    fmt::format("headgate-e2e-{}-{}", ::getpid(), serial++);
  std::filesystem::create_directories(path);
  return path;
}

}  // namespace

std::string read_text(const std::filesystem::path& path) {
  std::ifstream in(path);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

const char* AgentProcess::binary() { return HEADGATE_BINARY; }

AgentProcess::AgentProcess()
    : directory_(make_directory()), pin_root_("/sys/fs/bpf/" + directory_.filename().string()) {
  lab::remove_leftovers();
}

AgentProcess::~AgentProcess() {
  if (pid_ > 0) {
    kill();
  }
  PinDirectory::existing(pin_root_).purge();
  std::error_code ec;
  std::filesystem::remove_all(directory_, ec);
}

void AgentProcess::write_config(const std::string& yaml) const {
  // Renamed over, as editors and configuration managers do.
  const std::string fresh = config_path() + ".new";
  std::ofstream(fresh) << yaml;
  std::filesystem::rename(fresh, config_path());
}

void AgentProcess::start(const std::vector<std::string>& more) {
  std::vector<std::string> arguments{"--config=" + config_path()};
  arguments.insert(arguments.end(), more.begin(), more.end());
  start_with(arguments);
}

void AgentProcess::start_with(const std::vector<std::string>& more) { launch({}, more); }

void AgentProcess::start_without_capabilities() {
  launch({"setpriv", "--bounding-set=-all", "--inh-caps=-all"}, {"--config=" + config_path()});
}

void AgentProcess::start_with_capabilities(const std::vector<std::string>& capabilities,
                                           const std::vector<std::string>& more) {
  std::vector<std::string> arguments{"--config=" + config_path()};
  arguments.insert(arguments.end(), more.begin(), more.end());
  launch(confined_to(capabilities), arguments);
}

void AgentProcess::start_as_nobody() {
  std::filesystem::permissions(directory_, std::filesystem::perms::all);
  std::filesystem::permissions(config_path(), std::filesystem::perms(0644));
  launch({"setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"},
         {"--config=" + config_path()});
}

void AgentProcess::launch(const std::vector<std::string>& prefix,
                          const std::vector<std::string>& more) {
  // A test that is interrupted takes its agent with it (prctl(2), PR_SET_PDEATHSIG); what stays in
  // files and in the kernel is removed by the next test that starts (leftovers.h).
  std::vector<std::string> command = prefix;
  if (command.empty()) {
    command.emplace_back("setpriv");
  }
  command.insert(command.end(), {"--pdeathsig=KILL", binary(), "run", "--pin-root=" + pin_root_,
                                 "--socket=" + socket_path()});
  const auto is_web = [](const std::string& flag) { return flag.starts_with("--web."); };
  if (std::none_of(more.begin(), more.end(), is_web)) {
    command.emplace_back("--web.listen-address=127.0.0.1:0");
  }
  command.insert(command.end(), more.begin(), more.end());
  pid_ = spawn(command, (directory_ / "out").string(), (directory_ / "err").string());
  const auto limit = steady_clock::now() + std::chrono::seconds(10);
  while (steady_clock::now() < limit && state().is_null()) {
    if (wait_for_exit(milliseconds(0)) != -1) {
      return;
    }
    std::this_thread::sleep_for(milliseconds(10));
  }
}

void AgentProcess::kill() {
  ::kill(pid_, SIGKILL);
  (void)wait_for_exit(std::chrono::seconds(5));
}

int AgentProcess::terminate() {
  ::kill(pid_, SIGTERM);
  return wait_for_exit(std::chrono::seconds(5));
}

void AgentProcess::hang_up() { ::kill(pid_, SIGHUP); }

int AgentProcess::wait_for_exit(milliseconds limit) {
  const auto end = steady_clock::now() + limit;
  while (pid_ > 0) {
    int status = 0;
    if (::waitpid(pid_, &status, WNOHANG) == pid_) {
      pid_ = -1;
      return exit_status(status);
    }
    if (steady_clock::now() >= end) {
      break;
    }
    std::this_thread::sleep_for(milliseconds(2));
  }
  return -1;
}

nlohmann::json AgentProcess::state() const {
  const auto text = ControlClient(socket_path(), milliseconds(2000)).state();
  return text ? nlohmann::json::parse(*text, nullptr, false) : nlohmann::json();
}

nlohmann::json AgentProcess::target(const std::string& name) const {
  const nlohmann::json all = state();
  if (all.is_object()) {
    for (const auto& target : all.value("targets", nlohmann::json::array())) {
      if (target.value("name", "") == name) {
        return target;
      }
    }
  }
  return {};
}

std::string AgentProcess::log() const {
  return read_text(directory_ / "out") + read_text(directory_ / "err");
}

AgentProcess::Ran AgentProcess::run(const std::vector<std::string>& arguments) const {
  std::vector<std::string> all = arguments;
  all.push_back("--socket=" + socket_path());
  return run_headgate(all);
}

std::vector<std::string> confined_to(const std::vector<std::string>& capabilities) {
  std::string bounds = "--bounding-set=-all";
  for (const std::string& capability : capabilities) {
    bounds += ",+" + capability;
  }
  return {"setpriv", bounds, "--inh-caps=-all"};
}

AgentProcess::Ran run_headgate(const std::vector<std::string>& arguments) {
  std::vector<std::string> command{AgentProcess::binary()};
  command.insert(command.end(), arguments.begin(), arguments.end());
  return run_command(command);
}

AgentProcess::Ran run_command(const std::vector<std::string>& command) {
  const auto directory = make_directory();
  const pid_t pid = spawn(command, (directory / "out").string(), (directory / "err").string());
  int status = 0;
  ::waitpid(pid, &status, 0);
  AgentProcess::Ran ran{exit_status(status), read_text(directory / "out"),
                        read_text(directory / "err")};
  std::filesystem::remove_all(directory);
  return ran;
}

}  // namespace headgate::e2e
