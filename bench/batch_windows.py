"""Work P, for Spark: its input, the recount of its results, and what results say about progress.

P parses JSON, and counts and sums by key and window of 10 s in event time; each result is given once, when its window has closed. A window
has exactly `rows` records of each partition, so it is also a batch of so many rows. Each key is in one partition, or, if the input is
*mixed*, in all of them; time grows with the offset. No record is late, so a window closes with the first record behind it, after the lag
that the watermark has.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from .rig import PAD
from .tumbling import Result, Window

PARTITIONS = 2
KEYS = 1_000
WINDOW_MS = 10_000
LAG_MS = 1_000
"""Of the watermark, in event time: a program may read one partition a little ahead of the other."""
BASE_MS = (int(time.time()) - 7200) // 10 * 10_000
SCHEMA = "user string, n long, total long, window_start long, window_end long"


@dataclass(frozen=True)
class Windows:
    """The input: so many windows that count, and one more, which closes them."""

    rows: int
    """Of a partition in a window."""
    warm: int
    measured: int
    mixed: bool = False
    """Whether each key is in all partitions, so that every program must shuffle."""

    def __str__(self) -> str:
        return f"{self.records:,} records, windows of {PARTITIONS} x {self.rows:,}{', mixed' * self.mixed}"

    @property
    def records(self) -> int:
        """All records."""
        return (self.warm + self.measured + 1) * self.rows * PARTITIONS

    def row(self, p: int, i: int) -> bytes:
        """Record number `i` of partition `p`; about 100 bytes."""
        return b'{"user":"user%d","amount":%d,"ts":%d,"city":"Leuven","pad":"%s"}' % (
            user(p, i, mixed=self.mixed), amount(p, i), BASE_MS + i * WINDOW_MS // self.rows, PAD.encode(),
        )  # fmt: skip

    def end(self, window: int) -> int:
        """The end of a window, by its number."""
        return BASE_MS + (window + 1) * WINDOW_MS

    def wanted(self) -> Mapping[Window, Sequence[int]]:
        """The count and the sum of each key in each window that counts."""
        return recount(self.rows, self.warm + self.measured, self.mixed)


def user(p: int, i: int, *, mixed: bool = False) -> int:
    """The user of a record."""
    return (i * 7919 + p) % KEYS if mixed else i * 7919 % (KEYS // PARTITIONS) * PARTITIONS + p


def amount(p: int, i: int) -> int:
    """The amount of a record."""
    return (i * 37 + p * 11) % 100


@cache
def recount(rows: int, windows: int, mixed: bool) -> Mapping[Window, Sequence[int]]:
    """The count and the sum of each key in each of these windows."""
    found: dict[Window, list[int]] = {}
    names = [f"user{number}" for number in range(KEYS)]
    for window in range(windows):
        end = BASE_MS + (window + 1) * WINDOW_MS
        for i in range(window * rows, (window + 1) * rows):
            for p in range(PARTITIONS):
                pair = found.setdefault((end, names[user(p, i, mixed=mixed)]), [0, 0])
                pair[0] += 1
                pair[1] += amount(p, i)
    return found


def completed(results: Iterable[Result]) -> dict[int, float]:
    """When each window was complete (wall, s), by its end."""
    found: dict[int, float] = {}
    for one in results:
        found[one.end] = max(one.at / 1000, found.get(one.end, 0.0))
    return found


def rate(given: Windows, complete: Mapping[int, float]) -> tuple[float, float, float]:
    """Records a second behind the warm windows, from when to when. Windows that are complete at the same moment count together: the rate
    is that of all windows behind the first such moment after the warm ones."""
    ends = [given.end(number) for number in range(given.warm + given.measured)]
    latest = 0.0
    times: list[float] = []
    for end in ends:
        latest = max(latest, complete[end])
        times.append(latest)
    begin = times[given.warm - 1]
    first = next((at for at, when in enumerate(times) if when > begin + 0.005), len(times) - 1)
    records = (len(times) - first) * given.rows * PARTITIONS
    return records / max(1e-6, times[-1] - begin), begin, times[-1]
