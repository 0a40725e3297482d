"""The join of the simulated job, in a third of the seeds of plain rows and of those of two jobs, and its account.

Of two jobs, the second joins the rows that the first one shares.

    orders  →  filter  →  even rows, shuffled by key  ┐
                       →  odd rows, shuffled by key   ┴→  join  →  pairs, and rows without a partner (`PAIRS`); late rows (`LATE_ROWS`)

Every row that the committed positions speak for is late, or it is in one pair with each row of the other side that is near enough. A row of
a preserved side that is in no pair comes out alone, once. Rows of two runs never meet, for a drain or an end forgets what waits. Only a row
that stands behind its sources' promise is late.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any, TypedDict

import orjson

from headgate.core.windows.joins import KINDS, preserves

from .job import Row
from .log import Kafka

LEFTS, RIGHTS = "lefts", "rights"
"""The streams that meet."""
PAIRS, LATE_ROWS = "pairs", "late-rows"
TOPICS = (PAIRS, LATE_ROWS)
JOIN = "joined"
Taken = tuple[Row, int]
"""A row and its time."""


@dataclass(frozen=True)
class Joining:
    """The join of one seed."""

    how: str
    before_ms: int
    after_ms: int
    grace_ms: int
    columns: bool = False

    @classmethod
    def drawn(cls, pace_s: float) -> Joining | None:
        """It is drawn from what is drawn anyway, so that all else of a seed stays as it is."""
        rng = Random(f"join {pace_s}")
        if rng.random() < 2 / 3:
            return None
        how = rng.choice(KINDS)
        before, after = rng.choice(((300, 300), (1000, 1000), (0, 800), (700, 100)))
        return cls(how, before, after, rng.choice((0, 300, 2500)), columns=Random(f"columns {pace_s}").random() < 0.5)

    @property
    def words(self) -> frozenset[str]:
        """What a planted bug may need."""
        return frozenset({"join", f"{self.how} join", "join of columns" if self.columns else "join of rows"})

    def near(self, left_ts: int, right_ts: int) -> bool:
        """Whether rows of these times are a pair if they have the same key."""
        return left_ts - self.before_ms <= right_ts <= left_ts + self.after_ms


class Numbered(TypedDict):
    """A row as columns."""

    p: int
    s: int
    k: str


def is_left(value: Any) -> bool:
    """Whether a row is on the left side."""
    return value["s"] % 2 == 0


def is_right(value: Any) -> bool:
    """Whether a row is on the right side."""
    return not is_left(value)


def both(left: Any, right: Any) -> Any:
    """A pair, or a row without a partner."""
    return [[row["p"], row["s"]] if row is not None else None for row in (left, right)]


def declare(before: Any, joining: Joining) -> None:
    """The join of these rows."""
    left, right = (
        before.filter(side).repartition("k", name=name, partitions=2)
        for side, name in ((is_left, LEFTS), (is_right, RIGHTS))
    )
    within = f"{joining.before_ms}ms", f"{joining.after_ms}ms"
    grace: Any = f"{joining.grace_ms}ms"
    if joining.columns:
        more: dict[str, Any] = {"within": within, "how": joining.how, "grace": grace, "late": LATE_ROWS, "name": JOIN}
        left.columns(Numbered).join(right.columns(Numbered), take={"q": "p", "t": "s"}, **more).to(PAIRS)
        return
    left.join(right, within=within, how=joining.how, grace=grace, into=both, late=LATE_ROWS, name=JOIN).to(PAIRS)


def wrong(
    kafka: Kafka, joining: Joining, runs: Mapping[str, Iterable[Taken]], may_be_late: Callable[[Row], bool]
) -> list[tuple[object, ...]]:
    """What differs from the rows that were taken in, by run."""
    late: dict[str, Counter[Taken]] = {}
    for record in kafka.read(LATE_ROWS, 0, 0, 1 << 30)[0]:
        value = orjson.loads(record.value)
        late.setdefault(record.by[1], Counter())[Row(value["p"], value["s"], int(value["k"])), record.ts] += 1
    found: dict[str, Counter[Any]] = {}
    for record in kafka.read(PAIRS, 0, 0, 1 << 30)[0]:
        left, right = _sides(orjson.loads(record.value))
        found.setdefault(record.by[1], Counter())[record.key.decode(), left, right, record.ts] += 1
    differences: list[tuple[object, ...]] = []
    for run in sorted(runs.keys() | late.keys() | found.keys()):
        taken, missed = Counter(runs.get(run, ())), late.get(run, Counter[Taken]())
        if unknown := missed - taken:
            differences.append(("late twice, or from nowhere", run, unknown))
        for row, ts in missed:
            if not may_be_late(row):
                differences.append(("lost", run, row, ts))
        expected, have = _joined(joining, taken - missed), found.get(run, Counter())
        if have != expected:
            differences.append((PAIRS, run, {"lost": expected - have, "too many": have - expected}))
    return differences


def _sides(value: Any) -> tuple[Any, Any]:
    """What names the rows of a pair; None for one that is missing."""
    if isinstance(value, dict):
        value = [(value[part], value[number]) if value[number] is not None else None for part, number in ("ps", "qt")]
    left, right = (one and tuple(one) for one in value)
    return left, right


def _joined(joining: Joining, rows: Counter[Taken]) -> Counter[Any]:
    """Every pair of these rows, and every row without a partner."""
    made: Counter[Any] = Counter()
    sides: tuple[dict[int, list[Taken]], ...] = ({}, {})
    for row, ts in rows:
        sides[row.seq % 2].setdefault(row.key, []).append((row, ts))
    paired: set[Taken] = set()
    for key, lefts in sides[0].items():
        for left in lefts:
            for right in sides[1].get(key, ()):
                if joining.near(left[1], right[1]):
                    paired |= {left, right}
                    made[str(key), left[0][:2], right[0][:2], max(left[1], right[1])] += rows[left] * rows[right]
    for side in (0, 1):
        for one in (one for of_key in sides[side].values() for one in of_key if one not in paired):
            if preserves(joining.how, side):
                names = (one[0][:2], None) if side == 0 else (None, one[0][:2])
                made[str(one[0].key), *names, one[1]] += rows[one]
    return made
