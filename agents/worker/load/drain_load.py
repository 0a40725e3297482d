"""Which streams a draining task has not drained yet, in heartbeats: it still owes them what it reads, holds or flushes.

    owes.<task>/<stream>   1 for each stream into which the task has not announced its drain or its end
    owes                   how many more there are, which did not fit

A stream has drained for its readers when all of its producers have announced it. So whoever a draining job waits for is known from the
producers themselves, on both routes of control messages.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from ....core.orders import TaskState

if TYPE_CHECKING:
    from ...runtime.task.task import TaskActor


def drain_load(actors: Iterable[TaskActor], most_bytes: int) -> dict[str, float]:
    """What these tasks owe, as numbers under short names, in at most `most_bytes`."""
    load: dict[str, float] = {}
    left_out = 0
    for actor in actors:
        if actor.machine.phase != TaskState.DRAINING:
            continue
        for stream in actor.machine.view.owes():
            name = f"owes.{actor.name}/{stream}"
            most_bytes -= len(name.encode()) + 12
            if most_bytes < 0:
                left_out += 1
            else:
                load[name] = 1.0
    return load | ({"owes": float(left_out)} if left_out else {})


def owes(load: Mapping[str, float], task: str, stream: str) -> bool:
    """Whether a draining task still owes this stream something, according to the heartbeat of its worker.

    >>> owes({"owes.Partition 0/sales-1-by": 1.0}, "Partition 0", "sales-1-by"), owes({"owes": 3.0}, "Partition 9", "sales-1-by")
    (True, True)
    >>> owes({}, "Partition 0", "sales-1-by")
    False
    """
    return bool(load.get(f"owes.{task}/{stream}") or load.get("owes"))
