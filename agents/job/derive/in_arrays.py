"""Which steps that take columns make rows of them after all, and why: so `headgate plan` says it, and windows act on it.

What it decides: a window keeps its states in arrays if its aggregates are of numbers and nothing needs the single rows. The same columns
give the same results either way; rows cost an object for each record.
"""

from __future__ import annotations

from ....core.columns.schema import FLOAT, ColumnSchema
from ....core.columns.typing import NUMBERS, column_of
from ...records.values.serdes import is_json
from ..steps.columns import ColumnsStep, FilterColumnsStep, FrameStep, WithColumnsStep
from ..steps.ends import ToStep
from ..steps.keyed import AggregateStep, WindowStep
from ..steps.rows import EventsStep, MergeStep
from ..steps.sources import InputStep, ShuffleStep
from ..steps.step import Step
from ..types.aggregates import NUMERIC, AggregatePlan


def makes_rows(step: Step) -> str | None:
    """Why a step makes rows of the columns that come in; None if it makes none."""
    match step:
        case ToStep(serde=serde) if not is_json(serde):
            return f"it writes {serde.name}"
        case ShuffleStep(combine=AggregateStep() as one):
            return _of_plan(one.plan, _columns_behind(step.parents[0]))
        case ShuffleStep(combine=WindowStep() as one):
            return _why_no_arrays(one)
        case AggregateStep():
            return _of_plan(step.plan, _columns_behind(step.parents[0]))
        case WindowStep():
            return _why_no_arrays(step)
        case _:
            return None


def in_arrays(step: WindowStep) -> bool:
    """Whether the windows of a step begin with their states in arrays."""
    return step.schema is not None and _why_no_arrays(step) is None


def _why_no_arrays(step: WindowStep) -> str | None:
    """Why the windows of a step that takes columns cannot keep their states in arrays; None if they can."""
    if step.window.spans is None:
        return "sessions are of rows"
    if step.updates:
        return "early results are of rows"
    return _of_plan(step.plan, step.schema)


def _of_plan(plan: AggregatePlan, schema: ColumnSchema | None) -> str | None:
    types = {} if schema is None else {one.name: one.type for one in schema.columns}
    for part in plan.parts:
        if part.name not in NUMERIC:
            return f"hg.{part.name}() is of rows"
        if types.get(str(part.of), FLOAT) not in NUMBERS:
            return f"hg.{part.name}('{part.of}') is of {types[str(part.of)]}, and arrays hold numbers"
    return None


def _columns_behind(step: Step) -> ColumnSchema | None:
    """The columns that a step passes on; None if they are not known."""
    match step:
        case InputStep():
            return step.columns
        case ColumnsStep() | FilterColumnsStep():
            return step.schema
        case ShuffleStep():
            return step.schema or step.columns
        case WithColumnsStep():
            return step.schema.extended([column_of(name, node, step.schema) for name, node in step.made.items()])
        case FrameStep():
            return step.gives
        case MergeStep() | EventsStep():
            return _columns_behind(step.parents[0])
        case _:
            return None
