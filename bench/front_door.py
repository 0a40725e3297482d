"""How long `import headgate` and `headgate --help` take as processes; the limits are 0.2 s and 0.4 s.

Each runs a few times and the median counts. The start of the bare interpreter is shown for comparison.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from pathlib import Path

TIMES = 7


def seconds(arguments: list[str]) -> float:
    """The median duration of a process."""
    taken: list[float] = []
    for _ in range(TIMES):
        begin = time.perf_counter()
        subprocess.run(arguments, check=True, stdout=subprocess.DEVNULL)
        taken.append(time.perf_counter() - begin)
    return statistics.median(taken)


def main() -> int:
    """Print a line for each."""
    rows = {
        "bare interpreter": ([sys.executable, "-c", "pass"], None),
        "import headgate": ([sys.executable, "-c", "import headgate"], 0.2),
        "headgate --help": ([str(Path(sys.executable).with_name("headgate")), "--help"], 0.4),
    }
    for name, (arguments, wanted) in rows.items():
        taken = seconds(arguments)
        verdict = "" if wanted is None else f"   wanted {wanted:.1f} s: {'ok' if taken <= wanted else 'TOO SLOW'}"
        print(f"{name:<20} {taken:.3f} s{verdict}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
