"""Which operator runs a step: the one place that names all of them."""

from __future__ import annotations

import importlib
from typing import Any, Protocol

from ...job.steps.batches import BatchStep, SparkStep, WriteStep
from ...job.steps.columns import ColumnsStep, FilterColumnsStep, FrameStep, RowsStep, WithColumnsStep
from ...job.steps.ends import ActorStep, AgentStep, ShareStep, SinkStep, ToStep
from ...job.steps.keyed import AggregateStep, JoinStep, JoinTableStep, TableStep, WindowStep
from ...job.steps.rows import FilterStep, FlatMapStep, MapAsyncStep, MapStep, PeekStep, RekeyStep
from ...job.steps.sources import ShuffleStep
from ...job.steps.step import Step
from ...records.values.record import Batch
from ..actors.actor import ActorOp
from ..actors.asynchronous import AgentOp, MapAsyncOp, SinkOp
from ..base.stateless import Env, FilterOp, FlatMapOp, MapOp, Operator, PeekOp, RekeyOp
from ..joins.joined import JoinOp
from ..plain.aggregating import AggregateOp
from ..plain.columnar import ColumnsOp, FilterColumnsOp, RowsOp, WithColumnsOp
from ..plain.framed import FrameOp
from ..plain.keyed import JoinTableOp, TableOp
from ..plain.output import ToOp
from ..plain.shared import ShareOp
from ..shuffle.shuffles import CombineOp, ShuffleOp
from ..windows.combined_windows import WindowCombineOp
from ..windows.windowed import WindowOp


class MakingEnv(Env, Protocol):
    """What some operators are given, besides what any operator needs."""

    def origin(self) -> Batch[Any, Any]:
        """The origin of the running rows; empty for a letter that is not a chunk."""
        ...


def operator_of(step: Step, env: MakingEnv) -> Operator:
    """The operator that runs a step."""
    origin = env.origin
    match step:
        case MapStep():
            return MapOp(step, env)
        case PeekStep():
            return PeekOp(step, env)
        case FilterStep():
            return FilterOp(step, env)
        case ColumnsStep():
            return ColumnsOp(step, env)
        case FilterColumnsStep():
            return FilterColumnsOp(step, env)
        case WithColumnsStep():
            return WithColumnsOp(step, env)
        case FrameStep():
            return FrameOp(step, env)
        case RowsStep():
            return RowsOp(step, env)
        case FlatMapStep():
            return FlatMapOp(step, env)
        case MapAsyncStep():
            return MapAsyncOp(step, env)
        case RekeyStep():
            return RekeyOp(step, env)
        case ShuffleStep():
            if isinstance(step.combine, WindowStep):
                return WindowCombineOp(step, env)
            return CombineOp(step, env) if step.combine else ShuffleOp(step, env)
        case AggregateStep():
            return AggregateOp(step, env)
        case WindowStep():
            return WindowOp(step, env)
        case TableStep():
            return TableOp(step, env)
        case JoinTableStep():
            return JoinTableOp(step, env)
        case JoinStep():
            return JoinOp(step, env)
        case ToStep():
            return ToOp(step, env)
        case ShareStep():
            return ShareOp(step, env)
        case SinkStep():
            return SinkOp(step, env, origin)
        case AgentStep():
            return AgentOp(step, env, origin, env.table)
        case ActorStep():
            return ActorOp(step, env, origin)
        case BatchStep():
            return _bridge("spark").BatchOp(step, env)
        case SparkStep():
            return _bridge("spark_results").SparkOp(step, env)
        case WriteStep():
            return _bridge("written").WriteOp(step, env)
        case _:
            return Operator(step, env)


def _bridge(module: str) -> Any:
    """A module of the Spark operators. Only jobs that use Spark import them."""
    return importlib.import_module(f"..batches.{module}", __package__)
