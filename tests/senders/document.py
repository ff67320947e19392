# SPDX-License-Identifier: Apache-2.0
"""docs/senders.md from what was measured, and whether the rest of the documentation agrees with it."""
import os
import platform
import re

import expected
import lab
from cells import FORMS, MAKING_S, RATE_PER_S, SENDERS, TITLES, WINDOW_S

DOCUMENT = "docs/senders.md"
PROTOCOLS = {"grpc": "OTLP/gRPC", "http": "OTLP/HTTP"}

TEXT = """\
# Which refusal loses data, with which sender

<!-- Written by tests/senders/run --write. Change tests/senders/document.py, not this file. -->

Whoever refuses should know what becomes of what was refused. Here real OTLP exporters at their defaults meet
each form of refusal; the tables are what was measured, and the tests measure it again (case E10, `tests/senders/run`).

In short:

* **A collector loses nothing, whatever the form, but for `grpc-exhausted`:** RESOURCE_EXHAUSTED without RetryInfo
  is a permanent error to it, and it drops each refused batch. Anything else it tries again for 300 s.
* **An SDK gives up after 10 s at most**, and queues 2048 spans. What is refused for as long as its patience is lost with every
  SDK, whatever the form; the form decides how much of the 10 s an SDK makes use of.
* **`{{defer: 8s}}` lost nothing with any of them** where those who wait are let in before the deadline, as they are in an
  excess. Where nobody is, the wait ends by a reset, and is lost like one.
* The Go SDK over HTTP gives up at the first refused connect, so `reset` loses each batch of it; over gRPC it waits 5 s before
  it tries again, and has time for one retry.
* The Python SDK waits 1, 2 and 4 s, or what Retry-After says, and gives up at once when the next wait would end after its 10 s: it can
  lose a batch to any form that refuses all of its tries.

## Headgate's forms

Spans lost of {made}. A figure for each run; in these the first export of an SDK in the window came {distances} s
after its beginning. A single 0: none in any run; bold: some in every run.

{headgate}

`reset`, `{{defer: 8s}}` and `auto` refuse connects; live connections are reset once, when the window begins, so that
all have to connect. `{{defer: 8s}}` and `auto` admit every fourth try (strategy `fixed: {{admit: 0.25}}`), a deferred sender about
3 s after its first; with this strategy nothing is known of a budget, so `auto` resets newcomers at once. `503`, `429`
and `grpc-exhausted` refuse every request on connections that live on.

## Forms that are not Headgate's

By a gRPC server of its own, for comparison:

{others}

GOAWAY is why there is no such form: {goaway}

## Advice

* Collectors: any form but `grpc-exhausted`. The queue must hold what comes in the meantime.
* Go SDK: `refuse: {{defer: 8s}}`; or `503` for HTTP; or, over gRPC, a time-out of 60 s (`WithTimeout(60s)` and
  `OTEL_BSP_EXPORT_TIMEOUT=60000`): then none was lost to any form but `grpc-exhausted`.
* Python SDK: `refuse: {{defer: 8s}}`, or a time-out of 60 s (`timeout=60`): then none was lost to any form.

Both time-outs were measured as above (two runs of each cell):

    sudo tests/senders/run --senders python-grpc,python-http --late 0.3,0.6 --env OTEL_EXPORTER_OTLP_TIMEOUT=60
    sudo tests/senders/run --senders go-grpc --late 0.3,2.5 --env OTEL_EXPORTER_OTLP_TIMEOUT=60000 \\
      --env OTEL_BSP_EXPORT_TIMEOUT=60000

Measured before by hand, in front of a receiver that refused in Headgate's place, and not part of the test:

* Java SDK: a RetryPolicy with `setRetryExceptionPredicate(e -> true)`.
* A collector at 200 requests a second fills its queue of 1000 in 5 s: `queue_size: 5000, num_consumers: 50` lost none.
* Lost of 2400 by other senders (Java 1.68.0, JS 0.223.1, Prometheus 2.42), in the same window of 8 s:

| sender | `reset` | `503` | `429` | `grpc-exhausted` |
|---|---|---|---|---|
| Java SDK, OTLP/gRPC | 0, 0, 512, 0 | - | - | 0 |
| Java SDK, OTLP/HTTP | 0, 237, 0 | 0 | 0 | - |
| JS SDK, OTLP/gRPC | 1536, 1526 | - | - | 1024, 1014 |
| JS SDK, OTLP/HTTP | 0 | 0 | 0 | - |
| Prometheus agent, remote write | 0 | 0 | 2000 | - |

## How it was measured

{versions}

{rate} spans a second for {making} s, a window of {window} s, refused by `headgate run` after a reload of its configuration; sender
and receiver in network namespaces of their own. The Collector is fed by requests that are repeated until it accepts them, and
has a receiver and an exporter and no processor. An SDK has its batch processor (5 s, 512 spans). What has not come in 17 s after
the last span was made, or 75 s with a collector, is lost.

    sudo tests/senders/run --build --late {late} --write
"""


def versions(paths):
    out = {}
    for line in (lab.HERE / "requirements.txt").read_text().splitlines():
        found = re.match(r"(opentelemetry-sdk|grpcio)==([^ ]+)", line)
        if found:
            out["Python SDK" if found[1] == "opentelemetry-sdk" else "grpcio"] = found[2]
    for line in (lab.HERE / "gosdk/go.mod").read_text().splitlines():
        found = re.match(r"\s*(go.opentelemetry.io/otel|google.golang.org/grpc) v(\S+)", line)
        if found:
            out["Go SDK" if found[1].endswith("otel") else "grpc-go of it"] = found[2]
    if os.access(paths["otelcol"], os.X_OK):
        out["Collector"] = re.search(r"[\d.]+$", lab.command(paths["otelcol"], "--version").strip())[0]
    out["Linux"] = ".".join(platform.release().split(".")[:2])
    return out


def figures(results):
    out = {}
    for result in results:
        out.setdefault((result["form"], result["sender"]), []).append(result)
    return out


def cell(measured):
    if not measured:
        return "-"
    lost = [result["lost"] for result in measured]
    text = ", ".join(str(one) for one in lost) if any(lost) else "0"
    if any(result["crashed"] for result in measured):
        text += ", process aborted"
    return f"**{text}**" if all(lost) else text


def table(measured, by_headgate):
    names = [f"{TITLES[sender.split('-')[0]]}, {PROTOCOLS[sender.split('-')[1]]}" for sender in SENDERS]
    lines = ["| refused by | " + " | ".join(names) + " |", "|---" * (len(SENDERS) + 1) + "|"]
    for name, form in FORMS.items():
        if (form.refuse is not None) == by_headgate:
            lines.append(f"| {form.title} | " + " | ".join(cell(measured.get((name, sender))) for sender in SENDERS) + " |")
    return "\n".join(lines)


def write(versions_of, results):
    measured = figures(results)
    missing = [f"{form} {sender}" for form in FORMS for sender in SENDERS
               if sender.split("-")[1] in FORMS[form].protocols and (form, sender) not in measured]
    if missing:
        raise lab.Failed(f"not written, because these were not measured: {', '.join(missing)}")
    late = [f"{late_s:g}" for late_s in dict.fromkeys(result["late_s"] for result in results)]
    storm = [max(result["refused"] for result in measured["goaway", sender])
             for sender in SENDERS if ("goaway", sender) in measured]
    text = TEXT.format(
        made=results[0]["made"], rate=RATE_PER_S, making=MAKING_S, window=WINDOW_S,
        late=",".join(late), distances=", ".join(late),
        headgate=table(measured, True), others=table(measured, False),
        goaway=f"a collector connects without a pause, {storm[0]} times in {WINDOW_S} s, and the C core may abort "
               "the client's process.",
        versions="; ".join(f"{name} {version}" for name, version in versions_of.items()) + ".")
    (lab.TOP / DOCUMENT).write_text(text)


def rows(text, first):
    """The table whose first column is called so, without its head: lists of cells."""
    lines = text.splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith(f"| {first} |"))
    out = []
    for line in lines[start:]:
        if not line.startswith("|"):
            break
        out.append([one.strip() for one in line.strip("|").split("|")])
    return out[2:]


def documented():
    """{(form, sender): figures} of docs/senders.md."""
    out = {}
    names = {form.title: name for name, form in FORMS.items()}
    for part in re.split(r"^## ", (lab.TOP / DOCUMENT).read_text(), flags=re.M)[1:3]:
        for row in rows(part, "refused by"):
            for sender, text in zip(SENDERS, row[1:]):
                if text != "-":
                    out[names[row[0]], sender] = [int(one) for one in re.findall(r"\d+", text)]
    return out


def contradictions(expectations):
    """What two documents say differently; empty where they agree."""
    measured, out = documented(), []
    for (sender, form), says in expectations.items():
        lost = measured.get((form, sender))
        if lost is None:
            out.append(f"{DOCUMENT} has no figures of {sender} with {form}")
        elif says == expected.NONE and any(lost):
            out.append(f"{DOCUMENT}: {sender} lost {lost} with {form}; headgate check calls it safe")
        elif says == expected.MUST and not all(lost):
            out.append(f"{DOCUMENT}: {sender} lost {lost} with {form}; headgate check says that it loses each batch")
    for row in rows((lab.TOP / "README.md").read_text(), "`refuse`"):
        form, who = row[0].strip("`"), row[2]
        for sender in SENDERS:
            word = TITLES[sender.split("-")[0]].split()[0]
            if (form, sender) in measured:
                says = expectations[sender, form]
                if (says != expected.NONE) != (word in who):
                    out.append(f"README.md, {row[0]}: \"{who}\"; headgate check: {sender} {says}")
    return out
