"""The account of the fleet: what is lost, doubled or late, and how far time is in each output. No I/O.

A window that speaks for too few records has lost some, one that speaks for too many has doubled some; likewise pairs that are missing, and
pairs that are too many. Time has come to a moment in an output when each of its tasks has closed something that ended then or later: a
window, or the wait of a row without a partner. A task closes both in the order of time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from .pairs import AFTER_MS, BEFORE_MS, Result, Row, wanted
from .windows import Record, recount

OUTPUTS = ("windows", "pairs")
Found = tuple[str, int, int, int]
"""The result of a window: key, start, number, sum."""
Count = tuple[str, int, int]
"""A key, how many records it has, and the sum of their amounts."""


@dataclass
class Account:
    """What is wrong."""

    lost: list[str] = field(default_factory=list[str])
    doubled: list[str] = field(default_factory=list[str])
    late: list[str] = field(default_factory=list[str])

    @property
    def wrong(self) -> list[str]:
        """All of it."""
        return [*self.lost, *self.doubled, *self.late]

    def __str__(self) -> str:
        return f"lost {len(self.lost)}, doubled {len(self.doubled)}, late {len(self.late)}"

    def windows(self, records: Iterable[Record], found: Iterable[Found]) -> int:
        """Each window of each key has one result, which speaks for each record of its time once. How many there must be."""
        true = {(key, start): (n, total) for (key, start, _), (n, total) in recount("tumbling", records).items()}
        seen = set[tuple[str, int]]()
        for key, start, *sums in found:
            n, total = true.get((key, start), (0, 0))
            said = f"window of {key} from {start}: {sums}, recounted {[n, total]}"
            if (key, start) in seen:
                self.doubled.append(f"{said}, and it came before")
            elif sums != [n, total]:
                self.lost += [said] * (sums[0] <= n)
                self.doubled += [said] * (sums[0] >= n)
            seen.add((key, start))
        self.lost += [
            f"window of {at[0]} from {at[1]}: no result, recounted {true[at]}" for at in true if at not in seen
        ]
        return len(true)

    def counts(self, records: Iterable[Record], found: Iterable[Count], where: str) -> int:
        """The last count of each key, and its sum, are those of all its records; no count goes back or comes twice. How many keys."""
        true, last = dict[str, tuple[int, int]](), dict[str, tuple[int, int]]()
        for key, _, _, amount in records:
            n, total = true.get(key, (0, 0))
            true[key] = n + 1, total + amount
        for key, n, total in found:
            if n <= last.get(key, (0, 0))[0]:
                self.doubled.append(f"{where}: {key} counts {n} after {last[key][0]}")
            last[key] = n, total
        for key in true.keys() | last.keys():
            is_, must = last.get(key, (0, 0)), true.get(key, (0, 0))
            if is_ != must:
                (self.lost if is_[0] < must[0] else self.doubled).append(
                    f"{where}: {key} counts {is_}, recounted {must}"
                )
        return len(true)

    def pairs(self, lefts: Iterable[Row], rights: Iterable[Row], found: Counter[Result]) -> int:
        """Each pair, and each row without a partner, has come out once. How many there must be."""
        true = wanted(lefts, rights)
        self.lost += [f"pair {one}: {times} times too few" for one, times in (true - found).items()]
        self.doubled += [f"pair {one}: {times} times too many" for one, times in (found - true).items()]
        return true.total()


class Progress:
    """How far time has come in each output of each task, and how long what ended then has taken."""

    def __init__(self, partitions: int) -> None:
        self.ends: dict[tuple[str, int], int] = {
            (output, partition): 0 for output in OUTPUTS for partition in range(partitions)
        }
        self.slowest: dict[str, int] = dict.fromkeys(OUTPUTS, 0)
        """In milliseconds after its end, faults included."""

    def window(self, partition: int, end_ms: int, now_ms: int) -> None:
        """A window has closed."""
        self._closed("windows", partition, end_ms, now_ms)

    def alone(self, partition: int, ms: int, now_ms: int, *, left: bool) -> None:
        """A row of this time waits for no partner any more."""
        self._closed("pairs", partition, ms + (AFTER_MS if left else BEFORE_MS), now_ms)

    def _closed(self, output: str, partition: int, end_ms: int, now_ms: int) -> None:
        if end_ms > self.ends[output, partition]:
            self.ends[output, partition] = end_ms
            self.slowest[output] = max(self.slowest[output], now_ms - end_ms)

    def open(self, over_ms: int, output: str) -> dict[int, int]:
        """The tasks of which something that ended by then may not be out, and how many milliseconds they are behind."""
        return {
            partition: over_ms - end for (name, partition), end in self.ends.items() if name == output and end < over_ms
        }
