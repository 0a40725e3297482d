"""States in arrays: whatever comes, in whatever order, the table holds what a dict of Python's numbers would hold."""

from __future__ import annotations

import asyncio
import random
from typing import Any, TypedDict

import msgpack
import orjson
import pytest

import headgate as hg
from headgate.agents.operators.plain.aggregating import AggregateOp
from headgate.agents.records.native import chosen
from headgate.agents.state.cache_memory import CacheMemory
from headgate.agents.testing.driver import Driver

from ..pipeline.test_pipeline import Rig, chunk

needs_compiler = pytest.mark.skipif(chosen.COMPILED is None, reason="the compiled part is not built here")


@pytest.fixture(params=[pytest.param(True, marks=needs_compiler), False], ids=["compiled", "plain"])
def way(request, monkeypatch):
    """Each test runs with both."""
    if not request.param:
        monkeypatch.setattr(chosen, "part", chosen.PLAIN)


class Order(TypedDict):
    k: str
    n: int
    x: float


AGGREGATES = {
    "c": hg.count(),
    "s": hg.sum("n"),
    "low": hg.min("n"),
    "high": hg.max("x"),
    "mean": hg.mean("x"),
}
LARGE = 2**62


def states(rig: Rig) -> dict[bytes, Any]:
    """The stored states; floats with every bit."""
    library: Any = msgpack
    return {
        key: [repr(one) for one in library.unpackb(data[1:])]
        for key, data in rig.tables.store.range("agg")
        if data[:1] == b"\0"
    }


def model(rows: list[dict[str, Any]]) -> dict[bytes, Any]:
    """What they must be."""
    found: dict[bytes, list[Any]] = {}
    for row in rows:
        n, x, key = row["n"], row["x"], row["k"].encode()
        if key not in found:
            found[key] = [1, 0 + n, n, x, [1, x]]
            continue
        c, s, low, high, mean = found[key]
        found[key] = [c + 1, s + n, min(low, n), max(high, x), [mean[0] + 1, mean[1] + x]]
    return {key: [repr(one) for one in state] for key, state in found.items()}


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("memory", [4_000, 1 << 20])
def test_rows_of_any_numbers(seed: int, memory: int) -> None:
    """Whole numbers and floats in one column, now and then a bool; chunks that fail, commits at any time, evictions, and a table that is
    opened again."""
    chance = random.Random(seed)

    def fails(row: Any) -> Any:
        if row.get("bad"):
            raise ValueError("bad")
        return row

    def app() -> hg.App:
        made = hg.App("job", key_serde=hg.text())
        stream = made.input("in", key="k")
        stream.agg(name="agg", **AGGREGATES).to("counts")
        stream.map(fails).to("out")
        return made

    async def story() -> None:
        rig = Rig(app(), memory=CacheMemory(memory))
        rows: list[dict[str, Any]] = []
        for _ in range(60):
            several = [
                {
                    "k": f"k{chance.randrange(40)}",
                    "n": chance.choice((1, -7, LARGE // 1000, 2.5, True if chance.random() < 0.1 else 3)),
                    "x": chance.choice((0.1, 1e300, 5, -0.3)),
                }
                for _ in range(chance.randrange(1, 30))
            ]
            if chance.random() < 0.2:
                with pytest.raises(hg.UserCodeError):
                    await rig.run(chunk(*map(orjson.dumps, [*several, {**several[0], "bad": 1}])))
                rig.tables.drop()
                continue
            await rig.run(chunk(*map(orjson.dumps, several)))
            rows += several
            if chance.random() < 0.3:
                rig.seal()
                assert states(rig) == model(rows)
        rig.seal()
        assert states(rig) == model(rows)

    asyncio.run(story())


@pytest.mark.usefixtures("way")
def test_columns_and_rows_store_the_same_bytes() -> None:
    """Those of a list of the states in msgpack, behind the head of the table."""

    async def stored(columnar: bool) -> list[tuple[bytes, bytes]]:
        app = hg.App("job", key_serde=hg.text())
        stream: Any = app.input("in", serde=hg.json(Order), key="k")
        (stream.columns() if columnar else stream).agg(name="agg", **AGGREGATES).to("counts")
        rig = Rig(app)
        values = [orjson.dumps({"k": f"k{n % 3}", "n": n - 40, "x": n / 7}) for n in range(90)]
        await rig.run(chunk(*values))
        rig.seal()
        return list(rig.tables.store.range("agg"))

    by_rows, by_columns = (asyncio.run(stored(one)) for one in (False, True))
    assert by_rows == by_columns
    library: Any = msgpack
    total = 0.0
    for n in range(0, 90, 3):
        total += n / 7
    assert by_rows[0] == (b"k0", b"\0" + library.packb([30, 105, -40, 87 / 7, [30, total]]))


@pytest.mark.usefixtures("way")
def test_objects_stand_beside_numbers() -> None:
    """States that are no numbers: columns store what rows store, whatever is evicted, and read it back; a chunk that fails adds nothing."""
    made = {"c": hg.count(), "first": hg.first("n"), "last": hg.last("k"), "all": hg.collect("n"), "mean": hg.mean("x")}

    async def stored(columnar: bool, memory: int) -> list[tuple[bytes, bytes]]:
        app = hg.App("job", key_serde=hg.text())
        stream: Any = app.input("in", serde=hg.json(Order) if columnar else hg.json(), key="k")
        stream = stream.columns() if columnar else stream
        stream.agg(name="agg", **made).to("counts")
        if columnar:
            stream.filter(6 // hg.col("n") > 0).to("out")
        rig = Rig(app, memory=CacheMemory(memory))
        (of,) = (one for one in rig.pipeline.operators if isinstance(one, AggregateOp))
        assert (of.arrays is not None) is columnar
        for number in range(30):
            values = [orjson.dumps({"k": f"k{n % 40}", "n": n + 1, "x": n / 7}) for n in range(number, number + 9)]
            if columnar and number % 7 == 3:
                with pytest.raises(hg.UserCodeError):
                    await rig.run(chunk(*values, orjson.dumps({"k": "k3", "n": 0, "x": 0.0})))
                rig.tables.drop()
            await rig.run(chunk(*values))
            if number % 4 == 0:
                rig.seal()
        rig.seal()
        return list(rig.tables.store.range("agg"))

    rows = asyncio.run(stored(False, 1 << 20))
    assert [asyncio.run(stored(True, memory)) for memory in (1 << 20, 4_000)] == [rows, rows]


def test_an_update_has_the_greatest_time_of_its_rows() -> None:
    """Whether its states are in arrays or not."""
    for more in ({}, {"all": hg.collect("n")}):
        app = hg.App("job")
        app.input("in", key="k", timestamp="n").agg(c=hg.count(), **more).to("out")
        with Driver(app) as d:
            d.send_all("in", [{"k": "a", "n": n} for n in (5, 9, 7)])
            d.send("in", {"k": "a", "n": 3})
            assert [record.timestamp for record in d.read("out")] == [9, 3]


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("columnar", [False, True])
def test_partial_states_in_columns_are_merged_as_columns(columnar: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """More than a few keys travel as a frame of columns, and no list is made of its states; the results are those of rows."""
    app = hg.App("job")
    stream: Any = app.input("in", serde=hg.json(Order))
    (stream.columns() if columnar else stream).repartition("k").agg(name="agg", **AGGREGATES).to("out")
    taken: list[int] = []
    in_arrays = AggregateOp._in_arrays

    def pushed(self: AggregateOp, rows: Any) -> bool:
        merged = in_arrays(self, rows)
        taken.extend([len(rows)] if merged else [])
        return merged

    monkeypatch.setattr(AggregateOp, "_in_arrays", pushed)
    sent = [{"k": f"k{n % 100}", "n": n, "x": n / 7} for n in range(300)]
    with Driver(app) as d:
        d.send_all("in", sent)
        d.restart()
        d.send_all("in", sent[:150])
        found = {one.key: one.value for one in d.read("out")}
    assert taken == [100, 100]
    wanted = model([*sent, *sent[:150]])
    assert {key.encode(): [repr(one) for one in list(value.values())[:4]] for key, value in found.items()} == {
        key: state[:4] for key, state in wanted.items()
    }
