"""What has happened to a job, newest first, as sentences: runs, leaders, workers, grants, failures, requests, configuration.

It is made from the records of the coordinator stream that a worker has kept (`coordinator.passed`). Grants to one worker that follow each
other closely are one event.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from ...core.coordination import messages as c
from ...core.names import natural
from ...core.secrets import masked
from .documents import time_of

MOST = 200
"""At most so many events are listed."""
MOST_NAMED = 4
CLOSE_MS = 3_000
"""Moves of a placement follow each other so closely."""


def history_of(entries: Iterable[c.Entry]) -> list[dict[str, Any]]:
    """The events. `entries`: records of the stream, oldest first."""
    events = list(_events(list(entries)))
    return [
        {"at": time_of(entry.append_ms or None), "kind": kind, "what": masked(what), "by": by, "why": masked(why)}
        for entry, kind, what, by, why in reversed(events[-MOST:])
    ]


_Event = tuple[c.Entry, str, str, str, str]


def _events(entries: list[c.Entry]) -> Iterator[_Event]:
    """Record, kind, what happened, who did it, and why."""
    run: c.SetRun | None = None
    requests = {one.message.uuid: one.message for one in entries if isinstance(one.message, c.SetRequest)}
    for some in _together(entries):
        entry, message = some[0], some[0].message
        if isinstance(message, c.SetGrant):
            yield _granted(some)
        elif isinstance(message, c.SetRun):
            yield from ((entry, "run", what, by, why) for what, by, why in run_changes(run, message))
            run = message
        elif isinstance(message, c.SetAnswer):
            asked = requests.get(message.uuid)
            verb = asked.verb if asked is not None else "a request"
            yield entry, "request", f"{verb}: {message.state}", "leader", message.why
        elif (plain := _plain(entry)) is not None:
            yield plain


def _together(entries: list[c.Entry]) -> Iterator[list[c.Entry]]:
    """Grants to one worker that follow each other closely are one event; everything else stands alone."""
    group: list[c.Entry] = []
    for entry in entries:
        if group and not _follows(group[-1], entry):
            yield group
            group = []
        group.append(entry)
    if group:
        yield group


def _follows(one: c.Entry, other: c.Entry) -> bool:
    if not isinstance(one.message, c.SetGrant) or not isinstance(other.message, c.SetGrant):
        return False
    return one.message.processor == other.message.processor and other.append_ms - one.append_ms <= CLOSE_MS


def _granted(entries: list[c.Entry]) -> _Event:
    grants = [one.message for one in entries if isinstance(one.message, c.SetGrant)]
    names = sorted((one.task for one in grants), key=natural)
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    died = ", after a death" if any(one.died for one in grants) else ""
    what = f"{', '.join(names[:MOST_NAMED])}{more} to {grants[0].processor}{died}"
    return entries[-1], "grant", what, "leader", ""


def _plain(entry: c.Entry) -> _Event | None:
    """An event of a record that stands for itself."""
    match entry.message:
        case c.SetLeader(processor=""):
            return entry, "leader", "the leader resigned", "", ""
        case c.SetLeader(term=term, processor=processor):
            return entry, "leader", f"{processor} leads, term {term}", processor, ""
        case c.SetProcessor(processor=processor, state=state):
            return entry, "worker", f"{processor} {state}", processor, ""
        case c.SetFence(processor=processor) if processor != c.FORGOTTEN:
            return entry, "worker", f"{processor} was fenced", "leader", ""
        case c.SetTaskState(task=task, why=why):
            return entry, "failure", f"{task} failed", "", why
        case c.SetRequest(verb=verb, requested_by=by):
            return entry, "request", f"{verb} was requested", by, ""
        case c.SetConfig(setting=setting, value=value, changes=changes):
            by = changes[-1].by if changes else ""
            return entry, "configuration", f"{setting} = {value!r}", by, ""
    return None


def run_changes(before: c.SetRun | None, now: c.SetRun) -> Iterator[tuple[str, str, str]]:
    """What differs between two records of the run: what happened, who did it, and why.

    >>> run = c.SetRun("r1", "d", c.RunState.RUNNING, "u")
    >>> [what for what, _, _ in run_changes(None, run)], list(run_changes(run, run))
    (['run r1 is running'], [])
    """
    other = before is None or before.run_id != now.run_id
    if other or before is None or before.state != now.state:
        yield f"run {now.run_id} is {now.state}", now.drain_by if now.state == c.RunState.DRAINING else "", now.failed
    was = frozenset[str]() if other or before is None else before.paused_streams
    paused_job = not other and before is not None and before.paused_job
    if now.paused_job != paused_job:
        yield "the job was paused" if now.paused_job else "the job goes on", "", ""
    for stream in sorted(now.paused_streams - was):
        yield f"{stream} was paused", "", ""
    for stream in sorted(was - now.paused_streams):
        yield f"{stream} goes on", "", ""
