"""Which operator runs a step: the one place that names all of them."""

from __future__ import annotations

import importlib
from typing import Any, Protocol

from ...job.steps import steps as s
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


def operator_of(step: s.Step, env: MakingEnv) -> Operator:
    """The operator that runs a step."""
    origin = env.origin
    match step:
        case s.MapStep():
            return MapOp(step, env)
        case s.PeekStep():
            return PeekOp(step, env)
        case s.FilterStep():
            return FilterOp(step, env)
        case s.ColumnsStep():
            return ColumnsOp(step, env)
        case s.FilterColumnsStep():
            return FilterColumnsOp(step, env)
        case s.WithColumnsStep():
            return WithColumnsOp(step, env)
        case s.FrameStep():
            return FrameOp(step, env)
        case s.RowsStep():
            return RowsOp(step, env)
        case s.FlatMapStep():
            return FlatMapOp(step, env)
        case s.MapAsyncStep():
            return MapAsyncOp(step, env)
        case s.RekeyStep():
            return RekeyOp(step, env)
        case s.ShuffleStep():
            if isinstance(step.combine, s.WindowStep):
                return WindowCombineOp(step, env)
            return CombineOp(step, env) if step.combine else ShuffleOp(step, env)
        case s.AggregateStep():
            return AggregateOp(step, env)
        case s.WindowStep():
            return WindowOp(step, env)
        case s.TableStep():
            return TableOp(step, env)
        case s.JoinTableStep():
            return JoinTableOp(step, env)
        case s.JoinStep():
            return JoinOp(step, env)
        case s.ToStep():
            return ToOp(step, env)
        case s.ShareStep():
            return ShareOp(step, env)
        case s.SinkStep():
            return SinkOp(step, env, origin)
        case s.AgentStep():
            return AgentOp(step, env, origin, env.table)
        case s.ActorStep():
            return ActorOp(step, env, origin)
        case s.BatchStep():
            return _bridge("spark").BatchOp(step, env)
        case s.SparkStep():
            return _bridge("spark_results").SparkOp(step, env)
        case s.WriteStep():
            return _bridge("written").WriteOp(step, env)
        case _:
            return Operator(step, env)


def _bridge(module: str) -> Any:
    """A module of the Spark operators. Only jobs that use Spark import them."""
    return importlib.import_module(f"..batches.{module}", __package__)
