"""How many workers a job has: which ones the supervisor of `headgate run --workers` starts and stops, and when no one would.

The number is the setting `workers` of the job. One supervisor follows it: the one that has started every worker that is there. Its workers
are `<front>-<number>`, and the wanted ones are the numbers below the wanted number. Where workers of another front are there, or some that
no one supervises, no rule says who has to start or to stop one, so no one does, a change is refused, and the supervisor says why. The claim
is nothing but the workers themselves, so it ends with them.

Promises: a worker with a wanted number is never stopped; the highest number goes first, the lowest missing one comes first.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from ..names import natural
from ..orders import RESTING, WORKING
from ..settings import Resolved, parse
from .messages import ProcessorState, SetProcessor
from .state import JobState

WORKERS = "workers"
"""The setting."""
OVER_THE_FLAG = frozenset({"override", "flag", "environment"})
"""Where the setting comes before `--workers`; a file or the app comes after it."""
SHOWN = 3


@dataclass(frozen=True, slots=True)
class Crew:
    """What a supervisor has to do."""

    start: tuple[int, ...] = ()
    stop: tuple[int, ...] = ()
    why: str = ""
    """Why it does not follow; empty if it does."""


def front_of(processor: str) -> str:
    """What the workers of one supervisor have in common.

    >>> front_of("host-a-12")
    'host-a'
    """
    return processor.rpartition("-")[0]


def supervisor_of(worker: SetProcessor) -> str:
    """The front of the supervisor that has started a worker; empty for a worker without one."""
    return front_of(worker.processor) if worker.since_ms else ""


def wanted(setting: Resolved, flag: int) -> int:
    """How many workers are wanted. `flag`: what `--workers` says, 0 if nothing.

    >>> wanted(Resolved(3, "override", 3), 2), wanted(Resolved(3, "headgate.toml", 3), 2), wanted(Resolved(0, "default", 0), 2)
    (3, 2, 2)
    """
    if setting.value and (setting.origin in OVER_THE_FLAG or not flag):
        return int(setting.value)
    return flag


def crew(number: int, present: Collection[int], others: Collection[str]) -> Crew:
    """What follows for a supervisor with these numbers. `others`: workers that are there, and not its own.

    >>> crew(3, {0}, ()), crew(1, {0, 1, 2}, ())
    (Crew(start=(1, 2), stop=(), why=''), Crew(start=(), stop=(2, 1), why=''))
    """
    if others:
        return Crew(
            why=f"this supervisor did not start {some(others)}, and only one that has started all workers follows"
        )
    return Crew(
        tuple(one for one in range(number) if one not in present),
        tuple(sorted((one for one in present if one >= number), reverse=True)),
    )


def strangers(state: JobState, front: str) -> list[str]:
    """The workers of the run that the supervisor of this front has not started."""
    found: list[str] = []
    for member in state.members():
        worker = state.newest(member.processor)
        if worker is not None and worker.state == ProcessorState.JOINED and supervisor_of(worker) != front:
            found.append(member.processor)
    return sorted(found)


def present(state: JobState) -> int:
    """How many workers the run has."""
    newest = (state.newest(member.processor) for member in state.members())
    return sum(worker is not None and worker.state == ProcessorState.JOINED for worker in newest)


def workers_wanted(state: JobState) -> int | None:
    """The number that `headgate scale` has set; None if it is left to `--workers`."""
    said = state.configs.get(WORKERS)
    number = 0 if said is None else int(parse(WORKERS, said.value))
    return number or None


def unsettled(state: JobState, number: int) -> str:
    """What is still to come until so many workers are there, and each task runs where it is to run; empty once all that is so."""
    there = present(state)
    if there != number:
        going = sorted(one.processor for one in state.members() if one.dismissed)
        return f"{there} of {number} workers are there" + (
            f"; others prepare the tasks of {some(going)}" if going else ""
        )
    model = state.model
    if model is None or len(model.processors) != number:
        return "the tasks are not placed on them yet"
    target = model.target
    away: list[str] = []
    for task in sorted(model.tasks, key=natural):
        grant = state.held(task)
        runs = state.says(task) in (*WORKING, *RESTING)
        if not runs or grant is None or grant.processor != target.get(task):
            away.append(task)
    return f"{len(away)} of {len(model.tasks)} tasks do not run where they are to run: {some(away)}" if away else ""


def follower_problem(workers: Iterable[SetProcessor]) -> str:
    """Why no one would follow the number while these workers are there; empty if their supervisor does."""
    there = list(workers)
    if alone := sorted(worker.processor for worker in there if not supervisor_of(worker)):
        return f"{some(alone)} was not started by `headgate run --workers`, so no one would follow"
    fronts = sorted({supervisor_of(worker) for worker in there})
    if len(fronts) > 1:
        return f"{len(fronts)} supervisors have started workers ({some(fronts)}), so no one would follow"
    return ""


def idle_note(number: int, tasks: int) -> str:
    """What is said if there are more workers than tasks.

    >>> idle_note(6, 4), idle_note(4, 4)
    ('4 tasks keep 4 workers busy; 2 would be idle', '')
    """
    if not tasks or number <= tasks:
        return ""
    return f"{tasks} tasks keep {tasks} workers busy; {number - tasks} would be idle"


def workers_text(number: int | None, there: int) -> str:
    """The wanted and the present number, for people.

    >>> workers_text(3, 2), workers_text(None, 2)
    ('3 wanted, 2 present', '2 present')
    """
    return f"{there} present" if number is None else f"{number} wanted, {there} present"


def some(names: Collection[str]) -> str:
    """The first of these names, for people.

    >>> some(["a", "b", "c", "d", "e"])
    'a, b, c and 2 more'
    """
    ordered = sorted(names)
    more = f" and {len(ordered) - SHOWN} more" if len(ordered) > SHOWN else ""
    return ", ".join(ordered[:SHOWN]) + more
