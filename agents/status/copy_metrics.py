"""The metrics of the copies of tables that a worker keeps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from ..runtime.copies.facts import STOPPED, CopyFacts
from .metric import COUNTER, GAUGE, Metric, MetricSample

if TYPE_CHECKING:
    from ..worker.worker import Worker


def _of_each(number: Callable[[CopyFacts], float | None]) -> Callable[[Worker], Iterator[MetricSample]]:
    """A number of each copy; what is not known is left out."""

    def read(worker: Worker) -> Iterator[MetricSample]:
        for one in worker.runtime.copies.facts():
            value = number(one)
            if value is not None:
                yield (one.table,), float(value)

    return read


COPY_METRICS: tuple[Metric, ...] = (
    Metric("headgate_copy_rows", GAUGE, "Rows of a copy of a table.", ("table",), _of_each(lambda one: one.rows)),
    Metric(
        "headgate_copy_bytes",
        GAUGE,
        "What a copy of a table takes on the disk.",
        ("table",),
        _of_each(lambda one: one.bytes),
    ),
    Metric(
        "headgate_copy_lag_records",
        GAUGE,
        "Records of its topic that a copy of a table lacks, as far as the broker's last answers tell.",
        ("table",),
        _of_each(lambda one: one.lag),
    ),
    Metric(
        "headgate_copy_age_seconds",
        GAUGE,
        "How long ago a copy of a table was last known to have read everything.",
        ("table",),
        _of_each(lambda one: None if one.age_ms is None else one.age_ms / 1000),
    ),
    Metric(
        "headgate_copy_stopped",
        GAUGE,
        "1 if a copy of a table has stopped at a record that its policy lets fail.",
        ("table",),
        _of_each(lambda one: one.state == STOPPED),
    ),
    Metric(
        "headgate_copy_records_left_out_total",
        COUNTER,
        "Records that a copy of a table has left out, because a policy says so.",
        ("table",),
        _of_each(lambda one: one.left_out),
    ),
    Metric(
        "headgate_copies_built_anew_total",
        COUNTER,
        "How often the store of a copy of a table did not fit its topic any more, and was built anew.",
        ("table",),
        _of_each(lambda one: one.built_anew),
    ),
)
