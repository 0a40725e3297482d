"""What `headgate seek --skip` finds at an offset: how many rows are left out, or why none can be."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any, TypedDict

import pytest

import headgate as hg
from headgate.agents.cli.options import Target
from headgate.agents.cli.steer import skipping
from headgate.agents.records.frames.arrow_columns import ArrivedColumns
from headgate.agents.testing.driver import Driver
from headgate.core.errors import HeadgateError
from headgate.core.names import StreamPartition
from headgate.core.progress.frames import HEADER, ArrowFrame, Watermark, decode, encode

INPUT, OWN = StreamPartition("orders", 0), StreamPartition("job-1-by-user", 0)
STATE: Any = SimpleNamespace(model=SimpleNamespace(producers={OWN.stream: ()}))
FRAMED = [(HEADER, b"x")]
WATERMARK = Watermark("job/1", "run", "Partition 0", 1, 1, 5)


class Order(TypedDict):
    user: str
    n: int


def sent(columns: bool) -> list[Any]:
    """The records of a repartition: frames of rows, or Arrow frames."""
    app = hg.App("job")
    orders = app.input("orders", serde=hg.json(Order))
    (orders.columns() if columns else orders.map(dict)).repartition("user").to("out")
    with Driver(app) as d:
        d.send_all("orders", [{"user": "a", "n": n} for n in range(100)])
        return list(d.topics.records(OWN))


def found(monkeypatch: pytest.MonkeyPatch, at: StreamPartition, goal: list[Any], *records: Any) -> int:
    async def scan(client: Any, topic: str, *, partition: int, first: int) -> AsyncIterator[Any]:
        for one in records:
            if one.offset >= first:
                yield one

    monkeypatch.setattr(skipping, "scan_topic", scan)
    nothing: Any = SimpleNamespace(client=None)
    to: Target = nothing
    return asyncio.run(skipping.rows_at(to, STATE, at, goal))


def record(offset: int, value: bytes | None, headers: Any = ()) -> Any:
    return SimpleNamespace(offset=offset, value=value, headers=headers)


def test_a_record_of_an_input_is_one_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has no rows to choose from, whatever its bytes look like."""
    frame = encode(WATERMARK)
    for value in (b"{}", None, frame):
        assert found(monkeypatch, INPUT, ["skip", 7], record(7, value)) == 1
    with pytest.raises(HeadgateError, match=r"orders:0 offset 7 has no rows.*--skip 7"):
        found(monkeypatch, INPUT, ["skip", 7, 0], record(7, b"{}"))


def test_what_does_not_exist_is_not_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    """A compacted record, or the end of the topic: the next one is another record."""
    for others in ((), (record(8, b"{}"),)):
        with pytest.raises(HeadgateError, match=r"no record at orders:0 offset 7.*headgate status"):
            found(monkeypatch, INPUT, ["skip", 7], *others)


@pytest.mark.parametrize("columns", [False, True], ids=["rows", "Arrow"])
def test_a_row_of_a_frame_or_all_of_its_rows(columns: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """In both kinds of frames, in a stream of the job and in a shared one, whose frames say it in a header."""
    (one,) = [one for one in sent(columns) if not isinstance(decode(one.value), Watermark)]
    assert isinstance(decode(one.value), ArrowFrame) == columns
    for at in (OWN, INPUT):
        there = record(one.offset, one.value, FRAMED if at == INPUT else ())
        assert found(monkeypatch, at, ["skip", one.offset], there) == 100
        assert found(monkeypatch, at, ["skip", one.offset, 99], there) == 1
        with pytest.raises(HeadgateError, match=r"has no row 100.*it has 100, counted from 0"):
            found(monkeypatch, at, ["skip", one.offset, 100], there)


def test_what_cannot_be_read_is_left_out_as_a_whole_and_a_control_message_never(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An unreadable frame fails its task as one record; without a watermark time would stand still."""
    assert found(monkeypatch, OWN, ["skip", 3], record(3, b"\xff")) == 1
    with pytest.raises(HeadgateError, match="has no rows"):
        found(monkeypatch, OWN, ["skip", 3, 0], record(3, b"\xff"))
    with pytest.raises(HeadgateError, match="a control message"):
        found(monkeypatch, OWN, ["skip", 3], record(3, encode(WATERMARK)))


def test_a_row_of_an_arrow_frame_is_left_out_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """The task marks the row in its chunk; the columns of the others go on."""
    app = hg.App("job")
    app.input("orders", serde=hg.json(Order)).columns().repartition("user").with_columns(m=100 // hg.col("n")).to("out")
    with Driver(app) as d:
        pipeline = d.tasks["Partition 0"].site.pipeline
        whole, marked = pipeline.chunk, []

        def skipping_row(chunk: Any, skip: frozenset[int] = frozenset()) -> Any:
            if chunk.at == OWN and isinstance(chunk.columns, ArrivedColumns):
                chunk.skipped = frozenset([3])
                marked.append(len(chunk))
            return whole(chunk, skip)

        monkeypatch.setattr(pipeline, "chunk", skipping_row)
        d.send_all("orders", [{"user": "a", "n": n - 3} for n in range(100)])
        assert marked == [100]
        assert [one.value["n"] for one in d.read("out")] == [n - 3 for n in range(100) if n != 3]
        assert d.counters["records_skipped"] == 1
