"""Which partitions make a task: the three built-in groupers, the check of a user's own grouper, and what happens when a topic grows.

A grouper is a pure function `(partitions, broadcast) -> {task: its stream partitions}`. `partitions` says how many partitions each stream
of the job has (inputs and intermediate streams alike); `broadcast` names the streams of which every task reads every partition. A grouper
is called with the partition counts of the job model, never with those of a client's metadata.

What this module promises:

- every partition of a stream that is not broadcast belongs to exactly one task, every partition of a broadcast stream to all tasks;
- no task consists of broadcast partitions only;
- the result is immutable, and does not depend on the order of the arguments;
- a stream that gathers all rows is no business of a grouper: its single partition belongs to one of the tasks (`with_gathered`);
- growth never takes a partition from its task. With state, the set of tasks is fixed for the job's life: when a stream grows from p to k·p
  partitions, partition n joins the task that owned n mod p. That task has the state of its keys, because producers choose a partition by
  hash mod count. Growth that does not follow this arithmetic is refused, with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from types import MappingProxyType
from typing import cast
from zlib import crc32

from ..errors import DeclarationError
from ..names import StreamPartition, natural, task_name
from ..user_rule import called, whole

Grouping = Mapping[str, tuple[StreamPartition, ...]]
"""Task name → its stream partitions, sorted; tasks in natural order; immutable."""

Grouper = Callable[[Mapping[str, int], frozenset[str]], Mapping[str, Collection[StreamPartition]]]
"""A custom grouper is a function with this signature, named by import path."""

ALL = "All"


def by_partition(partitions: Mapping[str, int], broadcast: frozenset[str]) -> Grouping:
    """The default: task "Partition n" owns partition n of every stream, so that equal keys of co-partitioned streams meet.

    >>> list(by_partition({"orders": 2, "rates": 1}, frozenset({"rates"}))["Partition 1"])
    [StreamPartition(stream='orders', partition=1), StreamPartition(stream='rates', partition=0)]
    """
    tasks: dict[str, list[StreamPartition]] = {}
    for stream in sorted(set(partitions) - broadcast):
        for n in range(partitions[stream]):
            tasks.setdefault(task_name(n), []).append(StreamPartition(stream, n))
    return _with_broadcast(tasks, partitions, broadcast)


def by_stream_partition(partitions: Mapping[str, int], broadcast: frozenset[str]) -> Grouping:
    """One task for each partition of each stream, named "orders 3": most parallel, but no two streams ever meet."""
    tasks = {
        f"{stream} {n}": [StreamPartition(stream, n)]
        for stream in sorted(set(partitions) - broadcast)
        for n in range(partitions[stream])
    }
    return _with_broadcast(tasks, partitions, broadcast)


def all_in_one(partitions: Mapping[str, int], broadcast: frozenset[str]) -> Grouping:
    """One task, named "All", that owns everything: it sees all data, on one core."""
    own = [StreamPartition(stream, n) for stream in set(partitions) - broadcast for n in range(partitions[stream])]
    return _with_broadcast({ALL: own} if own else {}, partitions, broadcast)


GROUPERS: Mapping[str, Grouper] = MappingProxyType(
    {"partition": by_partition, "stream-partition": by_stream_partition, "all": all_in_one}
)
"""The built-in groupers by their names in settings."""


def group(
    grouper: Grouper, partitions: Mapping[str, int], broadcast: Iterable[str] = (), *, name: str = ""
) -> Grouping:
    """The tasks that `grouper` makes of these streams, checked and frozen. `name` is the user's name for the grouper."""
    wide = frozenset(broadcast)
    if unknown := sorted(wide - set(partitions)):
        raise DeclarationError(
            f"'{unknown[0]}' is broadcast but is not a stream of the job", remedy="declare it as an input"
        )
    for stream, count in sorted(partitions.items()):
        if count < 1:
            raise DeclarationError(f"'{stream}' has {count} partitions", remedy="a stream needs at least one partition")
    if not set(partitions) - wide:
        raise DeclarationError(
            "every stream of the job is broadcast, so there is no partition to create tasks from",
            remedy="give the job at least one input that is not broadcast",
        )
    called_so = name or getattr(grouper, "__name__", repr(grouper))
    answer = called("grouper", called_so, grouper, MappingProxyType(dict(partitions)), wide)
    return check_grouping(called_so, answer, partitions, wide)


def check_grouping(name: str, answer: object, partitions: Mapping[str, int], broadcast: frozenset[str]) -> Grouping:
    """The answer of the grouper called `name`, frozen; refused if it breaks a promise of this module."""

    def refuse(what: str) -> DeclarationError:
        return DeclarationError(
            f"the grouper '{name}' {what}",
            remedy="give every partition to exactly one task, and every partition of a broadcast stream to all tasks",
        )

    result = called("grouper", name, _plain, answer, refuse)
    if isinstance(result, DeclarationError):
        raise result
    owners: dict[StreamPartition, list[str]] = {}
    for task in sorted(result, key=natural):
        if not task or len(task.encode()) > 249:
            raise refuse(f"names a task {task!r}; a name has 1 to 249 bytes")
        for at in result[task]:
            owners.setdefault(at, []).append(task)
        if all(at[0] in broadcast for at in result[task]):
            raise refuse(f"makes a task '{task}' that owns no partition of its own")
    for at, tasks in owners.items():
        if not 0 <= at.partition < partitions.get(at.stream, 0):
            raise refuse(f"gives '{tasks[0]}' partition {at.partition} of '{at.stream}', which does not exist")
        if len(set(tasks)) < len(tasks):
            raise refuse(f"gives partition {at.partition} of '{at.stream}' to '{tasks[0]}' twice")
        if at.stream not in broadcast and len(tasks) > 1:
            raise refuse(f"gives partition {at.partition} of '{at.stream}' to '{tasks[0]}' and to '{tasks[1]}'")
    for stream in sorted(partitions):
        for n in range(partitions[stream]):
            given = len(owners.get(StreamPartition(stream, n), ()))
            if given == 0:
                raise refuse(f"gives partition {n} of '{stream}' to no task")
            if stream in broadcast and given < len(result):
                raise refuse(
                    f"gives partition {n} of '{stream}', which is broadcast, to {given} of {len(result)} tasks"
                )
    return frozen(result)


def _plain(
    answer: object, refuse: Callable[[str], DeclarationError]
) -> dict[str, list[StreamPartition]] | DeclarationError:
    """A user's answer as plain values, or an error that says what is wrong. Iterating over it may run user code, which may raise."""
    if not isinstance(answer, Mapping):
        return refuse(f"returned {answer!r}, which is not a mapping of tasks to partitions")
    result: dict[str, list[StreamPartition]] = {}
    for task, owned in cast("Mapping[object, Iterable[object]]", answer).items():
        if not isinstance(task, str):
            return refuse(f"names a task {task!r}, which is not text")
        result[task] = []
        for at in owned:
            pair = cast("tuple[object, ...]", at)
            if not (isinstance(at, tuple) and len(pair) == 2 and isinstance(pair[0], str) and whole(pair[1])):
                return refuse(f"gives '{task}' {at!r}, which is not a (stream, partition)")
            result[task].append(StreamPartition(pair[0], pair[1]))
    return result


def frozen(tasks: Mapping[str, Iterable[StreamPartition]]) -> Grouping:
    """A grouping in canonical order, immutable."""
    return MappingProxyType({task: tuple(sorted(tasks[task])) for task in sorted(tasks, key=natural)})


def counts(grouping: Mapping[str, Iterable[StreamPartition]]) -> dict[str, int]:
    """How many partitions each stream of a grouping has."""
    widths: dict[str, int] = {}
    for owned in grouping.values():
        for stream, n in owned:
            widths[stream] = max(widths.get(stream, 0), n + 1)
    return dict(sorted(widths.items()))


def owners_of(grouping: Mapping[str, Iterable[StreamPartition]], stream: str) -> dict[int, tuple[str, ...]]:
    """Partition → the tasks that own it (one, or all tasks if the stream is broadcast)."""
    found: dict[int, list[str]] = {}
    for task, owned in grouping.items():
        for name, n in owned:
            if name == stream:
                found.setdefault(n, []).append(task)
    return {n: tuple(found[n]) for n in sorted(found)}


def with_gathered(tasks: Grouping, names: Mapping[str, str], before: Grouping | None = None) -> Grouping:
    """These tasks with the streams that gather all rows, each by the name of its step: the single partition of each belongs to the task
    that had it or else, so that several of them do not meet in one task, to the one at crc32(name) mod the number of tasks.

    >>> tasks = with_gathered(by_partition({"orders": 3}, frozenset()), {"sales-1-gather": "gather"})
    >>> [task for task, owned in tasks.items() if StreamPartition("sales-1-gather", 0) in owned]
    ['Partition 2']
    """
    if not names:
        return tasks
    made = {task: [*owned] for task, owned in tasks.items()}
    for stream, name in names.items():
        had = owners_of(before or {}, stream).get(0, ())
        owner = next((task for task in had if task in made), None) or named_owner(name, tasks)
        made[owner].append(StreamPartition(stream, 0))
    return frozen(made)


def named_owner(name: str, tasks: Collection[str]) -> str:
    """The task that owns what the job has once, by its name; different names have different ones, as far as that goes.

    >>> named_owner("timer-report", ["Partition 0", "Partition 1", "Partition 2"])
    'Partition 1'
    """
    return sorted(tasks, key=natural)[crc32(name.encode()) % len(tasks)]


# ------------------------------------------------------------------------------------------------------------- growth


def regroup(
    grouper: Grouper,
    before: Grouping,
    partitions: Mapping[str, int],
    broadcast: Iterable[str] = (),
    *,
    stateful: bool,
    name: str = "",
) -> Grouping:
    """The tasks of a job that had the tasks `before`, now that its streams have these partition counts.

    Without state, new partitions may make new tasks. With state, they join existing tasks, and a stream that is new to the job must fit
    into these tasks. Tasks remain when their streams are gone. Raises `DeclarationError` for anything that would take a partition from its
    task, shrink a stream, or spread keys that have state over several tasks.

    >>> before = by_partition({"orders": 2}, frozenset())
    >>> [p.partition for p in regroup(by_partition, before, {"orders": 4}, stateful=True)["Partition 1"]]
    [1, 3]
    """
    wide = frozenset(broadcast)
    had = counts(before)
    for stream, count in sorted(partitions.items()):
        if count < had.get(stream, 0):
            raise DeclarationError(
                f"'{stream}' had {had[stream]} partitions and now has {count}; a stream cannot shrink",
                remedy="if the topic was recreated, run `headgate reset` for the job, or restore the number of partitions",
            )
    after = (
        _joined(grouper, before, had, partitions, wide, name)
        if stateful
        else group(grouper, partitions, wide, name=name)
    )
    for stream in sorted(set(had) & set(partitions)):
        _same_owners(stream, owners_of(before, stream), owners_of(after, stream), len(before), stream in wide)
    return after


def _same_owners(
    stream: str, then: dict[int, tuple[str, ...]], now: dict[int, tuple[str, ...]], tasks: int, broadcast: bool
) -> None:
    for n, owners in then.items():
        if broadcast and len(owners) == tasks:
            continue
        if now[n] != owners:
            raise DeclarationError(
                f"partition {n} of '{stream}' belongs to '{owners[0]}', where its position is kept, and would go to '{now[n][0]}'",
                remedy="keep the grouping and the broadcast inputs of the job, or start it under a new name",
            )


def _joined(
    grouper: Grouper,
    before: Grouping,
    had: Mapping[str, int],
    partitions: Mapping[str, int],
    broadcast: frozenset[str],
    name: str,
) -> Grouping:
    fresh: Grouping | None = None
    tasks: dict[str, set[StreamPartition]] = {task: set() for task in before}
    for stream in sorted(partitions):
        width = partitions[stream]
        if stream in broadcast:
            for owned in tasks.values():
                owned.update(StreamPartition(stream, n) for n in range(width))
            continue
        if stream in had:
            then = {n: owners[0] for n, owners in owners_of(before, stream).items()}
            if width % had[stream]:
                raise DeclarationError(
                    f"'{stream}' grew from {had[stream]} to {width} partitions; a job with state can follow only a multiple, "
                    f"because otherwise keys would move between tasks",
                    remedy=f"grow it to {width + had[stream] - width % had[stream]} partitions, or start the job under a new name",
                )
        else:
            fresh = fresh or group(grouper, partitions, broadcast, name=name)
            then = _fits(stream, width, {n: owners[0] for n, owners in owners_of(fresh, stream).items()}, list(before))
        for n in range(width):
            tasks[then[n % len(then)]].add(StreamPartition(stream, n))
    return frozen(tasks)


def _fits(stream: str, width: int, wanted: dict[int, str], tasks: list[str]) -> dict[int, str]:
    """The owners of the partitions of a stream that is new to a job with state: existing tasks only, or it is refused."""
    if all(owner in tasks for owner in wanted.values()):
        return wanted
    first = dict(list(wanted.items())[: len(tasks)])
    if width % len(tasks) == 0 and sorted(first.values()) == sorted(tasks):
        return first
    raise DeclarationError(
        f"'{stream}' has {width} partitions, and the job has state in {len(tasks)} tasks, whose number is fixed",
        remedy=f"give it at most {len(tasks)} partitions or a multiple of that, or start the job under a new name",
    )


def _with_broadcast(
    tasks: Mapping[str, list[StreamPartition]], partitions: Mapping[str, int], broadcast: frozenset[str]
) -> Grouping:
    wide = [StreamPartition(stream, n) for stream in broadcast for n in range(partitions[stream])]
    return frozen({task: own + wide for task, own in tasks.items()})
