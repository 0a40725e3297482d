"""Whether the run that a plan is about could begin: every rule by which a worker or a task refuses to start, asked before anything runs.

Nothing is judged here. The run is judged by `refusal`, as the worker that joins does; topics by `compared`, as the worker that creates them
does; the state by `judge`, as each task does at its start. So what the start refuses the plan refuses, in the same words.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ...core.coordination.member.admission import closed_run, refusal
from ...core.coordination.member.plan import MemberConfig
from ...core.coordination.messages import RunState, SetRun
from ...core.coordination.run_choice import cannot_follow
from ...core.coordination.state import JobState
from ...core.errors import DeclarationError, HeadgateError
from ...core.names import natural
from ..job.derive.declaration import Declared
from ..kafka.settings import ClientSettings
from ..state.opening import Judged, judge, unowned_text
from .clearing import read_logs


@dataclass(frozen=True, slots=True)
class StateChange:
    """What the code changes of the state of some tasks."""

    what: str
    tasks: tuple[str, ...]
    refused: bool = False
    """It does not fit: these tasks would fail."""
    remedy: str = ""


async def state_changes(
    client: ClientSettings, topic: str, state: JobState, declared: Declared
) -> tuple[StateChange, ...]:
    """What this code changes of the state in the task logs; what does not fit first."""
    if not state.changelogs:
        return ()
    logs = await read_logs(client, topic, state.changelogs)
    return put_together({task: judge(census, declared) for task, census in logs.items()})


def put_together(judged: Mapping[str, Judged]) -> tuple[StateChange, ...]:
    """The same change of several tasks is one."""
    found: dict[tuple[bool, str, str], list[str]] = {}
    for task in sorted(judged, key=natural):
        for change in _changes(judged[task]):
            found.setdefault((not change.refused, change.what, change.remedy), []).append(task)
    return tuple(
        StateChange(what, tuple(tasks), not fits, remedy)
        for (fits, what, remedy), tasks in sorted(found.items(), key=lambda one: one[0][0])
    )


def _changes(judged: Judged) -> Iterable[StateChange]:
    try:
        judged.must_fit()
    except DeclarationError as error:
        yield StateChange(error.what, (), True, error.remedy)
    yield from (StateChange(line, ()) for line in judged.news)
    if unowned := unowned_text(judged.unowned):
        yield StateChange(unowned, ())


def misfits(changes: Sequence[StateChange]) -> list[HeadgateError]:
    """What the tasks would fail with."""
    return [
        HeadgateError(f"{one.tasks[0]}{_more(len(one.tasks) - 1)} would fail: {one.what}", remedy=one.remedy)
        for one in changes
        if one.refused
    ]


def _more(count: int) -> str:
    return f" and {count} more" if count else ""


def joins(run: SetRun | None, config: MemberConfig) -> list[HeadgateError]:
    """Why a worker of this code does not take part in the last run, nor begin another; empty if it does."""
    why = refusal(run, config)
    if run is None:
        return []
    if not why and cannot_follow(run, config.fingerprint):
        why = closed_run(run, config.fingerprint)
    remedy = "run the former code until `headgate drain` has closed its run; this code may begin the next one"
    if run.state in (RunState.DRAINED, RunState.ENDED):
        remedy = "give it its former value, or give the job another id"
    return [HeadgateError(why, remedy=remedy)] if why else []
