"""How far event time has come in a worker, by input stream and by time-aware step, and who holds it back.

    time.<place>  newest.<place>  stands.<place>  held.<why>.<place>/<who>        in a heartbeat; a step's place is `step <name>`

The core knows who holds a watermark (`Progress.holders`, `TaskTime.holders`). For a partition that the worker reads itself, this module
adds the reason that its intake and its gates give. Each place (a stream or a step) shows the task that is farthest behind there.

Promise: however many producers there are, a place names at most `MOST_HOLDERS` of them, those farthest behind, and counts the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ....core.orders import WORKING
from ....core.progress.frames import MAX_TIME, NO_TIME
from ....core.progress.producers import BEHIND, RELAYED, Holder
from ....core.task.view import STEP

if TYPE_CHECKING:
    from ...runtime.task.task import TaskActor

MOST_HOLDERS = 3
OPEN_TRANSACTION, NOT_ANSWERED, AT_END = "open-transaction", "not-answered", "at-end"
"""Why a source partition does not advance, according to its intake. Gates have reasons of their own (`paused`, `bootstrap`, …)."""


@dataclass(frozen=True, slots=True)
class PlaceTime:
    """The event time of a stream or a step."""

    place: str
    ms: int
    newest_ms: int | None = None
    """The greatest event time of the stream's records."""
    since_ms: int | None = None
    """When it reached this time, by the wall clock."""
    holders: tuple[Holder, ...] = ()
    more: int = 0
    """How many more holders there are."""


class Times:
    """The times of one worker. It remembers when each of them last changed."""

    def __init__(self) -> None:
        self._stood: dict[str, tuple[int, int]] = {}

    def look(self, actors: Iterable[TaskActor], now_ms: int) -> list[PlaceTime]:
        """The times now."""
        found = [self._since(one, now_ms) for one in times_of(actors)]
        self._stood = {one.place: (one.ms, one.since_ms or now_ms) for one in found}
        return found

    def _since(self, one: PlaceTime, now_ms: int) -> PlaceTime:
        ms, since_ms = self._stood.get(one.place, (None, now_ms))
        return replace(one, since_ms=since_ms if ms == one.ms else now_ms)


def times_of(actors: Iterable[TaskActor]) -> list[PlaceTime]:
    """The time of each place of these tasks, sorted by name."""
    behind: dict[str, list[tuple[int, TaskActor]]] = {}
    newest: dict[str, int] = {}
    for actor in actors:
        if actor.machine.phase not in WORKING:
            continue
        view = actor.machine.view
        for place, ms in view.times():
            behind.setdefault(place, []).append((ms, actor))
        for stream, ms in view.newest.items():
            newest[stream] = max(newest.get(stream, NO_TIME), ms)
    found: list[PlaceTime] = []
    for place, tasks in sorted(behind.items()):
        tasks.sort(key=lambda one: (one[0], one[1].name))
        holders = _holders(place, [actor for _, actor in tasks])
        shown, more = tuple(holders[:MOST_HOLDERS]), max(0, len(holders) - MOST_HOLDERS)
        found.append(PlaceTime(place, tasks[0][0], newest.get(place), None, shown, more))
    return found


def _holders(place: str, actors: list[TaskActor]) -> list[Holder]:
    """Who holds the place in the first of these tasks; if it knows only a relayed time, in the first one that knows more."""
    for actor in actors:
        found = actor.machine.view.holders(place)
        if place.startswith(STEP):
            return found
        found = [_seen(actor, one) for one in found]
        if any(one.why != RELAYED for one in found):
            return sorted(found)
    return [Holder(NO_TIME, "", RELAYED)] if actors else []


def _seen(actor: TaskActor, one: Holder) -> Holder:
    """The holder, with the reason from the gate or the intake if the task reads this partition itself."""
    for at, why in actor.machine.view.closed.items():
        if str(at) == one.who:
            return one._replace(why=why)
    intake = actor.reading.intake
    heads = {} if intake is None else intake.intake.heads()
    for at, head in heads.items():
        if str(at) != one.who:
            continue
        if head.blocked or head.degraded:
            return one._replace(why=OPEN_TRANSACTION if head.blocked else NOT_ANSWERED)
        return one._replace(why=AT_END) if one.why == BEHIND and head.at_end else one
    return one


# ------------------------------------------------------------------------------------------------------------- in heartbeats


def fitting(parts: Iterable[Mapping[str, float]], most_bytes: int) -> dict[str, float]:
    """These numbers under their names, in at most `most_bytes`. From the first part that does not fit, parts are left out."""
    load: dict[str, float] = {}
    for part in parts:
        most_bytes -= sum(len(name.encode()) + 12 for name in part)
        if most_bytes < 0:
            break
        load |= part
    return load


def time_load(times: Iterable[PlaceTime], most_bytes: int) -> dict[str, float]:
    """The times as numbers under short names, in at most `most_bytes`. From the first place that does not fit, places are left out."""
    return fitting(map(_named, times), most_bytes)


def _named(one: PlaceTime) -> dict[str, float]:
    named = {f"time.{one.place}": float(one.ms)}
    if one.newest_ms is not None:
        named[f"newest.{one.place}"] = float(one.newest_ms)
    if one.since_ms is not None:
        named[f"stands.{one.place}"] = float(one.since_ms)
    named |= {f"held.{held.why}.{one.place}/{held.who}": float(held.ts) for held in one.holders}
    if one.more:
        named[f"more.{one.place}"] = float(one.more)
    return named


def times_of_load(load: Mapping[str, float]) -> list[PlaceTime]:
    """The times in a heartbeat.

    >>> one = PlaceTime("orders", 5, 9, 1, (Holder(5, "orders:0", "paused"),), 2)
    >>> times_of_load(time_load([one], 1000)) == [one]
    True
    """
    holders: dict[str, list[Holder]] = {}
    for name, ts in load.items():
        kind, _, rest = name.partition(".")
        if kind == "held":
            why, _, rest = rest.partition(".")
            place, _, who = rest.partition("/")
            holders.setdefault(place, []).append(Holder(_ms(ts), who, why))
    return [
        PlaceTime(
            place := name.removeprefix("time."),
            _ms(ts),
            _known(load.get(f"newest.{place}")),
            _known(load.get(f"stands.{place}")),
            tuple(sorted(holders.get(place, ()))),
            int(load.get(f"more.{place}", 0)),
        )
        for name, ts in load.items()
        if name.startswith("time.")
    ]


def _ms(value: float) -> int:
    return MAX_TIME if value >= float(MAX_TIME) else max(NO_TIME, int(value))


def _known(value: float | None) -> int | None:
    return None if value is None else _ms(value)


# -------------------------------------------------------------------------------------------------------------------- merging


def merged(times: Iterable[PlaceTime]) -> list[PlaceTime]:
    """The times of several workers merged: for each place the least time, and who holds it there.

    >>> [both] = merged([PlaceTime("s", 9, 9, 3, (Holder(9, "a", "behind"),)), PlaceTime("s", 5, 7, 2, (Holder(5, "b", "behind"),))])
    >>> both.ms, both.newest_ms, both.since_ms, [one.who for one in both.holders]
    (5, 9, 2, ['b'])
    """
    by_place: dict[str, list[PlaceTime]] = {}
    for one in times:
        by_place.setdefault(one.place, []).append(one)
    found: list[PlaceTime] = []
    for _, several in sorted(by_place.items()):
        least = min(several, key=lambda one: one.ms)
        named = [held for one in several for held in one.holders if held.who]
        low = min((held.ts for held in named), default=NO_TIME)
        holders = {held.who: held for held in sorted(named, reverse=True) if held.ts == low}
        newest = max((one.newest_ms for one in several if one.newest_ms is not None), default=None)
        shown = tuple(sorted(holders.values())[:MOST_HOLDERS]) or least.holders
        more = max(one.more for one in several) + max(0, len(holders) - MOST_HOLDERS)
        found.append(replace(least, newest_ms=newest, holders=shown, more=more))
    return found
