"""Chooses the worker that follows a task's log all the time, so that it can take the task over if its owner dies: a pure function.

It decides, in this order:

1. *Never on the same disk.* The standby of a task is at another location than its owner. A worker whose location is unknown counts as at
   another one. If there is none, the task has no standby: whoever shares the disk has the store already.
2. *Fewest moves.* Whoever follows the task goes on, unless the next rule needs it elsewhere.
3. *Least loaded.* No task has a standby that could go to a worker with at least two fewer tasks and standbys.

Promises: the result is the same for the same arguments in any order, and stable (choosing again with the result as `previous` changes
nothing).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ..names import natural


def standbys(
    owners: Mapping[str, str],
    locations: Mapping[str, str | None],
    able: Collection[str],
    previous: Mapping[str, str],
) -> dict[str, str]:
    """Task → the worker that follows its log; tasks that have none are left out.

    `owners`: who runs each task, or will. `locations`: where the workers are. `able`: the workers that may begin to follow a log.
    `previous`: who follows it now; who is in `locations` may go on.

    >>> standbys({"a": "p1", "b": "p2"}, {"p1": "x", "p2": "y", "p3": "y"}, ["p1", "p2", "p3"], {})
    {'a': 'p3', 'b': 'p1'}
    """
    ordered = sorted(locations, key=natural)
    begin = [one for one in ordered if one in able]
    load = {one: sum(owner == one for owner in owners.values()) for one in ordered}
    found: dict[str, str] = {}
    for task in sorted(owners, key=natural):
        kept = previous.get(task)
        if kept is not None and kept in load and _elsewhere(locations, owners[task], kept):
            found[task] = kept
            load[kept] += 1
    for task in sorted(owners.keys() - found.keys(), key=natural):
        fits = [one for one in begin if _elsewhere(locations, owners[task], one)]
        if fits:
            found[task] = min(fits, key=lambda one: load[one])
            load[found[task]] += 1
    while _improved(found, owners, locations, begin, load):
        pass
    return {task: found[task] for task in sorted(found, key=natural)}


def _improved(
    found: dict[str, str],
    owners: Mapping[str, str],
    locations: Mapping[str, str | None],
    begin: list[str],
    load: dict[str, int],
) -> bool:
    """Move standbys to workers with far less to do. Returns whether one was moved. Each move lowers the sum of the squares of the loads,
    so this ends."""
    least = min((load[one] for one in begin), default=0)
    some = False
    for task in sorted(found, key=natural):
        here = found[task]
        if load[here] - least < 2:
            continue
        fits = [one for one in begin if _elsewhere(locations, owners[task], one)]
        there = min(fits, key=lambda one: load[one], default=here)
        if load[here] - load[there] >= 2:
            load[here] -= 1
            load[there] += 1
            found[task], some = there, True
            least = min(load[one] for one in begin)
    return some


def _elsewhere(locations: Mapping[str, str | None], owner: str, other: str) -> bool:
    return other != owner and (not locations.get(owner) or locations.get(owner) != locations[other])
