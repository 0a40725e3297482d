"""Results of batches on their way to a topic: as columns where their types allow it, else as rows, with the same bytes."""

from __future__ import annotations

import datetime
from types import SimpleNamespace
from typing import Any, TypedDict

import pyarrow as pa
import pytest

import headgate as hg
from headgate.agents.testing import driver as drivers
from headgate.core.batching.batch_progress import AtSpark
from headgate.core.batching.batches import BatchOutcome
from headgate.spark_bridge.data import columns

PLAIN = pa.table({"user": ["a", None, "ü"], "n": [1, 2, 3], "share": [0.5, 1e300, None], "on": [True, None, False]})
SMALL = PLAIN.select(["user", "n"]).cast(pa.schema([("user", pa.large_string()), ("n", pa.int16())]))
ODD = {
    "not a number": pa.table({"user": ["a"], "share": [float("nan")]}),
    "infinity": pa.table({"user": ["a", "b"], "share": [float("inf"), float("-inf")]}),
    "a day": pa.table({"user": ["a"], "day": [datetime.date(2026, 1, 1)]}),
    "a map": pa.table({"user": ["a"], "of": pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int64()))}),
    "a list": pa.table({"user": ["a"], "of": [[1, 2]]}),
    "a number of more than 63 bits": pa.table(
        {"user": ["a"], "n": [2**63]}, schema=pa.schema([("user", pa.string()), ("n", pa.uint64())])
    ),
}


class Order(TypedDict):
    n: int


@pytest.fixture
def results(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A bridge without Spark: every batch has the result that stands here."""
    given: dict[str, Any] = {}

    async def run(*_: Any) -> list[BatchOutcome]:
        given["decoded"] = 0
        return [BatchOutcome([columns.encode([given["table"]])], given["table"].num_rows)]

    async def nothing() -> None:
        pass

    def decode(block: bytes) -> list[Any]:
        given["decoded"] += 1
        return columns.rows_of(columns.decode(block))

    bridge = SimpleNamespace(
        select=columns.select, split=columns.split, alike=lambda *_: True, encode=columns.encode,
        table=columns.decode, decode=decode, run=run, warm=nothing, close=nothing, status=lambda: None,
        progress=lambda *_: None, seen=AtSpark,
    )  # fmt: skip
    monkeypatch.setattr(drivers, "_spark", lambda *_: bridge)
    return given


def same(df: Any, _: Any) -> Any:
    return df


def written(results: dict[str, Any], table: pa.Table, **to: Any) -> list[tuple[Any, Any, int]]:
    """The records that are written, and how often rows were made."""
    results["table"] = table
    app = hg.App("job")
    app.input("in").batch(max_rows=1).spark(same, rows=Order, schema="user string, n long").to("out", **to)
    with hg.testing.Driver(app) as driver:
        driver.send("in", {"n": 1}, at=7)
        found = driver.read("out")
    return [(one.key, one.value, one.timestamp) for one in found]


@pytest.mark.parametrize("table", [PLAIN, SMALL], ids=["plain", "small types"])
@pytest.mark.parametrize("key", [None, "user", "n"])
def test_plain_results_are_written_from_columns(results: dict[str, Any], table: pa.Table, key: str | None) -> None:
    """No row is made of them; the records are those of the rows, keys included."""
    rows = table.to_pylist()
    keys = [None if key is None or row[key] is None else str(row[key]) for row in rows]
    assert written(results, table, key=key) == [(made, row, 7) for made, row in zip(keys, rows, strict=True)]
    assert results["decoded"] == 0


@pytest.mark.parametrize("what", ODD)
def test_other_results_are_written_from_rows(results: dict[str, Any], what: str) -> None:
    """With what JSON has for them."""
    rows = hg.json().loads_many([hg.json().dumps(row) for row in columns.rows_of(ODD[what])]).values
    assert written(results, ODD[what]) == [(None, row, 7) for row in rows]
    assert results["decoded"] == 1


def test_a_map_is_an_object(results: dict[str, Any]) -> None:
    """It was a list of pairs."""
    assert written(results, ODD["a map"]) == [(None, {"user": "a", "of": {"k": 1}}, 7)]


def test_a_function_of_rows_gets_rows(results: dict[str, Any]) -> None:
    """A key that is a function, and a step behind Spark, beside one that writes."""
    assert written(results, PLAIN, key=lambda row: f"k{row['n']}")[0] == ("k1", PLAIN.to_pylist()[0], 7)
    results["table"] = PLAIN
    app = hg.App("job")
    spark = app.input("in").batch(max_rows=1).spark(same, rows=Order, schema="user string")
    spark.to("out")
    spark.map(lambda row: row["n"]).to("numbers")
    with hg.testing.Driver(app) as driver:
        driver.send("in", {"n": 1})
        assert [one.value for one in driver.read("numbers")] == [1, 2, 3]
        assert [one.value for one in driver.read("out")] == PLAIN.to_pylist()
