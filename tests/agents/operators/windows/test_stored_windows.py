"""How open windows are stored: any letters, failures, commits and crashes leave what a plain recount says, in few rows."""

from __future__ import annotations

from array import array
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headgate as hg
from headgate.agents.job.derive.declaration import Declared
from headgate.agents.job.steps.keyed import WindowStep
from headgate.agents.operators.base.addends import Addends
from headgate.agents.operators.windows import window_states
from headgate.agents.operators.windows.open_rows import OpenRows
from headgate.agents.operators.windows.open_sessions import OpenSessions
from headgate.agents.operators.windows.open_windows import OpenWindows
from headgate.agents.records.columns.window_rows import rows_of_times
from headgate.agents.records.values.serdes import stored
from headgate.agents.state.cache_memory import CacheMemory
from headgate.agents.state.opening import open_tables
from headgate.agents.state.store import MemoryStore
from headgate.core.windows import blocks
from headgate.core.windows.slots import holds_window

BEFORE_ALL_TIME = -(10**9)
SPAN = 10
"""The size of the windows, and the gap of the sessions."""
WINDOWS = {
    "states": hg.tumbling(SPAN / 1000),
    "arrays": hg.tumbling(SPAN / 1000),
    "mixed": hg.tumbling(SPAN / 1000),
    "growing": hg.tumbling(SPAN / 1000),
    "rows": hg.tumbling(SPAN / 1000),
    "sessions": hg.session(SPAN / 1000),
}
Row = tuple[bytes, int]
Given = tuple[int, int, bytes]
"""Start, end and key of what closes."""


class Task:
    """The windows of one task with their table, the log of its commits, and a plain account of the rows that are open."""

    def __init__(self, kind: str, careful: bool, memory_bytes: int = 1 << 20) -> None:
        self.memory_bytes = memory_bytes
        app = hg.App("job")
        window = WINDOWS[kind]
        sums: dict[str, Any] = {"sum": hg.sum("v")} if kind == "mixed" else {}
        sums |= {"all": hg.collect("v")} if kind == "growing" else {}
        app.input("in", key="k").window(window, name="w").agg(n=hg.count(), **sums).to("out")
        self.kind, self.careful, self.spans = kind, careful, window.spans
        self.declared = Declared(app)
        (self.step,) = [step for step in self.declared.steps if isinstance(step, WindowStep)]
        self.plan = self.step.plan
        self.store = MemoryStore()
        self.position = 0
        self.log: dict[bytes, bytes | None] = {}
        """The newest row of each key, tombstones included."""
        self.most = 0
        """The most rows that the open windows have ever needed at once."""
        self.rows: Counter[Row] = Counter()
        self.committed: Counter[Row] = Counter()
        self.live()

    def live(self) -> None:
        """A life begins: only what is committed is there."""
        memory = CacheMemory(self.memory_bytes)
        self.tables = open_tables(self.store, self.declared, clock=lambda: 0, memory=memory).tables
        table = self.tables.table("w")
        self.rows = self.committed.copy()
        self.kept: Any
        if self.spans is None:
            self.kept = OpenSessions(SPAN, self.plan, table)
        elif self.kind == "rows":
            self.kept = OpenRows(self.spans, table)
        else:
            self.kept = OpenWindows(self.spans, self.plan, table, arrays=self.kind in ("arrays", "mixed"))
        self.kept.careful = self.careful

    def ends(self, fails: bool) -> None:
        """The letter has run."""
        self.kept.prepare()
        self.tables.prepare()
        if fails:
            self.kept.drop()
            self.tables.drop()
        else:
            self.kept.complete()
            self.tables.complete()
        self.weigh()

    def weigh(self) -> None:
        self.most = max(self.most, sum(map(len, self.held())))

    def held(self) -> list[dict[int, int]]:
        """The slots of each window, or of the sessions of each key."""
        store: Any = self.kept.blocks if self.kind in ("rows", "sessions") else self.kept.open.blocks
        return [store.slots(group) for group in dict(store.stored())]

    def commit(self) -> None:
        aside = self.tables.suspend(), self.kept.suspend()
        self.kept.seal()
        self.tables.prepare()
        self.tables.complete()
        self.weigh()
        self.log |= self.tables.seal().get("w", {})
        self.position += 1
        self.tables.applied(self.position)
        self.tables.resume(aside[0])
        self.kept.resume(aside[1])
        self.committed = self.rows.copy()

    def take(self, rows: list[Row], *, fails: bool, interrupted: bool) -> None:
        values: list[Any] = [[time, b"v", None] if self.kind == "rows" else {"v": number_of(time)} for _, time in rows]
        for at in (slice(0, len(rows) // 2), slice(len(rows) // 2, None)):
            keys, times = [key for key, _ in rows[at]], [time for _, time in rows[at]]
            if self.kind in ("states", "arrays", "mixed", "growing"):
                assert self.spans is not None
                found = rows_of_times(self.spans, array("q", times), None, BEFORE_ALL_TIME)
                self.kept.take(found, Addends(self.step, keys, values[at], times))
            else:
                self.kept.take(keys, times, values[at], BEFORE_ALL_TIME)
            if interrupted and at.start == 0:
                self.commit()
        if not fails:
            self.rows.update(rows)
        self.ends(fails)

    def close(self, upto: int | None, room: int, between: list[str]) -> None:
        """In steps; a failure, a commit or a crash between them."""
        between = list(between)
        while True:
            found = self.kept.close(upto, room)
            what = between.pop() if between else ""
            given = self.given(found)
            self.ends(what == "fail")
            if what != "fail":
                for one in given:
                    for row in self.rows_of(one):
                        del self.rows[row]
            if what == "commit":
                self.commit()
            if what == "crash":
                self.live()
            if not found.more and what not in ("fail", "crash"):
                break
        assert all(upto is not None and end > upto for _, end, _ in self.expected())

    def given(self, found: Any) -> dict[Given, int]:
        numbers = [len(state[0]) if self.kind == "rows" else state[0] for state in found.states]
        given = dict(zip(zip(found.starts, found.ends, found.keys, strict=True), numbers, strict=True))
        if self.kind == "mixed":
            sums = [
                sum(number_of(row[1]) * self.rows[row] for row in self.rows if row[0] == key and start <= row[1] < end)
                for start, end, key in given
            ]
            assert [state[1] for state in found.states] == sums
        return given

    def rows_of(self, one: Given) -> list[Row]:
        start, end, key = one
        return [row for row in self.rows if row[0] == key and start <= row[1] < end]

    def expected(self) -> dict[Given, int]:
        found: dict[Given, int] = {}
        last: dict[bytes, Given] = {}
        for (key, time), number in sorted(self.rows.items()):
            start = time // SPAN * SPAN
            if self.spans is None:
                before = last.get(key)
                start = before[0] if before is not None and time <= before[1] else time
                number += 0 if before is None or start == time else found.pop(before)
                last[key] = (start, time + SPAN, key)
            at = last[key] if self.spans is None else (start, start + SPAN, key)
            found[at] = found.get(at, 0) + number
        return found

    def check(self) -> None:
        """What is open is what the account says; the rows of the log are those of the store, and few."""
        assert self.given(self.kept.close(None, 10**6)) == self.expected()
        self.kept.drop()
        self.tables.drop()
        assert {key: value for key, value in self.log.items() if value is not None} == dict(self.store.range("w"))
        assert sum(map(holds_window, self.log)) <= self.most


def number_of(time: int) -> int:
    """What the row adds to a sum: often something that does not fit into arrays, or makes a sum that does not."""
    return {0: 2**62, 1: -(2**63) - 1, 2: True}.get(time % 5, time)


KEYS = st.sampled_from([bytes([key]) for key in b"abcdefgh"])
TIMES = st.one_of(st.sampled_from([1, 3, 12]), st.integers(-15, 45))
ROWS = st.lists(st.tuples(KEYS, TIMES), min_size=1, max_size=8)
ACTIONS = st.one_of(
    st.tuples(st.just("take"), ROWS, st.booleans(), st.booleans()),
    st.tuples(
        st.just("close"),
        st.one_of(st.none(), st.integers(-10, 60)),
        st.sampled_from([1, 3, 100]),
        st.lists(st.sampled_from(["", "fail", "commit", "crash"]), max_size=4),
    ),
    st.tuples(st.sampled_from(["commit", "crash"])),
)


@pytest.mark.parametrize(
    ("kind", "careful"),
    [(kind, careful) for kind in WINDOWS for careful in (False, True) if not (careful and kind in ("arrays", "mixed"))],
)
@given(actions=st.lists(ACTIONS, max_size=25), divided=st.booleans(), memory_bytes=st.sampled_from([0, 2_000, 1 << 20]))
@settings(deadline=None, max_examples=60)
def test_what_is_stored_is_what_is_open(
    kind: str, careful: bool, actions: list[tuple[Any, ...]], divided: bool, memory_bytes: int
) -> None:
    """Also where memory has room for nothing, or for a few windows."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(window_states, "BLOCK_KEYS", 4 if kind == "growing" else 2)
        patch.setattr(blocks, "BLOCK_ROWS", 2)
        for module in (blocks, window_states) if divided else ():
            patch.setattr(module, "BLOCK_BYTES", 30)
        patch.setattr(window_states, "LARGE_BLOCK", 20)
        task = Task(kind, careful, memory_bytes)
        for what, *how in actions:
            match what:
                case "take":
                    task.take(how[0], fails=how[1], interrupted=how[2])
                case "close":
                    task.close(*how)
                case "commit":
                    task.commit()
                case _:
                    task.live()
            task.check()
        task.commit()
        task.live()
        task.check()


def test_golden_bytes_of_stored_windows() -> None:
    """Stored for ever: another form would lose every open window."""
    written: dict[str, Any] = {}
    for kind in WINDOWS.keys() - {"growing"}:
        task = Task(kind, careful=False)
        task.take([(b"a", 1), (b"a", 3)], fails=False, interrupted=False)
        task.commit()
        written |= {f"{kind} {key.hex()}": stored().loads((value or b"")[1:]) for key, value in task.log.items()}
    assert written == {
        "states 0000000000000000": [10, 0, [b"a"], [[2]]],
        "arrays 0000000000000000": [10, 0, [b"a"], [[2]]],
        "mixed 0000000000000000": [10, 0, [b"a"], [[2, 2 - 2**63]]],
        "rows 0000000000000000": [10, 0, [b"a", b"a"], [[1, b"v", None], [3, b"v", None]]],
        "sessions 0000000000000000": [b"a", 1, 3, [2]],
    }


@pytest.mark.parametrize("careful", [False, True])
def test_a_block_whose_states_grow_is_divided_before_it_is_written(careful: bool) -> None:
    """64 keys that collect 16 kB each between two commits: together more than the task log takes, though each alone is far from it. Whether
    they are new or were in one block before, also behind a restart."""
    task = Task("growing", careful)
    for turn, rows in enumerate((1, 16_000, 16_000)):
        task.take([(b"k%d" % n, 3) for n in range(64) for _ in range(rows)], fails=False, interrupted=False)
        task.commit()
        sizes = [len(value) for value in task.log.values() if value is not None]
        assert max(sizes) <= blocks.BLOCK_BYTES
        assert sum(sizes) > turn * 64 * 16_000
        if turn == 1:
            task.live()
    task.check()


@pytest.mark.parametrize("kind", ["states", "arrays", "mixed", "growing"])
def test_no_block_is_large_because_its_keys_are(kind: str) -> None:
    """Kafka would refuse one of 64 keys of 20 kB. Short keys come before, and a block that was written gets long ones."""
    task = Task(kind, careful=False)
    for keys in ([b"short", b"x" * 20_000], [b"%d" % n * 10_000 for n in range(10, 80)], [b"y" * 500_000, b"z"]):
        task.take([(key, 1) for key in keys], fails=False, interrupted=False)
        task.commit()
        assert max(len(one) for one in task.log.values() if one is not None) < 2 * blocks.BLOCK_BYTES or b"z" in keys
        task.live()
        task.check()
    task.take([(b"short", 2)], fails=False, interrupted=False)
    task.commit()
    task.check()
    task.close(None, 100, ["commit"])
    task.check()


@pytest.mark.parametrize("kind", ["states", "arrays", "mixed", "growing", "rows"])
def test_blocks_of_a_window_may_stand_in_any_slots(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their numbers say where keys and rows belong, also if a later block stands in a lower slot."""
    monkeypatch.setattr(window_states, "BLOCK_KEYS", 2)
    monkeypatch.setattr(blocks, "BLOCK_ROWS", 2)
    task = Task(kind, careful=False)
    for rows in ([(b"x", 1)], [(b"a", 11), (b"b", 11)]):
        task.take(rows, fails=False, interrupted=False)
        task.commit()
    task.close(10, 10, [])
    for key in (b"c", b"a", b"d"):
        task.take([(key, 12)], fails=False, interrupted=False)
        task.commit()
        task.live()
        task.check()
    assert [(one[0], one[1]) for one in task.held()] == [(1, 0)]
