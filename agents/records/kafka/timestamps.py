"""Kafka's timestamp of a record, and its event time: the two clocks meet here and nowhere else.

    written     the event time, where the target accepts it
                the nearest time that the target accepts, and the event time in the header `hg-time`, where it does not
    read        the header `hg-time` where a record has one, Kafka's timestamp where it has none

A target accepts a timestamp that is neither before 1970 nor outside of its `message.timestamp.before.max.ms` and `….after.max.ms`. A topic
with LogAppendTime accepts everything and keeps its own time, as whoever made it wants.

Promises: no event time makes a record unwritable; a record that a job copies from an input never keeps the `hg-time` that it had there.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any, NamedTuple

from ..layout import Buffer, longs
from ..limits import NO_TIMESTAMP
from ..memory.event_time import LAST_TIME, are_times, is_time
from ..memory.longs import extremes
from ..memory.record_spans import RecordSpans, pieces
from .columns import Header, RecordLists
from .spans import SpannedColumns, SpannedRecords, headers_of
from .target_rules import Rules
from .writable import whole_ms

TIME_HEADER = "hg-time"
EVENT_TIME = "hg-event-time"
"""The header of a dead letter with the `hg-time` of its record: the letter has a time of its own."""
_NAME = TIME_HEADER.encode()
PAIRS = frozenset((list, tuple))
"""The headers of a record, unless user code gives others."""
SLACK_MS = 60_000
"""How far inside of a limit a changed timestamp lies: the broker's clock may be another one, and a batch waits before it is sent."""


class Stamped(NamedTuple):
    """What a record is written with. `changed`: how many of the records have another timestamp than their event time."""

    timestamps: Sequence[int] | int
    headers: Sequence[Any] | None
    changed: int = 0


class Accepted(NamedTuple):
    """The timestamps that a target accepts now, and between which it gets those that it does not accept."""

    least: int
    greatest: int
    low: int
    high: int

    def all_of(self, earliest: int, oldest: int | None, newest: int) -> bool:
        """Whether it accepts all of these. `oldest`: the least one that is not `NO_TIMESTAMP`, to which no limit applies."""
        return earliest >= NO_TIMESTAMP and newest <= self.greatest and (oldest is None or oldest >= self.least)

    def nearest(self, ms: int) -> int:
        """This timestamp, or the nearest one that is accepted."""
        if ms == NO_TIMESTAMP or self.least <= ms <= self.greatest:
            return ms
        return self.high if ms > self.greatest else self.low


ANY = Accepted(0, LAST_TIME, 0, LAST_TIME)
"""What a target without limits accepts."""


def accepted(rules: Rules, now_ms: int) -> Accepted:
    """What a target with these rules accepts at this time of its broker.

    >>> accepted(Rules(after_ms=3_600_000), 10_000_000)
    Accepted(least=0, greatest=13600000, low=0, high=13540000)
    """
    least, greatest, low, high = ANY
    if rules.before_ms is not None:
        least = max(0, now_ms - rules.before_ms)
        low = min(now_ms, least + min(SLACK_MS, rules.before_ms // 2)) if least else 0
    if rules.after_ms is not None:
        greatest = now_ms + rules.after_ms
        high = greatest - min(SLACK_MS, rules.after_ms)
    return Accepted(least, greatest, low, high)


def stamped(
    topic: str, count: int, times: Sequence[Any] | int, headers: Sequence[Any] | None, limits: Accepted
) -> Stamped:
    """Kafka's timestamps of so many records with these event times, and their headers. Raises `Unwritable` for what is no time at all.

    >>> stamped("out", 2, [5, 900], None, Accepted(0, 100, 0, 90))
    Stamped(timestamps=[5, 90], headers=[[], [('hg-time', b'900')]], changed=1)
    """
    if isinstance(times, int):
        if limits.nearest(times) == times and not _named(headers):
            return Stamped(times, headers)
        times = [times] * count
    elif _fits(times, limits) and not _named(headers):
        return Stamped(times, headers)
    whole = [whole_ms(one, f"timestamp for {topic}", index) for index, one in enumerate(times)]
    stamps = [limits.nearest(one) for one in whole]
    pairs: list[Any] = [[] for _ in whole] if headers is None else [_without(one) for one in headers]
    changed = 0
    for index, (stamp, time) in enumerate(zip(stamps, whole, strict=True)):
        if stamp != time:
            changed += 1
            pairs[index] = [*pairs[index], (TIME_HEADER, str(time).encode())]
    return Stamped(stamps, pairs if changed or headers is not None else None, changed)


def _fits(times: Sequence[Any], limits: Accepted) -> bool:
    """Whether the target accepts all of these; what cannot be compared is no time, and is refused elsewhere."""
    try:
        return are_times(times if isinstance(times, list) else list(times), limits.least, limits.greatest)
    except TypeError:
        return False


def _named(headers: Sequence[Any] | None) -> bool:
    """Whether a record has an event time in its headers."""
    if headers is None:
        return False
    try:
        return any(name == TIME_HEADER for pairs in headers if type(pairs) in PAIRS for name, _ in pairs)
    except (TypeError, ValueError):
        return False  # these are no headers: `writable` says what is wrong with them


def _without(pairs: Any) -> Any:
    if type(pairs) not in PAIRS or not _named([pairs]):
        return pairs
    return [(name, value) for name, value in pairs if name != TIME_HEADER]


def names_times(headers: RecordSpans | None) -> bool:
    """Whether a record among these may have an event time in its headers; if not, none has."""
    if headers is None:
        return False
    if not len(longs(headers.offsets)):
        return False
    (first, last), (_, most) = extremes(headers.offsets), extremes(headers.lengths)
    return _NAME in bytes(memoryview(headers.buffer).cast("B")[max(first, 0) : last + max(most, 0)])


# ------------------------------------------------------------------------------------------------------------- reading


def times_of(records: SpannedColumns | RecordLists) -> list[int]:
    """The event times of records of a topic."""
    headers = records.headers
    if not _named(headers):
        return records.timestamps
    assert headers is not None
    return [_time(pairs, stamp) for pairs, stamp in zip(headers, records.timestamps, strict=True)]


def times_of_spans(records: SpannedRecords) -> Buffer:
    """As `times_of`, of records that lie in buffers."""
    if not names_times(records.headers):
        return records.timestamps
    assert records.headers is not None
    found = zip(map(headers_of, pieces(records.headers)), longs(records.timestamps), strict=True)
    return array("q", [_time(pairs, stamp) for pairs, stamp in found])


def _time(pairs: Sequence[Header], stamp: int) -> int:
    """The event time of one record. A header that is no number is not ours."""
    said = next((value for name, value in pairs if name == TIME_HEADER), None)
    if said is None:
        return stamp
    try:
        found = int(said)
    except ValueError:
        return stamp
    return found if is_time(found) else stamp
