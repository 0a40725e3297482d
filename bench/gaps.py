"""How long each partition stood still, by when its outputs came and who wrote them.

Decides what counts: the longest time between two outputs of a partition, from the last one before an event until all is settled. A
partition *moved* if another worker wrote its outputs at some time after the event, or if its worker was ended; all others stayed. Pure.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import NamedTuple


class Output(NamedTuple):
    """That outputs of a partition came."""

    at: float
    worker: str
    """Who wrote them."""


Outputs = Mapping[int, Sequence[Output]]
"""Of each partition, in the order of time."""


class Gaps(NamedTuple):
    """The longest gaps of an event, in seconds; None if there was no such partition."""

    moved: float | None
    stayed: float | None
    moved_partitions: int


def gaps(outputs: Outputs, began: float, ended: float, gone: str = "") -> Gaps:
    """The gaps between an event and the moment in which all was settled. `gone`: the worker that was ended.

    >>> gaps({0: [Output(1, "a"), Output(5, "b")], 1: [Output(1.5, "c"), Output(2.5, "c")]}, 2, 6)
    Gaps(moved=4, stayed=3.5, moved_partitions=1)
    """
    moved: list[float] = []
    stayed: list[float] = []
    for of in outputs.values():
        before = [one for one in of if one.at <= began][-1:]
        after = [one for one in of if began < one.at <= ended]
        owner = before[0].worker if before else None
        moments = [before[0].at if before else began, *(one.at for one in after), ended]
        longest = max(later - at for at, later in itertools.pairwise(moments))
        went = owner is not None and (owner == gone or any(one.worker != owner for one in after))
        (moved if went else stayed).append(longest)
    return Gaps(max(moved, default=None), max(stayed, default=None), len(moved))


def owners(outputs: Outputs) -> dict[int, str]:
    """Who wrote last, for each partition."""
    return {partition: of[-1].worker for partition, of in outputs.items() if of}


def last_change(outputs: Outputs, since: float) -> float:
    """When a partition was last written by another worker than before; `since` if that was earlier."""
    latest = since
    for of in outputs.values():
        for before, after in itertools.pairwise(of[-2000:]):
            if after.worker != before.worker:
                latest = max(latest, after.at)
    return latest


def settled(outputs: Outputs, since: float, now: float, *, fresh_s: float, calm_s: float) -> bool:
    """Whether each partition has given outputs just now, and none has changed its worker for a while.

    >>> settled({0: [Output(1, "a"), Output(9.9, "b"), Output(13, "b")]}, 8, 13.2, fresh_s=0.5, calm_s=3)
    True
    >>> settled({0: [Output(1, "a"), Output(9.9, "b")]}, 8, 13.2, fresh_s=0.5, calm_s=3)
    False
    """
    if any(not of or now - of[-1].at > fresh_s for of in outputs.values()):
        return False
    return now - last_change(outputs, since) >= calm_s
