"""A letter that a commit interrupts, between two pushes into session windows."""

from __future__ import annotations

from typing import Any, cast

import pytest

from headgate.agents.job.aggregates import count, plan
from headgate.agents.operators.open_sessions import OpenSessions

BEFORE_ALL_TIME = -(10**9)


class Table:
    """A task's table that is empty and keeps nothing."""

    def range(self) -> list[Any]:
        return []

    def update(self, rows: dict[Any, Any]) -> None:
        pass

    def delete_many(self, keys: list[Any]) -> None:
        pass


@pytest.mark.parametrize("interrupted", [False, True])
def test_rows_before_and_behind_a_commit_count_once(interrupted: bool) -> None:
    """The commit sets the first rows aside; they are in the sessions once, and so are those that come behind it."""
    sessions = OpenSessions(10, plan({"n": count()}), cast("Any", Table()))
    sessions.take([b"a"], [1], [{}], BEFORE_ALL_TIME)
    if interrupted:
        aside = sessions.suspend()
        sessions.complete()
        sessions.seal()
        sessions.resume(aside)
        assert sessions.awaits(20)
    sessions.take([b"b", b"a"], [1, 5], [{}, {}], BEFORE_ALL_TIME)
    sessions.prepare()
    sessions.complete()
    assert {key: one.states for key, one in sessions.open.items()} == {b"a": [[2]], b"b": [[1]]}
