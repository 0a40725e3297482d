"""Whether a local store may be trusted, and where reading starts. Pure functions for the restart of a task.

Promises:

- A store is used only if it belongs to this job, its position is within its log, and no deleted key can reappear from it: it is at the
  log's end, or was there so recently that no tombstone that it has not seen can have been compacted away. A new store is as old as the
  first restore that wrote to it, however often that was interrupted: a value that a restore reads is not compacted yet, and Kafka keeps
  the tombstone behind it for the whole `delete.retention.ms` from the compaction that removes the value.
- Where a partition starts and ends is decided once: from the checkpoint if it contains that, else from the declaration. A bound that the
  broker must resolve is durable before the first record is read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ..names import StreamPartition
from .plan import Bound, InputPlan
from .protocol import LogEnds, StoreOpened


def distrust(store: StoreOpened, log: LogEnds, job_uuid: str, wall_ms: int) -> str:
    """Why this store must be wiped before restoring; empty if it may be used.

    >>> distrust(StoreOpened(), LogEnds(0, 9, 1000), "u", 0)
    ''
    >>> distrust(StoreOpened(5, "u", 0), LogEnds(0, 9, 1000), "u", 501)
    'it last was at the end of its log 501 ms ago, and deleted keys could reappear after 500 ms'
    """
    if store.position is None:
        return ""
    if store.job_uuid != job_uuid:
        return f"it belongs to job uuid {store.job_uuid}, and this job is {job_uuid}"
    if store.position > log.end:
        return f"its position is {store.position}, but its log ends at {log.end}: the log was re-created"
    if store.position == log.end:
        return ""
    if store.position < log.start:
        return f"its position is {store.position}, but its log begins at {log.start}"
    return tombstones_gone(store, log, wall_ms)


def tombstones_gone(store: StoreOpened, log: LogEnds, wall_ms: int) -> str:
    """Why a store behind its log may have missed tombstones that compaction has already removed; empty if it cannot have."""
    limit = log.delete_retention_ms // 2
    if store.followed_until_ms is None:
        return "it is unknown when it last was at the end of its log, so deleted keys could reappear"
    age = wall_ms - store.followed_until_ms
    if age < 0:
        return f"the clock was set back: it last was at the end of its log {-age} ms in the future, so deleted keys could reappear"
    if age >= limit:
        return f"it last was at the end of its log {age} ms ago, and deleted keys could reappear after {limit} ms"
    return ""


@dataclass(frozen=True, slots=True)
class Beginning:
    """Where each partition starts and ends, as far as it is known, and what the broker must resolve."""

    positions: Mapping[StreamPartition, int]
    until: Mapping[StreamPartition, int]
    ask_positions: Mapping[StreamPartition, Bound]
    ask_until: Mapping[StreamPartition, Bound]
    news: bool
    """Whether it contains anything that the checkpoint does not."""


def beginning(
    inputs: Iterable[InputPlan],
    positions: Mapping[StreamPartition, int],
    until: Mapping[StreamPartition, int],
    *,
    new_run: bool,
) -> Beginning:
    """Where to start and to end, given the checkpoint's positions and (within one run) its bounds."""
    start: dict[StreamPartition, int] = {}
    end: dict[StreamPartition, int] = {}
    ask_start: dict[StreamPartition, Bound] = {}
    ask_end: dict[StreamPartition, Bound] = {}
    news = new_run
    for plan in inputs:
        for at in plan.owned:
            known = positions.get(at)
            if known is not None:
                start[at] = known
            elif isinstance(first := plan.begin(at.partition), int):
                start[at] = first
            else:
                ask_start[at] = first
            news = news or known is None
            if plan.framed:
                continue
            bound = plan.bound(at.partition)
            if not new_run and at in until:
                end[at] = until[at]
            elif isinstance(bound, int):
                end[at], news = bound, True
            elif bound is not None:
                ask_end[at], news = bound, True
    return Beginning(start, end, ask_start, ask_end, news)
