"""One round of decisions: a draft that sees its own writes, and waits that begin and end by themselves."""

from __future__ import annotations

from headgate.core.coordination.events import JobNote
from headgate.core.coordination.leader.draft import Draft, Memory, Waits
from headgate.core.coordination.leader.plan import LeaderConfig
from headgate.core.coordination.leader.protocol import Refuse
from headgate.core.coordination.messages import Delete, SetFence, SetMember, SetProcessor, SetRun, key_of
from headgate.core.coordination.state import JobState
from headgate.core.errors import DeclarationError
from headgate.core.machine import Now


def a_draft(state: JobState | None = None) -> Draft:
    return Draft(state or JobState(), LeaderConfig("p1", "x", "u"), Memory(), Now(1.0, 2), lambda life: "")


def test_a_draft_sees_its_writes_and_the_state_does_not():
    state = JobState()
    draft = a_draft(state)
    draft.put(SetFence("p1", "000001-a"))
    draft.put(SetFence("p1", "000002-a"))
    assert draft.state.fenced("p1", "000002-a")
    assert not state.fenced("p1", "000002-a")
    assert list(draft.writes.values()) == [SetFence("p1", "000002-a")]
    key = key_of(SetFence("p1", "000002-a"))
    draft.delete(key)
    assert list(draft.writes.values()) == [Delete(key)]
    assert draft.state.fence("p1") is None


def test_a_note_can_be_given_once():
    draft = a_draft()
    draft.note_once("x", n=1)
    draft.note_once("x", n=2)
    assert draft.instructions == [JobNote("x", {"n": 1})]


def test_who_may_be_granted_something():
    """Named, alive and of this run; nobody while there is none."""
    run = SetRun("r1", "d", "running", "u", fingerprint={"a": "1"})
    life = SetProcessor("p1", "000001-a", "x", "here", "joined", fingerprint={"a": "1"})
    draft = a_draft()
    draft.put(life)
    draft.put(SetMember("p1", "000001-a", "here"))
    assert draft.workers() == {}
    assert draft.alive() == [life]
    draft.put(run)
    assert draft.workers() == {"p1": life}
    draft.silent = lambda life: "silent"
    assert draft.workers() == {}
    assert draft.alive() == []


def test_a_wait_lasts_while_its_reason_is_named():
    """Since when, by itself; and forgotten in the first round that does not name it."""
    waits = Waits()
    waits.begin(0.0)
    assert not waits.over("x", 5.0)
    assert not waits.over("y", 9.0)
    assert waits.wake == 5.0
    waits.end()
    waits.begin(5.0)
    assert waits.over("x", 5.0)
    assert waits.wake is None
    waits.end()
    waits.begin(6.0)
    waits.end()
    waits.begin(7.0)
    assert not waits.over("x", 5.0)
    assert waits.wake == 12.0


def test_a_run_that_cannot_begin_is_refused_once_with_its_remedy():
    """Each round finds it anew; the process is told once, and whoever asks in this round gets the reason."""
    draft = a_draft()
    draft.refuse(DeclarationError("no tasks", remedy="other tasks"))
    again = Draft(draft.state, draft.config, draft.memory, draft.now, draft.silent)
    again.refuse(DeclarationError("no tasks", remedy="other tasks"))
    assert draft.instructions == [Refuse("no tasks", "other tasks")]
    assert again.instructions == []
    assert again.impossible is not None
    assert (again.impossible.what, again.impossible.remedy) == ("no tasks", "other tasks")
