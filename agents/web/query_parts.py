"""Which tasks a query asks, which of them this worker has, and why one cannot be asked.

Promises: a task is read here only while this worker runs it under the grant that the coordinator stream has for it, restored and not given
up. For every other task it is known which worker to ask, or why no worker can answer now: a key is never taken for absent because its task
could not be asked.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ...core.coordination.state import JobState
from ...core.errors import EnvironmentFault, HeadgateError
from ...core.names import StreamPartition, natural
from ...core.orders import RESTING, WORKING, TaskState
from ...core.settings import offer
from ..queries.committed import CommittedPart
from ..queries.queryable import Queryable, queryables, refused
from ..records.kafka.partitioner import Partitioner, partition_of

if TYPE_CHECKING:
    from ..runtime.task.task import TaskActor
    from ..worker.worker import Worker

READABLE = frozenset((*WORKING, *RESTING))


class TaskUnserved(EnvironmentFault):
    """No worker can answer for a task now. `state`: `moving`, `restoring`, `failed` or `unreachable`."""

    def __init__(self, task: str, state: str, why: str, remedy: str) -> None:
        super().__init__(f"{task} cannot be asked now: {why}", remedy=remedy)
        self.task = task
        self.state = state
        self.why = why


class TaskOwner(NamedTuple):
    """The worker that has a task."""

    processor: str
    incarnation: str
    url: str


class QueryParts:
    """The tasks of a job, as one worker sees them."""

    def __init__(self, worker: Worker, heard_ms: Callable[[], int]) -> None:
        """`heard_ms`: when the coordinator stream was last read to its end."""
        self._worker = worker
        self._heard_ms = heard_ms
        self._tables: dict[str, Queryable] | None = None
        self._places: tuple[Any, dict[str, list[str]]] = None, {}

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

    def task_of(self, table: Queryable, key: bytes) -> str | None:
        """The one task that may have a key; None if that is not known."""
        places = self.places(table.stream) if table.stream else []
        return places[partition_of(key, len(places))] if places else None

    def has(self, task: str) -> bool:
        """Whether this worker can read a task."""
        return self._actor(task) is not None

    def _actor(self, task: str) -> TaskActor | None:
        actor = self._worker.actors.get(task)
        if actor is None or actor.state.tables is None or actor.machine.phase not in READABLE:
            return None
        grant = self.job.held(task)
        return actor if grant is None or (grant.grant, grant.processor) == (actor.grant, self._me) else None

    @property
    def _me(self) -> str:
        return self._worker.options.processor

    def part(self, task: str, table: Queryable) -> CommittedPart | None:
        """A task's part of a table, to be read at once; None if this worker cannot read the task."""
        actor = self._actor(task)
        if actor is None:
            return None
        state = actor.state
        assert state.store is not None, "tables lie in a store"
        owned_ms = self._heard_ms() if state.settled else None
        return CommittedPart(task, state.store, state.table(table.name), table, owned_ms)

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

    def unserved(self, task: str) -> TaskUnserved:
        """Why this worker cannot answer for a task that no other one has."""
        job, actor = self.job, self._worker.actors.get(task)
        failed = job.failed().get(task)
        if failed is not None:
            remedy = "correct the cause and restart the task's worker; `headgate status JOB --why` says more"
            return TaskUnserved(task, "failed", f"it has failed ({failed})", remedy)
        wait = "ask again: it is answered for as soon as a worker runs it; `headgate status JOB` shows its progress"
        if actor is not None and actor.state.tables is None and actor.machine.phase == TaskState.RESTORING:
            return TaskUnserved(task, "restoring", "it restores its state", wait)
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
