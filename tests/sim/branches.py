"""What else some simulated jobs do with their rows, and its account: three quarters of the worlds of one job and one source from
`BRANCHES_FROM` on.

    orders  →  filter  →  a function that fails on some rows, with a policy  →  `JUDGED`; dead letters       (a shuffle may come before it)
                       →  shuffle by key  →  an actor that sets timers       →  `REMINDERS`
                       →  even rows, shuffled by key  ┐
                       →  odd rows, shuffled by key   ┴→  the last odd row of each key, as a table  →  `ENRICHED`

                       →  shuffle by key  →  a service is asked              →  `ASKED`                     (see `lookups`)

and, in half of those with state from `TICKING_FROM` on, a function that the clock calls  →  `TICKS`.

Of the rows that the committed positions speak for,

    judged     each that the function takes has come out once; each other has one dead letter, or none if it is skipped. A record of the
               source on which it fails is left out of everything else, too (`left`); of a frame, only the row is. If such rows are parked,
               each row has come out, has a dead letter after its tries, or waits; those of a key come out in their order
    reminders  each is in one reminder of its key, whose time is that of a timer that the last of its rows has set; a timer of event time
               fires when time has passed it, or at an end
    enriched   each even row has come out once, with an odd row of its key or with none; never with none after one
    ticks      are numbered without a gap, whoever has called; each stands on the calendar, and those that were missed are counted
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any

import orjson

import headgate as hg
from headgate.core.progress.frames import MAX_TIME, NO_TIME
from headgate.core.task.protocol import WATERMARK

from . import lookups
from .job import Row, row_of
from .joins import is_left, is_right

if TYPE_CHECKING:
    from headgate.core.task import protocol as facts

    from .invariants import Invariants
    from .log import Kafka, Record

BRANCHES_FROM = 5_000_000
TICKING_FROM = 8_000_000
RELEASING_FROM = 9_000_000
SKIPPING_FROM = 10_000_000
JUDGED, REMINDERS, ENRICHED, TICKS = "judged", "reminders", "enriched", "ticks"
PERIOD_MS = 1500
JUDGING, REMINDED, EVENS, ODDS = "judging", "reminded", "evens", "odds"
"""The streams of frames between the stages."""
WAITS, LATEST = "waits", "latest"
"""Tables."""
REMINDING = "reminding"
AFTER_MS = 800
DEAD_LETTER, SKIP, PARKS = "dead_letter", "skip", "parks"
PARKED_FOR = hg.park(after="300ms", times=2)
HELD_FOR = hg.park(after="2s", times=3, hold="1s")
"""From `RELEASING_FROM` on: time waits for them, and operators release them."""
HEALED_S = 0.2
EVENT, CLOCK = "event", "clock"
POLICIES = (DEAD_LETTER, SKIP)
TIMERS = (EVENT, CLOCK)
Taken = tuple[Row, int]
"""A row and its time."""


@dataclass(frozen=True)
class Branches:
    """The branches of one seed."""

    policy: Any
    """Of the function that fails on some rows; empty if there is none."""
    behind: bool
    """Whether that stands behind a shuffle."""
    timers: str
    """Of which kind the timers of the actor are; empty if there is none."""
    enriched: bool
    ticking: bool = False
    """Whether the clock calls a function."""
    held: bool = False
    """Whether time waits for parked rows, and operators release them."""
    asks: str = ""
    """How a service is asked; empty if there is none."""

    @classmethod
    def drawn(cls, seed: int, *, stateful: bool) -> Branches | None:
        """It is drawn from the seed alone, so that all else of it stays as it is."""
        rng = Random(f"branches {seed}")
        if seed < BRANCHES_FROM or rng.random() < 0.25:
            return None
        kinds = rng.sample(("policy", "timers", "enriched"), rng.choice((1, 1, 2)))
        policy, timers = rng.choice(POLICIES), rng.choice(TIMERS)
        behind = rng.random() < 0.5
        if behind and policy == DEAD_LETTER and Random(f"parked {seed}").random() < 0.6:
            policy = PARKS
        asker = Random(f"lookups {seed}")
        asks = (
            asker.choice((lookups.ONE, lookups.SEVERAL))
            if seed >= lookups.LOOKUPS_FROM and asker.random() < 0.8
            else ""
        )
        ticking = seed >= TICKING_FROM and stateful and Random(f"ticks {seed}").random() < 0.5
        return cls(
            policy if "policy" in kinds else "",
            behind,
            timers if "timers" in kinds else "",
            "enriched" in kinds,
            ticking,
            seed >= RELEASING_FROM,
            asks,
        )

    @property
    def words(self) -> frozenset[str]:
        """What a planted bug may need."""
        timers = {"timers", f"timers of {self.timers}"} if self.timers else set[str]()
        more = {*(["enriched"] if self.enriched else []), *(["ticking"] if self.ticking else [])}
        return frozenset({*filter(None, (self.policy, self.asks)), *timers, *more})

    @property
    def streams(self) -> tuple[str, ...]:
        """The streams of frames that it makes."""
        judging = [JUDGING] if self.policy and self.behind else []
        asking = [lookups.ASKING] if self.asks else []
        return (*judging, *([REMINDED] if self.timers else []), *([EVENS, ODDS] if self.enriched else []), *asking)

    def left(self, taken: list[Taken]) -> list[Taken]:
        """The rows that are not left out of everything."""
        return taken if self.behind or not self.policy else [one for one in taken if bears({"s": one[0].seq})]

    def outputs(self, dead_letters: str) -> tuple[str, ...]:
        """The topics that it writes, each with one partition."""
        judged = [JUDGED, dead_letters] if self.policy else []
        more = ([REMINDERS] if self.timers else []) + ([ENRICHED] if self.enriched else [])
        return (*judged, *more, *([TICKS] if self.ticking else []), *([lookups.ASKED] if self.asks else []))


def bears(row: Any) -> bool:
    """Whether the function takes this row."""
    return row["s"] % 7 != 2


def heals(row: Any) -> bool:
    """Whether a row on which the function fails is taken a little later."""
    return row["s"] % 14 == 2


def judge(row: Any) -> Any:
    """The function that fails on some rows."""
    if not bears(row):
        raise ValueError(f"{row['s']} is not to be borne")
    return row


class Healing:
    """The same, where some rows get well: `HEALED_S` after they failed first. `failed_s`: of a world, when each did."""

    def __init__(self, failed_s: Callable[[], dict[Any, float]]) -> None:
        self.failed_s = failed_s

    def judge(self, row: Any) -> Any:
        """Of a row that was left out, nothing is known to the job."""
        now_s = asyncio.get_running_loop().time()
        if (
            not bears(row)
            and heals(row)
            and now_s >= self.failed_s().setdefault((row["p"], row["s"]), now_s) + HEALED_S
        ):
            return row
        return judge(row)


Work = Callable[[Any], Awaitable[Any]]
"""A function of the user, which takes a while and fails now and then."""


class Reminding(hg.Actor):
    """Collects the rows of a key until a timer that the last of them has set fires."""

    def __init__(self, timers: str, work: Work) -> None:
        self.timers = timers
        self.work = work

    async def on_batch(self, ctx: hg.Context, batch: hg.Batch[Any, Any]) -> None:
        """Each row sets the timer of its key again."""
        waits = ctx.table(WAITS)
        for row, ts in zip(batch.values, batch.rows.timestamps, strict=True):
            waits[row["k"]] = [*waits.get(row["k"], []), [row["p"], row["s"]]]
            if self.timers == EVENT:
                ctx.timer(row["k"], at=ts + AFTER_MS)
            else:
                ctx.timer(row["k"], after=f"{AFTER_MS}ms")

    async def on_timer(self, ctx: hg.Context, name: str, timestamp: int) -> None:
        """The rows of a key, once."""
        await self.work(None)
        ctx.forward({"k": name, "ids": ctx.table(WAITS).pop(name), "at": timestamp}, key=name)


def enrich(even: Any, odd: Any) -> Any:
    """An even row, and the odd one that was the last of its key."""
    return {"k": even["k"], "row": [even["p"], even["s"]], "with": odd and [odd["p"], odd["s"]]}


def declare(
    app: hg.App, before: Any, branches: Branches, work: Work, healing: Healing, service: lookups.Service
) -> None:
    """The branches of these rows."""
    if isinstance(before, hg.ColumnStream):
        before = before.rows()
    if branches.policy:
        judged = before.repartition("k", name=JUDGING, partitions=2) if branches.behind else before
        if branches.policy == PARKS:
            judged.map(healing.judge, on_error=HELD_FOR if branches.held else PARKED_FOR).to(JUDGED)
        else:
            judged.map(judge, on_error=branches.policy).to(JUDGED)
    if branches.timers:
        app.table(WAITS)
        reminded = before.repartition("k", name=REMINDED, partitions=2)
        reminded.process(Reminding, name=REMINDING, timers=branches.timers, work=work).to(REMINDERS)
    if branches.enriched:
        evens = before.filter(is_left).repartition("k", name=EVENS, partitions=2)
        latest = before.filter(is_right).repartition("k", name=ODDS, partitions=2).table(LATEST)
        evens.join(latest, into=enrich, how="left").to(ENRICHED)
    if branches.asks:
        lookups.declare(before, branches.asks, service)
    if branches.ticking:

        @app.timer(f"{PERIOD_MS}ms")
        async def ticking(tick: hg.Tick) -> None:
            await work(None)
            tick.emit(TICKS, [tick.number, tick.at, tick.missed])


class Reminded:
    """What was seen of the timers of event time."""

    def __init__(self, invariants: Invariants) -> None:
        self._invariants = invariants
        self.told: dict[str, int] = {}
        """By task, the greatest time that its actor was told, but for the end of time."""
        self.ended: set[tuple[str, str]] = set()
        """The tasks and runs in which it was told the end of time."""

    def letter(self, task: str, run: str, order: facts.RunStep) -> None:
        """Steps of a task are told a time."""
        if order.kind != WATERMARK and (order.stream or "").endswith(REMINDED):  # an end: all timers are due
            self.ended.add((task, run))
        for name, ts in order.times:
            if name == REMINDING and ts == MAX_TIME:
                self.ended.add((task, run))
            elif name == REMINDING:
                self.told[task] = max(ts, self.told.get(task, NO_TIME))

    def committed(self, branches: Branches, records: Iterable[Record]) -> None:
        """Reminders became visible."""
        for record in records if branches.timers == EVENT else ():
            task, _ = record.by
            told = self.told.get(task, NO_TIME)
            if record.ts > told and record.by not in self.ended:
                self._invariants.fail(f"{task} gives the reminder {record.value!r} of {record.ts}, and was told {told}")


def wrong(
    kafka: Kafka,
    branches: Branches,
    taken: Iterable[Taken],
    dead_letters: str,
    waiting: Iterable[bytes],
    left_out: Iterable[bytes],
) -> list[tuple[object, ...]]:
    """What differs from these rows. `waiting`: the values of the rows that are parked; `left_out`: of those that went when an operator had
    some left out."""
    times = dict(taken := list(taken))
    found: list[tuple[object, ...]] = []
    if branches.policy:
        parked = Counter(map(row_of, waiting)), Counter(map(row_of, left_out))
        found += _judged(kafka, branches, [row for row, _ in taken], dead_letters, *parked)
    others = Counter(row for row, _ in branches.left(taken))
    if branches.timers:
        found += _reminded(kafka, branches, others, times)
    if branches.enriched:
        found += _enriched(kafka, others)
    if branches.asks:
        found += lookups.wrong(kafka, branches.asks, [row for row, _ in branches.left(taken)])
    if branches.ticking:
        found += _ticks(kafka)
    return found


def _read(kafka: Kafka, topic: str) -> list[Record]:
    return kafka.read(topic, 0, 0, 1 << 30)[0]


def _compared(name: str, true: Counter[Any], have: Counter[Any]) -> list[tuple[object, ...]]:
    return [] if true == have else [(name, {"lost": true - have, "too many": have - true})]


def _judged(
    kafka: Kafka, branches: Branches, rows: list[Row], dead_letters: str, waiting: Counter[Row], left_out: Counter[Row]
) -> list[tuple[object, ...]]:
    taken = Counter(rows)
    good = Counter({row: n for row, n in taken.items() if bears({"s": row.seq})})
    dead = Counter[Row]() if branches.policy == SKIP else taken - good
    come, buried = ([row_of(record.value) for record in _read(kafka, topic)] for topic in (JUDGED, dead_letters))
    if branches.policy == PARKS:
        for row in come:  # it has got well
            if heals({"s": row.seq}) and dead[row]:
                good[row] += 1
                dead[row] -= 1
    for row, n in waiting.items():
        bad = min(n, dead[row])
        dead[row] -= bad
        good[row] -= n - bad
    for row, n in left_out.items():  # what has come nevertheless has gone on in the same commit
        gone = min(n, dead[row] + good[row] - come.count(row) - buried.count(row))
        bad = min(gone, dead[row])
        dead[row] -= bad
        good[row] -= gone - bad
    found = [
        *_compared(JUDGED, +good, Counter(come)),
        *_compared("dead letters", +dead, Counter(buried)),
        *_compared("parked", waiting & taken, waiting),
    ]
    if branches.policy == PARKS:
        elsewhere = {*waiting, *buried, *left_out}
        want, have = (_lanes(row for row in some if row in good and row not in elsewhere) for some in (rows, come))
        found += [("disordered", lane, numbers) for lane, numbers in have.items() if numbers != want.get(lane)]
    return found


def _lanes(rows: Iterable[Row]) -> dict[tuple[int, int], list[int]]:
    """By key and producer, the numbers of the rows in their order."""
    lanes: dict[tuple[int, int], list[int]] = {}
    for row in rows:
        lanes.setdefault((row.key, row.producer), []).append(row.seq)
    return lanes


def _named(row: Row) -> tuple[int, int, str]:
    return row.producer, row.seq, str(row.key)


def _reminded(
    kafka: Kafka, branches: Branches, rows: Counter[Row], times: Mapping[Row, int]
) -> list[tuple[object, ...]]:
    by_name = {_named(row): ts for row, ts in times.items()}
    true = Counter({_named(row): n for row, n in rows.items()})
    have: Counter[Any] = Counter()
    found: list[tuple[object, ...]] = []
    for record in _read(kafka, REMINDERS):
        value = orjson.loads(record.value)
        ids = [(*one, value["k"]) for one in value["ids"]]
        have.update(ids)
        if branches.timers == EVENT and not value["at"] == record.ts == by_name.get(ids[-1], NO_TIME) + AFTER_MS:
            found.append(("a reminder of another time", record.ts, value))
    return [*found, *_compared(REMINDERS, true, have)]


def _enriched(kafka: Kafka, rows: Counter[Row]) -> list[tuple[object, ...]]:
    names = Counter({_named(row): n for row, n in rows.items()})
    have: Counter[Any] = Counter()
    found: list[tuple[object, ...]] = []
    has: set[str] = set()
    for record in _read(kafka, ENRICHED):
        value = orjson.loads(record.value)
        key, odd = value["k"], value["with"]
        have[(*value["row"], key)] += 1
        if odd is None and key in has:
            found.append(("a row of the table is gone", value))
        if odd is not None:
            has.add(key)
            if odd[1] % 2 == 0 or (*odd, key) not in names:
                found.append(("an unknown row of the table", value))
    return [*found, *_compared(ENRICHED, Counter({name: n for name, n in names.items() if name[1] % 2 == 0}), have)]


def _ticks(kafka: Kafka) -> list[tuple[object, ...]]:
    before: list[int] | None = None
    found: list[tuple[object, ...]] = []
    for number, at, missed in (orjson.loads(record.value) for record in _read(kafka, TICKS)):
        first = 1 if before is None else before[0] + 1
        if number != first or at % PERIOD_MS:
            found.append(("a tick is lost or doubled", before, number, at))
        forth = before is not None and at > before[1]
        if before is not None and forth and missed != (at - before[1]) // PERIOD_MS - 1:
            found.append(("missed ticks are not told", before, number, at, missed))
        before = [number, at]
    return found
