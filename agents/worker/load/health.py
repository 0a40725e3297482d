"""Whether a worker works now, derived from facts of now, and the reports of what does not answer.

    its standing       what the member says: its run, its grants, the last reports of its tasks
    the broker         the coordinator stream is asked all the time; whether it answers
    its incarnation    the producer, and the transaction under way
    its tasks          each granted task runs in this process
    its letters        no letter takes longer than `letter.warn-after`

The main loop itself is watched from outside (`web.stuck`, and the age of its last turn in heartbeats): while it is blocked, nothing here
runs, so a blocked loop blames no broker.

Promises: every report has an end. Looking reads plain values and asks no one.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from ....core.machine import Now
from ....core.orders import RESTING, WORKING
from ...logger import Logger
from ...port.absence import FIRST_S, LONGEST_S, WatchedTime
from ...runtime.task.at_work import AtWork
from .lags import Owned

if TYPE_CHECKING:
    from ...coordinator.coordination import Coordination
    from ...runtime.host.runtime import Runtime
    from ...runtime.task.task import TaskActor

log = Logger("headgate.worker")
AWAY_S = 5.0
"""The coordinator stream is fetched at least twice a second: without an answer for this long, its broker counts as silent."""
COMMIT_S = 10.0
"""A transaction takes some ten milliseconds: after this time its broker or a disk does not answer."""
BLOCKED_S = 5.0
"""A main loop that has not turned for this long is blocked."""
LONG_S = 5.0
"""A letter that has been under way for this long is shown in the heartbeats."""
MOST_LETTERS = 8
"""At most so many letters are named in a heartbeat, those that take longest."""
MOST_TEXT = 160
"""The most that a heartbeat says about a letter, in characters."""


class Contact:
    """Whether the broker of the coordinator stream answers; measured while the main loop looks."""

    def __init__(self, mono: float, say: Any = log) -> None:
        self._say = say
        self._watched = WatchedTime(mono)
        self._answers = -1
        self._since_s = 0.0
        self._since_ms = 0
        self._next_s = 0.0
        self._pause_s = FIRST_S
        self.away_s: float | None = None
        """For how long it has been away; None while it answers."""

    def look(self, answers: int, now: Now) -> None:
        """`answers`: how many answers have come so far."""
        at_s = self._watched.look(now.mono)
        if answers != self._answers:
            if self.away_s is not None:
                self._say.info(
                    "the broker answers again", of="the coordinator stream", after_s=round(at_s - self._since_s)
                )
            self._answers, self._since_s, self._since_ms, self.away_s = answers, at_s, now.wall, None
            self._pause_s = FIRST_S
            return
        if at_s - self._since_s < AWAY_S:
            return
        if self.away_s is None:
            self._next_s = at_s
        self.away_s = at_s - self._since_s
        if at_s >= self._next_s:
            self._pause_s = min(LONGEST_S, self._pause_s * 2)
            self._next_s = at_s + self._pause_s
            self._say.warning(
                "the broker does not answer", of="the coordinator stream", since=self.since, for_s=round(self.away_s)
            )

    @property
    def since(self) -> str:
        """When it answered last."""
        return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self._since_ms / 1000))

    @property
    def why(self) -> str:
        """Why the worker is not ready; empty while the broker answers."""
        if self.away_s is None:
            return ""
        return f"the broker of the coordinator stream has not answered since {self.since} ({self.away_s:.0f} s)"


class Health:
    """What is remembered between two looks."""

    def __init__(self, mono: float) -> None:
        self.contact = Contact(mono)
        self.slow: tuple[AtWork, ...] = ()
        """The letters that take long."""

    def look(self, answers: int | None, actors: Iterable[TaskActor], now: Now) -> None:
        """Look at the facts, and report what is due. `answers`: as `Contact.look`; None before the stream is read."""
        if answers is not None:
            self.contact.look(answers, now)
        self.slow = tuple(one for actor in actors if (one := actor.under_way.doing.look()) is not None)


class WorkerFacts(Protocol):
    """What is asked of a worker to know whether it works; `Participant` has it."""

    exit_code: int | None
    exit_why: str
    ready: bool
    why: str
    health: Health
    coordination: Coordination
    runtime: Runtime

    @property
    def actors(self) -> Mapping[str, TaskActor]: ...

    def owned(self) -> Owned: ...


def readiness(one: WorkerFacts) -> tuple[bool, str]:
    """Whether the worker works now, and if not, why not."""
    if one.exit_code is not None:
        return False, one.exit_why or "exiting"
    why = (
        one.coordination.blocked
        or one.health.contact.why
        or ("" if one.ready else "; ".join(filter(None, (one.why or "starting", one.runtime.copies.waits))))
        or _unfinished(one.runtime.producers.committing)
        or _missing(one.owned(), one.actors)
        or next((slow.text for slow in one.health.slow), "")
    )
    return not why, why


def _unfinished(committing: Any) -> str:
    """Why nothing can be committed; empty if it can."""
    if committing is None:
        return "it has no producer: one incarnation has ended, and the next one has not begun"
    took_s = committing.under_way_s()
    if took_s is None or took_s < COMMIT_S:
        return ""
    return f"a commit has been {committing.machine.view.state} for {took_s:.0f} s"


def _missing(owned: Owned, actors: Mapping[str, TaskActor]) -> str:
    """The first granted task that does not run here; empty if all do."""
    for task in sorted(owned):
        actor = actors.get(task)
        if actor is None:
            return f"{task} does not run"
        if actor.machine.phase not in (*WORKING, *RESTING):
            return f"{task} is {actor.machine.phase}"
    return ""


# ------------------------------------------------------------------------------------------------------------- in heartbeats


def letter_load(actors: Iterable[TaskActor], wall_ms: int, least_s: float) -> dict[str, float]:
    """The letters that take longer than `least_s`, as `letter.<task>/<what>` → since when. Any thread may call this."""
    found = (actor.under_way.doing.now() for actor in list(actors))
    long = sorted((one for one in found if one is not None and one.for_s >= least_s), key=lambda one: -one.for_s)
    return {f"letter.{one.task}/{one.what[:MOST_TEXT]}": wall_ms - one.for_s * 1000 for one in long[:MOST_LETTERS]}


def work_of_load(load: Mapping[str, float], now_ms: int) -> dict[str, AtWork]:
    """By task: the letters that take long, in a heartbeat.

    >>> work_of_load({"letter.Partition 0/in:0 offset 3": 1_000.0, "ready": 1.0}, 9_000)
    {'Partition 0': AtWork(task='Partition 0', what='in:0 offset 3', for_s=8.0)}
    """
    found: dict[str, AtWork] = {}
    for name, since_ms in load.items():
        kind, _, rest = name.partition(".")
        task, _, what = rest.partition("/")
        if kind == "letter":
            found[task] = AtWork(task, what, max(0.0, (now_ms - since_ms) / 1000))
    return found
