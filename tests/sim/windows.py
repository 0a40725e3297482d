"""The windows of the simulated job, and what is demanded of each result when it becomes visible.

    shuffled  →  first window, of one of the `KINDS`  →  window of 2 s, in the same task (`near`) or behind a second shuffle (`far`)

Rows that are late at the first window go to a topic of their own; where partial states travel instead of rows, they are only counted.
Nothing may be late at the second: the results of the first carry times that the time behind it has not passed. Early results are updates,
so nothing stands behind them.

Checked when a transaction becomes visible:

    a result's timestamp is the last ms of its window; of an early one, within it      `_result`
    a watermark closes a window once, ever, and in the order of ends and of keys       `_result`
    no window closes before its time, and none that a watermark closed opens again     `_result`
    the time behind a window is less than the window's own by what it holds back       `passed_on`
    a row is late only where its window is closed; nothing is late at the second,      `_late`
    but of tasks for which nobody waited

At the end `recount` holds the results against the rows that the committed positions speak for.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from headgate.core.progress.frames import MAX_TIME, NO_TIME
from headgate.core.windows.results import EARLY as GIVEN_EARLY
from headgate.core.windows.results import WATERMARK

if TYPE_CHECKING:
    from headgate.core.task import protocol as facts

    from .life import Watched
    from .log import Record
    from .world import World

NEAR, FAR = "near", "far"
RESHUFFLED, COMBINED_STREAM = "reshuffled", "combined"
TUMBLING, HOPPING, SESSION, SLIDING = "tumbling", "hopping", "session", "sliding"
AGG, COMBINED, ROWS, EARLY = "agg", "combined", "rows", "early"
"""What becomes of the rows: they are aggregated, so before the shuffle, given to an actor, or aggregated with early results, too."""
KINDS = (
    (TUMBLING, AGG),
    (HOPPING, AGG),
    (SESSION, AGG),
    (TUMBLING, COMBINED),
    (TUMBLING, ROWS),
    (HOPPING, ROWS),
    (SESSION, ROWS),
    (TUMBLING, EARLY),
    (HOPPING, EARLY),
)
OF_EACH_ROW = ((SLIDING, AGG),)
"""What a world has instead of one of the `KINDS` where sliding windows are tested: so the fixed seeds stay what they are."""
GRACES_MS = (0, 300, 1000, 2500)
"""A stray record is up to 3 s behind the watermark, so it comes into an open window, into one in its grace, or too late."""
SIZES_MS = {TUMBLING: (1000, 1000), HOPPING: (1000, 400), SESSION: (400, 400), SLIDING: (1000, 1000)}
"""Of each kind, the size (or gap), and how often windows begin."""
STEP_RESULTS, BLOCK_KEYS = 2, 2
"""Results of a step, and keys or rows of a block: so few that closing takes several steps, and a window several blocks."""


@dataclass(frozen=True)
class Spec:
    """One window of the job."""

    name: str
    kind: str
    size_ms: int
    """Of a session, the gap."""
    every_ms: int
    grace_ms: int
    topic: str
    """Its results, in one partition: so their order is seen."""
    late: str | None

    @property
    def holds_ms(self) -> int:
        """How far time must have passed an end. A row with exactly the time of its end still belongs to a session."""
        return self.grace_ms + (self.kind == SESSION)

    def ends(self, ts: int) -> list[int]:
        """The ends of the windows that hold this time, ascending; of a session, the end that a single row has, and of a sliding window
        the end of the row's own."""
        if self.kind == SLIDING:
            return [ts + 1]
        if self.kind == SESSION:
            return [ts + self.size_ms]
        starts = range(ts - ts % self.every_ms, ts - self.size_ms, -self.every_ms)
        return sorted(start + self.size_ms for start in starts)


SECOND = Spec("second", TUMBLING, 2000, 2000, 0, "windows-again", "late-again")
TOPICS = ("windows", "late", SECOND.topic, "late-again")


@dataclass(frozen=True)
class Windowing:
    """The windows of one seed."""

    kind: str
    how: str
    grace_ms: int
    place: str
    emit: str | int = "final"

    @classmethod
    def draw(cls, rng: Random, place: str, *, split: bool) -> Windowing:
        """One kind. Of two jobs, the second reads a stream that the first one shares, so it combines nothing."""
        kind, how = rng.choice(KINDS)
        if split and how == COMBINED:
            how = AGG
        emit = rng.choice(("400ms", 3, 10)) if how == EARLY else "final"
        return cls(kind, how, rng.choice(GRACES_MS), place, emit)

    @property
    def words(self) -> frozenset[str]:
        """What a planted bug may need."""
        return frozenset({"windows", self.kind, self.how})

    @property
    def first(self) -> Spec:
        """The window that takes rows."""
        size, every = SIZES_MS[self.kind]
        late = None if self.how == COMBINED else "late"
        return Spec("first", self.kind, size, every, self.grace_ms, "windows", late)

    @property
    def second(self) -> Spec | None:
        """The window that takes the results of the first."""
        return None if self.how == EARLY else SECOND

    @property
    def specs(self) -> tuple[Spec, ...]:
        """Both."""
        return (self.first,) if self.second is None else (self.first, self.second)

    @property
    def exact(self) -> bool:
        """Whether a result names its rows. Otherwise it has only numbers: their states are added in columns, and may be combined."""
        return (self.kind, self.how) not in ((TUMBLING, AGG), (TUMBLING, COMBINED))


Place = tuple[int, bytes]
"""The end of a result's window, and its key."""
NOWHERE: Place = (NO_TIME, b"")


def regrouped(value: dict[str, int]) -> str:
    """The key of a result behind the second shuffle."""
    return str(value["window_end"] // 1000 % 5)


class Missed(NamedTuple):
    """How many rows a step has counted as late for all of their windows, and for some of them."""

    rows: int
    partly: int


class Windows:
    """What was seen of the windows of all tasks."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.told: dict[tuple[str, str], int] = {}
        """By task and window, the greatest real time that it was ever told."""
        self.closed: dict[tuple[str, str], Place] = {}
        """By task and window, the last result that a watermark gave."""
        self.flushed: dict[tuple[str, str, str, str], Place] = {}
        """By task, window, run and cause, the last result of a flush."""
        self.left: set[tuple[str, str | None]] = set()
        """The producers of a stream (None: all) that have ended in a run in which time does not wait for them."""
        self._by: dict[tuple[int, int], set[str]] = {}
        """By begin and end of a first window, the tasks that gave a result of it."""
        self.missed: dict[str, Missed] = {}
        """By window, the late rows that were counted in transactions that became visible."""

    def letter(self, task: str, order: facts.RunStep) -> None:
        """Steps of a task are told a time."""
        for name, ts in order.times:
            if ts != MAX_TIME:
                self.told[task, name] = max(ts, self.told.get((task, name), NO_TIME))

    def passed_on(self, task: str, ts: int) -> None:
        """A task says a time to the stream behind its first window."""
        first = self._windowing().first
        told = self.told.get((task, first.name), NO_TIME)
        if ts not in (MAX_TIME, NO_TIME) and ts > told - first.holds_ms:
            self._fail(f"{task} says watermark {ts} behind its window, which was told {told}")

    def counted(self, actor: Watched) -> None:
        """A transaction of this task became visible, and with it the late rows that it has counted since the one before."""
        pipeline, sealed = actor.sealed_missed
        before = actor.missed[1] if actor.missed[0] is pipeline else {}
        for name, (rows, partly) in sealed.items():
            had, sum_ = before.get(name, (0, 0)), self.missed.get(name, (0, 0))
            self.missed[name] = Missed(sum_[0] + rows - had[0], sum_[1] + partly - had[1])
        actor.missed = actor.sealed_missed

    def committed(self, topic: str, records: Iterable[Record]) -> None:
        """Records of a topic became visible."""
        for spec in self._windowing().specs:
            if topic in (spec.topic, spec.late):
                for record in records:
                    (self._result if topic == spec.topic else self._late)(spec, record)

    def _windowing(self) -> Windowing:
        windows = self.world.shape.windows
        assert windows is not None
        return windows

    def _result(self, spec: Spec, record: Record) -> None:
        task, run = record.by
        value: dict[str, Any] = orjson.loads(record.value)
        start, end, by = value["window_start"], value["window_end"], value["closed_by"]
        if spec is not SECOND:
            self._by.setdefault((start, end), set()).add(task)
        place = (end, record.key)
        what = f"{task} gives a result of {spec.name} by {by}: {record.key} {value}"
        at_its_time = start <= record.ts < end if by == GIVEN_EARLY else record.ts == end - 1
        if not at_its_time or (spec.kind != SESSION and start != end - spec.size_ms):
            self._fail(f"{what}, at {record.ts}")
        closed = self.closed.get((task, spec.name), NOWHERE)
        repeated = spec.kind == SLIDING  # rows of one key and time have a result each
        if by == WATERMARK:
            if place <= closed and not (repeated and place == closed):
                self._fail(f"{what}, after {closed}")
            told = self.told.get((task, spec.name), NO_TIME)
            if end + spec.holds_ms > told:
                self._fail(f"{what}, and was told {told}")
            self.closed[task, spec.name] = place
            return
        if end <= closed[0] and (by != GIVEN_EARLY or place <= closed):
            self._fail(f"{what}, and a watermark has closed {closed}")
        if by == GIVEN_EARLY:
            return
        flush = (task, spec.name, run, by)
        if place <= (before := self.flushed.get(flush, NOWHERE)) and not (repeated and place == before):
            self._fail(f"{what}, after {before}")
        self.flushed[flush] = place

    def _late(self, spec: Spec, record: Record) -> None:
        task, _ = record.by
        told = self.told.get((task, spec.name), NO_TIME)
        again = spec is SECOND and not self._passed(record)
        if again or spec.ends(record.ts)[-1] + spec.holds_ms > told:
            self._fail(f"{record.value!r} at {record.ts} is late at {spec.name} in {task}, which was told {told}")

    def _passed(self, late: Record) -> bool:
        """Whether a task that gave this result of the first window had ended before in a run in which time went on without it."""
        value = orjson.loads(late.value)
        by = self._by.get((value["window_start"], value["window_end"]), set())
        return any(stream.endswith(RESHUFFLED) and (task is None or task in by) for stream, task in self.left)

    def _fail(self, what: str) -> None:
        self.world.invariants.fail(what)
