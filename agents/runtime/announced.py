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

from functools import partial
from typing import TYPE_CHECKING

from ...core.task.suspects import Mark
from ..port.waiting import in_time
from ..state.marks import fields_of, mark_of

if TYPE_CHECKING:
    from .site import Site

ENOUGH = 5
SAY_S = 5.0


class Announced:
    """What one task says."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._left = 0
        """How many more commits with letters it takes."""
        self._ran = self._said = False
        self.active = False
        """Whether letters are said."""

    def begin(self) -> list[Mark]:
        """The previous owner has died. Returns what is known of its letters, if that is not here."""
        if self._site.marks.complete:
            return []
        self.active, self._left = True, ENOUGH
        return [mark_of(one) for one in self._site.runtime.job.letters_left(self._site.name, self._site.grant)]

    async def letter(self, mark: Mark) -> None:
        """This letter, or this row of it, runs next."""
        if self.active:
            self._ran = True
            await self._say([mark, *self._site.suspects.marks])

    def changed(self) -> None:
        """Less is suspected than before."""
        if self._said:
            self._site.runtime.life.spawn(
                partial(self._say, list(self._site.suspects.marks)), f"{self._site.name}: letters"
            )

    def survived(self) -> None:
        """The task is dropped or released, and the process goes on: no letter has ended it."""
        if self.active:
            self.changed()

    def committed(self) -> None:
        """A commit is durable."""
        if not (self.active and self._ran):
            return
        self._ran = False
        self._left -= 1
        if self._left <= 0 and not self._site.suspects.marks:
            self.active = False
            self.changed()

    async def _say(self, marks: list[Mark]) -> None:
        site, runtime = self._site, self._site.runtime
        self._said = True
        try:
            said = runtime.job.say_letters(site.name, site.grant, [fields_of(one) for one in marks])
            await in_time(runtime.port.clock, SAY_S, said)
        except Exception as error:  # noqa: BLE001 - without it, only what is known elsewhere is less
            site.log.warning(
                "other locations do not hear of a letter under way", why=str(error) or type(error).__name__
            )
