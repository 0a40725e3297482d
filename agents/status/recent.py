"""The last minutes of a job in numbers: a ring in each worker, so that the lines of the page do not begin when it is opened.

Every `EVERY_S` seconds the numbers of all heartbeats are added up: rows that reach the inputs, lag, the work of each step, the loop of each
worker. What is not known at a moment is a gap, not a zero.

Promise: bounded, in samples and in names.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

EVERY_S = 5.0
SAMPLES = 121
"""Ten minutes."""
MOST_NAMES = 400
"""At most so many steps, streams and workers have lines of their own."""
TREND_S = 60.0
"""Over such a time it is judged whether the lag grows."""
MomentNumbers = Mapping[str, float | None]


@dataclass(slots=True)
class RecentNumbers:
    """The ring.

    >>> ring = RecentNumbers()
    >>> for second in range(0, 100, 5):
    ...     ring.take({"lag": 1000.0 - second}, float(second))
    >>> ring.document(95.0)["lag_trend"], len(ring.document(95.0)["lag"])
    (-1.0, 20)
    """

    samples: deque[tuple[float, MomentNumbers]] = field(default_factory=lambda: deque(maxlen=SAMPLES))

    def take(self, sample: MomentNumbers, now_s: float) -> None:
        """Take the numbers of this moment."""
        self.samples.append((now_s, dict(list(sample.items())[:MOST_NAMES])))

    def due(self, now_s: float) -> bool:
        """Whether the next sample is due."""
        return not self.samples or now_s - self.samples[-1][0] >= EVERY_S - 0.5

    def document(self, now_s: float) -> dict[str, Any]:
        """The lines, oldest value first, and by how many records a second the lag grows."""
        taken = [sample for _, sample in self.samples]
        names = dict.fromkeys(name for sample in taken for name in sample)
        lines = {name: [_short(sample.get(name)) for sample in taken] for name in names}

        def of(kind: str) -> dict[str, list[float | None]]:
            return {name.partition("/")[2]: line for name, line in lines.items() if name.startswith(f"{kind}/")}

        return {
            "every_s": EVERY_S,
            "rows_s": lines.get("rows", []),
            "lag": lines.get("lag", []),
            "lag_trend": self.trend(now_s),
            "steps": of("step"),
            "streams": of("stream"),
            "workers": of("worker"),
        }

    def trend(self, now_s: float) -> float | None:
        """By how many records a second the lag has grown lately; None if that is not known."""
        known = [
            (at_s, lag)
            for at_s, sample in self.samples
            if now_s - at_s <= TREND_S and (lag := sample.get("lag")) is not None
        ]
        if len(known) < 2 or (span_s := known[-1][0] - known[0][0]) < TREND_S / 3:
            return None
        return round((known[-1][1] - known[0][1]) / span_s, 1)


def _short(value: float | None) -> float | None:
    return None if value is None else round(value, 3)


def sample_of(status: Mapping[str, Any], inputs: Iterable[str]) -> dict[str, float | None]:
    """The numbers of this moment, of the status of a job. `inputs`: the streams that it reads of others."""
    rates = {one["step"]: one for one in status["steps"]}
    rows = [float(rates[topic]["rows_s"]) for topic in inputs if topic in rates]
    found: dict[str, float | None] = {"rows": sum(rows) if rows else None, "lag": _float(status["lag"])}
    found |= {f"worker/{one['processor']}": one["loop"] for one in status["workers"]}
    found |= {f"stream/{one['stream']}": float(one["lag"]) for one in status["streams"]}
    found |= {f"step/{one['step']}": one["busy"] for one in status["steps"]}
    return found


def _float(value: int | None) -> float | None:
    return None if value is None else float(value)
