// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "headgate/result.h"

#include "deploy/demo/collector.h"
#include "deploy/demo/net.h"
#include "deploy/demo/results.h"
#include "deploy/demo/stage.h"
#include "deploy/demo/subject.h"

namespace headgate::demo {

/// What the agent pins in bpffs, and the mount itself where the agent had to make it: removed on
/// destruction, as is what an earlier demo left that was killed.
class Pins {
 public:
  Pins();
  Pins(const Pins&) = delete;
  Pins& operator=(const Pins&) = delete;
  Pins(Pins&&) = delete;
  Pins& operator=(Pins&&) = delete;
  ~Pins();
  [[nodiscard]] const std::string& root() const { return root_; }

 private:
  std::string root_;
  bool was_mounted_;
};

/// Requests answered in the collector's place, all routes together, as /api/v1/state says; empty
/// where it does not.
[[nodiscard]] std::optional<std::uint64_t> refused_requests(const std::string& state_json);

/// `headgate run` on the collector's group, as a user would start it.
class HeadgateProcess {
 public:
  /// Returns when /readyz says so. Configuration and log go to `work_directory`.
  [[nodiscard]] static Result<HeadgateProcess> start(
      const std::string& binary, const Subject& subject, const Groups& groups, const Cgroup& target,
      const std::string& work_directory, const std::string& pin_root, const Protection& protection);

  /// Empty while it runs.
  [[nodiscard]] std::string failure();
  [[nodiscard]] HttpAnswer get(std::string_view path) const { return http_get(port_, path); }
  [[nodiscard]] double cpu_seconds() const;
  [[nodiscard]] std::uint64_t resident_bytes() const;

 private:
  HeadgateProcess(pid_t pid, std::uint16_t port, std::string log_file)
      : child_(pid, /*grace_ms=*/3000), port_(port), log_file_(std::move(log_file)) {}
  [[nodiscard]] Result<> wait_until_ready();

  Child child_;
  std::uint16_t port_;
  std::string log_file_;
  std::string failure_;
};

}  // namespace headgate::demo
