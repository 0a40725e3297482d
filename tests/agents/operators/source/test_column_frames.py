"""Columns between two stages: rows and partial states go as frames of columns, and what comes out is what rows give."""

from __future__ import annotations

import asyncio
from typing import Any, TypedDict

import orjson
import pyarrow as pa
import pytest

import headgate as hg
from headgate.agents.operators.base.bad_records import BadRecord
from headgate.agents.operators.source.decode import SourceOp
from headgate.agents.records.frames.arrow_columns import ArrivedColumns
from headgate.agents.records.frames.chunks import Chunk
from headgate.agents.testing.driver import Driver
from headgate.core.names import StreamPartition
from headgate.core.progress.frames import ArrowFrame, decode

from ..pipeline.test_pipeline import Rig
from ..plain.test_column_streams import Job, columns_shuffled, outcome, records, rows_shuffled


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The type of the columns of every chunk, as it is processed."""
    found: list[str] = []

    def seen(self: Any, chunk: Any, skip: Any) -> Any:
        found.append(type(chunk.columns).__name__)
        return read(self, chunk, skip)

    read = SourceOp.read
    monkeypatch.setattr(SourceOp, "read", seen)
    return found


def columns_rowed(app: hg.App, orders: hg.Stream[Any, Any]) -> object:
    shuffled = orders.columns().repartition("ts", key_serde=hg.key())
    shuffled.agg(n=hg.count()).to("counts")
    return shuffled.rows().filter(lambda o: o["country"] != "FR" and o["country"] is not None).to("out")


@pytest.mark.parametrize("by_columns", [columns_shuffled, columns_rowed])
def test_columns_go_through_a_shuffle_as_frames_of_columns(by_columns: Job, taken: list[str]) -> None:
    """Enough rows for such frames, from one to many in a chunk, and a few in batches between them."""
    sent = [one for seed in range(12) for one in records(seed, bad=False)]
    sent = [hg.Record(one.key, one.value, number, one.headers) for number, one in enumerate(sent)]
    for size in (100, 690):  # the last chunk has few rows
        wanted = outcome(rows_shuffled, sent, size)
        taken.clear()
        assert outcome(by_columns, sent, size) == wanted
        assert {"ArrivedColumns", "Columns"} <= set(taken)


def statistics(orders: Any) -> None:
    of = {"n": hg.count(), "total": hg.sum("amount"), "mean": hg.mean("amount"), "least": hg.min("ts")}
    orders.repartition("user", partitions=2).agg(**of, greatest=hg.max("amount")).to("out")


def test_partial_states_of_many_keys_are_frames_of_columns(taken: list[str]) -> None:
    """Those of a commit, of rows and of columns."""
    values = [{"user": f"u{n % 300}", "amount": n if n % 3 else n / 4, "ts": n} for n in range(2000)]
    sent = [hg.Record(None, orjson.dumps(value), n) for n, value in enumerate(values)]
    wanted = outcome(lambda _, orders: statistics(orders.map(lambda o: o)), sent, 500)
    assert wanted["out"]
    assert "ArrivedColumns" in taken
    taken.clear()
    assert outcome(lambda _, orders: statistics(orders.columns()), sent, 500) == wanted
    assert "ArrivedColumns" in taken


def test_mixed_numbers_go_as_batches(taken: list[str]) -> None:
    """The sums of some keys are whole numbers, of others floats: no column of a frame has both."""
    app = hg.App("job")
    orders = app.input("orders")
    orders.repartition("user", partitions=2).agg(total=hg.sum("amount")).to("out")
    sent = [hg.Record(None, {"user": f"u{n % 300}", "amount": 1 if n % 2 else 0.5}, n) for n in range(600)]
    with Driver(app) as driver:
        driver.send_all("orders", sent)
        driver.drain()
        found = {one.key: one.value["total"] for one in driver.read("out")}
    assert found == {f"u{n}": 2 if n % 2 else 1.0 for n in range(300)}
    assert {type(one) for one in found.values()} == {int, float}
    assert "ArrivedColumns" not in taken


class Optional(TypedDict):
    user: str
    amount: float | None


class Required(TypedDict):
    user: str
    amount: float


@pytest.mark.parametrize(
    "amounts", [[1.5, float("nan")], [1.5, float("inf")], [float("inf"), float("-inf")], [1e308, 1e308]]
)
@pytest.mark.parametrize("columns", [True, False])
@pytest.mark.parametrize("kind", [Optional, Required])
def test_what_is_no_finite_number_is_null(kind: Any, columns: bool, amounts: list[float]) -> None:
    """In a frame that another program has written: as in JSON, and as rows read it. It is bad data where no null may be."""
    app = hg.App("job")
    orders: Any = app.input("in", serde=hg.json(kind))
    orders = (orders.columns() if columns else orders).repartition(
        "user", **({} if columns else {"serde": hg.json(kind)})
    )
    orders.filter(hg.col("amount").is_null() | (hg.col("amount") > 0)).to("out")
    table = pa.table(
        {"__key": pa.array([b"a", b"b"], pa.binary()), "__timestamp": [1, 2], "user": ["a", "b"], "amount": amounts}
    )
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.replace_schema_metadata({"hg.v": "1", "hg.kind": "0"}).schema) as writer:
        writer.write_table(table)
    frame = decode(b"\x05" + sink.getvalue().to_pybytes())
    assert isinstance(frame, ArrowFrame)
    rig = Rig(app, "job-1-by-user")
    arrived: Any = ArrivedColumns([(frame, 0)], hg.json(kind))
    wanted = [one if one - one == 0 else None for one in amounts]
    running = rig.run(Chunk(StreamPartition("job-1-by-user", 0), 1, arrived))
    if kind is Required and None in wanted:
        with pytest.raises(BadRecord):
            asyncio.run(running)
        return
    asyncio.run(running)
    assert [orjson.loads(one)["amount"] for one in rig.out("out")] == wanted
