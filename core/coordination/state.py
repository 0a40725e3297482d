"""The job state: the coordinator stream folded, and queries on it.

`apply` keeps the last message of each key and does not judge it. Queries on the folded map decide whether something is *current* (a grant,
an incarnation, an answer). Therefore a late message of a zombie changes no result, and folding the compacted stream gives the same state as
folding all of it.

Promises:

- `apply` never raises. Unreadable records are counted, and the last thousand are kept by offset, for people.
- An unreadable record is skipped: the last readable message of its key stays valid, and the key is in `damaged` until someone writes it
  again. (Compaction removes the older message, so the owner of the key must write it again before that.) A deletion that is not the
  leader's, or of a key that no one may delete, is treated in the same way.
- An invalid override (no such setting, no such value) is skipped, too, and named in `wrong_configs`.
- The same messages for each key, in the same order, give equal states.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from types import MappingProxyType
from typing import Any, cast

from ..graph.model import JobModel
from ..names import incarnation_order
from ..orders import RunView, TaskState
from ..settings import DYNAMIC, find, override_problem
from . import messages as c
from .placement import Former

PROBLEMS_KEPT = 1000
FINAL = frozenset({c.AnswerState.DONE, c.AnswerState.REFUSED, c.AnswerState.FAILED})
"""The final states of an answer."""
NEVER_RAN = "never ran"
"""The reason when a grant is released that its holder never used. Its holder's location then says nothing about the task's store."""

_NOTHING: Mapping[Any, Any] = MappingProxyType({})

order = lru_cache(maxsize=10_000)(incarnation_order)
"""The key by which incarnations of one processor are compared."""


@lru_cache(maxsize=1000, typed=True)
def _wrong(setting: str, value: Any) -> str:
    """Why this override has no effect; empty if it has. An immutable setting may have been overridden before the first run."""
    return override_problem(setting, value, ran=False)


def _by_the_brokers_clock(request: c.SetRequest, entry: c.Entry) -> c.SetRequest:
    """The request with its expiry in the broker's time. Who wrote it has counted from its own clock, whose time stands alongside it: a
    command on a machine whose clock is behind would otherwise be refused as expired when it comes.
    """
    if request.not_after is None or not entry.stamp.timestamp or not entry.append_ms:
        return request
    return replace(request, not_after=entry.append_ms + request.not_after - entry.stamp.timestamp)


class JobState:
    """The last message of each key, by type, and queries on them.

    >>> from headgate.core.coordination.messages import Entry, SetFence, key_of
    >>> state = JobState()
    >>> fence = SetFence("p1", "000002-bb")
    >>> state.apply(Entry(0, key_of(fence), fence))
    >>> state.fenced("p1", "000001-aa"), state.fenced("p1", "000003-cc")
    (True, False)
    """

    def __init__(self) -> None:
        self.messages: dict[str, dict[tuple[str | int, ...], c.Message]] = {kind: {} for kind, _ in c.KEYS.values()}
        """Type → key → the last message."""
        self.at: dict[c.Key, tuple[int, int]] = {}
        """Key → offset and append time of its last message."""
        self.position = 0
        self.problem_count = 0
        self.problems: dict[int, str] = {}
        """Offset → why the record there could not be read."""
        self.damaged: dict[c.Key, int] = {}
        """Keys whose last message was skipped → its offset."""
        self._states: dict[str, dict[int, c.SetTaskState]] = {}
        self._recorded: dict[str, dict[str, c.SetProcessor]] = {}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, JobState) and self.messages == other.messages and self.at == other.at

    __hash__ = None  # type: ignore[assignment]

    # ------------------------------------------------------------------------------------------------------------- fold

    def apply(self, entry: c.Entry) -> None:
        """Apply one entry: the last readable message of its key counts."""
        self.position = max(self.position, entry.offset + 1)
        problem, message = entry.problem, entry.message
        if not problem and message is None and entry.key is not None:
            problem = c.unlawful(entry.key)
        if problem:
            self.problem_count += 1
            self.problems[entry.offset] = problem
            if len(self.problems) > PROBLEMS_KEPT:
                del self.problems[next(iter(self.problems))]
            if entry.key is not None:
                self.damaged[entry.key] = entry.offset
            return
        if entry.key is None:
            return
        kind, key = entry.key
        self.damaged.pop(entry.key, None)
        if message is None:
            self.messages[kind].pop(key, None)
            self.at.pop(entry.key, None)
        else:
            if isinstance(message, c.SetRequest):
                message = _by_the_brokers_clock(message, entry)
            self.messages[kind][key] = message
            self.at[entry.key] = (entry.offset, entry.append_ms)
        if kind == "set-task-state":
            _place(self._states, key, cast("c.SetTaskState | None", message))
        elif kind == "set-processor":
            _place(self._recorded, key, cast("c.SetProcessor | None", message))

    def fold(self, entries: Iterable[c.Entry]) -> JobState:
        """Apply many entries. Returns itself."""
        for entry in entries:
            self.apply(entry)
        return self

    def copy(self) -> JobState:
        """An equal, independent copy, to see what a decision would lead to."""
        other = JobState()
        other.messages = {kind: dict(found) for kind, found in self.messages.items()}
        other.at = dict(self.at)
        other.position = self.position
        other.damaged = dict(self.damaged)
        other._states = {task: dict(said) for task, said in self._states.items()}
        other._recorded = {processor: dict(workers) for processor, workers in self._recorded.items()}
        return other

    # ------------------------------------------------------------------------------------------------------- single keys

    @property
    def run(self) -> c.SetRun | None:
        return cast("c.SetRun | None", self.messages["set-run"].get(()))

    def other_job(self, job: str) -> str:
        """The job whose stream this is according to its leader, if it is another one; empty otherwise.

        >>> JobState().other_job("sales/1")
        ''
        """
        found = self.leader
        return found.job if found is not None and job and found.job not in ("", job) else ""

    @property
    def leader(self) -> c.SetLeader | None:
        return cast("c.SetLeader | None", self.messages["set-leader"].get(()))

    @property
    def model(self) -> JobModel | None:
        found = cast("c.SetJobModel | None", self.messages["set-job-model"].get(()))
        return None if found is None else found.model

    @property
    def configs(self) -> Mapping[str, c.SetConfig]:
        """The valid overrides."""
        said = cast("Iterable[c.SetConfig]", self.messages["set-config"].values())
        return {m.setting: m for m in said if not _wrong(m.setting, m.value)}

    @property
    def wrong_configs(self) -> Mapping[str, str]:
        """The overrides without effect, each with the reason."""
        said = cast("Iterable[c.SetConfig]", self.messages["set-config"].values())
        return {m.setting: why for m in said if (why := _wrong(m.setting, m.value))}

    @property
    def overrides(self) -> dict[str, Any]:
        """The overrides that workers use. During a live run, settings that change only between runs have the value that is stored in the
        run.
        """
        said = {name: config.value for name, config in self.configs.items()}
        if self.run is None or self.run.state not in c.LIVE:
            return said
        return {name: value for name, value in said.items() if find(name).kind == DYNAMIC} | dict(self.run.overrides)

    @property
    def config_offset(self) -> int:
        """The offset of the newest override; -1 without any."""
        return max((self.at["set-config", key][0] for key in self.messages["set-config"]), default=-1)

    @property
    def changelogs(self) -> Mapping[str, int]:
        return {m.task: m.partition for m in cast("Iterable[c.SetChangelog]", self.messages["set-changelog"].values())}

    def changelog(self, task: str) -> int | None:
        """The partition of this task's log; None if it has none yet."""
        found = cast("c.SetChangelog | None", self.messages["set-changelog"].get((task,)))
        return None if found is None else found.partition

    def request(self, uuid: str) -> c.SetRequest | None:
        return cast("c.SetRequest | None", self.messages["set-request"].get((uuid,)))

    def answer(self, uuid: str) -> c.SetAnswer | None:
        return cast("c.SetAnswer | None", self.messages["set-answer"].get((uuid,)))

    # ------------------------------------------------------------------------------------------------------ incarnations

    def fence(self, processor: str) -> str | None:
        """The highest fenced incarnation of this processor."""
        found = cast("c.SetFence | None", self.messages["set-fence"].get((processor,)))
        return None if found is None else found.incarnation

    def fenced(self, processor: str, incarnation: str) -> bool:
        """Whether this incarnation is fenced, so that it can write no more."""
        fence = self.fence(processor)
        return fence is not None and order(incarnation) <= order(fence)

    def processors(self) -> tuple[str, ...]:
        """Every processor with a recorded incarnation."""
        return tuple(sorted(self._recorded))

    def incarnations(self, processor: str) -> list[c.SetProcessor]:
        """The recorded incarnations that are not fenced, oldest first."""
        workers = self._recorded.get(processor, _NOTHING)
        return sorted(
            (worker for worker in workers.values() if not self.fenced(processor, worker.incarnation)),
            key=lambda worker: order(worker.incarnation),
        )

    def recorded(self, processor: str) -> Mapping[str, c.SetProcessor]:
        """All recorded incarnations of a processor, including late messages of zombies."""
        return self._recorded.get(processor, _NOTHING)

    def newest(self, processor: str) -> c.SetProcessor | None:
        """The newest recorded incarnation that is not fenced."""
        workers = self.incarnations(processor)
        return workers[-1] if workers else None

    def next_counter(self, processor: str) -> int:
        """The counter of this processor's next incarnation: higher than all that were recorded, granted or fenced.

        It is also higher than all deleted ones, of any processor, so a zombie whose records were deleted never comes after its successor.
        """
        seen = list(self.recorded(processor))
        seen += [m.incarnation for m in (self.member(processor),) if m is not None]
        seen += [f for f in (self.fence(processor), self.fence(c.FORGOTTEN)) if f is not None]
        return _next(order(incarnation)[0] for incarnation in seen)

    def member(self, processor: str) -> c.SetMember | None:
        """The incarnation that the leader named last. It may be fenced or have left since."""
        return cast("c.SetMember | None", self.messages["set-member"].get((processor,)))

    def members(self) -> Iterator[c.SetMember]:
        """The members that may be granted tasks: named, not fenced, neither leaving nor gone, and not dismissed, unless they work on until
        others have prepared their tasks."""
        for member in cast("Iterable[c.SetMember]", self.messages["set-member"].values()):
            worker = self.recorded(member.processor).get(member.incarnation)
            if worker is None or worker.state != c.ProcessorState.JOINED or member.out:
                continue
            if not self.fenced(member.processor, member.incarnation):
                yield member

    # ------------------------------------------------------------------------------------------------------------ grants

    def grant(self, task: str) -> c.SetGrant | None:
        return cast("c.SetGrant | None", self.messages["set-grant"].get((task,)))

    def grants(self) -> Iterable[c.SetGrant]:
        return cast("Iterable[c.SetGrant]", self.messages["set-grant"].values())

    def task_states(self, task: str) -> Mapping[int, c.SetTaskState]:
        """All reported states of this task, including those of superseded grants."""
        return self._states.get(task, _NOTHING)

    def task_state(self, task: str) -> c.SetTaskState | None:
        """The last state that the holder of the current grant reported."""
        grant = self.grant(task)
        return None if grant is None else self.task_states(task).get(grant.grant)

    def letters(self, task: str) -> dict[int, c.SetLetters]:
        """What the holders of this task have said of their letters, by grant."""
        said = cast("Iterable[c.SetLetters]", self.messages["set-letters"].values())
        return {one.grant: one for one in said if one.task == task}

    def released(self, task: str) -> bool:
        """Whether its holder has released the task, and no one else was granted it yet."""
        grant = self.grant(task)
        said = None if grant is None else self.task_states(task).get(grant.grant)
        return said is not None and said.state == TaskState.RELEASED

    def held(self, task: str) -> c.SetGrant | None:
        """The grant under which the task may run now: the last one, unless it was released or its holder fenced."""
        grant = self.grant(task)
        if grant is None or self.fenced(grant.processor, grant.incarnation):
            return None
        return None if self.released(task) else grant

    def next_grant(self, task: str) -> int:
        """The next grant number: higher than any known for this task, even if its grant cannot be read."""
        grant = self.grant(task)
        return _next((0 if grant is None else grant.grant, *self.task_states(task)))

    def says(self, task: str) -> str:
        """The state that the holder of the live grant reports; empty without such a grant or report."""
        grant = self.held(task)
        said = None if grant is None else self.task_states(task).get(grant.grant)
        return "" if said is None else said.state

    def former(self, placed: Mapping[str, str]) -> dict[str, Former]:
        """Where the tasks ran before, of those that were granted to where they are placed."""
        return {
            one.task: Former(one.last_location, self.at["set-grant", (one.task,)][0])
            for one in self.grants()
            if one.last_location and placed.get(one.task) == one.processor
        }

    def location(self, task: str) -> str | None:
        """Where the task last ran, if known."""
        grant = self.grant(task)
        if grant is None:
            return None
        said = self.task_states(task).get(grant.grant)
        if said is not None and not (said.state == TaskState.RELEASED and said.why == NEVER_RAN):
            worker = self.recorded(grant.processor).get(grant.incarnation)
            member = self.member(grant.processor)
            if worker is not None:
                return worker.location
            if member is not None:
                return member.location
        return grant.last_location or None

    def standby(self, task: str) -> str | None:
        """Who follows the log of the task all the time; None if no one does, as while the run does not run."""
        run, model = self.run, self.model
        if (
            run is None
            or model is None
            or run.state != c.RunState.RUNNING
            or not model.is_of(run.run_id, run.deployment)
        ):
            return None
        return model.standby.get(task)

    def failed(self) -> dict[str, str]:
        """The tasks that have given up, with the reason."""
        found: dict[str, str] = {}
        for grant in self.grants():
            said = self.task_states(grant.task).get(grant.grant)
            if said is not None and said.state == TaskState.FAILED and self.held(grant.task) is not None:
                found[grant.task] = said.why
        return dict(sorted(found.items()))

    # ---------------------------------------------------------------------------------------------------------- requests

    def open_requests(self) -> list[c.SetRequest]:
        """The requests without a final answer, in the order in which they were written."""
        waiting: list[c.SetRequest] = []
        for request in cast("Iterable[c.SetRequest]", self.messages["set-request"].values()):
            answer = self.answer(request.uuid)
            if answer is None or answer.state not in FINAL:
                waiting.append(request)
        return sorted(waiting, key=lambda request: self.at["set-request", (request.uuid,)][0])

    # -------------------------------------------------------------------------------------------------------------- run

    @property
    def live(self) -> bool:
        """Whether there is a run that is not closed."""
        return self.run is not None and self.run.state in c.LIVE

    def run_view(self) -> RunView | None:
        """What a task must know about the run."""
        run, model = self.run, self.model
        if run is None:
            return None
        return RunView(
            run_id=run.run_id,
            job_uuid=run.job_uuid,
            draining=run.drain,
            paused_job=run.paused_job,
            paused_streams=run.paused_streams,
            producers=_NOTHING if model is None else model.producers,
            drain_upto=run.drain_upto,
            goes_on=run.goes_on,
            reopens=run.reopens,
            bounded=bool(run.untils),
        )


def _next(seen: Iterable[int]) -> int:
    """The next number, within the limit for numbers."""
    return min(1 + max(seen, default=0), c.MAX_COUNT - 1)


def _place(into: dict[str, dict[Any, Any]], key: tuple[Any, ...], message: Any) -> None:
    """Store the message by its first key part as well, so that a query need not scan all messages."""
    first, second = key
    if message is not None:
        into.setdefault(first, {})[second] = message
    elif first in into:
        into[first].pop(second, None)
        if not into[first]:
            del into[first]
