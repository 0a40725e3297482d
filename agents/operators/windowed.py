"""`.window(…).agg(…)` as an operator of a task: rows by key and window, a result for each when its window closes.

All open windows are kept here, decoded, by their end. The table holds them in blocks of 64 keys (`core.windows.blocks`) that are written
at each commit, those that have changed; and the *floor*, the greatest watermark that was heard, in the transaction of its letter.
What the running letter has taken waits in `taken`, and joins the windows when the letter is complete.

Promises:

- A chunk that fails leaves no trace: numbers are added when it is complete, everything else is added to copies of the states.
- A window that a watermark has closed stays closed, also over restarts and runs: its rows are late then, and are counted.
- Closing goes in steps of bounded size, in the order of ends and then of the keys' bytes. A step is remembered in its own transaction.
- Results that stand behind one another in one task lose nothing: rows that came with a letter are in their windows before that letter
  closes them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

from ...core.progress.frames import MAX_TIME, NO_TIME
from ...core.windows.blocks import BLOCK_KEYS
from ...core.windows.results import CLOSED_FIELD, DRAIN, END_FIELD, START_FIELD, WATERMARK, result_time
from ...core.windows.spans import closed_up_to, due
from ..job import steps as s
from ..records.columns import pick
from ..records.record import Rows
from ..records.selecting import all_mappings
from .keyed import keyed
from .stateless import BYTES, Env, Operator, blaming, encode, encode_keys

STEP_RESULTS = 10_000
"""Results that one step of a letter gives: its outputs must stay within what one transaction should hold."""
FLOOR, CLOSING = "floor", "closing"
"""Rows of the table beside the blocks: the floor; and how far a closing has come that takes several steps, as end and last key."""

States = dict[bytes, list[Any]]


class WindowRows(NamedTuple):
    """Rows of the running letter for one window. `columns`: their numbers, where nothing in them can fail."""

    end: int
    keys: list[bytes]
    values: list[Any]
    columns: list[Any] | None


class GivenOut(NamedTuple):
    """What the running letter has given out of one window."""

    end: int
    out: int
    """Results given, of all of its keys in order."""
    last: bytes
    whole: bool


class OpenWindow:
    """One window: states by key, and the keys in the order in which they came, which says what stands in which block."""

    def __init__(self) -> None:
        self.states: States = {}
        self.keys: list[bytes] = []
        self.places: dict[bytes, int] = {}
        self.plain = True
        """Columns of numbers can be added to its states."""
        self.dirty: set[int] = set()
        """Blocks that have changed since they were written."""
        self.stored = 0
        """Blocks that the table has."""
        self.out = 0
        """Results that were given, where closing takes several steps."""
        self._queue: list[bytes] | None = None

    def touch(self, keys: Iterable[bytes]) -> None:
        """These keys have new states."""
        distinct = dict.fromkeys(keys)
        places = self.places
        new = [key for key in distinct if key not in places]
        if new:
            places.update(zip(new, range(len(self.keys), len(self.keys) + len(new)), strict=True))
            self.keys += new
            self._queue = None
        self.dirty.update({places[key] // BLOCK_KEYS for key in distinct})

    def queue(self) -> list[bytes]:
        """Its keys in the order of their results."""
        if self._queue is None:
            self._queue = sorted(self.keys)
        return self._queue

    def block(self, number: int) -> list[Any]:
        """A block as it is stored."""
        keys = self.keys[number * BLOCK_KEYS : (number + 1) * BLOCK_KEYS]
        return [keys, [self.states[key] for key in keys]]

    def blocks_with(self, fresh: States) -> dict[int, list[Any]]:
        """The blocks that change with these states, as they will be stored."""
        keys = self.keys + [key for key in fresh if key not in self.places]
        places = {**self.places, **{key: place for place, key in enumerate(keys) if key not in self.places}}
        states = {**self.states, **fresh}
        found: dict[int, list[Any]] = {}
        for number in sorted({places[key] // BLOCK_KEYS for key in fresh}):
            part = keys[number * BLOCK_KEYS : (number + 1) * BLOCK_KEYS]
            found[number] = [part, [states[key] for key in part]]
        return found


class WindowOp(Operator):
    """Aggregates for each key and window of event time."""

    letters = True
    wants_keys = BYTES
    gives_keys = True
    flags = ("watermark", "floor")

    def __init__(self, step: s.WindowStep, env: Env) -> None:
        super().__init__(step, env)
        self.window_step = step
        self.spans = step.window.spans
        self.grace = step.window.grace_ms
        self.plan = step.plan
        self.table = env.table(step.name)
        self.careful = False
        """A commit has failed on what was held back: the table is written with each chunk."""
        self.open: dict[int, OpenWindow] = {}
        self.floor = NO_TIME
        self.changed: set[int] = set()
        """Windows with blocks to write."""
        self.taken: list[WindowRows] = []
        self.fresh: dict[int, States] = {}
        """Copies of states, with what was taken."""
        self.copied = 0
        """How much of `taken` is in the copies."""
        self.copying = False
        """What was taken goes into copies: it may fail, or its states may be no numbers."""
        self.leaving: list[GivenOut] = []
        self._load()

    def _load(self) -> None:
        """What the table has: everything that is open."""
        closing: Any = None
        for key, value in self.table.range():
            if key == FLOOR:
                self.floor = value
            elif key == CLOSING:
                closing = value
            else:
                end, _ = key
                window = self.open.setdefault(end, OpenWindow())
                keys, states = value
                window.states.update(zip(keys, map(list, states), strict=True))
                window.touch(keys)
                window.stored += 1
        for window in self.open.values():
            window.dirty.clear()
            window.plain = self.plan.numeric and self.plan.all_plain(window.states.values())
        if closing is not None and closing["end"] in self.open:
            window = self.open[closing["end"]]
            window.out = bisect_right(window.queue(), closing["key"])

    # ------------------------------------------------------------------------------------------------------------ rows come in

    def push(self, rows: Rows) -> None:
        keys = keyed(self, rows, self.window_step.key_serde)
        found = self.spans.assign_open(rows.timestamps, closed_up_to(self.floor, self.grace))
        values = rows.values
        if found.late:
            self._late(rows, found.late)
        if found.partly:
            self.env.count("late_for_some_windows", found.partly)
        if not found.open:
            return
        with blaming(self.step, self.plan.lacking(values)):
            columns = None if found.late or self.copying else self.plan.columns(values)
            for end, places in found.open.items():
                if places is None:
                    part = WindowRows(end, keys, values, columns)
                else:
                    picked = None if columns is None else [c if c is None else pick(c, places) for c in columns]
                    part = WindowRows(end, pick(keys, places), pick(values, places), picked)
                self.taken.append(part)
            self.copying = self.copying or columns is None or self.careful or not self._all_plain(found.open)
            if self.copying:
                self._copy()

    def _late(self, rows: Rows, late: list[int]) -> None:
        """Rows whose windows are closed: counted, and written as they are to the topic that the user has named."""
        self.env.count("late_rows", len(late))
        topic = self.window_step.late
        if topic is None:
            return
        values = encode(self.step, self.window_step.late_serde, pick(rows.values, late))
        headers = None if rows.headers is None else pick(rows.headers, late)
        keys = encode_keys(self.step, self.env.app.output_key_serde, pick(rows.keys or [], late), rows.key_serde)
        with blaming(self.step):  # what the topic does not take
            self.env.emit(topic, None, keys, values, pick(rows.timestamps, late), headers)

    def _all_plain(self, ends: Collection[int]) -> bool:
        return all(end not in self.open or self.open[end].plain for end in ends)

    def _copy(self) -> None:
        """What was taken and is not in the copies yet goes there."""
        for part in self.taken[self.copied :]:
            states = self._copies(part.end, part.keys)
            if part.columns is not None:
                self.plan.add_columns(part.keys, part.columns, states, partial=False)
            else:
                self.plan.add(part.keys, part.values, states, items=all_mappings(part.values))
        self.copied = len(self.taken)

    def _copies(self, end: int, keys: list[bytes]) -> States:
        found = self.fresh.setdefault(end, {})
        window = self.open.get(end)
        states: Mapping[bytes, list[Any]] = {} if window is None else window.states
        start, copy = self.plan.start, self.plan.copy
        for key in dict.fromkeys(keys):
            if key not in found:
                known = states.get(key)
                found[key] = start() if known is None else copy(known)
        return found

    # ------------------------------------------------------------------------------------------------------------ with the letter

    def prepare(self) -> None:
        """A commit in the middle of the letter may have changed the windows since its rows were taken."""
        if not self.copying and self.taken:
            self.copying = not self._all_plain({part.end for part in self.taken})
        if self.copying:
            with blaming(self.step):
                self._copy()
        if self.careful:
            for end, fresh in self.fresh.items():
                blocks = self.open.get(end, OpenWindow()).blocks_with(fresh)
                self.table.update({(end, number): block for number, block in blocks.items()})
        for one in self.leaving:
            if not one.whole:
                self.table.update({CLOSING: {"end": one.end, "key": one.last}})
                continue
            window = self.open[one.end]
            self.table.delete_many((one.end, number) for number in range(window.stored))
            if window.out:
                self.table.delete_many([CLOSING])

    def complete(self) -> None:
        if self.copying:
            for end, fresh in self.fresh.items():
                window = self._opened(end)
                window.plain = window.plain and self.plan.numeric and self.plan.all_plain(fresh.values())
                window.states.update(fresh)
                self._touched(end, window, fresh)
        else:
            for part in self.taken:
                window = self._opened(part.end)
                self.plan.add_columns(part.keys, part.columns or [], window.states, partial=False)
                self._touched(part.end, window, part.keys)
        for one in self.leaving:
            if one.whole:
                del self.open[one.end]
                self.changed.discard(one.end)
            else:
                self.open[one.end].out = one.out
        self.drop()

    def _opened(self, end: int) -> OpenWindow:
        window = self.open.get(end)
        if window is None:
            window = self.open[end] = OpenWindow()
        return window

    def _touched(self, end: int, window: OpenWindow, keys: Iterable[bytes]) -> None:
        window.touch(keys)
        if self.careful:  # written with the letter
            window.dirty.clear()
            window.stored = -(-len(window.keys) // BLOCK_KEYS)
        else:
            self.changed.add(end)

    def drop(self) -> None:
        self.taken, self.fresh, self.copied, self.copying = [], {}, 0, False
        self.leaving = []

    def suspend(self) -> Any:
        aside = self.taken, self.copying, self.leaving
        self.drop()
        return aside

    def resume(self, aside: Any) -> None:
        """The copies are made again: the windows may have changed meanwhile."""
        self.taken, self.copying, self.leaving = aside

    def seal(self) -> None:
        for end in self.changed:
            window = self.open[end]
            self.table.update({(end, number): window.block(number) for number in window.dirty})
            window.dirty.clear()
            window.stored = -(-len(window.keys) // BLOCK_KEYS)
        self.changed.clear()

    # ------------------------------------------------------------------------------------------------------------ closing

    async def on_watermark(self, watermark: int) -> bool:
        """Close what time has passed. The maximal time stands before a drain, and is no time that has passed."""
        if watermark == MAX_TIME:
            more = self._close(None, DRAIN)
        else:
            if watermark > self.floor:
                self.floor = watermark
                self.table.update({FLOOR: watermark})
            more = self._close(closed_up_to(self.floor, self.grace), WATERMARK)
        if not more:
            self.watermark = watermark
        return more

    async def on_close(self, cause: str) -> bool:
        """Close all that is open. The floor stays: the next run may open these windows again."""
        return self._close(None, cause)

    def _close(self, closed: int | None, by: str) -> bool:
        """Give results of windows that end no later than `closed` (None: of all), so many as a step may; whether there are more."""
        if due({part.end for part in self.taken}, closed):
            return True  # rows came with this letter, and count when it is complete: the next step closes
        ends = due(self.open, closed)
        if not ends:
            return False
        room = STEP_RESULTS
        given: list[tuple[int, list[bytes]]] = []
        for end in ends:
            window = self.open[end]
            keys = window.queue()[window.out : window.out + room]
            out = window.out + len(keys)
            self.leaving.append(GivenOut(end, out, keys[-1] if keys else b"", out == len(window.keys)))
            given.append((end, keys))
            room -= len(keys)
            if room <= 0:
                break
        self._give(given, by)
        return len(given) < len(ends) or not self.leaving[-1].whole

    def _give(self, given: Sequence[tuple[int, list[bytes]]], by: str) -> None:
        with blaming(self.step):
            results = self.plan.results([self.open[end].states[key] for end, keys in given for key in keys])
        ends = list(chain.from_iterable([end] * len(keys) for end, keys in given))
        size = self.spans.size
        for result, end in zip(results, ends, strict=True):
            result[START_FIELD], result[END_FIELD], result[CLOSED_FIELD] = end - size, end, by
        raw: list[Any] = [key for _, keys in given for key in keys]
        self.forward(Rows(results, list(map(result_time, ends)), raw, key_serde=self.window_step.key_serde))
