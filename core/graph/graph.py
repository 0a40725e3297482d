"""What a job is made of: its inputs, the stages that the user declared, and the streams between them. Pure data, and questions about it.

A stage is one verb of the declaration (`filter`, `join`, `repartition`, an agent …). It names what it reads: inputs by their stream,
other stages by their name. Three verbs write an *intermediate stream*, through which records go from task to task
(`repartition`, `broadcast`, `gather`); everything between two such streams runs within one task. `share` writes a *shared stream*: frames
for the tasks of another job, which names this one as a producer of its input.

What this module decides and promises:

- `Graph` cannot be changed.
- Control messages follow data: `upstreams(x)` are the streams whose records can become records of the intermediate stream `x`, so a
  task owes `x` a marker when it has one from all of these, and the producers of `x` are the tasks that own a partition of one of them.
  The same goes for a shared stream.

Whether a graph can work is judged in `graph_checks`, what it becomes with real partition counts in `graph_resolve`, and whether two
graphs are the same deployment in `graph_fingerprint`.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from itertools import count
from typing import Any, TypeVar, cast

SHUFFLES = frozenset({"repartition", "broadcast", "gather"})
"""Verbs that write an intermediate stream."""
SHARE = "share"
"""The verb that writes a stream between two jobs."""
KEYED = frozenset({"agg", "join", "table", "window"})
"""Verbs whose state is per key: whatever they read must have equal keys in equal tasks."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Input:
    """A topic that the job reads and never creates, alters or trims."""

    stream: str
    key: str | None = None
    """The field by which the topic is said to be partitioned; None = not said."""
    broadcast: bool = False
    bootstrap: bool = False
    """Nothing else flows until it has been read to the end that it had at start."""
    priority: int = 0
    start: str | int = "oldest"
    """`oldest`, `newest`, or a time in ms."""
    until: str | int | tuple[tuple[int, int], ...] | None = None
    """Where a bounded input ends: `newest`, `producers` (their end of stream), a time in ms, or (partition, offset) pairs."""
    producers: tuple[str, ...] = ()
    """The jobs that write it, with their ids, if it is a stream between jobs."""
    on_lost: str = "fail"
    out_of_order_ms: int = 0
    partitioner: str | None = None
    """How its keys are spread, if the user says so: `murmur2` or `crc32`."""
    key_serde: str = ""
    """The name of the serde that has written its keys."""
    arguments: tuple[tuple[str, str], ...] = ()
    """What else belongs to the declaration, as text: serde, timestamp."""

    @property
    def name(self) -> str:
        return self.stream


@dataclass(frozen=True, slots=True)
class Stage:
    """One verb of the declaration.

    >>> Stage("by-country", "repartition", reads=("orders",), by="country", writes=("sales-1-by-country",)).shuffles
    True
    """

    name: str
    verb: str
    reads: tuple[str, ...]
    """Inputs (by stream) and stages (by name); the left side of a join stands first."""
    writes: tuple[str, ...] = ()
    """Topics: the intermediate stream of a shuffle (just one), else outputs."""
    by: str | None = None
    """`repartition`: the field that becomes the key."""
    on: tuple[str | None, ...] = ()
    """`join`: for each side the field that must be equal; () or None = the record's key."""
    width: int | None = None
    """Partitions of the intermediate stream, if the user gave them."""
    key_serde: str = ""
    """`repartition`: the name of the serde that writes the keys."""
    stateful: bool = False
    updates: bool = False
    """What it gives are updates: each is the newest value of its key, and takes the place of the one before it."""
    arguments: tuple[tuple[str, str], ...] = ()

    @property
    def shuffles(self) -> bool:
        return self.verb in SHUFFLES


@dataclass(frozen=True)
class Graph:
    """A job's inputs and stages. Names of stages and streams share one space, so that a message can name either.

    >>> Graph((Input("a"),), (Stage("x", "repartition", ("a",), writes=("j-1-x",)),)).upstreams("j-1-x")
    frozenset({'a'})
    """

    inputs: tuple[Input, ...] = ()
    stages: tuple[Stage, ...] = ()
    _memo: dict[tuple[str, bool], frozenset[str]] = field(
        default_factory=dict[tuple[str, bool], frozenset[str]], init=False, repr=False, compare=False
    )
    _kept: dict[object, Any] = field(default_factory=dict[object, Any], init=False, repr=False, compare=False)

    def derived(self, derive: Callable[[Graph], T]) -> T:
        """What this function makes of the graph; asked once, and kept with it."""
        if derive not in self._kept:
            self._kept[derive] = derive(self)
        return self._kept[derive]

    @cached_property
    def input(self) -> Mapping[str, Input]:
        return {one.stream: one for one in self.inputs}

    @cached_property
    def stage(self) -> Mapping[str, Stage]:
        return {one.name: one for one in self.stages}

    @cached_property
    def ordered(self) -> tuple[Stage, ...]:
        """The stages, each behind all that it reads; what stands in a circle is left out. Walks over the graph go along this: none of them
        calls itself, so a job may be as deep as it likes.

        >>> [one.name for one in Graph((), (Stage("b", "map", ("a",)), Stage("a", "map", ("in",)))).ordered]
        ['a', 'b']
        """
        waits = {one.name: sum(read in self.stage for read in one.reads) for one in self.stages}
        readers: dict[str, list[Stage]] = {}
        for one in self.stages:
            for read in one.reads:
                readers.setdefault(read, []).append(one)
        found = [one for one in self.stages if not waits[one.name]]
        for one in found:
            for reader in readers.get(one.name, ()):
                waits[reader.name] -= 1
                if not waits[reader.name]:
                    found.append(reader)
        return tuple(found)

    @cached_property
    def writer(self) -> Mapping[str, Stage]:
        """Intermediate stream → the stage that writes it."""
        return {stage.writes[0]: stage for stage in self.stages if stage.shuffles and stage.writes}

    @cached_property
    def shared(self) -> Mapping[str, Stage]:
        """Stream that other jobs read as frames → the stage that writes it."""
        return {stage.writes[0]: stage for stage in self.stages if stage.verb == SHARE and stage.writes}

    @cached_property
    def fed(self) -> Mapping[str, frozenset[str]]:
        """Every stream that takes control messages, intermediate or shared → the streams of the job that feed it directly."""
        return {stream: self.upstreams(stream) for stream in (*self.writer, *self.shared)}

    @property
    def intermediates(self) -> frozenset[str]:
        return frozenset(self.writer)

    @cached_property
    def streams(self) -> tuple[str, ...]:
        """All that its tasks read: inputs, then intermediate streams."""
        return (*sorted(self.input), *sorted(self.writer))

    @cached_property
    def outputs(self) -> frozenset[str]:
        return frozenset(topic for stage in self.stages if not stage.shuffles for topic in stage.writes)

    @cached_property
    def broadcast(self) -> frozenset[str]:
        """Streams whose every partition goes to every task."""
        wide = {one.stream for one in self.inputs if one.broadcast}
        return frozenset(wide | {stream for stream, stage in self.writer.items() if stage.verb == "broadcast"})

    @cached_property
    def bootstrap(self) -> frozenset[str]:
        return frozenset(one.stream for one in self.inputs if one.bootstrap)

    @cached_property
    def stateful(self) -> bool:
        return any(stage.stateful for stage in self.stages)

    def sources(self, name: str) -> frozenset[str]:
        """The streams that this stage reads within its task: back to inputs and intermediate streams, not through them.

        >>> Graph((Input("a"), Input("b")), (Stage("t", "table", ("b",)), Stage("j", "join", ("a", "t")))).sources("j") == {"a", "b"}
        True
        """
        return self._behind(name, through_tables=True)

    def flow(self, name: str) -> frozenset[str]:
        """The sources whose records can come out of this stage: all but those that end in a table.

        >>> Graph((Input("a"), Input("b")), (Stage("t", "table", ("b",)), Stage("j", "join", ("a", "t")))).flow("j") == {"a"}
        True
        """
        return self._behind(name, through_tables=False)

    def _behind(self, name: str, *, through_tables: bool) -> frozenset[str]:
        if name in self.input:
            return frozenset({name})
        memo = self._memo
        if (name, through_tables) not in memo:
            for stage in self.ordered:
                found: set[str] = set()
                for read in stage.reads:
                    other = self.stage.get(read)
                    if other is None:
                        found.add(read)
                    elif other.shuffles:
                        found.update(other.writes)
                    elif through_tables or other.verb != "table":
                        found |= memo[read, through_tables]
                memo[stage.name, through_tables] = frozenset(found)
        return memo[name, through_tables]

    def nearest(self, name: str, among: frozenset[str]) -> frozenset[str]:
        """What the records that this stage reads come from within its task: these stages, and the streams whose records reach it
        without passing one of them. Nothing comes out of a table.

        >>> g = Graph((Input("a"),), (Stage("m", "map", ("a",)), Stage("w", "window", ("m",)), Stage("x", "map", ("w", "m"))))
        >>> sorted(g.nearest("x", frozenset({"w"})))
        ['a', 'w']
        """
        found: set[str] = set()
        seen, queue = {name}, [name]
        while queue:
            for read in self.stage[queue.pop()].reads:
                stage = self.stage.get(read)
                if stage is None or read in among:
                    found.add(read)
                elif stage.shuffles:
                    found.update(stage.writes)
                elif stage.verb != "table" and read not in seen:
                    seen.add(read)
                    queue.append(read)
        return frozenset(found)

    def upstreams(self, stream: str) -> frozenset[str]:
        """The streams that feed this one, intermediate or shared, directly: a marker goes into it when each of these has brought one.

        What a table is made of is not among them: none of its records comes out, and a table that is always being updated
        must not keep a stream from ending.
        """
        return self.flow(self.fed_by(stream))

    def fed_by(self, stream: str) -> str:
        """The stage that writes this stream, intermediate or shared."""
        return (self.writer.get(stream) or self.shared[stream]).name

    def origins(self, intermediate: str) -> frozenset[str]:
        """The inputs that feed this stream, through whatever else."""
        found: set[str] = set()
        queue = [intermediate]
        while queue:
            for stream in self.upstreams(queue.pop()):
                if stream in self.input:
                    found.add(stream)
                else:
                    queue.append(stream)
        return frozenset(found)


def plain(one: Input | Stage) -> dict[str, Any]:
    """A part of a graph as plain values, without what stands at its default."""
    bare = Stage("", "", ()) if isinstance(one, Stage) else Input("")
    return {
        f.name: _lists(getattr(one, f.name)) for f in fields(one) if getattr(one, f.name) != getattr(bare, f.name, None)
    }


def _lists(value: object) -> object:
    return [_lists(one) for one in cast("tuple[object, ...]", value)] if isinstance(value, tuple) else value


def loose_name(verb: str, taken: Container[str], first: int = 1) -> str:
    """A name for a stage without state and shuffle. Nothing outlives the process under it, so a number will do.

    `first`: numbers below it are known to be taken.

    >>> loose_name("filter", ["filter", "filter-2"])
    'filter-3'
    """
    return next(name for n in count(first) if (name := f"{verb}-{n}" if n > 1 else verb) not in taken)
