// SPDX-License-Identifier: Apache-2.0
#include "agent/web/page.h"

namespace headgate::web {

std::string_view status_page_policy() {
  return "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
         "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
         "frame-ancestors 'none'";
}

std::string_view status_page() {
  return R"page(<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Headgate</title>
<link rel="icon" href="data:,">
<style>
:root {
  color-scheme: light dark;
  --bg: #f6f7f9; --card: #fff; --line: #dfe3e8; --text: #1b2430; --dim: #616e7c;
  --water: #2f7fd1; --ok: #1d8a4e; --shed: #b86e00; --open: #c62f2f; --track: #e8ecf1;
}
@media (prefers-color-scheme: dark) {
  :root {
    --bg: #12161c; --card: #1a2028; --line: #2c3540; --text: #e4e9ef; --dim: #97a3b0;
    --water: #5aa5ee; --ok: #4cc483; --shed: #eda53a; --open: #f26d6d; --track: #29323d;
  }
}
* { box-sizing: border-box; }
body { margin: 0; padding: 1.2rem; background: var(--bg); color: var(--text);
       font: 14px/1.45 system-ui, sans-serif; }
main, header, footer { max-width: 1080px; margin: 0 auto; }
header { display: flex; flex-wrap: wrap; gap: .3rem 1rem; align-items: baseline; }
h1 { font-size: 1.3rem; margin: 0; }
h2 { font-size: 1.05rem; margin: 0; overflow-wrap: anywhere; }
.dim { color: var(--dim); }
.note { border-left: 4px solid var(--shed); background: var(--card); padding: .4rem .8rem;
        margin: .7rem 0; overflow-wrap: anywhere; }
.note.bad { border-color: var(--open); }
.card { background: var(--card); border: 1px solid var(--line); border-radius: 8px;
        padding: .9rem 1rem; margin: .9rem 0; }
.head { display: flex; flex-wrap: wrap; gap: .3rem .8rem; align-items: center; }
.badge { font-weight: 600; border-radius: 99px; padding: 0 .65rem; border: 1px solid; }
.normal { color: var(--ok); } .shedding { color: var(--shed); } .open { color: var(--open); }
.unknown { color: var(--dim); }
.levels { display: grid; grid-template-columns: repeat(auto-fit, minmax(340px, 1fr));
          gap: .4rem 1.6rem; margin: .7rem 0; }
.level { display: grid; grid-template-columns: 5.2rem 1fr 4.2rem; gap: .6rem;
         align-items: center; }
.track { position: relative; height: 12px; background: var(--track); border-radius: 6px;
         overflow: hidden; }
.fill { position: absolute; inset: 0 auto 0 0; background: var(--water); border-radius: 6px; }
.mark { position: absolute; top: 0; bottom: 0; width: 2px; background: var(--text);
        opacity: .55; }
.num { text-align: right; font-variant-numeric: tabular-nums; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; }
th { text-align: left; font-weight: 500; color: var(--dim); }
th, td { padding: .25rem .8rem .25rem 0; border-bottom: 1px solid var(--line);
         white-space: nowrap; }
th.num, td.num { text-align: right; }
tr:last-child td { border-bottom: 0; }
details { margin-top: .6rem; } summary { cursor: pointer; color: var(--dim); }
ul { margin: .3rem 0 0; padding-left: 1.2rem; overflow-wrap: anywhere; }
a { color: var(--water); }
</style>
</head>
<body>
<header><h1>Headgate</h1><span id="about" class="dim">loading</span></header>
<main id="main" aria-live="off"></main>
<footer class="dim">
<a href="metrics">metrics</a> · <a href="readyz?verbose">readiness</a> ·
<a href="config">configuration</a> · <a href="debug/targets">targets</a> ·
<a href="debug/decisions">decisions</a> · <a href="api/v1/state">state as JSON</a>
</footer>
<noscript>This page needs JavaScript; the numbers are at /api/v1/state and /metrics.</noscript>
<script>
"use strict";
const PERIOD_MS = 2000;

function el(tag, attributes, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name === "style") Object.assign(node.style, value);
    else node.setAttribute(name, value);
  }
  for (const child of children.flat()) {
    if (child !== null && child !== undefined) node.append(child);
  }
  return node;
}
const known = (x) => x !== null && x !== undefined;
const share = (x) => known(x) ? x.toFixed(2) : "?";
const count = (x) => known(x) ? Math.round(x).toLocaleString("en") : "?";
function bytes(x) {
  if (!known(x)) return "?";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let i = 0;
  while (x >= 1024 && i < units.length - 1) { x /= 1024; ++i; }
  return x.toFixed(i && x < 10 ? 1 : 0) + " " + units[i];
}
function duration(s) {
  if (s < 120) return Math.round(s) + " s";
  if (s < 7200) return Math.round(s / 60) + " min";
  if (s < 172800) return Math.round(s / 3600) + " h";
  return Math.round(s / 86400) + " d";
}

function level(name, value, marks, title) {
  const percent = (x) => Math.max(0, Math.min(1, x)) * 100 + "%";
  const track = el("div", {class: "track"});
  if (known(value)) track.append(el("div", {class: "fill", style: {width: percent(value)}}));
  for (const mark of marks) {
    track.append(el("div", {class: "mark", title: mark.name + " " + mark.value,
                            style: {left: percent(mark.value)}}));
  }
  return el("div", {class: "level", title: title}, el("span", {}, name), track,
            el("span", {class: "num"}, share(value)));
}

function limit(name, value, show, source) {
  if (known(value)) return show(value) + " (" + source + ")";
  return source === "unlimited" ? "no " + name + " limit" : name + " limit unknown";
}

function marksOf(target, memory) {
  return Object.entries(target.thresholds)
      .filter(([name, value]) => known(value) && name !== "admit" &&
                                 name.startsWith("memory") === memory)
      .map(([name, value]) => ({name, value}));
}

const COLUMNS = ["endpoint", "port", "offered/s", "admitted/s", "refused/s", "admitted share",
                 "in flight", "class", "refusal"];
function endpointRow(e) {
  const r = e.rates_per_second;
  return el("tr", {},
    el("td", {}, e.name),
    el("td", {class: "num"}, e.unit === "request" ? e.path || "" : e.port + "/" + e.protocol),
    el("td", {class: "num"}, count(r.offered)), el("td", {class: "num"}, count(r.admitted)),
    el("td", {class: "num"}, count(r.reset + r.expired + r.dropped + r.answered)),
    el("td", {class: "num"}, share(e.admit_ratio) + (e.reason === "none" ? "" : " " + e.reason)),
    el("td", {class: "num"}, count(e.in_flight)), el("td", {}, e.criticality),
    el("td", {}, e.refusable ? e.refuse : "counted only"));
}
function endpoints(target) {
  const head = COLUMNS.map((c, i) => el("th", i >= 1 && i <= 6 ? {class: "num"} : {}, c));
  return el("div", {class: "wide"},
    el("table", {}, el("thead", {}, el("tr", {}, head)),
       el("tbody", {}, target.endpoints.map(endpointRow))));
}

function list(id, title, items) {
  if (!items.length) return null;
  return el("details", {id: id}, el("summary", {}, title + " (" + items.length + ")"),
            el("ul", {}, items.map((i) => el("li", {}, i))));
}
function transition(t) {
  return t.time + "  " + t.from + " → " + t.to + ": " + t.why + " (cpu fast " +
         share(t.cpu_fast_ratio) + ", slow " + share(t.cpu_slow_ratio) + ", memory " +
         share(t.memory_ratio) + ")";
}
function hook(h) {
  return h.hook + " " + h.mode + " at " + h.where +
         (known(h.program_id) ? ", program " + h.program_id : "") +
         (h.problem ? ": " + h.problem : "");
}

function card(t, index) {
  const id = "t" + index;
  const body = [];
  if (t.present) {
    body.push(el("div", {class: "dim"}, t.cgroup_path + " · " +
      limit("CPU", t.cpu.effective_cores, (n) => n + " cores", t.cpu.source) + " · " +
      limit("memory", t.memory.limit_bytes, bytes, t.memory.source) + " · strategy " +
      t.strategy));
    body.push(el("div", {class: "levels"},
      level("CPU fast", t.cpu.fast_ratio, marksOf(t, false), "mean over 110 ms, over the limit"),
      level("CPU slow", t.cpu.slow_ratio, marksOf(t, false), "mean over 2 s, over the limit"),
      level("memory", t.memory.raw_ratio, marksOf(t, true), "working set over the limit"),
      level("throttled", t.cpu.throttled_ratio, [], "share of the periods without quota left")));
    if (!t.lease_valid && t.mode !== "off") {
      body.push(el("div", {class: "note"}, "no lease: everything is admitted"));
    }
    body.push(endpoints(t));
  } else {
    body.push(el("div", {class: "dim"}, t.absent_why || "not there"));
  }
  return el("section", {class: "card"},
    el("div", {class: "head"}, el("h2", {}, t.name),
       el("span", {class: "badge " + (t.present ? t.state : "unknown")},
          t.present ? t.state : "absent"),
       t.mode === "enforce" ? null : el("span", {class: "badge unknown"}, t.mode),
       el("span", {class: "dim"}, t.why)),
    body, t.warnings.map((w) => el("div", {class: "note"}, w)),
    list(id + "h", "hooks", t.hooks.map(hook)),
    list(id + "d", "decisions", t.transitions.map(transition).reverse()),
    list(id + "u", "unknown", t.unknown.map((u) => u.signal + ": " + u.reason)),
    list(id + "e", "read errors",
         t.sample_errors.map((e) => e.file + ": " + e.reason + " × " + e.count)));
}

function notes(s) {
  const out = [];
  if (s.kill_switch) out.push("Switched off by `headgate off`: everything is admitted.");
  if (s.standby) out.push("Standby: another agent on this node holds the lock.");
  if (s.mode !== "enforce") out.push("Mode " + s.mode + ": nothing is refused.");
  if (!s.config.last_reload_successful) {
    out.push("The last reload failed, the configuration before it is in force: " +
             s.config.last_error);
  }
  return out.concat(s.degraded).map((n) => el("div", {class: "note"}, n));
}

function render(s) {
  const main = document.getElementById("main");
  const opened = new Set([...main.querySelectorAll("details[open]")].map((d) => d.id));
  document.getElementById("about").textContent =
      s.version + " · up " + duration(s.uptime_seconds) + " · Linux " + s.kernel_release +
      " · cgroup " + s.cgroup_mode + " · tick " + s.tick_seconds * 1000 + " ms · lease " +
      s.lease_seconds + " s · " + s.time;
  main.replaceChildren(...notes(s), ...(s.targets.length ? s.targets.map(card) :
      [el("div", {class: "card dim"}, "No target is configured.")]));
  for (const id of opened) {
    const details = document.getElementById(id);
    if (details) details.open = true;
  }
}

async function refresh() {
  try {
    const answer = await fetch("api/v1/state", {cache: "no-store"});
    const state = await answer.json();
    if (!answer.ok) throw new Error(state.error || answer.status);
    render(state);
  } catch (error) {
    const main = document.getElementById("main");
    let note = document.getElementById("lost");
    if (!note) main.prepend(note = el("div", {id: "lost", class: "note bad"}));
    note.textContent = "No answer from the agent: " + error.message;
  }
  setTimeout(refresh, PERIOD_MS);
}
refresh();
</script>
</body>
</html>
)page";
}

}  // namespace headgate::web
