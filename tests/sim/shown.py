"""By planted bug: a seed that shows it. `python -m tests.sim.shown` looks for new ones where the stored one shows it no longer, and writes
this file again after each.

The search begins with the same seeds for all bugs, so that many bugs have one seed: each is also run without a bug, and that takes longest.
"""

from __future__ import annotations

import argparse
import sys
from itertools import count, islice
from pathlib import Path

from .outcome import Outcome, outcome
from .plant import Plant
from .planted import PLANTS

SEEDS = 300
"""How many seeds that have what it needs may a bug survive."""

SHOWN: dict[str, int] = {
    "additions-stay": 50_000,
    "all-move": 50_000,
    "all-on-one": 50_000,
    "all-wait-for-one": 1_000_169,
    "alone-by-event": 50_008,
    "applied-twice": 50_033,
    "away-is-empty": 1_000_128,
    "block-stays": 50_000,
    "bookkeeping-lost": 50_000,
    "bounds-early": 50_000,
    "by-no-event": 50_000,
    "cancelled-await": 50_026,
    "cancelled-call": 3_000_021,
    "changed-evicted": 50_000,
    "closed-at-work": 50_058,
    "closed-session-stays": 50_013,
    "closing-anew": 50_006,
    "committed-first": 2_000_009,
    "cut-off-kills": 2_000_013,
    "damaged-passed": 50_007,
    "drain-is-idle": 50_007,
    "dropped-meanwhile": 2_000_022,
    "end-moves-floor": 50_000,
    "end-repeated": 1_000_037,
    "ends-early": 50_000,
    "flag-outlives": 50_000,
    "floor-not-stored": 50_016,
    "fold-in-log-order": 50_000,
    "foreign-drain": 50_001,
    "forgotten-early": 50_004,
    "grant-before-fence": 50_000,
    "grants-nothing": 50_000,
    "guessed-idle": 50_099,
    "half-a-chunk": 50_000,
    "half-completed": 50_000,
    "idle-left-out": 50_251,
    "initialised-twice": 50_002,
    "last-row": 50_003,
    "late-part-unsaid": 50_006,
    "late-partial": 4_000_082,
    "leader-left-open": 50_007,
    "lost-at-newest": 1_000_017,
    "matches-not-stored": 50_008,
    "matches-packed": 50_008,
    "merged-session-stays": 51_422,
    "move-at-once": 50_002,
    "never-read-again": 50_007,
    "never-confirmed": 4_000_024,
    "newest-of-before": 50_052,
    "numbers-before-seal": 50_000,
    "old-run-counts": 50_106,
    "old-store": 50_045,
    "older-epochs": 50_023,
    "one-silent": 50_073,
    "outage-kills": 50_002,
    "overtaken-is-away": 50_120,
    "owned-by-processor": 50_006,
    "partial-judged-early": 50_075,
    "pause-drained": 50_045,
    "pause-kept": 50_049,
    "pause-not-obeyed": 50_046,
    "pause-untold": 50_001,
    "pause-unwritten": 50_016,
    "position-first": 1_000_037,
    "raised-time": 50_000,
    "refused-write": 50_003,
    "results-wait": 4_000_064,
    "rows-known": 50_151,
    "seek-answered-early": 50_006,
    "seek-done-at-once": 50_006,
    "seek-nothing": 50_006,
    "seek-one-off": 50_006,
    "setting-no-task": 50_007,
    "setting-nowhere": 50_007,
    "setting-unwritten": 50_003,
    "sibling-partitions": 50_015,
    "skip-not-obeyed": 2_000_021,
    "slots-too-early": 50_002,
    "stale-fetch": 50_098,
    "stop-at-once": 50_058,
    "store-left-open": 50_000,
    "time-first": 50_006,
    "time-forgotten": 50_001,
    "time-is-the-end": 2_000_001,
    "transaction-left-open": 50_000,
    "tried-not-asked": 50_018,
    "two-owners": 50_009,
    "unanswered-end-counts": 1_000_037,
    "undone-drain": 50_001,
    "unset-kept": 2_000_022,
    "unset-unwritten": 2_000_008,
    "withdraw-nothing": 2_000_013,
}


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
    return next((seed for seed in islice(filter(plant.shows, count(plant.first)), SEEDS) if fall(plant, seed)), None)


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
    path, shown = Path(__file__), {name: seed for name, seed in SHOWN.items() if name in PLANTS}
    for name, plant in sorted(PLANTS.items()):
        stored = shown.pop(name, None)
        kept = stored is not None and not forget and plant.shows(stored) and fall(plant, stored) is not None
        found = stored if kept else search(plant)
        print(f"{name}: {found}{'' if found == stored else ' (new)'}", flush=True)
        if found is not None:
            shown[name] = found
        path.write_text(written(path.read_text(encoding="utf-8"), shown), encoding="utf-8")
    return 0 if shown.keys() == PLANTS.keys() else 1


if __name__ == "__main__":
    sys.exit(main())
