"""By planted bug: a seed that shows it. `python -m tests.sim.shown` looks for new ones where the stored one shows it no longer, and writes
this file again after each; with `--all` it looks for a cheaper one of each bug.

A seed costs the steps until the bug shows, and those of its world without the bug, which is run once for all bugs that have this seed. So a
seed that other bugs have is tried first, and many bugs have one seed.
"""

from __future__ import annotations

import argparse
import functools
import sys
from collections import Counter
from collections.abc import Collection, Iterator
from itertools import count, islice
from pathlib import Path

from .outcome import Outcome, outcome
from .plant import Plant
from .planted import PLANTS
from .world import BOUND_STEPS

SEEDS = 300
"""How many seeds that have what it needs may a bug survive."""
TESTED = 60
"""Of how many of them a test looks for one: more would take longer than a test may."""
TRIED = 5
"""Of how many seeds that have what a bug needs the cheapest is chosen: so many that other bugs have, and so many others."""

SHOWN: dict[str, int] = {
    "additions-stay": 50_133,
    "all-move": 50_000,
    "all-on-one": 50_000,
    "all-wait-for-one": 1_000_821,
    "alone-by-event": 50_008,
    "answers-outlive": 11_000_056,
    "answers-overtake": 11_000_005,
    "answers-swapped": 11_000_016,
    "applied-twice": 50_033,
    "away-is-bad": 11_000_020,
    "away-is-empty": 1_000_347,
    "block-stays": 50_000,
    "bookkeeping-lost": 50_000,
    "bounds-early": 50_000,
    "by-no-event": 50_000,
    "cancelled-await": 50_036,
    "cancelled-call": 3_000_021,
    "changed-evicted": 50_000,
    "closed-at-work": 50_058,
    "closed-session-stays": 50_024,
    "closing-anew": 11_000_005,
    "committed-first": 2_000_005,
    "cut-off-kills": 1_000_051,
    "damaged-passed": 50_007,
    "difference-left-out": 50_003,
    "drain-is-idle": 50_109,
    "dropped-meanwhile": 1_000_009,
    "end-moves-floor": 50_000,
    "end-repeated": 50_121,
    "ends-early": 50_000,
    "flag-outlives": 50_093,
    "floor-not-stored": 50_008,
    "fold-in-log-order": 50_000,
    "follower-uncommitted": 50_117,
    "foreign-drain": 50_001,
    "forgotten-early": 50_031,
    "grant-before-fence": 50_000,
    "granted-when-prepared": 50_001,
    "grants-nothing": 50_000,
    "guessed-idle": 50_004,
    "half-a-chunk": 50_000,
    "half-completed": 50_000,
    "idle-left-out": 50_062,
    "initialised-twice": 50_002,
    "last-row": 50_000,
    "late-part-unsaid": 50_053,
    "late-partial": 4_000_082,
    "leader-left-open": 50_007,
    "left-out-stays": 10_000_140,
    "letters-left-out": 5_000_034,
    "lost-at-newest": 1_000_076,
    "matches-not-stored": 50_014,
    "matches-packed": 50_008,
    "merged-session-stays": 50_027,
    "move-at-once": 50_002,
    "never-confirmed": 4_000_024,
    "never-read-again": 50_007,
    "newest-of-before": 52_338,
    "numbers-before-seal": 50_049,
    "old-run-counts": 50_106,
    "old-store": 50_632,
    "older-epochs": 50_023,
    "one-silent": 50_073,
    "outage-kills": 1_000_821,
    "overtaken-is-away": 50_103,
    "owned-by-processor": 50_006,
    "parked-overtaken": 5_000_026,
    "parked-twice": 5_000_026,
    "partial-judged-early": 50_075,
    "pause-drained": 50_148,
    "pause-kept": 50_038,
    "pause-not-obeyed": 50_046,
    "pause-untold": 51_094,
    "pause-unwritten": 50_016,
    "position-first": 1_000_052,
    "raised-time": 50_000,
    "refused-write": 50_040,
    "release-forgotten": 9_000_102,
    "released-from-behind": 9_000_534,
    "results-wait": 4_000_064,
    "rows-known": 50_137,
    "rows-of-a-table-removed": 5_000_011,
    "seek-answered-early": 50_006,
    "seek-done-at-once": 50_006,
    "seek-nothing": 50_018,
    "seek-one-off": 50_018,
    "setting-no-task": 50_007,
    "setting-nowhere": 50_007,
    "setting-unwritten": 50_007,
    "sibling-partitions": 50_015,
    "skip-not-obeyed": 5_000_050,
    "slots-too-early": 50_002,
    "stale-fetch": 50_018,
    "stop-at-once": 50_058,
    "stop-forgets-moves": 50_485,
    "store-left-open": 50_000,
    "ticks-in-memory": 8_000_028,
    "time-first": 50_006,
    "time-forgotten": 50_001,
    "time-is-the-end": 2_000_034,
    "timers-gone": 5_000_181,
    "timers-stay": 5_000_044,
    "transaction-left-open": 50_000,
    "tried-not-asked": 50_018,
    "two-owners": 50_009,
    "unanswered-end-counts": 1_000_076,
    "undone-drain": 50_001,
    "unseen-left-out": 10_000_703,
    "unset-kept": 2_000_003,
    "unset-unwritten": 2_000_003,
    "withdraw-nothing": 2_000_001,
}


def fall(plant: Plant, seed: int, most: int = BOUND_STEPS) -> Outcome | None:
    """What the seed shows with this bug within so many steps; None if it shows nothing.

    An event that a machine's table does not allow counts: the machine rejects what contradicts its state. Another exception does not: the
    planted code has raised it.
    """
    found = outcome(seed, plant=plant, most=most)
    if BOUND_STEPS > most < found.steps:
        return None
    refused = found.error.startswith("IllegalEvent")
    assert refused or not found.error, f"{plant.name} broke a machine instead of a promise: {found}"
    return None if found.ok else found


@functools.cache
def without_a_bug(seed: int) -> Outcome:
    """The outcome of the seed itself, which may serve several bugs."""
    return outcome(seed)


def search(plant: Plant, most: int = SEEDS) -> int | None:
    """The first seed that shows the bug."""
    return next((seed for seed in islice(filter(plant.shows, count(plant.first)), most) if fall(plant, seed)), None)


def cost(plant: Plant, seed: int, used: Collection[int], most: int) -> int:
    """What this seed costs, in steps; `most` if it shows nothing, or costs as much. `used`: the seeds of the other bugs."""
    found = fall(plant, seed, most)
    if found is None:
        return most
    clean = without_a_bug(seed)
    return min(most, found.steps + (0 if seed in used else clean.steps)) if clean.ok else most


def candidates(plant: Plant, stored: int | None, used: Counter[int]) -> Iterator[int]:
    """The seeds among which one is chosen: the stored one, those that most bugs have, and the first others."""
    if stored is not None and plant.shows(stored):
        yield stored
    others = (seed for seed, _ in used.most_common() if seed != stored)
    yield from islice(filter(plant.shows, others), TRIED)
    new = (seed for seed in count(plant.first) if seed not in used and seed != stored)
    yield from islice(filter(plant.shows, new), TRIED)


def cheapest(plant: Plant, stored: int | None, used: Counter[int]) -> int | None:
    """The cheapest of some seeds that show the bug; the first that shows it if none of these does."""
    best, least = None, BOUND_STEPS
    for seed in candidates(plant, stored, used):
        steps = cost(plant, seed, used, least)
        if steps < least:
            best, least = seed, steps
    return search(plant) if best is None else best


def written(text: str, shown: dict[str, int]) -> str:
    """This file with these seeds."""
    begin = text.index("SHOWN: dict[str, int] = {") + len("SHOWN: dict[str, int] = {")
    rows = "".join(f'\n    "{name}": {seed:_},' for name, seed in sorted(shown.items()))
    return f"{text[:begin]}{rows}\n{text[text.index('}', begin) :]}"


def main() -> int:
    """Look for a seed of each bug that has none, or for a cheaper one of each, and write the file."""
    parser = argparse.ArgumentParser(prog="python -m tests.sim.shown", description=__doc__)
    parser.add_argument("--all", action="store_true", help="look for a cheaper seed of each bug, too")
    anew = parser.parse_args().all
    path, shown = Path(__file__), {name: seed for name, seed in SHOWN.items() if name in PLANTS}
    for name, plant in sorted(PLANTS.items()):
        stored = shown.pop(name, None)
        kept = stored is not None and not anew and plant.shows(stored) and fall(plant, stored) is not None
        found = stored if kept else cheapest(plant, stored, Counter(shown.values()))
        print(f"{name}: {found}{'' if found == stored else ' (new)'}", flush=True)
        if found is not None:
            shown[name] = found
        path.write_text(written(path.read_text(encoding="utf-8"), shown), encoding="utf-8")
    return 0 if shown.keys() == PLANTS.keys() else 1


if __name__ == "__main__":
    sys.exit(main())
