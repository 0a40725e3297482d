"""Chaos in rounds, until so many faults have had an effect: `python -m tests.chaos.long [FAULTS] [FILE]`.

Each round is a fleet of its own (`tests.chaos.fleet`) with the next seed, in a process of its own, and adds a line to a file. So this can
be ended at any time, and goes on where it was; a round that was ended counts for nothing. A round in which something is wrong is kept,
and ends this: its directory stays. The sum of all rounds is printed as the table that docs/promises.md shows. Exit code 0 only if all
rounds are right.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .fleet_faults import FAULTS

ROUND, ROUND_S, CALM_EVERY, QUIET = 100, 1500, 25, 4
FILE = Path(__file__).resolve().parents[2] / "bench" / "out" / "chaos.jsonl"


def rounds(file: Path) -> list[dict[str, Any]]:
    """What is there."""
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def right(one: dict[str, Any]) -> bool:
    """Whether nothing is lost, doubled or late in a round."""
    return not (one["lost"] or one["doubled"] or one["late"])


def timely(one: dict[str, Any]) -> bool:
    """Whether time has gone on as soon as it must, in a round. On a machine with much other work it may not."""
    return bool(one["in_time"] == one["calms"])


def told(found: list[dict[str, Any]]) -> Iterator[str]:
    """The sum, as a table."""
    faults, effects = (sum((Counter(one[name]) for one in found), Counter[str]()) for name in ("faults", "effects"))
    yield f"{faults.total():,} faults in {len(found)} rounds, {sum(one['seconds'] for one in found) / 3600:.1f} hours"
    yield "\n| fault | times | what it did |\n|---|---|---|"
    yield from (f"| {kind} | {faults[kind]} | {effects[kind]:,} {one.does} |" for kind, one in FAULTS.items())
    sums = {
        name: sum(one[name] for one in found) for name in ("records", "windows", "pairs", "lost", "doubled", "late")
    }
    yield "\n" + ", ".join(f"{name} {n:,}" for name, n in sums.items())
    calms, in_time = (sum(one[name] for one in found) for name in ("calms", "in_time"))
    slowest, own = (max((one[name] for one in found), default=0.0) for name in ("slowest_s", "slowest_own_s"))
    yield f"in time {in_time} of {calms} times; the latest {slowest} s after all workers were up, {own} s without waits for a processor"


def main(faults: int = 1000, file: str = str(FILE)) -> int:
    """Rounds until there are so many faults, and their sum."""
    to = Path(file)
    to.parent.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    while all(map(right, found := rounds(to))) and sum(sum(one["faults"].values()) for one in found) < faults:
        seed = max((one["seed"] for one in found), default=0) + 1
        words = [str(word) for word in (ROUND, ROUND_S, seed, 1 + seed % QUIET, CALM_EVERY, to)]
        process = subprocess.Popen([sys.executable, "-m", "tests.chaos.fleet", *words])
        try:
            process.wait()
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait(120)
        if len(rounds(to)) == len(found):
            print(f"seed {seed} ended with {process.returncode}, and has no result", flush=True)
            return 1
    print(*told(found), sep="\n")
    return 0 if all(right(one) and timely(one) for one in found) else 1


if __name__ == "__main__":
    sys.exit(main(*(int(word) if word.isdigit() else word for word in sys.argv[1:])))
