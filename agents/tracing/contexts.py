"""Which span work belongs to, as W3C's header `traceparent` says it, and which spans it links to.

What it decides: which contexts a list of such headers names. Promises: anyone may have written them, so any bytes give a context or none;
what it links to is bounded, and what was left out is counted.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

MOST_LINKS = 128
"""A span has at most so many links: OpenTelemetry's own bound."""
_FORM = re.compile(
    rb"(?P<version>[0-9a-f]{2})-(?P<trace>[0-9a-f]{32})-(?P<span>[0-9a-f]{16})-(?P<flags>[0-9a-f]{2})(?P<more>-.*)?"
)


class TraceContext(NamedTuple):
    """A span, wherever it was made."""

    trace: int
    span: int
    sampled: bool = True
    """Whether it is recorded."""

    @property
    def header(self) -> bytes:
        """The header that names it.

        >>> TraceContext(0xAB, 1).header
        b'00-000000000000000000000000000000ab-0000000000000001-01'
        """
        return b"00-%032x-%016x-%02x" % (self.trace, self.span, self.sampled)


class Links(NamedTuple):
    """Spans that another one links to. `dropped`: so many more there were."""

    contexts: tuple[TraceContext, ...] = ()
    dropped: int = 0


NO_LINKS = Links()


def context_of(header: bytes) -> TraceContext | None:
    """The span that a header names; None if it names none.

    >>> context_of(b"00-000000000000000000000000000000ab-0000000000000001-01") == TraceContext(0xAB, 1), context_of(b"soon")
    (True, None)
    """
    match = _FORM.fullmatch(header)
    if match is None or match["version"] == b"ff" or (match["version"] == b"00" and match["more"]):
        return None
    trace, span = int(match["trace"], 16), int(match["span"], 16)
    return TraceContext(trace, span, bool(int(match["flags"], 16) & 1)) if trace and span else None


def links_of(headers: Iterable[bytes | None]) -> Links:
    """The spans that these headers name, each once, in their order."""
    found = map(context_of, dict.fromkeys(one for one in headers if one))
    return bounded(dict.fromkeys(one for one in found if one is not None))


def bounded(contexts: Iterable[TraceContext], dropped: int = 0) -> Links:
    """Links to these spans, as many as may be. `dropped`: so many were left out before."""
    every = tuple(contexts)
    return Links(every[:MOST_LINKS], dropped + max(0, len(every) - MOST_LINKS))
