"""The metrics of what is slow: seconds and rows of each step, how long chunks and commits take, and what the process takes of the machine.

Steps are summed over all tasks that have run in the process; what they have taken never falls when a task moves away.
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from ..error_counts import failed_so
from ..measured import starved_s
from .metric import COUNTER, GAUGE, HISTOGRAM, Metric, MetricSample

if TYPE_CHECKING:
    from ..worker.worker import Worker

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def _step_seconds(worker: Worker) -> Iterator[MetricSample]:
    yield from (((step,), work.ns / 1e9) for step, work in sorted(worker.runtime.steps.items()))


def _step_rows(worker: Worker) -> Iterator[MetricSample]:
    yield from (((step,), float(work.rows)) for step, work in sorted(worker.runtime.steps.items()))


def _step_errors(worker: Worker) -> Iterator[MetricSample]:
    yield from ((kind, float(n)) for kind, n in sorted(failed_so(worker.runtime.counters.values()).items()))


def _lag_by_partition(worker: Worker) -> Iterator[MetricSample]:
    """Only what is known: a partition that is not there is unknown."""
    for lags in worker.participant.lags_now().values():
        for at, lag in sorted(lags.items()):
            if lag is not None:
                yield (at.stream, str(at.partition)), float(lag)


def _stores(name: str) -> Callable[[Worker], list[MetricSample]]:
    """What RocksDB calls so, summed over the stores that are open here."""

    def read(worker: Worker) -> list[MetricSample]:
        stores = [actor.state.store for actor in worker.actors.values()]
        return [((), float(sum(one.figure(name) for one in stores if one is not None)))]

    return read


def _resident(_: Worker) -> Iterator[MetricSample]:
    """Nothing where the system does not say it."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            yield (), float(int(file.read().split()[1]) * PAGE_BYTES)
    except OSError:
        return


def _build(worker: Worker) -> list[MetricSample]:
    return [((worker.options.version, platform.python_version()), 1.0)]


WORK_METRICS: tuple[Metric, ...] = (
    Metric(
        "headgate_step_seconds_total",
        COUNTER,
        "Time for which a step, with its user code, has held the main loop, without the steps behind it. Short chunks are sampled.",
        ("step",),
        _step_seconds,
    ),
    Metric(
        "headgate_step_rows_total",
        COUNTER,
        "Rows that have reached a step, including retries.",
        ("step",),
        _step_rows,
    ),
    Metric(
        "headgate_step_errors_total",
        COUNTER,
        "Records on which a step failed, and chunks that failed in it, each try of them, by the class of the error.",
        ("step", "error"),
        _step_errors,
    ),
    Metric(
        "headgate_chunk_seconds",
        HISTOGRAM,
        "For how long chunks have held the main loop, without the time for which they waited.",
        (),
        durations=lambda worker: worker.runtime.turns.chunks,
    ),
    Metric(
        "headgate_commit_seconds",
        HISTOGRAM,
        "How long transactions took from their beginning to the broker's answer.",
        (),
        durations=lambda worker: worker.runtime.producers.commits,
    ),
    Metric(
        "headgate_loop_busy_seconds_total",
        COUNTER,
        "Time for which the thread of the main loop has had a processor: at one second a second, the worker can do no more.",
        (),
        lambda _: [((), time.thread_time())],
    ),
    Metric(
        "headgate_loop_starved_seconds_total",
        COUNTER,
        "Time for which the thread of the main loop has waited for a processor that others had, or that a limit of its container kept from "
        "it; missing where the system does not say.",
        (),
        lambda _: [] if (waited_s := starved_s()) is None else [((), waited_s)],
    ),
    Metric(
        "headgate_partition_lag_records",
        GAUGE,
        "Records of a partition that are not processed yet, also while its task has failed; missing where it is not known.",
        ("stream", "partition"),
        _lag_by_partition,
    ),
    Metric(
        "headgate_store_disk_bytes",
        GAUGE,
        "Bytes of the stores of this worker's tasks in RocksDB's files.",
        (),
        _stores("rocksdb.live-sst-files-size"),
    ),
    Metric(
        "headgate_store_compactions_running",
        GAUGE,
        "Compactions that run now in the stores of this worker's tasks.",
        (),
        _stores("rocksdb.num-running-compactions"),
    ),
    Metric(
        "headgate_store_compaction_pending_bytes",
        GAUGE,
        "Bytes that RocksDB still has to compact, as it estimates.",
        (),
        _stores("rocksdb.estimate-pending-compaction-bytes"),
    ),
    Metric(
        "headgate_stores_stopped",
        GAUGE,
        "Stores that accept no writes now, because the disk must catch up.",
        (),
        _stores("rocksdb.is-write-stopped"),
    ),
    Metric(
        "headgate_process_cpu_seconds_total",
        COUNTER,
        "Processor time of the process, all threads together.",
        (),
        lambda _: [((), time.process_time())],
    ),
    Metric("headgate_process_resident_bytes", GAUGE, "Memory that the process takes.", (), _resident),
    Metric("headgate_build_info", GAUGE, "Always 1; its labels say what runs.", ("version", "python"), _build),
)
"""All of them."""
