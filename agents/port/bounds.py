"""Turns `newest`, `oldest` and times into the current offsets of a partition, for the bounds of a run and for restores."""

from __future__ import annotations

from collections.abc import Mapping

from ...core.graph.graph import Graph
from ...core.names import StreamPartition
from ...core.task import protocol as t
from ...core.task.plan import Bound
from .port import LOG_DELETE_RETENTION_MS, Offsets


async def log_ends(offsets: Offsets, at: StreamPartition) -> tuple[int, int, int]:
    """The start, the end (open transactions included) and the tombstone retention of a partition of a task log."""
    return await offsets.start_of(at), await offsets.end_of(at, committed=False), LOG_DELETE_RETENTION_MS


async def offset_of(offsets: Offsets, at: StreamPartition, bound: Bound) -> int:
    """The offset that a bound stands for now. A time after the last record means the end."""
    if isinstance(bound, int):
        return bound
    if isinstance(bound, str):
        assert bound in ("oldest", "newest")
        return await (offsets.start_of(at) if bound == "oldest" else offsets.end_of(at, committed=True))
    kind, ms = bound
    assert kind == "time"
    found = await offsets.of_time(at, ms)
    return found if found is not None else await offset_of(offsets, at, "newest")


async def resolved(offsets: Offsets, order: t.ResolveOffsets) -> t.OffsetsResolved:
    """The answer to a task's request for offsets."""
    positions = {at: await offset_of(offsets, at, bound) for at, bound in order.positions.items()}
    until = {at: await offset_of(offsets, at, bound) for at, bound in order.until.items()}
    ends = {at: await offset_of(offsets, at, "newest") for at in sorted(order.ends)}
    return t.OffsetsResolved(order.request, positions, until, ends)


async def run_bounds(
    offsets: Offsets, graph: Graph, counts: Mapping[str, int]
) -> tuple[dict[str, tuple[int, ...]], dict[str, tuple[int, ...]]]:
    """Where the inputs of a new run start and end. Inputs whose bounds need no lookup are left out."""
    starts: dict[str, tuple[int, ...]] = {}
    untils: dict[str, tuple[int, ...]] = {}
    for one in graph.inputs:
        partitions = [StreamPartition(one.stream, n) for n in range(counts.get(one.stream, 0))]
        bound: Bound
        until = one.until
        if one.start != "oldest":
            bound = one.start if isinstance(one.start, str) else ("time", one.start)
            starts[one.stream] = tuple([await offset_of(offsets, at, bound) for at in partitions])
        if isinstance(until, tuple):
            untils[one.stream] = tuple(offset for _, offset in until)  # checked: one for each partition
        elif until is not None and until != "producers":
            bound = until if isinstance(until, str) else ("time", until)
            untils[one.stream] = tuple([await offset_of(offsets, at, bound) for at in partitions])
    return starts, untils
