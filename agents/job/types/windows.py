"""Windows as users declare them: `hg.tumbling("10s", grace="2s")`.

Promise: a declaration is checked at its own line.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from ....core.errors import DeclarationError
from ....core.windows.joins import Distance
from ....core.windows.results import START_FIELD
from ....core.windows.spans import MOST_WINDOWS, Spans
from ...records.values.record import Record
from .arguments import called_from, duration

UNITS = (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000))


@dataclass(frozen=True, slots=True)
class Window:
    """What `hg.tumbling(…)`, `hg.hopping(…)`, `hg.session(…)` and `hg.sliding(…)` return; pass it to `.window(…)`."""

    kind: str
    spans: Spans | None
    """None for sessions and sliding windows."""
    grace_ms: int
    gap_ms: int = 0
    """For sessions: the longest gap between neighbouring rows. For sliding windows: their size."""
    by_clock: bool = False
    """Assigns a row by the time at which it is processed, not by its own time."""
    where: str = field(default="", compare=False)

    def __str__(self) -> str:
        spans = self.spans
        if spans is None:
            return f"{self.kind}-{said(self.gap_ms)}{'-by-clock' if self.by_clock else ''}"
        parts = [self.kind, said(spans.size)]
        parts += [f"every-{said(spans.every)}"] if spans.every != spans.size else []
        parts += [f"at-{said(spans.offset)}"] if spans.offset else []
        parts += ["by-clock"] if self.by_clock else []
        return "-".join(parts)

    @property
    def holds_ms(self) -> int:
        """By how much a result may be older than the time that closes its window. A session closes only when time has passed its end."""
        return self.grace_ms + (1 if self.of_sessions else 0)

    @property
    def sliding(self) -> bool:
        """Whether each row has a window of its own."""
        return self.kind == "sliding"

    @property
    def of_sessions(self) -> bool:
        """Whether windows grow with their rows."""
        return self.kind == "session"

    @property
    def size_ms(self) -> int:
        """The length of a window; for sessions, the shortest length."""
        return self.gap_ms if self.spans is None else self.spans.size


def said(ms: int) -> str:
    """A duration as users write it.

    >>> said(90_000), said(60_000), said(1500)
    ('90s', '1m', '1500ms')
    """
    return next((f"{ms // of}{unit}" for unit, of in UNITS if ms and ms % of == 0), f"{ms}ms")


def tumbling(
    size: str | float,
    *,
    grace: str | float = 0,
    offset: str | float = 0,
    time: Literal["event", "processing"] = "event",
) -> Window:
    """Windows of one size, one after the other. They begin at whole multiples of `size` since 1970 (UTC), plus `offset`.

    `grace`: how long after its end a window still accepts rows; then it closes. With `time="processing"`, a row belongs to the window of
    the time at which it is processed, whatever its own time, and the worker's clock closes the windows.

    >>> str(tumbling("1m", grace="10s"))
    'tumbling-1m'
    """
    length = length_of(size, "tumbling(size)")
    return _fixed("tumbling", length, length, grace, offset, time)


def hopping(
    size: str | float,
    every: str | float,
    *,
    grace: str | float = 0,
    offset: str | float = 0,
    time: Literal["event", "processing"] = "event",
) -> Window:
    """Windows of one size that start at intervals of `every`. A row is in every window that contains its time, of which there may be
    1,500. Each of them takes work and memory, so let windows overlap no more than you need.

    >>> str(hopping("1m", every="10s"))
    'hopping-1m-every-10s'
    """
    length, step = length_of(size, "hopping(size)"), length_of(every, "hopping(every)")
    if step > length:
        raise DeclarationError(
            f"hopping({size!r}, every={every!r}): rows between two windows would be in none",
            remedy="every= is at most the size; leave rows out with .filter(…)",
        )
    found = _fixed("hopping", length, step, grace, offset, time)
    assert found.spans is not None
    if found.spans.held_by > MOST_WINDOWS:
        raise DeclarationError(
            f"hopping({size!r}, every={every!r}): each row would be in {found.spans.held_by:,} windows, and each of them keeps a state of "
            f"its own; at most {MOST_WINDOWS:,} may hold a row",
            remedy=f"a larger every= (at least {said(-(-length // MOST_WINDOWS))}), or shorter windows",
        )
    return found


def session(gap: str | float, *, grace: str | float = 0, time: Literal["event", "processing"] = "event") -> Window:
    """Windows that grow with the rows of a key, as long as no row is farther than `gap` from the next. A session ends `gap` after its last
    row.

    >>> str(session("30m"))
    'session-30m'
    """
    length = length_of(gap, "session(gap)")
    late, clock = _times("session", grace, time)
    return Window("session", None, late, length, clock, called_from())


def sliding(size: str | float, *, grace: str | float = 0, time: Literal["event", "processing"] = "event") -> Window:
    """A window for each row: the time before it, `size` long, up to and including the row and others of the same time. Each row has one
    result, which comes when no earlier row is expected any more. `hg.last(…)` is of the row itself.

    >>> str(sliding("10m"))
    'sliding-10m'
    """
    length = length_of(size, "sliding(size)")
    late, clock = _times("sliding", grace, time)
    return Window("sliding", None, late, length, clock, called_from())


def _fixed(kind: str, size: int, every: int, grace: str | float, offset: str | float, time: str) -> Window:
    shift = duration(offset, f"{kind}(offset)")
    if shift >= every:
        raise DeclarationError(
            f"{kind}(offset={offset!r}) is not shorter than the distance of two windows ({said(every)})",
            remedy="windows repeat, so a shorter offset says the same",
        )
    late, clock = _times(kind, grace, time)
    return Window(kind, Spans(size, every, shift), late, by_clock=clock, where=called_from())


def _times(kind: str, grace: str | float, time: str) -> tuple[int, bool]:
    """The grace in ms, and whether windows follow the clock."""
    if time not in ("event", "processing"):
        raise DeclarationError(f"{kind}(time={time!r})", remedy="'event' or 'processing'")
    late, clock = duration(grace, f"{kind}(grace)"), time == "processing"
    if clock and late:
        raise DeclarationError(
            f'{kind}(grace={grace!r}, time="processing"): no row comes late by the clock', remedy="omit grace="
        )
    return late, clock


def length_of(given: str | float, what: str) -> int:
    ms = duration(given, what)
    if ms < 1:
        raise DeclarationError(f"{what}={given!r} is no time at all", remedy="at least 1ms")
    return ms


def window_key(record: Record[Any, Any]) -> tuple[Any, int]:
    """The key of a result together with the start of its window, for `to(…, key=hg.window_key)`: a compacted topic then keeps the last
    result of each key and window, not only of each key. The window is read from the field `window_start` or, if the value is no mapping,
    from the header `hg-window`. `hg.key()` encodes the key as a tuple, unless `key_serde=` says otherwise.

    >>> window_key(Record("DE", {"n": 3, "window_start": 60_000}, 0))
    ('DE', 60000)
    """
    return record.key, record.value[START_FIELD]


def distance_said(distance: Distance) -> str:
    """A distance as part of a name."""
    if distance.before == distance.after:
        return said(distance.before)
    return f"{said(distance.before)}-{said(distance.after)}"
