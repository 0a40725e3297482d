"""Topics that come while a job runs join the live run: worlds in which that happens, and bugs that they find."""

from __future__ import annotations

import pytest

from headgate.core.coordination.leader import joining
from headgate.core.coordination.member import grants
from tests.sim.invariants import Violation
from tests.sim.patterns import joined

WRITES_ANEW = 80
"""A seed in which tasks that read no source before read one that joins, so that they write the stream behind it from then on."""
SEEDS = (0, 4, 5, 9, WRITES_ANEW)
"""Seeds whose worlds are short, and that one."""
ENOUGH = 8
"""So many topics at least must have come, and been read."""
SHOWS = 9
"""A seed whose last run a topic joins. It and `WRITES_ANEW` show nothing without a bug, for they are among the others."""


@pytest.mark.timeout(600)
def test_topics_join_live_runs_whatever_happens():
    """Kills, zombies, moves, drains and further runs; nothing is lost or doubled, and what has joined was taken up by every task."""
    worlds = [joined(seed) for seed in SEEDS]
    assert sum(world.effects["topic"] for world in worlds) >= ENOUGH
    assert sum(len(world.read) for world in worlds) >= ENOUGH


def test_a_worker_that_does_not_take_up_what_has_joined_is_found(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(grants, "_owned", lambda job, task: ())
    with pytest.raises(Violation, match="which the model gives to it"):
        joined(SHOWS)


def test_a_leader_that_forgets_that_a_task_writes_now_is_found(monkeypatch: pytest.MonkeyPatch):
    """Nobody waits for such a task, and nobody hears it: the drain of its inputs reaches no one."""
    monkeypatch.setattr(joining, "producer_sets", lambda feeds, tasks, before: before)
    with pytest.raises(Violation, match="no end"):
        joined(WRITES_ANEW)
