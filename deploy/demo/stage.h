// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <netinet/in.h>
#include <sys/types.h>

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "headgate/result.h"

#include "agent/base/unique_fd.h"

namespace headgate::demo {

/// Two network namespaces joined by a veth pair: the collector's and the clients'. They have no
/// name and no file: the kernel removes them with the last process and descriptor, however the
/// demo ends. The main namespace is not touched.
class Network {
 public:
  [[nodiscard]] static Result<Network> create();
  [[nodiscard]] int collector_fd() const { return collector_.get(); }
  [[nodiscard]] int clients_fd() const { return clients_.get(); }
  [[nodiscard]] static std::string_view server_address() { return "10.77.0.1"; }
  [[nodiscard]] static const std::vector<std::string>& client_addresses();

 private:
  Network() = default;
  UniqueFd collector_;
  UniqueFd clients_;
};

/// Runs `work` with this (single-threaded) process in the namespace, and comes back.
[[nodiscard]] Result<> within_netns(int netns_fd, const std::function<Result<>()>& work);

struct Spawn {
  std::vector<std::string> argv;         ///< argv[0] is looked up in PATH
  std::vector<std::string> environment;  ///< beside PATH
  std::function<int()> function;  ///< instead of argv: runs in the child, its value is the status
  std::vector<std::string> procs_files;  ///< groups to join before anything else
  int netns_fd = -1;
  std::string log_file;  ///< stdout and stderr; empty = the demo's own
  int nice = 0;
};

/// Starts a child in its own session (Ctrl-C of the terminal reaches the demo alone) that dies with
/// the demo. It is in its groups and namespace before it runs an instruction of its own: a listener
/// belongs to the group in which it was opened.
[[nodiscard]] Result<pid_t> spawn(const Spawn& what);

/// A child that is stopped (SIGTERM, after `grace_ms` SIGKILL) and reaped on destruction.
class Child {
 public:
  Child() = default;
  explicit Child(pid_t pid, int grace_ms = 0) : pid_(pid), grace_ms_(grace_ms) {}
  Child(Child&& other) noexcept;
  Child& operator=(Child&& other) noexcept;
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child() { stop(); }

  [[nodiscard]] pid_t pid() const { return pid_; }
  [[nodiscard]] bool running() const { return pid_ > 0; }
  /// True once it has ended; its wait status is then kept.
  [[nodiscard]] bool reap();
  [[nodiscard]] int status() const { return status_; }
  void stop();

 private:
  pid_t pid_ = -1;
  int grace_ms_ = 0;
  int status_ = 0;
};

/// "killed by signal 9", "exited with status 1".
[[nodiscard]] std::string describe_status(int status);

/// Runs a command to its end; an error carries its output.
[[nodiscard]] Result<> run_command(const std::vector<std::string>& argv);

}  // namespace headgate::demo
