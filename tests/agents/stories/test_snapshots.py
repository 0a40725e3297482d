"""A machine in the middle of its life, as bytes and back: what is shared stays shared, and bytes from elsewhere run nothing."""

from __future__ import annotations

import pytest

from headgate.agents.stories.snapshots import NotCopied, NotRestored, restored, taken
from headgate.agents.stories.values import pack
from headgate.core.coordination.leader.leader import Leader
from headgate.core.coordination.leader.plan import LeaderConfig, Plan
from headgate.core.task.task import Task

from .machines import AT, Clock, chunk, feed, recorder, started


def test_a_machine_goes_on_from_its_snapshot_and_shares_nothing_with_it(tmp_path):
    clock = Clock()
    task = started(recorder(tmp_path, clock), clock)
    feed(task, clock, *chunk(10))
    copy = pack(taken(task))
    feed(task, clock, *chunk(20))
    again = restored(copy)
    assert isinstance(again, Task)
    assert (again.state, again.position(AT), task.position(AT)) == ("working", 10, 20)
    feed(again, clock, *chunk(30))
    assert (again.position(AT), task.position(AT)) == (30, 20)
    assert [step.event for step in again.steps()] == list(chunk(30))


def test_what_two_parts_of_a_machine_share_is_shared_again(tmp_path):
    clock = Clock()
    task = restored(pack(taken(started(recorder(tmp_path, clock), clock))))
    assert task.seeks.inputs is task.inputs
    assert task.seeks.ledger is task.ledger


def test_a_machine_of_another_class_takes_a_snapshot_over(tmp_path):
    class Other(Task):
        def on_ChunkDone(self, event, now):
            return []

    clock = Clock()
    copy = pack(taken(started(recorder(tmp_path, clock), clock)))
    assert type(restored(copy, kind=Other)) is Other


def test_functions_of_the_users_own_are_brought_by_another_machine():
    def own(*given):
        raise AssertionError("not called here")

    config = LeaderConfig("w1", "p1", "u1", Plan(placer=own))
    copy = pack(taken(Leader(config)))
    with pytest.raises(NotRestored, match="test_functions_of_the_users_own"):
        restored(copy)
    again = restored(copy, like=Leader(config))
    assert again.config is config


def test_what_cannot_be_copied_is_named(tmp_path):
    clock = Clock()
    task = started(recorder(tmp_path, clock), clock)
    task.why = open  # type: ignore[assignment]
    with pytest.raises(NotCopied, match="builtin_function"):
        taken(task)


@pytest.mark.parametrize(
    "nodes",
    [
        [["os:system", []]],
        [["subprocess:Popen", [["args", "true"]]]],
        [["headgate.core.machine:raised", []]],
        [["headgate.core.nothing:Here", []]],
        [["headgate.core.machine:Now", [["mono", 1.0], ["other", 2]]]],
        [["dict", []]],
        [],
    ],
)
def test_other_bytes_are_refused(nodes):
    """Only empty objects of classes of the core are made."""
    with pytest.raises(NotRestored):
        restored(pack(nodes))


def test_a_reference_to_nothing_is_refused():
    with pytest.raises(NotRestored):
        restored(pack([["headgate.core.task.task:Task", [["work", {"": "reference", "is": 7}]]]]))
