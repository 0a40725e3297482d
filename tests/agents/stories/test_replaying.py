"""Recorded machines, replayed: the same version decides the same, another one is found out, and what cannot be replayed says why."""

from __future__ import annotations

import doctest
from dataclasses import replace
from typing import get_args

import pytest

import headgate as hg
from headgate.agents.stories import blocks, files, replaying, texts, values
from headgate.agents.stories import recorder as recording
from headgate.agents.stories.files import LEAST_BYTES, PIECES, files_in
from headgate.agents.stories.follow import COMMITTER, LEADER, MEMBER
from headgate.agents.stories.replaying import stories
from headgate.agents.stories.values import known, pack, unknown_in, unpack
from headgate.core.coordination.leader.leader import Leader
from headgate.core.coordination.leader.plan import LeaderConfig, Plan
from headgate.core.coordination.leader.protocol import LeaderEvent, LeaderInstruction
from headgate.core.coordination.member.member import Member
from headgate.core.coordination.member.plan import MemberConfig
from headgate.core.coordination.member.protocol import MemberEvent, MemberInstruction
from headgate.core.errors import NotFound
from headgate.core.graph.graph import Graph, Input
from headgate.core.machine import Tick
from headgate.core.task import protocol as t
from headgate.core.task.committer.commit import Committer
from headgate.core.task.committer.commit_protocol import CommitEvent, CommitInstruction, Wanted
from headgate.core.task.protocol import TaskEvent, TaskInstruction
from headgate.core.task.task import Task

from .machines import AT, Clock, chunk, feed, recorder, released, started

UNIONS = (
    TaskEvent,
    TaskInstruction,
    MemberEvent,
    MemberInstruction,
    LeaderEvent,
    LeaderInstruction,
    CommitEvent,
    CommitInstruction,
)


def test_the_examples_in_the_code_are_true():
    for module in (blocks, files, recording, replaying, texts, values):
        assert doctest.testmod(module).failed == 0


@pytest.mark.parametrize("kind", [one for union in UNIONS for one in get_args(union)], ids=lambda one: one.__name__)
def test_every_event_and_decision_has_its_bytes(kind):
    """A class that a machine speaks and a story does not know would stop its replay."""
    assert known()[kind.__name__] is kind


def test_a_value_comes_back_as_it_was():
    """Tuples and lists, sets, enums, keys of any kind; a field with its default takes no space."""
    value = (
        t.ChunkDone(AT, 7, owed=(("w", 1),), ends=frozenset({"b", "a"})),
        t.OffsetsResolved(3, {AT: 5}),
        t.Restored(1, rows={("p", 1): (1, "x"), ("q", 2): ()}),
        {"": 1, "plain": [1]},
    )
    found = unpack(pack(value))
    assert found[:3] == value[:3]
    assert found[0].at.stream == "orders"
    assert found[3] == {"": 1, "plain": (1,)}
    assert pack(t.AtEnd(AT, 7, owes=False)) == pack(t.AtEnd(AT, 7))


def test_all_four_machines_are_replayed_from_their_files(tmp_path):
    clock = Clock()
    keeper = recorder(tmp_path, clock)
    task = started(keeper, clock)
    feed(task, clock, *chunk(10))
    released(task, clock)
    member_config = MemberConfig("w1", "p1", "tok", job="sales/1")
    leader_config = LeaderConfig("w1", "p1", "u1", Plan(graph=Graph((Input("orders"),))), job="sales/1")
    member, leader, committer = Member(member_config), Leader(leader_config), Committer(0.5, 60.0)
    keeper.follow(member, MEMBER, "w1", member_config)
    keeper.follow(leader, LEADER, "w1", leader_config)
    keeper.follow(committer, COMMITTER, "w1-1", (0.5, 60.0))
    feed(member, clock, Tick())
    feed(leader, clock, Tick())
    feed(committer, clock, Wanted("Partition 0", urgent=True))
    keeper.turn()
    found = hg.testing.replay(tmp_path)
    assert sorted(one.kind for one in found.agreed) == ["committer", "leader", "member", "task"]
    assert (found.differs, found.left_out, found.events) == ((), (), 16)
    assert str(found.agreed[0]) == "task Partition 0 #3 of w1"
    (path,) = files_in(tmp_path)
    assert len(hg.testing.replay(path, of="Partition 0").agreed) == 1
    with pytest.raises(NotFound, match="has no story of 'Partition 9'"):
        hg.testing.replay(path, of="Partition 9")
    with pytest.raises(NotFound, match="there is no"):
        hg.testing.replay(tmp_path / "elsewhere")


def test_a_machine_that_decides_otherwise_is_found_at_its_first_event(tmp_path):
    clock = Clock()
    keeper = recorder(tmp_path, clock)
    task = started(keeper, clock)
    feed(task, clock, *chunk(10), *chunk(20))
    keeper.turn()

    class Forgets(Task):
        def on_ChunkDone(self, event, now):
            return super().on_ChunkDone(event, now) if event.upto < 10 else []

    class Raises(Task):
        def on_ChunkTaken(self, event, now):
            raise KeyError(event.at)

    assert not hg.testing.replay(tmp_path).differs
    (difference,) = hg.testing.replay(tmp_path, {"task": Forgets}).differs
    assert (difference.number, difference.line.event, difference.instructions) == (8, t.ChunkDone(AT, 10), ())
    assert str(difference).startswith("task Partition 0 #3 of w1 decides otherwise on event 8, ChunkDone(at=")
    assert str(difference).endswith("and is 'working' with nothing")
    (difference,) = hg.testing.replay(tmp_path, {"task": Raises}).differs
    assert "KeyError" in str(difference.instructions)


def test_what_was_refused_once_is_refused_again(tmp_path):
    """An event that the table does not allow is part of the story, and no difference."""
    clock = Clock()
    keeper = recorder(tmp_path, clock)
    task = started(keeper, clock)
    with pytest.raises(Exception, match="cannot take"):
        feed(task, clock, t.StoreClosed())
    feed(task, clock, *chunk(10))
    keeper.turn()
    assert hg.testing.replay(tmp_path).events == 10


def long_life(keeper, clock, task, files, *, looks):
    """So many events that the story has this many files."""
    for number in range(1, 400_001):
        task.handle(t.Lag((number * 7919) % 100_003), clock.now())
        if number % 2000 == 0:
            keeper.turn()
            if looks:
                keeper._look()
            if len(files_in(keeper._files.folder)) > files:
                break
    feed(task, clock, *chunk(10))
    keeper.turn()


def test_a_story_without_its_beginning_says_so(tmp_path):
    """The oldest files go first, and no snapshot was taken."""
    clock = Clock()
    keeper = recorder(tmp_path, clock, most=PIECES * LEAST_BYTES)
    task = started(keeper, clock)
    long_life(keeper, clock, task, 1, looks=False)
    files_in(tmp_path)[0].unlink()
    ((story, why),) = hg.testing.replay(tmp_path).left_out
    assert (story.name, story.first) == ("Partition 0", story.missing)
    assert why.startswith(
        f"{story.first} of its events before are not kept, and no snapshot comes before its first line"
    )


def test_without_its_beginning_a_story_is_replayed_from_a_snapshot(tmp_path, monkeypatch):
    """A worker that has run for weeks has no beginning, and is what one wants to replay: each file has the machines as they were."""
    clock = Clock()
    monkeypatch.setattr(clock, "call_later", lambda *_: None)
    keeper = recorder(tmp_path, clock, most=PIECES * LEAST_BYTES)
    task = started(keeper, clock)
    feed(task, clock, *chunk(5))
    long_life(keeper, clock, task, 2, looks=True)
    files_in(tmp_path)[0].unlink()
    found = hg.testing.replay(tmp_path)
    assert found.differs == ()
    (story,) = found.agreed
    assert story.made is None
    assert story.first > 9
    assert story.lines[-1].event == t.ChunkDone(AT, 10)
    before = [one for one, _ in found.left_out]
    assert [one.end for one in before] == [story.first] * len(before)  # what its file has before the snapshot

    class Hurries(Task):
        def on_ChunkDone(self, event, now):
            return [*super().on_ChunkDone(event, now), t.RequestCommit(urgent=True)]

    (difference,) = hg.testing.replay(tmp_path, {"task": Hurries}).differs
    assert difference.number == story.end - 1


def test_behind_a_hole_a_story_is_replayed_from_the_next_snapshot(tmp_path, monkeypatch):
    """What comes before it is replayed from the beginning, and what comes before the snapshot is named."""
    clock = Clock()
    monkeypatch.setattr(clock, "call_later", lambda *_: None)
    keeper = recorder(tmp_path, clock)
    task = started(keeper, clock)
    keeper.turn()
    feed(task, clock, *chunk(10))
    keeper._drop()
    feed(task, clock, *chunk(20))
    keeper.turn()
    found = hg.testing.replay(tmp_path)
    ((_, why),) = found.left_out
    assert why.startswith("2 of its events before are not kept, and no snapshot")
    assert [(one.first, len(one.lines)) for one in found.agreed] == [(0, 7)]
    keeper._look()
    feed(task, clock, *chunk(30))
    keeper.turn()
    found = hg.testing.replay(tmp_path)
    assert [(one.first, len(one.lines)) for one in found.agreed] == [(0, 7), (11, 2)]
    assert [(one.first, len(one.lines)) for one, _ in found.left_out] == [(9, 2)]


def test_functions_of_the_users_own_must_be_given(tmp_path):
    """The code of a job is not in its story: a leader with a placement of the user's own is replayed by a maker that brings it."""

    def own(*given):
        raise AssertionError("not called here")

    config = LeaderConfig("w1", "p1", "u1", replace(Plan(), placer=own, placer_name="mine:own"))
    clock = Clock()
    keeper = recorder(tmp_path, clock)
    leader = Leader(config)
    keeper.follow(leader, LEADER, "w1", config)
    feed(leader, clock, Tick())
    keeper.turn()
    ((_, why),) = hg.testing.replay(tmp_path).left_out
    assert why.startswith("this version cannot make tests.agents.stories.test_replaying:")
    assert "give a maker" in why
    found = hg.testing.replay(tmp_path, {"leader": lambda _: Leader(config)})
    assert len(found.agreed) == 1


def test_a_value_of_another_version_is_shown_and_not_replayed(tmp_path):
    """A class, or a field of one, that this version does not have."""
    later = unpack(pack((t.Lag(3),)).replace(b"\xa3Lag", b"\xa3Log"))
    assert unknown_in(later) == ["Log"]
    assert str(later[0]) == "Log(records=3)"
    assert unknown_in(unpack(pack((t.Lag(3),)).replace(b"\xa7records", b"\xa7retards"))) == ["Lag"]


def test_the_stories_of_a_path_are_in_the_order_in_which_they_began(tmp_path):
    clock = Clock()
    for process in ("p1", "p2"):
        keeper = recorder(tmp_path, clock, process=process)
        started(keeper, clock, grant=int(process[1]))
        keeper.turn()
        keeper._files.close()
    assert [(one.process, one.grant, len(one.lines)) for one in stories(tmp_path)] == [("p1", 1, 7), ("p2", 2, 7)]
