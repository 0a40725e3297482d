"""Sessions between two commits: a letter that a commit interrupts, and what is stored of sessions that were merged and closed."""

from __future__ import annotations

from typing import Any

import pytest

import headgate as hg
from headgate.agents.job.derive.declaration import Declared
from headgate.agents.job.types.aggregates import count, plan
from headgate.agents.operators.windows.open_sessions import OpenSessions
from headgate.agents.state.opening import open_tables
from headgate.agents.state.store import MemoryStore

BEFORE_ALL_TIME = -(10**9)


def tables_of_sessions() -> Any:
    app = hg.App("job")
    app.input("in", key="k", timestamp="ts").window(hg.session(0.010), name="w").agg(n=hg.count()).to("out")
    return open_tables(MemoryStore(), Declared(app), clock=lambda: 0).tables


@pytest.mark.parametrize("interrupted", [False, True])
def test_rows_before_and_behind_a_commit_count_once(interrupted: bool) -> None:
    """The commit sets the first rows aside; they are in the sessions once, and so are those that come behind it."""
    sessions = OpenSessions(10, plan({"n": count()}), tables_of_sessions().table("w"))
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


@pytest.mark.parametrize("joining", [[8], [-5]], ids=["between two sessions", "before one"])
def test_sessions_that_were_merged_and_closed_between_two_commits_do_not_come_back(joining: list[int]) -> None:
    """The row of a session that is now part of another is deleted, also if the whole of it has closed since."""
    tables = tables_of_sessions()
    sessions = OpenSessions(10, plan({"n": count()}), tables.table("w"))

    def letter() -> None:
        sessions.prepare()
        sessions.complete()
        tables.complete()

    def commit(position: int) -> None:
        sessions.seal()
        tables.complete()
        tables.seal()
        tables.applied(position)

    sessions.take([b"a", b"a"], [0, 15], [{}, {}], BEFORE_ALL_TIME)
    letter()
    commit(1)
    assert len(tables.table("w")) == 2
    sessions.take([b"a"] * len(joining), joining, [{}] * len(joining), BEFORE_ALL_TIME)
    letter()
    sessions.close(None, 10)
    letter()
    commit(2)
    assert dict(tables.table("w")) == {}
    assert not sessions.blocks.stored()
