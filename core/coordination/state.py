"""The job state: what the coordinator stream comes to, and the questions that are asked of it.

`apply` keeps the last message of each key and judges nothing. Whether something is *current* (a grant, an incarnation, an answer)
is asked of the finished map. That is why a late message of a zombie changes no answer, and why folding the compacted stream gives
the same state as folding all of it.

Promises:

- `apply` never raises; what could not be read is counted, and kept by offset for people (the last thousand);
- what cannot be read is skipped: the last message of its key that could be read stands, and the key is named in `damaged` until
  somebody has written it again (compaction takes what stood there: whoever owns the key must say it again before). So is the deletion of
  a key that nobody may delete;
- an override that is none (no such setting, no such value) is skipped likewise, and named in `wrong_configs`;
- the same messages per key, in the same order, give equal states.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any, cast

from ..graph.model import JobModel
from ..names import incarnation_order
from ..orders import RunView, TaskState
from ..settings import DYNAMIC, find, override_problem
from . import messages as c

PROBLEMS_KEPT = 1000
FINAL = frozenset({c.AnswerState.DONE, c.AnswerState.REFUSED, c.AnswerState.FAILED})
"""The states of an answer after which none follows."""
NEVER_RAN = "never ran"
"""Why a grant was released that its holder never used: its holder's location says nothing about the task's store."""

_NOTHING: Mapping[Any, Any] = MappingProxyType({})

order = lru_cache(maxsize=10_000)(incarnation_order)
"""What the incarnations of one processor are compared by."""


@lru_cache(maxsize=1000, typed=True)
def _wrong(setting: str, value: Any) -> str:
    """Why this override counts for nothing; empty if it counts. What is immutable may stand since before the first run."""
    return override_problem(setting, value, ran=False)


class JobState:
    """The last message of each key, by type, and what that means.

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
        """Offset → what could not be read there."""
        self.damaged: dict[c.Key, int] = {}
        """Keys whose last message was skipped → its offset."""
        self._states: dict[str, dict[int, c.SetTaskState]] = {}
        self._lives: dict[str, dict[str, c.SetProcessor]] = {}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, JobState) and self.messages == other.messages and self.at == other.at

    __hash__ = None  # type: ignore[assignment]

    # ------------------------------------------------------------------------------------------------------------- fold

    def apply(self, entry: c.Entry) -> None:
        """Take one entry: the last message of its key wins, whatever it says, if it can be read."""
        self.position = max(self.position, entry.offset + 1)
        problem, message = entry.problem, entry.message
        if not problem and message is None and entry.key is not None and entry.key[0] in c.FOR_EVER:
            problem = f"{entry.key[0]} was deleted, which is not allowed; the previous message stays valid"
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
            self.messages[kind][key] = message
            self.at[entry.key] = (entry.offset, entry.append_ms)
        if kind == "set-task-state":
            _place(self._states, key, cast("c.SetTaskState | None", message))
        elif kind == "set-processor":
            _place(self._lives, key, cast("c.SetProcessor | None", message))

    def fold(self, entries: Iterable[c.Entry]) -> JobState:
        """Take many entries; returns itself."""
        for entry in entries:
            self.apply(entry)
        return self

    def copy(self) -> JobState:
        """A second state, equal and independent: to see what a decision would lead to."""
        other = JobState()
        other.messages = {kind: dict(found) for kind, found in self.messages.items()}
        other.at = dict(self.at)
        other.position = self.position
        other.damaged = dict(self.damaged)
        other._states = {task: dict(said) for task, said in self._states.items()}
        other._lives = {processor: dict(lives) for processor, lives in self._lives.items()}
        return other

    # ------------------------------------------------------------------------------------------------------- single keys

    @property
    def run(self) -> c.SetRun | None:
        return cast("c.SetRun | None", self.messages["set-run"].get(()))

    def other_job(self, job: str) -> str:
        """The job whose stream this is, as whoever leads it has said, if it is another one; else nothing.

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
        """The overrides that count."""
        said = cast("Iterable[c.SetConfig]", self.messages["set-config"].values())
        return {m.setting: m for m in said if not _wrong(m.setting, m.value)}

    @property
    def wrong_configs(self) -> Mapping[str, str]:
        """The overrides that count for nothing, and why."""
        said = cast("Iterable[c.SetConfig]", self.messages["set-config"].values())
        return {m.setting: why for m in said if (why := _wrong(m.setting, m.value))}

    @property
    def overrides(self) -> dict[str, Any]:
        """What workers go by. In a live run those of settings that change between runs only are the run's, whatever was asked since."""
        said = {name: config.value for name, config in self.configs.items()}
        if self.run is None or self.run.state not in c.LIVE:
            return said
        return {name: value for name, value in said.items() if find(name).kind == DYNAMIC} | dict(self.run.overrides)

    @property
    def config_offset(self) -> int:
        """Offset of the newest override that stands; -1 without any."""
        return max((self.at["set-config", key][0] for key in self.messages["set-config"]), default=-1)

    @property
    def changelogs(self) -> Mapping[str, int]:
        return {m.task: m.partition for m in cast("Iterable[c.SetChangelog]", self.messages["set-changelog"].values())}

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
        """Whether this incarnation can write nothing any more, whatever it believes."""
        fence = self.fence(processor)
        return fence is not None and order(incarnation) <= order(fence)

    def processors(self) -> tuple[str, ...]:
        """Every processor of which something is recorded."""
        return tuple(sorted(self._lives))

    def incarnations(self, processor: str) -> list[c.SetProcessor]:
        """The recorded incarnations that are not fenced, oldest first."""
        lives = self._lives.get(processor, _NOTHING)
        return sorted(
            (life for life in lives.values() if not self.fenced(processor, life.incarnation)),
            key=lambda life: order(life.incarnation),
        )

    def recorded(self, processor: str) -> Mapping[str, c.SetProcessor]:
        """All recorded incarnations of a processor, late messages of zombies included."""
        return self._lives.get(processor, _NOTHING)

    def newest(self, processor: str) -> c.SetProcessor | None:
        """The newest incarnation that is recorded and not fenced."""
        lives = self.incarnations(processor)
        return lives[-1] if lives else None

    def next_counter(self, processor: str) -> int:
        """The counter of this processor's next incarnation: above everything that was ever recorded, granted or fenced of it.

        Above what was forgotten of anybody, too: so a zombie that nobody remembers never comes behind its successor.
        """
        seen = list(self.recorded(processor))
        seen += [m.incarnation for m in (self.member(processor),) if m is not None]
        seen += [f for f in (self.fence(processor), self.fence(c.FORGOTTEN)) if f is not None]
        return _next(order(incarnation)[0] for incarnation in seen)

    def member(self, processor: str) -> c.SetMember | None:
        """The incarnation that counts, as the leader last named it (it may be fenced, or have left, by now)."""
        return cast("c.SetMember | None", self.messages["set-member"].get((processor,)))

    def members(self) -> Iterator[c.SetMember]:
        """Those that may be granted something: named, not fenced, not dismissed, and neither leaving nor gone."""
        for member in cast("Iterable[c.SetMember]", self.messages["set-member"].values()):
            life = self.recorded(member.processor).get(member.incarnation)
            if life is None or life.state != c.ProcessorState.JOINED or member.dismissed:
                continue
            if not self.fenced(member.processor, member.incarnation):
                yield member

    # ------------------------------------------------------------------------------------------------------------ grants

    def grant(self, task: str) -> c.SetGrant | None:
        return cast("c.SetGrant | None", self.messages["set-grant"].get((task,)))

    def grants(self) -> Iterable[c.SetGrant]:
        return cast("Iterable[c.SetGrant]", self.messages["set-grant"].values())

    def task_states(self, task: str) -> Mapping[int, c.SetTaskState]:
        """Everything that was said about grants of this task, superseded ones included."""
        return self._states.get(task, _NOTHING)

    def task_state(self, task: str) -> c.SetTaskState | None:
        """What the holder of the current grant last said of it."""
        grant = self.grant(task)
        return None if grant is None else self.task_states(task).get(grant.grant)

    def held(self, task: str) -> c.SetGrant | None:
        """The grant under which somebody may run the task now: the last one, unless it was released or its holder fenced."""
        grant = self.grant(task)
        if grant is None or self.fenced(grant.processor, grant.incarnation):
            return None
        said = self.task_states(task).get(grant.grant)
        return None if said is not None and said.state == TaskState.RELEASED else grant

    def next_grant(self, task: str) -> int:
        """Above every number that was ever heard of for this task, also where its grant could not be read any more."""
        grant = self.grant(task)
        return _next((0 if grant is None else grant.grant, *self.task_states(task)))

    def says(self, task: str) -> str:
        """The state that the holder of a live grant reports; empty when there is no such grant or it said nothing yet."""
        grant = self.held(task)
        said = None if grant is None else self.task_states(task).get(grant.grant)
        return "" if said is None else said.state

    def location(self, task: str) -> str | None:
        """Where the task last ran, as far as is known."""
        grant = self.grant(task)
        if grant is None:
            return None
        said = self.task_states(task).get(grant.grant)
        if said is not None and not (said.state == TaskState.RELEASED and said.why == NEVER_RAN):
            life = self.recorded(grant.processor).get(grant.incarnation)
            member = self.member(grant.processor)
            if life is not None:
                return life.location
            if member is not None:
                return member.location
        return grant.last_location or None

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
        """The requests that have no final answer yet, in the order in which they were written."""
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
        """What a task has to know of the run."""
        run, model = self.run, self.model
        if run is None:
            return None
        return RunView(
            run_id=run.run_id,
            job_uuid=run.job_uuid,
            draining=run.drain,
            paused_job=run.paused_job and run.drain is None,
            paused_streams=run.paused_streams if run.drain is None else frozenset(),
            producers=_NOTHING if model is None else model.producers,
            drain_upto=run.drain_upto,
            goes_on=run.goes_on,
            bounded=bool(run.untils),
        )


def _next(seen: Iterable[int]) -> int:
    """The number behind all of these, as far as numbers go."""
    return min(1 + max(seen, default=0), c.MAX_COUNT - 1)


def _place(into: dict[str, dict[Any, Any]], key: tuple[Any, ...], message: Any) -> None:
    """The same messages by their first name, so that a question need not look at all of them."""
    first, second = key
    if message is not None:
        into.setdefault(first, {})[second] = message
    elif first in into:
        into[first].pop(second, None)
        if not into[first]:
            del into[first]
