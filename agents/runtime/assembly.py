"""Builds a task's pipeline from the declared job, the task's buffer and tables, and the current settings."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ..operators.key_test import KeyTest
from ..operators.pipeline import Pipeline
from ..records.columns import LIMIT

if TYPE_CHECKING:
    from .site import Site


def assembled(site: Site, poke: Callable[[], None]) -> Pipeline:
    """The pipeline of a task, built once its state is restored. Operators call `poke` when they may have work due."""
    runtime, state, name = site.runtime, site.state, site.name
    settings = runtime.settings
    made = Pipeline(
        runtime.declared,
        name,
        buffer=site.buffer,
        seal_buffer=runtime.producers.buffer(name),
        table=state.table,
        widths={one.stream: one.width for one in site.plan.outputs},
        now_ms=lambda: runtime.port.clock.now().wall,
        count=site.count,
        streams=[one.stream for one in site.plan.inputs],
        prepare=state.prepare,
        careful=name in runtime.producers.careful,
        patience=site.patience,
    )
    made.meter = site.meter
    made.keys = KeyTest(runtime.declared, name, site.plan.inputs, site.count)
    made.spark = runtime.spark
    made.spark_in_flight = settings.value("spark.in-flight")
    made.gather_max_bytes = settings.value("gather.max-bytes")
    made.batch_max_bytes = settings.value(LIMIT)
    made.spark_timeout_s = settings.seconds("spark.batch-timeout")
    made.topic_id = lambda at: site.machine.inputs.topics.get(at, "")
    made.adopted = lambda: site.machine.inputs.adopted
    made.poke = poke
    made.durable()
    return made
