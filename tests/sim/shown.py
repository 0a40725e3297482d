"""By planted bug: a seed that shows it. `python -m tests.sim.shown` looks for new ones where the stored one shows it no longer, and writes
this file again after each; with `--all` it looks for a cheaper one of each bug.

A seed costs the steps until the bug shows, and those of its world without the bug, which is run once for all bugs that have this seed. So a
seed that other bugs have is tried first, and many bugs have one seed. A small world costs a third of most others, with a bug and without.
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
from .world import BOUND_STEPS, World

SEEDS = 300
"""How many seeds that have what it needs may a bug survive."""
TESTED = 60
"""Of how many of them a test looks for one: more would take longer than a test may."""
TRIED = 6
"""Of how many seeds that have what a bug needs the cheapest is chosen: so many that other bugs have, and so many others."""
LOOKED_AT = 60
"""Of so many others that have what it needs the smallest are tried."""

SHOWN: dict[str, int] = {
    "additions-stay": 50_626,
    "all-move": 50_000,
    "all-on-one": 50_000,
    "all-wait-for-one": 1_000_821,
    "alone-by-event": 50_130,
    "answers-outlive": 11_000_926,
    "answers-overtake": 11_001_065,
    "answers-swapped": 11_000_995,
    "applied-twice": 52_338,
    "away-is-bad": 11_001_065,
    "away-is-empty": 10_001_025,
    "block-stays": 10_000_975,
    "bookkeeping-lost": 50_000,
    "bounds-early": 50_000,
    "by-no-event": 11_000_995,
    "cancelled-await": 52_180,
    "cancelled-call": 8_000_361,
    "changed-evicted": 11_000_995,
    "closed-at-work": 11_000_926,
    "closed-session-stays": 50_027,
    "closing-anew": 11_001_065,
    "committed-first": 11_001_778,
    "cut-off-kills": 11_001_675,
    "damaged-passed": 50_384,
    "difference-left-out": 11_000_331,
    "drain-is-idle": 1_000_052,
    "dropped-meanwhile": 4_000_025,
    "end-moves-floor": 10_000_975,
    "end-repeated": 50_626,
    "ends-early": 50_000,
    "flag-outlives": 2_000_299,
    "floor-not-stored": 50_008,
    "fold-in-log-order": 51_545,
    "follower-uncommitted": 10_001_025,
    "foreign-drain": 1_000_821,
    "forgotten-early": 52_290,
    "grant-before-fence": 51_545,
    "granted-when-prepared": 11_000_331,
    "grants-nothing": 50_000,
    "guessed-idle": 11_000_331,
    "half-a-chunk": 50_000,
    "half-completed": 50_384,
    "idle-left-out": 50_062,
    "initialised-twice": 11_000_331,
    "last-row": 51_545,
    "late-part-unsaid": 5_000_814,
    "late-partial": 10_000_557,
    "leader-left-open": 1_000_052,
    "left-out-stays": 10_001_315,
    "letters-left-out": 11_000_995,
    "lost-at-newest": 11_001_067,
    "matches-not-stored": 2_000_299,
    "matches-packed": 50_130,
    "merged-session-stays": 50_027,
    "move-at-once": 10_000_044,
    "never-confirmed": 10_000_975,
    "never-read-again": 50_013,
    "newest-of-before": 52_338,
    "numbers-before-seal": 11_000_346,
    "old-run-counts": 1_000_052,
    "old-store": 50_632,
    "older-epochs": 50_023,
    "one-silent": 50_384,
    "outage-kills": 11_001_675,
    "overtaken-is-away": 50_103,
    "owned-by-processor": 50_006,
    "parked-overtaken": 10_001_315,
    "parked-twice": 5_000_437,
    "partial-judged-early": 4_000_025,
    "pause-drained": 50_992,
    "pause-kept": 11_000_681,
    "pause-not-obeyed": 10_000_044,
    "pause-untold": 10_000_044,
    "pause-unwritten": 50_008,
    "position-first": 11_000_240,
    "raised-time": 4_000_025,
    "refused-write": 8_000_546,
    "release-forgotten": 10_001_315,
    "released-from-behind": 10_001_315,
    "results-wait": 10_000_975,
    "rows-known": 51_099,
    "rows-of-a-table-removed": 11_002_498,
    "seek-answered-early": 50_632,
    "seek-done-at-once": 50_006,
    "seek-nothing": 50_018,
    "seek-one-off": 50_018,
    "setting-no-task": 50_090,
    "setting-nowhere": 2_000_299,
    "setting-unwritten": 8_000_361,
    "sibling-partitions": 50_015,
    "skip-not-obeyed": 11_001_907,
    "slots-too-early": 10_000_975,
    "stale-fetch": 50_018,
    "stop-at-once": 11_000_926,
    "stop-forgets-moves": 50_485,
    "store-left-open": 50_000,
    "ticks-in-memory": 10_000_044,
    "time-first": 50_006,
    "time-forgotten": 11_001_778,
    "time-is-the-end": 5_000_181,
    "timers-gone": 5_000_181,
    "timers-stay": 8_000_361,
    "transaction-left-open": 51_545,
    "tried-not-asked": 2_000_299,
    "two-owners": 50_130,
    "unanswered-end-counts": 11_000_331,
    "undone-drain": 11_000_995,
    "unseen-left-out": 10_001_315,
    "unset-kept": 11_001_778,
    "unset-unwritten": 11_000_331,
    "withdraw-nothing": 10_000_975,
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


def size(seed: int) -> int:
    """How large its world is. What it costs is nearly in this order, and to know that it need not be run."""
    world = World(seed)
    return world.shape.rows * sum(len(job.slots) * (1 + len(job.streams)) for job in world.jobs)


def candidates(plant: Plant, stored: int | None, used: Counter[int]) -> Iterator[int]:
    """The seeds among which one is chosen: the stored one, those that most bugs have, and the smallest of the first others."""
    if stored is not None and plant.shows(stored):
        yield stored
    others = (seed for seed, _ in used.most_common() if seed != stored)
    yield from islice(filter(plant.shows, others), TRIED)
    new = (seed for seed in count(plant.first) if seed not in used and seed != stored)
    yield from sorted(islice(filter(plant.shows, new), LOOKED_AT), key=size)[:TRIED]


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
