"""Which jobs a cascade drains behind a job, and in which order.

What it decides: a job follows if its run reads a stream that a drained job shares (`SetRun.reads`). It is drained after all of its
producers that take part, and then still reads what these have shared. Jobs that read each other in a cycle have no order, so they are
refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ..errors import HeadgateError

Reads = Mapping[str, tuple[str, ...]]
"""Stream → the jobs that produce it."""


class Following(NamedTuple):
    """A job that is drained behind others, and the streams that it reads up to their ends before."""

    job: str
    streams: tuple[str, ...]


def followers(first: str, reads: Mapping[str, Reads]) -> list[Following]:
    """The jobs to drain behind `first`, in order. `reads`: what each job reads of others. Raises `HeadgateError` for a circle.

    >>> followers("a/1", {"a/1": {}, "b/1": {"s": ("a/1",)}, "c/1": {"s": ("a/1",), "t": ("b/1", "x/1")}})
    [Following(job='b/1', streams=('s',)), Following(job='c/1', streams=('s', 't'))]
    """
    behind = {job: {producer for producers in own.values() for producer in producers} for job, own in reads.items()}
    part, news = {first}, {first}
    while news:
        news = {job for job, producers in behind.items() if producers & news} - part
        part |= news
    waits = {job: (behind.get(job, set()) & part) - ({first} if job != first else set()) for job in part}
    waits[first] = behind.get(first, set()) & part
    found: list[Following] = []
    if waits.pop(first):
        raise _circle(part)
    while waits:
        ready = sorted(job for job, producers in waits.items() if not producers)
        if not ready:
            raise _circle(set(waits))
        for job in ready:
            del waits[job]
            streams = (stream for stream, producers in reads[job].items() if part.intersection(producers))
            found.append(Following(job, tuple(sorted(streams))))
        for producers in waits.values():
            producers.difference_update(ready)
    return found


def _circle(jobs: set[str]) -> HeadgateError:
    return HeadgateError(
        f"the jobs {', '.join(sorted(jobs))} read each other in a cycle, so none of them can be drained last",
        remedy="drain them one by one, without --cascade",
    )
