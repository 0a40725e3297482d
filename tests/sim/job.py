"""The job that every run computes, and the account of every record at its end.

    orders (source)  →  filter  →  shuffle by key  →  count by key  →  counted (output)
                                                   →  windows by key (of half of the seeds, see `windows`)

or the same split between two jobs: `upstream` filters and shuffles, `downstream` counts; `side` may be a second job that filters and
shuffles rows of a source of its own (see `shares`). A record is identified by its producer and a
sequence number, so every lost, duplicated or reordered record is found. A read-committed reader outside of the job checks the exact result
against a recount.

Promise about the sources: a record's event time is at most `LAG_MS` older than the newest of its partition, so a correct watermark leaves
no late records. The exceptions are the `stray` records.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random
from types import SimpleNamespace
from typing import Any, NamedTuple

import orjson

import headgate as hg
from headgate.agents.records.frames.arrow_rows import as_batch
from headgate.agents.state.cache_memory import CacheMemory
from headgate.core.progress.frames import (
    ArrowFrame,
    BatchFrame,
    ControlFrame,
    Drain,
    EndOfStream,
    UserFrame,
    Watermark,
    decode,
)

from . import columns as c
from .log import Kafka, Record
from .windows import FAR, NEAR, Windowing

LAG_MS = 500
JITTER_MS = 50
"""So much later than its event time a record is written, at most."""
STRAY_MS = 3000
"""A stray record is older than `LAG_MS` by at most this."""
SOURCE = "orders"
EXTRAS = "extras"
"""A second source, for `mixed` jobs."""
SIDE = "side-orders"
"""The source of a second job that shares."""
SIDE_BASE = 1000
SHARED = "shared"
"""The stream between two jobs."""
OUTPUT = "counted"
OUTPUTS = 2
TABLE = "counts"
LITTLE_BYTES = 4096
CYCLE = 3
"""A key that was counted this often is deleted from the table, and counted from one again."""


class Row(NamedTuple):
    """One input record: its producer, its sequence number, and its key."""

    producer: int
    seq: int
    key: int


RESULT, PARTIAL = Row(-1, 0, 0), Row(-2, 0, 0)
"""What stands for a result of a window, and for a partial state, where a row is expected."""


class Counted(NamedTuple):
    """One output record: the row that was counted, and the count of its key."""

    row: Row
    count: int
    """0 if the job does not count."""


CONTROL = (Watermark, EndOfStream, Drain)


def value_of(row: Row) -> bytes:
    """A row as an input record."""
    return orjson.dumps({"p": row.producer, "s": row.seq, "k": str(row.key)})


def row_of(value: bytes) -> Row:
    """The row of an input record, of a row in a frame, or of an output record."""
    found = orjson.loads(value)
    if "window_end" in found:
        return RESULT
    return Row(found["p"], found["s"], int(found["k"]))


def counted_of(value: bytes) -> Counted:
    """The output record of these bytes."""
    return Counted(row_of(value), orjson.loads(value)["n"])


def framed(value: bytes) -> ControlFrame | list[tuple[Row, int]]:
    """A record of a framed stream: a control message, or its rows with their times."""
    frame: Any = decode(value)
    if isinstance(frame, CONTROL):
        return frame
    assert not isinstance(frame, UserFrame), "the shuffle writes batches"
    if isinstance(frame, ArrowFrame):
        frame = as_batch(frame, hg.json())
    assert isinstance(frame, BatchFrame), frame
    if frame.plan is not None:
        return [(PARTIAL, at) for at in frame.timestamps]
    return [(row_of(one or b""), at) for one, at in zip(frame.values, frame.timestamps, strict=True)]


def stray(row: Row) -> bool:
    """Whether the record may be older than the sources promise."""
    return row.seq % 11 == 7


def follows_a_stray(seq: int) -> bool:
    """Whether a record follows a stray one at once, where such records come in groups: with its key, and nearly its time."""
    return seq % 11 in (8, 9)


def passes(value: Any) -> bool:
    """The filter of the first stage."""
    return value["s"] % 5 != 3


@dataclass(frozen=True)
class Shape:
    """What differs between the jobs of two seeds."""

    sources: int
    """Partitions of the source, and so tasks."""
    width: int
    """Partitions of the shuffled stream."""
    keys: int
    chunk: int
    aggregated: bool
    """Whether control messages go through one partition of the shuffled stream."""
    rows: int
    """Rows in each source partition."""
    pace_s: float
    """Mean time between two rows of a partition."""
    stateful: bool = True
    split: bool = False
    """Two jobs instead of one."""
    modulo: bool = False
    """Six tasks that own two partitions of the shuffled stream each."""
    bounded: bool = False
    """Each source partition ends in each run, a few rows after its end at the start of the run."""
    mixed: bool = False
    """A second, unbounded source beside a bounded one, and a task for each partition of each stream."""
    windows: Windowing | None = None
    columns: str = ""
    """How the first stage works on columns, see `columns`; otherwise it works on rows."""
    ranked: bool = False
    """Its aggregates of columns rank rows, too."""
    pattern: str = ""
    """The pattern of its sources, some of which come later, see `patterns`."""

    @property
    def plain(self) -> bool:
        """Whether it is one job over rows of one source."""
        return not (self.split or self.mixed or self.columns)

    def memory(self, *, joins: bool) -> SimpleNamespace | None:
        """The memory of a worker; for columns and joins so little that states and kept rows are evicted all the time."""
        return SimpleNamespace(decoded=CacheMemory(LITTLE_BYTES)) if self.columns or joins else None

    @classmethod
    def draw(cls, rng: Random) -> Shape:
        """At least six tasks, and a shuffle with at least two partitions."""
        modulo = rng.random() < 0.25
        stateful = rng.random() < 0.75
        split = rng.random() < 0.2
        mixed = not (stateful or split or modulo) and rng.random() < 0.5
        sources = 6 if modulo else rng.choice((6, 6, 7, 8))
        place = rng.choice(("", "", NEAR, NEAR if split else FAR))
        shape = cls(
            sources=sources,
            width=12 if modulo else 3 if mixed else rng.choice((2, 3, 6, sources)),
            keys=rng.randint(5, 40),
            chunk=rng.randint(1, 8),
            aggregated=rng.random() < 0.4,
            rows=rng.randint(15, 40),
            pace_s=rng.uniform(0.05, 0.4),
            stateful=stateful,
            split=split,
            modulo=modulo,
            bounded=mixed or rng.random() < (0.1 if stateful else 0.4),
            mixed=mixed,
            windows=Windowing.draw(rng, place, split=split) if place else None,
        )
        return shape if split or mixed else replace(shape, columns=c.drawn(shape.pace_s))


class Feed:
    """The producers of the source topic: one for each partition, outside of any job; they write each row once."""

    def __init__(
        self,
        kafka: Kafka,
        rng: Random,
        shape: Shape,
        topic: str = SOURCE,
        base: int = 0,
        skews_ms: tuple[int, ...] = (0,),
    ) -> None:
        self.kafka = kafka
        self.rng = rng
        self.shape = shape
        self.topic = topic
        self.base = base
        """Added to a partition to name its producer."""
        self.skews_ms = skews_ms
        """How far the event times of a partition are behind."""
        self.width = len(kafka.topics[topic])
        """The partitions that it had at first."""
        self.seqs: dict[int, int] = {}
        self.newest: dict[int, int] = {}
        self.times: dict[tuple[int, int], int] = {}
        """By partition and number: the event time of each row."""
        self.silent: set[int] = set()
        """Partitions that get nothing."""
        self.bursts: dict[int, int] = {}
        """The partitions that are quiet for a while now and then: how often still."""
        self.lasting: set[int] = set()
        """Partitions that get rows for as long as they are in it."""
        self.groups = False
        """Whether stray rows come in groups of three."""
        self.last: dict[int, Row] = {}
        """By partition: the last row."""
        self.grouped: set[Row] = set()
        """The rows that have followed a stray one."""
        self.old: set[Row] = set()
        """The rows that were older than `LAG_MS` when they were written: whoever was lifted before may find them late."""

    def write(self, partition: int, now_ms: int) -> bool:
        """Write the next row of this partition. Returns False if all its rows were written."""
        seq = self.seqs.get(partition, 0)
        if (seq >= self.shape.rows and partition not in self.lasting) or partition in self.silent:
            return False
        self.seqs[partition] = seq + 1
        rng = self.rng
        behind_ms = self.skews_ms[partition % len(self.skews_ms)]
        newest = max(self.newest.get(partition, 0), now_ms - behind_ms - rng.randint(0, JITTER_MS))
        self.newest[partition] = newest
        late = rng.randint(0, LAG_MS) if seq and rng.random() < 0.3 else 0
        row = Row(self.base + partition, seq, rng.randrange(self.shape.keys))
        if stray(row):
            late = LAG_MS + rng.randint(0, STRAY_MS)
        if self.groups and follows_a_stray(seq):
            row = row._replace(key=self.last[partition].key)
            late = max(late, newest - self.times[partition, seq - 1] - 1)
            self.grouped.add(row)
        self.last[partition] = row
        if now_ms - (newest - late) > LAG_MS + JITTER_MS:
            self.old.add(row)
        self.times[partition, seq] = newest - late
        self.kafka.plain(self.topic, partition, str(row.key).encode(), value_of(row), newest - late)
        return True

    def goes_on(self, partition: int) -> bool:
        """Whether this partition has all its rows, and gets more."""
        return partition in self.lasting and self.seqs.get(partition, 0) >= self.shape.rows

    def rest_s(self, partition: int, rng: Random) -> float:
        """How long this partition is quiet now, beyond its pace."""
        if self.goes_on(partition) or not self.bursts.get(partition) or rng.random() > 0.12:
            return 0.0
        self.bursts[partition] -= 1
        return rng.uniform(3.0, 9.0)


class Account:
    """What a read-committed reader finds at the end, compared with what was read in."""

    def __init__(self) -> None:
        self.rows = 0
        self.lost: list[Row] = []
        self.doubled: list[Row] = []
        self.disordered: list[tuple[int, int]] = []
        """Lanes (key, producer) whose rows came in another order."""
        self.miscounted: list[tuple[object, ...]] = []
        self.windows: list[tuple[object, ...]] = []
        self.columns: list[tuple[object, ...]] = []
        self.joins: list[tuple[object, ...]] = []
        self.branches: list[tuple[object, ...]] = []

    @property
    def clean(self) -> bool:
        """Whether nothing is lost, duplicated or out of order, and every table and every window equals the recount."""
        rows = self.lost or self.doubled or self.disordered or self.miscounted
        return not (rows or self.windows or self.columns or self.joins or self.branches)

    def __str__(self) -> str:
        parts = [f"rows {self.rows}"]
        for name in ("lost", "doubled", "disordered", "miscounted", "windows", "columns", "joins", "branches"):
            found = getattr(self, name)
            parts.append(f"{name} {len(found)}" + (f" (first: {found[0]})" if found else ""))
        return ", ".join(parts)


Intervals = dict[tuple[str, int], list[tuple[int, int]]]
"""By source partition: the ranges over which committed transactions moved its position, in order."""
Lanes = dict[tuple[int, int], list[int]]
"""By key and producer: the sequence numbers of the rows, in order."""


def taken_in(kafka: Kafka, intervals: Intervals, *, frames: bool) -> list[tuple[Row, int]]:
    """The rows that the committed positions cover and that pass the filter, with their times."""
    found: list[tuple[Row, int]] = []
    for at, moves in sorted(intervals.items()):
        log = kafka.topics[at[0]][at[1]]
        records = [*log.deleted, *log.read(log.start, 1 << 30)[0]]
        for begin, end in moves:
            for record in records:
                if begin <= record.offset < end:
                    found += rows_in(record, frames=frames)
    return found


def rows_in(record: Record, *, frames: bool) -> list[tuple[Row, int]]:
    """The rows of an input record that pass the filter."""
    if frames:
        rows = framed(record.value)
        return rows if isinstance(rows, list) else []
    row = row_of(record.value)
    return [(row, record.ts)] if row.seq % 5 != 3 else []


def rows_out(value: bytes, *, frames: bool) -> list[tuple[Row, int]]:
    """The rows of an output record, each with its count; rows of a shared stream have none."""
    if not frames:
        return [counted_of(value)]
    found = framed(value)
    return [(row, 0) for row, _ in found] if isinstance(found, list) else []


def account(
    kafka: Kafka,
    taken: list[tuple[Row, int]],
    output: str,
    tables: dict[int, int] | None,
    *,
    writes: bool,
    twice: bool = False,
    writes_row: Callable[[Row], bool],
) -> Account:
    """Compare the output with what was read. `writes`: whether the output is a stream of frames. `tables`: the count of each key in the
    task logs, if there are tables. `twice`: whether rows may be there more than once, so that only missing ones count.
    `writes_row`: whether a row of the output is of this job.
    """
    result = Account()
    expected: Lanes = {}
    recount: dict[int, int] = {}
    for row, _ in taken:
        expected.setdefault((row.key, row.producer), []).append(row.seq)
        recount[row.key] = recount.get(row.key, 0) + 1
    found: Lanes = {}
    counts: dict[int, int] = {}
    for partition in range(len(kafka.topics[output])):
        for record in kafka.read(output, partition, 0, 1 << 30)[0]:
            for row, count in filter(lambda one: writes_row(one[0]), rows_out(record.value, frames=writes)):
                result.rows += 1
                found.setdefault((row.key, row.producer), []).append(row.seq)
                counts[row.key] = counts.get(row.key, 0) % CYCLE + 1
                if count not in (0, counts[row.key]) and not twice:
                    result.miscounted.append(("output", row, count, counts[row.key]))
    for lane in sorted(expected.keys() | found.keys()):
        want, have = expected.get(lane, []), found.get(lane, [])
        if twice:
            result.lost += [Row(lane[1], seq, lane[0]) for seq in sorted({*want} - {*have})]
            continue
        if want == have:
            continue
        surplus, missing = list(have), []
        for seq in want:
            if seq in surplus:
                surplus.remove(seq)
            else:
                missing.append(seq)
        result.lost += [Row(lane[1], seq, lane[0]) for seq in missing]
        result.doubled += [Row(lane[1], seq, lane[0]) for seq in surplus]
        if not missing and not surplus:
            result.disordered.append(lane)
    if tables is not None:
        for key in sorted(recount.keys() | tables.keys()):
            if recount.get(key, 0) % CYCLE != tables.get(key, 0):
                result.miscounted.append(("table", key, tables.get(key), recount.get(key, 0)))
    return result
