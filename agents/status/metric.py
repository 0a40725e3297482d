"""What a metric is: its name in Prometheus, and how it is read from a worker."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..durations import Durations
    from ..worker.worker import Worker

MetricSample = tuple[tuple[str, ...], float]
COUNTER, GAUGE, HISTOGRAM = "counter", "gauge", "histogram"


def _nothing(_: Worker) -> Iterable[MetricSample]:
    return ()


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric: its name in Prometheus, its type, its description, its labels besides job and worker, and how it is read."""

    name: str
    kind: str
    doc: str
    labels: tuple[str, ...]
    read: Callable[[Worker], Iterable[MetricSample]] = _nothing
    durations: Callable[[Worker], Durations] | None = None
    """Of a histogram, instead of `read`."""
