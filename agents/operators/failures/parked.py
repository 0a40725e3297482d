"""Parked records: those on which a step failed and whose policy is to park, and the later ones of their keys.

What it decides: which records of a chunk wait (those of a key that waits already, and those behind a record that is parked now); when the
first record of a key is tried again; how many records follow it. The table `hg.parked` is the source of truth; the index over it is built
once for each life of a task.

Promises:

- The records of a key run in their order, each once. Those of other keys do not wait.
- What a letter parks, and what it takes away, counts when the letter is complete, in the same commit as its other effects.
- A key is tried again by its first record alone; once this has succeeded, the others follow, `ROOM` at a time.
- A record without a key has no other behind it.
- A stream that has ended or drained in this run is not tried again before the next run, after one last try.
- A key whose policy says so holds the time of its stream, at the least event time of its records, for so long after it began to wait.
- An operator may have keys tried now, or leave records out: those that he saw, by their numbers, and no others. No number is given twice:
  each grant begins with numbers of its own.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, NamedTuple, Protocol

from ....core.errors import LimitReached
from ....core.names import StreamPartition
from ....core.orders import RELEASE, Unpark
from ...cancellation import said
from ...job.types.parking import Park, ParkedRow
from ...records.frames.chunks import Chunk
from ...records.kafka.columns import Columns, Header
from ...records.limits import NO_TIMESTAMP
from ...records.memory.event_time import LAST_TIME
from ..base.letter import LetterPart
from .failures import row_in_frame

ROOM = 500
"""How many parked records run in one letter."""
GRANT_BITS = 32
"""A number is that of its grant, and so many bits for the records of one grant."""
_WHY = 500
"""How many characters of a reason are kept."""
NONE: frozenset[int] = frozenset()
_UNKNOWN = -1


class Source(Protocol):
    """Who reads a stream."""

    @property
    def framed(self) -> bool:
        """Whether its records come in frames."""
        ...

    def keys_to_park(self, chunk: Chunk) -> Sequence[bytes | None]:
        """By which keys the records of a chunk wait."""
        ...

    def times_to_park(self, chunk: Chunk) -> Sequence[int]:
        """The event times of the records of a chunk."""
        ...

    def rows_with_keys(self, chunk: Chunk, keys: AbstractSet[bytes]) -> Mapping[int, bytes]:
        """The records of a chunk with one of these keys, each with its key. Nearly all chunks have none while a key is sick."""
        ...


@dataclass(frozen=True, slots=True)
class Sick:
    """A record that is parked now, or stays parked: why, and by which policy."""

    cause: BaseException
    policy: Park


@dataclass(frozen=True, slots=True)
class GivenUp:
    """The answer for a parked record that has failed as often as its policy allows."""

    then: str


class ParkedChunk(Chunk):
    """Parked records of one partition, in a chunk that is tried again."""

    __slots__ = ("ids", "rows")

    def __init__(self, at: StreamPartition, ids: list[int], rows: list[ParkedRow]) -> None:
        headers: list[list[Header]] = [[(name, value) for name, value in one.headers] for one in rows]
        columns = Columns(
            [one.value for one in rows],
            [one.timestamp for one in rows],
            rows[0].offset if rows else 0,
            [one.key for one in rows] if any(one.key is not None for one in rows) else None,
            [one.offset for one in rows],
            headers if any(headers) else None,
        )
        super().__init__(at, rows[-1].offset + 1 if rows else 0, columns, plan=rows[0].plan if rows else None)
        self.ids = ids
        self.rows = rows

    def pick(self, first: int, behind: int) -> ParkedChunk:
        """See `Chunk`."""
        picked = ParkedChunk(self.at, self.ids[first:behind], self.rows[first:behind])
        picked.next_position, picked.now_ms = self.next_position, self.now_ms
        return picked

    def made_of(self, offset: int, row: int) -> str:
        """See `Chunk`: what was known when it was parked."""
        return next((one.made_of for one in self.rows if (one.offset, one.row) == (offset, row)), "")

    @property
    def origins(self) -> None:
        """See `Chunk`: no step asks for those of all rows."""
        return


QueueKey = tuple[str, int, bytes | int]
"""Stream, partition, and the key of the records; of one without a key, its number in the table."""


class _Queue:
    """The parked records of one key."""

    __slots__ = ("due_ms", "ids", "most", "times", "tries", "until_ms")

    def __init__(self, due_ms: int, most: int, tries: int, until_ms: int) -> None:
        self.ids: deque[int] = deque()
        self.due_ms, self.most, self.tries = due_ms, most, tries
        self.until_ms = until_ms
        self.times: dict[int, int] = {}
        """By number, the event times of the records, if the key holds time."""


class _Parking(NamedTuple):
    """A record that a letter parks."""

    of_key: QueueKey
    number: int
    due_ms: int
    most: int
    until_ms: int = 0
    time: int = 0


class Parked(LetterPart):
    """The parked records of one task."""

    of_letter = ("_added", "_gone", "_changed", "kept", "failed")

    def __init__(self, table: Any, sources: Mapping[str, Source], *, now_ms: Callable[[], int]) -> None:
        """`sources`: by stream, who reads it."""
        self._table = table
        self._sources = sources
        self._now_ms = now_ms
        self._queues: dict[QueueKey, _Queue] = {}
        self._keys: dict[StreamPartition, set[bytes]] = {}
        """By partition, the keys that wait."""
        self._first: int | None = _UNKNOWN
        """When the next key is tried again."""
        self._holding: set[QueueKey] = set()
        """The keys that hold time."""
        self._held: dict[str, int] | None = {}
        """What `held` has answered, until that changes."""
        self._next = 0
        self.total = 0
        self.sick: Mapping[int, Sick] = {}
        """The records of the next run that are parked by it."""
        self.given_up: frozenset[int] = NONE
        """The records of the next run that are tried no more."""
        self._finished: set[str] = set()
        """Streams that have ended or drained in this run."""
        self._last: dict[str, set[QueueKey]] = {}
        """By stream that ends: the keys that have had their last try."""
        self.refusal = ""
        """Why the last order of an operator has changed nothing."""
        self.left_out: list[ParkedRow] = []
        """The records that it has left out."""
        self.drop()
        self._load()

    def _load(self) -> None:
        for number, stored in sorted(self._table.range()):
            row = ParkedRow(*stored)
            parking = _Parking(_queue_key(row, number), number, row.due_ms, row.most, row.until_ms, row.time)
            self._append(parking, row.tries)
            self._next = number + 1

    def begin(self, grant: int) -> None:
        """The task runs under this grant. The record with the greatest number may have left: its number is not given to another one, which
        an order of an operator would meet instead."""
        self._next = max(self._next, grant << GRANT_BITS)

    # ---------------------------------------------------------------------------------------------- what a letter does

    def keep_back(self, chunk: Chunk) -> frozenset[int]:
        """The rows of a chunk that do not run now, because they are parked, or are from now on. Whatever is behind such a row waits, too,
        even what would be left out."""
        if isinstance(chunk, ParkedChunk):
            return self._try(chunk)
        waiting = self._keys.get(chunk.at) or set[bytes]()
        if not (waiting or self.sick) or not len(chunk):
            return NONE
        source = self._sources[chunk.at.stream]
        if not self.sick:
            waits = source.rows_with_keys(chunk, waiting)
            if not waits:
                return NONE
            self.kept = frozenset(waits) - chunk.skipped
            self._park(chunk, sorted(self.kept), waits)
            return self.kept
        keys, now, found = source.keys_to_park(chunk), set[bytes](), list[int]()
        for index, key in enumerate(keys):
            if index in chunk.skipped:
                continue
            if index in self.sick:
                found.append(index)
                if key is not None:
                    now.add(key)
            elif key is not None and (key in waiting or key in now):
                found.append(index)
        self._park(chunk, found, keys)
        self.kept = frozenset(found)
        return self.kept

    def _park(self, chunk: Chunk, indexes: Iterable[int], keys: Sequence[bytes | None] | Mapping[int, bytes]) -> None:
        began: dict[QueueKey, tuple[int, int]] = {}
        """The keys that wait from now on: how many records may, and until when they hold time."""
        times: Sequence[int] | None = None
        rows, now_ms, number = dict[int, list[Any]](), self._now_ms(), self._next + len(self._added)
        offset = chunk.columns.offset
        framed = self._sources[chunk.at.stream].framed
        for index in indexes:
            sick, row_of_frame = self.sick.get(index), row_in_frame(chunk, index) if framed else None
            headers = chunk.headers[index] if chunk.has_headers else []
            at, of = offset(index), chunk.made_of(offset(index), row_of_frame or 0)
            row = ParkedRow(
                *chunk.at, keys[index], at, row_of_frame, chunk.columns.value(index), chunk.timestamps[index],
                headers, chunk.plan, of, now_ms,
            )  # fmt: skip
            of_key = _queue_key(row, number)
            due_ms, most, until_ms, why = 0, 0, 0, ""
            if sick is not None and of_key not in self._queues and of_key not in began:
                self.failed.add(index)
                due_ms, most = now_ms + sick.policy.after_ms, sick.policy.max_parked
                until_ms = now_ms + sick.policy.hold_ms if sick.policy.hold_ms else 0
                began[of_key] = most, until_ms
                why = said(sick.cause)[:_WHY]
            elif (queue := self._queues.get(of_key)) is not None:
                most, until_ms = queue.most, queue.until_ms
            else:
                most, until_ms = began[of_key]
            if until_ms:
                times = self._sources[chunk.at.stream].times_to_park(chunk) if times is None else times
                row = replace(row, until_ms=until_ms, time=times[index])
            self._added.append(_Parking(of_key, number, due_ms, most, until_ms, row.time))
            if self.total + len(self._added) > most:
                raise LimitReached(
                    f"{self.total + len(self._added)} records are parked, and max_parked is {most}: {_named(of_key)} is the last one",
                    remedy="`headgate parked JOB` says which and why; correct the cause, or allow more: hg.park(max_parked=…)",
                )
            rows[number] = row.packed(0, due_ms, most, why)
            number += 1
        self._table.update(rows)

    def _try(self, chunk: ParkedChunk) -> frozenset[int]:
        """Parked records run again: those that do are parked no more. Returns those that stay, or leave without running."""
        stay, behind = set[int](), set[QueueKey]()
        gone: list[int] = []
        rows: dict[int, list[Any]] = {}
        for index, (number, row) in enumerate(zip(chunk.ids, chunk.rows, strict=True)):
            of_key = _queue_key(row, number)
            if of_key in behind:
                stay.add(index)
            elif (sick := self.sick.get(index)) is not None:
                stay.add(index)
                behind.add(of_key)
                self.failed.add(index)
                tries, due_ms = row.tries + (not row.untried), self._now_ms() + sick.policy.after_ms
                self._changed.append((of_key, tries, due_ms, sick.policy.max_parked))
                rows[number] = row.packed(tries, due_ms, sick.policy.max_parked, said(sick.cause)[:_WHY])
            else:
                gone.append(number)
                self._gone.append((of_key, number))
                if index in self.given_up:
                    behind.add(of_key)
                    rows |= self._next_given_up(of_key, number, row)
        self._table.delete_many(gone)
        if rows:
            self._table.update(rows)
        self.kept = frozenset(stay)
        return self.kept

    def _next_given_up(self, of_key: QueueKey, number: int, row: ParkedRow) -> dict[int, list[Any]]:
        """The record behind one that is given up has no more tries than this: it runs once."""
        following = next((one for one in self._queues[of_key].ids if one > number), None)
        if following is None:
            return {}
        tries = row.tries + 1
        self._changed.append((of_key, tries, 0, row.most))
        return {following: ParkedRow(*self._table[following]).packed(tries, 0, row.most, row.why)}

    def complete(self) -> None:
        """The letter is complete: what it has parked waits, and what went on is forgotten."""
        for of_key, number in self._gone:
            self._remove(of_key, number)
        for of_key, tries, due_ms, most in self._changed:
            self._change(of_key, tries, due_ms, most)
        for one in self._added:
            self._append(one, 0)
        self._next += len(self._added)
        self.drop()

    def drop(self) -> None:
        """The letter failed: nothing of it counts."""
        self._added: list[_Parking] = []
        self._gone: list[tuple[QueueKey, int]] = []
        self._changed: list[tuple[QueueKey, int, int, int]] = []
        self.kept = NONE
        """The rows of the chunk that do not run, because they are parked."""
        self.failed = set[int]()
        """Those of them that wait because they have failed, and not because they are behind one that has."""

    # --------------------------------------------------------------------------------------------------- the index

    def _append(self, parking: _Parking, tries: int) -> None:
        of_key, number, due_ms, most, until_ms, time = parking
        queue = self._queues.get(of_key)
        if queue is None:
            queue = self._queues[of_key] = _Queue(due_ms, most, tries, until_ms)
            self._first = _UNKNOWN
            stream, partition, key = of_key
            if isinstance(key, bytes):
                self._keys.setdefault(StreamPartition(stream, partition), set()).add(key)
        queue.ids.append(number)
        self.total += 1
        if until_ms and time != NO_TIMESTAMP:
            queue.times[number] = time
            self._holding.add(of_key)
            self._held = None

    def _remove(self, of_key: QueueKey, number: int) -> None:
        queue = self._queues[of_key]
        queue.ids.remove(number)
        if queue.times.pop(number, None) is not None:
            self._held = None
        queue.tries, queue.due_ms = 0, 0
        self._first = _UNKNOWN
        self.total -= 1
        if not queue.ids:
            del self._queues[of_key]
            self._holding.discard(of_key)
            stream, partition, key = of_key
            if isinstance(key, bytes):
                at = StreamPartition(stream, partition)
                self._keys[at].discard(key)
                if not self._keys[at]:
                    del self._keys[at]

    def _change(self, of_key: QueueKey, tries: int, due_ms: int, most: int) -> None:
        queue = self._queues[of_key]
        queue.tries, queue.due_ms, queue.most = tries, due_ms, most
        self._first = _UNKNOWN
        if due_ms and of_key[0] in self._last:
            self._last[of_key[0]].add(of_key)

    # -------------------------------------------------------------------------------------------------------- holding time

    def held(self) -> Mapping[str, int]:
        """By stream, the least event time of the records that hold its time now."""
        now_ms = self._now_ms()
        over = [one for one in self._holding if self._queues[one].until_ms <= now_ms]
        if over:
            self._holding.difference_update(over)
            self._held = None
        if self._held is None:
            self._held = {}
            for one in self._holding:
                times = self._queues[one].times.values()
                if times and self._is_tried(one):
                    self._held[one[0]] = min(*times, self._held.get(one[0], LAST_TIME))
        return self._held

    def lets_go_ms(self) -> int | None:
        """When a key ceases to hold time; None if none holds it."""
        return min((self._queues[one].until_ms for one in self._holding if self._is_tried(one)), default=None)

    # ----------------------------------------------------------------------------------------------------- tried again

    def due(self) -> int | None:
        """When the next key is tried again; None if none is."""
        if self._first == _UNKNOWN:
            times = (queue.due_ms for of_key, queue in self._queues.items() if self._is_tried(of_key))
            self._first = min(times, default=None)
        return self._first

    def _is_tried(self, of_key: QueueKey) -> bool:
        return of_key[0] in self._sources and of_key[0] not in self._finished

    def take(self) -> ParkedChunk | None:
        """The records that are due to be tried again, as the next chunk; None if there are none."""
        now_ms = self._now_ms()
        ready = [one for one, queue in self._queues.items() if queue.due_ms <= now_ms and self._is_tried(one)]
        return self._chunk(ready)

    def take_last(self, stream: str) -> ParkedChunk | None:
        """The records of a stream that ends, for their last try of this run; None once all have had it."""
        tried = self._last.setdefault(stream, set())
        chunk = self._chunk(
            [one for one in self._queues if one[0] == stream and one not in tried and self._is_tried(one)]
        )
        if chunk is None:
            self._finished.add(stream)
            self._first, self._held = _UNKNOWN, None
        return chunk

    def _chunk(self, ready: list[QueueKey]) -> ParkedChunk | None:
        if not ready:
            return None
        ready.sort(key=lambda one: (self._queues[one].due_ms, self._queues[one].ids[0]))
        stream, partition, _ = ready[0]
        numbers: list[int] = []
        for one in ready:
            if one[:2] != (stream, partition):
                continue
            queue = self._queues[one]
            room = ROOM - len(numbers)
            alone = queue.tries or queue.due_ms
            numbers += islice(queue.ids, 1 if alone else room)
            if len(numbers) >= ROOM:
                break
        numbers.sort()
        rows = [ParkedRow(*self._table[number]) for number in numbers]
        plan = rows[0].plan
        several = [(number, row) for number, row in zip(numbers, rows, strict=True) if row.plan == plan]
        chunk = ParkedChunk(
            StreamPartition(stream, partition), [number for number, _ in several], [row for _, row in several]
        )
        chunk.now_ms = self._now_ms()
        return chunk

    # ------------------------------------------------------------------------------------------------- what operators ask

    def unpark(self, order: Unpark) -> None:
        """Carry out what somebody wants of parked records; `refusal` says why nothing has changed, if so."""
        self.refusal, self.left_out = "", []
        if order.number is None:
            queues = list(self._queues)
        else:
            found = self._table.get(order.number)
            if found is None:
                self.refusal = "the record is not parked any more; `headgate parked JOB` shows what is"
                return
            queues = [_queue_key(ParkedRow(*found), order.number)]
        if order.what == RELEASE:
            self._release(queues)
        else:
            self._leave_out(queues, order.upto)
        if not (self.refusal or self._changed or self._gone):
            self.refusal = "no such record is parked"

    def _release(self, queues: Iterable[QueueKey]) -> None:
        """These keys are due. Those that go on already need nothing."""
        now_ms, rows = max(1, self._now_ms()), dict[int, list[Any]]()  # 0 stands for a key that has not failed
        for of_key in queues:
            if not self._is_tried(of_key) or of_key[0] in self._last:
                self.refusal = f"{of_key[0]} has ended in this run, or is not read: it is tried again in the next run"
                continue
            queue = self._queues[of_key]
            row = ParkedRow(*self._table[queue.ids[0]])
            self._changed.append((of_key, queue.tries, now_ms, queue.most))
            rows[queue.ids[0]] = row.packed(queue.tries, now_ms, queue.most, row.why)
        if rows:
            self.refusal = ""
            self._table.update(rows)

    def _leave_out(self, queues: Iterable[QueueKey], upto: int | None) -> None:
        for of_key in queues:
            for number in self._queues[of_key].ids:
                if upto is not None and number > upto:
                    break
                self.left_out.append(ParkedRow(*self._table[number]))
                self._gone.append((of_key, number))
        self._table.delete_many([number for _, number in self._gone])

    def finish(self, streams: Iterable[str]) -> None:
        """These streams have ended or drained in this run already."""
        self._finished.update(streams)
        self._first, self._held = _UNKNOWN, None

    @property
    def keys(self) -> int:
        """How many keys wait."""
        return len(self._queues)


def _queue_key(row: ParkedRow, number: int) -> QueueKey:
    return row.stream, row.partition, number if row.key is None else row.key


def _named(of_key: QueueKey) -> str:
    stream, partition, key = of_key
    return f"{stream}[{partition}] key {key!r:.60}" if isinstance(key, bytes) else f"{stream}[{partition}]"
