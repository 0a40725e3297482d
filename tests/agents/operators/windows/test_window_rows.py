"""The rows of a window for an actor: all of a key and window once, what is stored, what a failure leaves, what says the window."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import orjson
import pytest

import headgate as hg
from headgate.agents.job.derive.declaration import Declared
from headgate.agents.operators.windows import windowed
from headgate.agents.records.columns.records import Records
from headgate.agents.state.opening import open_tables
from headgate.agents.state.store import MemoryStore
from headgate.agents.testing.driver import Driver
from headgate.core.errors import DeclarationError, HeadgateError
from headgate.core.windows import blocks

from .test_windowed import stored


class Sums(hg.Actor):
    """What an aggregate would say of the rows."""

    def on_batch(self, ctx: hg.Context, batch: hg.Batch[Any, Any]) -> None:
        assert len({record.key for record in batch}) == 1
        times = [record.timestamp for record in batch]
        assert times == sorted(times)
        ctx.forward({"n": len(batch), "x": sum(value["x"] for value in batch.values)})


class Told(hg.Actor):
    """What a hook is told, in the order in which it is."""

    def on_start(self, ctx: hg.Context) -> None:
        ctx.forward(["start"])

    def on_batch(self, ctx: hg.Context, batch: hg.Batch[Any, Any]) -> None:
        ctx.forward([batch.stream, [(r.key, r.value["x"], r.timestamp, repr(list(r.headers))) for r in batch]])

    def on_watermark(self, ctx: hg.Context, timestamp: int) -> None:
        ctx.forward(["watermark", timestamp])


def job(window: hg.Window, actor: type[hg.Actor] = Sums, at_end: Any = "close", **more: Any) -> hg.App:
    app = hg.App("job", **more)
    rows = app.input("in", key="k", timestamp="ts")
    rows.window(window, late="late", at_end=at_end, name="w").process(actor).to("out")
    return app


def row(ts: int, k: str = "a", x: Any = 1) -> dict[str, Any]:
    return {"k": k, "ts": ts, "x": x}


def passed(d: Driver, *rows: dict[str, Any]) -> list[tuple[Any, ...]]:
    """Send rows in one chunk; what came of it when time has been told: key, start, fields, what closed it."""
    d.send_all("in", rows)
    d.advance("1s")
    return results(d)


def results(d: Driver, topic: str = "out") -> list[tuple[Any, ...]]:
    found: list[tuple[Any, ...]] = []
    for one in d.read(topic):
        value = dict(one.value)
        start, end, by = (value.pop(name) for name in ("window_start", "window_end", "closed_by"))
        assert one.timestamp == end - 1
        found.append((one.key, start, *value.values(), by))
    return found


def test_an_actor_gets_the_rows_of_a_window_when_it_closes() -> None:
    """Once a key and window, in the order of ends and keys; what closed it and what came late is as with aggregates."""
    with Driver(job(hg.tumbling("10s", grace="2s"))) as d:
        assert passed(d, row(9_999, "b", 5), row(0, "a", 4), row(10_000), row(3, "a", 2)) == []
        assert passed(d, row(12_000)) == [("a", 0, 2, 6, "watermark"), ("b", 0, 1, 5, "watermark")]
        assert passed(d, row(9_999, "a", 7)) == []
        assert [(one.key, one.value) for one in d.read("late")] == [("a", row(9_999, "a", 7))]
        d.drain()
        assert results(d) == [("a", 10_000, 2, 2, "drain")]
        assert len(stored(d)) == 2  # the floor and its grace


def test_rows_are_given_as_they_came_and_before_the_time_that_closed_them() -> None:
    """With key, timestamp and headers. What is no mapping says its window in a header, what comes of other hooks does not."""
    with Driver(job(hg.tumbling("10s"), Told)) as d:
        d.send("in", row(5, x="é"), headers=[("h", b"\xff"), ("none", None)])
        d.send("in", row(2, x=[1]))
        d.send("in", row(10_000, "z"))
        d.advance("1s")
        all_found = d.read("out")
        assert {one.value[0] for one in all_found[1:-2]} <= {"watermark"}
        found = [all_found[0], *all_found[-2:]]
        at = [["a", [1], 2, "[]"], ["a", "é", 5, repr([("h", b"\xff"), ("none", None)])]]
        assert [one.value[0] for one in found] == ["start", "w", "watermark"]
        assert found[1].value[1] == at
        window = {"window_start": 0, "window_end": 10_000, "closed_by": "watermark"}
        assert [[(name, orjson.loads(data or b"")) for name, data in one.headers] for one in found] == [
            [],
            [("hg-window", window)],
            [],
        ]
        assert [(one.key, one.timestamp) for one in found[1:]] == [("a", 9_999), (None, 10_000)]


def test_a_header_is_enough_for_the_key_of_a_window() -> None:
    app = hg.App("job")
    windows = app.input("in", key="k", timestamp="ts").window(hg.tumbling("10s"), at_end="close")
    made = windows.process(Told, serde=hg.msgpack())
    made.filter(lambda value: value[0] == "tumbling-10s").to("out", key=hg.window_key)
    with Driver(app) as d:
        d.send_all("in", [row(12_000), row(20_000)])
        d.advance("1s")
        assert [one.key for one in d.read("out")] == [("a", 10_000)]


@pytest.mark.parametrize(
    "window",
    [
        hg.tumbling("10s", grace="1s"),
        hg.hopping("10s", every="4s"),
        hg.session("2s"),
        hg.tumbling("3s", time="processing"),
    ],
    ids=str,
)
@pytest.mark.parametrize("seed", range(3))
def test_the_rows_of_a_window_are_those_of_its_aggregates(
    window: hg.Window, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In any order, any chunks and blocks, with restarts, and with closing in many steps."""
    monkeypatch.setattr(blocks, "BLOCK_ROWS", 3)
    monkeypatch.setattr(windowed, "STEP_RESULTS", 4)
    monkeypatch.setattr(windowed, "STEP_SESSIONS", 2)
    chance = random.Random(seed)
    app = hg.App("job")
    rows = app.input("in", key="k", timestamp="ts", max_out_of_order="2s")
    rows.window(window, name="rows").process(Sums).to("rows")
    rows.window(window, name="states").agg(n=hg.count(), x=hg.sum("x")).to("states")
    time = 20_000
    found: dict[str, list[Any]] = {"rows": [], "states": []}
    with Driver(app) as d:
        for turn in range(60):
            time += chance.randint(0, 900)
            back = [0, 1, 100, 1_999, 2_000, 5_000]
            d.send_all(
                "in",
                [row(time - chance.choice(back), chance.choice("abcdefg"), turn) for _ in range(chance.randint(1, 9))],
            )
            if chance.random() < 0.7:
                d.advance("1s")
            if chance.random() < 0.2:
                d.restart()
        d.drain()
        for topic, kept in found.items():
            kept += sorted(results(d, topic))
        assert found["rows"] == found["states"]
        assert len(found["rows"]) > 15
        assert len(stored(d, "rows")) == len(stored(d, "states"))


def test_a_test_sees_the_rows_of_open_windows() -> None:
    with Driver(job(hg.tumbling("10s"))) as d:
        d.send("in", row(3, x=1), headers=[("h", b"x")])
        d.send("in", row(2, x=2))
        records = [hg.Record("a", row(3, x=1), 3, (("h", b"x"),)), hg.Record("a", row(2, x=2), 2)]
        assert dict(d.table("w")) == {("a", 0): {"window_start": 0, "window_end": 10_000, "rows": records}}
    with Driver(job(hg.session("10s"))) as d:
        d.send_all("in", [row(3, x=1), row(2, x=2)])
        (found,) = d.table("w").values()
        assert (found["window_start"], found["window_end"]) == (2, 10_003)
        assert [one.value["x"] for one in found["rows"]] == [1, 2]


def test_only_the_last_block_of_a_window_is_written_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit costs what has come, and no more than one block."""
    monkeypatch.setattr(blocks, "BLOCK_ROWS", 10)
    with Driver(job(hg.tumbling("1h"))) as d:
        passed(d, *(row(n, x=n) for n in range(25)))
        d.restart()
        before = stored(d)
        passed(d, *(row(n, x=n) for n in range(25, 32)))
        after = stored(d)
        assert [after[slot][:2] for slot in range(4)] == [[3_600_000, number] for number in range(4)]
        assert [len(after[slot][2]) for slot in range(4)] == [10, 10, 10, 2]
        assert [slot for slot in range(3) if before[slot] == after[slot]] == [0, 1]
        assert [entry[1] for entry in after[3][3]] == [orjson.dumps(row(n, x=n)) for n in (30, 31)]


def test_a_careful_task_stores_the_same_blocks_with_each_letter(monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit has failed before: what cannot be stored is to fail in its own letter. The next life goes on with either."""
    monkeypatch.setattr(blocks, "BLOCK_ROWS", 3)
    stored: list[Any] = []
    for careful in (False, True):
        declared = Declared(job(hg.hopping("10s", every="5s")))
        step: Any = declared.steps[1]
        store = MemoryStore()
        for life in range(3):
            tables = open_tables(store, declared, clock=lambda: 0).tables
            env: Any = SimpleNamespace(table=tables.table, count=lambda *_: None, app=declared.app, now_ms=lambda: 0)
            op = windowed.WindowOp(step, env)
            if careful:
                op.be_careful()
            for n in range(5):
                op.push(Records([row(n)] * 2, [1_000 * n + life, 5_000], ["a", "b"]))
                op.prepare()
                held = len(tables.table("w"))
                op.complete()
                tables.complete()
            assert life or bool(held) is careful
            op.seal()
            op.prepare()
            tables.complete()
            tables.seal()
            tables.applied(life + 1)
        stored.append(sorted(open_tables(store, declared, clock=lambda: 0).tables.table("w").values()))
    assert stored[0] == stored[1]
    assert sum(len(block[2]) for block in stored[0]) == 60


def test_rows_that_come_behind_a_closing_that_failed_are_in_the_window() -> None:
    """What the failed letter had read back is not all of it any more."""
    declared = Declared(job(hg.tumbling("10s")))
    step: Any = declared.steps[1]
    tables = open_tables(MemoryStore(), declared, clock=lambda: 0).tables
    env: Any = SimpleNamespace(table=tables.table, count=lambda *_: None, app=declared.app, now_ms=lambda: 0)
    op = windowed.WindowOp(step, env)
    given: list[Records] = []
    op.forward = given.append  # type: ignore[method-assign]
    for n in range(2):
        op.push(Records([row(n)], [n], ["a"]))
        op.prepare()
        op.complete()
        assert not op._close(None, "end")
        op.drop()
    assert [rows.timestamps for rows in given] == [[0], [0, 1]]


@pytest.mark.parametrize("window", [hg.tumbling("10s"), hg.hopping("10s", every="10s"), hg.session("10s")], ids=str)
def test_an_end_gives_the_rows_of_what_is_open(window: hg.Window) -> None:
    with Driver(job(window)) as d:
        passed(d, row(1_000), row(2_000, "b"))
        d.end()
        start = {"a": 1_000, "b": 2_000} if window.spans is None else {"a": 0, "b": 0}
        assert results(d) == [(k, start[k], 1, 1, "end") for k in "ab"]


def test_a_failing_actor_leaves_no_trace_and_is_called_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Closing goes in steps, each its own transaction: what was given is not given again, and the step that failed is done anew."""
    monkeypatch.setattr(windowed, "STEP_RESULTS", 70)
    seen: list[str] = []

    class Fails(hg.Actor):
        def on_batch(self, ctx: hg.Context, batch: hg.Batch[Any, Any]) -> None:
            key = next(iter(batch)).key
            ctx.table("seen")[key] = len(batch)
            ctx.forward({"n": len(batch)})
            if len(seen) == 100:
                seen.append("!")
                raise ValueError("once")
            seen.append(key)

    keys = sorted(f"k{n}" for n in range(200))
    app = job(hg.tumbling("10s"), Fails)
    app.table("seen", key=hg.text(), value=hg.json())
    with Driver(app) as d:
        d.send_all("in", [row(3, k) for k in keys])
        with pytest.raises(HeadgateError, match="once"):
            passed(d, row(10_000, "z"))
        assert results(d) == [(k, 0, 1, "watermark") for k in keys[:70]]
        assert sorted(d.table("seen")) == keys[:70]
        d.restart()
        d.advance("1s")
        assert results(d) == [(k, 0, 1, "watermark") for k in keys[70:]]
        assert sorted(d.table("seen")) == keys
        assert len(stored(d)) == 3


def test_rows_that_an_end_leaves_open_go_on_in_the_next_run() -> None:
    with Driver(job(hg.tumbling("10s"), at_end="keep")) as d:
        passed(d, row(1_000, x=1))
        d.drain()
        assert results(d) == []
        d.restart()
        assert passed(d, row(2_000, x=2), row(10_000)) == [("a", 0, 2, 3, "watermark")]


@pytest.mark.parametrize("window", [hg.tumbling("10s"), hg.session("10s")], ids=str)
def test_a_row_that_cannot_be_kept_is_a_dead_letter(window: hg.Window) -> None:
    app = hg.App("job", on_error="dead_letter")
    rows = app.input("in", key="k", timestamp="ts").map(lambda v: {**v, "x": {1} if v["x"] == "set" else v["x"]})
    rows.window(window).process(Sums).to("out")
    with Driver(app) as d:
        assert passed(d, row(1), row(2, x="set"), row(3), row(30_000)) == [
            ("a", 0 if window.spans else 1, 2, 2, "watermark")
        ]
        assert len(d.dead_letters()) == 1


def test_a_row_has_a_block_of_its_own_where_it_is_large() -> None:
    """No block grows beyond what the task log takes because of its neighbours."""
    with Driver(job(hg.tumbling("10s"))) as d:
        sizes = [10, 60_000, 60_000, 100_000, 10, 10]
        passed(d, *({**row(n), "pad": "x" * size} for n, size in enumerate(sizes)))
        found = [len(block[2]) for slot, block in stored(d).items() if isinstance(slot, int)]
        assert found == [2, 1, 1, 2]
        assert passed(d, row(10_000)) == [("a", 0, 6, 6, "watermark")]


def test_rows_in_place_of_aggregates_begin_where_no_window_is_open() -> None:
    """While one is open, its table holds what the other code cannot read: refused, both ways."""

    def states(window: hg.Window) -> hg.App:
        app = hg.App("job")
        app.input("in", key="k", timestamp="ts").window(window, name="w").agg(n=hg.count()).to("out")
        return app

    window = hg.tumbling("10s")
    store = MemoryStore()
    codes = [states(window), job(window), states(window)]
    held: list[Any] = [[10_000, 0, [b"a"], [[1]]], [10_000, 0, [b"a"], [[1, b"{}", None]]]]
    position = 0
    for now, then, block in zip(codes[:2], codes[1:], held, strict=True):
        tables = open_tables(store, Declared(now), clock=lambda: 0).tables
        for change in ({"floor": 7, 0: block}, None):
            if change is None:
                tables.table("w").delete_many([0])
            else:
                tables.table("w").update(change)
            tables.complete()
            tables.seal()
            tables.applied(position := position + 1)
            if change is not None:
                with pytest.raises(DeclarationError, match="drain the job with the old code"):
                    open_tables(store, Declared(then), clock=lambda: 0)
    after = open_tables(store, Declared(codes[-1]), clock=lambda: 0).tables.table("w")
    assert dict(after.range()) == {"floor": 7}


def test_a_window_of_which_nothing_is_made_is_refused() -> None:
    app = hg.App("job")
    rows = app.input("in", key="k")
    rows.to("out")
    rows.window(hg.tumbling("1m"))
    with pytest.raises(DeclarationError, match=r"nothing is made of window 'tumbling-1m' \(.*test_window_rows.py"):
        Declared(app)


@pytest.mark.parametrize(
    ("declare", "says"),
    [
        (lambda w: w.process(dict), "hg.Actor"),
        (lambda w: w.process(Sums, limit=3), "cannot be made"),
        (lambda w: w.process(Sums, serde=hg.json), "serde"),
    ],
)
def test_a_declaration_that_cannot_work_is_refused_at_its_own_line(declare: Any, says: str) -> None:
    with pytest.raises(DeclarationError, match=says):
        declare(hg.App("job").input("in", key="k").window(hg.tumbling("1m")))


def test_an_actor_gets_no_early_rows() -> None:
    with pytest.raises(DeclarationError, match="omit emit="):
        hg.App("job").input("in", key="k").window(hg.tumbling("1m"), emit="1s").process(Sums)
