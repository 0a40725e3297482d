"""Whether a task of a bounded run only waits for other tasks: everything that it can read is read, done and durable.

If a task of such a run has failed, the run stops when nothing else can move. The leader knows that from these reports: each task says once
that it is still, and corrects that when it moves again.
"""

from __future__ import annotations

from ..orders import RunView, TaskReported, TaskState
from .inputs import Inputs
from .ledger import Ledger
from .letters import Letters
from .protocol import SendReport, TaskInstruction
from .time import Pace
from .work import Work


class Stillness:
    """What one task has said of it."""

    def __init__(self, task: str, inputs: Inputs, ledger: Ledger, work: Work, letters: Letters, pace: Pace) -> None:
        self._task = task
        self._inputs = inputs
        self._ledger = ledger
        self._work = work
        self._letters = letters
        self._pace = pace
        self._said = False
        """It has reported that it only waits for others."""

    def look(self, run: RunView, grant: int, state: str) -> list[TaskInstruction]:
        """A partition is read to its end: report that the task is still, if it is and has not said so."""
        busy = not self._work.idle or self._letters.work or self._pace.news
        still = run.bounded and state == TaskState.RUNNING and not busy and self._ledger.clean
        if not still or not self._inputs.waits_for_others():
            return self.moves_again(grant)
        if self._said:
            return []
        self._said = True
        return [SendReport(TaskReported(self._task, grant, TaskState.RUNNING, still=True))]

    def moves_again(self, grant: int) -> list[TaskInstruction]:
        """The task moves again: correct an earlier report that it does not."""
        if not self._said:
            return []
        self._said = False
        return [SendReport(TaskReported(self._task, grant, TaskState.RUNNING))]
