"""The batches of a worker by step: what is open, closed and running, and what was done.

    batches.open.<step>  batches.closed.<step>  batches.running.<step>  batches.rows.<step>  batches.oldest.<step> …      in a heartbeat

The numbers are sums over all tasks of the worker. What is done is counted since each task started there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from ....core.batching.batch_progress import CLOSED, OPEN, RETURNED, RUNNING, SESSION_STATES, SparkMemory, StepBatches
from .times import fitting

if TYPE_CHECKING:
    from ....core.batching.batches import Bridge
    from ...runtime.task.task import TaskActor

FRONT = "batches."
SPARK = "spark"
TAKEN, LIMIT, COUNT = "spark.taken.", "spark.limit.", "spark.count."


@dataclass(frozen=True, slots=True)
class BatchLoad:
    """The batches of one step."""

    step: str
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

    def plus(self, other: BatchLoad) -> BatchLoad:
        """The sum of both."""
        oldest = [ms for ms in (self.oldest_ms, other.oldest_ms) if ms is not None]
        numbers = (getattr(self, name) + getattr(other, name) for name in NUMBERS)
        return BatchLoad(self.step, *numbers, oldest_ms=min(oldest, default=None))


NUMBERS = tuple(one.name for one in fields(BatchLoad) if one.name not in ("step", "oldest_ms"))


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
        failing=sum(1 for batch in waiting if batch.error),
        done=one.tally.done,
        rows_done=one.tally.rows,
        retried=one.tally.retried,
        poisoned=one.tally.poisoned,
        oldest_ms=min(
            (ms for batch in waiting if (ms := batch.closed_ms or batch.opened_ms) is not None), default=None
        ),
    )


def summed_batches(found: Iterable[BatchLoad]) -> list[BatchLoad]:
    """One sum for each step, sorted by name.

    >>> summed_batches([BatchLoad("b", open=1, oldest_ms=9), BatchLoad("b", open=1, oldest_ms=5)])[0].oldest_ms
    5
    """
    steps: dict[str, BatchLoad] = {}
    for one in found:
        steps[one.step] = steps[one.step].plus(one) if one.step in steps else one
    return [steps[step] for step in sorted(steps)]


def batch_load(found: Iterable[BatchLoad], most_bytes: int) -> dict[str, float]:
    """The batches as numbers under short names, in at most `most_bytes`. From the first step that does not fit, steps are left out."""
    return fitting(map(_named, found), most_bytes)


def _named(one: BatchLoad) -> dict[str, float]:
    named = {f"{FRONT}{name}.{one.step}": float(value) for name in NUMBERS if (value := getattr(one, name))}
    oldest = {} if one.oldest_ms is None else {f"{FRONT}oldest.{one.step}": float(one.oldest_ms)}
    return {f"{FRONT}open.{one.step}": float(one.open), **named, **oldest}


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


def batches_of_load(load: Mapping[str, float]) -> list[BatchLoad]:
    """The batches in a heartbeat.

    >>> one = BatchLoad("daily", 1, 2, rows=9, oldest_ms=5)
    >>> batches_of_load(batch_load([one], 1000)) == [one]
    True
    """
    front = f"{FRONT}open."
    return [
        BatchLoad(
            step,
            *(int(load.get(f"{FRONT}{name}.{step}", 0)) for name in NUMBERS),
            oldest_ms=None if (oldest := load.get(f"{FRONT}oldest.{step}")) is None else int(oldest),
        )
        for step in (name.removeprefix(front) for name in load if name.startswith(front))
    ]
