"""The batches of a worker by step: what is open, closed and running, and what was done.

    batches.open.<step>  batches.closed.<step>  batches.running.<step>  batches.rows.<step>  batches.oldest.<step> …      in a heartbeat

The numbers are sums over all tasks of the worker. What is done is counted since each task started there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from ....core.batching.batch_progress import CLOSED, OPEN, RETURNED, RUNNING, SESSION_STATES, SparkMemory, StepBatches
from .step_facts import StepFacts

if TYPE_CHECKING:
    from ....core.batching.batches import Bridge
    from ...runtime.task.task import TaskActor

SPARK = "spark"
TAKEN, LIMIT, COUNT = "spark.taken.", "spark.limit.", "spark.count."


@dataclass(frozen=True, slots=True)
class BatchLoad(StepFacts):
    """The batches of one step."""

    KEYS: ClassVar[Mapping[str, str]] = {
        **{name: f"batches.{name}" for name in ("open", "closed", "running", "returned", "rows", "size", "failing")},
        **{name: f"batches.{name}" for name in ("done", "rows_done", "retried", "poisoned")},
        "oldest_ms": "batches.oldest",
        "held": "batches.held",
        "to_sink": "batches.sink",
    }
    SPARSE = True

    open: int = 0
    closed: int = 0
    running: int = 0
    returned: int = 0
    rows: int = 0
    """Rows of the batches that are not done."""
    size: int = 0
    """Bytes of these rows."""
    failing: int = 0
    """Batches whose last attempt failed."""
    done: int = 0
    rows_done: int = 0
    retried: int = 0
    poisoned: int = 0
    oldest_ms: int | None = None
    """When the oldest batch was closed that Spark has not finished, by the wall clock; when it was opened, if it was closed elsewhere."""
    held: int = 0
    """Tasks that take no more chunks of the streams that lead to it, as so many batches wait."""
    to_sink: int = 0
    """Tasks whose batches of this step go to a sink: all that run it, or none."""


def batches_of(actors: Iterable[TaskActor]) -> list[StepBatches]:
    """The batches of these tasks, by task and step."""
    return [found for actor in actors if actor.site.pipeline is not None for found in actor.site.pipeline.batches()]


def load_of_step(one: StepBatches) -> BatchLoad:
    """The numbers of one step in one task."""
    states = [batch.state for batch in one.batches]
    waiting = [batch for batch in one.batches if batch.state in (CLOSED, RUNNING)]
    return BatchLoad(
        one.step,
        *(states.count(state) for state in (OPEN, CLOSED, RUNNING, RETURNED)),
        rows=sum(batch.rows for batch in one.batches),
        size=sum(batch.size or 0 for batch in one.batches),
        failing=sum(1 for batch in one.batches if batch.error),
        done=one.tally.done,
        rows_done=one.tally.rows,
        retried=one.tally.retried,
        poisoned=one.tally.poisoned,
        oldest_ms=min(
            (ms for batch in waiting if (ms := batch.closed_ms or batch.opened_ms) is not None), default=None
        ),
        held=int(one.held),
        to_sink=int(one.to_sink),
    )


def spark_load(bridge: Bridge | None) -> dict[str, float]:
    """The state of the worker's session and the memory that it takes, as numbers; nothing for a job without a Spark stage."""
    if bridge is None:
        return {}
    session = bridge.seen().session
    load = {SPARK: float(SESSION_STATES.index(session.state))}
    for one in session.taken:
        load[f"{TAKEN}{one.process}"] = float(one.used)
        load[f"{COUNT}{one.process}"] = float(one.count)
        if one.limit is not None:
            load[f"{LIMIT}{one.process}"] = float(one.limit)
    return load


def memory_of_load(load: Mapping[str, float]) -> list[SparkMemory]:
    """The memory of Spark in a heartbeat.

    >>> memory_of_load({"spark.taken.jvm": 7.0, "spark.taken.python": 9.0, "spark.limit.python": 5.0, "spark.count.python": 2.0})
    [SparkMemory(process='jvm', used=7, limit=None, count=1), SparkMemory(process='python', used=9, limit=5, count=2)]
    """
    return [
        SparkMemory(
            process,
            int(load[name]),
            None if (limit := load.get(f"{LIMIT}{process}")) is None else int(limit),
            int(load.get(f"{COUNT}{process}", 1)),
        )
        for name in load
        if name.startswith(TAKEN) and (process := name.removeprefix(TAKEN))
    ]


def spark_of_load(load: Mapping[str, float]) -> str | None:
    """The state of the session in a heartbeat.

    >>> spark_of_load({"spark": 2.0}), spark_of_load({})
    ('ready', None)
    """
    number = load.get(SPARK)
    return SESSION_STATES[int(number)] if number is not None and 0 <= number < len(SESSION_STATES) else None
