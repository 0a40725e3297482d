"""What the pages on columns and frames promise beside the comparison with rows."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, TypedDict

import polars as pl
import pytest

import headgate as hg
from headgate.agents.records.frames.arrow_columns import ArrivedColumns
from headgate.agents.records.frames.chunks import FetchBuffer
from headgate.agents.records.kafka.fetched import RecordBatch
from headgate.agents.testing.driver import Driver
from headgate.core.names import StreamPartition
from headgate.core.progress.frames import ArrowFrame, BatchFrame, ControlFrame, UserFrame, decode, encode

from ....core.progress.columns import frame, records


class Order(TypedDict):
    user: str
    a: int
    b: int
    note: str | None


class Count(TypedDict):
    n: int


def order(a: int, b: int = 1, user: str = "u") -> dict[str, Any]:
    return {"user": user, "a": a, "b": b}


def columns(app: hg.App) -> hg.ColumnStream[Any, Order]:
    return app.input("in", serde=hg.json(Order)).columns()


def test_an_expression_is_computed_for_every_record_and_a_filter_before_it_helps() -> None:
    """`&` is no shortcut."""
    app = hg.App("job", on_error="skip")
    orders = columns(app)
    orders.filter((hg.col("a") != 0) & (10 // hg.col("a") > 1)).to("together")
    orders.filter(hg.col("a") != 0).filter(10 // hg.col("a") > 1).to("apart")
    with Driver(app) as d:
        d.send_all("in", [order(5), order(0), order(10)])
        assert d.counters["records_skipped"] == 1
        assert [r.value["a"] for r in d.read("apart")] == [r.value["a"] for r in d.read("together")] == [5]
    app = hg.App("job")
    columns(app).filter(hg.col("a") != 0).filter(10 // hg.col("a") > 1).to("apart")
    with Driver(app) as d:
        d.send_all("in", [order(5), order(0), order(10)])
        assert [r.value["a"] for r in d.read("apart")] == [5]


def test_all_expressions_of_a_step_read_the_columns_as_they_were_before_it() -> None:
    """Two columns change places."""
    app = hg.App("job")
    columns(app).with_columns(a=hg.col("b"), b=hg.col("a"), both=hg.col("a") - hg.col("b")).to("out")
    with Driver(app) as d:
        d.send("in", order(5, 3))
        (one,) = d.read("out")
        assert (one.value["a"], one.value["b"], one.value["both"]) == (3, 5, 2)


def test_nulls_have_a_place_in_first_last_and_collect() -> None:
    """They are no numbers to add or to compare."""
    sent = [order(1), {**order(2), "note": "x"}, order(3)]
    app = hg.App("job", on_error="dead_letter")
    columns(app).agg(first=hg.first("note"), last=hg.last("note"), all=hg.collect("note")).to("out")
    with Driver(app) as d:
        d.send_all("in", [hg.Record("k", one) for one in sent])
        assert [r.value for r in d.read("out")] == [{"first": None, "last": None, "all": [None, "x", None]}]
    app = hg.App("job", on_error="dead_letter")
    columns(app).agg(least=hg.min("note")).to("out")
    with Driver(app) as d:
        d.send_all("in", [hg.Record("k", one) for one in sent])
        assert [r.value for r in d.read("out")] == [{"least": "x"}]
        assert [letter.offset for letter in d.dead_letters()] == [0, 2]


def test_updates_are_rows_of_which_columns_can_be_made() -> None:
    """With the key of the aggregate."""
    app = hg.App("job")
    columns(app).repartition("user").agg(n=hg.count()).columns(Count).filter(hg.col("n") > 1).to("out")
    with Driver(app) as d:
        d.send_all("in", [order(1, user="a"), order(2, user="a"), order(3, user="b")])
        assert [(r.key, r.value) for r in d.read("out")] == [("a", {"n": 2})]


SHORT, FULL = b'{"b":2,"a":1,"user":"u"}', b'{"user":"u","a":1,"b":2,"note":null}'


@pytest.mark.parametrize(
    ("make", "written"),
    [
        (lambda c: c.filter(hg.col("a") > 0), SHORT),
        (lambda c: c.repartition("user"), FULL),
        (lambda c: c.frame(lambda f: f, like="polars", schema=Order), FULL),
        (lambda c: c.rows().columns(Order), FULL),
        (lambda c: c.with_columns(a=hg.col("a")), FULL),
    ],
    ids=["filter", "repartition", "frame", "rows", "with_columns"],
)
def test_when_a_record_is_written_in_full(make: Any, written: bytes) -> None:
    """In the order of the schema, with null for what is missing; else as it came."""
    app = hg.App("job")
    make(columns(app)).to("out")
    with Driver(app) as d:
        d.send("in", SHORT)
        assert [one.value for one in d.topics.drain("out")] == [written]


def test_a_sink_reads_all_columns_and_a_repeated_chunk_has_its_id() -> None:
    """A wrong value in any of them is bad data. What a sink has taken it can know again."""
    calls: list[tuple[str, list[int]]] = []

    def write(batch: hg.ColumnBatch) -> None:
        calls.append((batch.meta["id"], batch["a"].values()))
        if len(calls) == 1:
            raise OSError("not yet")

    app = hg.App("job", on_bad_data="dead_letter")
    columns(app).sink(write)
    with Driver(app, settings={"error.retries": 2}) as d:
        d.send_all("in", [order(1), order(2)])
        d.advance("1m")
        d.send("in", {**order(3), "note": 7})
        assert [letter.offset for letter in d.dead_letters()] == [2]
    assert calls[0] == calls[1]
    assert calls[0][1] == [1, 2]


def test_how_often_a_function_of_frames_is_called_to_find_a_record() -> None:
    """The parts of the chunk are halves of halves; the others go through together."""
    calls: list[int] = []

    def picky(given: pl.DataFrame) -> pl.DataFrame:
        calls.append(len(given))
        if (given["a"] == 7_777).any():
            raise ValueError("it is bad")
        return given

    app = hg.App("job", on_error="dead_letter")
    columns(app).frame(picky, like="polars", schema=Order).to("out")
    with Driver(app) as d:
        d.send_all("in", [order(n) for n in range(10_000)])
        assert [letter.offset for letter in d.dead_letters()] == [7_777]
        assert len(d.read("out")) == 9_999
    assert calls[0] == 10_000
    assert calls[-1] == 9_999
    assert len(calls) <= 30


def test_which_columns_travel_as_batches() -> None:
    """A name that begins with `__` has no place in a frame of columns; neither have less than 64 rows."""
    app = hg.App("job")
    orders = columns(app)
    orders.repartition("user", name="many").to("one")
    orders.with_columns(__more=1).repartition("user", name="named").to("two")
    with Driver(app) as d:
        found: list[Any] = []
        for count in (63, 64):
            d.send_all("in", [order(n) for n in range(count)])
            for stream in ("many", "named"):
                sent = d.topics.records(StreamPartition(f"job-1-{stream}", 0))
                frames = [decode(one.value or b"") for one in sent]
                found.append(type([one for one in frames if not isinstance(one, ControlFrame)][-1]))
        assert found == [BatchFrame, BatchFrame, ArrowFrame, BatchFrame]
        assert [r.value["__more"] for r in d.read("two")] == [1] * 127


def test_chunks_of_a_reader_of_columns() -> None:
    """Consecutive frames with the same columns are one, those of types 0 and 4 another; others with other columns, too."""
    frames = [
        frame(records(2, n=[1, 2])),
        frame(records(1, n=[3])),
        encode(UserFrame(b'{"n":4}')),
        encode(BatchFrame([None], [0], [b'{"n":5}'])),
        frame(records(1, n=[6])),
        frame(records(1, n=[7], m=[8])),
    ]
    buffer = FetchBuffer(StreamPartition("s", 0), 0, framed=hg.json(), spanned=True)
    some = [SimpleNamespace(offset=at, timestamp=1, key=None, value=one, headers=()) for at, one in enumerate(frames)]
    buffer.put([RecordBatch.of(some)], 0, len(some))
    found: list[tuple[int, bool]] = []
    while (chunk := buffer.take(100, None, 1 << 20)) is not None:
        found.append((len(chunk), isinstance(chunk.columns, ArrivedColumns)))
    assert found == [(3, True), (2, False), (1, True), (1, True)]
