"""The one derivation of a job's tasks: from its graph and the partition counts of its inputs to stream widths and tasks.

The leader makes its model from it, `headgate plan` shows it, and the test driver and the simulator run it. What it decides:

- *Widths.* An intermediate stream has the width that the user set; otherwise that of the streams which it must meet (a join, a merge before
  keyed state); otherwise the greatest width among the inputs that feed it. `gather` and `broadcast` have one partition by default. A width
  that the job already has is kept.
- *Tasks.* The grouper makes them from all streams; for a job that already had tasks, `grouping.regroup` lets it grow.
- *Co-partitioning.* Streams that meet by key must have equal keys in the same task. The check looks at the tasks themselves: partition n of
  the wider stream must be in the task that owns partition n mod p of the narrower one. So a job with one task may join anything, and an
  input that has grown may still be joined with one that has not.
- *Ends.* An input that is bounded by offsets has one for each of its partitions, neither fewer nor more.

The result is an immutable `Grouping`; `grouping.counts` gives its widths. The producers of each stream follow from it, too
(`model.producer_sets`, with `Graph.fed`), with an epoch that rises with each change.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise
from types import MappingProxyType

from ..errors import DeclarationError
from .checks import met
from .graph import Graph, Input, Stage
from .grouping import Grouper, Grouping, by_partition, counts, group, owners_of, regroup, with_gathered

MOST_NAMED = 20
"""How many partitions an error names."""


def resolve(
    graph: Graph,
    partition_counts: Mapping[str, int],
    *,
    grouper: Grouper = by_partition,
    before: Grouping | None = None,
    name: str = "",
) -> Grouping:
    """The tasks of a checked graph whose inputs have these partition counts. `before`: the tasks that the job has, if it has run; `name`:
    the grouper's name, for messages.

    Raises `DeclarationError` with the reason if something does not fit together.

    >>> g = Graph((Input("orders"),), (Stage("x", "repartition", ("orders",), writes=("sales-1-x",)),))
    >>> counts(resolve(g, {"orders": 2}))
    {'orders': 2, 'sales-1-x': 2}
    """
    if missing := sorted(set(graph.input) - set(partition_counts)):
        raise DeclarationError(
            f"the input '{missing[0]}' does not exist",
            remedy=f"create the topic '{missing[0]}', or fix the name in app.input(…)",
        )
    inputs = {stream: partition_counts[stream] for stream in graph.input}
    for one in graph.inputs:
        _check_ends(one, inputs[one.stream])
    if (
        before and graph.copied
    ):  # no position of a task depends on their partitions: such a topic may be made again with fewer
        before = {task: tuple(at for at in owned if at.stream not in graph.copied) for task, owned in before.items()}
    had = counts(before) if before else {}
    partitions = dict(sorted((inputs | widths_of(graph, inputs, had)).items()))
    gathered = {stream: stage.name for stream, stage in sorted(graph.writer.items()) if stage.verb == "gather"}
    split = {stream: width for stream, width in partitions.items() if stream not in gathered}
    if before:
        tasks = regroup(grouper, before, split, graph.broadcast, stateful=graph.stateful, name=name)
    else:
        tasks = group(grouper, split, graph.broadcast, name=name)
    tasks = with_gathered(tasks, gathered, before)
    check_together(graph, tasks)
    return tasks


def _check_ends(one: Input, width: int) -> None:
    """Refuse offsets as the end of an input that do not name exactly its partitions: any other partition would be read without an end or
    not at all.
    """
    if not isinstance(one.until, tuple):
        return
    named = {partition for partition, _ in one.until}
    where, has = f"input('{one.stream}')", f"the topic has {width} partition{'' if width == 1 else 's'}"
    if missing := sorted(set(range(width)) - named):
        raise DeclarationError(
            f"{where}: until= gives no end for {_partitions(missing)}; {has}",
            remedy="give each partition an offset, for example its current end, or 0 to read nothing of it; until='newest' ends all of "
            "them where they end now",
        )
    if strange := sorted(named - set(range(width))):
        raise DeclarationError(
            f"{where}: until= gives an end for {_partitions(strange)}; {has}",
            remedy=f"give offsets only for partitions 0 to {width - 1}"
            if width > 1
            else "give an offset only for partition 0",
        )


def _partitions(numbers: list[int]) -> str:
    shown = ", ".join(map(str, numbers[:MOST_NAMED])) + (", …" if len(numbers) > MOST_NAMED else "")
    return f"partition{'' if len(numbers) == 1 else 's'} {shown}"


def widths_of(graph: Graph, inputs: Mapping[str, int], had: Mapping[str, int] = MappingProxyType({})) -> dict[str, int]:
    """The width of each intermediate stream if the inputs have these partition counts; `had`: the widths of the job's streams so far.

    >>> g = Graph((Input("a"), Input("b")), (Stage("x", "repartition", ("a",), writes=("X",)),))
    >>> widths_of(g, {"a": 2, "b": 9}), widths_of(g, {"a": 4, "b": 9}, {"X": 2})
    ({'X': 2}, {'X': 2})
    """
    widths: dict[str, int] = {}
    for stream, stage in sorted(graph.writer.items()):
        fixed = had.get(stream)
        if fixed is not None and stage.width not in (None, fixed):
            raise DeclarationError(
                f"'{stage.name}' has {fixed} partitions since the job's first run, and would now have {stage.width}",
                remedy="keep its width, or give the stage another name (and with it a new stream)",
            )
        given = fixed or stage.width or (None if stage.verb == "repartition" else 1)
        if given is not None:
            widths[stream] = given
    free = set(graph.writer) - set(widths)
    for streams in _meetings(graph):
        settled = [width for stream in streams if (width := inputs.get(stream) or widths.get(stream))]
        behind = [_behind(graph, inputs, stream) for stream in streams & free]
        widths.update(dict.fromkeys(streams & free, max(settled or behind, default=1)))
    for stream in free - set(widths):
        widths[stream] = _behind(graph, inputs, stream)
    return widths


def shared_widths(graph: Graph, streams: Mapping[str, int], had: Mapping[str, int]) -> dict[str, int]:
    """The width of each stream that the job shares: as declared, else as it was, else that of the widest stream that feeds it.

    `streams`: the widths of the streams that the job reads; `had`: those of its shared streams so far.

    >>> g = Graph((Input("a"),), (Stage("s", "share", ("a",), writes=("S",)),))
    >>> shared_widths(g, {"a": 2}, {}), shared_widths(g, {"a": 4}, {"S": 2})
    ({'S': 2}, {'S': 2})
    """
    return {
        stream: stage.width or had.get(stream) or max(streams.get(one, 1) for one in graph.upstreams(stream))
        for stream, stage in sorted(graph.shared.items())
    }


def _behind(graph: Graph, inputs: Mapping[str, int], stream: str) -> int:
    """The greatest width of the inputs that feed a stream; a broadcast input counts only if there is no other."""
    origins = graph.origins(stream)
    return max(inputs[one] for one in (origins - graph.broadcast) or origins)


def _meetings(graph: Graph) -> list[frozenset[str]]:
    """Sets of streams that must be co-partitioned; sets with a common stream are merged."""
    found: list[frozenset[str]] = []
    for stage in graph.stages:
        streams = met(graph, stage)
        if len(streams) > 1:
            touching = [other for other in found if other & streams]
            found = [other for other in found if other not in touching]
            found.append(streams.union(*touching))
    return found


def check_together(graph: Graph, tasks: Grouping) -> None:
    """Refuse tasks in which streams that meet by key do not have equal keys in the same task.

    >>> g = Graph((Input("a"), Input("b")), (Stage("j", "join", ("a", "b")),))
    >>> check_together(g, by_partition({"a": 2, "b": 2}, frozenset()))
    """
    partitions = counts(tasks)
    for stage in graph.stages:
        _meets(graph, stage, partitions, tasks)


def _meets(graph: Graph, stage: Stage, partitions: Mapping[str, int], tasks: Grouping) -> None:
    streams = sorted(met(graph, stage), key=lambda stream: (partitions[stream], stream))
    for narrow, wide in pairwise(streams):
        if _together(narrow, wide, tasks):
            continue
        if partitions[narrow] != partitions[wide]:
            why = f"'{narrow}' has {partitions[narrow]} partitions and '{wide}' has {partitions[wide]}"
            remedy = _alike(graph, narrow, wide, partitions)
        else:
            why = f"the grouper puts equal partitions of '{narrow}' and '{wide}' into different tasks"
            remedy = "set grouper to 'partition' or 'all'"
        if stage.verb == "join":
            remedy += ", or keep a copy of the table in every task: .table(…, broadcast=True)"
        if stage.meets:
            remedy += ', or order="any" if it does not matter which row of a key comes last'
        raise DeclarationError(
            f"'{stage.name}' ({stage.verb}) needs {_and(streams)} partitioned alike, but {why}", remedy=remedy
        )


def _alike(graph: Graph, narrow: str, wide: str, partitions: Mapping[str, int]) -> str:
    """How to make two streams of different widths fit: change the one whose width the job chooses, if there is one."""
    if (stage := graph.writer.get(narrow)) is not None:
        return f"say .repartition(…, partitions={partitions[wide]}) where '{stage.name}' is declared"
    if (stage := graph.writer.get(wide)) is not None:
        return f"say .repartition(…, partitions={partitions[narrow]}) where '{stage.name}' is declared"
    return f"put .repartition(…, partitions={partitions[wide]}) after app.input('{narrow}')"


def _together(narrow: str, wide: str, tasks: Grouping) -> bool:
    """Whether each key has its partitions of both streams in one task; its partition is hash mod count in each."""
    if len(tasks) == 1:
        return True
    few, many = owners_of(tasks, narrow), owners_of(tasks, wide)
    return len(many) % len(few) == 0 and all(many[n] == few[n % len(few)] for n in many)


def _and(names: Iterable[str]) -> str:
    return " and ".join(f"'{name}'" for name in names)
