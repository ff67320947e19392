// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <vector>

#include "agent/sim/meter.h"
#include "agent/sim/scenario.h"

namespace headgate::sim {

/// One run to draw.
struct PlotRow {
  const Scenario* scenario = nullptr;
  std::string contender;
  Metrics metrics;
  std::vector<Window> windows;
};

/// A self-contained SVG: a row a run, with what was offered, admitted and could be done; CPU,
/// memory and what was refused; and the backlog over time.
[[nodiscard]] std::string plot_svg(std::span<const PlotRow> rows);
/// The same within a page of HTML.
[[nodiscard]] std::string plot_html(std::span<const PlotRow> rows);

}  // namespace headgate::sim
