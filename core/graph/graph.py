"""What a job consists of: its inputs, the stages that the user declared, and the streams between them. Pure data, and queries on it.

A stage is one verb of the declaration (`filter`, `join`, `repartition`, an agent …). It names what it reads: inputs by their stream,
other stages by their name. Three verbs (`repartition`, `broadcast`, `gather`) write an *intermediate stream*, through which records go
from task to task; everything between two such streams runs within one task. `share` writes a *shared stream*: frames for the tasks of
another job, which names this one as a producer of its input.

What this module decides and promises:

- `Graph` is immutable.
- Control messages follow the data: `upstreams(x)` are the streams whose records can become records of the intermediate stream `x`. A task
  sends `x` a marker when it has one from all of these, and the producers of `x` are the tasks that own a partition of one of them. The
  same holds for a shared stream.

`checks` decides whether a graph can work, `resolve` what it becomes with real partition counts, and `fingerprint` whether two graphs are
the same deployment.
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
"""The verb that writes a stream for other jobs."""
ACTOR = "actor"
"""The verb that may stop reading by itself."""
TIMER = "timer"
"""The verb that reads nothing: the clock calls it, in one task."""
KEYED = frozenset({"agg", "dedupe", "join", "table", "window"})
"""Verbs with state per key: equal keys of what they read must be in the same task."""

T = TypeVar("T")
_UNSAID = {"unsaid": True}
"""Of a field that is no part of a fingerprint."""


@dataclass(frozen=True, slots=True)
class Input:
    """A topic that the job reads but never creates, alters or trims."""

    stream: str
    key: str | None = None
    """The field by which the topic is declared to be partitioned; None if not declared."""
    broadcast: bool = False
    bootstrap: bool = False
    """No other input is read until this one has been read to the end that it had at start."""
    copied: bool = field(default=False, metadata=_UNSAID)
    """Each worker follows it for the copies of tables that it keeps, and no task reads it. Versions that have a copy in each task take part
    in the same runs, so this is no part of what must be the same in all workers."""
    priority: int = 0
    start: str | int = "oldest"
    """`oldest`, `newest`, or a time in ms."""
    until: str | int | tuple[tuple[int, int], ...] | None = None
    """Where a bounded input ends: `newest`, `producers` (at their end of stream), a time in ms, or (partition, offset) pairs."""
    producers: tuple[str, ...] = ()
    """The jobs that write it, with their ids, if it is a stream shared by other jobs."""
    on_lost: str = "fail"
    out_of_order_ms: int = 0
    partitioner: str | None = None
    """How its keys are partitioned, if the user declares it: `murmur2` or `crc32`."""
    key_serde: str = ""
    """The name of the serde that encoded its keys."""
    arguments: tuple[tuple[str, str], ...] = ()
    """The rest of the declaration as text: serde, timestamp."""

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
    """Inputs (by stream) and stages (by name); the left side of a join comes first."""
    writes: tuple[str, ...] = ()
    """Topics: the one intermediate stream of a shuffle, otherwise outputs."""
    by: str | None = None
    """`repartition`: the field that becomes the key."""
    on: tuple[str | None, ...] = ()
    """`join`: for each side, the field that must be equal; () or None means the record's key."""
    width: int | None = None
    """The number of partitions of the intermediate or shared stream, if the user sets it."""
    key_serde: str = ""
    """`repartition`: the name of the serde that encodes the keys."""
    stateful: bool = False
    updates: bool = False
    """Whether it emits updates: each is the newest value of its key, and replaces the previous one."""
    meets: bool = False
    """Whether equal keys of what it reads must be in the same task, although it has no state per key: its target has it."""
    takes_updates: bool = False
    """Whether updates may come in where other stages of its verb need events: what it does with a row replaces the one before."""
    arguments: tuple[tuple[str, str], ...] = ()

    @property
    def shuffles(self) -> bool:
        return self.verb in SHUFFLES


@dataclass(frozen=True)
class Graph:
    """A job's inputs and stages. Stages and streams share one namespace, so that a message can name either.

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
        """The result of this function for the graph; computed once and cached."""
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
        """The stages in topological order; stages in a cycle are left out. Walks over the graph use this order instead of recursion, so a
        job may be arbitrarily deep.

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
        """Shared stream, which other jobs read as frames → the stage that writes it."""
        return {stage.writes[0]: stage for stage in self.stages if stage.verb == SHARE and stage.writes}

    @cached_property
    def fed(self) -> Mapping[str, frozenset[str]]:
        """Every stream that carries control messages, intermediate or shared → the streams of the job that feed it directly."""
        return {stream: self.upstreams(stream) for stream in (*self.writer, *self.shared)}

    @cached_property
    def meeting(self) -> tuple[frozenset[str], ...]:
        """For each join of two streams, all streams whose records reach it, directly or through other streams.

        >>> shuffle, join = Stage("x", "repartition", ("a",), writes=("j-1-x",)), Stage("j", "join", ("x", "b"), stateful=True)
        >>> [sorted(group) for group in Graph((Input("a"), Input("b")), (shuffle, join)).meeting]
        [['a', 'b', 'j-1-x']]
        """
        found: list[frozenset[str]] = []
        for stage in self.stages:
            if stage.verb == "join" and stage.stateful:
                group, queue = set[str](), list(self.flow(stage.name))
                while queue:
                    stream = queue.pop()
                    if stream not in group:
                        group.add(stream)
                        queue += () if stream in self.input else self.upstreams(stream)
                found.append(frozenset(group))
        return tuple(found)

    @property
    def intermediates(self) -> frozenset[str]:
        return frozenset(self.writer)

    @cached_property
    def streams(self) -> tuple[str, ...]:
        """All streams that the job's tasks read: inputs, then intermediate streams."""
        return (*sorted(self.input), *sorted(self.writer))

    @cached_property
    def outputs(self) -> frozenset[str]:
        """The topics that hold plain records for others."""
        framed = (*SHUFFLES, SHARE)
        return frozenset(topic for stage in self.stages if stage.verb not in framed for topic in stage.writes)

    @cached_property
    def framed(self) -> frozenset[str]:
        """The streams of frames that the job writes: intermediate and shared ones."""
        return frozenset(self.fed)

    @cached_property
    def broadcast(self) -> frozenset[str]:
        """Streams of which every task reads every partition."""
        wide = {one.stream for one in self.inputs if one.broadcast}
        return frozenset(wide | {stream for stream, stage in self.writer.items() if stage.verb == "broadcast"})

    @cached_property
    def copied(self) -> frozenset[str]:
        """Inputs that workers follow for copies of tables. The model names them with every task, for versions that read them there; a task
        of this version has no part in them."""
        return frozenset(one.stream for one in self.inputs if one.copied)

    @cached_property
    def bootstrap(self) -> frozenset[str]:
        return frozenset(one.stream for one in self.inputs if one.bootstrap)

    @cached_property
    def counted(self) -> tuple[Input, ...]:
        """The inputs that a run waits for: those that are read first are not among them, unless there are no others."""
        return tuple(one for one in self.inputs if not one.bootstrap) or self.inputs

    @cached_property
    def bounded(self) -> bool:
        """Whether each input that a run waits for has an end.

        >>> Graph((Input("a", until="newest"), Input("b"))).bounded, Graph((Input("a", until="newest"),)).bounded
        (False, True)
        """
        return all(one.until is not None for one in self.counted)

    @cached_property
    def stateful(self) -> bool:
        return any(stage.stateful for stage in self.stages)

    def made_of(self, stream: str) -> frozenset[str]:
        """The outputs that records of this input can reach, directly or through other streams. Nothing comes out of a table.

        >>> Graph((Input("a"), Input("b")), (Stage("x", "to", ("a",), writes=("out",)),)).made_of("a")
        frozenset({'out'})
        """
        found: set[str] = set()
        for stage in self.stages:
            if not stage.shuffles and stage.verb != SHARE:
                behind = self.flow(stage.name)
                if stream in behind or any(stream in self.origins(one) for one in behind if one in self.writer):
                    found.update(stage.writes)
        return frozenset(found)

    def stopped_by(self, stream: str) -> tuple[str, ...]:
        """The actors that end this input when they have all stopped: its records reach nothing else within its task. Else none.

        >>> actor = Stage("totals", "actor", ("big",))
        >>> Graph((Input("a"),), (Stage("big", "filter", ("a",)), actor)).stopped_by("a")
        ('totals',)
        >>> Graph((Input("a"),), (Stage("big", "filter", ("a",)), actor, Stage("copy", "to", ("big",)))).stopped_by("a")
        ()
        """
        found: set[str] = set()
        seen, queue = {stream}, [stream]
        while queue:
            read = queue.pop()
            readers = [one for one in self.stages if read in one.reads]
            if not readers or any(one.shuffles for one in readers):
                return ()
            for one in readers:
                if one.verb == ACTOR:
                    found.add(one.name)
                elif one.name not in seen:
                    seen.add(one.name)
                    queue.append(one.name)
        return tuple(sorted(found))

    def sources(self, name: str) -> frozenset[str]:
        """The inputs and intermediate streams that feed this stage within its task; not what lies behind those streams.

        >>> Graph((Input("a"), Input("b")), (Stage("t", "table", ("b",)), Stage("j", "join", ("a", "t")))).sources("j") == {"a", "b"}
        True
        """
        return self._behind(name, through_tables=True)

    def flow(self, name: str) -> frozenset[str]:
        """The sources whose records can come out of this stage: all except those that end in a table.

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
        """Where the records that this stage reads come from within its task: the stages in `among`, and the streams whose records reach
        it without passing through one of those. Nothing comes out of a table.

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
        """The streams that feed this intermediate or shared stream directly: it gets a marker once each of them has delivered one.

        The streams that feed a table are not among them: none of their records comes out, and a table that is updated forever must not keep
        a stream from ending.
        """
        return self.flow(self.fed_by(stream))

    def fed_by(self, stream: str) -> str:
        """The name of the stage that writes this intermediate or shared stream."""
        return (self.writer.get(stream) or self.shared[stream]).name

    def origins(self, intermediate: str) -> frozenset[str]:
        """The inputs that feed this stream, directly or through other streams."""
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
    """A part of a graph as plain values, without fields that have their default, or that no fingerprint covers."""
    bare = Stage("", "", ()) if isinstance(one, Stage) else Input("")
    return {
        f.name: _lists(getattr(one, f.name))
        for f in fields(one)
        if getattr(one, f.name) != getattr(bare, f.name, None) and "unsaid" not in f.metadata
    }


def _lists(value: object) -> object:
    return [_lists(one) for one in cast("tuple[object, ...]", value)] if isinstance(value, tuple) else value


def loose_name(verb: str, taken: Container[str], first: int = 1) -> str:
    """A name for a stage without state and without a shuffle. Nothing outside of the process uses the name, so a number is enough.

    `first`: all numbers below it are known to be taken.

    >>> loose_name("filter", ["filter", "filter-2"])
    'filter-3'
    """
    return next(name for n in count(first) if (name := f"{verb}-{n}" if n > 1 else verb) not in taken)
