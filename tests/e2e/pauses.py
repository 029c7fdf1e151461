"""Notes when this machine kept even a process of the first rank waiting: an answer within 100 ms can't be asked of it then.

Run by itself it watches, one line a pause: when it ended, and how long it was, in seconds.
"""

import sys
import time

from machine import Process
from servers import HERE

INTERVAL, LONGEST = 0.005, 0.05


class Pauses:
    def __init__(self, work):
        (work / "pauses").mkdir()
        self.watcher = Process(work / "pauses", "pauses", [HERE / "first", sys.executable, "-B", __file__])

    def start(self):
        self.watcher.start()

    def spans(self):
        """From when to when, each with the second around it in which things are late."""
        lines = (line.split() for line in self.watcher.log.read_text().splitlines())
        return [(float(end) - float(seconds) - 1, float(end) + 1) for end, seconds in lines]


def watch():
    while True:
        before = time.monotonic()
        time.sleep(INTERVAL)
        late = time.monotonic() - before - INTERVAL
        if late > LONGEST:
            print(time.time(), late, flush=True)


if __name__ == "__main__":
    watch()
