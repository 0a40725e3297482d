"""How long a thread or a loop stood still for the program's own fault: what a process beside could not do either is the machine's."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

BESIDE = """
import sys, time
last = time.monotonic()
while True:
    time.sleep(0.01)
    now = time.monotonic()
    if now - last > 0.1:
        print(last, now, flush=True)
    last = now
"""


def waited_s() -> float:
    """For how long this thread has waited for a processor so far, by the kernel's account; 0 where it gives none."""
    try:
        return int(Path("/proc/thread-self/schedstat").read_text().split()[1]) / 1e9
    except OSError:
        return 0.0


class Beside:
    """A process that does nothing but turn, as long as the block lasts; it tells when it could not."""

    def __enter__(self) -> Beside:
        self._process = subprocess.Popen([sys.executable, "-c", BESIDE], stdout=subprocess.PIPE, text=True)
        self._stood: list[tuple[float, float]] = []
        return self

    def __exit__(self, *_: object) -> None:
        time.sleep(0)
        self._process.kill()
        said, _ = self._process.communicate()
        for line in said.splitlines():
            if line.count(".") == 2:
                begun, ended = map(float, line.split())
                self._stood.append((begun, ended))

    def own(self, begun: float, ended: float) -> float:
        """How much of this pause is not the machine's. Both clocks are the same. Ask when the block is over."""
        return ended - begun - sum(max(0.0, min(ended, e) - max(begun, b)) for b, e in self._stood)
