"""The open sessions of one step and task whose states are in arrays: numbers of 64 bits, and objects beside them. Their times are in lists.

Rows come in *runs* (`records.columns.session_runs`): all rows of a run join the same session, so they are found once for the run, and are
added together. The running letter works on copies: of the times and the states of the sessions of the keys that it touches. What it has
taken is kept too, because a commit in its middle forgets the copies (`suspend`): sessions may change meanwhile.

What it decides: when rows must be taken one by one. They are where that could give another result: where one may be late, and where rows
that are out of reach of each other come before those that connect them. So the result does not depend on how rows are divided into chunks.

Promises: sessions are stored as `open_sessions` stores them. A number of more than 64 bits, or a sum that would become one, is not taken,
and changes nothing; then `in_lists` gives the same sessions in lists, with what the letter has taken before.
"""

from __future__ import annotations

import heapq
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ....core.windows.sessions import JoinedSessions, end_of, join
from ...job.types.aggregates import AggregatePlan
from ...records.columns.session_runs import SessionRuns, session_runs
from ...records.layout import Buffer, longs
from ...records.memory.longs import extremes
from ...records.memory.record_spans import pieces
from ..base.addends import Addend, Addends
from ..base.block_store import BlockStore
from ..base.key_arrays import Addition, KeyArrays
from ..base.letter import LetterPart
from ..base.state_cells import ObjectColumn
from .closed_windows import CellStates, ClosedWindows
from .open_sessions import KeySessions, OpenSessions, StoredSession, stored_sessions
from .open_windows import OpenCounts

SESSION_BYTES = 500
"""What the objects of a session take in memory, beside its state."""
UNUSED_KEYS = 1_024
"""So many keys may have a number and no session before numbers are given anew."""
NEW = -1
"""In the place of a cell: the session is new."""

SessionCell = tuple[int, bytes, int]
"""A session by its end, its key and the number of its state."""


class NotInArrays(Exception):
    """Something is no number of 64 bits, or a sum would become none."""


class TakenRows(NamedTuple):
    """What the letter has taken: these rows (None: all) of a chunk."""

    of: Addend
    times: Buffer
    rows: Buffer | None


@dataclass(slots=True)
class KeySpans:
    """The sessions of one key, in order. `cells`: the numbers of their states."""

    starts: list[int] = field(default_factory=list[int])
    lasts: list[int] = field(default_factory=list[int])
    cells: list[int] = field(default_factory=list[int])
    own: list[int] = field(default_factory=list[int])
    """In a copy: the cell of the session that each has grown out of, or `NEW`."""


class SessionArrays(LetterPart):
    """The open sessions."""

    of_letter = ("taken", "given")
    careful = False
    early = None
    """Sessions emit final results only."""

    def __init__(self, gap: int, plan: AggregatePlan, table: Any) -> None:
        self.gap = gap
        self.plan = plan
        self.table = table
        self.arrays = KeyArrays(plan)
        """The numbers of keys; and the states, by cell."""
        self.open: dict[int, KeySpans] = {}
        """By the number of the key."""
        self.names: list[bytes | None] = []
        """By cell, the key of its session; None: it is free."""
        self.numbers: list[int] = []
        """By cell, the number of the key."""
        self.free: list[int] = []
        self.released: list[int] = []
        """The cells that have become free with the running letter."""
        self.endings: list[SessionCell] = []
        """A heap with an entry for each session, whose end may have grown since: `_next` says which is the first."""
        self.sessions = 0
        self.changed: dict[int, None] = {}
        """The numbers of the keys that the next commit writes."""
        self.taken: list[TakenRows] = []
        self.given: dict[int, SessionCell] = {}
        """By cell, the sessions that the running letter has emitted."""
        self.letter = _Copies(self)
        self.blocks: BlockStore[bytes] = BlockStore(table, None)

    def load(self, stored: Sequence[StoredSession]) -> SessionArrays:
        """Take over what the table holds, before anything else. Raises `NotInArrays` if a state is no number of 64 bits."""
        vectors = self.arrays.vectors([states for *_, states in stored]) if stored else []
        if vectors is None:
            raise NotInArrays
        keys: dict[bytes, KeySpans] = {}
        for cell, (key, start, last, _) in enumerate(stored):
            one = keys.setdefault(key, KeySpans())
            one.starts.append(start)
            one.lasts.append(last)
            one.cells.append(cell)
            self.names.append(key)
            self.endings.append((end_of(last, self.gap), key, cell))
        numbers = longs(self.arrays.keys.numbers_listed(list(keys))).tolist()
        self.open = dict(zip(numbers, keys.values(), strict=True))
        self._number_cells()
        self.sessions = len(stored)
        if stored:
            self.arrays.cells.put(len(self.names), array("q", range(len(stored))), vectors)
        heapq.heapify(self.endings)
        self._weigh()
        return self

    def _number_cells(self) -> None:
        self.numbers = [NEW] * len(self.names)
        for number, one in self.open.items():
            for cell in one.cells:
                self.numbers[cell] = number

    def _weigh(self) -> None:
        self.blocks.hold(self.sessions * SESSION_BYTES + self.arrays.memory())

    def counts(self) -> OpenCounts:
        """Count what is open now."""
        return OpenCounts(self.sessions, self.sessions, self.first_end())

    def in_lists(self) -> OpenSessions:
        """The same sessions with their states in lists."""
        made = OpenSessions(self.gap, self.plan, self.table, blocks=self.blocks)
        for number, key in self._keys(list(self.open)).items():
            one = self.open[number]
            made.open[key] = KeySessions(one.starts, one.lasts, self.arrays.states(array("q", one.cells)))
        made.changed = dict.fromkeys(self._keys(list(self.changed)).values())
        made.took_over()
        for one in self.taken:
            times = one.times if one.rows is None else array("q", map(longs(one.times).__getitem__, longs(one.rows)))
            made.take(one.of.listed(), longs(times).tolist(), one.of.values(), None)
        made.given = [(end, key, self._start(cell)) for end, key, cell in self.given.values()]
        return made

    def _keys(self, numbers: list[int]) -> dict[int, bytes]:
        found: Any = pieces(self.arrays.keys.keys(array("q", numbers))[0])
        return dict(zip(numbers, found, strict=True))

    # ------------------------------------------------------------------------------------------------------------ rows come in

    def take(self, of: Addend, times: Buffer, rows: Buffer | None, closed: int) -> Buffer | None:
        """Add these rows (None: all) to sessions. Returns those that are late; None if the rows do not fit."""
        if not self.caught_up():
            return None
        late = self.letter.late(of, times, rows, closed)
        if late:
            gone = set(late)
            every = range(len(longs(times))) if rows is None else longs(rows)
            rows = array("q", [row for row in every if row not in gone])
            of = of.picked(rows)
            if isinstance(of, Addends):  # their lists have these rows alone
                times, rows = array("q", map(longs(times).__getitem__, rows)), None
        try:
            self.letter.add(of, times, rows)
        except NotInArrays:
            return None
        self.taken.append(TakenRows(of, times, rows))
        self.letter.copied = len(self.taken)
        return array("q", late)

    def caught_up(self) -> bool:
        """Add to the copies what the letter took before a commit in its middle. False if it does not fit any more."""
        try:
            for one in self.taken[self.letter.copied :]:
                self.letter.add(one.of, one.times, one.rows)
        except NotInArrays:
            return False
        self.letter.copied = len(self.taken)
        return True

    # ------------------------------------------------------------------------------------------------------- with the letter

    def prepare(self) -> None:
        """Get ready to complete; it is `caught_up`."""
        for _, key, cell in self.given.values():
            self.blocks.remove(key, (self._start(cell),))

    def complete(self) -> None:
        """The letter is complete."""
        letter, given, self.given = self.letter, self.given, {}
        if letter.spans:
            self._apply(letter)
        for cell in given:
            number = self.numbers[cell]
            one = self.open[number]
            at = one.cells.index(cell)
            del one.starts[at], one.lasts[at], one.cells[at]
            self._release(cell)
            self.sessions -= 1
            if not one.starts:
                del self.open[number]  # the next commit still deletes what the table has of sessions that were merged
        self.arrays.cells.release(array("q", [cell for cell in self.released if self.names[cell] is None]))
        self.released = []
        changes = bool(letter.spans or given)
        self.blocks.complete()
        self.drop()
        if changes:
            self._weigh()

    def _apply(self, letter: _Copies) -> None:
        """The copies are the sessions from now on."""
        copies, cells, fresh = array("q"), array("q"), list[int]()
        for number, spans in letter.spans.items():
            if not spans.starts:
                continue
            before = self.open.get(number)
            if before is not None:
                kept = set(spans.own)
                for cell in before.cells:
                    if cell not in kept:
                        self._release(cell)
                self.sessions -= len(before.cells)
            copies.extend(spans.cells)
            for at, cell in enumerate(spans.own):
                if cell == NEW:
                    spans.own[at] = cell = self._cell(number)
                    fresh.append(cell)
            cells.extend(spans.own)
            self.sessions += len(spans.own)
            self.open[number] = KeySpans(spans.starts, spans.lasts, spans.own)
            self.changed[number] = None
        if not copies:
            return
        self.arrays.cells.put(len(self.names), cells, letter.cells.take(copies)[0])
        keys = self._keys(list({self.numbers[cell] for cell in fresh}))
        for cell in fresh:
            key = self.names[cell] = keys[self.numbers[cell]]
            heapq.heappush(self.endings, (self._end(cell), key, cell))

    def _cell(self, number: int) -> int:
        """A cell for a new session."""
        if self.free:
            cell = self.free.pop()
            self.numbers[cell] = number
            return cell
        self.names.append(None)
        self.numbers.append(number)
        return len(self.names) - 1

    def _release(self, cell: int) -> None:
        self.names[cell] = None
        self.free.append(cell)
        self.released.append(cell)

    def drop(self) -> None:
        """The letter failed."""
        self.taken, self.letter = [], _Copies(self)
        self.blocks.drop()
        for ending in self.given.values():
            heapq.heappush(self.endings, ending)
        self.given = {}

    def seal(self) -> None:
        """Write the changed sessions to the table. A session with a new start takes over the slot of one that it merged."""
        if not self.changed:
            return
        keys = self._keys(list(self.changed))
        found = [(key, self.open.get(number, KeySpans())) for number, key in keys.items()]
        states = iter(self.arrays.states(array("q", [cell for _, one in found for cell in one.cells])))
        rows = [
            [key, start, last, next(states)]
            for key, one in found
            for start, last in zip(one.starts, one.lasts, strict=True)
        ]
        data = iter(self.blocks.encoded(rows))
        self.blocks.write_all({key: dict(zip(one.starts, data, strict=False)) for key, one in found}, whole=True)
        self.blocks.complete()
        self.changed = {}
        self._forget_keys()
        self._weigh()

    def _forget_keys(self) -> None:
        """Give the keys that have sessions their numbers anew, if many others have one, too."""
        if len(self.arrays.keys) > UNUSED_KEYS + 2 * len(self.open) and not self.letter.spans:
            self.arrays.keys.retain(array("q", self.open))
            self.open = dict(enumerate(self.open.values()))
            self._number_cells()

    # ------------------------------------------------------------------------------------------------------------ closing

    def _at(self, cell: int) -> tuple[KeySpans, int]:
        one = self.open[self.numbers[cell]]
        return one, one.cells.index(cell)

    def _start(self, cell: int) -> int:
        one, at = self._at(cell)
        return one.starts[at]

    def _end(self, cell: int) -> int:
        one, at = self._at(cell)
        return end_of(one.lasts[at], self.gap)

    def _next(self) -> SessionCell | None:
        """The session that ends first, and is not given."""
        while self.endings:
            end, key, cell = self.endings[0]
            if self.names[cell] != key or cell in self.given:
                heapq.heappop(self.endings)
            elif (now := self._end(cell)) != end:
                heapq.heapreplace(self.endings, (now, key, cell))
            else:
                return self.endings[0]
        return None

    def first_end(self) -> int | None:
        """When the first open session ends."""
        first = self._next()
        return None if first is None else first[0]

    def awaits(self, closed: int | None) -> bool:
        """Whether rows of this letter, which is `caught_up`, belong to a session that is due. They count once the letter is complete: the
        next step closes it."""
        copies = self.letter.spans
        touched = [one for key in copies for one in (copies[key], self.open.get(key)) if one is not None]
        return any(closed is None or end_of(last, self.gap) <= closed for one in touched for last in one.lasts)

    def close(self, closed: int | None, room: int) -> ClosedWindows:
        """Take out at most `room` sessions that end no later than `closed` (None: any), ordered by end, then by key."""
        found = ClosedWindows([], [], [], [])
        cells = array("q")
        while (first := self._next()) is not None and (closed is None or first[0] <= closed):
            if len(cells) == room:
                found = found._replace(more=True)
                break
            heapq.heappop(self.endings)
            end, key, cell = first
            self.given[cell] = first
            found.starts.append(self._start(cell))
            found.ends.append(end)
            found.keys.append(key)
            cells.append(cell)
        found.parts.append(CellStates(self.arrays, self.arrays.cells.take(cells)[0]))
        return found


def open_sessions(gap: int, plan: AggregatePlan, table: Any, *, arrays: bool) -> SessionArrays | OpenSessions:
    """The open sessions of a table, with their states in arrays or in lists."""
    if not arrays:
        return OpenSessions(gap, plan, table)
    made = SessionArrays(gap, plan, table)
    stored = stored_sessions(made.blocks)
    try:
        return made.load(stored)
    except NotInArrays:
        return OpenSessions(gap, plan, table, blocks=made.blocks).load(stored)


class _Copies:
    """Copies of the sessions of the keys that the letter touches, with the rows that it has taken."""

    def __init__(self, of: SessionArrays) -> None:
        self.of = of
        self.gap = of.gap
        self.spans: dict[int, KeySpans] = {}
        self.cells = of.arrays.cells_alike()
        self.count = 0
        """How many cells there are."""
        self.copied = 0
        """How many entries of `taken` are in the copies."""
        self._wanted: tuple[array[int], array[int]] = array("q"), array("q")
        """Cells of these copies whose states must be copied from those of the sessions."""

    def late(self, of: Addend, times: Buffer, rows: Buffer | None, closed: int) -> list[int]:
        """Which of these rows (None: all) join a session that is closed by then."""
        every = longs(times)
        if not len(every) or end_of(extremes(times)[0], self.gap) > closed:
            return []
        numbers = longs(of.numbers(self.of.arrays.keys))
        chosen = range(len(every)) if rows is None else longs(rows)
        may_be = {number for row, number in zip(chosen, numbers, strict=True) if end_of(every[row], self.gap) <= closed}
        spans: dict[int, tuple[list[int], list[int]]] = {}
        for number in may_be:
            one = self.spans.get(number) or self.of.open.get(number) or KeySpans()
            spans[number] = list(one.starts), list(one.lasts)
        found: list[int] = []
        for row, number in zip(chosen, numbers, strict=True):
            if number not in may_be:
                continue
            starts, lasts = spans[number]
            first, upto, start, last = join(starts, lasts, every[row], self.gap)
            if end_of(last, self.gap) <= closed:
                found.append(row)
            else:
                starts[first:upto], lasts[first:upto] = [start], [last]
        return found

    def add(self, of: Addend, times: Buffer, rows: Buffer | None) -> None:
        """Add these rows (None: all), of which none is late."""
        addition = of.addition(self.of.arrays)
        if addition is None:
            plan = self.of.plan
            keys = of.listed()
            plan.add(keys, of.values(), {key: plan.start() for key in keys})  # raises if they are bad
            raise NotInArrays
        runs = session_runs(addition.numbers, times, rows, self.gap)
        cells, one_by_one = self._joined(runs)
        self._copy_states()
        if one_by_one:
            self._add_in_turn(addition, longs(times), runs, cells, one_by_one)
        else:
            self._add(addition, array("q", map(cells.__getitem__, longs(runs.of))), rows)

    def _joined(self, runs: SessionRuns) -> tuple[list[int], set[int]]:
        """The cell of each run, which has joined its session; and the numbers of the keys whose rows must be taken one by one."""
        keys, one_by_one = runs.keys, set[int]()
        cells = [0] * len(keys)
        behind = 0
        while behind < len(keys):
            first, key = behind, keys[behind]
            behind += 1
            while behind < len(keys) and keys[behind] == key:
                behind += 1
            spans = self.spans.get(key)
            if spans is None:
                spans = self.spans[key] = self._copy(key)
            joins = [self._join(spans, runs, run) for run in range(first, behind)]
            if None in joins:
                one_by_one.add(key)
                continue
            for run in range(first, behind):
                now = joins[0] if behind - first == 1 else self._join(spans, runs, run)
                assert now is not None, "runs do not reach each other"
                cells[run] = self._grow(spans, now)
        return cells, one_by_one

    def _join(self, spans: KeySpans, runs: SessionRuns, run: int) -> JoinedSessions | None:
        """The session that a run joins; None if its rows, one by one, would have begun or connected others."""
        if runs.broken[run]:
            return None
        found = join(spans.starts, spans.lasts, runs.firsts[run], self.gap, runs.lasts[run])
        if found.upto == found.first:
            return found
        begin, at = runs.begins[run], found.first
        near = spans.starts[at] - self.gap <= begin <= spans.lasts[at] + self.gap
        return found if near and found.upto - at == 1 else None

    def _grow(self, spans: KeySpans, now: JoinedSessions) -> int:
        """Rows join this session, which may be new. Returns its cell."""
        first, upto, start, last = now
        if upto == first:
            spans.cells.insert(first, self.count)
            spans.own.insert(first, NEW)
            spans.starts.insert(first, start)
            spans.lasts.insert(first, last)
            self.count += 1
            return self.count - 1
        for other in spans.cells[first + 1 : upto]:
            self._merge(spans.cells[first], other)
        own = max(spans.own[first:upto])
        spans.starts[first:upto], spans.lasts[first:upto] = [start], [last]
        spans.cells[first:upto], spans.own[first:upto] = [spans.cells[first]], [own]
        return spans.cells[first]

    def _copy(self, key: int) -> KeySpans:
        one = self.of.open.get(key)
        if one is None:
            return KeySpans()
        cells = list(range(self.count, self.count + len(one.cells)))
        self.count += len(cells)
        self._wanted[0].extend(cells)
        self._wanted[1].extend(one.cells)
        return KeySpans(list(one.starts), list(one.lasts), cells, list(one.cells))

    def _copy_states(self) -> None:
        here, there = self._wanted
        self._wanted = array("q"), array("q")
        if here:
            self.cells.put(self.count, here, self.of.arrays.cells.take(there)[0])

    # ------------------------------------------------------------------------------------------------------------- one by one

    def _add_in_turn(
        self, addition: Addition, times: Sequence[int], runs: SessionRuns, cells: list[int], keys: set[int]
    ) -> None:
        """Add the rows of these keys one by one, all others together."""
        every = range(len(times)) if addition.rows is None else longs(addition.rows)
        others, of_others, places = array("q"), array("q"), list[int]()
        rows = zip(every, longs(addition.numbers), longs(runs.of), strict=True)
        for place, (row, number, run) in enumerate(rows):
            if number in keys:
                spans = self.spans[number]
                cell = self._grow(spans, join(spans.starts, spans.lasts, times[row], self.gap))
                self._add(addition, array("q", [cell]), array("q", [row]), [place])
            else:
                others.append(row)
                of_others.append(cells[run])
                places.append(place)
        if others:
            self._add(addition, of_others, others, places)

    def _add(self, addition: Addition, cells: Buffer, rows: Buffer | None, places: list[int] | None = None) -> None:
        """Add these rows (None: all) to these cells. `places`: where they stand among the rows of the addition; None: they are those."""
        columns = addition.columns
        if places is not None:
            columns = [one.at(places) if isinstance(one, ObjectColumn) else one for one in columns]
        if self.cells.overflows(self.count, cells, columns, rows=rows, merging=False):
            raise NotInArrays
        self.cells.add(self.count, cells, columns, rows=rows, times=addition.times)

    def _merge(self, cell: int, other: int) -> None:
        """Add the state of one session to that of another."""
        states, _ = self.cells.take(array("q", [other]))
        into = array("q", [cell])
        if self.cells.overflows(self.count, into, states, rows=None, merging=True):
            raise NotInArrays
        self.cells.merge(self.count, into, states, rows=None, times=array("q", [0]))
