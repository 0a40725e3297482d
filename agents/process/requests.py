"""Sends requests to a job: writes each into its coordinator stream, and waits for the answer.

    await ask(client, topics, Request("drain"), wait=True, timeout_s=25)

The leader acts on a request and answers it. This code decides only how long to wait, and what the answer means for the caller: done,
refused or failed, a deadline that passed (with what is not done yet), or no job.

Promises:

- A request carries its expiry time, so a request that no one has read does not take effect the next day.
- A request that cannot be carried out (no live run, and no one who could begin one) is not written, nor is one that holds a secret.
- When the deadline passes, the error says what is not done. The request itself stays, and an accepted request is carried out to its end.
"""

from __future__ import annotations

import asyncio
import socket
import time
import uuid
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from ...core.coordination import messages as c
from ...core.coordination import requests as r
from ...core.coordination.drains import Meaning, drain_verdict, open_drains
from ...core.coordination.metadata import open_requests
from ...core.coordination.state import FINAL, JobState
from ...core.errors import DeadlinePassed, HeadgateError, NotFound
from ...core.names import JobName, Topics
from ...core.orders import RESTING, TaskState
from ...core.settings import offer
from ..coordinator.coordinator_stream import OwnWriter
from ..kafka.port import KafkaPort
from ..kafka.settings import ClientSettings
from .reading import Follower, following, heard, pauses, shown
from .user import user_name

TIMEOUT_S = 25.0
_NONE: Mapping[str, Any] = MappingProxyType({})
ShowAnswer = Callable[[c.SetAnswer, JobState], None]
Look = Callable[[JobState], Awaitable[None]]
LOOK_S = 1.0
"""How often the caller may look at the progress of an accepted request."""


class Refused(HeadgateError):
    """The leader refused the request."""


class AnsweredFailed(HeadgateError):
    """The leader accepted the request, but it failed."""


@dataclass(frozen=True, slots=True)
class Request:
    """A request. An empty `run_id` means the live run."""

    verb: str
    run_id: str = ""
    arguments: Mapping[str, Any] = field(default_factory=lambda: _NONE)
    lasting: bool = False
    """It does not expire (`seek` of a job whose workers are down), as is always the case for `drain --run-id`."""
    waits: str = ""
    """What it waits for if no worker is there to accept it. The caller is told, and waits only with `--wait`."""
    uuid: str = ""
    """Its id; a new one if empty. A job handles a request with the same id only once, however often it is sent."""

    @classmethod
    def of(cls, message: c.SetRequest) -> Request:
        """The request that a message of the stream contains."""
        return cls(message.verb, message.run_id, message.arguments, uuid=message.uuid)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a request."""

    uuid: str
    state: str
    why: str = ""
    progress: Mapping[str, Any] = field(default_factory=lambda: _NONE)
    run_id: str = ""
    run_state: str = ""
    paused: str = ""
    """What of the run is paused, for people."""


def wall_ms() -> int:
    """The wall-clock time now."""
    return int(time.time() * 1000)


def asker() -> str:
    """Who sends a request, for people."""
    return f"{user_name()}@{socket.gethostname()}"


async def ask(
    client: ClientSettings,
    topics: Topics,
    request: Request,
    *,
    wait: bool = True,
    timeout_s: float = TIMEOUT_S,
    say: ShowAnswer | None = None,
    look: Look | None = None,
) -> Outcome:
    """Write the request and follow it: to its end with `wait`, otherwise until it is accepted. `look` is called from time to time while an
    accepted request is carried out.

    Raises `Refused`, `AnsweredFailed`, `DeadlinePassed`, `NotFound`, and `SettingError` for a secret, which is not written.
    """
    r.refuse_secrets(c.SetRequest("", request.verb, arguments=request.arguments))
    deadline = time.monotonic() + timeout_s
    async with following(client, topics) as stream:
        lasting, waits = request.lasting or (request.verb == r.DRAIN and bool(request.run_id)), request.waits
        if request.verb == r.WITHDRAW and not await _has_worker(client, topics, stream):
            lasting, waits, wait = True, "it waits for a worker", False  # the first thing that a worker does
        message = c.SetRequest(
            request.uuid or uuid.uuid4().hex,
            request.verb,
            request.run_id,
            dict(request.arguments),
            None if lasting else wall_ms() + int(timeout_s * 1000),
            asker(),
        )
        if not _asked(stream.job, message):
            if (over := refused(stream.job, message, topics.job, wait=wait)) is not None:
                return over
            waits = waits or await _waits(client, topics, stream, request)
            await _write(client, topics, message)
            if lasting and not wait and waits:
                return Outcome(message.uuid, "written", waits)
        return await _follow(
            stream, message, topics.job, wait=wait, deadline=deadline, timeout_s=timeout_s, say=say, look=look
        )


async def _waits(client: ClientSettings, topics: Topics, stream: Follower, request: Request) -> str:
    """What a drain of a named run waits for; empty if it is taken up at once, or is another request."""
    if request.verb != r.DRAIN or not request.run_id:
        return ""
    verdict = drain_verdict(stream.job.run, request.run_id)
    if verdict.meaning == Meaning.WAITS:
        return verdict.why
    return "" if await _has_worker(client, topics, stream) else "it waits for a worker"


def _asked(state: JobState, request: c.SetRequest) -> bool:
    """Whether a request with this id exists already. Raises `Refused` if that one asks for something else."""
    before = state.request(request.uuid)
    if before is not None and replace(request, not_after=before.not_after, requested_by=before.requested_by) != before:
        raise Refused(
            f"the request '{request.uuid}' already exists, and asks for {before.verb}", remedy="use another id"
        )
    return before is not None or state.answer(request.uuid) is not None


async def _has_worker(client: ClientSettings, topics: Topics, stream: Follower) -> bool:
    """Whether a worker is alive."""
    beats = await heard(client, topics.heartbeat, stream.job)
    return bool(beats.present(await stream.to_end()))


async def _write(client: ClientSettings, topics: Topics, request: c.SetRequest) -> None:
    stamp = c.Stamp(socket.gethostname(), user_name(), f"headgate {request.verb}", wall_ms())
    writer = OwnWriter(KafkaPort(client), topics.coordinator, stamp)
    try:
        await writer.write([request])
    finally:
        await writer.stop()


async def _follow(
    stream: Follower,
    request: c.SetRequest,
    job: JobName,
    *,
    wait: bool,
    deadline: float,
    timeout_s: float,
    say: ShowAnswer | None,
    look: Look | None,
) -> Outcome:
    said: c.SetAnswer | None = None
    look_at = 0.0
    while True:
        answer = stream.job.answer(request.uuid)
        if answer is not None and answer != said:
            said = answer
            if say is not None:
                say(answer, stream.job)
        if answer is not None and (answer.state in FINAL or not wait):
            return outcome(request, answer, stream.job, job)
        left = deadline - time.monotonic()
        if left <= 0:
            raise DeadlinePassed(
                f"{request.verb} of '{shown(job)}' is not done after {timeout_s:g} s:\n  "
                + "\n  ".join(missing(stream.job, request)),
                remedy=f"the request continues; watch it with `headgate status {shown(job)}`"
                if answer is not None
                else unheard(stream.job, request, job),
            )
        looks = look is not None and answer is not None and time.monotonic() >= look_at
        try:
            async with asyncio.timeout(left if look is None or looks else min(left, LOOK_S)):
                if look is not None and looks:
                    if look_at:  # not before the first interval is over: most requests are done by then
                        await look(stream.job)
                    look_at = time.monotonic() + LOOK_S
                else:
                    await stream.more()
        except TimeoutError:
            continue


def unheard(state: JobState, request: c.SetRequest, job: JobName) -> str:
    """What helps if no one has accepted a request."""
    back = f"`headgate requests withdraw {shown(job)} {request.uuid}` withdraws it"
    void = f"the request keeps waiting; {back}" if request.not_after is None else "the request has expired"
    if not any(state.members()):
        return f"no worker is running: start one with `headgate run MODULE:app`; {void}"
    return f"is a worker alive? `headgate status {shown(job)}`; {void}"


def outcome(request: c.SetRequest, answer: c.SetAnswer, state: JobState, job: JobName) -> Outcome:
    """The answer as a value; raises an error if the request was refused or failed."""
    run = state.run
    if answer.state == c.AnswerState.REFUSED:
        if answer.reason == c.Reason.NO_LIVE_RUN:
            raise NotFound(
                f"'{shown(job)}' has no live run" + (f": run {run.run_id} is {run.state}" if run else ""),
                remedy=f"`headgate start {shown(job)}` or `headgate run` begins one",
            )
        raise Refused(
            f"{request.verb} of '{shown(job)}' was refused: {answer.why}",
            remedy=answer.remedy or meant(request, answer, state, job),
        )
    if answer.state == c.AnswerState.FAILED:
        raise AnsweredFailed(
            f"{request.verb} of '{shown(job)}' failed: {answer.why}", remedy=f"see `headgate status {shown(job)}`"
        )
    if run is None:
        return Outcome(request.uuid, answer.state, answer.why, answer.progress)
    stands = pauses(run.paused_job, run.paused_streams)
    return Outcome(request.uuid, answer.state, answer.why, answer.progress, run.run_id, run.state, stands)


def meant(request: c.SetRequest, answer: c.SetAnswer, state: JobState, job: JobName) -> str:
    """What helps against a refusal: the nearest existing name, or what removes the reason; empty if nothing is known."""
    model, workers = state.model, [member.processor for member in state.members()]
    known: dict[str, Iterable[str]] = {"worker": workers, "to": workers if request.verb == r.MOVE else ()}
    if model is not None:
        known |= {"task": model.tasks, "stream": model.streams}
    for argument, names in known.items():
        name = request.arguments.get(argument)
        if isinstance(name, str) and (there := list(names)) and name not in there:
            return offer(name, there)
    if request.verb in r.VERBS and answer.why.startswith(r.UNKNOWN):
        return "the worker that leads the job has an older version: upgrade the workers of the job"
    if answer.reason == c.Reason.OTHER_RUN and state.run is not None and state.live:
        return f"use --run-id {state.run.run_id}, or omit it"
    if request.verb == r.START and state.live:
        return f"close that one first: `headgate drain {shown(job)} --wait`"
    return ""


def refused(state: JobState, request: c.SetRequest, job: JobName, *, wait: bool) -> Outcome | None:
    """Raise what the leader would answer if it cannot carry the request out, also if no worker is there to say so. Returns the outcome of
    what is done already: a drain, with `wait`, of a run that has drained.
    """
    if wrong := r.problem(request):
        outcome(request, c.SetAnswer(request.uuid, c.AnswerState.REFUSED, wrong), state, job)
    if request.verb != r.DRAIN:
        absent(state, request, job)
        return None
    verdict = drain_verdict(state.run, request.run_id)
    if verdict.meaning == Meaning.OVER and not (wait or request.run_id):
        absent(state, request, job)
    if verdict.meaning not in (Meaning.OVER, Meaning.REFUSED):
        return None
    final = c.AnswerState.DONE if verdict.meaning == Meaning.OVER else c.AnswerState.REFUSED
    return outcome(request, c.SetAnswer(request.uuid, final, verdict.why, reason=verdict.reason), state, job)


def absent(state: JobState, request: Request | c.SetRequest, job: JobName) -> None:
    """Raise `NotFound` if the request needs a live run and there is none; there may be no worker to answer it."""
    run = state.run
    needs = request.verb in (r.DRAIN, r.PAUSE, r.RESUME, r.MOVE, r.GROW) or (
        request.verb == r.STOP and "worker" not in request.arguments
    )
    if not needs or state.live or request.run_id:
        return
    raise NotFound(
        f"'{shown(job)}' has no live run" + (f": run {run.run_id} is {run.state}" if run else ""),
        remedy="" if request.verb == r.STOP else f"`headgate start {shown(job)}` or `headgate run` begins one",
    )


def missing(state: JobState, request: c.SetRequest) -> list[str]:
    """What is not done yet, for a caller whose deadline has passed."""
    answer = state.answer(request.uuid)
    if answer is None and request.verb == r.DRAIN:
        drain = next((one for one in open_drains(state) if one.request == request.uuid), None)
        if drain is not None and drain.run and (state.run is None or state.run.run_id != drain.run):
            return [drain.why]
    if answer is None:
        leader = state.leader
        who = (
            f"the leader, {leader.processor},"
            if leader is not None and leader.processor
            else "there is no leader; a worker"
        )
        return [f"it has not been accepted yet: {who} has not answered"]
    lines: list[str] = []
    for grant in sorted(state.grants(), key=lambda grant: grant.task):
        says = state.says(grant.task)
        held = state.held(grant.task) is not None
        if request.verb == r.DRAIN and held and says not in RESTING:
            lines.append(f"{grant.task} on {grant.processor}: {says or 'granted'}, not drained")
        elif request.verb == r.STOP and held and request.arguments.get("worker", grant.processor) == grant.processor:
            by = _prepared_by(state, grant.task)
            waits = f"until {by} has prepared it" if by else "not released"
            lines.append(f"{grant.task} on {grant.processor}: {says or 'granted'}, {waits}")
        elif request.verb == r.GROW and (not held or says != TaskState.RUNNING):
            lines.append(f"{grant.task} on {grant.processor}: {says or 'restoring'}")
    if not lines:
        run = state.run
        lines = [f"run {run.run_id} is {run.state}" if run is not None else "there is no run"]
    return lines


def _prepared_by(state: JobState, task: str) -> str:
    """Where a task is prepared while its worker works on; empty if it is not."""
    ahead = None if state.model is None else state.model.preparing.get(task)
    return ahead.processor if ahead is not None and ahead.under_way else ""


def pending(state: JobState, verb: str = "") -> list[dict[str, Any]]:
    """The requests without a final answer, oldest first: all of them, or those of one verb."""
    return [
        {
            **{name: one[name] for name in ("request", "verb", "run", "by", "state", "why")},
            "arguments": dict(one["arguments"]),
            "written": _iso(one["written_ms"]),
            "expires": _iso(one["not_after_ms"]),
        }
        for one in open_requests(state)
        if verb in ("", one["verb"])
    ]


def _iso(ms: int | None) -> str | None:
    return None if ms is None else time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(ms / 1000))


def drains_of(state: JobState) -> list[dict[str, Any]]:
    """The drains that are pending or in progress."""
    return [
        {
            "request": one.request,
            "run": one.run or None,
            "mode": one.mode,
            "by": one.by,
            "state": one.state,
            "why": one.why,
            "written": _iso(one.written_ms),
            "done": one.done,
            "of": one.of,
        }
        for one in open_drains(state)
    ]


def to_withdraw(state: JobState, request: str, job: JobName, verb: str = "") -> str:
    """The id of the pending request that begins with `request`; raises `NotFound` if there is none, or more than one."""
    ids = [one["request"] for one in pending(state, verb) if one["verb"] != r.WITHDRAW]
    meant = [one for one in ids if one.startswith(request)]
    if len(meant) == 1:
        return meant[0]
    whose = f"pending {verb or 'request'}{'' if len(meant) == 1 else 's'} of '{shown(job)}'"
    raise NotFound(
        f"{len(meant) or 'no'} {whose} begin with '{request}'"
        if request
        else f"there are {len(meant) or 'no'} {whose}",
        remedy=f"name one of {', '.join(meant)}" if meant else offer(request, ids) or "no request is pending",
    )
