// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "deploy/demo/director.h"
#include "deploy/demo/results.h"

namespace headgate::demo {

/// What ended in one second of a run.
struct Second {
  double t_s = 0;  ///< its end
  std::uint64_t offered = 0, served = 0, refused = 0;
  std::uint64_t failed = 0;  ///< timed out, cut off, or answered by an error
  std::optional<double> p99_s;
};

/// The runs as they go: a line a second on standard output.
class Live {
 public:
  Live();
  void announce(std::string_view text);
  void begin(const Run& run);
  void show(const Run& run, const Second& second, const Limits& limits);

 private:
  bool colour_ = false;
  std::string phase_;
};

/// The closing table, both runs side by side, and the verdict; for a terminal.
void print_table(const Outcomes& outcomes, const Verdict& verdict, const Limits& limits);

/// One page without anything from outside.
[[nodiscard]] std::string html_report(const Outcomes& outcomes, const Verdict& verdict,
                                      const Options& options);

/// {"schema": 1, verdict, checks, calibration, runs: {without, with: {phases: [..]}}}
[[nodiscard]] std::string json_report(const Outcomes& outcomes, const Verdict& verdict,
                                      const Options& options);

}  // namespace headgate::demo
