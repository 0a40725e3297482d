"""What the parts of a process need that have spans: to begin one, and to end it. `otel` makes them, and knows OpenTelemetry.

What it decides: which work has a span. Of chunks and other letters as many as `trace.sample` says, chosen at random, and besides those of
which the work before is traced, so that a trace is seen to its end. All else (commits of traced work, restores, moves, batches) always has
one while anything is traced.

Promises: while nothing is traced, a letter costs one look at `on`, and nothing of OpenTelemetry is imported.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Protocol

from .contexts import NO_LINKS, Links, TraceContext

ENDS_S = 2.0
"""So long may the end of a process wait for its last spans."""
AttributeValue = str | bool | int | float | list[str]
Attributes = Mapping[str, AttributeValue]


class TraceSpan(Protocol):
    """Work that is under way."""

    @property
    def context(self) -> TraceContext:
        """Which span it is."""
        ...

    def current(self) -> AbstractContextManager[object]:
        """While this lasts, spans that user code makes are part of this one."""
        ...

    def failed(self, why: str) -> None:
        """The work has failed."""
        ...

    def end(self, attributes: Attributes | None = None) -> None:
        """The work is over."""
        ...


class TraceSpans(Protocol):
    """Makes spans, and sends them in a thread of its own."""

    @property
    def sent(self) -> int:
        """How many spans were sent."""
        ...

    @property
    def dropped(self) -> int:
        """How many spans were not sent: the receiver was away, or did not keep up."""
        ...

    def begin(
        self, name: str, attributes: Attributes, links: Links, *, consumes: bool, began_ns: int | None
    ) -> TraceSpan:
        """See `Traces.begin`."""
        ...

    def stop(self, within_s: float) -> None:
        """Send what is there, for so long, and end."""
        ...


class Traces:
    """The spans of one process. Operators switch them on and off while it runs."""

    def __init__(self, make: Callable[[], TraceSpans], chance: Callable[[], float] = random.random) -> None:
        """`make` is called when something shall be traced for the first time."""
        self._make = make
        self._chance = chance
        self._share = 0.0
        self.spans: TraceSpans | None = None
        self.on = False
        """Whether anything is traced."""
        self.propagates = False
        """Whether records of outputs name the span that wrote them."""

    def take(self, share: float, *, propagates: bool) -> None:
        """From now on trace this share of the chunks, unless OpenTelemetry is switched off for this process. Raises what `make` raises."""
        if os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
            share = 0.0
        if share > 0 and self.spans is None:
            self.spans = self._make()
        self._share, self.on = share, share > 0
        self.propagates = self.on and propagates

    def stop(self) -> None:
        """The process ends: send what is there, for a moment."""
        self.on = self.propagates = False
        if self.spans is not None:
            self.spans.stop(ENDS_S)

    def chosen(self) -> bool:
        """Whether a letter is traced for its own sake."""
        return self._chance() < self._share

    def begin(
        self,
        name: str,
        attributes: Attributes,
        links: Links = NO_LINKS,
        *,
        consumes: bool = False,
        began_ns: int | None = None,
    ) -> TraceSpan | None:
        """Begin a span; None if nothing is traced. `consumes`: its work is records of a topic. `began_ns`: when the work began, since the
        epoch, if that was not just now."""
        if self.spans is None or not self.on:
            return None
        more: Attributes = {"headgate.links.dropped": links.dropped} if links.dropped else {}
        return self.spans.begin(name, {**attributes, **more}, links, consumes=consumes, began_ns=began_ns)


def _none() -> TraceSpans:
    raise AssertionError("a process without traces takes no setting of them")


class NoTraces(Traces):
    """Of a process of which nothing is ever traced: a test driver, a simulator."""

    def __init__(self) -> None:
        super().__init__(_none)

    def take(self, share: float, *, propagates: bool) -> None:
        """See `Traces`."""
