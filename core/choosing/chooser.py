"""The interface between intake and choosers, including a user's own: which partition a task reads next, and how much of it.

The intake shows a chooser one `Head` for each partition of the task, including empty and paused ones. The chooser returns a `Choice`: this
partition, at most so many records, not beyond that offset or timestamp. Or it returns a `Wait`: nothing now, ask again when something has
changed or at that time. Afterwards the intake reports how much of a choice was really taken (`taken`). Choosers order partitions relative
to each other; each partition is always read in its own order.

Promises of every chooser (`checked` enforces them for a user's own): it chooses only what is `takeable`. It asks for at least one record
and for no more than are ready. Its bounds admit the first record, so every choice makes progress. It reads no clock, and the same heads and
times give the same choices.

    Bootstrap( Drift( Tiers( Batching( round robin | time aligned | starting alignment | a user's own chooser ) ) )

`stack` builds this; `layers` and `rules` contain the parts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from ..names import StreamPartition


@dataclass(slots=True)
class Head:
    """The head of one partition's buffer. The intake keeps one for each partition, and updates it before it calls the chooser.

    A control frame at the head counts as one ready record with the timestamp `NO_TIME`, so that nothing waits for it.

    >>> Head(StreamPartition("orders", 0), ready=3, offset=17, timestamp=1000).takeable
    True
    """

    at: StreamPartition
    ready: int = 0
    """Records that could form a chunk now: buffered, at most a chunk, and up to the next control frame. 0: the buffer is empty."""
    offset: int = 0
    """The offset of the first record. If the buffer is empty, the position, which also advances over aborted transactions."""
    timestamp: int = 0
    end: int | None = None
    """The end of the partition, from the broker's last answer."""
    start_end: int | None = None
    """The read-committed end of the partition at this start, as next offset. Streams of the job itself have none."""
    start_unknown: bool = False
    """Such an end is needed but not known yet; until then the partition has not reached it."""
    bootstrap: bool = False
    paused: bool = False
    draining: bool = False
    """Nothing more is fetched; what is ready can still be taken."""
    ended: bool = False
    """Nothing more is taken."""
    bulk: int = 1
    """How many of its records cost as much as one row: more than one if they are read in columns. Where a number of records bounds the work
    of a turn, it is multiplied by this. Their chunks are bounded in bytes, so fewer than chosen may be taken."""
    value: object = None
    """The decoded first record, only for choosers that declare `needs = {"value"}`."""

    @property
    def takeable(self) -> bool:
        return self.ready > 0 and not self.paused and not self.ended

    @property
    def active(self) -> bool:
        """Whether more records may come: it is not paused, ended or draining."""
        return not (self.paused or self.ended or self.draining)

    @property
    def lagging(self) -> bool:
        """Whether the partition has not reached the end that it had at the start, but can. An ended partition has reached it, and so has a
        draining one with an empty buffer.
        """
        if self.ended or (self.draining and (self.ready == 0 or self.paused)):
            return False
        return self.start_unknown or (self.start_end is not None and self.offset < self.start_end)


class Choice(NamedTuple):
    """Take from this partition: up to `max_records`, only offsets below `up_to_offset`, and no timestamp above `up_to_timestamp`."""

    at: StreamPartition
    max_records: int
    up_to_timestamp: int | None = None
    up_to_offset: int | None = None


class Wait(NamedTuple):
    """Take nothing now. Ask again when a head has changed, and no later than `until` (monotonic seconds), if given."""

    until: float | None = None
    why: str = ""


class Chooser(Protocol):
    """Anything that chooses. Returning None means `Wait()`.

    A user's own chooser, named by its import path, has this interface; `taken` is optional, and a plain function is enough:

    >>> def loudest(heads, now):
    ...     best = max((head for head in heads if head.takeable), key=lambda head: head.ready, default=None)
    ...     return best and Choice(best.at, best.ready)
    """

    def choose(self, heads: Sequence[Head], now: float) -> Choice | Wait | None:
        """The next partition, at monotonic time `now`. The heads belong to the caller: do not keep or change them."""
        ...

    def taken(self, choice: Choice, records: int) -> None:
        """The number of records that were taken for the choice just made."""
        ...

    def describe(self) -> Mapping[str, object]:
        """The chooser's state for people and status pages, as plain values."""
        ...


class Rule(Chooser, Protocol):
    """A chooser that can say whether it may stay with a partition, so that batches can be read under it."""

    def stay(self, head: Head, heads: Sequence[Head], now: float) -> Choice | None:
        """As much of this (takeable) partition as the rule allows now; None if it is another partition's turn."""
        ...


def sooner(one: float | None, other: float | None) -> float | None:
    """The earlier of two times, each of which may be None for never.

    >>> sooner(None, 3.0), sooner(2.0, 3.0), sooner(None, None)
    (3.0, 2.0, None)
    """
    if one is None or other is None:
        return other if one is None else one
    return min(one, other)


def listed(heads: Iterable[Head], most: int = 3) -> str:
    """Partitions for people; only the first few.

    >>> listed([Head(StreamPartition("a", n)) for n in range(5)])
    'a:0, a:1, a:2 and 2 more'
    """
    names = [str(head.at) for head in heads]
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
