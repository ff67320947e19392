// SPDX-License-Identifier: Apache-2.0
#include "agent/sim/plot.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <string_view>

#include <fmt/format.h>

#include "agent/base/markup.h"

namespace headgate::sim {
namespace {

// Pixels.
constexpr double kPanelWidth = 330;
constexpr double kPanelHeight = 130;
constexpr double kGap = 62;  ///< between panels: room for the numbers of the axis
constexpr double kTitle = 40;
constexpr double kAxis = 34;
constexpr double kLegend = 34;
constexpr double kRowHeight = kTitle + kPanelHeight + kAxis;
constexpr double kMargin = 56;
constexpr double kWidth = kMargin + 3 * kPanelWidth + 2 * kGap + 24;

// Colours that most people can tell apart (Okabe and Ito).
constexpr std::string_view kOffered = "#999999";
constexpr std::string_view kAdmitted = "#009e73";
constexpr std::string_view kCapacity = "#000000";
constexpr std::string_view kCpu = "#0072b2";
constexpr std::string_view kMemory = "#cc79a7";
constexpr std::string_view kRefused = "#d55e00";
constexpr std::string_view kBacklog = "#e69f00";

/// More of what is offered than this times the capacity is cut off: else nothing else can be seen.
constexpr double kMostOfCapacity = 4;

/// A round number not below `value`: 1, 2 or 5 times a power of ten.
double round_up(double value) {
  if (!(value > 0)) return 1;
  const double power = std::pow(10, std::floor(std::log10(value)));
  for (const double factor : {1., 2., 5.}) {
    if (value <= factor * power * (1 + 1e-9)) return factor * power;
  }
  return 10 * power;
}

using Series = std::function<double(const Window&)>;

class Panel {
 public:
  Panel(double left, double top, double duration_s, double most, std::string& out)
      : left_(left), top_(top), duration_s_(duration_s), most_(most), out_(out) {
    out_ += fmt::format(
        "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" fill=\"#fafafa\" "
        "stroke=\"#cccccc\"/>\n",
        left_, top_, kPanelWidth, kPanelHeight);
    for (const double part : {0., 0.5, 1.}) {
      const double y = y_of(part * most_);
      if (part == 0.5) {
        out_ += fmt::format(
            "<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"#e5e5e5\"/>\n",
            left_, y, left_ + kPanelWidth, y);
      }
      out_ += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"end\">{:g}</text>\n",
                          left_ - 5, y + 4, part * most_);
    }
    const double step_s = round_up(duration_s_ / 6);
    for (double at_s = 0; at_s <= duration_s_ * (1 + 1e-9); at_s += step_s) {
      out_ += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">{:g}</text>\n",
                          x_of(at_s), top_ + kPanelHeight + 14, at_s);
    }
    out_ += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">s</text>\n",
                        left_ + kPanelWidth, top_ + kPanelHeight + 26);
  }

  void label(std::string_view text) {
    out_ += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" class=\"p\">{}</text>\n", left_, top_ - 5,
                        escape_markup(text));
  }
  void overload(double from_s, double to_s) {
    const double right = std::min(to_s, duration_s_);
    if (from_s < 0 || right <= from_s) return;
    out_ += fmt::format(
        "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" fill=\"#fff1d6\"/>\n",
        x_of(from_s), top_, x_of(right) - x_of(from_s), kPanelHeight);
  }
  void level(double value, std::string_view color) {
    if (value > most_) return;
    out_ += fmt::format(
        "<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"{}\" "
        "stroke-dasharray=\"4 3\"/>\n",
        left_, y_of(value), left_ + kPanelWidth, y_of(value), color);
  }
  void line(std::span<const Window> windows, const Series& series, std::string_view color) {
    out_ += "<polyline points=\"" + points(windows, series) +
            fmt::format("\" fill=\"none\" stroke=\"{}\" stroke-width=\"1.2\"/>\n", color);
  }
  void area(std::span<const Window> windows, const Series& series, std::string_view color) {
    if (windows.empty()) return;
    out_ += fmt::format("<polygon points=\"{:.1f},{:.1f} ", x_of(windows.front().end_s), y_of(0)) +
            points(windows, series) +
            fmt::format(" {:.1f},{:.1f}\" fill=\"{}\" fill-opacity=\"0.35\"/>\n",
                        x_of(windows.back().end_s), y_of(0), color);
  }

 private:
  [[nodiscard]] double x_of(double at_s) const { return left_ + kPanelWidth * at_s / duration_s_; }
  [[nodiscard]] double y_of(double value) const {
    return top_ + kPanelHeight * (1 - std::clamp(value / most_, 0.0, 1.0));
  }
  [[nodiscard]] std::string points(std::span<const Window> windows, const Series& series) const {
    std::string text;
    for (const Window& w : windows) {
      text += fmt::format("{:.1f},{:.1f} ", x_of(w.end_s), y_of(series(w)));
    }
    return text;
  }

  double left_, top_, duration_s_, most_;
  std::string& out_;
};

double most(std::span<const Window> windows, const Series& series) {
  double out = 0;
  for (const Window& w : windows) out = std::max(out, series(w));
  return out;
}

void draw_row(const PlotRow& row, double top, std::string& out) {
  const Scenario& s = *row.scenario;
  const Series offered = [](const Window& w) { return w.offered_cores; };
  const Series admitted = [](const Window& w) { return w.admitted_cores; };
  const Series cpu = [](const Window& w) { return w.cpu; };
  const Series memory = [](const Window& w) { return w.memory; };
  const Series refused = [](const Window& w) { return w.refused_share; };
  const Series backlog = [&](const Window& w) { return w.backlog_s / s.capacity_cores; };

  const Metrics& m = row.metrics;
  out += fmt::format(
      "<text x=\"{:.1f}\" y=\"{:.1f}\" class=\"t\">{}, {}</text>\n"
      "<text x=\"{:.1f}\" y=\"{:.1f}\">goodput {:.3f}, p99 {:.0f} ms, peak backlog {:.2f} s, "
      "danger {:.1f} s, refused {:.1f} %, kills {}</text>\n",
      kMargin, top + 12, escape_markup(s.name), escape_markup(row.contender), kMargin + 260,
      top + 12, m.goodput, m.p99_delay_ms, m.peak_backlog_s / s.capacity_cores, m.danger_s,
      100 * m.refused_share, m.oom_kills);

  const double panel_top = top + kTitle;
  const double peak = std::max(most(row.windows, offered), most(row.windows, admitted));
  const double top_cores = round_up(std::min(peak, kMostOfCapacity * s.capacity_cores));
  Panel work(kMargin, panel_top, s.duration_s, std::max(top_cores, s.capacity_cores), out);
  work.overload(s.overload_from_s, s.overload_to_s);
  work.label(peak > top_cores ? fmt::format("work, cores (offered up to {:.3g})", peak)
                              : "work, cores");
  work.area(row.windows, offered, kOffered);
  work.line(row.windows, admitted, kAdmitted);
  work.level(s.capacity_cores, kCapacity);

  Panel state(kMargin + kPanelWidth + kGap, panel_top, s.duration_s, 1.25, out);
  state.overload(s.overload_from_s, s.overload_to_s);
  state.label("share of the limit, share refused");
  state.area(row.windows, refused, kRefused);
  state.line(row.windows, cpu, kCpu);
  state.line(row.windows, memory, kMemory);
  state.level(1, kCapacity);

  Panel queue(kMargin + 2 * (kPanelWidth + kGap), panel_top, s.duration_s,
              round_up(std::max(0.05, most(row.windows, backlog))), out);
  queue.overload(s.overload_from_s, s.overload_to_s);
  queue.label("backlog, seconds of capacity");
  queue.area(row.windows, backlog, kBacklog);
}

void draw_legend(std::string& out) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 7> kEntries{{
      {"offered", kOffered},
      {"admitted", kAdmitted},
      {"limit", kCapacity},
      {"refused", kRefused},
      {"CPU", kCpu},
      {"memory", kMemory},
      {"backlog", kBacklog},
  }};
  double x = kMargin;
  for (const auto& [name, color] : kEntries) {
    out += fmt::format(
        "<rect x=\"{:.1f}\" y=\"10\" width=\"14\" height=\"8\" fill=\"{}\"/>"
        "<text x=\"{:.1f}\" y=\"18\">{}</text>\n",
        x, color, x + 19, name);
    x += 92;
  }
  out += fmt::format(
      "<rect x=\"{:.1f}\" y=\"10\" width=\"14\" height=\"8\" fill=\"#fff1d6\"/>"
      "<text x=\"{:.1f}\" y=\"18\">overload</text>\n",
      x, x + 19);
}

}  // namespace

std::string plot_svg(std::span<const PlotRow> rows) {
  const double height = kLegend + kRowHeight * static_cast<double>(rows.size());
  std::string out = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" height=\"{1:.0f}\" "
      "viewBox=\"0 0 {0:.0f} {1:.0f}\">\n"
      "<style>text{{font:11px sans-serif;fill:#333}}.t{{font-weight:bold;font-size:13px}}"
      ".p{{fill:#666}}</style>\n"
      "<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n",
      kWidth, height);
  draw_legend(out);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    draw_row(rows[i], kLegend + kRowHeight * static_cast<double>(i), out);
  }
  return out + "</svg>\n";
}

std::string plot_html(std::span<const PlotRow> rows) {
  return "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
         "<title>headgate simulate</title></head>\n<body>\n" +
         plot_svg(rows) + "</body></html>\n";
}

}  // namespace headgate::sim
