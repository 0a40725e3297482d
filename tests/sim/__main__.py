"""Replay one seed: `python -m tests.sim SEED [--trace] [--plant NAME]`."""

from __future__ import annotations

import argparse
import sys

from .outcome import outcome
from .planted import PLANTS


def main() -> int:
    """Run the seed, and print the outcome."""
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description=__doc__)
    parser.add_argument("seed", type=int)
    parser.add_argument("--trace", action="store_true", help="one line per event")
    parser.add_argument("--plant", choices=sorted(PLANTS), help="with this planted bug")
    asked = parser.parse_args()
    plant = PLANTS[asked.plant] if asked.plant else None
    found = outcome(asked.seed, trace=asked.trace, plant=plant)
    for line in found.trace:
        print(line)
    print(found)
    return 0 if found.ok else 1


if __name__ == "__main__":
    sys.exit(main())
