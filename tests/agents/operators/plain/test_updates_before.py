"""`agg(before=True)`: an update says what it replaces, however states are kept. Results are columns where a step wants some."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable
from typing import Any, TypedDict

import pytest

import headgate as hg
from headgate.agents.job.types.aggregates import AggregatePlan
from headgate.agents.state import tables
from headgate.agents.state.cache_memory import CacheMemory
from headgate.agents.testing.driver import Driver
from headgate.core.errors import DeclarationError
from headgate.core.names import StreamPartition

MOST = 2**63 - 1


class Order(TypedDict):
    k: str
    n: int
    x: float


class Updated(TypedDict):
    c: int
    c_before: int


WAYS: dict[str, Callable[[hg.App], Any]] = {
    "dicts": lambda app: app.input("in", key="k"),
    "typed rows": lambda app: app.input("in", serde=hg.json(Order), key="k").filter(lambda o: o is not None),
    "columns": lambda app: app.input("in", serde=hg.json(Order), key="k").columns(),
}
NUMBERS = {"c": hg.count(), "s": hg.sum("n"), "x": hg.sum("x"), "least": hg.min("n"), "m": hg.mean("x")}
OBJECTS = {**NUMBERS, "last": hg.last("n"), "some": hg.collect("k")}
FIRST = {"c": 0, "s": 0, "x": 0, "least": None, "m": None, "last": None, "some": []}
"""What a key has before its first record."""


def updates(d: Driver) -> list[tuple[str, dict[str, Any]]]:
    """All updates, in order."""
    records = d.topics.records(StreamPartition("out", 0))
    return [((one.key or b"").decode(), json.loads(one.value or b"")) for one in records]


def checked(found: list[tuple[str, dict[str, Any]]], names: Any) -> int:
    """Each update replaces what the one before it said, or what a key has at first. Returns how many were not the first of their key."""
    last: dict[str, dict[str, Any]] = {}
    again = 0
    for key, update in found:
        again += key in last
        former = last.get(key, FIRST)
        assert {name: update[f"{name}_before"] for name in names} == {name: former[name] for name in names}, key
        last[key] = update
    return again


@pytest.mark.usefixtures("either_part")
@pytest.mark.parametrize("size", [1, 9])
@pytest.mark.parametrize("shuffled", [False, True])
@pytest.mark.parametrize("kinds", ["numbers", "objects"])
@pytest.mark.parametrize("way", WAYS)
def test_an_update_says_what_it_replaces(way: str, kinds: str, shuffled: bool, size: int) -> None:
    """Over restarts, with sums that are too large for an array for a while, behind a shuffle that combines, or none."""
    aggregates = NUMBERS if kinds == "numbers" else OBJECTS
    app, chance = hg.App("job"), random.Random(7)
    stream = WAYS[way](app)
    stream = stream.repartition("k") if shuffled else stream
    stream.agg(before=True, **aggregates).to("out")
    sent = [
        {"k": chance.choice("abcdef"), "n": chance.choice([1, 2, MOST, -MOST]), "x": chance.choice([0.5, 1.0])}
        for _ in range(60)
    ]
    with Driver(app) as d:
        for start in range(0, len(sent), size):
            d.send_all("in", [hg.Record(None, one, 60_000) for one in sent[start : start + size]])
            if start // size % 3 == 1:
                d.restart()
        d.drain()
        found = updates(d)
        assert not d.counters.get("records_failed")
    assert checked(found, aggregates) > 5
    newest = dict(found)
    assert {key: one["c"] for key, one in newest.items()} == {k: sum(o["k"] == k for o in sent) for k in newest}
    assert {key: one["s"] for key, one in newest.items()} == {
        k: sum(o["n"] for o in sent if o["k"] == k) for k in newest
    }


@pytest.mark.usefixtures("either_part")
def test_states_that_were_evicted_say_it_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are read from the store again, with what they were there."""
    memories: list[CacheMemory] = []

    def made() -> CacheMemory:
        memories.append(CacheMemory(64 << 10))
        return memories[-1]

    monkeypatch.setattr(tables, "CacheMemory", made)
    app, chance = hg.App("job"), random.Random(5)
    WAYS["columns"](app).agg(before=True, **NUMBERS).to("out")
    with Driver(app) as d:
        for _ in range(60):
            d.send_all("in", [{"k": f"k{chance.randrange(1_500)}", "n": 1, "x": 0.5} for _ in range(50)])
        found = updates(d)
    assert sum(one.evicted for one in memories) > 64 << 10
    assert checked(found, NUMBERS) > 1_000


@pytest.mark.usefixtures("either_part")
@pytest.mark.parametrize("way", WAYS)
def test_updates_of_each_chunk_say_it_too(way: str) -> None:
    """Behind the aggregate a step awaits, so that updates go on with each chunk, and a commit may have several of a key."""

    async def same(update: Any) -> Any:
        await asyncio.sleep(0)
        return update

    app = hg.App("job", settings={"commit.interval": "1h"})
    WAYS[way](app).agg(before=True, **NUMBERS).as_events().map_async(same).to("out")
    with Driver(app) as d:
        for n in range(30):
            d.send_all("in", [{"k": "ab"[n % 2], "n": n, "x": 0.5}, {"k": "a", "n": 1, "x": 1.0}])
        d.drain()
        found = updates(d)
    assert len(found) > 30
    checked(found, NUMBERS)


@pytest.mark.usefixtures("either_part")
@pytest.mark.parametrize("way", ["typed rows", "columns"])
def test_results_of_numbers_are_columns(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their types follow from the aggregates. No object is made of an update, and one that expressions make is as of rows."""
    made = {"c": hg.count(), "x": hg.sum("x"), "of_none": hg.sum("x", where=hg.col("n") < 0), "m": hg.mean("x")}

    def job(columns: bool) -> list[Any]:
        app = hg.App("job")
        found = WAYS[way](app).repartition("k").agg(before=True, **made).as_events()
        if columns:
            more = {"more": hg.col("x") - hg.col("x_before"), "one": hg.col("c") - hg.col("c_before")}
            found.columns().filter(hg.col("c") > 1).with_columns(**more).to("out")
        else:
            more = lambda o: {**o, "more": o["x"] - o["x_before"], "one": o["c"] - o["c_before"]}  # noqa: E731
            found.filter(lambda o: o["c"] > 1).map(more).to("out")
        with Driver(app) as d:
            for n in range(20):
                d.send_all("in", [{"k": "abc"[n % 3], "n": n, "x": n / 4}, {"k": "a", "n": 1, "x": 1.0}])
            d.drain()
            return sorted(updates(d), key=str)

    rows = job(columns=False)
    monkeypatch.setattr(AggregatePlan, "results", lambda *_: pytest.fail("an object was made of an update"))
    monkeypatch.setattr(AggregatePlan, "changes", lambda *_: pytest.fail("an object was made of an update"))
    found = job(columns=True)
    assert found == rows
    assert len(found) > 20


def test_results_of_objects_become_columns() -> None:
    """They are converted, as rows are."""
    app = hg.App("job")
    found = WAYS["columns"](app).agg(c=hg.count(), last=hg.last("k")).as_events().columns()
    found.with_columns(said=hg.concat(hg.col("last"), "!")).to("out")
    with Driver(app) as d:
        d.send_all("in", [{"k": "a", "n": 1, "x": 1.0}, {"k": "b", "n": 1, "x": 1.0}])
        assert sorted((key, one["c"], one["said"]) for key, one in updates(d)) == [("a", 1, "a!"), ("b", 1, "b!")]


@pytest.mark.parametrize("way", ["typed rows", "columns"])
@pytest.mark.parametrize("window", [hg.tumbling("1m"), hg.session("1m")])
def test_results_of_windows_become_columns(way: str, window: Any) -> None:
    """With the bounds of their windows."""
    app = hg.App("job")
    found = WAYS[way](app).window(window).agg(c=hg.count(), m=hg.mean("x")).columns()
    assert found.schema.names == ("c", "m", "window_start", "window_end", "closed_by")
    found.with_columns(length=hg.col("window_end") - hg.col("window_start")).to("out")
    with Driver(app) as d:
        d.send_all("in", [hg.Record(None, {"k": k, "n": 1, "x": 1.5}, 60_000) for k in "aab"])
        d.drain()
        assert sorted((key, one["c"], one["m"], one["length"]) for key, one in updates(d)) == [
            ("a", 2, 1.5, 60_000),
            ("b", 1, 1.5, 60_000),
        ]


def test_updates_are_aggregated_again() -> None:
    """How many keys have how many orders: each update takes its key from one number to the next."""
    app = hg.App("job")
    each = WAYS["columns"](app).repartition("k").agg(before=True, c=hg.count()).as_events().columns()
    gone = each.filter(hg.col("c_before") > 0).select(orders=hg.col("c_before").cast(str), keys=-1)
    come = each.select(orders=hg.col("c").cast(str), keys=1)
    gone.merge(come).repartition("orders").agg(keys=hg.sum("keys")).to("out")
    with Driver(app) as d:
        for keys in ("abcd", "abc", "a", "xy"):
            d.send_all("in", [{"k": k, "n": 1, "x": 1.0} for k in keys])
        assert {key: one["keys"] for key, one in updates(d) if one["keys"]} == {"1": 3, "2": 2, "3": 1}


def test_what_cannot_be_declared_is_said() -> None:
    """At the line that has it."""
    app = hg.App("job")
    stream = WAYS["columns"](app)
    with pytest.raises(DeclarationError, match="before='yes'"):
        stream.agg(before="yes", c=hg.count())  # type: ignore[arg-type]
    with pytest.raises(DeclarationError, match="name the aggregate otherwise"):
        stream.agg(before=hg.count(), c=hg.count())  # type: ignore[arg-type]
    with pytest.raises(DeclarationError, match="'c_before' is what the result before an update is called"):
        stream.agg(before=True, c=hg.count(), c_before=hg.sum("n"))
    with pytest.raises(DeclarationError, match="which is not an aggregate"):
        stream.window(hg.tumbling("1m")).agg(before=True, c=hg.count())
    with pytest.raises(DeclarationError, match="does not know the columns"):
        app.input("others").repartition("k", name="others-by-k").agg(c=hg.count(), s=hg.sum("n")).columns()
    rows = app.input("more").repartition("k", name="more-by-k").agg(before=True, c=hg.count())
    assert rows.columns().schema.names == ("c", "c_before")
    with pytest.raises(DeclarationError, match="no column 'd'"):
        rows.columns().filter(hg.col("d") > 1)
