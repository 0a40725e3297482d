"""Says in the coordinator stream which letter is about to run, where a mark on this machine's disk would not be enough.

The next process at this location finds the marks of the one before it. A process at another location does not: it only knows that the
previous owner of a task has died. What took that one with it lay behind its last commit. So its successor says each letter before it
runs, until `ENOUGH` commits with letters are durable, and those that are suspected as long as they are, row by row. If it dies, too, its
successor knows which letter that was, wherever it runs.

Promises: what is said is durable before the letter runs, unless the broker does not take it within `SAY_S`. It is withdrawn when it is
over, also by an owner that was fenced or whose incarnation has ended, and that lives: it had lost its network, or a commit. It counts only
for an owner whose predecessor died, or was released before `ENOUGH` commits after such a death. A task whose previous owner has left its
marks here says nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, Protocol

from ...core.coordination.messages import LetterMark
from ...core.task.suspects import Mark
from ..port.port import Clock, Process
from ..port.waiting import in_time
from ..state.marks import fields_of, mark_of

ENOUGH = 5
SAY_S = 5.0


class LetterJob(Protocol):
    """The job, as far as it hears of letters."""

    def letters_left(self, task: str, grant: int) -> Sequence[LetterMark]:
        """What the last owner of a task that has said something of its letters has said, before this grant."""
        ...

    async def say_letters(self, task: str, grant: int, marks: Sequence[LetterMark]) -> None:
        """Say this of the task's letters, so that owners at other locations know it. Returns when it is durable."""
        ...


class Announced:
    """What one task says."""

    def __init__(self, task: str, grant: int, job: LetterJob, life: Process, clock: Clock, log: Any) -> None:
        self._task, self._grant = task, grant
        self._job = job
        self._life = life
        self._clock = clock
        self._log = log
        self._left = 0
        """How many more commits with letters it takes."""
        self._ran = self._said = False
        self.active = False
        """Whether letters are said."""

    def begin(self) -> list[Mark]:
        """The previous owner has died, and its marks are not here. Returns what is known of its letters."""
        self.active, self._left = True, ENOUGH
        return [mark_of(one) for one in self._job.letters_left(self._task, self._grant)]

    async def letter(self, mark: Mark, suspected: Iterable[Mark]) -> None:
        """This letter, or this row of it, runs next, while these are suspected."""
        if self.active:
            self._ran = True
            await self._say([mark, *suspected])

    def changed(self, suspected: Iterable[Mark]) -> None:
        """Less is suspected than before: only these."""
        if self._said:
            self._life.spawn(partial(self._say, list(suspected)), f"{self._task}: letters")

    def survived(self, suspected: Iterable[Mark]) -> None:
        """The task is dropped or released, and the process goes on: no letter has ended it."""
        if self.active:
            self.changed(suspected)

    def committed(self, suspected: Sequence[Mark]) -> None:
        """A commit is durable."""
        if not (self.active and self._ran):
            return
        self._ran = False
        self._left -= 1
        if self._left <= 0 and not suspected:
            self.active = False
            self.changed(suspected)

    async def _say(self, marks: list[Mark]) -> None:
        self._said = True
        try:
            said = self._job.say_letters(self._task, self._grant, [fields_of(one) for one in marks])
            await in_time(self._clock, SAY_S, said)
        except Exception as error:  # noqa: BLE001 - without it, only what is known elsewhere is less
            self._log.warning(
                "other locations do not hear of a letter under way", why=str(error) or type(error).__name__
            )
