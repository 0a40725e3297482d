"""Derives from a declaration what `core` decides with: the graph of a job, and the plan of each of its tasks.

`graph_of(app)` gives every step its final name: a named step keeps its name, and the others get a number, on which nothing stored
depends. `task_plan(...)` says what one task reads and writes under a job model. Both are pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, Protocol, TypeGuard

from ....core.batching.batches import FORMAT as BOOK
from ....core.errors import DeclarationError
from ....core.graph.checks import validate
from ....core.graph.graph import Graph, Input, Stage, loose_name
from ....core.graph.keying import check_stated
from ....core.graph.model import JobModel
from ....core.names import JobName, Topics
from ....core.settings import shown
from ....core.task.plan import FOREIGN, INTERMEDIATE, SOURCE, InputPlan, OutputPlan, StepPlan, TaskPlan, TaskSettings
from ...records.values.serdes import Serde, stored
from ..steps.batches import BatchStep, WriteStep
from ..steps.ends import ActorStep, AgentStep, ShareStep, ToStep
from ..steps.keyed import AggregateStep, JoinStep, JoinTableStep, TableStep, WindowStep
from ..steps.sources import InputStep, ShuffleStep
from ..steps.step import Step, lineage, readers_of, rebuilt
from ..types.schemas import (
    SLOT_KEY,
    TIMERS,
    TableSpec,
    schema_of_aggregate,
    schema_of_batches,
    schema_of_join,
    schema_of_own,
    schema_of_rows,
    schema_of_table,
    schema_of_window,
)
from ..types.timestamps import TimeField
from ..types.windows import distance_said, said
from .batch_columns import with_columns_of_batches
from .named_fields import with_named_fields
from .references import check_alone, inline


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

    def finish(self) -> DeclaredApp:
        """Check what can be checked only when all is declared."""
        ...


class Declared:
    """A finished declaration: its steps with their final names, and the graph that they form."""

    def __init__(self, app: DeclaredApp, *, unfinished: bool = False, fetches_all: bool = False) -> None:
        """`fetches_all`: batches by reference are collected like others, where no executor could read a topic."""
        self.app = app if unfinished else app.finish()
        self.topics = app.topics
        self.steps = with_columns_of_batches(_with_combining(app.steps))
        why: dict[str, str] = {}
        if not unfinished:
            _has_effect(app)
            check_alone(self.steps)
            if fetches_all:
                self.steps = rebuilt(self.steps, inline)
            self.steps, why = with_named_fields(self.steps)
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
            if isinstance(step, TableStep):
                name = f"table:{name}"  # a table may have the same name as the input that it follows
            taken.add(name)
            self.names[id(step)] = name

    def name(self, step: Step) -> str:
        """The stage name of a step; for an input, its topic."""
        return self.names[id(step)]

    def topic(self, step: ShuffleStep) -> str:
        """The intermediate stream of a shuffle."""
        return self.topics.intermediate(step.name)

    @cached_property
    def graph(self) -> Graph:
        """The checked graph."""
        inputs = tuple(self._input(step) for step in self.steps if isinstance(step, InputStep))
        stages = tuple(self._stage(step) for step in self.steps if not isinstance(step, InputStep))
        graph = Graph(inputs, stages)
        validate(graph)
        check_stated(graph)
        return graph

    def _input(self, step: InputStep) -> Input:
        broadcast = any(
            isinstance(t, TableStep) and t.broadcast and step in lineage((t,)) and not _shuffled(t) for t in self.steps
        )
        until = step.until
        return Input(
            stream=step.topic,
            key=step.key if isinstance(step.key, str) else None,
            broadcast=step.broadcast or broadcast,
            bootstrap=step.bootstrap or id(step) in self._only_tables,
            priority=step.priority,
            start=step.start,
            until=tuple(sorted(until.items())) if isinstance(until, Mapping) else until,
            producers=step.producers,
            on_lost=step.on_lost,
            partitioner=step.partitioner,
            key_serde=(step.key_serde or self.app.key_serde).name,
            out_of_order_ms=step.max_out_of_order_ms,
            arguments=(("serde", str(step.serde.name)), ("timestamp", _text(step.timestamp))),
        )

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

    def _stage(self, step: Step) -> Stage:
        reads = tuple(self.name(parent) for parent in step.parents)
        on: tuple[str | None, ...] = ()
        by: str | None = None
        writes: tuple[str, ...] = ()
        width: int | None = None
        key_serde = ""
        between: tuple[tuple[str, str], ...] = ()
        if isinstance(step, JoinTableStep):
            reads = (*reads, self.name(step.table))
            on = (_text(step.on) if step.on is not None else None, None)
        if isinstance(step, ShuffleStep):
            writes = (self.topic(step),)
            by = _text(step.by) if step.by is not None else None
            width = step.partitions
            carried = step.serde.name if step.combine is None else "partial states"
            key_serde = step.key_serde.name
            between = (("carries", carried),)
            between += (("key", step.key_text),) if step.key_text else ()
        if isinstance(step, ToStep | ShareStep):
            writes = (step.topic,)
        if isinstance(step, ShareStep):
            width, key_serde = step.partitions, step.key_serde.name
            between = (("carries", step.serde.name),)
        if isinstance(step, AgentStep) and step.sink:
            writes = (step.sink,)
        if isinstance(step, WriteStep):
            into = step.write
            between = (("into", shown("into", into.path) or _text(into.save)), ("format", into.format))
            between += (("partition_by", ", ".join(into.partition_by)),) if into.partition_by else ()
        if isinstance(step, WindowStep | BatchStep) and step.window is not None:
            writes = (step.late,) if step.late else ()
            between = (("grace", said(step.window.grace_ms)),)
            between += (("at_end", "keep"),) if step.keeps_open else ()
        if isinstance(step, WindowStep):
            between += (("early", f"{step.early_ms} ms, {step.early_rows} rows"),) if step.updates else ()
        if isinstance(step, BatchStep) and step.reference is not None:
            between = (("by", "reference"),)
        elif isinstance(step, BatchStep) and step.rows is not None:
            between += (("rows", str(step.rows)),)
        if isinstance(step, JoinStep):
            writes = (step.late,) if step.late else ()
            between = (("grace", said(step.grace_ms)),)
            between += (("at_end", "keep"),) if step.keeps_open else ()
            on = step.on or ()
        return Stage(
            name=self.name(step),
            verb=step.verb,
            reads=reads,
            writes=writes,
            by=by,
            on=on,
            width=width,
            key_serde=key_serde,
            stateful=step.stateful,
            updates=step.updates,
            arguments=between,
        )

    def tables(self) -> Iterator[TableSpec]:
        """The tables that users declared, and those that steps keep."""
        plain = stored()
        for table in self.app.tables.values():
            key, value = table.key_serde, table.serde
            yield TableSpec(table.name, key, value, schema_of_table(key, value), table.ttl_ms, table.migrate)
        for step in self.steps:
            match step:
                case AggregateStep():
                    schema = schema_of_aggregate(step.plan, step.key_serde)
                    yield TableSpec(step.name, step.key_serde, plain, schema, None, step.migrate, step.plan)
                case WindowStep():
                    of = str(step.window)
                    schema = (
                        schema_of_window(of, step.plan, step.key_serde)
                        if step.rows is None
                        else schema_of_rows(of, step.key_serde, step.rows)
                    )
                    yield TableSpec(step.name, SLOT_KEY, plain, schema, None, step.migrate, step.plan, blocks=True)
                case JoinStep():
                    schema = schema_of_join(_kind_of(step), step.key_serde, step.serdes)
                    yield TableSpec(step.name, SLOT_KEY, plain, schema)
                case TableStep():
                    schema = schema_of_table(step.key_serde, step.serde)
                    yield TableSpec(step.name, step.key_serde, step.serde, schema, step.ttl_ms, step.migrate)
                case ActorStep():
                    yield TableSpec(f"{step.name}.timers", plain, plain, schema_of_own(TIMERS, "kind, time"))
                case BatchStep():
                    of = "" if step.window is None else str(step.window)
                    book = BOOK if step.reference is None else f"{BOOK}, ranges of offsets"
                    yield TableSpec(step.name, plain, plain, schema_of_batches(book, of))
                case _:
                    pass

    @cached_property
    def _hearing(self) -> frozenset[str]:
        """The names of the steps that are told the event time."""
        return frozenset(self.name(step) for step in self.steps if step.hears_time)

    def task_plan(self, task: str, model: JobModel, settings: TaskSettings) -> TaskPlan:
        """What one task reads and writes under a job model."""
        widths = model.widths
        by_topic = {step.topic: step for step in self.steps if isinstance(step, InputStep)}
        owned: dict[str, list[int]] = {}
        for stream, partition in model.tasks[task]:
            owned.setdefault(stream, []).append(partition)
        inputs: list[InputPlan] = []
        for stream, partitions in sorted(owned.items()):
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
        return TaskPlan(str(self.app.job), task, tuple(inputs), outputs, settings, steps, self.graph.bounded)


def _farthest(ahead: Iterable[int | None]) -> int | None:
    """The largest of these; None, which is any, if one of them is."""
    found = list(ahead)
    return None if None in found else max((one for one in found if one is not None), default=None)


def graph_of(app: DeclaredApp) -> Graph:
    """The checked graph of an app."""
    return Declared(app).graph


def _has_effect(app: DeclaredApp) -> None:
    """Check that the job has inputs and effects, and that every shuffle and every batch has a reader."""
    if not any(isinstance(step, InputStep) for step in app.steps):
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
        if isinstance(step, ShuffleStep | BatchStep) and id(step) not in used:
            raise DeclarationError(
                f"nobody reads what {step.verb} '{step.name}' ({step.where}) gives", remedy="use it, or remove it"
            )
    readers = readers_of(app.steps)
    for step in app.steps:
        others = [one for one in readers.get(id(step), []) if not isinstance(one, WriteStep)]
        if len(others) < (written := len(readers.get(id(step), []))) and written > 1:
            also = f"{others[0].verb} ({others[0].where})" if others else "another write"
            raise DeclarationError(
                f"Spark writes the result of {step.verb} '{step.name}' ({step.where}), so that {also} cannot have it, too",
                remedy="use the batches before it twice: .spark(…).write(…) and another .spark(…)",
            )
    _agree_about_files([step for step in app.steps if isinstance(step, WriteStep)])
    for window in app.windows:
        window.check_used()


def _agree_about_files(steps: list[WriteStep]) -> None:
    """Refuse two stages whose files in one directory nobody could read together."""
    first: dict[str, WriteStep] = {}
    for step in steps:
        if not step.write.path:
            continue
        other = first.setdefault(step.write.path, step)
        for what in ("format", "partition_by"):
            mine, theirs = getattr(step.write, what), getattr(other.write, what)
            if mine != theirs:
                raise DeclarationError(
                    f"two stages write to {step.write.path} with another {what}: {theirs!r} ({other.where}) and {mine!r} ({step.where})",
                    remedy="let each write to a directory of its own",
                )


def _kind_of(step: JoinStep) -> str:
    """What a join keeps rows for, as text: rows that were kept for another join are no use to this one."""
    return f"{step.how} {distance_said(step.distance)}"


def _text(value: Any) -> str:
    if value is None or isinstance(value, str | TimeField):
        return str(value or "")
    return f"function {getattr(value, '__qualname__', type(value).__name__)}"


def _shuffled(step: Step) -> bool:
    return any(isinstance(found, ShuffleStep) for found in lineage((step,)))


def _combines(step: Step) -> TypeGuard[AggregateStep | WindowStep]:
    return step.plan.merges if isinstance(step, AggregateStep) else isinstance(step, WindowStep) and step.combines


def _with_combining(steps: list[Step]) -> list[Step]:
    """The steps, with each shuffle set to combine the mergeable aggregate or window behind it.

    This happens only where that step is the sole reader of the shuffle: any other reader needs the rows themselves.
    """
    readers = readers_of(steps)

    def combining(step: Step) -> Step:
        if isinstance(step, ShuffleStep) and step.by_key:
            after = readers.get(id(step), [])
            if len(after) == 1 and len(after[0].parents) == 1 and _combines(one := after[0]):
                return replace(step, combine=one)
        return step

    return rebuilt(steps, combining)
