"""This machine: free ports, processes with their logs, and patience."""

import os
import random
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request

# Below what Linux gives to outgoing connections, which are many here.
PORTS = range(10_000, 32_000)


def is_free(port):
    with socket.socket() as each:
        # As servers do; else a port whose last connection has just ended counts as taken.
        each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            each.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


class Ports:
    """Free ones, none of them twice."""

    def __init__(self):
        self.given = set()

    def row(self, length):
        """The first of so many in a row."""
        while True:
            first = random.choice(PORTS)
            row = range(first, first + length)
            if not self.given.intersection(row) and all(map(is_free, row)):
                self.given.update(row)
                return first

    def one(self):
        return self.row(1)


class Process:
    """One that the suite started, in a group of its own; it may be started again after it was stopped."""

    running = set()

    def __init__(self, work, name, command, **environment):
        self.name, self.command, self.environment = name, [str(word) for word in command], environment
        self.log = work / f"{name}.log"
        self.child = None

    def start(self):
        with open(self.log, "ab") as log:
            environment = {**os.environ, **{name: str(value) for name, value in self.environment.items()}}
            self.child = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment, start_new_session=True)
        Process.running.add(self)
        return self

    def finish(self):
        """Waits for its end, which is to be a good one. The longest of all takes 200 s."""
        status = self.child.wait(timeout=300)
        # A script that was stopped may leave what it waited for.
        self.signal(signal.SIGKILL)
        Process.running.discard(self)
        assert status == 0, f"{self.name} ended with {status}; see {self.log}"

    def stop(self):
        self.signal(signal.SIGTERM)
        try:
            self.child.wait(timeout=15)
        except subprocess.TimeoutExpired:
            self.signal(signal.SIGKILL)
        self.child.wait()
        Process.running.discard(self)

    def kill(self):
        self.signal(signal.SIGKILL)
        self.child.wait()
        Process.running.discard(self)

    def signal(self, number):
        try:
            os.killpg(self.child.pid, number)
        except ProcessLookupError:
            pass

    @property
    def is_running(self):
        return self.child is not None and self.child.poll() is None


def get(url, seconds=10):
    with urllib.request.urlopen(url, timeout=seconds) as answer:
        return answer.read().decode()


def readiness(sidecar, seconds=10):
    """The status of a sidecar's `/readyz`, and what it says."""
    try:
        return 200, get(sidecar + "/readyz", seconds)
    except urllib.error.HTTPError as answer:
        return answer.code, answer.read().decode()


def eventually(what, probe, seconds=60):
    """Asks until the answer is true, and returns it; a real system has no other way to tell."""
    end, last = time.monotonic() + seconds, None
    while time.monotonic() < end:
        try:
            if last := probe():
                return last
        except (OSError, urllib.error.URLError) as error:
            last = error
        time.sleep(0.2)
    raise AssertionError(f"{what}: not within {seconds} s (at last: {last!r})")
