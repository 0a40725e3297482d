"""By planted bug: a seed that shows it. `python -m tests.sim.shown` looks for new ones where the stored one shows it no longer, and writes
this file again.

The seeds are shared as far as possible: each is also run without a bug, and that takes longest.
"""

from __future__ import annotations

import argparse
import sys
from itertools import count, islice
from pathlib import Path

from .outcome import Outcome, outcome
from .planted import PLANTS, Plant

FIRST = 50_000
SEEDS = 300
"""How many seeds that have what it needs may a bug survive."""

SHOWN: dict[str, int] = {}


def fall(plant: Plant, seed: int) -> Outcome | None:
    """What the seed shows with this bug; None if it shows nothing.

    An event that a machine's table does not allow counts: the machine rejects what contradicts its state. Another exception does not: the
    planted code has raised it.
    """
    found = outcome(seed, plant=plant)
    refused = found.error.startswith("IllegalEvent")
    assert refused or not found.error, f"{plant.name} broke a machine instead of a promise: {found}"
    return None if found.ok else found


def search(plant: Plant) -> int | None:
    """The first seed that shows the bug."""
    return next((seed for seed in islice(filter(plant.shows, count(FIRST)), SEEDS) if fall(plant, seed)), None)


def shared(plant: Plant, seeds: list[int]) -> int | None:
    """One of these seeds that shows the bug, which others need, too."""
    return next((seed for seed in seeds if plant.shows(seed) and fall(plant, seed)), None)


def written(text: str, shown: dict[str, int]) -> str:
    """This file with these seeds."""
    begin = text.index("SHOWN: dict[str, int] = {") + len("SHOWN: dict[str, int] = {")
    rows = "".join(f'\n    "{name}": {seed:_},' for name, seed in sorted(shown.items()))
    return f"{text[:begin]}{rows}\n{text[text.index('}', begin) :]}"


def main() -> int:
    """Look for a seed of each bug that has none, and write the file."""
    parser = argparse.ArgumentParser(prog="python -m tests.sim.shown", description=__doc__)
    parser.add_argument("--all", action="store_true", help="forget the stored seeds")
    forget = parser.parse_args().all
    shown: dict[str, int] = {}
    for name, plant in sorted(PLANTS.items()):
        stored = None if forget else SHOWN.get(name)
        found = shared(plant, [] if stored is None else [stored])
        if found is None:
            found = shared(plant, sorted(set(shown.values())))
        if found is None:
            found = search(plant)
        print(f"{name}: {found}{'' if found == stored else ' (new)'}", flush=True)
        if found is not None:
            shown[name] = found
    path = Path(__file__)
    path.write_text(written(path.read_text(encoding="utf-8"), shown), encoding="utf-8")
    return 0 if shown.keys() == PLANTS.keys() else 1


if __name__ == "__main__":
    sys.exit(main())
