"""The current letter of a task: at most one, from the decision to run it until it has ended or is called off.

It decides what the machine leaves to the runtime: which records of a failing chunk are skipped or become dead letters. If a letter writes
to a topic that is not known yet, the broker is asked for it, and the letter runs again from its beginning.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import TypeVar

from ...core.names import StreamPartition
from ...core.task import protocol as t
from ...core.task.suspects import Mark, brief, next_death
from ...core.turns import TURN_NS
from ..cancellation import CalledOff, answered
from ..operators.trouble import Failed, Recovered, because, recover, told
from ..port.port import MailboxClosed
from ..records.chunks import Chunk
from ..records.range_buffer import UnreadRecords
from ..records.target_rules import UnknownTarget
from .beside import Beside
from .contribution import Contribution
from .doing import Doing, named
from .due import Due
from .failures import Failures
from .letters import ChunkLetter, Letter, StepLetter
from .site import Site
from .suspected import Suspected, TookItsWorker, mark_of, told_of

R = TypeVar("R")
Told = TypeVar("Told", Failed, Recovered | Failed)


class UnderWay:
    """Runs the letters of one task, one at a time, in its actor."""

    def __init__(
        self,
        site: Site,
        failures: Failures,
        beside: Beside,
        contribution: Contribution,
        due: Due,
        on_gone: Callable[[BaseException | None], None],
        on_again: Callable[[], None],
    ) -> None:
        """`on_gone` is called when the actor has stopped, `on_again` when its agent was started again."""
        self._site = site
        self._failures = failures
        self._beside = beside
        self._contribution = contribution
        self._due = due
        self.doing = Doing(site)
        self._letter: Letter | None = None
        self._learnt: set[str] = set()
        """Topics that user code writes to and no step declares; the broker has been asked for them."""
        self.mailbox = site.runtime.life.mailbox(f"task.{site.name}", self._run, on_gone, on_again)

    # ------------------------------------------------------------------------------------------------------ what is next

    async def take(self, chunk: Chunk) -> None:
        """The intake has taken a chunk from its buffer: it is the next letter."""
        if self._site.feed(t.ChunkTaken(chunk.at, chunk.next_position)):
            await self._put(self._next(ChunkLetter(chunk)))

    def step(self, order: t.RunStep) -> None:
        """Run a step as the next letter."""
        letter = self._next(StepLetter(order))
        self._beside.run(partial(self._put, letter), "step")

    def again(self, order: t.RunAgain) -> None:
        """Run the failed letter again."""
        assert self._letter is not None, "the failed letter is kept for this"
        letter = self._next(replace(self._letter, attempt=order.attempt))
        self._beside.run(partial(self._put, letter), "run again")

    def drop(self, _: t.DropChunk) -> None:
        """Call the letter off, whether it runs or still waits."""
        letter = self.call_off()
        self._site.drop()
        self._site.idle.set()
        self._failures.over()
        if letter is not None:
            at = letter.chunk.at if isinstance(letter, ChunkLetter) else StreamPartition("", 0)
            self._site.feed_later(t.ChunkDropped(at))

    def call_off(self) -> Letter | None:
        """Call the current letter off, and return it: nothing that it does counts any more."""
        letter, self._letter = self._letter, None
        return letter

    def _next(self, letter: Letter) -> Letter:
        """Make this the current letter: from now on it can be called off, whether it has begun or not."""
        self._site.idle.clear()
        self._letter = letter
        return letter

    async def _put(self, letter: Letter) -> None:
        if not self._called_off(letter):
            with contextlib.suppress(MailboxClosed):
                await self.mailbox.put(letter)

    def _called_off(self, letter: Letter) -> bool:
        return self._site.gone or letter is not self._letter

    # -------------------------------------------------------------------------------------------------------- at work

    async def _run(self, letter: Letter) -> None:
        if self._called_off(letter):
            return
        solitude, turns, meter = self._site.runtime.solitude, self._site.runtime.turns, self._site.meter
        expected_ns = self._expected_ns(letter)
        turn = await turns.enter(expected_ns)
        await solitude.enter()
        self.doing.begins(letter)
        meter.begin()
        try:
            self._unless_called_off(letter)
            work = self._chunk(letter) if isinstance(letter, ChunkLetter) else self._step(letter)
            await meter.of(work, lambda: turns.used(turn, expected_ns, meter.ns))
        except CalledOff:
            self._site.drop()
        finally:
            self._site.marks.end()
            self.doing.ends()
            solitude.leave()
            if isinstance(letter, ChunkLetter) and not isinstance(letter.chunk.columns, UnreadRecords):
                turns.learn(letter.chunk.at.stream, len(letter.chunk), meter.ns + letter.chunk.taken_ns)

    def _expected_ns(self, letter: Letter) -> int:
        """For how long a letter will hold the loop; a step may take a whole turn."""
        if isinstance(letter, ChunkLetter):
            return self._site.runtime.turns.expected_ns(letter.chunk.at.stream, len(letter.chunk))
        return TURN_NS

    async def _chunk(self, letter: ChunkLetter) -> None:
        chunk = letter.chunk
        outcome = await self._learning(letter, partial(self._ran, letter))
        if isinstance(outcome, Failed):
            self._failures.letter_failed(outcome)
        elif outcome is not None:
            for index, cause in outcome.left_out.items():
                self._site.log.warning(
                    "record is skipped", at=str(chunk.at), offset=chunk.columns.offset(index), why=str(cause)
                )
            if (wants := self._contribution.complete()) is not None:
                commit, ends = wants
                upto, greatest = chunk.next_position, outcome.greatest
                self._site.runtime.old_reads.read(chunk.at, greatest)
                self._end(t.ChunkDone(chunk.at, upto, greatest, commit=commit, ends=ends, owed=self._owed()))

    async def _ran(self, letter: ChunkLetter) -> Recovered | Failed:
        """Run a chunk. If it fails, run it again without the records that the policy lets it leave out, or fail."""
        site, chunk = self._site, letter.chunk
        pipeline = site.pipeline
        assert pipeline is not None
        mark = mark_of(chunk, site.topic_of(chunk.at))
        if site.suspects.marks and (before := site.suspects.of(chunk.at, mark.first, mark.upto, mark.topic)):
            async with site.runtime.solitude.alone() as alone:  # what fails here must not run again as a whole
                self._unless_called_off(letter)
                suspected = Suspected(site, chunk, before, alone)
                return self._told(await suspected.run(pipeline, partial(self._try_anew, letter)))
        try:
            if site.announced.active:
                await site.announced.letter(mark)
                self._unless_called_off(letter)
            site.marks.begin(mark)
            return Recovered(await pipeline.chunk(chunk))
        except UnknownTarget:
            raise
        except Exception as error:  # noqa: BLE001 - user code and data may raise anything; the policy decides
            return await recover(pipeline, letter.chunk, error, drop=partial(self._try_anew, letter))

    async def _step(self, letter: StepLetter) -> None:
        self._due.begins(letter.step.key)
        more = await self._learning(letter, partial(self._stepped, letter))
        if isinstance(more, Failed):
            self._failures.letter_failed(more)
        elif more is not None and (wants := self._contribution.complete()) is not None:
            commit, ends = wants
            seen = () if self._site.pipeline is None else self._site.pipeline.seen()
            self._end(t.StepDone(letter.step.letter, more, commit=commit, ends=ends, owed=self._owed(), seen=seen))

    async def _stepped(self, letter: StepLetter) -> bool | Failed:
        """Run a step. Returns whether there is more of it to run, or why it failed."""
        site, step = self._site, letter.step
        assert site.pipeline is not None
        mark = Mark(what=brief(named(letter)))
        try:
            if (before := site.suspects.of_letter(mark.what)) is None:
                if site.announced.active:
                    await site.announced.letter(mark)
                    self._unless_called_off(letter)
                site.marks.begin(mark)
                return await site.pipeline.step(step.kind, step.stream, step.ts, step.key, step.cause, step.times)
            if before.judged:
                return self._told(Failed(told_of(before), TookItsWorker(told_of(before)), final=True))
            async with site.runtime.solitude.alone() as alone:
                await site.announced.letter(next_death([before], mark, alone=alone.holds))
                self._unless_called_off(letter)
                alone.begins(lambda holds: site.marks.begin(next_death([before], mark, alone=holds)))
                more = await site.pipeline.step(step.kind, step.stream, step.ts, step.key, step.cause, step.times)
            if not more and site.suspects.ended(mark.what):
                site.marks.keep(site.suspects.marks)
            return more
        except UnknownTarget:
            raise
        except Exception as error:  # noqa: BLE001 - as in _ran
            self._try_anew(letter)
            final = bool(getattr(error.__cause__, "final", False))
            return Failed(because(f"{step.kind} {step.stream or step.key}", error), error, final)

    def _told(self, outcome: Told) -> Told:
        """If a letter has failed its task without running, its next start may run it once more: a person may have corrected the code."""
        if isinstance(outcome, Failed) and isinstance(outcome.error, TookItsWorker):
            self._site.suspects.forgive()
            self._site.marks.keep(self._site.suspects.marks)
            self._site.announced.changed()
        return outcome

    def _owed(self) -> t.Owed:
        """What the pipeline's steps still owe, now that a letter is complete."""
        return () if self._site.pipeline is None else self._site.pipeline.owed()

    def _end(self, event: t.ChunkDone | t.StepDone) -> None:
        self._letter = None
        self._site.idle.set()
        self._failures.over()
        self._site.feed(event)
        self._contribution.expiry.go_on()
        self._due.watch()

    def _try_anew(self, letter: Letter) -> None:
        """Discard the letter's changes to state; raise `CalledOff` if the letter has been called off."""
        self._site.state.drop()
        self._unless_called_off(letter)

    def _unless_called_off(self, letter: Letter) -> None:
        if self._called_off(letter):
            raise CalledOff(self._site.name)

    # ---------------------------------------------------------------------------------------- topics that are not known yet

    async def _learning(self, letter: Letter, run: Callable[[], Awaitable[R]]) -> R | None:
        """Run a letter. If it writes to a topic that is not known yet, ask the broker once, and run it again from its beginning.

        None if the topic's metadata cannot be fetched: no record is to blame, so this fails the task instead of the letter, and the task
        restarts by itself. Raises `CalledOff` if the letter has been called off.
        """
        while True:
            try:
                result = await run()
                if self._called_off(letter):
                    raise CalledOff(self._site.name)
                return result
            except UnknownTarget as unknown:
                self._try_anew(letter)
                why = await self._learn(unknown)
                self._try_anew(letter)
                if why is not None:
                    self._site.log.error(
                        "the metadata of a topic cannot be fetched", topic=unknown.topic, why=told(why), exc_info=why
                    )
                    what = f"the topic {unknown.topic}, which user code writes to, has no metadata: {told(why)}"
                    self._site.feed(t.Broken(what, passing=True))
                    return None

    async def _learn(self, unknown: UnknownTarget) -> BaseException | None:
        """Ask the broker for a topic; returns the error if that failed."""
        if unknown.topic in self._learnt:
            return unknown
        try:
            with answered("the question"):
                await self._site.runtime.producers.learn(unknown.topic)
        except Exception as error:  # noqa: BLE001 - an unreachable broker, a missing permission, a bug in a library
            return error
        self._learnt.add(unknown.topic)
        return None
