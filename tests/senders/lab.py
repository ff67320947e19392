# SPDX-License-Identifier: Apache-2.0
"""Namespaces, cgroups, the agent and the processes of tests/senders/run. All are gone when they are closed, also
when this program is killed: children die with it, and names carry its process id for the next test that tidies up."""
import ctypes
import json
import os
import pathlib
import queue
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time

SERVER, CLIENT = "10.77.0.1", "10.77.0.2"
PR_SET_PDEATHSIG, CLONE_NEWNET = 1, 0x40000000
HERE = pathlib.Path(__file__).resolve().parent
TOP = HERE.parent.parent
LIBC = ctypes.CDLL(None)


class Missing(Exception):
    """What is needed is not on this machine."""


class Failed(Exception):
    """What was expected did not come."""


def die_with_parent():
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def command(*words, check=True):
    done = subprocess.run([str(word) for word in words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if check and done.returncode != 0:
        raise Failed(f"{' '.join(str(word) for word in words)}: {done.stdout.strip()}")
    return done.stdout


def until(limit_s, what, condition):
    end = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > end:
            raise Failed(f"not within {limit_s} s: {what}")
        time.sleep(0.05)


class Process:
    """A child that is spoken to by lines; its errors go to a file."""

    # Whoever starts this may have set some of what the exporters read.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}

    def __init__(self, words, log, enter=None):
        def prepare():
            die_with_parent()
            if enter:
                enter()
        self.log = pathlib.Path(log)
        self.name = self.log.stem
        with open(log, "ab") as errors:
            self.child = subprocess.Popen([str(word) for word in words], stdin=subprocess.PIPE,
                                          stdout=subprocess.PIPE, stderr=errors, text=True, env=self.environment,
                                          preexec_fn=prepare)
        self.lines = queue.SimpleQueue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.child.stdout:
            self.lines.put(line.strip())
        self.lines.put(None)

    def said(self, limit_s):
        try:
            line = self.lines.get(timeout=limit_s)
        except queue.Empty:
            raise Failed(f"{self.name} says nothing for {limit_s} s") from None
        if line is None:
            raise Failed(f"{self.name} has ended ({self.child.wait()}): {self.tail()}")
        return line

    def expect(self, word, limit_s):
        line = self.said(limit_s)
        if line != word:
            raise Failed(f"{self.name} says {line!r}, not {word!r}")

    def tell(self, line):
        try:
            self.child.stdin.write(line + "\n")
            self.child.stdin.flush()
        except OSError:
            pass  # it has ended: seen where its answer is read

    def ask(self, line, limit_s=30):
        self.tell(line)
        return self.said(limit_s)

    def alive(self):
        return self.child.poll() is None

    def tail(self):
        return self.log.read_text(errors="replace")[-600:].strip()

    def close(self):
        if self.alive():
            self.child.kill()
        self.child.wait()


class Net:
    """Two network namespaces with a wire between them. Two processes hold them."""

    def __init__(self):
        self.holders = [subprocess.Popen(["unshare", "--net", "sleep", "1000"], preexec_fn=die_with_parent,
                                         stdin=subprocess.DEVNULL) for _ in range(2)]
        own = os.readlink("/proc/self/ns/net")

        def ready(holder):
            if holder.poll() is not None:
                raise Missing("network namespaces do not work here (unshare --net)")
            return os.readlink(f"/proc/{holder.pid}/ns/net") != own

        for holder in self.holders:
            until(10, "a network namespace", lambda h=holder: ready(h))
        server, client = (holder.pid for holder in self.holders)
        command(*self.enter(server), "ip", "link", "add", "eth0", "type", "veth", "peer", "name", "eth0",
                "netns", client)
        for pid, address in ((server, SERVER), (client, CLIENT)):
            command(*self.enter(pid), "sh", "-c", f"ip addr add {address}/24 dev eth0; ip link set lo up; "
                    "ip link set eth0 up")

    @staticmethod
    def enter(pid):
        return ("nsenter", f"--net=/proc/{pid}/ns/net")

    def at_server(self):
        return self.enter(self.holders[0].pid)

    def at_client(self):
        return self.enter(self.holders[1].pid)

    def reset_connections(self, port):
        """An RST to every client that is connected (ss(8), SOCK_DESTROY)."""
        command(*self.at_server(), "ss", "-K", "-H", "state", "established", "sport", "=", f":{port}")

    def accepted(self):
        """How many connections the server's kernel has accepted, ever."""
        names, values = [line.split() for line in
                         pathlib.Path(f"/proc/{self.holders[0].pid}/net/snmp").read_text().splitlines()
                         if line.startswith("Tcp:")]
        return int(values[names.index("PassiveOpens")])

    def touch(self, port):
        """A connection from the client to the server that is closed again."""
        def connect():
            with open(f"/proc/{self.holders[1].pid}/ns/net", "rb") as namespace:
                if LIBC.setns(namespace.fileno(), CLONE_NEWNET) != 0:
                    return
            try:
                socket.create_connection((SERVER, port), timeout=1).close()
            except OSError:
                pass  # seen in what the agent counts
        # A thread has a namespace of its own.
        thread = threading.Thread(target=connect)
        thread.start()
        thread.join()

    def close(self):
        for holder in self.holders:
            holder.kill()
            holder.wait()


class Cgroup:
    """A cgroup of this name in every hierarchy."""

    def __init__(self, name):
        self.path = f"/headgate-lab-{os.getpid()}-{name}"
        self.made = []
        roots = []
        for line in pathlib.Path("/proc/self/mountinfo").read_text().splitlines():
            front, back = line.split(" - ", 1)
            kind, options = back.split()[0], back.split()[2].split(",")
            if kind == "cgroup2" or (kind == "cgroup" and {"cpu", "cpuacct", "memory"} & set(options)):
                roots.append(front.split()[4])
        for root in dict.fromkeys(roots):
            control = pathlib.Path(root, "cgroup.subtree_control")
            for controller in ("+cpu", "+memory") if control.exists() else ():
                try:
                    control.write_text(controller)
                except OSError:
                    pass  # this hierarchy does not own it
            directory = pathlib.Path(root + self.path)
            directory.mkdir()
            self.made.append(directory)

    def enter(self):
        for directory in self.made:
            (directory / "cgroup.procs").write_text(str(os.getpid()))

    def close(self):
        for directory in self.made:
            def gone(path=directory):
                try:
                    path.rmdir()
                    return True
                except OSError:
                    return False
            until(10, f"rmdir {directory}", gone)


class Agent:
    """The real agent with a configuration, pins and a socket of its own."""

    def __init__(self, binary, directory):
        self.binary, self.directory = binary, pathlib.Path(directory)
        self.pins = pathlib.Path(f"/sys/fs/bpf/headgate-e2e-{os.getpid()}-senders")
        self.config, self.socket = self.directory / "headgate.yaml", self.directory / "headgate.sock"
        self.process = None

    def configure(self, config):
        # JSON is YAML.
        fresh = self.directory / "headgate.yaml.new"
        fresh.write_text(json.dumps(config, indent=1))
        fresh.rename(self.config)
        if self.process:
            self.process.child.send_signal(signal.SIGHUP)

    def start(self):
        self.process = Process([self.binary, "run", f"--config={self.config}", f"--pin-root={self.pins}",
                                f"--socket={self.socket}", "--web.listen-address=none"],
                               self.directory / "agent.log")
        until(20, f"the agent answers: {self.process.tail()}", self.targets)

    def targets(self):
        """The state of each target by its name; {} where nobody answers."""
        if not self.process.alive():
            raise Failed(f"the agent has ended: {self.process.tail()}")
        text = command(self.binary, "status", "--json", f"--socket={self.socket}", check=False)
        try:
            return {target["name"]: target for target in json.loads(text)["targets"]}
        except (ValueError, KeyError, TypeError):
            return {}

    def close(self):
        if self.process:
            self.process.close()
        # Unlinking the last pin of a link detaches it.
        shutil.rmtree(self.pins, ignore_errors=True)


def check(binary, config):
    """What `headgate check` says of a configuration: its JSON."""
    with directory() as where:
        path = pathlib.Path(where) / "headgate.yaml"
        path.write_text(json.dumps(config))
        report = json.loads(command(binary, "check", "--json", path, check=False))
    if not report["valid"]:
        raise Failed(f"headgate check: {json.dumps(report['problems'])}")
    return report


def directory():
    return tempfile.TemporaryDirectory(prefix=f"headgate-e2e-{os.getpid()}-senders-")
