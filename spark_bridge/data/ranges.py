"""Batches by reference: a DataFrame of records that the executors read from Kafka themselves, in `mapInArrow`. No connector is needed.

    ranges → parts, one a task of Spark → fetch → decode → Arrow
                                        ↳ what was seen (rows, greatest time, bad records) comes back alongside the result

How to connect and how to decode is named by import paths, so that this package needs neither Kafka's client nor the rules for records.

Promises:

- A part is read from its first to its last offset, or the job fails. An early end is never taken for the end of the range.
- What was seen counts once for each part, however often Spark runs it. Parts that a job did not read to their end (a function may take
  only some rows) are read again for it alone.
- Client settings travel in the job's function, and appear in no plan, no log and no row.
"""

from __future__ import annotations

import asyncio
import importlib
import itertools
import os
import re
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from ...core.batching import range_notes
from ...core.batching import ranges as core_ranges
from ...core.batching.ranges import (
    FrameRow,
    Range,
    RangeAway,
    RangeBroken,
    RangeError,
    RangeGone,
    RangeRead,
    Ranges,
    UndecodedRecord,
    cut,
    divided,
    gone,
    remade,
)
from ...core.errors import EnvironmentFault, cause_for
from ..base.errors import SparkError, said
from ..base.faults import fault_of

PARTS_PER_SLOT = 2
TYPES = {"int64": "bigint", "float64": "double", "bool": "boolean", "text": "string"}
"""The types of columns in Spark."""
LOGICAL_TYPES = {"timestamp": "timestamp", "local timestamp": "timestamp_ntz", "date": "date", "bytes": "binary"}
"""Those of logical types that say no more than their name."""
NOTES = "notes binary"


@dataclass(frozen=True)
class Connect:
    """How to reach Kafka: the import path of a client, and its arguments."""

    path: str
    arguments: tuple[Any, ...] = field(repr=False)


def named(path: str) -> Any:
    """What this import path (`module:name`) names."""
    module, _, name = path.partition(":")
    return getattr(importlib.import_module(module), name)


# ------------------------------------------------------------------------------------------------------------- connections


class Link:
    """A client in a thread of its own, so that it fetches while its caller decodes."""

    def __init__(self, connect: Connect) -> None:
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._run, name="kafka ranges", daemon=True).start()
        self._client = named(connect.path)(*connect.arguments)
        try:
            self.call("start").result()
        except BaseException:
            self._loop.call_soon_threadsafe(self._loop.stop)
            raise

    def _run(self) -> None:
        self._loop.run_forever()
        self._loop.close()

    def call(self, method: str, *arguments: Any) -> Future[Any]:
        """Call a method of the client."""
        return asyncio.run_coroutine_threadsafe(getattr(self._client, method)(*arguments), self._loop)

    def close(self) -> None:
        """Close the client."""
        try:
            self.call("stop").result(10.0)
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)


_links: dict[tuple[int, Connect], Link] = {}
_lock = threading.Lock()


def close_links() -> None:
    """Close this process's clients."""
    with _lock:
        ours = [_links.pop(key) for key in list(_links) if key[0] == os.getpid()]
    for one in ours:
        one.close()


def link(connect: Connect) -> Link:
    """The process's client for these brokers: a Python worker of Spark runs many tasks."""
    with _lock:
        key = os.getpid(), connect
        found = _links.get(key)
        if found is None:
            found = _links[key] = Link(connect)
        return found


def brokers_of(connect: Connect) -> list[str]:
    """Every address that the brokers advertise. Raises `RangeError` if none of them answers."""
    return sorted(link(connect).call("brokers").result())


# ----------------------------------------------------------------------------------------------------------------- a part


def schema_of(columns: Iterable[tuple[Any, ...]]) -> str:
    """The schema of these columns as Spark writes it, where fields of nested objects are fields of structs.

    >>> schema_of([("n", "int64", False), ("a.b", "text", True, (("a", True), ("b", False)), False)])
    '`n` bigint, `a` struct<`b`: string>'
    """
    record: dict[str, Any] = {}
    for name, kind, _, *rest in columns:
        nested, logical = rest[:2] if rest and rest[0] else [], rest[2] if len(rest) > 2 else None
        path = [part for part, _ in nested[0]] if nested else [name]
        at = record
        for part in path if nested and nested[1] else path[:-1]:
            at = at.setdefault(part, {})
        if not (nested and nested[1]):
            at[path[-1]] = TYPES[kind] if logical is None else _type_of_logical(*logical)
    return ", ".join(f"{_quoted(name)} {_type_of(kind)}" for name, kind in record.items())


def _type_of_logical(name: str, digits: int, scale: int, of: Any, fields: Any, optional: bool) -> str:
    """The type of a column of a logical type, given as plain values, or of what it contains."""
    inner = [_type_of_logical(*one) for one in of]
    match name:
        case "decimal":
            return f"decimal({digits},{scale})"
        case "list":
            return f"array<{inner[0]}>"
        case "map":
            return f"map<string,{inner[0]}>"
        case "object":
            return f"struct<{', '.join(f'{_quoted(one)}: {kind}' for one, kind in zip(fields, inner, strict=True))}>"
        case _:
            return TYPES.get(name) or LOGICAL_TYPES[name]


def _type_of(kind: Any) -> str:
    if isinstance(kind, str):
        return kind
    fields: dict[str, Any] = kind
    return f"struct<{', '.join(f'{_quoted(name)}: {_type_of(one)}' for name, one in fields.items())}>"


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"


class RangePart:
    """Reads one part. `seen` is what was seen, complete when the iteration has ended."""

    def __init__(self, part: Range, ranges: Ranges, linked: Link, decode: Callable[..., Any]) -> None:
        self.part = part
        self.seen = RangeRead(part)
        self._ranges = ranges
        self._link = linked
        self._decode = decode

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        part, position = self.part, self.part.first
        rows = tombstones = 0
        greatest: int | None = None
        bad: list[UndecodedRecord] = []
        fetched = self._fetch(position)
        while position < part.behind:
            answer = fetched.result()
            if answer.log_start > part.first:
                raise gone(part.topic, part.partition, part.first, answer.log_start)
            found = self._decode(part.topic, part.partition, answer.raw, position, part.behind, answer.aborted)
            position = found.position
            if position < part.behind:
                fetched = self._fetch(position)
            if found.bad and not self._ranges.keeps_bad:
                raise unreadable(found.bad[0])
            rows, tombstones = rows + found.rows, tombstones + found.tombstones
            bad += found.bad
            if found.greatest_ms is not None:
                greatest = found.greatest_ms if greatest is None else max(greatest, found.greatest_ms)
            if (batch := self._batch(found)) is not None:
                yield batch
        if part.topic_id and (other := remade(part, self._link.call("topic_id", part.topic).result())) is not None:
            raise other  # an id never comes back: if it is right behind the last record, it was for all
        self.seen = RangeRead(part, rows, tombstones, greatest, tuple(bad))

    def _batch(self, found: Any) -> pa.RecordBatch | None:
        """The rows of an answer; None if there are none."""
        if found.batch is not None:
            return pa.record_batch(found.batch)
        frames = [self._left(offset, pa.record_batch(frame)) for offset, frame in found.frames]
        merged = pa.Table.from_batches(frames).combine_chunks().to_batches() if frames else []
        return merged[0] if merged else None

    def _left(self, offset: int, frame: pa.RecordBatch) -> pa.RecordBatch:
        """A frame without the rows that are left out."""
        at = self.part.topic, self.part.partition, offset
        out = {place.row for place in self._ranges.without if place[:3] == at}
        return frame.filter(pa.array([row not in out for row in range(frame.num_rows)], pa.bool_())) if out else frame

    def _fetch(self, position: int) -> Future[Any]:
        return self._link.call("fetch", self.part.topic, self.part.partition, position)


def unreadable(one: UndecodedRecord) -> RangeBroken:
    """The error for a record that cannot be decoded."""
    return RangeBroken(
        f"{one.topic}[{one.partition}] offset {one.offset}: {one.why}",
        remedy="on_bad_data='skip' or 'dead_letter' on the input leaves such records out",
    )


def reader(
    parts: Sequence[Range], ranges: Ranges, connect: Connect, notes: Any, attempt: str = ""
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function for `mapInArrow`: it gets the numbers of parts, and returns their rows.

    `notes`, an accumulator, gets what was seen in this `attempt`; if it is None, that is returned instead of the rows.
    """
    about = replace(ranges, parts=())

    def read(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        linked, decode = link(connect), named(about.decoder)(about.columns, *about.arguments)
        for number in itertools.chain.from_iterable(batch.column(0).to_pylist() for batch in numbers):
            part = RangePart(parts[number], about, linked, decode)
            for batch in part:
                if notes is not None:
                    yield batch
            if notes is not None:
                notes.add({range_notes.key_of(attempt, parts[number]): range_notes.encode(part.seen)})
            else:
                yield pa.record_batch({"notes": pa.array([range_notes.encode(part.seen)], pa.binary())})

    return read


# -------------------------------------------------------------------------------------------------------------- a batch


Notes = dict[bytes, bytes]
"""What was seen, by attempt and part: a part that was read twice counts once. All is bytes, for PySpark pickles what accumulators add."""


class Merged:
    """Merges notes: what Spark calls an `AccumulatorParam`."""

    def zero(self, value: Notes) -> Notes:
        """Nothing."""
        return {}

    def addInPlace(self, value1: Notes, value2: Notes) -> Notes:
        """The first ones, with the second ones."""
        value1.update(value2)
        return value1


_notes: dict[str, Any] = {}
_running: set[str] = set()


def notes_of(session: Any) -> Any:
    """The accumulator of the session's application; None for Spark Connect, which has none. Spark never forgets an accumulator, so there is
    one for all batches."""
    context = _context(session)
    if context is None:
        return None
    with _lock:
        found = _notes.get(context.applicationId)
        if found is None:
            found = _notes[context.applicationId] = context.accumulator({}, Merged())
        return found


class RangeAttempt:
    """One attempt to read a batch by reference in a session: a DataFrame, and afterwards what was seen."""

    def __init__(self, session: Any, ranges: Ranges, connect: Connect) -> None:
        self._session = session
        self._ranges = ranges
        self._connect = connect
        context = _context(session)
        most = PARTS_PER_SLOT * (context.defaultParallelism if context else 1)
        self._parts = divided(ranges.parts, most, ranges.least)
        self._notes = notes_of(session)
        self._attempt = uuid.uuid4().hex
        _running.add(self._attempt)

    def frame(self) -> Any:
        """The records as a DataFrame. Raises `RangeGone` if some are gone already."""
        self.check()
        columns = schema_of(self._ranges.columns)
        notes = self._notes if self._notes is not None else _Nowhere()
        return self._numbers(len(self._parts)).mapInArrow(
            reader(self._parts, self._ranges, self._connect, notes, self._attempt), columns
        )

    def check(self) -> None:
        """Raise `RangeGone` if the log does not begin before all ranges, or belongs to a topic that was re-created."""
        linked = link(self._connect)
        known = {(one.topic, one.topic_id): one for one in self._ranges.parts if one.topic_id}
        for one, found in [(one, linked.call("topic_id", one.topic)) for one in known.values()]:
            if (other := remade(one, found.result())) is not None:
                raise other
        first: dict[tuple[str, int], int] = {}
        for one in self._ranges.parts:
            at = one.topic, one.partition
            first[at] = min(first.get(at, one.first), one.first)
        asked = [(at, linked.call("log_start", *at)) for at in first]
        for at, answer in asked:
            if (start := answer.result()) > first[at]:
                raise gone(*at, first[at], start)

    def seen(self) -> list[RangeRead]:
        """What was seen of each part, after the result was made. Raises `RangeGone` if the log has lost records of the batch since."""
        notes: Notes = {} if self._notes is None else self._notes.value
        packed = {one: notes.get(range_notes.key_of(self._attempt, one)) for one in self._parts}
        noted = {one: range_notes.decode(data) for one, data in packed.items() if data is not None}
        missing = [one for one in self._parts if one not in noted]
        if missing:
            scanned = self._numbers(len(missing)).mapInArrow(reader(missing, self._ranges, self._connect, None), NOTES)
            for data in scanned.toArrow().column(0).to_pylist():
                one = range_notes.decode(data)
                noted[one.part] = one
        self.check()
        return [noted[one] for one in self._parts]

    def close(self) -> None:
        """The attempt is over: forget its notes, and those of cancelled attempts whose tasks ended late."""
        _running.discard(self._attempt)
        notes: Notes = {} if self._notes is None else self._notes.value
        for key in [key for key in list(notes) if range_notes.attempt_of(key) not in _running]:
            notes.pop(key, None)

    def _numbers(self, count: int) -> Any:
        """The numbers of parts, each in a partition of its own."""
        return self._session.range(0, count, 1, numPartitions=count)


@dataclass(frozen=True)
class Found:
    """The result of an attempt, and what was seen."""

    table: Any
    """An Arrow table, or what else was made of the DataFrame."""
    seen: Sequence[RangeRead]


class Unfetched:
    """The rows of a batch by reference. It has the part of a table's interface with which batches are cut; a place is that of an offset."""

    def __init__(self, ranges: Ranges, connect: Connect) -> None:
        self._ranges = ranges
        self._connect = connect

    @property
    def num_rows(self) -> int:
        """How many offsets there are."""
        return sum(one.size for one in self._ranges.parts)

    @property
    def rows(self) -> int | None:
        """How many rows the frames hold; None if there are none, so that an offset holds one row at most. Of a part this is an estimate."""
        return self._ranges.rows

    def slice(self, offset: int, length: int | None = None) -> Unfetched:
        """So many offsets from one on."""
        length = self.num_rows - offset if length is None else length
        return self._of(cut(self._ranges.parts, offset, length))

    def _of(self, parts: tuple[Range, ...]) -> Unfetched:
        """Parts of these ranges. The rows of frames are taken for equally many in each."""
        rows, every = self._ranges.rows, max(1, self.num_rows)
        if rows is not None:
            rows = -(-rows * sum(one.size for one in parts) // every)
        return type(self)(replace(self._ranges, parts=parts, rows=rows), self._connect)

    def frame_at(self, place: int) -> pa.Table:
        """The rows of the frame at this place, read here."""
        return pa.Table.from_batches(self.slice(place, 1)._read())

    def without_rows(self, places: Iterable[tuple[int, int]]) -> Unfetched:
        """All rows but these: the place of the frame of each, and its number there."""
        found: set[FrameRow] = set()
        for place, row in places:
            (one,) = cut(self._ranges.parts, place, 1)
            found.add(FrameRow(one.topic, one.partition, one.first, row))
        return type(self)(replace(self._ranges, without=self._ranges.without | found), self._connect)

    def filter(self, mask: Any) -> Unfetched:
        """The offsets at whose place the mask is true."""
        out = [place for place, kept in enumerate(mask.to_pylist()) if not kept]
        found: list[Range] = []
        start = 0
        for place in [*out, self.num_rows]:
            found += cut(self._ranges.parts, start, place - start)
            start = place + 1
        return self._of(tuple(found))

    def to_pylist(self) -> list[dict[str, Any]]:
        """The rows, read here: for the few that a function cannot process."""
        return [row for batch in self._read() for row in batch.to_pylist()]

    def _read(self) -> list[pa.RecordBatch]:
        about = self._ranges
        decode = named(about.decoder)(about.columns, *about.arguments)
        parts = (RangePart(one, about, link(self._connect), decode) for one in about.parts)
        return [batch for part in parts for batch in part]

    def result(self, session: Any, make: Callable[[Any], Any]) -> Found:
        """What `make` makes of the DataFrame of the rows, in one attempt."""
        try:
            reading = RangeAttempt(session, self._ranges, self._connect)
            try:
                return Found(make(reading.frame()), reading.seen())
            finally:
                reading.close()
        except Exception as error:
            found = blamed(error)
            if found is None:
                raise
            raise found from cause_for(found, error)


class SparkRangeError(SparkError):
    """The records of a batch by reference cannot be read, whatever the function does with them."""

    final = True


class SparkRangeGone(SparkRangeError, RangeGone):
    """Records of a batch by reference were removed before Spark had read them."""


class SparkRangeAway(SparkError, EnvironmentFault):
    """Executors, or this worker, have not reached Kafka in time."""


_RAISED = re.compile(r"^headgate\.core\.batching\.ranges\.(\w+): (.+)", re.MULTILINE)
_READERS = ("spark_bridge/data/ranges.py", "agents/kafka/range_client.py")
"""The files in which executors read; what a function of the user raises does not come through them."""


def blamed(error: Exception) -> SparkError | None:
    """The typed error if reading has failed, here or in an executor; None if something else has."""
    kind: Any = type(error)
    what = str(error)
    if not isinstance(error, RangeError):
        ours = any(place.endswith(_READERS) for place in fault_of(error).places)
        found = _RAISED.search(said(error)) if ours else None
        if found is None:
            return None
        kind, what = getattr(core_ranges, found[1], RangeError), found[2]
    text, _, remedy = what.partition(". Remedy: ")
    return {RangeAway: SparkRangeAway, RangeGone: SparkRangeGone}.get(kind, SparkRangeError)(text, remedy=remedy)


class _Nowhere:
    """Where notes go if the session has no accumulators."""

    def add(self, _: Any) -> None:
        """Drop it: the parts are read again for it."""


def _context(session: Any) -> Any:
    """The session's SparkContext; None for Spark Connect."""
    try:
        return session.sparkContext
    except Exception:  # noqa: BLE001 - Spark Connect refuses the attribute with an error of its own
        return None
