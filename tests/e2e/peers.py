"""Which of the real peers are on this machine, and what has to be left out without the others."""

import pathlib
import sys


class Peers:
    """Binaries in a folder, as `install` or the unpacked archives lay it out, and the driver of a real Crossplane."""

    def __init__(self, folder, driver):
        self.folder = pathlib.Path(folder)
        self.driver = pathlib.Path(driver) if driver else None
        self.left_out = []

    def leave_out(self, checks, reason):
        """Told at once, and again at the end."""
        if checks not in self.left_out:
            self.left_out.append(checks)
            print(f"e2e: LEFT OUT: {checks}, since {reason}", file=sys.stderr, flush=True)

    def binary(self, name):
        found = self.find(name)
        assert found, f"{name} is in no folder of {self.folder}"
        return found

    def find(self, name):
        for place in ("bin", "py/bin", "pyfn/bin"):
            if (self.folder / place / name).exists():
                return self.folder / place / name
        return None

    def has(self, name, checks):
        """Whether a peer is there; if not, it is told what is not checked."""
        there = bool(self.driver) if name == "crossplane" else bool(self.find(name))
        if not there:
            self.leave_out(checks, f"there is no {name}")
        return there
