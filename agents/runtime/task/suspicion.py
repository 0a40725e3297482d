"""Which letters of a task are suspected of taking their worker with them, and how they run.

Each letter is marked before it begins, on this machine's disk and, where that is not enough, in the coordinator stream. A letter that was
under way when an earlier process of the task ended is suspected: it runs alone, its rows one at a time, each marked, and none that is
judged. The error policies decide about a judged row, as about one that fails: the nearest one wins, and `fail` fails the task by name.
`core.task.suspects` says what is suspected and what is judged.

The next process at this location finds the marks of the one before it. A process at another location does not: it only knows that the
previous owner of a task has died. What took that one with it lay behind its last commit. So its successor says each letter before it
runs, until `ENOUGH` commits with letters are durable, and those that are suspected as long as they are, by spans of rows. If it dies, too,
its successor knows which letter that was, wherever it runs, and goes on within the span.

Promises: what is said is durable before the letter runs, unless the broker does not take it within `SAY_S`. It is withdrawn when it is
over, also by an owner that was fenced or whose incarnation has ended, and that lives: it had lost its network, or a commit. It counts only
for an owner whose predecessor died, or was released before `ENOUGH` commits after such a death. A task whose previous owner has left its
marks here says nothing.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol, TypeVar

from ....core.coordination.messages import LetterMark
from ....core.errors import HeadgateError
from ....core.names import StreamPartition
from ....core.orders import Start
from ....core.task.suspects import WHOLE, Mark, Suspects, brief, next_death, spans
from ...operators.pipeline.pipeline import Pipeline
from ...operators.pipeline.trouble import Failed, Recovered, judged
from ...port.port import Clock, Process
from ...port.waiting import in_time
from ...records.frames.chunks import Chunk
from ...state.marks import Marks, NoMarks, fields_of
from ...state.marks import mark_of as marked
from .solitude import Alone, Solitude

Judged = TypeVar("Judged", Failed, Recovered | Failed)
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


class TookItsWorker(HeadgateError):
    """A letter has ended its worker each time that it ran."""


def text_of_mark(mark: Mark) -> str:
    """What a judged letter has done, for people.

    >>> text_of_mark(Mark(what="watermark of in", deaths=2))
    'watermark of in: 2 workers have ended in the middle of it (killed, out of memory, or blocked for longer than stall.timeout)'
    """
    what = mark.what or (f"offsets {mark.first} to {mark.upto - 1}" if mark.row == WHOLE else "this record")
    ends = "killed, out of memory, or blocked for longer than stall.timeout"
    return f"{what}: {mark.deaths} workers have ended in the middle of it ({ends})"


def mark_of(chunk: Chunk, topic: str) -> Mark:
    """The mark of a whole chunk, of the topic with this id."""
    first = chunk.columns.offset(0) if len(chunk) else chunk.next_position - 1
    return Mark(chunk.at, first, chunk.next_position, topic=topic)


class Suspicion:
    """The marks of one task, and those that its predecessors have left."""

    def __init__(
        self,
        start: Start,
        solitude: Solitude,
        job: LetterJob,
        process: Process,
        clock: Clock,
        log: Any,
        between_rows: Callable[[], Awaitable[None]],
    ) -> None:
        """`between_rows`: awaited between rows that run one by one, which may be thousands: the worker has more to do."""
        self._after_death = start.after_death
        self.between_rows = between_rows
        self._solitude = solitude
        self._log = log
        self.marks: Marks = NoMarks()
        """Where letters are marked while they run; on disk once the store is open."""
        self.suspects = Suspects()
        """Letters that took earlier owners of the task with them."""
        self.announced = Announced(start.task, start.grant, job, process, clock, log)
        """Where other locations hear of its letters, if its previous owner has died at one."""

    def remember(self, marks: Marks) -> None:
        """These are the marks on disk: from now on a letter that takes the process with it is known to the next owner."""
        self.marks = marks
        said = self.announced.begin() if self._after_death and not marks.complete else ()
        self.suspects = Suspects([*marks.left, *said])
        marks.keep(self.suspects.marks)
        for mark in self.suspects.marks:
            self._log.warning("a letter was under way when its process ended", mark=str(mark))

    # ------------------------------------------------------------------------------------------------------------ letters

    async def begins(self, mark: Mark, check: Callable[[], None]) -> None:
        """A letter that is not suspected begins. `check` raises if the letter has been called off meanwhile."""
        if self.announced.active:
            await self.announced.letter(mark, self.suspects.marks)
            check()
        self.marks.begin(mark)

    def of(self, chunk: Mark) -> list[Mark]:
        """What is suspected of this chunk."""
        found = self.suspects
        return found.of(chunk.at, chunk.first, chunk.upto, chunk.topic) if found.marks and chunk.at is not None else []

    async def chunk(
        self,
        pipeline: Pipeline,
        chunk: Chunk,
        before: Sequence[Mark],
        topic: str,
        *,
        check: Callable[[], None],
        drop: Callable[[], None],
    ) -> Recovered | Failed:
        """Run a suspected chunk. `drop` discards what it has changed in tables, and checks."""
        async with self._solitude.alone() as alone:  # what fails here must not run again as a whole
            check()
            return self._forgiven(await Suspected(self, chunk, before, topic, alone).run(pipeline, drop))

    async def step(
        self, what: str, run: Callable[[], Awaitable[bool | Failed]], *, check: Callable[[], None]
    ) -> bool | Failed:
        """Run a step, suspected or not. Returns what `run` returns, or why it has not run."""
        mark = Mark(what=brief(what))
        if (before := self.suspects.of_letter(mark.what)) is None:
            await self.begins(mark, check)
            return await run()
        if before.judged:
            return self._forgiven(Failed(text_of_mark(before), TookItsWorker(text_of_mark(before)), final=True))
        async with self._solitude.alone() as alone:
            await self.suspected_begins(alone, lambda holds: next_death([before], mark, alone=holds))
            check()
            more = await run()
        if not more and self.suspects.ended(mark.what):
            self._less()
        return more

    async def suspected_begins(
        self, alone: Alone, mark: Callable[[bool], Mark], said: Callable[[bool], Mark] | None = None
    ) -> None:
        """A suspected letter, or a row of it, begins. `mark`: its mark, if it is alone, or not. `said`: what other locations hear of it, if
        that is another mark.
        """

        async def say(holds: bool) -> None:
            await self.announced.suspected((said or mark)(holds), self.suspects.marks)

        await alone.begins(lambda holds: self.marks.begin(mark(holds)), say)

    def _forgiven(self, outcome: Judged) -> Judged:
        """If a letter has failed its task without running, its next start may run it once more: a person may have corrected the code."""
        if isinstance(outcome, Failed) and isinstance(outcome.error, TookItsWorker):
            self.suspects.forgive()
            self._less()
        return outcome

    def _less(self) -> None:
        self._log.info("less is suspected", left=[str(mark) for mark in self.suspects.marks])
        self.marks.keep(self.suspects.marks)
        self.announced.changed(self.suspects.marks)

    def ended(self) -> None:
        """No letter is under way."""
        self.marks.end()

    def committed(self, durable: Mapping[StreamPartition, int], topics: Mapping[StreamPartition, str]) -> None:
        """Everything below these positions is durable."""
        if self.suspects.marks and self.suspects.passed(durable, topics):
            self._less()
        self.announced.committed(self.suspects.marks)

    def close(self, *, survived: bool) -> None:
        """The task has left this process in order. `survived`: it is dropped or released, and the process goes on."""
        self.marks.close()
        if survived:
            self.announced.survived(self.suspects.marks)


class Announced:
    """What one task says."""

    def __init__(self, task: str, grant: int, job: LetterJob, process: Process, clock: Clock, log: Any) -> None:
        self._task, self._grant = task, grant
        self._job = job
        self._process = process
        self._clock = clock
        self._log = log
        self._left = 0
        """How many more commits with letters it takes."""
        self._ran = self._said = False
        self._last: Mark | None = None
        """What was said last to be under way."""
        self.active = False
        """Whether letters are said."""

    def begin(self) -> list[Mark]:
        """The previous owner has died, and its marks are not here. Returns what is known of its letters."""
        self.active, self._left = True, ENOUGH
        return [marked(one) for one in self._job.letters_left(self._task, self._grant)]

    async def letter(self, mark: Mark, suspected: Iterable[Mark]) -> None:
        """This letter, or this part of it, runs next, while these are suspected."""
        if self.active:
            self._ran, self._last = True, mark
            await self._say([mark, *suspected])

    async def suspected(self, mark: Mark, suspected: Iterable[Mark]) -> None:
        """As `letter`, of a suspected one, if it was not just said."""
        if mark != self._last:
            await self.letter(mark, suspected)

    def changed(self, suspected: Iterable[Mark]) -> None:
        """Less is suspected than before: only these."""
        self._last = None
        if self._said:
            self._process.spawn(partial(self._say, list(suspected)), f"{self._task}: letters")

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


class Suspected:
    """One run of a suspected chunk."""

    def __init__(self, suspicion: Suspicion, chunk: Chunk, before: Sequence[Mark], topic: str, alone: Alone) -> None:
        """`before`: the marks that concern it."""
        self._suspicion = suspicion
        self._chunk = chunk
        self._before = before
        self._topic = topic
        self._alone = alone
        self._rows = _rows_of(chunk)
        self._spans = spans(self._rows, before, chunk.at, topic) if suspicion.announced.active else []
        """In which the rows are said."""
        self._reached = -1
        """The last row that has begun."""

    async def run(self, pipeline: Pipeline, drop: Callable[[], None]) -> Recovered | Failed:
        """Run it. `drop` discards what it has changed in tables."""
        for mark in self._before:
            if mark.judged and not mark.alone:
                why = f"{self._chunk.at} {text_of_mark(mark)}"
                return Failed(why, TookItsWorker(why), final=True)
        bad = {
            index: TookItsWorker(text_of_mark(mark))
            for mark in self._before
            if (index := self._index(mark)) is not None
        }
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
        at, one = self._chunk.at, self._suspicion
        if index == WHOLE:
            known, mark = [known for known in self._before if not known.alone], mark_of(self._chunk, self._topic)
        else:
            offset, row = self._rows[index]
            known = [known for known in self._before if known.at == at and known.covers(offset, row)]
            mark = Mark(at, offset, offset + 1, row, topic=self._topic)

        def exact(holds: bool) -> Mark:
            return next_death(known, mark, alone=holds)

        said = self._span(index) if one.announced.active and index != WHOLE else None
        await one.between_rows()
        await one.suspected_begins(self._alone, exact, None if said is None or said.alone else lambda _: said)

    def _span(self, index: int) -> Mark:
        """What is said of a row. Behind a row that fails all of them run again; those that have run before are one span then."""
        if index <= self._reached:
            first, last = self._rows[0][0], self._rows[self._reached][0]
            return Mark(self._chunk.at, first, last + 1, topic=self._topic)
        self._reached = index
        found = bisect_right(self._spans, index, key=lambda one: one.begin) - 1
        return self._spans[found].mark


def _rows_of(chunk: Chunk) -> list[tuple[int, int]]:
    """Of each row, the offset of its record and its number there."""
    found: list[tuple[int, int]] = []
    for index in range(len(chunk)):
        offset = chunk.columns.offset(index)
        found.append((offset, found[-1][1] + 1) if found and found[-1][0] == offset else (offset, 0))
    return found
