"""Which logs a worker follows without a grant, so that it can take over tasks with little to replay.

It follows the tasks that the model prepares here, and those whose standby it is. It goes on until the task was granted to it and has taken
over the store, or the model wants the task elsewhere. Promises:

- What is followed is derived from the model each time. So a preparation that is withdrawn, put off, or of a run that is over, is not
  followed.
- The store of a task that is prepared elsewhere is written out before it is released (`WriteOut`), once for each preparation.
- A task that runs here, or is not released yet, is not followed: its own store is the one to go on with.
- Near the end is a statement about one grant of the holder. It is withdrawn with the preparation.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ...graph.model import Preparation
from ..messages import RunState
from ..state import JobState
from .protocol import Follow, Followed, FollowedLog, WriteOut

STANDBY = 0
"""Stands for the grant of the holder where a log is followed whoever that is."""


class FollowedLogs:
    """What this worker follows, and how near it is."""

    def __init__(self, processor: str) -> None:
        self.processor = processor
        self.logs: Mapping[str, FollowedLog] = {}
        self._near: dict[str, int] = {}
        self._going: Mapping[str, Preparation] = {}
        """The tasks that run here and are prepared elsewhere."""

    def followed(self, event: Followed) -> None:
        """Note that a store lacks little."""
        found = self.logs.get(event.task)
        if found is not None and found.grant == event.grant:
            self._near[event.task] = event.grant

    def orders(self, job: JobState, going: str, here: Collection[str] = ()) -> list[Follow]:
        """What to follow now, if that has changed. `going`: why this worker leaves, if so. `here`: the tasks that it has not released."""
        logs = {} if going else self._logs(job, here)
        if logs == self.logs:
            return []
        self.logs = logs
        self._near = {task: grant for task, grant in self._near.items() if task in logs and logs[task].grant == grant}
        return [Follow(logs)]

    def written_out(self, job: JobState, here: Collection[str]) -> list[WriteOut]:
        """The tasks of which it is new that they are about to go from here."""
        ahead = {} if job.model is None else {t: one for t, one in job.model.preparing.items() if one.under_way}
        going = {task: one for task, one in ahead.items() if task in here and one.processor != self.processor}
        new = tuple(task for task in sorted(going) if self._going.get(task) != going[task])
        self._going = going
        return [WriteOut(new)] if new else []

    def _logs(self, job: JobState, here: Collection[str]) -> dict[str, FollowedLog]:
        run, model = job.run, job.model
        if run is None or model is None or run.state != RunState.RUNNING or not model.is_of(run.run_id, run.deployment):
            return {}
        found: dict[str, FollowedLog] = {}
        some = {*model.preparing, *model.standby, *self.logs}
        for task in model.tasks if some else ():
            if task not in some:
                continue
            ahead, partition, before = model.preparing.get(task), job.changelog(task), self.logs.get(task)
            if before is not None and model.wanted.get(task) == self.processor:
                found[task] = before
            elif partition is None or task in here:
                continue
            elif ahead is not None and ahead.under_way and ahead.processor == self.processor:
                found[task] = FollowedLog(ahead.grant, partition, run.job_uuid)
            elif model.standby.get(task) == self.processor:
                found[task] = FollowedLog(STANDBY, partition, run.job_uuid)
        return found

    def prepared(self, job: JobState) -> dict[str, int]:
        """The tasks that are prepared here, and of which little is missing, each with the grant of its holder."""
        model = job.model
        if model is None:
            return {}
        near = sorted((task, grant) for task, grant in self._near.items() if grant != STANDBY)
        return {task: grant for task, grant in near if model.preparing.get(task) == Preparation(self.processor, grant)}
