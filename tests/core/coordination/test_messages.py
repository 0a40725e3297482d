"""The messages of the coordinator stream as values."""

from __future__ import annotations

import pytest

from headgate.core.coordination import messages as c
from headgate.core.coordination.messages import KEYS, Message, key_of


def test_every_type_of_the_stream_has_a_key():
    """All thirteen types, under the names that stand in the stream."""
    assert sorted(kind for kind, _ in KEYS.values()) == [
        "set-answer", "set-changelog", "set-config", "set-fence", "set-grant", "set-job-model", "set-leader", "set-letters",
        "set-member", "set-processor", "set-request", "set-run", "set-task-state",
    ]  # fmt: skip
    assert set(KEYS) == set(Message.__args__)


def test_keys_hold_what_the_law_says():
    """A grant is the task's; a task state is the grant's; an incarnation's record is its own."""
    assert key_of(c.SetGrant("t", 3, "p1", "000001-a")) == ("set-grant", ("t",))
    assert key_of(c.SetTaskState("t", 3, "running")) == ("set-task-state", ("t", 3))
    assert key_of(c.SetProcessor("p1", "000001-a", "x", "here", "joined")) == ("set-processor", ("p1", "000001-a"))
    assert key_of(c.SetRun("r", "d", "running", "u")) == ("set-run", ())


def test_messages_are_frozen_and_have_empty_maps_that_no_one_can_fill():
    request = c.SetRequest("u", "drain")
    with pytest.raises(AttributeError):
        request.verb = "stop"
    with pytest.raises(TypeError):
        request.arguments["x"] = 1
    assert {*c.LIVE, *c.CLOSED} == set(c.RunState)
