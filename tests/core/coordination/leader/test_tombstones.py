"""Tombstones that somebody writes by hand: for each key of the coordinator stream, the job goes on, and what was done is said."""

from __future__ import annotations

from typing import Any

import pytest

from headgate.core.coordination import messages as c
from headgate.core.coordination.leader.damage import repair
from headgate.core.coordination.leader.draft import Draft, Memory
from headgate.core.coordination.leader.plan import LeaderConfig
from headgate.core.coordination.state import JobState
from headgate.core.coordination.wire import encode_key, read
from headgate.core.machine import Now

from ...house import House, plan

KINDS = sorted(kind for kind, _ in c.KEYS.values())


def notes(house: House) -> list[str]:
    return [note.text for one in house.workers for note in one.notes]


def lived() -> House:
    """A job with two workers in which every key is written: also an override, a fence, and a request with its answer."""
    house = House()
    gone = house.worker("p0")
    house.run(2)
    house.kill(gone)
    house.worker("p1")
    house.worker("p2")
    house.run(30)
    house.request("u1", "set-config", setting="release.timeout", value="5s")
    house.request("u2", "move", task="Partition 9", to="nobody")
    house.run(2)
    return house


def erase(house: House, kind: str, keys: list[Any] | None = None) -> list[c.Key]:
    """Somebody writes a null value for every key of this type, outside of any transaction."""
    found = [(kind, key) for key in (house.state.messages[kind] if keys is None else keys)]
    for key in found:
        entry = read(len(house.log), encode_key(key), None, house.now.wall, transactional=False)
        assert entry.problem
        house.log.append(entry)
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_a_key_that_is_deleted_by_hand_is_written_again_and_named(kind: str) -> None:
    """The override was gone, the fence was lifted, a request had never been written: and nobody said a word."""
    house = lived()
    if kind == "set-request":
        house.append(c.SetRequest("u3", "drain", "another run", not_after=house.now.wall + 10**9))
    if kind == "set-letters":
        house.append(c.SetLetters("Partition 0", 1, (("in", 0, 5, 6, 0, 2, "", ""),)))
    before, owners = dict(house.state.messages[kind]), house.owners()
    assert before
    keys = erase(house, kind)
    house.settle()
    house.run(8)
    state = house.state
    assert state.damaged == {}
    kept = dict(state.messages[kind])
    if kind == "set-request":
        assert state.answer("u3").state == "refused"  # type: ignore[union-attr]
    else:
        assert kept == before
    assert house.owners() == owners
    assert [one.exit for one in house.workers if not one.dead] == [None, None]
    written = {c.key_of(e.message): e.offset for e in house.log if e.message is not None}
    assert all(written[key] > len(house.log) - 60 for key in keys)
    worker_says = kind in ("set-processor", "set-task-state")
    assert worker_says or all(
        any(f"'{c.shown(key)}' was deleted by hand" in said for said in notes(house)) for key in keys
    )


def test_a_deletion_of_the_leader_counts() -> None:
    state = JobState()
    state.apply(c.Entry(0, ("set-request", ("u",)), c.SetRequest("u", "drain")))
    state.apply(read(1, encode_key(("set-request", ("u",))), None))
    assert (state.messages["set-request"], state.damaged) == ({}, {})


def test_what_is_deleted_for_ever_does_not_count_in_a_transaction_either() -> None:
    assert "no one deletes it" in read(1, encode_key(("set-run", ())), None).problem


def drafted(*entries: Any) -> Draft:
    state = JobState()
    for offset, one in enumerate(entries):
        if isinstance(one, tuple):
            state.apply(read(offset, encode_key(one), None, transactional=False))
        else:
            state.apply(c.Entry(offset, c.key_of(one), one))
    return Draft(state, LeaderConfig("p1", "x", "u"), Memory(), Now(1.0, 2), lambda life: "")


def test_the_last_word_of_a_worker_that_has_left_is_written_again_by_the_leader() -> None:
    """Without it, its task would have waited for a release that had been said."""
    life = c.SetProcessor("p1", "000001-a", "x", "here", c.ProcessorState.LEFT)
    said = c.SetTaskState("t", 1, "released")
    draft = drafted(life, c.SetGrant("t", 1, "p1", "000001-a"), said, c.key_of(said), c.key_of(life))
    repair(draft)
    assert sorted(map(str, draft.writes.values())) == sorted(map(str, (life, said)))


def test_what_a_living_worker_says_is_left_to_it() -> None:
    life = c.SetProcessor("p1", "000001-a", "x", "here", c.ProcessorState.JOINED)
    said = c.SetTaskState("t", 1, "running")
    draft = drafted(life, c.SetGrant("t", 1, "p1", "000001-a"), said, c.key_of(said), c.key_of(life))
    repair(draft)
    assert draft.writes == {}


def test_a_deletion_of_what_no_one_knows_is_cleared() -> None:
    key = ("set-fence", ("p1",))
    draft = drafted(key)
    repair(draft)
    assert list(draft.writes.values()) == [c.Delete(key)]
    assert draft.state.damaged == {}


@pytest.mark.parametrize("kind", ["set-run", "set-job-model", "set-changelog"])
def test_a_worker_that_starts_without_them_says_so_and_begins_nothing(kind: str) -> None:
    """It would have begun another job over the state of this one, or given a task the log of another."""
    old = lived()
    stopped = [one for one in old.workers if not one.dead]
    for one in stopped:
        old.kill(one)
    house = House()
    house.initialised, house.now = set(old.initialised), old.now
    for message in [e.message for e in old.log if e.message is not None and e.key is not None and e.key[0] != kind]:
        house.append(message)
    one = house.worker("p9", plan())
    house.run(20)
    assert one.ready is not None
    assert f"missing in the coordinator stream: '{kind}" in one.ready.why
    assert "headgate reset" in one.ready.why
    assert not one.tasks
    assert kind not in {e.key[0] for e in house.log if e.key is not None}


def test_a_leader_whose_key_is_gone_goes_on_from_the_term_of_the_model() -> None:
    old = lived()
    for one in old.workers:
        old.kill(one)
    house = House()
    house.initialised, house.now = set(old.initialised), old.now
    for message in [e.message for e in old.log if e.message is not None and not isinstance(e.message, c.SetLeader)]:
        house.append(message)
    before = house.state.model
    assert before is not None
    house.worker("p9", plan())
    house.run(20)
    assert house.state.leader.term > before.term  # type: ignore[union-attr]
    assert any("the leader's key is missing" in said for said in notes(house))
