"""Where no Crossplane can be had: what a real one once sent, sent again by `examples/emit`, in its place."""

import os

from machine import Process
from servers import HERE, ROOT

FILES = {"steady": ["steady-start", "steady-idle"]}


class Emission(Process):
    def finish(self):
        super().finish()
        told = self.log.read_text()
        assert " 0 refused" in told and "refused: " not in told, told


class Captures:
    """Takes the place of a `Core` as far as that can be."""

    is_real = False

    def __init__(self, work, peers, ports, socket):
        self.work, self.socket = work, socket

    def play(self, scenario):
        files = FILES.get(scenario, [scenario])
        paths = [ROOT / f"tests/fixtures/captures/{file}.jsonl.zst" for file in files]
        return Emission(self.work, f"play-{scenario}", [HERE / "first", os.environ["EMIT"], self.socket, *paths]).start()

    def up(self):
        """There is nothing to start, to pause or to stop, and nobody to ask how it went."""

    rest = stop = down = up

    def errors(self):
        return {}

    def calls(self):
        return {}
