// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <span>
#include <string>
#include <string_view>

#include "headgate/strategy.h"

namespace headgate::test {

/// A table of strategies with one parameter of each kind, so that the tests of the configuration
/// do not change with the laws.
inline std::span<const StrategyInfo> strategy_table() {
  using Kind = ParamSpec::Kind;
  static constexpr std::array<std::string_view, 3> kSignals{"cpu_slow", "cpu_fast", "memory"};
  static constexpr std::array kGraded{
      ParamSpec{.name = "enter", .kind = Kind::kRatio, .default_value = 0.8, .doc = "Level."},
      ParamSpec{.name = "exit", .kind = Kind::kRatio, .default_value = 0.7, .doc = "Level."},
      ParamSpec{.name = "hold",
                .kind = Kind::kDuration,
                .default_value = 0.57,
                .minimum = 0.1,
                .maximum = 60,
                .doc = "Time."},
      ParamSpec{.name = "consecutive",
                .kind = Kind::kCount,
                .default_value = 2,
                .minimum = 1,
                .maximum = 1000000000,
                .doc = "Ticks."}};
  static constexpr std::array kAdaptive{ParamSpec{.name = "drain",
                                                  .kind = Kind::kDuration,
                                                  .default_value = 0.2,
                                                  .minimum = 0.1,
                                                  .maximum = 1,
                                                  .doc = "Time."}};
  static constexpr std::array kCurve{ParamSpec{.name = "signal",
                                               .kind = Kind::kWord,
                                               .doc = "Signal.",
                                               .default_word = "cpu_slow",
                                               .words = kSignals}};
  static constexpr std::array kFixed{
      ParamSpec{.name = "admit", .kind = Kind::kRatio, .default_value = 1, .doc = "Share."}};
  static const std::array kTable = [] {
    std::array<StrategyInfo, 7> table;
    table[0].name = "adaptive";
    table[0].doc = "Learns.";
    table[0].params = kAdaptive;
    table[1].name = "graded";
    table[1].doc = "Three states.";
    table[1].params = kGraded;
    table[1].check = [](const Params& params) -> std::string {
      return params.numbers.at("exit") >= params.numbers.at("enter") ? "exit must be below enter"
                                                                     : "";
    };
    table[2].name = "curve";
    table[2].doc = "A level to a share.";
    table[2].params = kCurve;
    table[2].takes_points = true;
    table[3].name = "fixed";
    table[3].doc = "A constant share.";
    table[3].params = kFixed;
    table[4].name = "hybrid";
    table[4].doc = "First hit.";
    table[5].name = "codel";
    table[5].doc = "Judges by requests.";
    table[5].needs_requests = true;
    table[5].instead = "graded";
    table[6].name = "oracle";
    table[6].doc = "Not built.";
    table[6].built = false;
    table[6].instead = "graded";
    return table;
  }();
  return kTable;
}

}  // namespace headgate::test
