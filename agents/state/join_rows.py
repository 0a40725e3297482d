"""The rows that a join keeps, in readable form and in order: by side, key and time.

This needs only the kind of join, which the schema in the task log names. So a job's state can be read without its code. However many rows
there are, only those that are shown are held in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from heapq import nsmallest
from typing import Any, NamedTuple, cast

from ...core.errors import HeadgateError
from ...core.graph.schema import JOIN
from ...core.task.stored.checkpoint import parse_log_value
from ...core.windows.joins import SIDES, preserves
from ...core.windows.slots import holds_window
from ..records.values.serdes import stored as blocks

ROW_PARTS, FLAG_PARTS = 8, 4
"""The parts of a stored block (side, end of the slice, number, keys, times, values, headers, matched), and of the flags alongside one
(side, end, number, matched)."""
SIDE_NAMES = ("left", "right")

StoredRow = tuple[bytes, bytes]


class JoinRow(NamedTuple):
    """A kept row. They sort by side, key, time, then arrival."""

    side: int
    key: bytes
    time: int
    end: int
    number: int
    """Of its block."""
    place: int
    """In its block."""
    value: bytes
    headers: Any
    matched: bool

    def shown(self, alone: Collection[int], plain: Callable[[bytes], Any]) -> dict[str, Any]:
        """The row for people. `alone`: the sides whose rows come out alone if they find no partner."""
        found: dict[str, Any] = {"side": SIDE_NAMES[self.side], "timestamp": self.time, "value": plain(self.value)}
        if self.side in alone:
            found["has_partner"] = self.matched
        if self.headers:
            found["headers"] = [[name, None if data is None else plain(data)] for name, data in self.headers]
        return found


def alone_of(kind: str) -> frozenset[int]:
    """The sides whose rows come out alone, by the kind of join in a schema.

    >>> alone_of("join left 10s"), alone_of("join inner 10s")
    (frozenset({0}), frozenset())
    """
    how = kind.removeprefix(JOIN).split(" ")[0]
    return frozenset(side for side in SIDES if preserves(how, side))


def others(rows: Iterable[StoredRow]) -> Iterator[StoredRow]:
    """The stored rows of a join's table that hold no kept rows, or cannot be read."""
    return ((raw, data) for raw, data in rows if not holds_window(raw) or _block(data) is None)


def kept_rows(scanned: Callable[[], Iterable[StoredRow]], meant: Collection[bytes], most: int) -> Iterator[JoinRow]:
    """At most `most` of the rows that a join's table holds, in order; only those with the keys `meant`, if there are any. `scanned` gives
    the stored rows; it is called twice."""
    flags = {(side, end, number): matched for side, end, number, matched in _stored(scanned(), FLAG_PARTS)}
    return iter(nsmallest(most, _rows(_stored(scanned(), ROW_PARTS), flags, meant)))


def _block(data: bytes) -> list[Any] | None:
    """A stored block, or the flags alongside one; None if it cannot be read."""
    try:
        found: Any = blocks().loads(parse_log_value(data).body)
    except HeadgateError:
        return None
    return cast("list[Any]", found) if isinstance(found, list) else None


def _stored(rows: Iterable[StoredRow], parts: int) -> Iterator[list[Any]]:
    """The stored rows of one form."""
    for raw, data in rows:
        found = _block(data) if holds_window(raw) else None
        if found is not None and len(found) == parts:
            yield found


def _rows(
    stored: Iterable[list[Any]], flags: dict[tuple[int, int, int], bytes], meant: Collection[bytes]
) -> Iterator[JoinRow]:
    for side, end, number, keys, times, values, headers, matched in stored:
        flagged = flags.get((side, end, number), bytes(len(keys)))
        named = dict(headers)
        for index, key in enumerate(keys):
            if not meant or key in meant:
                has = bool(matched[index] or flagged[index])
                yield JoinRow(side, key, times[index], end, number, index, values[index], named.get(index), has)
