"""Sessions in arrays are those in lists, letter by letter: late rows, merges, closings, commits in the middle, and what is stored."""

from __future__ import annotations

from array import array
from typing import Any, TypedDict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headgate as hg
from headgate.agents.job.derive.declaration import Declared
from headgate.agents.job.steps.keyed import WindowStep
from headgate.agents.job.types.aggregates import count, mean, plan
from headgate.agents.job.types.aggregates import max as greatest
from headgate.agents.job.types.aggregates import sum as total
from headgate.agents.operators.base.addends import Addends, ChunkKeys, ColumnAddends
from headgate.agents.operators.windows.open_sessions import OpenSessions
from headgate.agents.operators.windows.session_arrays import SessionArrays, open_sessions
from headgate.agents.records.columns.records import Records
from headgate.agents.records.layout import longs
from headgate.agents.records.memory.record_spans import packed
from headgate.agents.records.memory.vectors import Vector
from headgate.agents.state.opening import open_tables
from headgate.agents.state.store import MemoryStore
from headgate.core.columns.schema import FLOAT, ColumnSchema, ColumnSpec

GAP = 10
PLAN = plan({"n": count(), "v": total("v"), "most": greatest("v"), "mean": mean("v")})
ROWS = st.lists(
    st.tuples(
        st.sampled_from([b"a", b"b", b"c"]), st.integers(0, 120), st.sampled_from([1, 7, -(2**53), 1e16, -1e16, 0.1])
    ),
    max_size=12,
)
LETTER = st.tuples(
    st.just("letter"), st.lists(ROWS, min_size=1, max_size=3), st.sampled_from(["complete", "interrupted", "drop"])
)
DO = st.lists(
    st.one_of(
        LETTER,
        LETTER,
        st.tuples(st.just("close"), st.integers(0, 60), st.integers(1, 4)),
        st.tuples(st.just("commit")),
        st.tuples(st.just("reopen")),
    ),
    max_size=14,
)


OBJECTS = plan(
    {
        "n": count(),
        "first": hg.first("v"),
        "last": hg.last("v"),
        "all": hg.collect("v"),
        "most": hg.arg_max("v", by="v"),
        "top": hg.top(2, by="v", of="v"),
        "several": hg.count_distinct("v"),
        "some": hg.last("v", where=hg.col("v") > 1),
        "total": total("v", where=hg.col("v") < 8),
        "every": hg.collect("v", where=hg.col("v") > 1),
    },
    ColumnSchema((ColumnSpec("v", FLOAT),)),
)


class Row(TypedDict):
    k: str
    v: float
    ts: int


class Side:
    """One form of the sessions, over a store of its own."""

    def __init__(self, *, arrays: bool, gap: int = GAP, objects: bool = False) -> None:
        self.arrays, self.gap, self.objects = arrays, gap, objects
        self.plan = OBJECTS if objects else PLAN
        self.store = MemoryStore()
        self.position = 0
        self.open()

    def open(self) -> None:
        app = hg.App("job")
        rows: Any = app.input("in", serde=hg.json(Row), key="k", timestamp="ts").columns() if self.objects else None
        rows = app.input("in", key="k", timestamp="ts") if rows is None else rows
        rows = rows.window(hg.session(0.010), name="w")
        rows.agg(**dict(zip(self.plan.names, self.plan.parts, strict=True))).to("out")
        declared = Declared(app)
        self.step = next(step for step in declared.steps if isinstance(step, WindowStep))
        self.tables = open_tables(self.store, declared, clock=lambda: 0).tables
        self.kept: Any = open_sessions(self.gap, self.plan, self.tables.table("w"), arrays=self.arrays)

    def take(self, rows: Any, closed: int) -> list[int]:
        keys, times, numbers = [row[0] for row in rows], [row[1] for row in rows], [row[2] for row in rows]
        values = [{"v": float(number) if self.objects else number} for number in numbers]
        if isinstance(self.kept, SessionArrays):
            of: Any = Addends(self.step, keys, values, times)
            if self.objects:
                column = Vector.of("float64", list(map(float, numbers)))
                chunk = Records.of_vectors({"v": column}, array("q", times), key_spans=packed(keys))
                of = ColumnAddends(self.step, chunk, lambda some: ChunkKeys(None, some.key_spans, some.picked, list))
            late = self.kept.take(of, array("q", times), None, closed)
            if late is not None:
                return longs(late).tolist()
            self.kept = self.kept.in_lists()
        return self.kept.take(keys, times, values, closed).late

    def caught_up(self) -> None:
        if isinstance(self.kept, SessionArrays) and not self.kept.caught_up():
            self.kept = self.kept.in_lists()

    def end(self, how: str) -> None:
        if how == "drop":
            self.kept.drop()
            self.tables.drop()
            return
        self.caught_up()
        self.kept.prepare()
        self.kept.complete()
        self.tables.complete()

    def interrupt(self) -> None:
        aside = self.kept.suspend()
        self.commit()
        self.kept.resume(aside)

    def commit(self) -> None:
        self.kept.seal()
        self.tables.complete()
        self.tables.seal()
        self.position += 1
        self.tables.applied(self.position)

    def close(self, closed: int | None, room: int) -> Any:
        self.caught_up()
        if self.kept.awaits(closed):
            return "awaits"
        found = self.kept.close(closed, room)
        return [
            [[list(one) if isinstance(one, tuple) else one for one in states] for states in found.states],
            *map(list, (found.starts, found.ends, found.keys)),
            found.more,
        ]

    def stored(self) -> list[Any]:
        return sorted((value for _, value in self.tables.table("w").items()), key=lambda one: one[:3])


@pytest.mark.usefixtures("either_part")
@pytest.mark.parametrize("objects", [False, True])
@settings(deadline=None, max_examples=200)
@given(DO)
def test_both_forms_have_the_same_sessions(objects: bool, actions: list[Any]) -> None:
    """Whatever comes, in whatever order; floats to the last bit, and objects in the order of their rows."""
    sides = [Side(arrays=False, objects=objects), Side(arrays=True, objects=objects)]
    closed = -1000
    for what, *how in actions:
        for side in sides:
            if what == "letter":
                rows, end = how
                side.late = [side.take(rows[0], closed)]
                if end == "interrupted":
                    side.interrupt()
                side.late += [side.take(some, closed) for some in rows[1:]]
                side.end(end)
            elif what == "close":
                bound, room = max(closed, how[0]), how[1]
                side.late = side.close(bound, room)
                side.end("complete")
            elif what == "commit":
                side.commit()
            else:
                side.commit()
                side.open()
        closed = max(closed, how[0]) if what == "close" else closed
        one, other = sides
        assert getattr(other, "late", None) == getattr(one, "late", None)
        assert other.kept.counts() == one.kept.counts()
    for side in sides:
        side.commit()
    assert isinstance(sides[1].kept, SessionArrays) or not objects
    assert sides[1].stored() == sides[0].stored()
    assert sides[1].close(None, 1000) == sides[0].close(None, 1000)


@settings(deadline=None, max_examples=200)
@given(st.lists(ROWS, max_size=5), st.integers(-20, 100))
def test_the_result_does_not_depend_on_how_rows_are_divided(chunks: list[Any], closed: int) -> None:
    """One by one, or all together."""
    whole, single = Side(arrays=True), Side(arrays=True)
    rows = [row for some in chunks for row in some]
    late = [rows[place] for place in whole.take(rows, closed)]
    one_by_one = [row for row in rows if single.take([row], closed)]
    for side in (whole, single):
        side.end("complete")
    assert late == one_by_one
    assert whole.close(None, 1000) == single.close(None, 1000)


@pytest.mark.parametrize("interrupted", [False, True])
def test_a_sum_that_leaves_64_bits_goes_on_in_lists(interrupted: bool) -> None:
    """With what the letter has taken before, once."""
    most = (1 << 63) - 1
    sides = [Side(arrays=False), Side(arrays=True)]
    for side in sides:
        side.take([(b"a", 0, most), (b"b", 0, 3)], -1000)
        if interrupted:
            side.interrupt()
        side.take([(b"c", 0, 1)], -1000)
        assert isinstance(side.kept, SessionArrays) is side.arrays
        side.take([(b"a", 5, 1), (b"b", 7, 1)], -1000)
        assert isinstance(side.kept, OpenSessions)
        side.end("complete")
        side.commit()
    assert sides[1].stored() == sides[0].stored()
    for side in sides:
        side.open()
        assert isinstance(side.kept, OpenSessions)  # what is stored does not fit
    found = [side.close(None, 9) for side in sides]
    assert found[0] == found[1]
    assert most + 1 in [states[1] for states in found[0][0]]


def test_a_sum_that_leaves_64_bits_where_sessions_meet_or_a_commit_has_come_between() -> None:
    """Two sessions fit, and their sum does not."""
    half = (1 << 63) - 1
    for rows in ([(b"a", 15, 1), (b"a", 8, 0)], [(b"a", 8, half)]):
        sides = [Side(arrays=False), Side(arrays=True)]
        for side in sides:
            side.take([(b"a", 0, half)], -1000)
            side.end("complete")
            side.take(rows, -1000)
            side.end("complete")
            assert isinstance(side.kept, OpenSessions)
            side.commit()
        assert sides[1].stored() == sides[0].stored()


def test_bad_values_are_refused_and_change_nothing() -> None:
    """They do not cost the arrays, either: their letter fails, and the next one goes on."""
    side = Side(arrays=True)
    with pytest.raises(TypeError):
        side.take([(b"a", 0, "text")], -1000)
    side.end("drop")
    assert isinstance(side.kept, SessionArrays)
    side.take([(b"a", 0, 1)], -1000)
    side.end("complete")
    assert side.close(None, 9)[0] == [[1, 1, 1, [1, 1]]]


def test_a_late_row_without_a_number_is_late_and_no_error() -> None:
    """Nothing of it is added, so nobody looks at what it has."""
    nothing: Any = None
    for side in (Side(arrays=False), Side(arrays=True)):
        assert side.take([(b"a", 0, nothing), (b"a", 200, 1)], 100) == [0]
        side.end("complete")
        assert isinstance(side.kept, SessionArrays) is side.arrays
        assert side.close(None, 9)[0] == [[1, 1, 1, [1, 1]]]


def test_numbers_of_keys_without_sessions_are_given_anew() -> None:
    """Many keys come and go; what is reserved for them does not grow for ever."""
    side = Side(arrays=True)
    for turn in range(6):
        at = turn * 1000
        side.take(
            [(f"{turn}-{n}".encode(), at, n) for n in range(700)] + [(b"kept", at + n, 1) for n in range(0, 1000, 10)],
            -1000,
        )
        side.end("complete")
        found = side.close(at + 500, 10_000)
        side.end("complete")
        assert len(found[3]) == 700
        side.commit()
        assert len(side.kept.arrays.keys) < 2500
    assert side.kept.counts().keys == 1
    assert side.close(None, 9)[0][0][0] == 600


def test_closed_sessions_hold_no_objects() -> None:
    """Their cells are used again; until then, what was collected needs no memory."""
    side = Side(arrays=True, objects=True)
    for at in (0, 1_000):
        side.take([(b"a", at, n) for n in range(500)] + [(b"b", at + 100, 1)], -1000)
        side.end("complete")
        held = side.kept.arrays.memory()
        assert side.close(at + 50, 9)[3][-1] == b"a"
        side.end("complete")
        assert side.kept.arrays.memory() < held - 500 * 100
    assert side.close(None, 9)[3] == [b"b"]
