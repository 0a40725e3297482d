"""The simulator can fail: it finds each planted bug, as a violated invariant, within 300 seeds that have what it needs.

An event that a machine's table does not allow also counts: the machine rejects what contradicts its state.
"""

from __future__ import annotations

from itertools import count, islice

import pytest

from tests.sim.outcome import outcome
from tests.sim.planted import PLANTS

SEEDS = 300


@pytest.mark.parametrize("name", sorted(PLANTS))
def test_a_planted_bug_falls(name: str):
    """Run seeds in order until one shows the bug. An exception of the planted code itself does not count."""
    plant = PLANTS[name]
    for seed in islice(filter(plant.shows, count(50_000)), SEEDS):
        found = outcome(seed, plant=plant)
        refused = found.error.startswith("IllegalEvent")
        assert refused or not found.error, f"{name} broke a machine instead of a promise: {found}"
        if not found.ok:
            clean = outcome(seed)
            assert clean.ok, f"seed {seed} fails without {name}, too: {clean}"
            print(f"{name} ({plant.why}) falls at seed {seed}: {(found.violation or found.error)[:200]}")
            return
    pytest.fail(f"{name} ({plant.why}) survived {SEEDS} seeds", pytrace=False)
