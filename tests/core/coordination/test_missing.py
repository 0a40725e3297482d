"""What the coordinator stream should contain and does not: it is named, with what shows that it was there."""

from __future__ import annotations

from typing import Any

import pytest

from headgate.core.coordination import messages as c
from headgate.core.coordination.missing import missing, needed
from headgate.core.coordination.state import JobState
from headgate.core.coordination.wire import encode_key, read

GRANT, RUN = c.SetGrant("t", 3, "p1", "000001-a"), c.SetRun("r", "d1", c.RunState.STOPPED, "u")


@pytest.mark.parametrize(
    ("entries", "gone"),
    [
        ((RUN, c.SetChangelog("t", 0), GRANT), {"set-job-model", "set-leader"}),
        ((c.SetChangelog("t", 0),), {"set-run", "set-job-model"}),
        ((GRANT,), {"set-run", "set-job-model", "set-changelog t"}),
        ((("set-run", ()),), {"set-run"}),
        (tuple(c.SetGrant(f"t{n}", 1, "p1", "000001-a") for n in range(3)), {"set-run", "set-job-model"}),
        ((), set()),
    ],
)
def test_a_stream_from_which_messages_are_gone_says_which(entries: tuple[Any, ...], gone: set[str]) -> None:
    """Nobody was there to write them again, and compaction has removed them."""
    state = JobState()
    for offset, one in enumerate(entries):
        tombstone = isinstance(one, tuple)
        entry = read(offset, encode_key(one), None) if tombstone else c.Entry(offset, c.key_of(one), one)
        state.apply(entry)
    named = {c.shown(key) for key in missing(state)}
    assert {name for name in named if not name.startswith("set-changelog t") or name in gone} == gone
    assert all(name in needed(state) for name in gone - {"set-leader"})


def test_of_many_only_some_are_named() -> None:
    state = JobState()
    for n in range(5):
        grant = c.SetGrant(f"t{n}", 1, "p1", "000001-a")
        state.apply(c.Entry(n, c.key_of(grant), grant))
    assert "and 4 more; `headgate reset`" in needed(state)
