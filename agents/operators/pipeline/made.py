"""Which operator runs a step: the one place that names all of them.

A step may not import what runs it, so the tables stand here, by the kind of step. A kind that is in none of them cannot run: no step passes
rows on because it was forgotten.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from types import NoneType
from typing import Any

from ...job.steps.batches import BatchStep, SparkStep, WriteStep
from ...job.steps.columns import ColumnsStep, FilterColumnsStep, FrameStep, RowsStep, WithColumnsStep
from ...job.steps.ends import ActorStep, AgentStep, ShareStep, SinkStep, ToStep
from ...job.steps.keyed import AggregateStep, JoinStep, JoinTableColumnsStep, JoinTableStep, TableStep, WindowStep
from ...job.steps.rows import EventsStep, FilterStep, FlatMapStep, MapAsyncStep, MapStep, MergeStep, PeekStep, RekeyStep
from ...job.steps.sources import ShuffleStep
from ...job.steps.step import Step
from ..actors.actor import ActorOp
from ..actors.asynchronous import AgentOp, MapAsyncOp, SinkOp
from ..base.stateless import Env, FilterOp, FlatMapOp, MapOp, Operator, PeekOp, RekeyOp
from ..joins.joined import JoinOp
from ..plain.aggregating import AggregateOp
from ..plain.columnar import ColumnsOp, FilterColumnsOp, RowsOp, WithColumnsOp
from ..plain.framed import FrameOp
from ..plain.keyed import JoinTableColumnsOp, JoinTableOp, TableOp
from ..plain.output import ToOp
from ..plain.shared import ShareOp
from ..shuffle.shuffles import CombineOp, ShuffleOp
from ..windows.combined_windows import WindowCombineOp
from ..windows.windowed import WindowOp


def operator_of(step: Step, env: Env) -> Operator:
    """The operator that runs a step."""
    return OPERATORS[type(step)](step, env)


def _sending(step: ShuffleStep, env: Env) -> Operator:
    return SENDING[type(step.combine)](step, env)


def _bridge(module: str, name: str) -> Callable[[Any, Env], Operator]:
    """An operator of Spark. Only jobs that use Spark import them."""
    return lambda step, env: getattr(importlib.import_module(f"..batches.{module}", __package__), name)(step, env)


OPERATORS: Mapping[type[Step], Callable[[Any, Env], Operator]] = {
    MapStep: MapOp,
    FlatMapStep: FlatMapOp,
    FilterStep: FilterOp,
    PeekStep: PeekOp,
    MapAsyncStep: MapAsyncOp,
    RekeyStep: RekeyOp,
    ColumnsStep: ColumnsOp,
    FilterColumnsStep: FilterColumnsOp,
    WithColumnsStep: WithColumnsOp,
    FrameStep: FrameOp,
    RowsStep: RowsOp,
    ShuffleStep: _sending,
    AggregateStep: AggregateOp,
    WindowStep: WindowOp,
    TableStep: TableOp,
    JoinTableStep: JoinTableOp,
    JoinTableColumnsStep: JoinTableColumnsOp,
    JoinStep: JoinOp,
    BatchStep: _bridge("spark", "BatchOp"),
    SparkStep: _bridge("spark_results", "SparkOp"),
    WriteStep: _bridge("written", "WriteOp"),
    ToStep: ToOp,
    ShareStep: ShareOp,
    SinkStep: SinkOp,
    AgentStep: AgentOp,
    ActorStep: ActorOp,
    MergeStep: Operator,
    EventsStep: Operator,
}
SENDING: Mapping[type[Step | None], Callable[[Any, Env], Operator]] = {
    NoneType: ShuffleOp,
    AggregateStep: CombineOp,
    WindowStep: WindowCombineOp,
}
"""By what a shuffle combines for."""
