"""Runs a chunk that was under way when an earlier process of its task ended: its rows one at a time, each marked, and none that is judged.

The error policies decide about a judged row, as about one that fails: the nearest one wins, and `fail` fails the task by name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...core.errors import HeadgateError
from ...core.task.suspects import WHOLE, Mark, next_death
from ..operators.pipeline import Pipeline
from ..operators.trouble import Failed, Recovered, judged
from ..records.chunks import Chunk
from .site import Site
from .solitude import Alone


class TookItsWorker(HeadgateError):
    """A letter has ended its worker each time that it ran."""


def told_of(mark: Mark) -> str:
    """What a judged letter has done, for people.

    >>> told_of(Mark(what="watermark of in", deaths=2))
    'watermark of in: 2 workers have ended in the middle of it (killed, out of memory, or blocked for longer than stall.timeout)'
    """
    what = mark.what or (f"offsets {mark.first} to {mark.upto - 1}" if mark.row == WHOLE else "this record")
    ends = "killed, out of memory, or blocked for longer than stall.timeout"
    return f"{what}: {mark.deaths} workers have ended in the middle of it ({ends})"


def mark_of(chunk: Chunk, topic: str) -> Mark:
    """The mark of a whole chunk, of the topic with this id."""
    first = chunk.columns.offset(0) if len(chunk) else chunk.next_position - 1
    return Mark(chunk.at, first, chunk.next_position, topic=topic)


class Suspected:
    """One run of such a chunk."""

    def __init__(self, site: Site, chunk: Chunk, before: Sequence[Mark], alone: Alone) -> None:
        """`before`: the marks that concern it."""
        self._site = site
        self._chunk = chunk
        self._before = before
        self._alone = alone

    async def run(self, pipeline: Pipeline, drop: Callable[[], None]) -> Recovered | Failed:
        """Run it. `drop` discards what it has changed in tables."""
        for mark in self._before:
            if mark.judged and not mark.alone:
                why = f"{self._chunk.at} {told_of(mark)}"
                return Failed(why, TookItsWorker(why), final=True)
        bad = {index: TookItsWorker(told_of(mark)) for mark in self._before if (index := self._index(mark)) is not None}
        return await judged(pipeline, self._chunk, bad, each=self._begins, drop=drop)

    def _index(self, mark: Mark) -> int | None:
        """The row of the chunk that must not run; None if the mark judges none of it."""
        if not (mark.judged and mark.alone):
            return None
        offset = self._chunk.columns.offset
        here = [index for index in range(len(self._chunk)) if offset(index) == mark.first]
        return here[mark.row] if mark.row < len(here) else None

    async def _begins(self, index: int) -> None:
        """A row begins, or, with `WHOLE`, all of them have run."""
        topic = self._site.topic_of(self._chunk.at)
        whole = mark_of(self._chunk, topic)
        if index == WHOLE:
            await self._marked([one for one in self._before if not one.alone], whole)
            return
        offset = self._chunk.columns.offset(index)
        row = index
        while row > 0 and self._chunk.columns.offset(row - 1) == offset:
            row -= 1
        mark = Mark(self._chunk.at, offset, offset + 1, index - row, topic=topic)
        known = [one for one in self._before if one.meets(self._chunk.at, offset, offset + 1)]
        known = [one for one in known if not one.alone or one.row == mark.row]
        await self._marked(known, mark)

    async def _marked(self, before: Sequence[Mark], mark: Mark) -> None:
        await self._site.announced.letter(next_death(before, mark, alone=self._alone.holds))
        self._alone.begins(lambda alone: self._site.marks.begin(next_death(before, mark, alone=alone)))
