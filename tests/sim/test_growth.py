"""Inputs of jobs with state get partitions in a live run: worlds in which that happens, and a bug that they find."""

from __future__ import annotations

import pytest

from headgate.core.coordination.leader import assignment
from headgate.core.coordination.member import grants
from tests.sim.invariants import Violation
from tests.sim.outcome import unheard
from tests.sim.patterns import taken_up
from tests.sim.world import World

SEEDS = (14, 18, 46)
"""Seeds whose worlds are short, and in whose last run an input grows."""


def grown(seed: int) -> World:
    """Run one world to its end, with the rules of every world; and each task has read what the model gives to it."""
    with unheard():
        world = World(seed)
        world.run()
        for job in world.jobs:
            taken_up(world, job)
    return world


@pytest.mark.timeout(600)
def test_inputs_grow_in_live_runs_whatever_happens(monkeypatch: pytest.MonkeyPatch):
    """Kills, zombies, moves, drains and further runs; nothing is lost, doubled or out of order."""
    live: list[int] = []
    with_tasks = assignment.with_tasks
    for seed in SEEDS:
        monkeypatch.setattr(assignment, "with_tasks", lambda *a, seed=seed: live.append(seed) or with_tasks(*a))
        assert grown(seed).shape.stateful
    assert set(live) == set(SEEDS)


@pytest.mark.timeout(600)
def test_a_worker_that_does_not_take_up_what_its_tasks_have_got_is_found(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(grants, "_owned", lambda job, task: ())
    with pytest.raises(Violation, match="which the model gives to it"):
        grown(SEEDS[0])
