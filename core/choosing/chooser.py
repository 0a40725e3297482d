"""Which partition a task reads next, and how much of it: what intake, choosers, and a chooser of your own say to one another.

The intake shows a chooser one `Head` for each partition of the task, empty and paused ones included, and is told a `Choice`: this
partition, at most so many records, not beyond that offset or that timestamp. Or a `Wait`: nothing now, ask again when something has
changed or at that time. What was really taken of a choice is said afterwards (`taken`). Choosers order partitions among each other; a
partition is always read in its own order.

What every chooser promises (`chooser_checked` holds a user's own to it): it chooses only what is `takeable`; it asks for at least one
record and for no more than are ready; its bounds let the head record through, so a choice always moves on; it does not look at a
clock, and the same heads and times give the same choices.

    Bootstrap( Tiers( Batching( round robin | time aligned | starting alignment | a chooser of your own ) ) )

`chooser_stack` builds this, `chooser_layers` and `chooser_rules` hold the parts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from ..names import StreamPartition


@dataclass(slots=True)
class Head:
    """What stands at the head of one partition's buffer. The intake keeps one for each and brings it up to date before it asks.

    A control frame at the head is one record that is ready, with `NO_TIME` as its timestamp, so that nothing waits for it.

    >>> Head(StreamPartition("orders", 0), ready=3, offset=17, timestamp=1000).takeable
    True
    """

    at: StreamPartition
    ready: int = 0
    """Records that could be one chunk now: buffered, at most a chunk, and up to the next control frame. 0 = the buffer is empty."""
    offset: int = 0
    """Of the head record; with an empty buffer the position, which also advances over aborted transactions."""
    timestamp: int = 0
    end: int | None = None
    """The end as last heard from the broker."""
    start_end: int | None = None
    """The read-committed end that was taken at this start, as next offset. Streams of the job itself have none."""
    start_unknown: bool = False
    """It will have such an end, and nobody has heard of it yet: until then it has not reached it."""
    bootstrap: bool = False
    paused: bool = False
    draining: bool = False
    """Nothing more is fetched; what is ready is still to be taken."""
    ended: bool = False
    """Nothing of it is taken any more."""
    value: object = None
    """The decoded head record, only for choosers that declare `needs = {"value"}`."""

    @property
    def takeable(self) -> bool:
        return self.ready > 0 and not self.paused and not self.ended

    @property
    def active(self) -> bool:
        """More may come: it is neither paused nor at its last record."""
        return not (self.paused or self.ended or self.draining)

    @property
    def lagging(self) -> bool:
        """Not yet where the stream ended at start, and able to get there: what has ended is there, and so is what drains, once its
        buffer is empty."""
        if self.ended or (self.draining and (self.ready == 0 or self.paused)):
            return False
        return self.start_unknown or (self.start_end is not None and self.offset < self.start_end)


class Choice(NamedTuple):
    """Take this partition: up to `max_records`, only offsets below `up_to_offset`, and stop before a timestamp above `up_to_timestamp`."""

    at: StreamPartition
    max_records: int
    up_to_timestamp: int | None = None
    up_to_offset: int | None = None


class Wait(NamedTuple):
    """Nothing now. Ask again when a head has changed, and at the latest at `until` (monotonic seconds), if there is one."""

    until: float | None = None
    why: str = ""


class Chooser(Protocol):
    """Anything that chooses. None means `Wait()`.

    A chooser of your own, named by import path, has this shape; `taken` may be missing, and a plain function is enough:

    >>> def loudest(heads, now):
    ...     ready = [head for head in heads if head.takeable]
    ...     return Choice(max(ready, key=lambda head: head.ready).at, 100) if ready else None
    """

    def choose(self, heads: Sequence[Head], now: float) -> Choice | Wait | None:
        """The next partition, at monotonic time `now`. The heads are the caller's: neither keep nor change them."""
        ...

    def taken(self, choice: Choice, records: int) -> None:
        """So many records were taken of the choice that was just made."""
        ...

    def describe(self) -> Mapping[str, object]:
        """Its state for people and status pages, plain values."""
        ...


class Rule(Chooser, Protocol):
    """A chooser that can say whether staying with a partition keeps what it promises, so that batches may be read by it."""

    def stay(self, head: Head, heads: Sequence[Head], now: float) -> Choice | None:
        """As much of this (takeable) partition as the rule allows now; None if it is another's turn by right."""
        ...


def sooner(one: float | None, other: float | None) -> float | None:
    """The earlier of two times, either of which may be never.

    >>> sooner(None, 3.0), sooner(2.0, 3.0), sooner(None, None)
    (3.0, 2.0, None)
    """
    if one is None or other is None:
        return other if one is None else one
    return min(one, other)


def listed(heads: Iterable[Head], most: int = 3) -> str:
    """Partitions for people, not all of them.

    >>> listed([Head(StreamPartition("a", n)) for n in range(5)])
    'a:0, a:1, a:2 and 2 more'
    """
    names = [str(head.at) for head in heads]
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
