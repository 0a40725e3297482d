"""The metrics of bounded batches and of the Spark that works on them.

What is done, retried and poisoned is counted since the worker has started.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from typing import TYPE_CHECKING

from ...core.batching.batch_progress import READY, STATES, BatchSeen, StepBatches
from ..worker.load.batch_load import batches_of, load_of_step
from ..worker.load.step_facts import summed
from .metric import COUNTER, GAUGE, Metric, MetricSample

if TYPE_CHECKING:
    from ..worker.worker import Worker


def _steps(
    value: Callable[[StepBatches], Mapping[tuple[str, ...], float]],
) -> Callable[[Worker], Iterator[MetricSample]]:
    """A number of each batch step, summed over the tasks, those that have left included. `value` gives the labels behind the step."""

    def read(worker: Worker) -> Iterator[MetricSample]:
        found: defaultdict[tuple[str, ...], float] = defaultdict(float)
        for one in chain(batches_of(worker.actors.values()), worker.runtime.past.batches):
            for labels, number in value(one).items():
                found[(one.step, *labels)] += number
        yield from ((labels, number) for labels, number in sorted(found.items()))

    return read


def _tallied(name: str, unit: float = 1) -> Callable[[Worker], Iterator[MetricSample]]:
    return _steps(lambda one: {(): getattr(one.tally, name) / unit})


def _in_state(value: Callable[[BatchSeen], float]) -> Callable[[Worker], Iterator[MetricSample]]:
    return _steps(lambda one: {(state,): sum(value(b) for b in one.batches if b.state == state) for state in STATES})


def _spark_tasks(one: StepBatches) -> dict[tuple[str, ...], float]:
    known = [batch.progress for batch in one.batches if batch.progress is not None]
    done = sum(progress.tasks_done for progress in known)
    return {("done",): done, ("left",): sum(progress.tasks for progress in known) - done}


def _oldest_batch(worker: Worker) -> Iterator[MetricSample]:
    for one in summed(map(load_of_step, batches_of(worker.actors.values()))):
        if one.oldest_ms is not None:
            yield (one.step,), one.oldest_ms / 1000


def _sessions(worker: Worker) -> Iterator[MetricSample]:
    if worker.runtime.spark is not None:
        yield (), float(worker.runtime.spark.seen().session.started)


def _spark_ready(worker: Worker) -> Iterator[MetricSample]:
    if worker.runtime.spark is not None:
        yield (), float(worker.runtime.spark.seen().session.state == READY)


def _spark_memory(worker: Worker) -> Iterator[MetricSample]:
    if worker.runtime.spark is not None:
        yield from (((one.process,), float(one.used)) for one in worker.runtime.spark.seen().session.taken)


def _spark_limits(worker: Worker) -> Iterator[MetricSample]:
    if worker.runtime.spark is not None:
        for one in worker.runtime.spark.seen().session.taken:
            if one.limit is not None:
                yield (one.process,), float(one.limit)


BATCH_METRICS: tuple[Metric, ...] = (
    Metric(
        "headgate_batches",
        GAUGE,
        "Batches that are not done: `open`, `closed` (Spark does not work on them yet), `running`, `returned` (not committed yet).",
        ("step", "state"),
        _in_state(lambda batch: 1),
    ),
    Metric(
        "headgate_batch_rows", GAUGE, "Rows of these batches.", ("step", "state"), _in_state(lambda batch: batch.rows)
    ),
    Metric(
        "headgate_batch_bytes",
        GAUGE,
        "Bytes of the rows of the batches that are not done, as Arrow columns.",
        ("step", "state"),
        _in_state(lambda batch: batch.size or 0),
    ),
    Metric(
        "headgate_oldest_batch_seconds",
        GAUGE,
        "When the oldest batch was closed that Spark has not finished, in seconds since the epoch.",
        ("step",),
        _oldest_batch,
    ),
    Metric(
        "headgate_batch_spark_tasks",
        GAUGE,
        "Spark tasks of the running batches that take longer than a second: `done` and `left`.",
        ("step", "state"),
        _steps(_spark_tasks),
    ),
    Metric(
        "headgate_batches_closed_total",
        COUNTER,
        "Batches closed, by the cause: `rows`, `bytes`, `age`, `watermark`, `clock`, `end`, `drain`.",
        ("step", "cause"),
        _steps(lambda one: {(why,): count for why, count in one.tally.closed.items()}),
    ),
    Metric("headgate_batches_done_total", COUNTER, "Batches whose result is committed.", ("step",), _tallied("done")),
    Metric(
        "headgate_batch_rows_done_total",
        COUNTER,
        "Rows of the batches whose result is committed.",
        ("step",),
        _tallied("rows"),
    ),
    Metric(
        "headgate_batch_bytes_done_total",
        COUNTER,
        "Bytes of the rows of the batches whose result is committed, as Arrow columns.",
        ("step",),
        _tallied("size"),
    ),
    Metric(
        "headgate_batch_result_rows_total",
        COUNTER,
        "Rows that Spark gave back for the batches whose result is committed.",
        ("step",),
        _tallied("results"),
    ),
    Metric(
        "headgate_batches_retried_total",
        COUNTER,
        "Attempts at batches that were repeated.",
        ("step",),
        _tallied("retried"),
    ),
    Metric(
        "headgate_batch_retry_seconds_total",
        COUNTER,
        "Time from a failed attempt at a batch until Spark works on the batch again.",
        ("step",),
        _tallied("retry_ms", 1000),
    ),
    Metric(
        "headgate_batch_rows_poisoned_total",
        COUNTER,
        "Rows that were left out of a batch because Spark failed on them.",
        ("step",),
        _tallied("poisoned"),
    ),
    Metric(
        "headgate_batch_spark_seconds_total",
        COUNTER,
        "Time from giving a batch to Spark to its result or error, over all attempts.",
        ("step",),
        _tallied("spark_ms", 1000),
    ),
    Metric("headgate_spark_ready", GAUGE, "1 while this worker has a Spark session.", (), _spark_ready),
    Metric(
        "headgate_spark_memory_bytes",
        GAUGE,
        "Memory that Spark takes: the `jvm` of the worker, its `heap`, all its `python` workers; on a cluster the `executor` "
        "(its heap) and the `executor-python` that have needed most.",
        ("process",),
        _spark_memory,
    ),
    Metric(
        "headgate_spark_memory_limit_bytes",
        GAUGE,
        "What each of these processes may take, where a setting of Spark bounds it.",
        ("process",),
        _spark_limits,
    ),
    Metric("headgate_spark_sessions_total", COUNTER, "Spark sessions that this worker has started.", (), _sessions),
)
"""All of them."""
