"""The open sessions of one step and task: the sessions of each key in order, each with its first and last time and its states, in lists.

All of them are kept here, decoded, and a heap finds them by time. They count against `state.memory`, but cannot be given up: what bounds
them is how many sessions are open. In the table, the sessions of a key are a group of blocks (`block_store`), numbered by their starts;
each commit writes the sessions that have changed. The running letter works on copies of the sessions of the keys that it touches.

Sessions of columns are in `session_arrays`, unless an aggregate is of rows, or a number has more than 64 bits; they are stored alike.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

from ....core.windows.sessions import end_of, join
from ...job.types.aggregates import AggregatePlan
from ...records.columns.selecting import all_mappings
from ...records.kafka.columns import pick
from ..base.block_store import BlockStore
from ..base.letter import LetterPart
from .closed_windows import ClosedWindows
from .open_windows import OpenCounts, TooLate
from .window_states import DECODED

SESSION_BYTES = 1_000
"""What the objects of a session with a small state take in memory."""

StoredSession = tuple[bytes, int, int, list[Any]]
"""Key, start, last time and states, as a block has them."""
SessionEnd = tuple[int, bytes, int]
"""A session by its end, its key and its start: this is the order of results."""


@dataclass(slots=True)
class KeySessions:
    """The sessions of one key, in order."""

    starts: list[int] = field(default_factory=list[int])
    lasts: list[int] = field(default_factory=list[int])
    states: list[list[Any]] = field(default_factory=list[list[Any]])


class OpenSessions(LetterPart):
    """The open sessions. `careful`: each letter writes its changes to the table."""

    of_letter = ("taken", "given")

    def __init__(self, gap: int, plan: AggregatePlan, table: Any, *, blocks: BlockStore[bytes] | None = None) -> None:
        """`blocks`: what was loaded before; then `load`, or `took_over`, says which sessions there are."""
        self.gap = gap
        self.plan = plan
        self.table = table
        self.careful = False
        self.open: dict[bytes, KeySessions] = {}
        self.sizes: dict[bytes, int] = {}
        """By key, the bytes of its sessions as they were written last, if their states may be large."""
        self.endings: list[SessionEnd] = []
        """A heap. Outdated entries, of sessions that have grown or closed, stay until they reach its top or it is cleaned up."""
        self.early = None
        """Sessions emit final results only."""
        self._most = 64
        """With more entries than this, the heap is cleaned up."""
        self.sessions = 0
        self.changed: dict[bytes, None] = {}
        """Keys that the next commit writes."""
        self.taken: list[tuple[list[bytes], list[int], list[Any]]] = []
        self.fresh: dict[bytes, KeySessions] = {}
        """Copies of sessions, with the rows that the letter has taken."""
        self.copied = 0
        """How many entries of `taken` are in the copies."""
        self.given: list[SessionEnd] = []
        self.blocks: BlockStore[bytes] = BlockStore(table, self) if blocks is None else blocks
        if blocks is None:
            self.load(stored_sessions(self.blocks))
        else:
            blocks.serve(self)

    def load(self, stored: Sequence[StoredSession]) -> OpenSessions:
        """Take over what the table holds, before anything else."""
        for key, start, last, states in stored:
            one = self.open.setdefault(key, KeySessions())
            one.starts.append(start)
            one.lasts.append(last)
            one.states.append(states)
        self.took_over()
        return self

    def took_over(self) -> None:
        """`open` has all sessions."""
        rows = self._rows(self.open.items()) if not self.plan.numeric else []
        for (key, *_), data in zip(rows, self.blocks.encoded(rows), strict=True):
            self.sizes[key] = self.sizes.get(key, 0) + len(data)
        self.sessions = sum(len(one.starts) for one in self.open.values())
        self._index(self.open)
        self.blocks.weigh(self.open)

    def weight_of(self, key: bytes) -> int:
        """The bytes that the sessions of a key take in memory."""
        one = self.open.get(key)
        return 0 if one is None else len(one.starts) * SESSION_BYTES + self.sizes.get(key, 0) * DECODED

    def spare(self) -> list[bytes]:
        """Sessions stay in memory."""
        return []

    def pack(self, key: bytes) -> None:
        """There is none to be packed."""

    def counts(self) -> OpenCounts:
        """Count what is open now."""
        return OpenCounts(self.sessions, self.sessions, self.first_end())

    def _index(self, keys: Iterable[bytes]) -> None:
        """Add the ends of these keys' sessions to the heap; they may have changed."""
        for key in keys:
            one = self.open[key]
            for start, last in zip(one.starts, one.lasts, strict=True):
                heapq.heappush(self.endings, (end_of(last, self.gap), key, start))
        if len(self.endings) > self._most:
            self.endings = sorted({ending for ending in self.endings if self._is_open(ending)})
            self._most = 64 + 2 * len(self.endings)

    def _is_open(self, ending: SessionEnd) -> bool:
        end, key, start = ending
        one = self.open.get(key)
        return one is not None and any(
            start == first and end == end_of(last, self.gap) for first, last in zip(one.starts, one.lasts, strict=True)
        )

    # ------------------------------------------------------------------------------------------------------------ rows come in

    def take(self, keys: list[bytes], times: list[int], values: list[Any], closed: int | None) -> TooLate:
        """Add rows to sessions one at a time, so that the result does not depend on how they are divided into chunks. None is late if
        `closed` is None."""
        self._copy_taken()
        late = self._add(keys, times, values, closed)
        if late:
            kept = sorted(set(range(len(keys))).difference(late))
            keys, times, values = pick(keys, kept), pick(times, kept), pick(values, kept)
        self.taken.append((keys, times, values))
        self.copied = len(self.taken)
        return TooLate(late)

    def _copy_taken(self) -> None:
        """Add to the copies what the letter took before a commit in its middle: `suspend` forgot them, because sessions may change."""
        for keys, times, values in self.taken[self.copied :]:
            self._add(keys, times, values, None)
        self.copied = len(self.taken)

    def _add(self, keys: list[bytes], times: list[int], values: list[Any], closed: int | None) -> list[int]:
        """Add rows to the copies. Returns the positions of late rows."""
        fresh, gap = self.fresh, self.gap
        late: list[int] = []
        rows = _Additions(self.plan, all_mappings(values))
        for place, (key, time, value) in enumerate(zip(keys, times, values, strict=True)):
            one = fresh.get(key)
            if one is None:
                one = fresh[key] = self._copy(key)
            first, upto, start, last = join(one.starts, one.lasts, time, gap)
            if closed is not None and end_of(last, gap) <= closed:
                late.append(place)
                continue
            if upto == first:
                state = self.plan.start()
            else:
                state = one.states[first]
                if upto - first > 1:
                    rows.flush()
                    for other in one.states[first + 1 : upto]:
                        state = self.plan.joined(state, other)
            one.starts[first:upto], one.lasts[first:upto], one.states[first:upto] = [start], [last], [state]
            rows.add(state, value)
        rows.flush()
        return late

    def _copy(self, key: bytes) -> KeySessions:
        one = self.open.get(key)
        if one is None:
            return KeySessions()
        return KeySessions(list(one.starts), list(one.lasts), [self.plan.copy(state) for state in one.states])

    # ------------------------------------------------------------------------------------------------------- with the letter

    def prepare(self) -> None:
        """Get ready to complete. Raises as `take` does."""
        self._copy_taken()
        if self.careful:
            self._write(self.fresh, self.fresh)
        for _, key, start in self.given:
            self.blocks.remove(key, (start,))

    def _write(self, keys: Iterable[bytes], sessions: Mapping[bytes, KeySessions]) -> None:
        """Write the sessions of these keys. A session with a new start takes over the slot of one that it merged."""
        found = [(key, sessions.get(key, KeySessions())) for key in keys]
        data = iter(self.blocks.encoded(self._rows(found)))
        for key, one in found:
            blocks = dict(zip(one.starts, data, strict=False))
            self.blocks.write(key, blocks, whole=True)
            if blocks and not self.plan.numeric:
                self.sizes[key] = sum(map(len, blocks.values()))

    @staticmethod
    def _rows(sessions: Iterable[tuple[bytes, KeySessions]]) -> list[list[Any]]:
        """Sessions as they are stored."""
        return [[key, *row] for key, one in sessions for row in zip(one.starts, one.lasts, one.states, strict=True)]

    def complete(self) -> None:
        """The letter is complete."""
        if self.fresh:
            fresh = {key: one for key, one in self.fresh.items() if one.starts}
            known = (len(self.open[key].starts) for key in fresh if key in self.open)
            self.sessions += sum(len(one.starts) for one in fresh.values()) - sum(known)
            self.open.update(fresh)
            self._index(fresh)
            if not self.careful:  # otherwise the letter has written them
                self.changed.update(dict.fromkeys(fresh))
        given, self.given = self.given, []
        for _, key, start in given:
            one = self.open[key]
            at = one.starts.index(start)
            del one.starts[at], one.lasts[at], one.states[at]
            self.sessions -= 1
            if not one.starts:
                del self.open[key]  # the next commit still deletes what the table has of sessions that were merged
                self.sizes.pop(key, None)
        touched = {*self.fresh, *(key for _, key, _ in given)}
        self.blocks.complete()
        self.drop()
        self.blocks.weigh(touched)

    def drop(self) -> None:
        """The letter failed."""
        self.taken, self.fresh, self.copied = [], {}, 0
        self.blocks.drop()
        for ending in self.given:
            heapq.heappush(self.endings, ending)
        self.given = []

    def seal(self) -> None:
        """Write the changed sessions to the table."""
        self._write(self.changed, self.open)
        self.blocks.complete()
        written, self.changed = self.changed, dict[bytes, None]()
        self.blocks.weigh(written)

    # ------------------------------------------------------------------------------------------------------------ closing

    def first_end(self) -> int | None:
        """When the first open session ends."""
        while self.endings and not self._is_open(self.endings[0]):
            heapq.heappop(self.endings)
        return self.endings[0][0] if self.endings else None

    def awaits(self, closed: int | None) -> bool:
        """Whether rows of this letter belong to a session that is due. They count once the letter is complete: the next step closes it."""
        self._copy_taken()
        touched = [one for key in self.fresh for one in (self.fresh[key], self.open.get(key)) if one is not None]
        return any(closed is None or end_of(last, self.gap) <= closed for one in touched for last in one.lasts)

    def close(self, closed: int | None, room: int) -> ClosedWindows:
        """Take out at most `room` sessions that end no later than `closed` (None: any), ordered by end, then by key."""
        states: list[list[Any]] = []
        found = ClosedWindows([], [], [], [states])
        while self.endings and (closed is None or self.endings[0][0] <= closed):
            ending = self.endings[0]
            if self.given[-1:] == [ending] or not self._is_open(ending):
                heapq.heappop(self.endings)
                continue
            if len(found.keys) == room:
                return found._replace(more=True)
            end, key, start = heapq.heappop(self.endings)
            one = self.open[key]
            self.given.append(ending)
            found.starts.append(start)
            found.ends.append(end)
            found.keys.append(key)
            states.append(one.states[one.starts.index(start)])
        return found


def stored_sessions(blocks: BlockStore[bytes]) -> list[StoredSession]:
    """Find out what the table holds: all sessions, by key and start."""
    rows: list[StoredSession] = []
    blocks.load(lambda _key, _start, row: rows.append((row[0], row[1], row[2], row[3])))
    return sorted(rows, key=itemgetter(0, 1))


class _Additions:
    """Collects rows and the states that they are added to, for a single call of the plan."""

    def __init__(self, plan: AggregatePlan, items: bool) -> None:
        self.plan = plan
        self.items = items
        self.keys: list[int] = []
        self.values: list[Any] = []
        self.states: dict[int, list[Any]] = {}

    def add(self, state: list[Any], value: Any) -> None:
        self.states[id(state)] = state
        self.keys.append(id(state))
        self.values.append(value)

    def flush(self) -> None:
        if self.keys:
            self.plan.add(self.keys, self.values, self.states, items=self.items)
            self.keys, self.values, self.states = [], [], {}
