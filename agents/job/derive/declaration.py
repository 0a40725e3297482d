"""Derives from a declaration what `core` decides with: the graph of a job, and the plan of each of its tasks.

`graph_of(app)` gives every step its final name: a named step keeps its name, and the others get a number, on which nothing stored
depends. `task_plan(...)` says what one task reads and writes under a job model. Both are pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol, cast

from ....core.errors import DeclarationError
from ....core.graph.checks import validate
from ....core.graph.graph import Graph, Input, loose_name
from ....core.graph.grouping import named_owner
from ....core.graph.keying import check_stated
from ....core.graph.model import JobModel
from ....core.names import JobName, Topics
from ....core.task.plan import FOREIGN, INTERMEDIATE, SOURCE, InputPlan, OutputPlan, StepPlan, TaskPlan, TaskSettings
from ...records.values.serdes import Serde
from ..steps.batches import WriteStep
from ..steps.keyed import DedupeStep, TableStep
from ..steps.sources import InputStep, ShuffleStep, SourceStep, inputs_of, shuffles_before
from ..steps.step import Step, lineage, readers_of, rebuilt
from ..types.schemas import TableSpec, schema_of_table
from .batch_columns import with_columns_of_batches
from .copied import CopiedTable, check_policies, copied_tables
from .named_fields import with_named_fields
from .patterns import expanded
from .references import check_alone, inline

if TYPE_CHECKING:
    from ..steps.keyed import AggregateStep, WindowStep
    from ..steps.step import Policy


class DeclaredApp(Protocol):
    """What an app has of what was declared."""

    @property
    def job(self) -> JobName: ...

    @property
    def name(self) -> str: ...

    @property
    def topics(self) -> Topics: ...

    @property
    def steps(self) -> list[Step]: ...

    @property
    def tables(self) -> Mapping[str, Any]: ...

    @property
    def windows(self) -> Sequence[Any]: ...

    @property
    def serde(self) -> Serde[Any]: ...

    @property
    def key_serde(self) -> Serde[Any]: ...

    @property
    def output_key_serde(self) -> Serde[Any]: ...

    @property
    def on_error(self) -> Any: ...

    @property
    def on_bad_data(self) -> Any: ...

    @property
    def chooser(self) -> Any: ...

    @property
    def found(self) -> Iterable[str] | None: ...

    def finish(self) -> DeclaredApp:
        """Check what can be checked only when all is declared."""
        ...


class Declared:
    """A finished declaration: its steps with their final names, and the graph that they form."""

    def __init__(
        self,
        app: DeclaredApp,
        *,
        unfinished: bool = False,
        fetches_all: bool = False,
        found: Iterable[str] | None = None,
    ) -> None:
        """`fetches_all`: batches by reference are collected like others, where no executor could read a topic. `found`: the topics among
        which those of patterns are."""
        self.app = app if unfinished else app.finish()
        self.topics = app.topics
        self._fetches_all = fetches_all
        self._of_copy = False
        """Whether it is only the part of a copy, of which the whole was checked."""
        self._wider: tuple[tuple[str, ...], Declared] | None = None
        there = app.found if found is None else found
        self._found = None if there is None else tuple(there)
        steps = app.steps if unfinished else expanded(app.steps, self._found, app.topics)
        self.steps = with_columns_of_batches(_with_combining(steps, app.on_error))
        why: dict[str, str] = {}
        if not unfinished:
            _has_effect(app)
            check_alone(self.steps)
            if fetches_all:
                self.steps = rebuilt(self.steps, inline)
            self.steps, why = with_named_fields(self.steps)
        self.copied: dict[str, CopiedTable] = copied_tables(self.steps)
        """The tables of which each worker keeps one copy, by name."""
        self.why_rows = why
        """Why an input with a schema is not read as columns, by topic."""
        self.names: dict[int, str] = {}
        taken = {step.name for step in self.steps if step.name}
        loose: Counter[str] = Counter()
        for step in self.steps:
            name = step.name
            if not name:
                loose[verb := step.verb] += 1
                name = loose_name(verb, taken, loose[verb])
            self.names[id(step)] = name = step.stage_name(name)
            taken.add(name)

    def joined(self, topics: Iterable[str]) -> Declared:
        """The same with an input for each of these topics, too, that matches a pattern."""
        more = tuple(sorted(set(topics) - self.inputs.keys()))
        if not more:
            return self
        if self._wider is None or self._wider[0] != more:
            found = (*(self._found or ()), *self.inputs, *more)
            self._wider = more, Declared(self.app, fetches_all=self._fetches_all, found=found)
        return self._wider[1]

    def of_copy(self, table: str) -> Declared:
        """The part of it that a copy of a table runs: an input, the steps behind it, and the table."""
        part = copy(self)
        for derived in ("graph", "inputs", "sources", "patterns", "copied_steps", "_only_tables", "_hearing"):
            part.__dict__.pop(derived, None)
        part.steps, part.copied, part._of_copy = list(self.copied[table].steps), {}, True
        return part

    @cached_property
    def copied_steps(self) -> frozenset[int]:
        """The ids of the steps that run for copies, and in no task."""
        return frozenset(id(step) for one in self.copied.values() for step in one.steps)

    def name(self, step: Step) -> str:
        """The stage name of a step; for an input, its topic."""
        return self.names[id(step)]

    def called(self, step: Step) -> str:
        """What a step is called for people: also one that was made of a declared one."""
        return self.names.get(id(step)) or step.name or step.verb

    def topic(self, step: Step) -> str:
        """The intermediate stream of a shuffle."""
        return self.topics.intermediate(step.name)

    @cached_property
    def patterns(self) -> frozenset[str]:
        """The patterns of its inputs."""
        return frozenset(one.matched for one in self.inputs.values() if one.matched)

    @cached_property
    def inputs(self) -> dict[str, InputStep]:
        """The inputs, by topic."""
        return inputs_of(self.steps)

    @cached_property
    def sources(self) -> dict[str, SourceStep]:
        """What reads each of the streams that the job reads, by topic."""
        return {step.stream(self): step for step in self.steps if isinstance(step, SourceStep)}

    @cached_property
    def graph(self) -> Graph:
        """The checked graph."""
        inputs = tuple(map(self._input, self.inputs.values()))
        stages = tuple(step.stage(self) for step in self.steps if step.staged)
        graph = Graph(inputs, stages)
        if not self._of_copy:
            validate(graph)
            check_stated(graph)
            check_policies(self.copied.values())
        return graph

    def _input(self, step: InputStep) -> Input:
        broadcast = any(
            isinstance(t, TableStep) and t.broadcast and step in lineage((t,)) and not shuffles_before(t)
            for t in self.steps
        )
        bootstrap = id(step) in self._only_tables
        stated = step.stated(broadcast=broadcast, bootstrap=bootstrap, key_serde=self.app.key_serde)
        return replace(stated, copied=True) if id(step) in self.copied_steps else stated

    @cached_property
    def _only_tables(self) -> frozenset[int]:
        """The steps whose rows all end in tables. If such a step is an input, the job reads it to its end first."""
        readers = readers_of(self.steps)
        found: set[int] = set()
        for step in reversed(self.steps):  # parents come before children
            after = readers.get(id(step), [])
            if after and all(isinstance(one, TableStep) or (one.passing and id(one) in found) for one in after):
                found.add(id(step))
        return frozenset(found)

    def tables(self) -> Iterator[TableSpec]:
        """The tables of a task: those that users declared, and those that steps keep. Of the part of a copy: the one table."""
        return (spec for spec in self.every_table() if spec.name not in self.copied)

    def every_table(self) -> Iterator[TableSpec]:
        """These, and those of which each worker keeps one copy."""
        for table in () if self._of_copy else self.app.tables.values():
            key, value = table.key_serde, table.serde
            yield TableSpec(table.name, key, value, schema_of_table(key, value), table.ttl_ms, table.migrate)
        for step in self.steps:
            yield from step.tables()

    @cached_property
    def _hearing(self) -> frozenset[str]:
        """The names of the steps that are told the event time."""
        return frozenset(self.name(step) for step in self.steps if step.hears_time)

    def task_plan(self, task: str, model: JobModel, settings: TaskSettings) -> TaskPlan:
        """What one task reads and writes under a job model."""
        widths = model.widths
        by_topic = self.inputs
        owned: dict[str, list[int]] = {}
        for stream, partition in model.tasks[task]:
            owned.setdefault(stream, []).append(partition)
        inputs: list[InputPlan] = []
        for stream, partitions in sorted(owned.items()):
            if stream in self.graph.copied:
                continue
            declared = self.graph.input.get(stream)
            if declared is None:
                origins = self.graph.origins(stream)
                inputs.append(
                    InputPlan(
                        stream,
                        tuple(partitions),
                        widths[stream],
                        kind=INTERMEDIATE,
                        ahead_ms=_farthest(by_topic[one].max_future_ms for one in origins),
                    )
                )
                continue
            until = by_topic[stream].until
            foreign = bool(declared.producers)
            inputs.append(
                InputPlan(
                    stream,
                    tuple(partitions),
                    widths[stream],
                    kind=FOREIGN if foreign else SOURCE,
                    bootstrap=declared.bootstrap,
                    lag_ms=declared.out_of_order_ms,
                    start=declared.start if isinstance(declared.start, str) else ("time", declared.start),
                    until=("time", until) if isinstance(until, int) else "newest" if until == "newest" else None,
                    until_of=dict(until) if isinstance(until, Mapping) else {},
                    on_lost=declared.on_lost,
                    jobs=declared.producers,
                    ahead_ms=by_topic[stream].max_future_ms,
                    ends=until == "producers",
                )
            )
        graph, hearing = self.graph, self._hearing
        outputs = tuple(
            OutputPlan(stream, widths[stream], graph.nearest(graph.fed_by(stream), hearing), stream in graph.shared)
            for stream, producers in sorted(model.producers.items())
            if task in producers.tasks
        )
        steps = tuple(
            StepPlan(name, graph.nearest(name, hearing) & (owned.keys() | hearing), step.holds_ms)
            for step in self.steps
            if (name := self.name(step)) in hearing
        )
        timers = (step.name for step in self.steps if step.by_clock and named_owner(step.name, model.tasks) == task)
        return TaskPlan(
            str(self.app.job), task, tuple(inputs), outputs, settings, steps, self.graph.bounded, frozenset(timers)
        )


def _farthest(ahead: Iterable[int | None]) -> int | None:
    """The largest of these; None, which is any, if one of them is."""
    found = list(ahead)
    return None if None in found else max((one for one in found if one is not None), default=None)


def graph_of(app: DeclaredApp) -> Graph:
    """The checked graph of an app."""
    return Declared(app).graph


def _has_effect(app: DeclaredApp) -> None:
    """Check that the job has inputs and effects, and that every shuffle and every batch has a reader."""
    if not inputs_of(app.steps):
        raise DeclarationError(
            f"the job '{app.name}' has no inputs", remedy='app.input("topic") declares what it reads'
        )
    if not any(step.effective for step in app.steps):
        raise DeclarationError(
            f"the job '{app.name}' has no outputs, tables or actors",
            remedy="end a stream with .to(…), .sink(…), .agg(…) or .table(…), or give it to an agent or actor",
        )
    used = {id(parent) for step in app.steps for parent in step.parents}
    for step in app.steps:
        if step.wants_reader and id(step) not in used:
            raise DeclarationError(
                f"no step reads what {step.verb} '{step.name}' ({step.where}) gives", remedy="use it, or remove it"
            )
    readers = readers_of(app.steps)
    writes = [step for step in app.steps if isinstance(step, WriteStep)]
    for write in writes:
        (step,) = write.parents
        others = [one for one in readers[id(step)] if one not in writes]
        if len(readers[id(step)]) > 1:
            also = others[0].said if others else "another write"
            raise DeclarationError(
                f"Spark writes the result of {step.verb} '{step.name}' ({step.where}), so that {also} cannot have it, too",
                remedy="use the batches before it twice: .spark(…).write(…) and another .spark(…)",
            )
    _agree_about_files(writes)
    for window in app.windows:
        window.check_used()


def _agree_about_files(steps: list[WriteStep]) -> None:
    """Refuse two stages whose files in one directory no one could read together."""
    first: dict[str, WriteStep] = {}
    for step in steps:
        if not step.write.path:
            continue
        other = first.setdefault(step.write.path, step)
        for what in ("format", "partition_by"):
            own, theirs = getattr(step.write, what), getattr(other.write, what)
            if own != theirs:
                raise DeclarationError(
                    f"two stages write to {step.write.path} with another {what}: {theirs!r} ({other.where}) and {own!r} ({step.where})",
                    remedy="let each write to a directory of its own",
                )


def _with_combining(steps: list[Step], policy: Policy) -> list[Step]:
    """The steps, with each shuffle set to combine the mergeable aggregate or window behind it, or to leave out what a dedupe there would.

    This happens only where that step is the sole reader of the shuffle: any other reader needs the rows themselves.
    """
    readers = readers_of(steps)
    # where a policy may leave out the first row of a key, the next one is the first
    excused = any((one.on_error or policy) not in (None, "fail") for one in steps)

    def combining(step: Step) -> Step:
        if isinstance(step, ShuffleStep) and step.by_key:
            after = readers.get(id(step), [])
            columns = step.parents[0].columns_given is not None
            if len(after) == 1 and len(after[0].parents) == 1:
                if isinstance(after[0], DedupeStep):
                    return replace(step, firsts=not excused)
                if after[0].combines(columns=columns):
                    return replace(step, combine=cast("AggregateStep | WindowStep", after[0]))
        return step

    return rebuilt(steps, combining)
