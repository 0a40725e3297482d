"""Sliding windows in the simulator: over faults, moves, stops and drains each row has one result, with the rows before it of its run.

The worlds are those of ordinary seeds, but for their windows: none of the `KINDS` is drawn, so no other test's seeds change.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.sim import windows
from tests.sim.outcome import outcome
from tests.sim.plant import Plant
from tests.sim.shown import fall
from tests.sim.windows import OF_EACH_ROW, SLIDING
from tests.sim.world import World

SEEDS = (0, 1, 2, 3, 5)


@pytest.fixture(autouse=True)
def slide(monkeypatch: pytest.MonkeyPatch) -> None:
    """All windows that are drawn are sliding ones."""
    monkeypatch.setattr(windows, "KINDS", OF_EACH_ROW)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", SEEDS)
def test_fixed_seeds(seed: int) -> None:
    """Fixed seeds that passed must still pass."""
    shape = World(seed).shape
    assert shape.windows is not None
    assert shape.windows.kind == SLIDING
    found = outcome(seed)
    assert found.ok, str(found)


def _rows_go_too_early() -> list[tuple[Any, str, Any]]:
    from headgate.agents.operators.windows import open_sliding

    return [(open_sliding, "passed", lambda closed, size: closed - size // 2)]


def _rows_that_are_out_are_forgotten_at_a_restart() -> list[tuple[Any, str, Any]]:
    from headgate.agents.operators.windows.open_sliding import OpenSliding

    return [(OpenSliding, "_give_again", lambda self: None)]


def _a_failed_letter_keeps_what_it_has_given() -> list[tuple[Any, str, Any]]:
    from headgate.agents.operators.windows.open_sliding import OpenSliding
    from headgate.core.progress.frames import NO_TIME

    def drop(self: Any) -> None:
        self.taken, self.gone, self.over, self.given = [], [], NO_TIME, []
        self.blocks.drop()

    return [(OpenSliding, "drop", drop)]


def _how_far_results_are_out_is_not_stored() -> list[tuple[Any, str, Any]]:
    from headgate.agents.operators.windows.open_sliding import OpenSliding
    from headgate.agents.operators.windows.open_windows import CLOSING

    original = OpenSliding.prepare

    def prepare(self: Any) -> None:
        original(self)
        self.table.delete_many([CLOSING])

    return [(OpenSliding, "prepare", prepare)]


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("patches", "seed"),
    [
        (_rows_go_too_early, 0),
        (_rows_that_are_out_are_forgotten_at_a_restart, 1),
        (_a_failed_letter_keeps_what_it_has_given, 3),
        (_how_far_results_are_out_is_not_stored, 1),
    ],
)
def test_a_planted_bug_falls(patches: Any, seed: int) -> None:
    """Each of these seeds passes without it."""
    assert seed in SEEDS
    assert fall(Plant("sliding", patches.__name__, patches), seed) is not None
