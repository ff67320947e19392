// SPDX-License-Identifier: Apache-2.0
// The composition root: which verb, with which parts. Everything else is below.
#include <algorithm>
#include <iostream>
#include <string>
#include <type_traits>
#include <variant>
#include <vector>

#include "agent/cli/check.h"
#include "agent/cli/classify.h"
#include "agent/cli/doctor.h"
#include "agent/cli/explain.h"
#include "agent/cli/failure.h"
#include "agent/cli/options.h"
#include "agent/cli/record.h"
#include "agent/cli/replay.h"
#include "agent/cli/report.h"
#include "agent/cli/simulate.h"
#include "agent/cli/status.h"
#include "agent/cli/switch.h"
#include "agent/cli/top.h"
#include "agent/cli/version.h"
#include "agent/dataplane/bpffs.h"
#include "agent/dataplane/kernel_maps.h"
#include "agent/run.h"
#include "agent/strategies/registry.h"
#include "agent/version.h"

namespace headgate {
namespace {

/// `off` and `on` without an agent: the cell is in a pinned map, and the kernel reads it alone.
Result<> switch_pinned(const std::string& pin_root, bool off) {
  const PinDirectory pins = PinDirectory::existing(pin_root);
  if (!pins.pinned()) {
    return fail("no agent runs and nothing of headgate is pinned below " + pin_root +
                ": nothing can refuse anything");
  }
  auto maps = KernelMaps::open(pins);
  if (!maps) {
    return tl::unexpected<Error>(maps.error());
  }
  (*maps)->set_off(off);
  return {};
}

int run_command(const Command& command) {
  return std::visit(
      [](const auto& options) -> int {
        using Options = std::decay_t<decltype(options)>;
        if constexpr (std::is_same_v<Options, HelpOptions>) {
          std::cout << options.text;
          return kExitOk;
        } else if constexpr (std::is_same_v<Options, RunOptions>) {
          return run_agent(options, std::cout, std::cerr);
        } else if constexpr (std::is_same_v<Options, CheckOptions>) {
          return run_check(options, strategies(), std::cout, std::cerr);
        } else if constexpr (std::is_same_v<Options, StatusOptions>) {
          return run_status(options, std::cout, std::cerr);
        } else if constexpr (std::is_same_v<Options, TopOptions>) {
          return run_top(options, std::cout, std::cerr);
        } else if constexpr (std::is_same_v<Options, ExplainOptions>) {
          return run_explain(options, strategies(), std::cout, std::cerr);
        } else if constexpr (std::is_same_v<Options, DoctorOptions>) {
          return run_doctor(options, std::cout, std::cerr);
        } else if constexpr (std::is_same_v<Options, SimulateOptions>) {
          return run_simulate(options, std::cout, std::cerr);
        } else if constexpr (std::is_same_v<Options, ReportOptions>) {
          return run_report(options, {kVersion, kRevision, kCompiler}, strategies(), std::cout,
                            std::cerr);
        } else if constexpr (std::is_same_v<Options, ReplayOptions>) {
          return run_replay(options, std::cout, std::cerr);
        } else if constexpr (std::is_same_v<Options, RecordOptions>) {
          return run_record(options, std::cout, std::cerr);
        } else if constexpr (std::is_same_v<Options, ClassifyOptions>) {
          return run_classify(options, strategies(), std::cout, std::cerr);
        } else if constexpr (std::is_same_v<Options, SwitchOptions>) {
          return run_switch(options, std::cout, std::cerr, switch_pinned);
        } else {
          static_assert(std::is_same_v<Options, VersionOptions>);
          return run_version(options, {kVersion, kRevision, kCompiler}, std::cout);
        }
      },
      command);
}

}  // namespace
}  // namespace headgate

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  const auto command = headgate::parse_command_line(arguments, headgate::read_environment());
  if (!command) {
    const bool json = std::find(arguments.begin(), arguments.end(), "--json") != arguments.end();
    std::cerr << "headgate: " << command.error().message << "\n";
    if (json) {
      std::cout << headgate::cli::error_json(command.error().message) << "\n";
    }
    return headgate::kExitUsage;
  }
  return headgate::run_command(*command);
}
