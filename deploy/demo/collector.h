// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "headgate/result.h"

#include "deploy/demo/cgroup.h"
#include "deploy/demo/results.h"
#include "deploy/demo/stage.h"
#include "deploy/demo/subject.h"

namespace headgate::demo {

/// What everything of this demo on the machine is named: kPrefix and the process id.
inline constexpr std::string_view kPrefix = "headgate-demo-";

/// The groups that live as long as the demo.
struct Groups {
  CgroupRoots roots;
  RootControllers controllers;
  Cgroup parent;
  Cgroup clients;
  Cgroup agent;

  [[nodiscard]] static Result<Groups> create();
};

/// The collector in its namespace and group, under a supervisor that starts it again a second after
/// it has died.
class Collector {
 public:
  /// Returns when it accepts connections. Its output goes to `log_file`.
  [[nodiscard]] static Result<Collector> start(const Subject& subject, const Groups& groups,
                                               const Limits& limits, std::string log_file);

  [[nodiscard]] const Network& network() const { return network_; }
  [[nodiscard]] const Cgroup& group() const { return group_; }
  [[nodiscard]] const std::vector<Restart>& restarts() const { return restarts_; }

  /// Notices a death, and starts it again when its time has come. `t_s`: seconds of the run.
  [[nodiscard]] Result<> supervise(double t_s);
  [[nodiscard]] Sample sample(double t_s) const;

 private:
  Collector(Network network, Cgroup group, Spawn spawn_this)
      : network_(std::move(network)), group_(std::move(group)), spawn_(std::move(spawn_this)) {}
  [[nodiscard]] Result<> launch();
  [[nodiscard]] Result<> wait_for(std::uint16_t port);

  // The child goes first, then its group, then its namespace: reverse order of declaration.
  Network network_;
  Cgroup group_;
  Spawn spawn_;
  Child child_;
  std::vector<Restart> restarts_;
  std::uint64_t oom_kills_ = 0;
  double start_at_s_ = 0;
};

/// The end of a log, for an error message.
[[nodiscard]] std::string last_lines(const std::string& file, std::size_t count);

}  // namespace headgate::demo
