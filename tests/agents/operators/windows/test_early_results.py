"""Early results of columns are those of rows, to the byte, and so is what is stored: whatever comes, and wherever the states are."""

from __future__ import annotations

import random
from array import array
from collections.abc import Callable
from typing import Any, TypedDict

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headgate as hg
from headgate.agents.job.derive.declaration import Declared
from headgate.agents.job.derive.named_fields import on_columns
from headgate.agents.job.steps.keyed import WindowStep
from headgate.agents.job.types.aggregates import AggregatePlan, count, mean, plan
from headgate.agents.job.types.aggregates import max as greatest
from headgate.agents.job.types.aggregates import sum as total
from headgate.agents.operators.base.addends import Addends, ColumnAddends
from headgate.agents.operators.base.stateless import UserCodeError
from headgate.agents.operators.windows import windowed
from headgate.agents.operators.windows.open_windows import OpenWindows
from headgate.agents.records.columns.records import Records
from headgate.agents.records.columns.window_rows import rows_of_times
from headgate.agents.state import tables
from headgate.agents.state.cache_memory import CacheMemory
from headgate.agents.state.opening import open_tables
from headgate.agents.state.store import MemoryStore
from headgate.agents.testing.driver import Driver
from headgate.core.names import StreamPartition
from headgate.core.windows import spans
from headgate.core.windows.spans import Spans

MOST = 2**63 - 1
BASE = 1_700_000_000_000
LOG = "__headgate_log_job_1"


class Order(TypedDict):
    k: str
    n: int | None
    x: float
    ts: int


NUMBERS = {"c": hg.count(), "s": hg.sum("n"), "x": hg.sum("x"), "least": hg.min("n"), "m": hg.mean("x")}
OBJECTS = {"c": hg.count(), "s": hg.sum("n"), "one": hg.first("n"), "last": hg.last("x"), "all": hg.collect("n")}
SOME = {"c": hg.count(), "some": hg.count(where=hg.col("n") > 1), "s": hg.sum("x", where=hg.col("n") > 1)}
Windowed = Callable[[Any], Any]
WINDOWS: dict[str, Windowed] = {
    "by time": lambda of: of.window(hg.tumbling("1s", grace="100ms"), emit="2s").agg(**NUMBERS),
    "by rows": lambda of: of.window(hg.tumbling("1s", grace="100ms"), emit=7).agg(**NUMBERS),
    "hopping": lambda of: of.window(hg.hopping("1s", every="300ms"), emit="2s").agg(**NUMBERS),
    "hopping by rows": lambda of: of.window(hg.hopping("1s", every="250ms"), emit=20).agg(**NUMBERS),
    "objects": lambda of: of.window(hg.tumbling("1s"), emit="1s").agg(**OBJECTS),
    "conditions": lambda of: of.window(hg.tumbling("1s"), emit=5).agg(**SOME),
    "late rows": lambda of: of.window(hg.tumbling("1s"), emit="1s", late="late").agg(**NUMBERS),
    "kept open": lambda of: of.window(hg.tumbling("1s"), emit="1s", at_end="keep").agg(**NUMBERS),
    "combined": lambda of: of.repartition("k").window(hg.tumbling("1s"), emit="2s").agg(**NUMBERS),
    "combined hopping": lambda of: (
        of.repartition("k").window(hg.hopping("1s", every="500ms"), emit="1s").agg(**NUMBERS)
    ),
    "shuffled": lambda of: of.repartition("k").window(hg.tumbling("1s"), emit=9).agg(**OBJECTS),
}


def records(seed: int, size: int = 160) -> list[hg.Record[Any, Any]]:
    """Orders whose times rise, with some far behind, one key of which there are many, and sums that leave 64 bits for a while. Some have
    no number: their letters fail."""
    chance = random.Random(seed)
    made: list[hg.Record[Any, Any]] = []
    for number in range(size):
        key = "hot" if chance.random() < 0.4 else chance.choice(["a", "b", "ü", "d" * 40, ""])
        n = chance.choice([1, 2, 3, 3, -4, MOST if chance.random() < 0.1 else 5, None if chance.random() < 0.2 else 0])
        ts = BASE + number * 31 - chance.choice([0, 0, 0, 7, 200, 3_000])
        order = {"k": key, "n": n, "x": chance.choice([1.0, 9.5, 0.1, 0.25]), "ts": ts}
        made.append(hg.Record(key, orjson.dumps(order), number))
    return made


def job(windowed: Windowed, *, columns: bool, on_error: str = "skip") -> hg.App:
    app = hg.App("job", on_error=on_error)
    orders: Any = app.input("orders", serde=hg.json(Order), key="k", timestamp="ts")
    windowed(orders.columns() if columns else orders.filter(lambda o: o is not None)).to("out")
    return app


def written(d: Driver) -> dict[str, list[Any]]:
    """All that stands in the outputs."""
    found: dict[str, list[Any]] = {}
    for topic in sorted(d.declared.graph.outputs):
        every = d.topics.records(StreamPartition(topic, 0))
        found[topic] = [(one.key, one.value, one.timestamp, one.headers) for one in every]
    return found


def stored(d: Driver) -> dict[bytes, Any]:
    """What the windows have in the task log, as bytes."""
    (step,) = (one for one in d.declared.steps if isinstance(one, WindowStep))
    own = b"\x02" + bytes([len(step.name)]) + step.name.encode()
    found = {one.key or b"": one.value for one in d.topics.records(StreamPartition(LOG, 0))}
    found = {key: value for key, value in found.items() if key.startswith(own)}
    assert any(found.values())
    return found


def outcome(
    windowed: Windowed,
    *,
    columns: bool,
    chunk: int = 16,
    behind: Callable[[Driver, int], None] = lambda _d, _place: None,
) -> dict[str, Any]:
    """Everything that a job with this window does with the records. `behind` is called behind each chunk."""
    sent = records(chunk)
    with Driver(job(windowed, columns=columns)) as d:
        for place, start in enumerate(range(0, len(sent), chunk)):
            d.send_all("orders", sent[start : start + chunk])
            d.advance("1s")
            behind(d, place)
        before = stored(d)
        d.drain()
        counted = {name: n for name, n in d.counters.items() if name != "tombstones_dropped"}
        counted = {name: n for name, n in counted.items() if not name.startswith("failed")}
        return {**written(d), "stored": before, "counters": counted}


@pytest.mark.usefixtures("either_part")
@pytest.mark.parametrize("chunk", [3, 160])
@pytest.mark.parametrize("name", WINDOWS)
def test_early_results_of_columns_are_those_of_rows(name: str, chunk: int) -> None:
    """In their order, with keys, times and bytes; with late rows, letters that fail, and sums that fit into no array for a while."""
    wanted = outcome(WINDOWS[name], columns=False, chunk=chunk)
    assert any(b'"early"' in value for _, value, *_ in wanted["out"]) or chunk == 160
    assert outcome(WINDOWS[name], columns=True, chunk=chunk) == wanted


@pytest.mark.usefixtures("either_part")
@pytest.mark.parametrize("name", WINDOWS)
def test_windows_go_from_rows_to_columns_and_back_over_restarts(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a job does of which one version keeps states in lists, and another one in arrays: all bytes are the same."""
    wanted = outcome(WINDOWS[name], columns=False, behind=lambda d, place: d.restart() if place % 3 == 1 else None)
    restarts = 0
    own: Any = WindowStep.in_arrays

    def restart(d: Driver, place: int) -> None:
        nonlocal restarts
        if place % 3 == 1:
            restarts += 1
            monkeypatch.setattr(WindowStep, "in_arrays", property(lambda _: False) if restarts % 2 else own)
            d.restart()

    assert outcome(WINDOWS[name], columns=True, behind=restart) == wanted
    assert restarts == 3


@pytest.mark.usefixtures("either_part")
@pytest.mark.parametrize("name", ["by time", "hopping", "hopping by rows", "objects", "combined"])
@pytest.mark.parametrize("bound", ["results", "pairs", "memory"])
def test_early_results_in_steps_of_folded_rows_and_of_windows_out_of_memory(
    name: str, bound: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What of them is in memory, and how much a step may do, changes no byte."""
    wanted = outcome(WINDOWS[name], columns=False)
    memories: list[CacheMemory] = []

    def made() -> CacheMemory:
        memories.append(CacheMemory(1_500))
        return memories[-1]

    if bound == "results":
        monkeypatch.setattr(windowed, "STEP_RESULTS", 2)
    elif bound == "pairs":
        monkeypatch.setattr(spans, "MOST_PAIRS", 20)
    else:
        monkeypatch.setattr(tables, "CacheMemory", made)
    rows, columns = (outcome(WINDOWS[name], columns=way) for way in (False, True))
    assert columns == rows
    if bound == "memory":
        assert sum(one.evicted for one in memories) > 1_500
        assert columns == wanted


@pytest.mark.parametrize("name", [name for name in WINDOWS if name != "late rows"])
def test_no_row_is_made_for_early_results(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """`headgate plan` shows columns. Where no letter fails, no object stands for a record, not even a key; nor for a result of numbers."""
    declared = Declared(job(WINDOWS[name], columns=True))
    assert {step.why_rows() for step, takes in on_columns(declared.steps) if takes} == {None}
    for of, what in ((Records, "of_columns"), (ColumnAddends, "listed"), (ColumnAddends, "values")):
        monkeypatch.setattr(of, what, None)
    if name not in ("objects", "shuffled"):
        monkeypatch.setattr(AggregatePlan, "results", None)
    chance = random.Random(3)
    with Driver(job(WINDOWS[name], columns=True, on_error="fail")) as d:
        for second in range(6):
            for _ in range(3):
                rows = [{"k": chance.choice("abc"), "n": 1, "x": 0.5, "ts": BASE + second * 1000 + n} for n in range(9)]
                d.send_all("orders", rows)
            d.advance("1s")
        found = d.read("out")
        assert {one.value["closed_by"] for one in found} == {"early", "watermark"}


class Closed(TypedDict):
    c: int
    least: int | None
    m: float | None
    window_start: int
    window_end: int
    closed_by: str


class Whole(Closed):
    least: int  # pyright: ignore[reportIncompatibleVariableOverride]


def as_columns(kind: type, sent: list[Any], *, columns: bool) -> dict[str, list[Any]]:
    """The results of windows, turned to columns of this type, in which some have no least number."""
    app = hg.App("job", on_error="skip")
    orders: Any = app.input("orders", serde=hg.json(Order), key="k", timestamp="ts")
    some = {"where": hg.col("n") > 1}
    of = (orders.columns() if columns else orders.filter(lambda o: o is not None)).window(hg.tumbling("1s"), emit=4)
    of = of.agg(c=hg.count(), least=hg.min("n", **some), m=hg.mean("n", **some)).columns(kind)
    of.with_columns(at=hg.col("window_start") + hg.col("c")).to("out")
    with Driver(app) as d:
        for start in range(0, len(sent), 12):
            d.send_all("orders", sent[start : start + 12])
            d.advance("1s")
        d.drain()
        return written(d)


@pytest.mark.usefixtures("either_part")
def test_results_are_columns_for_a_step_that_takes_some(monkeypatch: pytest.MonkeyPatch) -> None:
    """A result that the declared type does not allow is an error, as it is of rows."""
    wanted = as_columns(Closed, records(1), columns=False)
    assert len(wanted["out"]) > 20
    made: list[int] = []
    own = Records.only
    monkeypatch.setattr(Records, "only", lambda rows, *more: made.append(len(rows)) or own(rows, *more))
    assert as_columns(Closed, records(1), columns=True) == wanted
    assert sum(made) > 20
    for way in (False, True):
        with pytest.raises(UserCodeError, match="the field 'least' is null"):
            as_columns(Whole, [{"k": "a", "n": 1, "x": 1.0, "ts": BASE}] * 4, columns=way)


# ------------------------------------------------------------------------------------------------------- letter by letter

PLAN = plan({"n": count(), "v": total("v"), "most": greatest("v"), "mean": mean("v")})
ROWS = st.lists(
    st.tuples(
        st.sampled_from([b"a", b"b", b"c", b"dd"]), st.integers(0, 60), st.sampled_from([1, 7, MOST, -MOST, 0.5])
    ),
    max_size=8,
)
DO = st.lists(
    st.one_of(
        st.tuples(st.just("letter"), st.lists(ROWS, min_size=1, max_size=3), st.sampled_from(["whole", "cut", "drop"])),
        st.tuples(st.just("letter"), st.lists(ROWS, min_size=1, max_size=1), st.just("whole")),
        st.tuples(st.just("early"), st.integers(1, 4), st.sampled_from(["whole", "cut", "drop"])),
        st.tuples(st.just("close"), st.integers(0, 60), st.integers(1, 3)),
        st.tuples(st.just("commit")),
        st.tuples(st.just("pack")),
        st.tuples(st.just("reopen")),
    ),
    max_size=14,
)


class Side:
    """One form of the windows, over a store of its own."""

    def __init__(self, window: Spans, *, arrays: bool) -> None:
        self.window, self.arrays = window, arrays
        self.store = MemoryStore()
        self.position = 0
        self.said: Any = None
        self.open()

    def open(self) -> None:
        app = hg.App("job")
        rows = app.input("in", key="k", timestamp="ts").window(hg.tumbling("10ms"), emit=1, name="w")
        rows.agg(n=hg.count(), v=hg.sum("v"), most=hg.max("v"), mean=hg.mean("v")).to("out")
        declared = Declared(app)
        self.step = next(step for step in declared.steps if isinstance(step, WindowStep))
        self.tables = open_tables(self.store, declared, clock=lambda: 0).tables
        self.kept = OpenWindows(self.window, PLAN, self.tables.table("w"), arrays=self.arrays, early=True)

    def do(self, what: str, how: list[Any], closed: int) -> None:
        if what == "letter":
            for number, rows in enumerate(how[0]):
                self._take(rows, closed)
                if number == 0 and how[1] == "cut":
                    self._interrupt()
            self._end(how[1])
        elif what == "early":
            found, times = self.kept.changed_since(how[0])
            self.said = self._listed(found), times.tolist()
            if how[1] == "cut":
                self._interrupt()
            self._end(how[1])
        elif what == "close":
            self.said = self._listed(self.kept.close(max(closed, how[0]), how[1]))
            self._end("whole")
        elif what == "pack":
            for end in self.kept.open.spare():
                self.kept.open.pack(end)
        else:
            self._commit()
            if what == "reopen":
                self.open()

    def _take(self, rows: Any, closed: int) -> None:
        keys, times = [row[0] for row in rows], array("q", [row[1] for row in rows])
        of = Addends(self.step, keys, [{"v": row[2]} for row in rows], times.tolist())
        self.kept.take_blocks(lambda some: rows_of_times(self.window, times, some, closed), of, None, len(rows))

    def _listed(self, found: Any) -> Any:
        states = [[list(one) if isinstance(one, tuple) else one for one in states] for states in found.states]
        return states, found.starts, found.ends, found.keys, found.more

    def _interrupt(self) -> None:
        aside = self.kept.suspend()
        self._commit()
        self.kept.resume(aside)

    def _end(self, how: str) -> None:
        if how == "drop":
            self.kept.drop()
            self.tables.drop()
            return
        self.kept.prepare()
        self.kept.complete()
        self.tables.complete()

    def _commit(self) -> None:
        self.kept.seal()
        self.tables.complete()
        self.tables.seal()
        self.position += 1
        self.tables.applied(self.position)

    def seen(self) -> Any:
        """What is open and stored, what was said last, and what the step asks before it emits early results."""
        early = self.kept.early
        assert early is not None
        stored = dict(self.tables.table("w").items())
        return self.said, self.kept.counts(), stored, early.ends, early.rows


@pytest.mark.usefixtures("either_part")
@pytest.mark.parametrize(("window", "pairs"), [(Spans(10, 10), 1 << 17), (Spans(20, 5), 1 << 17), (Spans(20, 5), 12)])
@settings(deadline=None, max_examples=60)
@given(DO)
def test_marks_are_those_of_windows_in_lists(window: Spans, pairs: int, actions: list[Any]) -> None:
    """Whatever comes, in whatever order: letters that fail, or are cut by a commit; windows that are packed, closed in steps, and in arrays
    no more."""
    never, *sides = [Side(window, arrays=arrays) for arrays in (False, False, True)]
    closed = -1000
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spans, "MOST_PAIRS", pairs)
        for what, *how in [*actions, ("early", 1000, "whole"), ("commit",)]:
            for side in (never, *sides) if what != "pack" else sides:
                side.do(what, how, closed)
            closed = max(closed, how[0]) if what == "close" else closed
            assert sides[1].seen() == sides[0].seen() == never.seen()
            assert set(sides[1].kept.open.ends) >= sides[1].kept.early.ends
