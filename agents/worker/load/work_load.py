"""What takes the time of a worker, as its heartbeats say it: rates over the last seconds, so that those of all workers can be added up.

    busy.<step>  rate.<step>     microseconds a second for which a step holds the loop, and rows a second that reach it
    behind.<stream>              records that its tasks have not processed yet, as far as it is known
    waits.<reason>               how often a minute a task takes nothing although records are buffered
    errors.<step>|<error>        how often a step has failed so since the worker has started; and `erring.…`, how often a minute
    loop                         the share of a processor that the main loop's thread has, in thousandths

Promise: a rate is of a known span, at least a second and at most `SPAN_S` where it is looked at often enough; what is not measured yet is
not said.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Self

from ...error_counts import BETWEEN, failed_so
from ...measured import Clocks, starved_s
from ...step_work import StepTotals
from .lags import TaskLags
from .step_facts import StepFacts, load_of_steps

SPAN_S = 10.0
"""Over so long, rates are averages."""
LEAST_S = 1.0
WAITED = "waited."
"""How the counters of a task begin that say why it waited."""
LOOP, STARVED = "loop", "starved"


@dataclass(frozen=True, slots=True)
class StepRate(StepFacts):
    """How busy a step is."""

    KEYS: ClassVar[Mapping[str, str]] = {"busy_us": "busy", "rows": "rate"}

    busy_us: int = 0
    """For how many microseconds of a second it holds the loop."""
    rows: int = 0
    """Rows that reach it in a second."""


@dataclass(frozen=True, slots=True)
class StreamLag(StepFacts):
    """How far a stream, in the place of the step, is behind."""

    KEYS: ClassVar[Mapping[str, str]] = {"records": "behind"}

    records: int = 0


@dataclass(frozen=True, slots=True)
class WaitRate(StepFacts):
    """How often tasks wait for one reason, in the place of the step."""

    KEYS: ClassVar[Mapping[str, str]] = {"waits": "waits"}

    waits: int = 0
    """In a minute."""


@dataclass(frozen=True, slots=True)
class StepErrors(StepFacts):
    """How often a step has failed with one error."""

    KEYS: ClassVar[Mapping[str, str]] = {"times": "errors", "a_minute": "erring"}
    SPARSE: ClassVar[bool] = True

    error: str = ""
    times: int = 0
    """Since the process has started."""
    a_minute: int = 0

    @property
    def place(self) -> str:
        return f"{self.step}{BETWEEN}{self.error}"

    @property
    def order(self) -> tuple[str, ...]:
        return self.step, self.error

    @classmethod
    def at(cls, place: str) -> Self:
        step, _, error = place.rpartition(BETWEEN)
        return cls(step, error)


class Rates:
    """By how much counters grow in a second."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, Mapping[str, float]]] = deque()

    def look(self, counted: Mapping[str, float], now_s: float) -> dict[str, float]:
        """The rates now; empty at first.

        >>> rates = Rates()
        >>> rates.look({"rows": 10}, 5.0), rates.look({"rows": 40, "more": 4}, 7.0)
        ({}, {'rows': 15.0, 'more': 2.0})
        """
        seen = self._seen
        if not seen or now_s - seen[-1][0] >= LEAST_S:
            seen.append((now_s, dict(counted)))
        while len(seen) > 2 and now_s - seen[1][0] >= SPAN_S:
            seen.popleft()
        since_s, before = seen[0]
        if now_s - since_s < LEAST_S:
            return {}
        return {name: (count - before.get(name, 0.0)) / (now_s - since_s) for name, count in counted.items()}


def counted(steps: StepTotals, counters: Collection[Mapping[str, int]], clocks: Clocks | None) -> dict[str, float]:
    """What a worker has counted so far: of steps in microseconds and rows, of waits, and for how
    long its loop has had a processor, and waited for one. Called on the main loop."""
    found: Counter[str] = Counter()
    for counts in counters:
        found.update({f"waits.{name.removeprefix(WAITED)}": n for name, n in counts.items() if name.startswith(WAITED)})
    done: dict[str, float] = {name: float(count) for name, count in found.items()}
    for kind, times in failed_so(counters).items():
        done[f"errors.{kind.step}{BETWEEN}{kind.error}"] = float(times)
    for step, work in steps.items():
        done[f"busy.{step}"], done[f"rate.{step}"] = work.ns / 1000, float(work.rows)
    if clocks is not None:
        done[LOOP] = time.thread_time() * 1000
        if (waited_s := starved_s()) is not None:
            done[STARVED] = waited_s * 1000
    return done


def error_load(work: Mapping[str, float], rates: Mapping[str, float], most_bytes: int) -> dict[str, float]:
    """On what steps fail, of what was `counted`: what comes most often now comes first, if there is no room for all."""
    errors = [
        replace(StepErrors.at(place), times=round(times), a_minute=round(rates.get(name, 0.0) * 60))
        for name, times in work.items()
        for kind, _, place in [name.partition(".")]
        if kind == "errors"
    ]
    errors.sort(key=lambda one: (-one.a_minute, -one.times, one.order))
    return load_of_steps(errors, most_bytes)


def work_load(rates: Mapping[str, float], lags: Iterable[TaskLags], most_bytes: int) -> dict[str, float]:
    """What takes the time, and what is behind, as a heartbeat has it. Steps that take most come first, if there is no room for all."""
    steps = [
        StepRate(step, round(rates[name]), round(rates[f"rate.{step}"]))
        for name in rates
        for kind, _, step in [name.partition(".")]
        if kind == "busy"
    ]
    behind: Counter[str] = Counter()
    for of_task in lags:
        for at, lag in of_task.items():
            if lag is not None:
                behind[at.stream] += lag
    waits = [
        WaitRate(name.removeprefix("waits."), round(rate * 60))
        for name, rate in rates.items()
        if name.startswith("waits.") and round(rate * 60)
    ]
    facts: list[StepFacts] = [StreamLag(stream, records) for stream, records in sorted(behind.items())]
    facts += sorted(steps, key=lambda one: (-one.busy_us, one.step))
    facts += sorted(waits, key=lambda one: (-one.waits, one.step))
    load = {name: float(round(rates[name])) for name in (LOOP, STARVED) if name in rates}
    return load | load_of_steps(facts, most_bytes)
