"""A task's pipeline, made of what its worker has: the job as declared, the task's buffer and tables, the settings as they are now."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from ...core.task.plan import TaskPlan
from ..operators.key_test import KeyTest
from ..operators.pipeline import Pipeline
from .state import TaskStore

if TYPE_CHECKING:
    from .runtime import Runtime


def assembled(host: Runtime, plan: TaskPlan, state: TaskStore, buffer: Any, poke: Callable[[], None]) -> Pipeline:
    """Its operators, put together, when its state is restored. `poke`: something of an operator's own may be due."""
    name = plan.task
    made = Pipeline(
        host.declared,
        name,
        buffer=buffer,
        seal_buffer=host.buffer(name),
        table=state.table,
        widths={one.stream: one.width for one in plan.outputs},
        now_ms=lambda: host.port.clock.now().wall,
        count=lambda what, amount: host.count(name, what, amount),
        streams=[one.stream for one in plan.inputs],
        prepare=state.prepare,
        careful=name in host.careful,
        patience_s=lambda: host.seconds("await.timeout"),
    )
    made.keys = KeyTest(host.declared, name, plan.inputs, partial(host.count, name))
    made.spark = host.spark
    made.spark_in_flight = host.spark_in_flight
    made.spark_timeout_s = host.seconds("spark.batch-timeout")
    made.poke = poke
    made.durable()
    return made
