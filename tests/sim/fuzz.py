"""Random seeds: `python -m tests.sim.fuzz [COUNT] [--base BASE]`.

The base is random and printed, so that a failure can be reproduced. This is no check of a change, which must not fail by chance. Each
failed seed is printed on one line with how to replay it; at the end the number and range of the seeds are printed.
"""

from __future__ import annotations

import argparse
import secrets
import sys
import time
from collections import Counter

from .outcome import outcome

EVERY_S = 60.0


def main() -> int:
    """Run all seeds. Returns 1 if one has failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.sim.fuzz", description=__doc__)
    parser.add_argument("count", type=int, nargs="?", default=1000, help="how many seeds")
    parser.add_argument("--base", type=int, help="the first of them; drawn at random unless it is given")
    asked = parser.parse_args()
    base: int = secrets.randbelow(10**12) + 10**9 if asked.base is None else asked.base
    print(f"{asked.count} seeds from {base}", flush=True)
    effects: Counter[str] = Counter()
    failed: list[int] = []
    steps = 0
    told = time.monotonic()
    for seed in range(base, base + asked.count):
        found = outcome(seed)
        steps += found.steps
        effects.update(found.effects)
        if not found.ok:
            failed.append(seed)
            print(f"{found}\n  replay: python -m tests.sim {seed} --trace", flush=True)
        if time.monotonic() - told > EVERY_S:
            told = time.monotonic()
            print(f"  {seed - base + 1} of {asked.count} done, {len(failed)} failed", flush=True)
    print("faults that took effect:", ", ".join(f"{name} {count}" for name, count in effects.most_common()))
    print(
        f"{asked.count} seeds, {base} to {base + asked.count - 1}: {steps} steps, {len(failed)} failed {failed or ''}"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
