# SPDX-License-Identifier: Apache-2.0
"""A cell of the table: one stock sender against one form of refusal. Forms, senders, and how one is measured."""
import contextlib
import json
import re
import time

import lab

PORTS = {"grpc": 4317, "http": 4318}
FEED = "127.0.0.1:14318"
# What this form needs beside its name; 4Mi is the default of gRPC servers.
GRPC_EXHAUSTED = {"grpc": {"max_message": "4Mi"}, "routes": [
    {"name": "traces", "path": "/opentelemetry.proto.collector.trace.v1.TraceService/Export"}]}

RATE_PER_S = 100
MAKING_S = 24
WINDOW_S = 8
# An SDK exports 5 s after it was started and every 5 s from then on: the second time after the window has begun.
EVERY_S = 5
SECOND_EXPORT_S = 2 * EVERY_S
# What an SDK still holds is on its way after 5 s, and given up after 10 s more. A collector backs off for up to 30 s.
DRAIN_S = {"sdk": 17, "collector": 75}


class Form:
    """How senders are refused in the window.

    refuse: what the endpoint says, None: the receiver refuses by itself. admit: the share that is let in.
    close: live connections are reset once, so that they come again.
    """

    def __init__(self, title, protocols, refuse=None, admit=0, close=False):
        self.title, self.protocols, self.refuse, self.admit, self.close = title, protocols, refuse, admit, close


FORMS = {
    "reset": Form("`reset`", ("grpc", "http"), "reset", close=True),
    "defer": Form("`{defer: 8s}`", ("grpc", "http"), {"defer": "8s"}, admit=0.25, close=True),
    "shut": Form("`{defer: 8s}`, nobody let in", ("grpc", "http"), {"defer": "8s"}, close=True),
    "auto": Form("`auto`", ("grpc", "http"), "auto", admit=0.25, close=True),
    "503": Form("`503`", ("http",), 503),
    "429": Form("`429`", ("http",), 429),
    "grpc-exhausted": Form("`grpc-exhausted`", ("grpc",), "grpc-exhausted"),
    "retry-info": Form("RESOURCE_EXHAUSTED with RetryInfo", ("grpc",)),
    "unavailable": Form("UNAVAILABLE", ("grpc",)),
    "goaway": Form("GOAWAY and close", ("grpc",)),
}
SENDERS = ("collector-grpc", "collector-http", "go-grpc", "go-http", "python-grpc", "python-http")
TITLES = {"collector": "Collector", "go": "Go SDK", "python": "Python SDK"}
NEEDS = {"collector": "otelcol", "go": "gosdk", "python": "python"}


class Cell:
    """Case E10: what one exporter makes of one form."""

    def __init__(self, sender, form):
        self.sender, self.form = sender, form
        self.kind, self.protocol = sender.split("-")
        self.name = f"{sender}.{form}"
        self.target_name = f"{sender}-{form}"
        self.how = FORMS[form]
        self.port = PORTS[self.protocol]
        # Closed in reverse: processes before what they are in.
        self.closers = contextlib.ExitStack()
        self.collector = self.source = self.made = None
        self.accepted_before = 0
        self.through = False

    @property
    def by_agent(self):
        return self.how.refuse is not None

    def target(self, refusing):
        endpoint = {"name": "otlp", "port": self.port, "protocol": self.protocol, "refuse": self.how.refuse}
        if self.form == "grpc-exhausted":
            endpoint |= GRPC_EXHAUSTED
        return {"name": self.target_name, "match": {"cgroup": self.cgroup.path},
                "capacity": {"cpu": "1", "memory": "1Gi"},
                "strategy": {"fixed": {"admit": self.how.admit if refusing else 1}}, "endpoints": [endpoint]}

    def set_up(self, paths, directory):
        """Its namespaces, and the receiver in them."""
        self.directory = directory
        self.cgroup = self._kept(lab.Cgroup(self.name))
        self.net = self._kept(lab.Net())
        words = [*self.net.at_server(), paths["python"], lab.HERE / "receiver.py", self.protocol, self.port]
        if not self.by_agent:
            words.append(self.form)
        self.receiver = self._kept(lab.Process(words, directory / f"{self.name}.receiver.log", self.cgroup.enter))

    def start_sender(self, paths):
        address = f"{lab.SERVER}:{self.port}"
        amounts = [RATE_PER_S * MAKING_S, RATE_PER_S]
        kind = self.protocol
        if self.kind == "collector":
            config = self.directory / f"{self.name}.yaml"
            config.write_text(json.dumps(collector_config(self.protocol, address)))
            self.collector = self._kept(lab.Process(
                [*self.net.at_client(), paths["otelcol"], "--config", config],
                self.directory / f"{self.name}.collector.log"))
            kind, address = "feed", FEED
        words = ([paths["gosdk"]] if self.kind == "go" else [paths["python"], lab.HERE / "sender.py"])
        self.source = self._kept(lab.Process([*self.net.at_client(), *words, kind, address, *amounts],
                                             self.directory / f"{self.name}.sender.log"))

    def begin(self):
        self.source.tell("go")

    def refuse(self):
        """The window begins; what the agent refuses is in force already."""
        self.accepted_before = self.net.accepted()
        if not self.by_agent:
            self.receiver.ask("refuse")
        elif self.how.close:
            self.net.reset_connections(self.port)

    def admit(self):
        self.accepted = self.net.accepted() - self.accepted_before
        if not self.by_agent:
            self.receiver.ask("admit")

    def drained(self, made_at):
        """Is everything in, or has the sender no more to send? Once it is so, it stays so."""
        if not self.through:
            self.stats = json.loads(self.receiver.ask("stats"))
            waited_s = time.monotonic() - made_at
            self.through = (self.stats["items"] + (self.dropped() or 0) >= self.made or not self.source.alive() or
                            waited_s > DRAIN_S["collector" if self.kind == "collector" else "sdk"])
        return self.through

    def dropped(self):
        """What the collector says that it has given up; None for an SDK, which says nothing of it."""
        if not self.collector:
            return None
        return sum(int(count) for count in re.findall(r'Dropping data.*"dropped_items": (\d+)',
                                                      self.collector.log.read_text(errors="replace")))

    def result(self, targets):
        refused = self.stats["refused"]
        if self.form == "goaway":
            refused = self.accepted
        if self.by_agent:
            refused = sum(sum(endpoint["counters"]["refused"].values())
                          for endpoint in targets[self.target_name]["endpoints"])
        return {"sender": self.sender, "form": self.form, "made": self.made, "refused": refused,
                "lost": self.made - self.stats["items"], "duplicates": self.stats["duplicates"],
                "dropped": self.dropped(), "crashed": not self.source.alive()}

    def _kept(self, resource):
        self.closers.callback(resource.close)
        return resource


def collector_config(protocol, address):
    """Receiver and exporter and nothing else; the exporter has its defaults but for TLS."""
    exporter = {"grpc": {"otlp_grpc": {"endpoint": address, "tls": {"insecure": True}}},
                "http": {"otlp_http": {"endpoint": f"http://{address}"}}}[protocol]
    return {"receivers": {"otlp": {"protocols": {"http": {"endpoint": FEED}}}}, "exporters": exporter,
            "service": {"telemetry": {"metrics": {"level": "none"}, "logs": {"sampling": {"enabled": False}}},
                        "pipelines": {"traces": {"receivers": ["otlp"], "exporters": list(exporter)}}}}


def all_cells():
    """(sender, form) of each."""
    return [(sender, form) for form in FORMS for sender in SENDERS
            if sender.split("-")[1] in FORMS[form].protocols]


class Wave:
    """Cells side by side, under one agent. Their windows are one."""

    def __init__(self, cells, paths, headgate, directory):
        self.cells, self.paths, self.directory = cells, paths, directory
        self.agent = lab.Agent(headgate, directory)
        self.by_agent = [cell for cell in cells if cell.by_agent]

    def run(self, late_s):
        """The results. late_s: an SDK exports so long after the window has begun."""
        with contextlib.ExitStack() as closers:
            closers.callback(self.agent.close)
            for cell in self.cells:
                closers.callback(cell.closers.close)
            self._start()
            return self._measure(late_s)

    def logs(self, sender, form):
        """What the processes of a cell have said last."""
        return "\n".join(f"--- {path.name}\n{path.read_text(errors='replace')[-1500:].strip()}"
                         for path in sorted(self.directory.glob(f"{sender}.{form}.*.log")))

    def _configure(self, refusing):
        self.agent.configure({"apiVersion": "headgate/v1", "mode": "enforce",
                              "targets": [cell.target(refusing) for cell in self.by_agent]})

    def _start(self):
        for cell in self.cells:
            cell.set_up(self.paths, self.directory)
        for cell in self.cells:
            cell.receiver.expect("ready", 120)
        if self.by_agent:
            self._configure(refusing=False)
            self.agent.start()
            # What has connected before is not seen.
            lab.until(20, "the agent guards every port", self._guarded)
        for cell in self.cells:
            cell.start_sender(self.paths)
        for cell in self.cells:
            cell.source.expect("ready", 120)
        for cell in self.cells:
            if cell.collector:
                lab.until(60, f"the collector of {cell.name} is ready: {cell.collector.tail()}",
                          lambda c=cell: "Everything is ready" in c.collector.log.read_text(errors="replace"))

    def _targets(self):
        """The agent's state, which has every endpoint; it may be slow to answer on a busy machine."""
        found = {}

        def complete():
            nonlocal found
            found = self.agent.targets()
            return all(found.get(cell.target_name, {}).get("endpoints") for cell in self.by_agent)

        lab.until(20, "the agent tells of every endpoint", complete)
        return found

    def _guarded(self):
        targets = self._targets()
        waiting = [cell for cell in self.by_agent
                   if targets[cell.target_name]["endpoints"][0]["counters"]["tries"] == 0]
        for cell in waiting:
            cell.net.touch(cell.port)
        return not waiting

    def _in_force(self, refusing):
        targets = self._targets()
        for cell in self.by_agent:
            share = cell.how.admit if refusing else 1
            endpoints = targets[cell.target_name]["endpoints"]
            # Where requests are refused, connections are not.
            requests = [endpoint for endpoint in endpoints if endpoint["unit"] == "request"]
            if any(abs(endpoint["admit_ratio"] - share) > 1e-6 for endpoint in requests or endpoints):
                return False
        return True

    def _measure(self, late_s):
        begin = time.monotonic() + 1
        window = begin + SECOND_EXPORT_S - late_s
        for index, cell in enumerate(self.cells):
            # Not all in the same moment.
            time.sleep(max(0.0, begin + 0.3 * index / len(self.cells) - time.monotonic()))
            cell.begin()
        time.sleep(max(0.0, window - time.monotonic()))
        if self.by_agent:
            self._configure(refusing=True)
            lab.until(10, "the agent refuses", lambda: self._in_force(refusing=True))
        began = time.monotonic()
        for cell in self.cells:
            cell.refuse()
        time.sleep(max(0.0, began + WINDOW_S - time.monotonic()))
        if self.by_agent:
            self._configure(refusing=False)
        for cell in self.cells:
            cell.admit()
        if self.by_agent:
            lab.until(10, "the agent admits", lambda: self._in_force(refusing=False))
        ended = time.monotonic()
        for cell in self.cells:
            try:
                cell.made = int(cell.source.said(MAKING_S + 60))
            except lab.Failed:
                if cell.source.alive():
                    raise
                cell.made = RATE_PER_S * MAKING_S  # the process was aborted: what it would have made
        made_at = time.monotonic()
        lab.until(max(DRAIN_S.values()) + 30, "the senders are through",
                  lambda: all([cell.drained(made_at) for cell in self.cells]))
        targets = self._targets() if self.by_agent else {}
        return [cell.result(targets) | {"window_s": round(ended - began, 1)} for cell in self.cells]
