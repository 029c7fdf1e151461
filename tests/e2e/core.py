"""A real Crossplane with its API server and functions, by the driver of the peers; what its metrics say."""

import collections
import contextlib
import os
import re
import subprocess
import time

from machine import Process, eventually, get
from servers import HERE

# An ordinary XR of 12 resources trips core's breaker while it becomes ready.
NO_BREAKER = "--circuit-breaker-burst=10000 --circuit-breaker-refill-rate=1000"
ERRORS = "function_run_function_pipeline_inspector_errors_total"


def counts(url, name):
    return counts_in(get(url), name)


def counts_in(metrics, name):
    """Values of a metric by its labels, each as a set of pairs."""
    found = re.findall(rf"^{name}(?:\{{(.*)\}})? (\S+)", metrics, re.MULTILINE)
    return {frozenset(re.findall(r'(\w+)="([^"]*)"', labels)): float(value) for labels, value in found}


class Core:
    is_real = True

    def __init__(self, work, peers, ports, socket):
        self.work, self.driver, self.socket = work, peers.driver, socket
        self.base = ports.row(9)
        self.environment = {"E2E_RUN": str(work / "core"), "E2E_PORT": str(self.base), "PEERS": str(peers.folder), "PEERS_BIN": str(self.binaries(peers)), "CORE_FLAGS": NO_BREAKER}
        self.metrics = f"http://127.0.0.1:{self.base + 7}/metrics"

    def binaries(self, peers):
        """Those of the peers, of which core comes first."""
        folder = self.work / "bin"
        folder.mkdir()
        for name in ("kube-apiserver", "function-auto-ready"):
            (folder / name).symlink_to(peers.binary(name))
        (folder / "crossplane").write_text(f'#!/bin/sh\nexec {HERE / "first"} {peers.binary("crossplane")} "$@"\n')
        (folder / "crossplane").chmod(0o755)
        return folder

    def drive(self, *words, flags=""):
        environment = {**self.environment, "CORE_FLAGS": f"{NO_BREAKER} {flags}"}
        Process(self.work, "driver", [self.driver, *words], **environment).start().finish()

    def up(self):
        self.drive("up", str(self.socket))

    def restart(self, flags=""):
        self.drive("core", str(self.socket), flags=flags)

    def stop(self):
        self.drive("stop", "core")

    def down(self):
        """Also of what never came up."""
        with contextlib.suppress(AssertionError):
            self.drive("down")

    def play(self, scenario):
        """In the background."""
        return Process(self.work, f"play-{scenario}", [self.driver, "play", scenario], **self.environment).start()

    def kubectl(self, *words):
        environment = {**os.environ, "KUBECONFIG": str(self.work / "core/kubeconfig")}
        with open(self.work / "kubectl.log", "ab") as log:
            subprocess.run(["kubectl", *words], env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, check=True, timeout=120)

    def eventually_applies(self, path):
        """Kinds that are established may be unknown to kubectl for a moment."""

        def applied():
            try:
                self.kubectl("apply", "-f", str(path))
            except subprocess.CalledProcessError:
                return False
            return True

        eventually(f"{path} is applied", applied, 30)

    def calls(self):
        """How often each function was called."""
        called = collections.Counter()
        for labels, value in counts(self.metrics, "function_run_function_request_total").items():
            called[dict(labels)["function_name"]] += int(value)
        return called

    def errors(self):
        """Emits that failed, by function and kind; the metric does not exist before the first."""
        return {(dict(labels)["function_name"], dict(labels)["type"]): int(value) for labels, value in counts(self.metrics, ERRORS).items()}

    def rest(self):
        """Pauses every XR, and waits until no pipeline runs any more, but for those that hang."""
        self.kubectl("annotate", "composite", "--all", "--overwrite", "crossplane.io/paused=true")
        self.wait_until_idle()

    def wait_until_idle(self):
        before, since = None, time.monotonic()

        def idle():
            nonlocal before, since
            if before != (before := self.calls()):
                since = time.monotonic()
            # A function of the scenarios takes 3 s on purpose, one that fails is tried again after up to 8.
            return time.monotonic() - since > 5

        eventually("functions are called no more", idle, 90)
