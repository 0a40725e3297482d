"""`batch(…, by="reference")`: which batches may be offset ranges of an input or of a repartition, and which are refused, with the remedy.

Executors read the records themselves, so nothing may happen to a record between the stream and the batch, and its columns must be declared.
Nothing else may read that stream: of an input no record is fetched by the task, and of a repartition, which carries control messages and is
fetched as always, no other step may leave out a row that executors will find.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ....core.columns.logical import TIMES
from ....core.columns.schema import FLOAT
from ....core.errors import DeclarationError
from ...records.values.column_types import columns_of_type
from ...records.values.serdes import is_json
from ..steps.batches import BatchStep, ByReference
from ..steps.sources import InputStep
from ..steps.step import Policy, Step, readers_of
from ..types.parking import PARK
from ..types.timestamps import is_time

if TYPE_CHECKING:
    from ....core.columns.schema import ColumnSchema

INLINE, REFERENCE, SIZE = "inline", "reference", "size"
KINDS = (INLINE, REFERENCE, SIZE)
MANY_ROWS = 1_000_000
"""`by="size"`: a batch of more rows than these is by reference."""


def by_reference(
    parent: Step,
    on_bad_data: Policy,
    by: Any,
    max_rows: int | None,
    max_bytes: int | None,
    schema: ColumnSchema | None,
) -> ByReference | None:
    """What a batch by reference needs to know of its input; None for a batch whose rows are collected. `schema`: the columns behind
    `.columns()`."""
    if by not in KINDS:
        raise DeclarationError(f"batch(by={by!r:.60})", remedy="by='inline', by='reference' or by='size'")
    if by == INLINE or (by == SIZE and (max_rows or 0) <= MANY_ROWS):
        return None
    if max_bytes is not None:
        raise DeclarationError(
            "batch(by='reference', max_bytes=…): the worker keeps no rows, so it does not know their size",
            remedy="max_rows=, or max_age=; of an input, max_rows= bounds the number of offsets",
        )
    source = parent.fetched
    if source is None:
        raise DeclarationError(
            f"batch(by='reference') behind {parent.verb}: executors read the records of an input, before any step, or of columns "
            "directly behind a repartition",
            remedy="put it directly behind app.input(…), its .columns(), or .columns(…).repartition(…), and do the rest in the Spark "
            "function; or leave out by=",
        )
    if not source.foreign:
        return ByReference(_columns(source.schema), None, "skip" if on_bad_data != "fail" else "fail", framed=True)
    if source.producers:
        raise DeclarationError(
            f"batch(by='reference') of '{source.topic}', a stream of other jobs: its retention does not wait for batches of this one",
            remedy="leave out by=, or put .columns(…).repartition(…) before the batch: this job's own stream waits",
        )
    if schema is None or not is_json(source.serde):
        schema = _declared(source)
    if source.timestamp is not None:
        check_columns_of(source, schema)
    policy = source.on_bad_data or on_bad_data
    if not isinstance(policy, str) or policy == PARK:
        how = (
            "is a function, which executors cannot call"
            if callable(policy)
            else "parks records, which executors cannot"
        )
        raise DeclarationError(
            f"batch(by='reference'): on_bad_data= of the input '{source.topic}' {how}",
            remedy="on_bad_data='fail', 'skip' or 'dead_letter'",
        )
    return ByReference(
        _columns(schema),
        source.timestamp,
        policy,
        earliest_ms=source.earliest_ms,
        max_future_ms=source.max_future_ms,
    )


def _columns(schema: ColumnSchema) -> tuple[tuple[Any, ...], ...]:
    return tuple(one.plain() for one in schema.columns)


def _declared(source: InputStep) -> ColumnSchema:
    kind = source.serde.type
    if kind is None or not is_json(source.serde):
        raise DeclarationError(
            f"batch(by='reference') does not know the columns of '{source.topic}'",
            remedy="declare them: app.input(…, serde=hg.json(Order)), or app.input(…).columns(Order).batch(…)",
        )
    return columns_of_type(kind)


def unfetched(steps: Sequence[Step]) -> dict[str, Step]:
    """The inputs of which no record is fetched, each with a batch that is by reference."""
    return {step.parents[0].fetched.topic: step for step in steps if step.ranges and not step.ranges.framed}


def check_alone(steps: Sequence[Step]) -> None:
    """Refuse a second reader of a stream that executors read, and an input of that kind that is to be read before the others."""
    readers = readers_of(steps)
    for step in steps:
        if step.ranges is None:
            continue
        source = step.parents[0].fetched
        if source.bootstrap:
            raise DeclarationError(
                f"batch '{step.name}' ({step.where}) is by reference, and its input '{source.topic}' has bootstrap=True",
                remedy="leave out bootstrap=True, or by='reference'",
            )
        _alone(step, [one for one in readers[id(source)] if not _leads_to_ranges(one, source, readers)], source.name)


def _alone(step: Step, others: Sequence[Step], stream: str) -> None:
    if others:
        other = others[0]
        raise DeclarationError(
            f"batch '{step.name}' ({step.where}) is by reference, so only Spark's executors read the records of '{stream}', "
            f"but {other.verb} ({other.where}) reads it, too",
            remedy="leave out by='reference', or do both in Spark functions",
        )


def inline(step: Step) -> Step:
    """The step, if it is a batch by reference as one whose rows are collected."""
    return replace(step, reference=None) if isinstance(step, BatchStep) and step.reference is not None else step


def _leads_to_ranges(step: Step, source: Step, readers: dict[int, list[Step]]) -> bool:
    """Whether this step leads only to batches of ranges of that source."""
    after = readers.get(id(step), [])
    passes = step.fetched is source and bool(after)
    return step.ranges is not None or (passes and all(_leads_to_ranges(one, source, readers) for one in after))


def check_columns_of(step: InputStep, schema: ColumnSchema) -> None:
    """Refuse an input whose time or key is not a column, because no value exists of which a function could make it."""
    for what, given in (("timestamp", step.time_field), ("key", step.key)):
        if given is None:
            continue
        if not isinstance(given, str):
            raise DeclarationError(
                f"columns(): {what}= of the input '{step.topic}' is a function of a value, which needs rows",
                remedy=f'name a column: {what}="…"',
            )
        column = schema.value(given, f"columns(): {what}= of the input '{step.topic}'")
        if column.logical is not None and not (
            what == "timestamp" and column.logical.name in TIMES and given == step.timestamp
        ):
            raise DeclarationError(
                f"columns(): {what}= of the input '{step.topic}' names the column {column}",
                remedy="a timestamp, by its name alone" if what == "timestamp" else "text, a whole number or a boolean",
            )
        if what == "timestamp" and column.logical is None and not is_time(column.type, step.timestamp):
            raise DeclarationError(
                f"columns(): timestamp= of the input '{step.topic}' names the column {column}",
                remedy="a number, or with hg.field(…, unit='iso') text",
            )
        if what == "key" and column.type == FLOAT:
            raise DeclarationError(
                f"columns(): key= of the input '{step.topic}' names the column {column}, which makes no key",
                remedy="text, a whole number or a boolean",
            )
