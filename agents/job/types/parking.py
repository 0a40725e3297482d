"""Parking as users declare it, `on_error=hg.park(after="5m", times=5)`, and what the table `hg.parked` has of a record.

Promise: a declaration is checked at its own line.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ....core.errors import DeclarationError
from .arguments import duration

PARK = "park"
THEN = ("dead_letter", "skip", "fail")


@dataclass(frozen=True, slots=True)
class Park:
    """The policy that `hg.park(…)` returns: a record that fails is parked, and so are the later ones of its key."""

    after_ms: int = 300_000
    """How long a key waits before its first record is tried again."""
    times: int = 5
    """How often it is tried again."""
    max_parked: int = 10_000
    """How many records one task may have parked."""
    then: str = "dead_letter"
    """What becomes of a record that has failed as often as that."""
    hold_ms: int = 0
    """For how long, at most, a key that waits holds the event time of its stream."""


def park(
    *,
    after: str | float = "5m",
    times: int = 5,
    max_parked: int = 10_000,
    then: str = "dead_letter",
    hold: str | float = 0,
) -> Park:
    """An error policy: the record on which a step fails waits, and so do all later records of its key; the other keys go on.

    The first record of the key is tried again `after` this time, at most `times` times. Once it succeeds, the others follow, in their
    order. If it still fails, `then` says what becomes of it: `"dead_letter"`, `"skip"`, or `"fail"`, which fails the task. From then on
    each record of the key is tried once, until one succeeds.

    A task with more than `max_parked` records fails, and says so. `"park"` is the same as `hg.park()`.

    `hold`: for so long after a key has begun to wait, windows and timers behind it wait for its records. After that, time goes on, and a
    record is late for a window that has closed meanwhile. By default time does not wait.

    >>> park(after="30s", times=3)
    Park(after_ms=30000, times=3, max_parked=10000, then='dead_letter', hold_ms=0)
    """
    after_ms = duration(after, f"park(after={after!r})")
    if after_ms <= 0:
        raise DeclarationError(f"park(after={after!r})", remedy='a duration of more than 0, such as "5m"')
    for name, number in (("times", times), ("max_parked", max_parked)):
        if type(number) is not int or number < 1:
            raise DeclarationError(f"park({name}={number!r})", remedy="a whole number, at least 1")
    if then not in THEN:
        raise DeclarationError(f"park(then={then!r})", remedy=f"one of {', '.join(map(repr, THEN))}")
    hold_ms = duration(hold, f"park(hold={hold!r})")
    if hold_ms < 0:
        raise DeclarationError(f"park(hold={hold!r})", remedy='a duration, such as "1m", or 0: time does not wait')
    return Park(after_ms, times, max_parked, then, hold_ms)


@dataclass(frozen=True, slots=True)
class ParkedRow:
    """A parked record, as its table has it. `tries`, `due_ms` and `most` are those of its key, if it is the first one."""

    stream: str
    partition: int
    key: bytes | None
    offset: int
    row: int | None
    value: bytes | None
    timestamp: int
    headers: Sequence[Sequence[Any]]
    plan: int | None
    made_of: str
    since_ms: int
    tries: int = 0
    due_ms: int = 0
    most: int = 0
    why: str = ""
    until_ms: int = 0
    """Until then its key holds time; 0 if it never did."""
    time: int = 0
    """Its event time, if its key holds time."""

    @property
    def untried(self) -> bool:
        """Whether it has not failed yet: it waits behind another one, or did so until now."""
        return not self.tries and not self.due_ms

    def packed(self, tries: int, due_ms: int, most: int, why: str) -> list[Any]:
        """As it is stored, with this of its key."""
        headers = [list(one) for one in self.headers]
        own = [self.stream, self.partition, self.key, self.offset, self.row, self.value, self.timestamp, headers]
        held = [self.until_ms, self.time] if self.until_ms else []
        return [*own, self.plan, self.made_of, self.since_ms, tries, due_ms, most, why, *held]

    @property
    def shown(self) -> dict[str, Any]:
        """For people. A record behind another one says nothing of tries."""
        where = {"stream": self.stream, "partition": self.partition, "offset": self.offset, "row": self.row}
        own = {
            "key": shown_bytes(self.key), "value": shown_bytes(self.value),
            "headers": [[name, shown_bytes(value)] for name, value in self.headers],
            "timestamp": self.timestamp, "since": self.since_ms,
        }  # fmt: skip
        first = {} if self.untried else {"tries": self.tries, "due": self.due_ms, "why": self.why}
        return {**where, **own, **first}


def shown_bytes(data: bytes | None) -> str | None:
    """Bytes as text, if they are text, else in hexadecimal digits behind `0x`, with which no text begins.

    >>> shown_bytes(b"ann"), shown_bytes(b"\\xff"), shown_bytes(b"0xff")
    ('ann', '0xff', '0x30786666')
    """
    if data is None:
        return None
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return f"0x{data.hex()}"
    return text if text.isprintable() and not text.startswith("0x") else f"0x{data.hex()}"
