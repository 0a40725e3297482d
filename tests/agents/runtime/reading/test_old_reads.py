"""Outputs that do not keep what is made of what a task begins to read are named before anything is written."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from structlog.testing import capture_logs

import headgate as hg
from headgate.agents.runtime.reading.old_reads import OldReads
from headgate.agents.testing.driver import Driver
from headgate.core.graph.graph import Graph, Input, Stage
from headgate.core.names import StreamPartition as SP

NOW, DAY = 1_700_000_000_000, 86_400_000
IN = SP("in", 0)


class Log:
    """A partition of which each record has an age in days, the oldest first; what is cut off is gone."""

    def __init__(self, *days: int, start: int = 0) -> None:
        self.stamps = [NOW - one * DAY for one in days]
        self.start = start
        self.asked = 0

    async def start_of(self, at: SP) -> int:
        return self.start

    async def end_of(self, at: SP, *, committed: bool) -> int:
        return len(self.stamps)

    async def of_time(self, at: SP, ms: int) -> int | None:
        self.asked += 1
        return next((offset for offset, stamp in enumerate(self.stamps) if stamp >= ms), None)

    async def topic_id(self, topic: str) -> str:
        return ""


def graph() -> Graph:
    """The input is counted behind a shuffle, and copied; another one only changes a table."""
    stages = (
        Stage("rates", "table", ("table",)),
        Stage("by", "repartition", ("in",), writes=("j-1-by",)),
        Stage("counts", "window", ("by",), stateful=True),
        Stage("to", "to", ("counts",), writes=("counts",)),
        Stage("copy", "to", ("in",), writes=("copies",)),
    )
    return Graph((Input("in"), Input("table")), stages)


def named(log: Any, positions: dict[SP, int], kept: dict[str, int | None]) -> list[tuple[str, int]]:
    """The outputs that are named, with the number of old records."""
    reads = OldReads(graph(), log, kept.get, lambda: NOW)
    with capture_logs() as said:
        assert reads.asks(positions) == any(kept.values())
        asyncio.run(reads.look(positions))
    return [(one["topic"], one["old_records"]) for one in said if one["log_level"] == "warning"]


@pytest.mark.parametrize(
    ("log", "position", "expected"),
    [
        (Log(9, 8, 3, 0), 0, [("copies", 3), ("counts", 2)]),
        (Log(9, 8, 3, 0), 2, [("copies", 1)]),  # what the job has read before does not count
        (Log(9, 8, 3, 0), 4, []),
        (Log(9, 8, 7), 0, [("copies", 3), ("counts", 2)]),  # all of them are old
        (Log(9, 8, 7), 3, []),
        (Log(9, 8, 7, start=2), 0, [("copies", 1)]),  # what is gone is not read
        (Log(), 0, []),
    ],
)
def test_an_output_is_named_if_older_records_than_it_keeps_are_read_into_it(
    log: Log, position: int, expected: list[tuple[str, int]]
) -> None:
    """Copies are kept for a day, counts for a week. Records that the job has read before, or that are gone, are not meant."""
    assert named(log, {IN: position}, {"copies": DAY, "counts": 7 * DAY + 1}) == expected


def test_outputs_that_delete_nothing_by_age_cost_no_request() -> None:
    log = Log(9)
    assert named(log, {IN: 0, SP("j-1-by", 0): 0}, {}) == []
    assert log.asked == 0


def test_an_output_is_named_once_and_not_for_a_table() -> None:
    log = Log(9)
    reads = OldReads(graph(), log, {"copies": DAY}.get, lambda: NOW)
    with capture_logs() as said:
        for _ in range(2):
            asyncio.run(reads.look({SP("table", 0): 0, SP("in", 1): 0, IN: 0}))
    assert [(one["partition"], one["retention_ms"]) for one in said] == [("in:1", DAY)]
    assert not reads.asks({IN: 0})
    assert log.asked == 1


def test_event_times_that_kafka_does_not_know_are_compared_with_the_first_chunk() -> None:
    """Orders of last year, written today: their first window closes much later. What comes after the first chunk costs nothing."""
    reads = OldReads(graph(), Log(), {"copies": DAY, "counts": 7 * DAY}.get, lambda: NOW)
    with capture_logs() as said:
        for at, greatest in ((SP("table", 0), 5), (IN, None), (IN, NOW - 2 * DAY), (IN, 5), (SP("in", 1), NOW)):
            reads.read(at, greatest)
    assert [(one["topic"], one["partition"], one["event_time_ms"]) for one in said] == [
        ("copies", "in:0", NOW - 2 * DAY)
    ]
    assert "raise retention.ms of copies" in said[0]["remedy"]


def test_a_broker_that_does_not_answer_changes_nothing() -> None:
    """The task reads on: nothing depends on it."""

    class Silent(Log):
        async def of_time(self, at: SP, ms: int) -> int | None:
            raise hg.HeadgateError("no permission")

    assert named(Silent(9), {IN: 0}, {"copies": DAY}) == []


def test_a_task_looks_when_it_begins_to_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before it has written anything: what it is to read waits, as the job is paused."""
    monkeypatch.setattr("headgate.agents.testing.targets.MemoryTargets.kept_ms", lambda _, topic: DAY)
    app = hg.App("job")
    app.input("in").to("out")
    with Driver(app, now=NOW) as d:
        d.metadata.put("requests", "p", {"verb": "pause"})
        d.send("in", {"n": 1}, at=NOW - 2 * DAY)
        with capture_logs() as said:
            d.restart()
        assert [(one["topic"], one["offset"]) for one in said if "old_records" in one] == [("out", 0)]
        assert d.read("out") == []


def test_a_task_compares_the_event_times_of_what_it_reads_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Written today, of last year: it is said while the first window is open."""
    monkeypatch.setattr("headgate.agents.testing.targets.MemoryTargets.kept_ms", lambda _, topic: DAY)
    app = hg.App("job")
    app.input("in", key="k", timestamp="ts").window(hg.tumbling("1d")).agg(n=hg.count()).to("out")
    with Driver(app, now=NOW) as d, capture_logs() as said:
        for n in range(3):
            d.send("in", {"k": "a", "ts": NOW - 365 * DAY + n}, at=NOW)
        assert [(one["topic"], one["event_time_ms"]) for one in said if "event_time_ms" in one] == [
            ("out", NOW - 365 * DAY)
        ]
        assert d.read("out") == []
