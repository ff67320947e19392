# SPDX-License-Identifier: Apache-2.0
"""A node of tests/kubernetes/node and what is done with it: kubectl, helm, images, load, metrics."""
import ctypes
import io
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import tarfile
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
TOP = HERE.parent.parent
NODE, NODE_IP = "node1", "172.30.0.2"
CGROUPS = pathlib.Path("/sys/fs/cgroup")


class Failed(Exception):
    """What was expected did not come."""


def end_with_parent():
    """In a child: ends also when this program is killed (prctl(2), PR_SET_PDEATHSIG)."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


def until(seconds, what, condition):
    """The first true value of condition(), asked until then; Failed after `seconds`."""
    end = time.monotonic() + seconds
    last = ""
    while True:
        try:
            value = condition()
            if value:
                return value
        except (Failed, subprocess.TimeoutExpired) as error:
            last = f": {error}"
        if time.monotonic() > end:
            raise Failed(f"not within {seconds} s: {what}{last}")
        time.sleep(0.1)


def expect(condition, said):
    if not condition:
        raise Failed(said)


def rename_image(archive, name, out):
    """The kubelet's side of containerd fails over names without a registry, and keeps the first it gets."""
    with tarfile.open(archive) as old, tarfile.open(out, "w") as new:
        for member in old:
            data = old.extractfile(member).read() if member.isfile() else b""
            if member.name == "index.json":
                index = json.loads(data)
                index["manifests"][0]["annotations"] = {"org.opencontainers.image.ref.name": name}
                data = json.dumps(index).encode()
            elif member.name == "manifest.json":
                data = json.dumps([json.loads(data)[0] | {"RepoTags": [name]}]).encode()
            member.size = len(data)
            new.addfile(member, io.BytesIO(data))


class Metrics:
    """A page of the Prometheus text format."""

    def __init__(self, text):
        self.lines = [line for line in text.splitlines() if line and line[0] != "#"]

    def sum(self, name, **labels):
        """Of all series that have these labels; None: there is none."""
        wanted = [f'{key}="{value}"' for key, value in labels.items()]
        values = [float(line.rsplit(" ", 1)[1]) for line in self.lines
                  if re.match(re.escape(name) + r"[{ ]", line) and all(w in line for w in wanted)]
        return sum(values) if values else None


class Load:
    """A client under way; `result()` waits for its end."""

    def __init__(self, process, seconds):
        self.process, self.seconds = process, seconds

    def result(self):
        out, err = self.process.communicate(timeout=self.seconds + 60)
        if self.process.returncode != 0:
            raise Failed(f"client: {err.strip()}")
        return json.loads(out)


class Cluster:
    def __init__(self, server, kit, helm):
        self.server, self.kit, self.helm_binary = server, pathlib.Path(kit), helm
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="headgate-kubernetes."))
        self.node = self.proxy = None
        self.pid = 0
        # What the cases know of it.
        self.installed = None
        self.capacity = 0.0

    @staticmethod
    def say(text):
        print(f"     {text}", flush=True)

    # ---- the node

    def start(self):
        for root in self.kubepods():
            processes = any(p.read_text() for p in root.rglob("cgroup.procs"))
            if processes:
                raise Failed(f"{root}: another kubelet is at work on this machine")
        self.remove_cgroups()
        log = open(self.dir / "node.log", "wb")
        self.node = subprocess.Popen(
            [HERE / "node", self.server, self.kit, self.dir], stdout=log, stderr=log,
            stdin=subprocess.DEVNULL, preexec_fn=end_with_parent, start_new_session=True)
        until(10, "the node's first process", self.find_pid)
        until(180, "the node is ready", self.is_ready)
        self.raise_weight()
        self.start_proxy("iptables")

    def raise_weight(self):
        """So that the limits of the pods are what limits them, and not what else this machine does."""
        for root in self.kubepods():
            for file, value in ("cpu.shares", 65536), ("cpu.weight", 10000):
                if (root / file).exists():
                    (root / file).write_text(str(value))

    def find_pid(self):
        children = pathlib.Path(f"/proc/{self.node.pid}/task/{self.node.pid}/children").read_text()
        self.pid = int(children.split()[0]) if children.split() else 0
        return self.pid

    def is_ready(self):
        if self.node.poll() is not None:
            raise SystemExit(f"tests/kubernetes/node: {(self.dir / 'node.log').read_text()}")
        return (self.dir / "ready").exists()

    def start_proxy(self, mode):
        if self.proxy:
            self.proxy.terminate()
            self.proxy.wait(10)
        log = open(self.dir / "log" / f"proxy-{mode}.log", "wb")
        # In the process namespace of the machine: what is killed here is then the proxy itself.
        self.proxy = subprocess.Popen(
            ["nsenter", "-t", str(self.pid), "-m", "-u", "-n", self.dir / "bin/kube-proxy",
             f"--kubeconfig={self.dir}/proxy.kubeconfig", f"--proxy-mode={mode}",
             f"--hostname-override={NODE}", "--cluster-cidr=10.244.0.0/16", "--oom-score-adj=0",
             "--conntrack-max-per-core=0", "--conntrack-min=0", "--conntrack-tcp-timeout-established=0",
             "--conntrack-tcp-timeout-close-wait=0"],
            stdout=log, stderr=log, stdin=subprocess.DEVNULL, preexec_fn=end_with_parent)

    def stop(self):
        """Ends all of it; says what could not be removed."""
        for process in (self.proxy, self.node):
            if process:
                process.kill()
                process.wait(30)
        if not self.node:
            shutil.rmtree(self.dir)
            return
        left = []
        try:
            until(30, "its cgroups are empty", self.remove_cgroups)
            # The mounts go with the last process of the namespace.
            until(30, "its files are free", lambda: shutil.rmtree(self.dir) or True)
        except (Failed, OSError) as error:
            left.append(str(error))
        if left:
            raise Failed("left behind: " + "; ".join(left))

    @staticmethod
    def kubepods():
        roots = [CGROUPS / "kubepods", *CGROUPS.glob("*/kubepods")]
        return [root for root in roots if root.is_dir()]

    @classmethod
    def remove_cgroups(cls):
        for root in cls.kubepods():
            for directory in sorted([root, *(d for d in root.rglob("*") if d.is_dir())], reverse=True):
                try:
                    directory.rmdir()
                except OSError:
                    pass
        return not cls.kubepods()

    # ---- commands

    def run(self, command, timeout=60, text=None, check=True):
        """What a command on the node writes; its status too where it may fail."""
        done = subprocess.run([str(c) for c in command], input=text, capture_output=True, text=True,
                              timeout=timeout)
        if check and done.returncode != 0:
            raise Failed(f"{' '.join(map(str, command[-6:]))}: {done.stderr.strip() or done.stdout.strip()}")
        return done.stdout if check else (done.returncode, done.stdout + done.stderr)

    def on_node(self, *command, **options):
        return self.run(["nsenter", "-t", self.pid, "-m", "-u", "-n", "-p", *command], **options)

    def kubectl(self, *arguments, **options):
        return self.run(["nsenter", "-t", self.pid, "-n", self.dir / "bin/kubectl",
                         f"--kubeconfig={self.dir}/admin.kubeconfig", "--request-timeout=20s", *arguments],
                        **options)

    def get(self, *arguments):
        return json.loads(self.kubectl("get", *arguments, "-o", "json"))

    def helm(self, *arguments):
        return self.run(["nsenter", "-t", self.pid, "-n", self.helm_binary,
                         f"--kubeconfig={self.dir}/admin.kubeconfig", *arguments], timeout=180)

    def import_image(self, archive, name):
        """An archive of one image, docker's or OCI's form, under this name."""
        renamed = self.dir / "image.tar"
        rename_image(archive, name, renamed)
        ctr = ["env", f"PATH={self.kit}/root/usr/bin:/usr/bin:/bin", "ctr", "-n", "k8s.io", "image"]
        # Once in a while containerd 1.6 has collected a part of it by the time it unpacks ("content digest
        # ... not found"); what is there is not written again.
        until(30, f"{archive} is imported", lambda: self.on_node(*ctr, "import", renamed, timeout=120))

    # ---- pods

    def pods(self, selector, namespace="default"):
        """Those that are not about to end."""
        items = self.get("pods", "-n", namespace, "-l", selector)["items"]
        return [p for p in items if "deletionTimestamp" not in p["metadata"]]

    def pod(self, selector, namespace="default"):
        """The one that is there, once it is ready."""
        def ready():
            found = self.pods(selector, namespace)
            return found[0] if len(found) == 1 and is_ready(found[0]) else None
        return until(90, f"one pod with {selector} is ready", ready)

    def agent(self):
        return self.pod("app.kubernetes.io/name=headgate", "headgate")

    def headgate(self, *arguments, **options):
        """A verb of the agent's binary, in the agent's pod."""
        return self.kubectl("-n", "headgate", "exec", self.agent()["metadata"]["name"], "--", "headgate",
                            *arguments, **options)

    def metrics(self, pod=None):
        address = (pod or self.agent())["status"]["podIP"]
        return Metrics(self.on_node("curl", "-sf", "-m", "5", f"http://{address}:9749/metrics"))

    def agent_log(self):
        return self.kubectl("-n", "headgate", "logs", self.agent()["metadata"]["name"])

    # ---- load

    def load_in_pod(self, seconds, *arguments, pod="client"):
        return self.started(["nsenter", "-t", str(self.pid), "-n", self.dir / "bin/kubectl",
                             f"--kubeconfig={self.dir}/admin.kubeconfig", "exec", pod, "--", "/client"],
                            seconds, arguments)

    def load_from_outside(self, seconds, *arguments):
        outside = (self.dir / "outside").read_text().strip()
        return self.started(["nsenter", "-t", str(self.pid), "-m", "-p", "nsenter", "-t", outside, "-n",
                             self.kit / "client"], seconds, arguments)

    @staticmethod
    def started(command, seconds, arguments):
        return Load(subprocess.Popen(
            [*map(str, command), "load", "-duration", f"{seconds}s", *map(str, arguments)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=end_with_parent), seconds)


def is_ready(pod):
    conditions = pod["status"].get("conditions", [])
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


def restarts(pod):
    return sum(c["restartCount"] for c in pod["status"].get("containerStatuses", []))
