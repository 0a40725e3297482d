"""Measures the simulator's steps per second on one core: `python -m tests.sim.speed [SEEDS]`."""

from __future__ import annotations

import sys
import time
from collections import Counter

from .outcome import outcome


def main() -> None:
    """Run some seeds, and print the rate and the faults that took effect."""
    seeds = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    effects: Counter[str] = Counter()
    steps = bad = 0
    began = time.process_time()
    for seed in range(seeds):
        found = outcome(seed)
        steps += found.steps
        effects.update(found.effects)
        if not found.ok:
            bad += 1
            print(str(found).splitlines()[0][:300])
    spent = time.process_time() - began
    print(
        f"{seeds} seeds, {steps} steps in {spent:.1f} s: {steps / spent:,.0f} steps/s, {steps / seeds:,.0f} a seed; {bad} failed"
    )
    for name, count in effects.most_common():
        print(f"  {name:<14} {count}")


if __name__ == "__main__":
    main()
