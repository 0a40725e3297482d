"""Which tasks a query asks, which of them this worker has, and why one cannot be asked.

Promises: a task is read here only while this worker runs it under the grant that the coordinator stream has for it, restored and not given
up. For every other task it is known which worker to ask, or why no worker can answer now: a key is never taken for absent because its task
could not be asked. The copy of a standby is read only for who allows an older answer, and only if it is no older than that.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ...core.coordination import messages as c
from ...core.coordination.state import JobState
from ...core.errors import DataError, EnvironmentFault, HeadgateError
from ...core.names import StreamPartition, natural
from ...core.orders import TaskState
from ...core.settings import offer
from ..records.kafka.partitioner import Partitioner
from ..state.opening import open_tables
from .committed import CommittedPart, CopiedPart
from .queryable import Queryable, queryables, refused

if TYPE_CHECKING:
    from ..runtime.task.task import TaskActor
    from ..worker.worker import Worker


class TaskUnserved(EnvironmentFault):
    """No worker can answer for a task now. `state`: `moving`, `restoring`, `failed` or `unreachable`."""

    def __init__(self, task: str, state: str, why: str, remedy: str) -> None:
        super().__init__(f"{task} cannot be asked now: {why}", remedy=remedy)
        self.task = task
        self.state = state
        self.why = why


class SeveralTasks(DataError):
    """A key is in more than one task, because the job's own functions have put it there."""

    def __init__(self, table: str, one: str, other: str, remedy: str = "") -> None:
        repartition = "let the job put .repartition(…) before the step that writes it"
        super().__init__(
            f"table {table}: {one} and {other} have a row of the same key, each its own",
            remedy=f"{remedy}, or {repartition}" if remedy else repartition,
        )


class TaskOwner(NamedTuple):
    """The worker that has a task."""

    processor: str
    incarnation: str
    url: str


class QueryParts:
    """The tasks of a job, as one worker sees them."""

    def __init__(self, worker: Worker, heard_ms: Callable[[], int] = lambda: 0) -> None:
        """`heard_ms`: when the coordinator stream was last read to its end."""
        self._worker = worker
        self._heard_ms = heard_ms
        self._tables: dict[str, Queryable] | None = None
        self._places: tuple[Any, dict[str, list[str]]] = None, {}
        self._held: tuple[JobState | None, int, dict[str, c.SetGrant | None]] = None, -1, {}
        """The grants that were asked for, as of a position of the coordinator stream."""

    @property
    def tables(self) -> dict[str, Queryable]:
        """The tables that can be asked."""
        if self._tables is None:
            self._tables = queryables(self._worker.declared)
        return self._tables

    def table(self, name: str) -> Queryable:
        """One of them; raises why it cannot be asked."""
        found = self.tables.get(name)
        if found is None:
            raise refused(self._worker.declared, name)
        return found

    @property
    def job(self) -> JobState:
        """The job, as far as this worker has read its coordinator stream."""
        member = getattr(self._worker.coordination, "member", None)
        return JobState() if member is None else member.view.job

    @property
    def tasks(self) -> list[str]:
        """All tasks of the job, in their order."""
        model = self.job.model
        return sorted(self._worker.actors if model is None else model.tasks, key=natural)

    def known(self, tasks: Collection[str]) -> None:
        """Raise for a task that the job does not have."""
        every = self.tasks
        for task in tasks:
            if task not in every:
                raise HeadgateError(f"there is no task '{task}'", remedy=offer(task, every))

    def places(self, stream: str) -> list[str]:
        """Of each partition of a stream, the task that owns it; empty if that is not known."""
        model = self.job.model
        if model is None:
            return []
        made_for, places = self._places
        if made_for is not model:
            self._places = model, (places := {})
        found = places.get(stream)
        if found is None:
            owners = [model.owners_of(StreamPartition(stream, n)) for n in range(model.streams.get(stream, 0))]
            found = places[stream] = [one[0] for one in owners] if all(owners) else []
        return found

    def has(self, task: str) -> bool:
        """Whether this worker can read a task."""
        return self._actor(task) is not None

    def running(self, task: str) -> TaskActor | None:
        """A task that this worker has, in whatever state it is."""
        return self._worker.actors.get(task)

    def _actor(self, task: str) -> TaskActor | None:
        actor = self._worker.actors.get(task)
        if actor is None or actor.state.tables is None or not actor.machine.readable:
            return None
        grant = self._grant(task)
        return actor if grant is None or (grant.grant, grant.processor) == (actor.grant, self._me) else None

    def _grant(self, task: str) -> c.SetGrant | None:
        """The grant under which a task may run now."""
        job, (known, position, held) = self.job, self._held
        if known is not job or position != job.position:
            self._held = job, job.position, (held := {})
        if task not in held:
            held[task] = job.held(task)
        return held[task]

    @property
    def _me(self) -> str:
        return self._worker.options.processor

    def part(self, task: str, table: Queryable) -> CommittedPart | None:
        """A task's part of a table, to be read at once; None if this worker cannot read the task."""
        actor = self._actor(task)
        if actor is None:
            return None
        if table.copied:
            return self._copy(task, table)
        state = actor.state
        assert state.store is not None, "tables lie in a store"
        owned_ms = self._heard_ms() if state.settled else None
        return CommittedPart(task, state.store, state.table(table.name), table, owned_ms)

    def _copy(self, task: str, table: Queryable) -> CommittedPart | None:
        """This worker's copy, which its task reads."""
        copy = self._worker.runtime.copies.all.get(table.name)
        if copy is None or not copy.ready.is_set() or copy.store is None or copy.table is None:
            return None  # half of a table would say that a key is absent
        return CopiedPart(task, copy.store, copy.table, table, copy.age_ms(self._worker.port.clock.now().mono))

    def followed(self, task: str, table: Queryable, stale_ms: int, now_ms: int) -> CommittedPart:
        """A task's part of a table in the copy that this worker has of it as its standby, to be read at once. Raises `TaskUnserved` if it
        has none, or one that is older than `stale_ms`."""
        follower = self._worker.runtime.followers.all.get(task)
        store = None if follower is None else follower.store
        if store is None:
            raise self._no_copy(task, f"{self._me} has no copy of its state yet")
        tables = open_tables(store, self._worker.declared, clock=lambda: now_ms).tables
        part = CommittedPart(task, store, tables.table(table.name), table, standby=True)
        age_ms = part.at(now_ms).age_ms
        if age_ms > stale_ms:
            known = store.meta.followed_until_ms is not None
            age = f"the copy of its standby {self._me} is {age_ms / 1000:,.1f} s old" if known else ""
            raise self._no_copy(task, age or f"its standby {self._me} has not read its log up yet")
        return part

    def standby(self, task: str) -> TaskOwner | None:
        """The worker that follows a task's log; None if none does, or it serves no pages."""
        job = self.job
        name = job.standby(task)
        worker = None if name is None else job.newest(name)
        if name is None or worker is None or not worker.url:
            return None
        return TaskOwner(name, worker.incarnation, worker.url)

    @staticmethod
    def _no_copy(task: str, why: str) -> TaskUnserved:
        return TaskUnserved(task, "moving", why, "ask again, or allow an older answer with stale=")

    def owner(self, task: str) -> TaskOwner:
        """The other worker that has a task. Raises `TaskUnserved` if none has, or it cannot be asked."""
        job = self.job
        grant = job.held(task)
        if grant is None or grant.processor == self._me or job.says(task) == TaskState.FAILED:
            raise self.unserved(task)
        worker = job.recorded(grant.processor).get(grant.incarnation)
        if worker is None or not worker.url:
            raise TaskUnserved(
                task, "unreachable", f"its worker {grant.processor} serves no pages", "run it with `headgate run`"
            )
        return TaskOwner(grant.processor, grant.incarnation, worker.url)

    def unserved(self, task: str, table: Queryable | None = None) -> TaskUnserved:
        """Why this worker cannot answer for a task that no other one has, or for its own copy of a table."""
        job, actor = self.job, self._worker.actors.get(task)
        failed = job.failed().get(task)
        if failed is not None:
            remedy = "correct the cause and restart the task's worker; `headgate status JOB --why` says more"
            return TaskUnserved(task, "failed", f"it has failed ({failed})", remedy)
        wait = "ask again: it is answered for as soon as a worker runs it; `headgate status JOB` shows its progress"
        if actor is not None and actor.state.tables is None and actor.machine.phase == TaskState.RESTORING:
            return TaskUnserved(task, "restoring", "it restores its state", wait)
        if table is not None and table.copied and self.has(task):
            return TaskUnserved(task, "restoring", self._worker.runtime.copies.waits or "its copy is opened", wait)
        if job.held(task) is None:
            return TaskUnserved(task, "moving", "no worker has it", wait)
        return TaskUnserved(task, "moving", "it is between two workers, or about to start", wait)


def spread(parts: QueryParts, table: Queryable, keys: Sequence[bytes], only: Collection[str]) -> dict[str, list[int]]:
    """The tasks to ask, each with the numbers of the keys that it is asked for. `only`: the tasks that were named, if any were."""
    everything = list(range(len(keys)))
    if only:
        parts.known(only)
    if table.broadcast:
        every = sorted(only) if only else parts.tasks
        return {next(filter(parts.has, every), every[0]): everything} if every else {}
    places = parts.places(table.stream) if table.stream else []
    if not places or len(only) == 1:
        return dict.fromkeys(only or parts.tasks, everything)
    found: dict[str, list[int]] = {}
    for task, numbers in zip(places, Partitioner(len(places)).split(list(keys)), strict=True):
        if numbers and (not only or task in only):
            found.setdefault(task, []).extend(numbers)
    return found
