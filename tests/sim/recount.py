"""The recount of the simulated job's windows: their results against the rows that the committed positions speak for.

Every row is in each of its windows, or late for it; nothing is lost, nothing doubled, nothing late in silence:

    spans      each window of a key has all of its rows, less the late ones           `_spans`
    sessions   each row is in one session, and no session that could be one is two    `_sessions`
    sliding    each row has one result, with the rows before it of its run            `_sliding`
    late       every late row was written to the topic for late rows, if there is one, and counted once
               only a row that stands behind its sources' promise is late
    early      early results grow, up to the final one                                `_early`
    second     the results of the first window are the rows of the second             `_second`

A result names its rows, or it has only sums. Then the rows that it lacks are looked for: those without which the sums are right.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from itertools import combinations, pairwise
from typing import Any, NamedTuple

import orjson

from headgate.core.windows.results import EARLY as GIVEN_EARLY
from headgate.core.windows.results import WATERMARK

from .job import Row, row_of
from .log import Kafka, Record
from .windows import FAR, ROWS, SESSION, SLIDING, Missed, Spec, Windowing, regrouped

Taken = tuple[Row, int]
"""A row and its time."""
At = tuple[str, int]
"""A key and the end of a window."""
Wrong = list[tuple[object, ...]]


class Result(NamedTuple):
    """A result of the first window."""

    key: str
    start: int
    end: int
    by: str
    run: tuple[str, str]
    """The task, and its run."""
    sums: Counter[str]
    rows: list[Taken] | None
    """Those that it names."""

    @property
    def at(self) -> At:
        """Its key and the end of its window."""
        return self.key, self.end


class Recount:
    """The recount of one world."""

    def __init__(
        self, kafka: Kafka, windows: Windowing, taken: Iterable[Taken], may_be_late: Callable[[Row], bool]
    ) -> None:
        self.kafka = kafka
        self.windows = windows
        self.spec = windows.first
        self.rows = Counter(taken)
        self.may_be_late = may_be_late
        self.wrong: Wrong = []
        self.written = Counter((row_of(record.value), record.ts) for record in self._all(self.spec.late))
        """Late rows, as they stand in their topic."""
        by_name = {(row.producer, row.seq): (row, ts) for row, ts in self.rows}
        all_results = [_result(record, by_name) for record in self._all(self.spec.topic)]
        self.results = [one for one in all_results if one.by != GIVEN_EARLY]
        self.missed = [0, 0]
        """Rows that were late for all of their windows, and for some, by this recount."""
        self._early(all_results)
        for one in all_results:
            self._agrees(one)
        if self.spec.kind == SESSION:
            self._sessions()
        elif self.spec.kind == SLIDING:
            self._sliding()
        else:
            self._spans()
        if windows.second is not None:
            self._second(windows.second)

    def against(self, counted: dict[str, Missed]) -> Wrong:
        """What is wrong, also with these numbers of late rows."""
        have = counted.get(self.spec.name, Missed(0, 0))
        if have != Missed(*self.missed):
            self.wrong.append(("late rows", {"counted": have, "true": Missed(*self.missed)}))
        return self.wrong

    def _all(self, topic: str | None) -> list[Record]:
        return [] if topic is None else self.kafka.read(topic, 0, 0, 1 << 30)[0]

    def _agrees(self, one: Result) -> None:
        """A result that names its rows has their sums; an actor gets them in the order of time."""
        if one.rows is None:
            return
        if one.sums != _sums(Counter(one.rows)):
            self.wrong.append(("sums", one))
        times = [ts for _, ts in one.rows]
        if (self.windows.how == ROWS or self.spec.kind == SLIDING) and times != sorted(times):
            self.wrong.append(("order", one))

    def _missed(self, row: Taken, all_: int, some: int, *, ever: int) -> None:
        """This row was late so often, for all of its windows and for some; or never."""
        self.missed[0] += all_
        self.missed[1] += some
        if self.spec.late is not None and all_ != self.written[row]:
            self.wrong.append(("late", *row, {"written": self.written[row], "true": all_}))
        if ever and not self.may_be_late(row[0]):
            self.wrong.append(("lost", *row, ever))

    # ------------------------------------------------------------------------------------------------------------------ spans

    def _spans(self) -> None:
        """Rows are in a window, or late for it. A row that is late for one window is late for those that end before."""
        wanted: dict[At, Counter[Taken]] = {}
        for one, number in self.rows.items():
            for end in self.spec.ends(one[1]):
                wanted.setdefault((str(one[0].key), end), Counter())[one] += number
        found: dict[At, list[Result]] = {at: [] for at in wanted}
        for result in self.results:
            found.setdefault(result.at, []).append(result)
        absent: dict[At, Counter[Taken]] = {}
        for at in sorted(found):
            want = wanted.get(at, Counter())
            lacks = self._lacks(want, found[at])
            if lacks is None:
                sums = sum((one.sums for one in found[at]), Counter())
                self.wrong.append((self.spec.name, at, {"found": sums, "true": _sums(want)}))
            absent[at] = Counter() if lacks is None else lacks
        for one in sorted(self.rows | self.written):
            lacking = [absent.get((str(one[0].key), end), Counter())[one] for end in self.spec.ends(one[1])]
            if lacking != sorted(lacking, reverse=True):
                self.wrong.append(("late for a window, and not for the one before", *one, lacking))
            self._missed(one, lacking[-1], lacking[0] - lacking[-1], ever=lacking[0])

    def _lacks(self, want: Counter[Taken], results: list[Result]) -> Counter[Taken] | None:
        """The rows that these results of a window do not hold; None if no such rows explain them."""
        named: Counter[Taken] = Counter()
        for one in results:
            named.update(one.rows or ())
        if all(one.rows is not None for one in results):
            return None if named - want else want - named
        sums = sum((one.sums for one in results), Counter[str]())
        late = want & self.written
        if self.spec.late is not None:
            return late if _sums(want - late) == sums else None
        all_ = sorted(want.elements())
        for rows in combinations(all_, max(0, len(all_) - sums["n"])):
            if _sums(want - (lacks := Counter(rows))) == sums:
                return lacks
        return None

    # --------------------------------------------------------------------------------------------------------------- sessions

    def _sessions(self) -> None:
        """Each row is in one session or late; each session holds together; two that are near were never open at the same time."""
        named = Counter(row for one in self.results for row in one.rows or ())
        for one in sorted(self.rows | named | self.written):
            lacking = self.rows[one] - named[one]
            self._missed(one, lacking, 0, ever=lacking)
        gap = self.spec.size_ms
        by_key: dict[str, list[Result]] = {}
        for one in self.results:
            times = sorted(ts for _, ts in one.rows or ())
            near = all(after - before <= gap for before, after in pairwise(times))
            its_own = all(str(row.key) == one.key for row, _ in one.rows or ())
            if not (near and its_own and (times[0], times[-1] + gap) == (one.start, one.end)):
                self.wrong.append(("session", one))
            for before in by_key.setdefault(one.key, []):
                self._apart(before, one)
            by_key[one.key].append(one)

    def _apart(self, before: Result, after: Result) -> None:
        """The second of two results was not within reach of the first before that was closed."""
        within = [row for row, ts in after.rows or () if before.start - self.spec.size_ms <= ts <= before.end]
        flushed = before.by != WATERMARK
        if within and (before.run == after.run if flushed else not all(map(self.may_be_late, within))):
            self.wrong.append(("sessions that are one", before, after))

    # ---------------------------------------------------------------------------------------------------------------- sliding

    def _sliding(self) -> None:
        """Each row has one result, or is late. Windows of one run hold the rows of it that have results, and no others: a drain and an end
        leave nothing to the next one."""
        have_own = Counter[Taken]()
        for of_run in _grouped(self.results, lambda one: (one.key, one.run)):
            own = Counter[Taken]()
            for alike in _grouped(of_run, lambda one: one.end):
                mine = Counter(row for row in alike[0].rows or () if row[1] == alike[0].end - 1)
                own += mine
                if mine.total() != len(alike) or any(one.rows != alike[0].rows for one in alike):
                    self.wrong.append(("results of a time", alike))
            for one in of_run:
                want = Counter({row: n for row, n in own.items() if one.start <= row[1] < one.end})
                if Counter(one.rows) != want:
                    self.wrong.append(("sliding", one, {"true": want}))
            have_own += own
        for one in sorted(self.rows | have_own | self.written):
            lacking = self.rows[one] - have_own[one]
            self._missed(one, lacking, 0, ever=lacking)

    # ------------------------------------------------------------------------------------------------------- early, and again

    def _early(self, results: list[Result]) -> None:
        """An early result has more rows than the one before, all of its rows included; and the final one has all of them."""
        before: dict[At, Counter[Taken]] = {}
        for one in results:
            rows, had = Counter(one.rows or ()), before.get(one.at, Counter())
            early = one.by == GIVEN_EARLY
            if had - rows or (early and rows == had):
                self.wrong.append(("early", one, had))
            before[one.at] = rows if early else Counter()

    def _second(self, spec: Spec) -> None:
        wanted: dict[At, Counter[str]] = {}
        for one in self.results:
            key = regrouped({"window_end": one.end}) if self.windows.place == FAR else one.key
            at = (key, spec.ends(one.end - 1)[0])
            wanted.setdefault(at, Counter()).update({"n": one.sums["n"], str(one.end): 1})
        for record in self._all(spec.late):
            value = orjson.loads(record.value)
            at = (record.key.decode(), spec.ends(record.ts)[0])
            wanted[at].subtract({"n": value["n"], str(value["window_end"]): 1})
        wanted = {at: left for at, sums in wanted.items() if (left := +sums)}
        found: dict[At, Counter[str]] = {}
        for record in self._all(spec.topic):
            value = orjson.loads(record.value)
            sums = Counter(map(str, value["ends"])) + Counter(n=value["n"])
            found.setdefault((record.key.decode(), value["window_end"]), Counter()).update(sums)
        for at in sorted(wanted.keys() | found.keys()):
            if wanted.get(at) != found.get(at):
                self.wrong.append((spec.name, at, {"found": found.get(at), "true": wanted.get(at)}))


def _grouped(results: Iterable[Result], by: Callable[[Result], Any]) -> list[list[Result]]:
    found: dict[Any, list[Result]] = {}
    for one in results:
        found.setdefault(by(one), []).append(one)
    return list(found.values())


def _sums(rows: Counter[Taken]) -> Counter[str]:
    found: Counter[str] = Counter()
    for (row, _), number in rows.items():
        found.update({"n": number, "p": number * row.producer, "s": number * row.seq})
    return found


def _result(record: Record, by_name: dict[tuple[int, int], Taken]) -> Result:
    value: dict[str, Any] = orjson.loads(record.value)
    unknown = (Row(-1, -1, -1), -1)
    rows = [by_name.get((p, s), unknown) for p, s in value["ids"]] if "ids" in value else None
    sums = Counter({name: value[name] for name in "nps"})
    return Result(
        record.key.decode(), value["window_start"], value["window_end"], value["closed_by"], record.by, sums, rows
    )
