"""The windows of the simulated job, and what is demanded of them.

    shuffled  →  window of 1 s, grace 0.3 s  →  window of 2 s, in the same task (`near`) or behind a second shuffle (`far`)

Rows that are late at the first window go to a topic of their own. Nothing may be late at the second: the results of the first carry
times that the time behind it has not passed.

Checked when a transaction becomes visible:

    a result's timestamp is the last ms of its window                                  `_result`
    a watermark closes a window once, ever, and in the order of ends and of keys       `_result`
    no window closes before its time, and none that a watermark closed opens again     `_result`
    the time behind a window is less than the window's own by its grace                `passed_on`
    a row is late only where its window is closed; nothing is late at the second,      `_late`
    but of tasks that had said that they are idle

At the end (`recount`) the results of each key and window add up to the rows that the committed positions speak for, less the late ones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

import orjson

from headgate.core.progress.frames import MAX_TIME, NO_TIME
from headgate.core.windows.results import WATERMARK

from .job import Row, row_of

if TYPE_CHECKING:
    from headgate.core.task import protocol as facts

    from .log import Kafka, Record
    from .world import World

NEAR, FAR = "near", "far"
RESHUFFLED = "reshuffled"
STEP_RESULTS, BLOCK_KEYS = 2, 2
"""Results of a step, and keys of a block: so few that closing takes several steps, and a window several blocks."""


class Spec(NamedTuple):
    """One window of the job."""

    name: str
    size_ms: int
    grace_ms: int
    topic: str
    """Its results, in one partition: so their order is seen."""
    late: str


FIRST = Spec("first", 1000, 300, "windows", "late")
SECOND = Spec("second", 2000, 0, "windows-again", "late-again")
SPECS = (FIRST, SECOND)
TOPICS = tuple(topic for spec in SPECS for topic in (spec.topic, spec.late))

Place = tuple[int, bytes]
"""The end of a result's window, and its key."""
NOWHERE: Place = (NO_TIME, b"")


def regrouped(value: dict[str, int]) -> str:
    """The key of a result behind the second shuffle."""
    return str(value["window_end"] // 1000 % 5)


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
        self._looks = {spec.topic: (self._result, spec) for spec in SPECS} | {s.late: (self._late, s) for s in SPECS}

    def letter(self, task: str, order: facts.RunStep) -> None:
        """Steps of a task are told a time."""
        for name, ts in order.times:
            if ts != MAX_TIME:
                self.told[task, name] = max(ts, self.told.get((task, name), NO_TIME))

    def passed_on(self, task: str, ts: int) -> None:
        """A task says a time to the stream behind its first window."""
        told = self.told.get((task, FIRST.name), NO_TIME)
        if ts not in (MAX_TIME, NO_TIME) and ts > told - FIRST.grace_ms:
            self._fail(f"{task} says watermark {ts} behind its window, which was told {told}")

    def committed(self, topic: str, records: Iterable[Record]) -> None:
        """Records of a topic became visible."""
        look, spec = self._looks[topic]
        for record in records:
            look(spec, record)

    def _result(self, spec: Spec, record: Record) -> None:
        task, run = record.by
        value = orjson.loads(record.value)
        end, by = value["window_end"], value["closed_by"]
        place = (end, record.key)
        what = f"{task} gives a result of {spec.name} by {by}: {record.key} {value}"
        if record.ts != end - 1 or value["window_start"] != end - spec.size_ms:
            self._fail(f"{what}, at {record.ts}")
        closed = self.closed.get((task, spec.name), NOWHERE)
        if by == WATERMARK:
            if place <= closed:
                self._fail(f"{what}, after {closed}")
            told = self.told.get((task, spec.name), NO_TIME)
            if end + spec.grace_ms > told:
                self._fail(f"{what}, and was told {told}")
            self.closed[task, spec.name] = place
            return
        flush = (task, spec.name, run, by)
        if end <= closed[0]:
            self._fail(f"{what}, and a watermark has closed {closed}")
        if place <= (before := self.flushed.get(flush, NOWHERE)):
            self._fail(f"{what}, after {before}")
        self.flushed[flush] = place

    def _late(self, spec: Spec, record: Record) -> None:
        task, _ = record.by
        told = self.told.get((task, spec.name), NO_TIME)
        again = spec is SECOND and not any(stream.endswith(RESHUFFLED) for stream, _, _ in self.world.idle_said)
        if again or end_of(record.ts, spec) + spec.grace_ms > told:
            self._fail(f"{record.value!r} at {record.ts} is late at {spec.name} in {task}, which was told {told}")

    def _fail(self, what: str) -> None:
        self.world.invariants.fail(what)


def end_of(ts: int, spec: Spec) -> int:
    """The end of the window that holds this time."""
    return ts - ts % spec.size_ms + spec.size_ms


def recount(kafka: Kafka, taken: Iterable[tuple[Row, int]], *, far: bool) -> list[tuple[object, ...]]:
    """What the results do not say of these rows. None that was lost or doubled can hide behind the sums of what names it."""
    rows = Counter(taken)
    for record in _all(kafka, FIRST.late):
        rows[row_of(record.value), record.ts] -= 1
    wrong: list[tuple[object, ...]] = [("late", *one) for one, number in rows.items() if number < 0]
    wanted: dict[tuple[str, int], Counter[str]] = {}
    for (row, ts), number in rows.items():
        if number > 0:
            sums = {"n": number, "p": number * row.producer, "s": number * row.seq}
            wanted.setdefault((str(row.key), end_of(ts, FIRST)), Counter()).update(sums)
    found: dict[tuple[str, int], Counter[str]] = {}
    wanted_again: dict[tuple[str, int], Counter[str]] = {}
    for record in _all(kafka, FIRST.topic):
        value = orjson.loads(record.value)
        key, end = record.key.decode(), value["window_end"]
        found.setdefault((key, end), Counter()).update({name: value[name] for name in "nps"})
        again = (regrouped(value) if far else key, end_of(end - 1, SECOND))
        wanted_again.setdefault(again, Counter()).update({"n": value["n"], str(end): 1})
    for record in _all(kafka, SECOND.late):
        value = orjson.loads(record.value)
        at = (record.key.decode(), end_of(record.ts, SECOND))
        wanted_again[at].subtract({"n": value["n"], str(value["window_end"]): 1})
    wanted_again = {at: left for at, sums in wanted_again.items() if (left := +sums)}
    found_again: dict[tuple[str, int], Counter[str]] = {}
    for record in _all(kafka, SECOND.topic):
        value = orjson.loads(record.value)
        sums = Counter(map(str, value["ends"]))
        found_again.setdefault((record.key.decode(), value["window_end"]), Counter()).update({"n": value["n"], **sums})
    for spec, want, have in ((FIRST, wanted, found), (SECOND, wanted_again, found_again)):
        for at in sorted(want.keys() | have.keys()):
            if want.get(at) != have.get(at):
                wrong.append((spec.name, at, {"found": have.get(at), "true": want.get(at)}))
    return wrong


def _all(kafka: Kafka, topic: str) -> list[Record]:
    return kafka.read(topic, 0, 0, 1 << 30)[0]
