"""Joins of two streams in a task: each pair and each row without a partner once, whatever is interleaved, interrupted or restored."""

from __future__ import annotations

import asyncio
from array import array
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, TypedDict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headgate as hg
from headgate.agents.job.derive.declaration import Declared
from headgate.agents.job.steps.keyed import JoinColumnsStep
from headgate.agents.operators.joins import joined, kept_rows
from headgate.agents.records.columns.records import Records
from headgate.agents.records.memory.vectors import Vector
from headgate.agents.state.cache_memory import CacheMemory
from headgate.agents.state.opening import open_tables
from headgate.agents.state.store import MemoryStore
from headgate.agents.testing.driver import Driver
from headgate.core.errors import DeclarationError, HeadgateError
from headgate.core.progress.frames import MAX_TIME, NO_TIME
from headgate.core.windows import blocks
from headgate.core.windows.joins import Distance, preserves


def both(left: Any, right: Any) -> list[Any]:
    """The pair, and a value that is spoilt for whoever gets it, too."""
    made = [left and left["x"], right and right["x"]]
    for value in (left, right):
        if value is not None:
            value.clear()
    return made


def job(how: Any = "inner", within: Any = "10s", app: hg.App | None = None, **more: Any) -> hg.App:
    app = app or hg.App("job")
    left, right = (app.input(topic, key="k", timestamp="ts") for topic in ("left", "right"))
    left.join(right, within=within, into=both, how=how, name="j", **more).to("out")
    return app


class Row(TypedDict):
    k: str | None
    ts: int | None
    x: int | str


class Numbered(TypedDict):
    x: int


def job_of_columns(how: Any = "inner", within: Any = "10s", kind: Any = Row, **more: Any) -> hg.App:
    app = hg.App("job")
    left, right = (app.input(topic, serde=hg.json(kind), key_serde=hg.text()).columns() for topic in ("left", "right"))
    left.join(right, within=within, how=how, name="j", take={"y": "x"}, **more).to("out")
    return app


def row(ts: int, x: Any, k: Any = "a") -> dict[str, Any]:
    return {"k": k, "ts": ts, "x": x}


def results(d: Driver) -> list[tuple[Any, ...]]:
    return [(one.key, *one.value, one.timestamp) for one in d.read("out")]


def held(d: Driver) -> dict[Any, Any]:
    return dict(row for part in d.table("j")._parts.values() for row in part.range())


# ------------------------------------------------------------------------------------------------- against every other row


@dataclass
class Reference:
    """What a join should emit, by comparing every row with every other."""

    distance: Distance
    how: str
    grace: int
    rows: list[tuple[int, str, int, int]] = field(default_factory=list)
    """Side, key, time, number."""
    alone: set[int] = field(default_factory=set)
    bound: int = NO_TIME
    late: int = 0

    def push(self, side: int, rows: list[tuple[str, int, int]]) -> list[tuple[Any, ...]]:
        found: list[tuple[Any, ...]] = []
        for key, time, number in rows:
            if time < self.bound:
                self.late += 1
                continue
            partners = sorted((one for one in self.rows if self._pair(side, key, time, one)), key=lambda one: one[2])
            for _, _, at, other in partners:
                self.alone -= {other, number}
                pair = (other, number) if side else (number, other)
                found.append((key, *pair, max(time, at)))
            self.rows.append((side, key, time, number))
            if not partners and preserves(self.how, side):
                self.alone.add(number)
        return found

    def _pair(self, side: int, key: str, time: int, one: tuple[int, str, int, int]) -> bool:
        left, right = (one[2], time) if side else (time, one[2])
        apart = left - self.distance.before <= right <= left + self.distance.after
        return one[0] != side and one[1] == key and apart

    def expire(self, watermark: int | None) -> list[tuple[Any, ...]]:
        if watermark is not None:
            self.bound = max(self.bound, watermark - self.grace)
        gone = sorted(
            (time + self.distance.ahead(side), side, time, place, key, number)
            for place, (side, key, time, number) in enumerate(self.rows)
            if number in self.alone and (watermark is None or time + self.distance.ahead(side) < self.bound)
        )
        self.alone -= {one[-1] for one in gone}
        if watermark is None:
            self.rows.clear()
        return [(key, *((None, number) if side else (number, None)), time) for _, side, time, _, key, number in gone]


class Life:
    """The operator of one task, over a store."""

    def __init__(self, declared: Declared, memory_bytes: int = 1 << 20) -> None:
        self.declared = declared
        self.memory = CacheMemory(memory_bytes)
        self.step: Any = next(one for one in declared.steps if one.name == "j")
        self.columns = isinstance(self.step, JoinColumnsStep)
        self.store = MemoryStore()
        self.position = 0
        self.late = 0
        self.begin()

    def begin(self) -> None:
        """Restore what is committed."""
        self.memory = CacheMemory(self.memory.limit)
        self.tables = open_tables(self.store, self.declared, clock=lambda: 0, memory=self.memory).tables

        def count(name: str, number: int) -> None:
            self.late += number

        env = SimpleNamespace(table=self.tables.table, count=count, app=self.declared.app, now_ms=lambda: 0)
        self.op = joined.JoinOp(self.step, env)  # type: ignore[arg-type]
        self.given: list[Records] = []
        self.op.forward = self.given.append  # type: ignore[method-assign]

    def out(self) -> list[tuple[Any, ...]]:
        """What has been emitted since the last call."""
        found = [
            (key, *(value.values() if self.columns else value), time)
            for rows in self.given
            for key, value, time in zip(rows.shown_keys() or [], rows.values, rows.timestamps, strict=True)
        ]
        self.given.clear()
        return found

    def push(self, side: int, rows: list[tuple[str, int, int]]) -> None:
        numbers, times = [number for _, _, number in rows], [time for _, time, _ in rows]
        keys = [key for key, _, _ in rows]
        if not self.columns:
            self.op.push_side(side, Records([{"x": number} for number in numbers], times, keys))
            return
        # every other base row is none of the rows
        base = [one for number in numbers for one in (number, None)]
        self.op.push_side(
            side,
            Records.of_vectors(
                {"x": Vector.of("int64", base)},
                array("q", [one for time in times for one in (time, 0)]),
                picked=array("q", range(0, len(base), 2)),
                key_values=[one for key in keys for one in (key, None)],
            ),
        )

    def complete(self) -> None:
        self.op.prepare()
        self.tables.prepare()
        self.op.complete()
        self.tables.complete()

    def drop(self) -> None:
        self.op.drop()
        self.tables.drop()
        self.given.clear()

    def time(self, watermark: int | None) -> list[list[tuple[Any, ...]]]:
        """Tell the time (None: the end), in as many letters as it takes: what each emits."""
        steps: list[list[tuple[Any, ...]]] = []
        more = True
        while more:
            told = self.op.on_close("end") if watermark is None else self.op.on_watermark(watermark)
            more = asyncio.run(told)
            self.complete()
            steps.append(self.out())
        return steps

    def commit(self) -> None:
        aside, kept = self.op.suspend(), self.tables.suspend()
        self.op.seal()
        self.op.prepare()
        self.tables.complete()
        self.tables.seal()
        self.position += 1
        self.tables.applied(self.position)
        self.tables.resume(kept)
        self.op.resume(aside)


PART = st.tuples(
    st.sampled_from((0, 1)), st.lists(st.tuples(st.sampled_from("abc"), st.integers(-20, 60)), min_size=1, max_size=9)
)
LETTERS = st.lists(
    st.one_of(
        st.tuples(st.just("chunk"), st.lists(PART, min_size=1, max_size=3), st.sampled_from(["", "fails", "sealed"])),
        st.tuples(st.just("time"), st.integers(-20, 90)),
        st.tuples(st.just("commit")),
        st.tuples(st.just("end")),
        st.tuples(st.just("crash")),
    ),
    max_size=14,
)


@pytest.fixture(scope="module", autouse=True)
def small() -> Any:
    """So few rows in a block and results in a step that both are several."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "BLOCK_ROWS", 3)
        patch.setattr(joined, "STEP_RESULTS", 2)
        yield


@settings(max_examples=60)
@given(
    how=st.sampled_from(["inner", "left", "outer"]),
    within=st.tuples(st.integers(0, 20), st.integers(0, 20)),
    grace=st.integers(0, 15),
    letters=LETTERS,
    memory_bytes=st.sampled_from([0, 2000, 1 << 20]),
    columns=st.booleans(),
)
def test_any_interleaving_gives_what_a_comparison_of_all_rows_gives(
    how: Any, within: tuple[int, int], grace: int, letters: list[Any], memory_bytes: int, columns: bool
) -> None:
    """Letters that take rows of one side or of both, fail, or are interrupted by a commit; times, ends, and crashes behind any commit: each
    result once, in order. A crash between the steps of an expiry goes on where it was. Memory may be short."""
    before, after = (f"{ms}ms" for ms in within)
    more = {"grace": f"{grace}ms"}
    declared = job_of_columns(how, (before, after), Numbered, **more) if columns else job(how, (before, after), **more)
    life = Life(Declared(declared), memory_bytes)
    told = Reference(Distance(*within), how, grace)
    number = 0
    for kind, *what in letters:
        if kind == "chunk":
            parts = []
            for side, rows in what[0]:
                parts.append((side, [(key, time, number := number + 1) for key, time in rows]))
            if what[1] == "fails":
                for side, rows in parts:
                    life.push(side, rows)
                life.drop()
            expected = [one for side, rows in parts for one in told.push(side, rows)]
            for index, (side, rows) in enumerate(parts):
                life.push(side, rows)
                if index == 0 and what[1] == "sealed":
                    life.commit()
            life.complete()
            assert life.out() == expected
        elif kind in ("time", "end"):
            watermark = what[0] if what else None
            steps = life.time(watermark)
            assert all(len(step) <= 2 for step in steps)
            assert [one for step in steps for one in step] == told.expire(watermark)
        else:
            life.commit()
            if kind == "crash":
                life.begin()
        owed, alone = life.op.owed_ms(), [time for _, _, time, number in told.rows if number in told.alone]
        assert (owed is None) is (not alone)
        assert owed is None or owed <= min(alone)
    assert life.late == told.late


def test_a_crash_between_the_steps_of_an_expiry_repeats_nothing() -> None:
    """What a step has emitted is stored with it."""
    life = Life(Declared(job("outer", "10ms")))
    life.push(0, [("a", n, n) for n in range(7)])
    life.push(1, [("b", n, 10 + n) for n in range(7)])
    life.complete()
    found: list[tuple[Any, ...]] = []
    while True:
        more = asyncio.run(life.op.on_watermark(100))
        life.complete()
        found += life.out()
        life.commit()
        life.begin()
        if not more:
            break
    assert found == [one for n in range(7) for one in (("a", n, None, n), ("b", None, 10 + n, n))]
    assert dict(life.tables.table("j").range()) == {"bound": 100}


# ---------------------------------------------------------------------------------------------------------- in the Driver


def test_pairs_within_the_distance_and_rows_without_a_partner() -> None:
    """Both ends of the distance belong to it. A pair has the greater time, a row without a partner its own."""
    with Driver(job("outer", grace="1s", late="late")) as d:
        d.send_all("left", [row(0, "l0"), row(3_000, "l1", "b")])
        d.send_all("right", [row(10_000, "r0"), row(10_001, "r1")])
        d.advance("1s")
        assert results(d) == [("a", "l0", "r0", 10_000)]
        d.send("left", row(14_000, "l2"))
        d.send("right", row(14_001, "r2", "c"))
        d.advance("1s")
        assert results(d) == [("a", "l2", "r0", 14_000), ("a", "l2", "r1", 14_000)]
        d.send_all(
            "right", [row(14_002, "r3", "c"), row(12_999, "r4", "b")]
        )  # the bound is 13,000: no partner for b any more
        d.advance("1s")
        assert results(d) == []
        assert [(one.key, one.value) for one in d.read("late")] == [("b", row(12_999, "r4", "b"))]
        assert d.counters["late_rows"] == 1
        d.send("left", row(14_002, "l3", "z"))
        d.send("right", row(14_002, "r5", "z"))
        d.advance("1s")
        assert results(d) == [("b", "l1", None, 3_000), ("z", "l3", "r5", 14_002)]
        d.drain()
        assert results(d) == [("c", None, "r2", 14_001), ("c", None, "r3", 14_002)]
        assert held(d) == {"bound": 13_002}


def test_one_direction_of_the_distance() -> None:
    """A payment follows its order by at most ten seconds."""
    with Driver(job("left", ("0s", "10s"))) as d:
        d.send("left", row(10_000, "order"))
        d.send_all("right", [row(9_999, "before"), row(10_000, "at once"), row(20_000, "last"), row(20_001, "after")])
        d.advance("1s")
        assert results(d) == [("a", "order", "at once", 10_000), ("a", "order", "last", 20_000)]


def test_three_streams_by_chaining() -> None:
    """The pairs of the first join are events with a time, which the second has not passed; neither has it passed a row that the first emits
    alone."""
    app = hg.App("job")
    a, b, c = (app.input(topic, key="k", timestamp="ts") for topic in "abc")
    first = a.join(b, within="10s", how="left", into=lambda x, y: {"a": x["x"], "b": y and y["x"]}, name="first")
    first.join(
        c, within="2s", how="left", into=lambda x, y: [*x.values(), y and y["x"]], late="late", name="second"
    ).to("out")
    with Driver(app) as d:
        d.send("a", row(1_000, "a1"))
        d.send("b", row(9_000, "b1"))
        d.send("c", row(11_000, "c1"))
        d.send("a", row(2_000, "a2", "lonely"))
        d.send("c", row(2_000, "c2", "lonely"))
        for topic in "abc":
            d.send(topic, row(30_000, "end", "z"))
        d.advance("1s")
        assert sorted(results(d)) == [
            ("a", "a1", "b1", "c1", 11_000),
            ("lonely", "a2", None, "c2", 2_000),
            ("z", "end", "end", "end", 30_000),
        ]
        assert d.read("late") == []


def test_a_restart_forgets_nothing_and_repeats_nothing() -> None:
    with Driver(job("outer")) as d:
        d.send_all("left", [row(n, f"l{n}", f"k{n}") for n in range(10)])
        d.advance("1s")
        d.restart()
        d.send_all("right", [row(n, f"r{n}", f"k{n}") for n in range(0, 10, 2)])
        d.advance("1s")
        assert results(d) == [(f"k{n}", f"l{n}", f"r{n}", n) for n in range(0, 10, 2)]
        d.restart()
        d.send("right", row(5_000, "r", "k4"))
        d.end()
        assert results(d) == [("k4", "l4", "r", 5_000), *((f"k{n}", f"l{n}", None, n) for n in range(1, 10, 2))]


def test_what_was_late_stays_late_in_the_next_run_but_a_drain_opens_the_join_anew() -> None:
    with Driver(job("left", late="late")) as d:
        d.send("left", row(50_000, "l"))
        d.send("right", row(20_000, "r"))
        d.drain()
        assert results(d) == [("a", "l", None, 50_000)]
        d.restart()
        d.send("right", row(50_000, "again"))
        d.send("left", row(19_999, "late"))
        d.drain()
        assert results(d) == []
        assert [one.value["x"] for one in d.read("late")] == ["late"]


def test_rows_that_are_to_be_kept_wait_beyond_a_drain_and_an_end() -> None:
    """Over bounded runs, as windows that stay open: a partner comes in a later run, and a row comes out alone only by event time."""
    for close in (Driver.drain, lambda d: d.end()):
        with Driver(job("outer", late="late", at_end="keep")) as d:
            d.send("left", row(50_000, "l"))
            d.send("left", row(51_000, "waits", "b"))
            d.send("right", row(50_000, "expires", "c"))
            close(d)
            assert results(d) == []
            d.restart()
            d.send("right", row(58_000, "r"))
            assert results(d) == [("a", "l", "r", 58_000)]
            d.send("left", row(62_001, "m", "d"))
            d.send("right", row(62_000, "n", "e"))
            d.advance("1s")
            assert results(d) == [("c", None, "expires", 50_000), ("b", "waits", None, 51_000)]
            close(d)
            assert results(d) == []


def test_pairs_have_the_headers_of_both() -> None:
    app = hg.App("job")
    left, right = (app.input(topic, key="k", timestamp="ts") for topic in ("left", "right"))
    left.join(right, within="1s", into=both, how="outer").to("out")
    with Driver(app) as d:
        d.send("right", row(1, "r"), headers=[("h", b"r"), ("none", None)])
        d.send("left", row(1, "l"), headers=[("h", b"l")])
        d.send("left", row(1, "alone", "b"), headers=[("h", b"\xff")])
        d.restart()
        d.drain()
        found = [list(one.headers) for one in d.read("out")]
        assert found == [[("h", b"l"), ("h", b"r"), ("none", None)], [("h", b"\xff")]]


def test_null_values_are_counted_and_join_nothing() -> None:
    with Driver(job("outer")) as d:
        d.send("left", None, key="a", at=1)
        d.send("right", row(1, "r"))
        d.drain()
        assert results(d) == [("a", None, "r", 1)]
        assert d.counters["join_null_rows"] == 1


@pytest.mark.parametrize("policy", ["skip", "fail"])
def test_a_row_without_a_key_is_refused(policy: Any) -> None:
    app = hg.App("job")
    left, right = (app.input(topic, timestamp="ts") for topic in ("left", "right"))
    left.join(right, within="1s", into=both, on_error=policy, name="j").to("out")
    with Driver(app) as d:
        if policy == "fail":
            with pytest.raises(HeadgateError, match=r"join 'j' .*: a record has no key"):
                d.send("left", row(1, "l"))
            return
        d.send("left", row(1, "l"))
        d.send("left", row(1, "l"), key="a")
        d.send("right", row(1, "r"), key="a")
        assert results(d) == [("a", "l", "r", 1)]


def test_a_pair_that_fails_costs_the_row_that_came_second() -> None:
    """The other one may still find partners."""

    def into(left: Any, right: Any) -> Any:
        if right["x"] == "bad":
            raise ValueError("bad")
        return both(left, right)

    app = hg.App("job")
    left, right = (app.input(topic, key="k", timestamp="ts") for topic in ("left", "right"))
    left.join(right, within="1s", into=into, on_error="skip", name="j").to("out")
    with Driver(app) as d:
        d.send("left", row(1, "l"))
        d.send_all("right", [row(1, "r"), row(1, "bad"), row(2, "s")])
        d.drain()
        assert results(d) == [("a", "l", "r", 1), ("a", "l", "s", 2)]


def test_a_row_that_the_task_log_would_refuse_is_an_error_of_its_record() -> None:
    life = Life(Declared(job()))
    life.tables.table("j").most_bytes = 2_000
    with pytest.raises(HeadgateError, match=r"join 'j' .*: a row takes \d+ bytes, but the task log accepts only 976"):
        life.op.push_side(0, Records([{"x": "x" * 1_000}], [1], ["a"]))


def test_the_blocks_of_slices_that_have_passed_are_deleted_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_rows, "STEP_BLOCKS", 2)
    life = Life(Declared(job("inner", "10ms")))
    life.push(0, [("a", n, n) for n in range(40)])
    life.complete()
    life.commit()
    assert len(life.time(1_000)) > 3
    life.commit()
    assert dict(life.tables.table("j").range()) == {"bound": 1_000}


def test_the_time_of_a_drain_is_no_event_time() -> None:
    life = Life(Declared(job("left")))
    life.push(0, [("a", 5, 1)])
    life.complete()
    assert life.time(MAX_TIME) == [[("a", 1, None, 5)]]
    assert life.op.bound == NO_TIME


# ----------------------------------------------------------------------------------------------------- what is refused


def test_another_distance_or_kind_is_taken_when_no_rows_are_kept() -> None:
    """Rows that were kept for another join may have lost partners that they have in this one."""
    life = Life(Declared(job("left")))
    life.push(0, [("a", 5, 1)])
    life.complete()
    life.commit()
    other = Declared(job("left", "20s"))
    with pytest.raises(DeclarationError, match=r"it belongs to a join left 10s, not to a join left 20s.*drain the job"):
        open_tables(life.store, other, clock=lambda: 0)
    life.time(None)
    life.commit()
    open_tables(life.store, other, clock=lambda: 0)


@dataclass
class Order:
    """Values of a declared type."""

    k: str


def declared(declare: Any) -> None:
    app = hg.App("job")
    left, right = app.input("left", key="k"), app.input("right", key="k")
    declare(app, left, right).to("out")
    Declared(app).graph  # noqa: B018


@pytest.mark.parametrize(
    ("declare", "says"),
    [
        (lambda app, a, b: a.join(b, into=both), "needs within="),
        (lambda app, a, b: a.join(b, within="x", into=both), r"join\(within\)"),
        (lambda app, a, b: a.join(b, within=("1s",), into=both), "one distance, or two"),
        (lambda app, a, b: a.join(b, within="1s", into=both, how="right"), "'inner', 'left' or 'outer'"),
        (lambda app, a, b: a.join(b, within="1s", into=both, at_end="stay"), "'close' or 'keep'"),
        (lambda app, a, b: a.join(b.table("t"), at_end="keep", into=both), "omit at_end="),
        (lambda app, a, b: a.join(b, within="1s", into=lambda one: one), "left, right"),
        (lambda app, a, b: a.join(b, within="1s", into=both, on=len), r"join\(on=.*meet by the keys"),
        (lambda app, a, b: a.join(b, within="1s", into=both, on=("k", "x")), "is on 'x', but 'right' is keyed by 'k'"),
        (lambda app, a, b: a.join(b, within="1s", into=both, serde=hg.json), "serde"),
        (lambda app, a, b: a.join(a.filter(lambda one: one), within="1s", into=both), "joins 'left' with itself"),
        (lambda app, a, b: a.join(app.input("c", key="other"), within="1s", into=both), r"keyed by 'other'.*on=\("),
        (
            lambda app, a, b: a.join(b.map(dict).broadcast("all"), within="1s", into=both, how="outer"),
            "the right side is broadcast",
        ),
        (lambda app, a, b: a.join(hg.App("x").input("c"), within="1s", into=both), "belongs to another app"),
        (lambda app, a, b: a.join(b.agg(n=hg.count()), within="1s", into=both), "as_events"),
        (
            lambda app, a, b: a.join(b.repartition("k", key_serde=hg.json()), within="1s", into=both),
            "differ in their bytes",
        ),
        (lambda app, a, b: a.join(b.table("t"), within="1s", into=both), "omit within="),
        (lambda app, a, b: a.join(3, into=both), "takes a stream, or a table"),
        (lambda app, a, b: a.join(b.columns(Order), within="1s", into=both), r"put .rows\(\) before it"),
    ],
)
def test_a_declaration_that_cannot_work_is_refused_at_its_own_line(declare: Any, says: str) -> None:
    with pytest.raises(DeclarationError, match=says):
        declared(declare)
