"""Batches by reference: offset ranges of a topic, which executors read themselves, and what they report of it.

Plain data. A range is closed by its two offsets, so it has the same records whenever it is read: a log that no one compacts changes no
record, and one that has removed records of the range is an error.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, NamedTuple

from ..errors import HeadgateError

TOPIC_ID = "hg-topic-id"
"""The header of a dead letter with the id of the topic that its offset belongs to, if that is known."""
PART_OFFSETS = 50_000
"""A range is divided only into parts of at least so many offsets: a part costs a connection to Kafka and a task of Spark."""


@dataclass(frozen=True, slots=True)
class Range:
    """The offsets from `first` up to, not including, `behind` of one partition."""

    topic: str
    partition: int
    first: int
    behind: int
    topic_id: str = ""
    """The id of the topic, by which one that was re-created under its name is recognized; empty: unknown, equals any."""

    @property
    def size(self) -> int:
        """The number of its offsets, which is the maximum number of its records."""
        return self.behind - self.first

    def __str__(self) -> str:
        return f"{self.topic}[{self.partition}] {self.first} to {self.behind - 1}"


class RangeError(HeadgateError):
    """A range cannot be read. Executors raise it, so its text must say everything."""


class RangeAway(RangeError):
    """No broker answers. A later attempt may succeed."""


class RangeBroken(RangeError):
    """Bytes or a record of a range cannot be decoded, however often they are read."""


class RangeGone(RangeError):
    """Records of a range were removed before they were read. The batch can never be read again."""


def gone(topic: str, partition: int, first: int, log_start: int | None) -> RangeGone:
    """The error for a range that begins at `first`, below the start of the log."""
    starts = "" if log_start is None else f"; the log starts at {log_start}"
    return RangeGone(
        f"{topic}[{partition}]: the records from offset {first} on were removed before Spark had read them{starts}",
        remedy="keep the topic longer: a batch by reference reads its records from Kafka at each attempt",
    )


def remade(one: Range, found: str) -> RangeGone | None:
    """The error for a range whose topic has this id; None if it is the range's topic, or one of both ids is not known."""
    if not found or found == (one.topic_id or found):
        return None
    return RangeGone(
        f"{one.topic}[{one.partition}]: the topic was deleted and re-created before Spark had read the records from offset {one.first} on: "
        f"its id was {one.topic_id}, and is {found} now",
        remedy=f"if it holds the same records at the same offsets, `headgate topics adopt JOB {one.topic}` accepts it",
    )


def taken_for(topic_id: str, adopted: Mapping[str, str]) -> str:
    """The id of the topic that holds the records of this one, after all adoptions (`headgate topics adopt`: by id, the id that it was taken
    for); empty if it is not known. A topic that was re-created without an adoption is another one, whatever was adopted before.

    >>> taken_for("one", {"one": "two", "two": "three"}), taken_for("one", {"one": ""}), taken_for("four", {"one": "two"})
    ('three', '', 'four')
    """
    for _ in adopted:
        topic_id = adopted.get(topic_id, topic_id)
    return topic_id


class UndecodedRecord(NamedTuple):
    """A record that cannot be decoded, as it is in Kafka, and why."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    why: str


class FrameRow(NamedTuple):
    """Where a row of a frame is: the record of the frame, and the row's index among the rows that are read of it."""

    topic: str
    partition: int
    offset: int
    row: int


@dataclass(frozen=True, slots=True)
class Ranges:
    """The contents of a batch by reference, and what a reader needs to decode them."""

    parts: tuple[Range, ...]
    columns: tuple[tuple[Any, ...], ...]
    """Name, type and whether it may be null."""
    decoder: str
    """Import path of what decodes fetch answers: `module:name`."""
    arguments: tuple[Any, ...] = ()
    """What `decoder` takes."""
    keeps_bad: bool = False
    """Bad records are left out and reported; otherwise the first one is an error."""
    rows: int | None = None
    """How many rows they hold, if a record is a frame of many rows; None: a record is at most one row."""
    without: frozenset[FrameRow] = frozenset()
    """The rows that are left out; only of frames."""

    @property
    def least(self) -> int:
        """A part has at least so many offsets, unless its range has fewer: those of about `PART_OFFSETS` rows."""
        if self.rows is None:
            return PART_OFFSETS
        return max(1, PART_OFFSETS * sum(one.size for one in self.parts) // max(1, self.rows))


@dataclass(frozen=True, slots=True)
class RangeRead:
    """What the readers of a range have seen."""

    part: Range
    rows: int = 0
    tombstones: int = 0
    greatest_ms: int | None = None
    """The greatest event time."""
    bad: tuple[UndecodedRecord, ...] = ()


def divided(parts: Iterable[Range], most: int, least: int = PART_OFFSETS) -> list[Range]:
    """The ranges in about `most` parts, none of them much smaller than `least` unless the range is.

    >>> [str(one) for one in divided([Range("t", 0, 0, 100_000)], 4)]
    ['t[0] 0 to 49999', 't[0] 50000 to 99999']
    """
    parts = list(parts)
    size = max(least, -(-sum(one.size for one in parts) // max(1, most)))
    found: list[Range] = []
    for one in parts:
        pieces = max(1, one.size // size)
        cuts = [one.first + one.size * n // pieces for n in range(pieces + 1)]
        found += [replace(one, first=low, behind=high) for low, high in pairwise(cuts)]
    return found


def cut(parts: Iterable[Range], offset: int, length: int) -> tuple[Range, ...]:
    """So many offsets of these ranges, from the one at this place on.

    >>> [str(one) for one in cut([Range("t", 0, 5, 9), Range("t", 1, 0, 3)], 3, 2)]
    ['t[0] 8 to 8', 't[1] 0 to 0']
    """
    found: list[Range] = []
    for one in parts:
        skipped = min(offset, one.size)
        offset -= skipped
        taken = min(length, one.size - skipped)
        if taken > 0:
            found.append(replace(one, first=one.first + skipped, behind=one.first + skipped + taken))
            length -= taken
    return tuple(found)


def together(reads: Sequence[RangeRead]) -> dict[tuple[str, int], int]:
    """By topic and partition, the greatest event time that was read; a partition without rows is absent.

    >>> together([RangeRead(Range("t", 0, 0, 9), greatest_ms=5), RangeRead(Range("t", 0, 9, 10))])
    {('t', 0): 5}
    """
    found: dict[tuple[str, int], int] = {}
    for one in reads:
        if one.greatest_ms is not None:
            at = one.part.topic, one.part.partition
            found[at] = max(found.get(at, one.greatest_ms), one.greatest_ms)
    return found
