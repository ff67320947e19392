// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "agent/base/unique_fd.h"

namespace headgate::e2e {

/// All of a file; "" where it is not there.
[[nodiscard]] std::string read_text(const std::filesystem::path& path);

/// The real program with pins, socket, configuration and log of its own: agents of tests do not see
/// each other nor one that may run on the machine. Everything is removed at the end, pins first.
class AgentProcess {
 public:
  AgentProcess();
  AgentProcess(const AgentProcess&) = delete;
  AgentProcess& operator=(const AgentProcess&) = delete;
  ~AgentProcess();

  void write_config(const std::string& yaml) const;
  [[nodiscard]] std::string config_path() const { return (directory_ / "headgate.yaml").string(); }
  [[nodiscard]] std::string pin_root() const { return pin_root_; }
  /// Before start: the pins of another agent, as two agents on one node have them.
  void share_pins_of(const AgentProcess& other) { pin_root_ = other.pin_root_; }
  [[nodiscard]] std::string socket_path() const { return (directory_ / "headgate.sock").string(); }

  /// `headgate run --config ...`; returns when its socket answers or it has ended.
  void start(const std::vector<std::string>& more = {});
  /// `headgate run ARGUMENTS` as they are, pins and socket apart.
  void start_with(const std::vector<std::string>& arguments);
  /// The same by a root without any capability, as in a container that was given none.
  void start_without_capabilities();
  /// ... that was given these: "bpf", "net_admin" (setpriv(1)).
  void start_with_capabilities(const std::vector<std::string>& capabilities,
                               const std::vector<std::string>& more);
  /// By a user that is not root; it can reach socket and configuration.
  void start_as_nobody();
  void kill();      ///< kill -9
  int terminate();  ///< SIGTERM; returns the exit status, 128 + signal
  void hang_up();   ///< SIGHUP
  int wait_for_exit(std::chrono::milliseconds limit);
  [[nodiscard]] bool running() const { return pid_ > 0; }
  [[nodiscard]] pid_t pid() const { return pid_; }

  /// /api/v1/state as the socket gives it; null where nobody answers.
  [[nodiscard]] nlohmann::json state() const;
  /// One target of it, null where it is not there.
  [[nodiscard]] nlohmann::json target(const std::string& name) const;
  [[nodiscard]] std::string log() const;

  struct Ran {
    int status = 0;
    std::string out;
    std::string err;
  };
  /// Another verb, with this agent's socket: run("status", "--json").
  [[nodiscard]] Ran run(const std::vector<std::string>& arguments) const;

  [[nodiscard]] static const char* binary();

 private:
  void launch(const std::vector<std::string>& prefix, const std::vector<std::string>& more);

  std::filesystem::path directory_;
  std::string pin_root_;
  pid_t pid_ = -1;
};

/// setpriv(1) and what it takes to be a root with these capabilities only.
[[nodiscard]] std::vector<std::string> confined_to(const std::vector<std::string>& capabilities);
/// Runs a command, found by PATH, with its arguments.
[[nodiscard]] AgentProcess::Ran run_command(const std::vector<std::string>& command);
/// Runs the program with these arguments only.
[[nodiscard]] AgentProcess::Ran run_headgate(const std::vector<std::string>& arguments);

}  // namespace headgate::e2e
