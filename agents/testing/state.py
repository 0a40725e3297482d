"""The job state of a test driver, as it would be folded from a coordinator stream.

The driver's only worker leads and holds every task. The leader's rules judge requests; the driver carries them out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from ...core.coordination import messages as c
from ...core.coordination import requests as r
from ...core.coordination.leader.cleanup import cleanup
from ...core.coordination.leader.draft import Draft, Memory
from ...core.coordination.leader.plan import LeaderConfig, Plan
from ...core.coordination.leader.requests import requests
from ...core.coordination.state import JobState
from ...core.errors import HeadgateError
from ...core.graph.graph import Graph
from ...core.graph.model import JobModel
from ...core.machine import Now
from ...core.orders import Report, TaskReported
from ...core.settings import DYNAMIC, find

ID = "driver"
UUID = "00000000-0000-4000-8000-000000000000"
INCARNATION = "000001-driver"
LOCATION = "memory"
DOES = (r.SET_CONFIG, r.UNSET_CONFIG, r.PAUSE, r.RESUME, r.DRAIN, r.WITHDRAW)
"""The requests that a driver accepts. All others concern workers that come and go."""


class DriverError(HeadgateError):
    """The test driver cannot do this."""


class MemoryJob:
    """The folded messages, without a stream."""

    def __init__(self, job: str, graph: Graph, model: JobModel, now: Callable[[], Now]) -> None:
        self.state = JobState()
        self._now = now
        self._config = LeaderConfig(ID, ID, UUID, Plan(graph=graph), job=job)
        self._memory = Memory()
        self._say(
            c.SetProcessor(ID, INCARNATION, ID, LOCATION, c.ProcessorState.JOINED),
            c.SetMember(ID, INCARNATION, LOCATION),
            c.SetLeader(1, ID, ID, job),
            c.SetJobModel(model),
        )

    def _say(self, *messages: c.Message) -> None:
        for message in messages:
            self.state.apply(c.Entry(self.state.position, c.key_of(message), message, self._now().wall))

    def begin(self, run_id: str, settings: Mapping[str, Any]) -> None:
        """Begin a run. Settings that only change between runs keep their current overrides."""
        pinned = {name: one.value for name, one in self.state.configs.items() if find(name).kind != DYNAMIC}
        self._say(c.SetRun(run_id, ID, c.RunState.RUNNING, UUID, settings=dict(settings), overrides=pinned))

    def granted(self, task: str, grant: int) -> None:
        """Record a new grant of the task to the worker."""
        self._say(c.SetGrant(task, grant, ID, INCARNATION, self.state.location(task) or ""))

    def reported(self, report: Report) -> None:
        """Record a task's report of its state."""
        if isinstance(report, TaskReported):
            self._say(c.SetTaskState(report.task, report.grant, report.state, report.why))

    def ask(self, request: c.SetRequest) -> None:
        """Let the leader's rules answer a request. Raises `DriverError` if they refuse it."""
        if request.verb not in DOES:
            raise DriverError(f"a test driver has no {request.verb}", remedy=f"it does {', '.join(DOES)}")
        asked = replace(request, uuid=request.uuid or f"request-{self.state.position}", requested_by="test")
        if self.state.request(asked.uuid) not in (None, asked):
            raise DriverError(f"the request '{asked.uuid}' already exists", remedy="use another id")
        if self.state.answer(asked.uuid) is None:
            self._say(asked)
        self._answer()
        answer = self.state.answer(asked.uuid)
        if answer is not None and answer.state in (c.AnswerState.REFUSED, c.AnswerState.FAILED):
            raise DriverError(f"{request.verb} was refused: {answer.why}")

    def _answer(self) -> None:
        draft = Draft(self.state, self._config, self._memory, self._now(), lambda _: "", term=1)
        requests(draft)
        cleanup(draft)
        self.state = draft.state

    def drained(self) -> None:
        """Note that every task has finished: a draining run is now drained."""
        if self.state.run is not None and self.state.run.state == c.RunState.DRAINING:
            self._say(replace(self.state.run, state=c.RunState.DRAINED))
            self._answer()
