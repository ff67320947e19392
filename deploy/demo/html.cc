// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "agent/base/markup.h"
#include "deploy/demo/report.h"

namespace headgate::demo {
namespace {

constexpr double kWidth = 620;
constexpr double kLeft = 46;
constexpr double kRight = 8;
constexpr double kTop = 22;
constexpr double kBottom = 22;
constexpr double kPlot = 130;

struct Point {
  double x = 0;
  std::optional<double> y;  ///< empty = a gap
};

struct Series {
  std::string css;  ///< class of the line, "served"
  std::vector<Point> points;
  bool filled = false;
};

/// A vertical axis: how values map to [0, 1], and where the labels stand.
struct Axis {
  std::function<double(double)> place;
  std::vector<std::pair<double, std::string>> ticks;
};

/// A horizontal line with a word on it.
struct Mark {
  double y = 0;
  std::string text;
};

struct Chart {
  std::string title;
  std::string unit;
  Axis axis;
  std::vector<Mark> marks;
  std::function<std::vector<Series>(const Run&)> series;
  std::vector<std::pair<std::string, std::string>> legend;  ///< class, word
};

double nice_ceiling(double value) {
  const double power = std::pow(10, std::floor(std::log10(std::max(value, 1e-9))));
  for (const double step : {1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 8.0, 10.0}) {
    if (step * power >= value) {
      return step * power;
    }
  }
  return 10 * power;
}

Axis linear_axis(double top, const std::function<std::string(double)>& label) {
  Axis axis;
  axis.place = [top](double v) { return v / top; };
  for (int i = 0; i <= 4; ++i) {
    const double v = top * i / 4;
    axis.ticks.emplace_back(v, label(v));
  }
  return axis;
}

std::string plain(double v) {
  return v >= 10'000         ? fmt::format("{:.0f}k", v / 1000)
         : v >= 10 || v == 0 ? fmt::format("{:.0f}", v)
                             : fmt::format("{:g}", v);
}

/// Requests in steps of half a second: those offered by their time, the rest by when they ended.
std::vector<Point> rate_of(const Run& run, const std::function<bool(Outcome)>& counts,
                           bool by_arrival, bool critical_only = false) {
  constexpr double kStep_s = 0.5;
  const double length_s = total_seconds(run.phases);
  std::vector<double> bins(static_cast<std::size_t>(std::ceil(length_s / kStep_s)), 0.0);
  for (std::size_t i = 0; i < run.arrivals.size(); ++i) {
    if (!counts(run.requests[i].outcome) || (critical_only && !run.arrivals[i].critical)) {
      continue;
    }
    const double t_s = run.arrivals[i].at_us / 1e6 + (by_arrival ? 0 : run.requests[i].latency_s);
    const auto bin = static_cast<std::size_t>(t_s / kStep_s);
    if (bin < bins.size()) {
      bins[bin] += 1 / kStep_s;
    }
  }
  std::vector<Point> points;
  for (std::size_t b = 0; b < bins.size(); ++b) {
    points.push_back({(static_cast<double>(b) + 0.5) * kStep_s, bins[b]});
  }
  return points;
}

std::vector<Point> latency_of(const Run& run, double q, double deadline_s) {
  const auto seconds = static_cast<std::size_t>(std::ceil(total_seconds(run.phases)));
  std::vector<std::vector<double>> bins(seconds);
  for (std::size_t i = 0; i < run.arrivals.size(); ++i) {
    const Outcome o = run.requests[i].outcome;
    if (o == Outcome::kRefused || o == Outcome::kNotSent || o == Outcome::kLocal) {
      continue;
    }
    const auto bin = static_cast<std::size_t>(run.arrivals[i].at_us / 1'000'000);
    if (bin < bins.size()) {
      bins[bin].push_back(o == Outcome::kOk ? run.requests[i].latency_s : deadline_s);
    }
  }
  std::vector<Point> points;
  for (std::size_t b = 0; b < bins.size(); ++b) {
    points.push_back({static_cast<double>(b) + 0.5, quantile(bins[b], q)});
  }
  return points;
}

std::vector<Point> of_samples(const Run& run, const std::function<double(const Sample&)>& value) {
  std::vector<Point> points;
  const double length_s = total_seconds(run.phases);
  for (const Sample& s : run.samples) {
    if (s.t_s >= 0 && s.t_s <= length_s) {
      points.push_back({s.t_s, value(s)});
    }
  }
  return points;
}

/// Over the half second before each point.
std::vector<Point> cpu_of(const Run& run, double quota_cores) {
  std::vector<Point> points;
  const double length_s = total_seconds(run.phases);
  for (std::size_t i = 5; i < run.samples.size(); ++i) {
    const Sample& a = run.samples[i - 5];
    const Sample& b = run.samples[i];
    if (b.t_s <= length_s && b.t_s > a.t_s) {
      points.push_back({b.t_s, static_cast<double>(b.usage_ns - a.usage_ns) / 1e9 /
                                   (b.t_s - a.t_s) / quota_cores});
    }
  }
  return points;
}

std::string path_of(const std::vector<Point>& points, const std::function<double(double)>& x,
                    const std::function<double(double)>& y, double floor_y, bool area) {
  std::string d;
  bool down = false;
  double last_x = 0;
  const auto close = [&] {
    if (area && down) {
      fmt::format_to(std::back_inserter(d), "L{:.1f} {:.1f}Z", last_x, floor_y);
    }
    down = false;
  };
  for (const Point& p : points) {
    if (!p.y) {
      close();
      continue;
    }
    const double px = x(p.x);
    if (!down && area) {
      fmt::format_to(std::back_inserter(d), "M{:.1f} {:.1f}L{:.1f} {:.1f}", px, floor_y, px,
                     y(*p.y));
    } else {
      fmt::format_to(std::back_inserter(d), "{}{:.1f} {:.1f}", down ? 'L' : 'M', px, y(*p.y));
    }
    down = true;
    last_x = px;
  }
  close();
  return d;
}

std::string svg(const Chart& chart, const Run& run) {
  const double length_s = total_seconds(run.phases);
  const auto x = [&](double t_s) { return kLeft + t_s / length_s * (kWidth - kLeft - kRight); };
  const auto y = [&](double value) {
    return kTop + kPlot * (1 - std::clamp(chart.axis.place(value), 0.0, 1.0));
  };
  std::string out;
  const auto put = [&]<class... T>(fmt::format_string<T...> format, T&&... args) {
    fmt::format_to(std::back_inserter(out), format, std::forward<T>(args)...);
  };
  put("<svg viewBox=\"0 0 {:.0f} {:.0f}\" role=\"img\" aria-label=\"{}, {}\">", kWidth,
      kTop + kPlot + kBottom, escape_markup(chart.title),
      run.with_headgate ? "with Headgate" : "without Headgate");
  double begin_s = 0;
  for (const Phase& p : run.phases) {
    const double from = x(begin_s);
    const double to = x(begin_s + p.seconds);
    const char* kind = p.kind == PhaseKind::kCalm       ? "calm"
                       : p.kind == PhaseKind::kOverload ? "overload"
                                                        : "cost";
    // A band is narrow.
    const std::string label = p.kind == PhaseKind::kCost   ? "4x cost"
                              : p.kind == PhaseKind::kJump ? "2 MB"
                              : p.kind == PhaseKind::kCalm ? "60 %"
                                                           : p.label;
    put("<rect class=\"band {}\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\"/>"
        "<text class=\"phase\" x=\"{:.1f}\" y=\"{:.1f}\">{}</text>",
        kind, from, kTop, to - from, kPlot, (from + to) / 2, kTop - 7, escape_markup(label));
    begin_s += p.seconds;
  }
  for (const auto& [value, label] : chart.axis.ticks) {
    put("<line class=\"grid\" x1=\"{:.1f}\" x2=\"{:.1f}\" y1=\"{:.1f}\" y2=\"{:.1f}\"/>"
        "<text class=\"tick\" x=\"{:.1f}\" y=\"{:.1f}\">{}</text>",
        kLeft, kWidth - kRight, y(value), y(value), kLeft - 6, y(value) + 3.5,
        escape_markup(label));
  }
  for (double t = 0; t <= length_s + 0.01; t += length_s > 40 ? 10 : length_s > 15 ? 5 : 1) {
    put("<text class=\"time\" x=\"{:.1f}\" y=\"{:.1f}\">{:.0f} s</text>", x(t), kTop + kPlot + 15,
        t);
  }
  for (const Series& s : chart.series(run)) {
    if (s.filled) {
      put("<path class=\"area {}\" d=\"{}\"/>", s.css, path_of(s.points, x, y, kTop + kPlot, true));
    }
    put("<path class=\"line {}\" d=\"{}\"/>", s.css, path_of(s.points, x, y, kTop + kPlot, false));
  }
  for (const Restart& r : run.restarts) {
    if (r.t_s < 0 || r.t_s > length_s) {
      continue;
    }
    put("<g class=\"restart\"><title>{:.1f} s: {}, started again</title><line x1=\"{:.1f}\" "
        "x2=\"{:.1f}\" y1=\"{:.1f}\" y2=\"{:.1f}\"/><path d=\"M{:.1f} {:.1f}l-5 -8h10z\"/></g>",
        r.t_s, r.oom ? "killed, out of memory" : escape_markup(r.how), x(r.t_s), x(r.t_s), kTop,
        kTop + kPlot, x(r.t_s), kTop + 8);
  }
  for (const Mark& mark : chart.marks) {
    put("<line class=\"mark\" x1=\"{:.1f}\" x2=\"{:.1f}\" y1=\"{:.1f}\" y2=\"{:.1f}\"/>"
        "<text class=\"marktext\" x=\"{:.1f}\" y=\"{:.1f}\">{}</text>",
        kLeft, kWidth - kRight, y(mark.y), y(mark.y), kLeft + 5, y(mark.y) - 4,
        escape_markup(mark.text));
  }
  out += "</svg>";
  return out;
}

std::vector<Chart> charts(const Outcomes& outcomes, const Options& options) {
  const double capacity = outcomes.calibration.capacity_per_s;
  const Limits& limits = options.limits;
  double most_offered = capacity;
  double most_sockets = 100;
  double critical_per_s = 0;
  for (const auto* run : {&outcomes.unprotected, &outcomes.with_headgate}) {
    if (*run) {
      for (const Phase& p : (*run)->phases) {
        most_offered = std::max(most_offered, p.rate_per_s);
        critical_per_s = std::max(critical_per_s, p.critical_per_s);
      }
      for (const Sample& s : (*run)->samples) {
        most_sockets = std::max(most_sockets, static_cast<double>(s.sockets));
      }
    }
  }
  std::vector<Chart> all;

  Chart requests;
  requests.title = "Requests";
  requests.unit = "per second, square-root scale";
  const double top = most_offered * 1.12;
  requests.axis.place = [top](double v) { return std::sqrt(std::max(0.0, v) / top); };
  for (const double v : {0.0, 0.04, 0.16, 0.36, 0.64, 1.0}) {
    const double tick = v == 0 ? 0 : nice_ceiling(v * most_offered * 0.9);
    requests.axis.ticks.emplace_back(tick, plain(tick));
  }
  requests.series = [](const Run& run) {
    const auto is = [](std::initializer_list<Outcome> wanted) {
      return [w = std::vector<Outcome>(wanted)](Outcome o) {
        return std::find(w.begin(), w.end(), o) != w.end();
      };
    };
    return std::vector<Series>{{"offered",
                                rate_of(
                                    run, [](Outcome o) { return o != Outcome::kNotSent; }, true),
                                true},
                               {"refused", rate_of(run, is({Outcome::kRefused}), false), false},
                               {"failed",
                                rate_of(run,
                                        is({Outcome::kConnectTimeout, Outcome::kAnswerTimeout,
                                            Outcome::kReset, Outcome::kHttpError}),
                                        false),
                                false},
                               {"served", rate_of(run, is({Outcome::kOk}), false), false}};
  };
  requests.legend = {{"offered", "offered"},
                     {"served", "served"},
                     {"refused", "refused at once"},
                     {"failed", "timed out or cut off"}};
  all.push_back(std::move(requests));

  Chart served;
  served.title = "Served";
  served.unit = "requests per second that got their answer in time";
  served.axis = linear_axis(nice_ceiling(capacity * 1.4), plain);
  served.marks = {{capacity, fmt::format("capacity {:.0f}/s", capacity)}};
  served.series = [](const Run& run) {
    return std::vector<Series>{{"served",
                                rate_of(
                                    run, [](Outcome o) { return o == Outcome::kOk; }, false),
                                true}};
  };
  all.push_back(std::move(served));

  if (critical_per_s > 0) {
    Chart critical;
    critical.title = "Critical route";
    critical.unit = "requests per second offered and served";
    critical.axis = linear_axis(nice_ceiling(critical_per_s * 1.6), plain);
    critical.series = [](const Run& run) {
      return std::vector<Series>{
          {"offered",
           rate_of(
               run, [](Outcome o) { return o != Outcome::kNotSent; }, true, /*critical=*/true),
           true},
          {"served",
           rate_of(
               run, [](Outcome o) { return o == Outcome::kOk; }, false, /*critical=*/true),
           false}};
    };
    critical.legend = {{"offered", "offered"}, {"served", "served"}};
    all.push_back(std::move(critical));
  }

  Chart latency;
  latency.title = "Response time of what was let in";
  latency.unit = "logarithmic scale";
  latency.axis.place = [deadline = limits.deadline_s](double s) {
    return std::log(std::max(s, 1e-3) / 1e-3) / std::log(deadline * 1.6 / 1e-3);
  };
  latency.axis.ticks = {{1e-3, "1 ms"}, {1e-2, "10 ms"}, {1e-1, "100 ms"}, {1, "1 s"}};
  latency.marks = {
      {limits.deadline_s, fmt::format("clients give up after {:g} s", limits.deadline_s)}};
  latency.series = [deadline = limits.deadline_s](const Run& run) {
    return std::vector<Series>{{"p50", latency_of(run, 0.5, deadline), false},
                               {"p99", latency_of(run, 0.99, deadline), false}};
  };
  latency.legend = {{"p50", "median"}, {"p99", "99th percentile"}};
  all.push_back(std::move(latency));

  Chart cpu;
  cpu.title = "CPU of the collector";
  cpu.unit = "of its quota";
  cpu.axis = linear_axis(1.2, [](double v) { return fmt::format("{:.0f} %", v * 100); });
  cpu.axis.ticks = {{0, "0 %"}, {0.25, "25 %"}, {0.5, "50 %"}, {0.75, "75 %"}, {1, "100 %"}};
  cpu.series = [quota = limits.cpu_cores](const Run& run) {
    return std::vector<Series>{{"cpu", cpu_of(run, quota), true}};
  };
  all.push_back(std::move(cpu));

  Chart memory;
  memory.title = "Memory of the collector";
  memory.unit = "MiB";
  const double limit_mib = static_cast<double>(limits.memory_bytes) / (1 << 20);
  memory.axis = linear_axis(limit_mib * 1.25, plain);
  memory.axis.ticks.resize(0);
  for (int i = 0; i <= 4; ++i) {
    memory.axis.ticks.emplace_back(limit_mib * i / 4, plain(limit_mib * i / 4));
  }
  memory.marks = {{limit_mib, fmt::format("limit {:.0f} MiB", limit_mib)}};
  memory.series = [](const Run& run) {
    return std::vector<Series>{
        {"memory",
         of_samples(
             run, [](const Sample& s) { return static_cast<double>(s.memory_bytes) / (1 << 20); }),
         true}};
  };
  memory.legend = {{"restart", "died, started again"}};
  all.push_back(std::move(memory));

  Chart sockets;
  sockets.title = "Connections the collector holds";
  sockets.unit = "its backlog: clients waiting, and clients that have given up";
  sockets.axis = linear_axis(nice_ceiling(most_sockets), plain);
  sockets.series = [](const Run& run) {
    return std::vector<Series>{
        {"sockets", of_samples(run, [](const Sample& s) { return static_cast<double>(s.sockets); }),
         true}};
  };
  all.push_back(std::move(sockets));
  return all;
}

std::string latency_cell(std::optional<double> s, double deadline_s) {
  return !s                 ? std::string("–")
         : *s >= deadline_s ? fmt::format("&gt; {:g} s", deadline_s)
                            : fmt::format("{:.0f} ms", *s * 1e3);
}

constexpr std::string_view kStyle = R"css(
:root{color-scheme:light dark;--bg:#fbfbfa;--panel:#fff;--ink:#1c1f23;--soft:#667079;--line:#dfe2e5;
--overload:#f7dfd6;--cost:#f4e8c4;--calm:#f3f5f6;--served:#1877c9;--offered:#9aa3ab;--refused:#c98200;
--failed:#cf3b2e;--cpu:#6a58c2;--memory:#0f8577;--sockets:#8a5a33;--good:#17803d;--bad:#c22b1f;--doubt:#a86a00}
@media(prefers-color-scheme:dark){:root{--bg:#14171a;--panel:#1c2024;--ink:#e8eaec;--soft:#98a2ab;
--line:#343a40;--overload:#43261f;--cost:#3d3417;--calm:#22272b;--served:#5cb0f5;--offered:#79838c;
--refused:#eaa72f;--failed:#ff6d5e;--cpu:#a596f5;--memory:#3ec4b1;--sockets:#d19b6c;--good:#4cc777;
--bad:#ff7568;--doubt:#eaa72f}}
*{box-sizing:border-box}body{margin:0;background:var(--bg);color:var(--ink);
font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif}
main{max-width:1360px;margin:0 auto;padding:28px 24px 60px}h1{font-size:26px;line-height:1.25;margin:0 0 4px}
h2{font-size:16px;margin:30px 0 6px}h2 small{font-weight:400;color:var(--soft);margin-left:8px;font-size:13px}
.lead{color:var(--soft);margin:0 0 18px;max-width:80ch}.verdict{border-left:5px solid;padding:10px 16px;
background:var(--panel);border-radius:0 8px 8px 0;font-size:18px;font-weight:600;margin:0 0 18px}
.verdict.plain{border-color:var(--soft)}.verdict.saved{border-color:var(--good);color:var(--good)}.verdict.not{border-color:var(--bad);color:var(--bad)}
.verdict.doubt{border-color:var(--doubt);color:var(--doubt)}
.cards{display:grid;grid-template-columns:repeat(auto-fit,minmax(230px,1fr));gap:14px}
.card{background:var(--panel);border:1px solid var(--line);border-radius:10px;padding:14px 16px}
.card h3{margin:0 0 6px;font-size:13px;font-weight:500;color:var(--soft)}
.card div{display:flex;justify-content:space-between;align-items:baseline;gap:10px}
.card b{font-size:22px;font-variant-numeric:tabular-nums;white-space:nowrap}.card span{color:var(--soft);font-size:13px}
.pair{display:grid;grid-template-columns:1fr 1fr;gap:18px}.pair.one{grid-template-columns:minmax(0,900px)}
@media(max-width:860px){.pair{grid-template-columns:1fr}}
.heads{position:sticky;top:0;background:var(--bg);z-index:1;padding:10px 0 6px;margin-top:26px;
border-bottom:1px solid var(--line);font-weight:600}
figure{margin:0;background:var(--panel);border:1px solid var(--line);border-radius:10px;padding:8px 8px 4px}
svg{display:block;width:100%;height:auto}.band.calm{fill:var(--calm)}.band.overload{fill:var(--overload)}
.band.cost{fill:var(--cost)}svg text{font-size:11px;fill:var(--soft);font-family:inherit}
.phase,.time{text-anchor:middle}.tick{text-anchor:end}.grid{stroke:var(--line);stroke-width:1}
.line{fill:none;stroke-width:1.8;stroke-linejoin:round}.area{opacity:.22;stroke:none}
.line.offered{stroke:var(--offered);stroke-width:1.3}.area.offered{fill:var(--offered)}
.line.served{stroke:var(--served);stroke-width:2.2}.area.served{fill:var(--served)}
.line.refused{stroke:var(--refused)}.line.failed{stroke:var(--failed)}.line.p99{stroke:var(--served)}
.line.p50{stroke:var(--offered)}.line.cpu{stroke:var(--cpu)}.area.cpu{fill:var(--cpu)}
.line.memory{stroke:var(--memory)}.area.memory{fill:var(--memory)}.line.sockets{stroke:var(--sockets)}
.area.sockets{fill:var(--sockets)}.mark{stroke:var(--ink);stroke-dasharray:4 4;opacity:.55}
svg .marktext{fill:var(--ink);paint-order:stroke;stroke:var(--panel);stroke-width:3px;stroke-linejoin:round}.restart line{stroke:var(--failed);stroke-width:1.3;stroke-dasharray:2 2}
.restart path{fill:var(--failed)}.legend{display:inline-flex;gap:14px;flex-wrap:wrap;font-weight:400;font-size:13px;
color:var(--soft);margin-left:10px}.legend i{display:inline-block;width:16px;height:3px;border-radius:2px;
vertical-align:middle;margin-right:5px}i.offered,i.p50{background:var(--offered)}i.served,i.p99{background:var(--served)}
i.refused{background:var(--refused)}i.failed{background:var(--failed)}
.legend i.restart{width:0;height:0;border:5px solid transparent;border-top:8px solid var(--failed);border-bottom:0;border-radius:0}
.scroll{overflow-x:auto}table{border-collapse:collapse;font-variant-numeric:tabular-nums;font-size:14px;width:100%;
background:var(--panel);border:1px solid var(--line)}th,td{padding:5px 8px;text-align:right;white-space:nowrap}
th{font-weight:500;white-space:normal;vertical-align:bottom;color:var(--soft);border-bottom:1px solid var(--line)}td:first-child,th:first-child,
td:nth-child(2),th:nth-child(2),.checks td,.checks th{text-align:left}tr.first td{border-top:1px solid var(--line)}
tr.without td:nth-child(2){color:var(--soft)}td.bad{color:var(--bad);font-weight:600}td.good{color:var(--good);font-weight:600}
.notes{color:var(--soft);font-size:14px;max-width:100ch}.notes li{margin:3px 0}code{font-size:13px}
)css";

}  // namespace

std::string html_report(const Outcomes& outcomes, const Verdict& verdict, const Options& options) {
  const Limits& limits = options.limits;
  const Calibration& c = outcomes.calibration;
  std::string out;
  const auto put = [&]<class... T>(fmt::format_string<T...> format, T&&... args) {
    fmt::format_to(std::back_inserter(out), format, std::forward<T>(args)...);
  };
  std::vector<const Run*> runs;
  std::vector<std::vector<PhaseSummary>> summaries;
  for (const auto* run : {&outcomes.unprotected, &outcomes.with_headgate}) {
    if (*run) {
      runs.push_back(&**run);
      summaries.push_back(summarise(**run, limits));
    }
  }
  const auto name_of = [](const Run& run) {
    return run.with_headgate ? "With Headgate" : "Without Headgate";
  };

  put("<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" "
      "content=\"width=device-width,initial-scale=1\"><title>Headgate demo: {}</title><style>{}"
      "</style></head><body><main>",
      escape_markup(outcomes.subject_title), kStyle);
  put("<h1>An overloaded collector, without and with Headgate</h1><p class=\"lead\">{} in {:g} "
      "cores "
      "and {} MiB. It can serve {:.0f} requests per second; the same clients ask it for 60 %, "
      "three "
      "times and ten times of that, and for 60 % at {:.1f} times the cost. Same arrivals in both "
      "runs.</p>",
      escape_markup(outcomes.subject_title), limits.cpu_cores, limits.memory_bytes >> 20,
      c.capacity_per_s, c.heavy_cost_s / c.light_cost_s);
  put("<p class=\"verdict {}\">{}</p>",
      verdict.checks.empty()                        ? "plain"
      : verdict.conclusion == Conclusion::kSaved    ? "saved"
      : verdict.conclusion == Conclusion::kNotSaved ? "not"
                                                    : "doubt",
      escape_markup(verdict.sentence));

  const auto card = [&](std::string_view title, const auto& value) {
    put("<div class=\"card\"><h3>{}</h3>", title);
    for (std::size_t r = 0; r < runs.size(); ++r) {
      put("<div><span>{}</span><b>{}</b></div>", runs[r]->with_headgate ? "with" : "without",
          value(summaries[r], *runs[r]));
    }
    put("</div>");
  };
  const auto phase = [](const std::vector<PhaseSummary>& all, std::string_view name) {
    return *std::find_if(all.begin(), all.end(),
                         [&](const PhaseSummary& p) { return p.phase.name == name; });
  };
  put("<div class=\"cards\">");
  card("Served at ten times the load", [&](const auto& s, const Run&) {
    return fmt::format("{:.0f}/s", phase(s, "x10").served_per_s);
  });
  card("99th percentile there, of what was let in", [&](const auto& s, const Run&) {
    return latency_cell(phase(s, "x10").p99_s, limits.deadline_s);
  });
  card("Back in service after it", [&](const auto& s, const Run&) {
    const auto back = phase(s, "back_after_x10").back_s;
    return back ? fmt::format("{:.1f} s", *back) : std::string("not at all");
  });
  card("Deaths of the collector", [&](const auto&, const Run& run) {
    const auto ooms = std::count_if(run.restarts.begin(), run.restarts.end(),
                                    [](const Restart& r) { return r.oom; });
    return ooms > 0 ? fmt::format("{} ({} OOM)", run.restarts.size(), ooms)
                    : std::to_string(run.restarts.size());
  });
  put("</div>");

  const std::string_view pair = runs.size() == 1 ? "pair one" : "pair";
  put("<div class=\"{} heads\">", pair);
  for (const Run* run : runs) {
    put("<div>{}</div>", name_of(*run));
  }
  put("</div>");
  for (const Chart& chart : charts(outcomes, options)) {
    put("<h2>{}<small>{}</small><span class=\"legend\">", escape_markup(chart.title),
        escape_markup(chart.unit));
    for (const auto& [css, text] : chart.legend) {
      put("<span><i class=\"{}\"></i>{}</span>", css, escape_markup(text));
    }
    put("</span></h2><div class=\"{}\">", pair);
    for (const Run* run : runs) {
      put("<figure>{}</figure>", svg(chart, *run));
    }
    put("</div>\n");
  }

  const bool classes = std::any_of(summaries.begin(), summaries.end(), has_critical);
  put("<h2>Phase by phase</h2><div class=\"scroll\"><table><tr><th>phase</th><th>Headgate</th>"
      "<th>offered/s</th><th>served/s</th><th>p50</th><th>p99</th><th>refused</th><th>failed</th>"
      "<th>CPU of quota</th><th>throttled periods</th><th>memory peak</th><th>sockets peak</th>"
      "<th>restarts</th>{}</tr>",
      classes ? "<th>critical served</th><th>its p99</th>" : "");
  for (std::size_t p = 0; !summaries.empty() && p < summaries.front().size(); ++p) {
    for (std::size_t r = 0; r < runs.size(); ++r) {
      const PhaseSummary& s = summaries[r][p];
      const double offered = std::max(1.0, static_cast<double>(s.offered));
      const double wanted = std::min(s.phase.rate_per_s, c.capacity_per_s);
      const bool starved = s.phase.kind != PhaseKind::kCost && s.served_per_s < 0.5 * wanted;
      put("<tr class=\"{}{}\"><td>{}</td><td>{}</td><td>{:.0f}</td><td{}>{:.0f}</td><td>{}</td>"
          "<td>{}</td><td>{:.1f} %</td><td>{:.1f} %</td><td>{:.0f} %</td><td>{} of {}</td>"
          "<td>{:.0f} MiB</td><td>{}</td><td{}>{}</td>",
          r == 0 ? "first " : "", runs[r]->with_headgate ? "with" : "without",
          r == 0 ? escape_markup(s.phase.label) : "", runs[r]->with_headgate ? "with" : "without",
          offered / s.phase.seconds, starved ? " class=\"bad\"" : "", s.served_per_s,
          latency_cell(s.p50_s, limits.deadline_s), latency_cell(s.p99_s, limits.deadline_s),
          s.refused_ratio * 100,
          static_cast<double>(s.timed_out + s.reset + s.http_error) / offered * 100,
          s.cpu_of_quota * 100, s.throttled, s.periods,
          static_cast<double>(s.memory_peak_bytes) / (1 << 20), s.sockets_peak,
          s.restarts > 0 ? " class=\"bad\"" : "",
          s.oom_kills > 0 ? fmt::format("{} (OOM)", s.restarts) : std::to_string(s.restarts));
      if (classes) {
        put("<td{}>{:.1f} %</td><td>{}</td>", critical_share(s) < 0.5 ? " class=\"bad\"" : "",
            critical_share(s) * 100, latency_cell(s.critical_p99_s, limits.deadline_s));
      }
      put("</tr>");
    }
  }
  put("</table></div>");

  if (!verdict.checks.empty()) {
    put("<h2>What was promised</h2><div class=\"scroll\"><table class=\"checks\"><tr><th></th>"
        "<th>promise</th><th>limit</th><th>measured with Headgate</th></tr>");
    for (const Check& check : verdict.checks) {
      put("<tr><td class=\"{}\">{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
          check.kept ? "good" : "bad", check.kept ? "kept" : "broken", escape_markup(check.what),
          escape_markup(check.promised), escape_markup(check.measured));
    }
    put("</table></div>");
  }
  put("<h2>How it was measured</h2><ul class=\"notes\">");
  for (const std::string& doubt : verdict.doubts) {
    put("<li><b>Doubt:</b> {}.</li>", escape_markup(doubt));
  }
  put("<li>{}; seed {}.</li>", escape_markup(outcomes.machine), options.seed);
  put("<li>Capacity: {:.2f} ms of CPU a request of {} units (closed loop, 8 clients, {:.0f} % of "
      "the "
      "quota reached); a request of {} units costs {:.1f} ms.</li>",
      c.light_cost_s * 1e3, c.light_units, c.quota_reached * 100, c.heavy_units,
      c.heavy_cost_s * 1e3);
  put("<li>Open loop: Poisson arrivals at fixed times, {}; the clock of a request starts at its "
      "time, not when it was sent. Percentiles are exact, over everything that was not refused; "
      "what timed out or was cut off counts as {:g} s.</li>",
      options.traffic == Traffic::kConnections ? "one connection a request"
      : options.traffic == Traffic::kGrpc
          ? "on connections that are kept, in turn"
          : "on connections that are kept; another is made when none is free",
      limits.deadline_s);
  put("<li>A request belongs to the phase in which it was offered. CPU, throttling and memory are "
      "those of the collector's cgroup; a supervisor starts the collector again 1 s after it died."
      "</li>");
  if (outcomes.with_headgate && outcomes.with_headgate->agent_failure.empty()) {
    put("<li>Headgate itself used {:.1f} % of one core and {:.0f} MiB.</li>",
        outcomes.with_headgate->agent_cpu_cores * 100,
        static_cast<double>(outcomes.with_headgate->agent_rss_bytes) / (1 << 20));
  }
  put("</ul></main></body></html>\n");
  return out;
}

}  // namespace headgate::demo
