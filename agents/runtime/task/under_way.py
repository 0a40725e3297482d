"""The current letter of a task: at most one, from the decision to run it until it has ended or is called off.

It decides what the machine leaves to the runtime: which records of a failing chunk are skipped or become dead letters. What a letter must
learn first (see `learning`) is asked, and the letter runs again from its beginning.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import Protocol, TypeVar

from ....core.names import StreamPartition
from ....core.orders import UNPARK
from ....core.progress.frames import MAX_TIME
from ....core.task import protocol as t
from ....core.turns import TURN_NS
from ...cancellation import CalledOff, answered
from ...job.types.parking import shown_bytes
from ...learning import LateTopics, MustLearn, NotYet
from ...operators.failures.parked import ParkedChunk
from ...operators.pipeline.pipeline import Pipeline
from ...operators.pipeline.trouble import Failed, Recovered, because, reason_of, recover
from ...port.port import MailboxClosed, Process
from ...records.frames.chunks import Chunk
from ...records.frames.range_buffer import UnreadRecords
from ..reading.old_reads import OldReads
from .background import BackgroundWork
from .contribution import Contribution
from .doing import LONGEST_S, ChunkLetter, Doing, Letter, StepLetter, named
from .due import Due
from .failures import Failures
from .site import Site
from .solitude import Solitude
from .suspicion import Suspicion, mark_of
from .traced import Traced
from .turns import LoopTurns, Share

R = TypeVar("R")
NOT_TRACED = contextlib.nullcontext()
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 5.0
"""Between two tries of a question that has no answer yet."""


class LetterNeeds(Protocol):
    """What the letters of a task need of the process."""

    old_reads: OldReads
    solitude: Solitude
    turns: LoopTurns

    @property
    def process(self) -> Process: ...
    @property
    def producers(self) -> LateTopics: ...


class UnderWay:
    """Runs the letters of one task, one at a time, in its actor."""

    def __init__(
        self,
        site: Site,
        needs: LetterNeeds,
        failures: Failures,
        suspicion: Suspicion,
        background: BackgroundWork,
        contribution: Contribution,
        due: Due,
        traced: Traced,
        on_gone: Callable[[BaseException | None], None],
        on_again: Callable[[], None],
    ) -> None:
        """`on_gone` is called when the actor has stopped, `on_again` when its agent was started again."""
        self._site = site
        self._targets = needs.producers
        self._old_reads = needs.old_reads
        self._solitude = needs.solitude
        self._turns = needs.turns
        self._share = Share()
        self._failures = failures
        self._suspicion = suspicion
        self._background = background
        self._contribution = contribution
        self._due = due
        self._traces = site.traces
        self._traced = traced
        self.doing = Doing(site)
        self._letter: Letter | None = None
        self._asked: set[object] = set()
        """The questions that have been answered."""
        self._off = asyncio.Event()
        """Set when the current letter is called off."""
        self._report_after_s = 0.0
        """Between two reports of a letter that waits."""
        self.mailbox = needs.process.mailbox(f"task.{site.name}", self._run, on_gone, on_again)

    # ------------------------------------------------------------------------------------------------------ what is next

    async def take(self, chunk: Chunk) -> None:
        """The intake has taken a chunk from its buffer: it is the next letter."""
        if self._site.feed(t.ChunkTaken(chunk.at, chunk.next_position)):
            await self._put(self._next(ChunkLetter(chunk)))

    def step(self, order: t.RunStep) -> None:
        """Run a step as the next letter."""
        letter = self._next(StepLetter(order))
        self._background.run(partial(self._put, letter), "step")

    def again(self, order: t.RunAgain) -> None:
        """Run the failed letter again."""
        assert self._letter is not None, "the failed letter is kept for this"
        letter = self._next(replace(self._letter, attempt=order.attempt + 1))
        self._background.run(partial(self._put, letter), "run again")

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
        self._off.set()
        return letter

    def _next(self, letter: Letter) -> Letter:
        """Make this the current letter: from now on it can be called off, whether it has begun or not."""
        self._site.idle.clear()
        self._letter = letter
        self._off = asyncio.Event()
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
        turns, meter = self._turns, self._site.meter
        expected_ns = self._expected_ns(letter)
        if isinstance(letter, ChunkLetter):
            self._share.more = letter.chunk.followed
        turn = await turns.enter(self._share, expected_ns)
        await self._solitude.enter()
        self.doing.begins(letter)
        meter.begin()
        try:
            self._unless_called_off(letter)
            with self._traced.letter(letter) if self._traces.on else NOT_TRACED:
                work = self._chunk(letter) if isinstance(letter, ChunkLetter) else self._step(letter)
                await meter.of(work, lambda: turns.used(self._share, turn, expected_ns, meter.ns))
        except CalledOff:
            self._site.drop()
        finally:
            self._suspicion.ended()
            self.doing.ends()
            self._solitude.leave()
            turns.ended(self._share, meter.ns)
            self._contribution.letter_ended(meter.ns)
            if isinstance(letter, ChunkLetter) and not isinstance(letter.chunk.columns, UnreadRecords):
                turns.learn(letter.chunk.at.stream, len(letter.chunk), meter.ns + letter.chunk.taken_ns)

    def _expected_ns(self, letter: Letter) -> int:
        """For how long a letter will hold the loop; a step may take a whole turn."""
        if isinstance(letter, ChunkLetter):
            return self._turns.expected_ns(letter.chunk.at.stream, len(letter.chunk))
        return TURN_NS

    async def _chunk(self, letter: ChunkLetter) -> None:
        chunk = letter.chunk
        outcome = await self._learning(letter, partial(self._ran, letter))
        if isinstance(outcome, Failed):
            self._fails(outcome)
        elif outcome is not None:
            self._tell_left_out(chunk, outcome)
            if (wants := self._contribution.complete()) is not None:
                commit, ends = wants
                upto, greatest = chunk.next_position, outcome.greatest
                self._old_reads.read(chunk.at, greatest)
                self._end(t.ChunkDone(chunk.at, upto, greatest, commit=commit, ends=ends, owed=self._pipeline.owed()))

    def _tell_left_out(self, chunk: Chunk, outcome: Recovered) -> None:
        for index, cause in outcome.left_out.items():
            what = "record is parked" if index in outcome.parked else "record is skipped"
            self._site.log.warning(what, at=str(chunk.at), offset=chunk.columns.offset(index), why=str(cause))

    async def _ran(self, letter: ChunkLetter) -> Recovered | Failed:
        """Run a chunk. If it fails, run it again without the records that the policy lets it leave out, or fail."""
        pipeline, suspicion, chunk = self._pipeline, self._suspicion, letter.chunk
        check, drop = partial(self._unless_called_off, letter), partial(self._try_anew, letter)
        mark = mark_of(chunk, self._site.topic_of(chunk.at))
        if before := suspicion.of(mark):
            return await suspicion.chunk(pipeline, chunk, before, mark.topic, check=check, drop=drop)
        try:
            await suspicion.begins(mark, check)
            return Recovered(await pipeline.chunk(chunk))
        except MustLearn:
            raise
        except Exception as error:  # noqa: BLE001 - user code and data may raise anything; the policy decides
            return await recover(pipeline, chunk, error, drop=drop)

    async def _step(self, letter: StepLetter) -> None:
        self._due.begins(letter.step.key)
        more = await self._learning(letter, partial(self._stepped, letter))
        if isinstance(more, Failed):
            self._fails(more)
        elif more is not None and (wants := self._contribution.complete()) is not None:
            commit, ends = wants
            owed, seen = self._pipeline.owed(), self._pipeline.seen()
            refused = self._unparked() if letter.step.kind == UNPARK else ""
            self._end(t.StepDone(letter.step.letter, more, commit, ends, owed, seen, refused))

    def _unparked(self) -> str:
        """An operator's order about parked records is carried out. Returns why it has changed nothing, if so."""
        parked = self._pipeline.parked
        for row in parked.left_out:
            at = f"{row.stream}[{row.partition}]"
            self._site.log.warning(
                "parked record is skipped", at=at, offset=row.offset, row=row.row, key=shown_bytes(row.key), why=row.why
            )
        return parked.refusal

    async def _stepped(self, letter: StepLetter) -> bool | Failed:
        """Run a step. Returns whether there is more of it to run, or why it failed."""
        step, check = letter.step, partial(self._unless_called_off, letter)
        run = partial(self._pipeline.step, step.kind, step.stream, step.ts, step.key, step.cause, step.times)
        parked = self._pipeline.tried_again(
            step.stream, step.key, ends=step.kind in (t.END, t.DRAIN) or step.ts == MAX_TIME
        )
        if parked is not None:
            run = partial(self._tried, letter, parked)
        try:
            return await self._suspicion.step(named(letter), run, check=check)
        except MustLearn:
            raise
        except Exception as error:  # noqa: BLE001 - as in _ran
            self._try_anew(letter)
            final = bool(getattr(error.__cause__, "final", False))
            return Failed(because(f"{step.kind} {step.stream or step.key}", error), error, final)

    async def _tried(self, letter: StepLetter, chunk: ParkedChunk) -> bool | Failed:
        """Run parked records again. Those that fail stay parked, or leave as their policy says. Whether the letter has more to do: one that
        ends a stream has."""
        pipeline = self._pipeline
        try:
            outcome: Recovered | Failed = Recovered(await pipeline.chunk(chunk))
        except MustLearn:
            raise
        except Exception as error:  # noqa: BLE001 - as in _ran
            outcome = await recover(pipeline, chunk, error, drop=partial(self._try_anew, letter))
        if isinstance(outcome, Failed):
            return outcome
        self._tell_left_out(chunk, outcome)
        if outcome.greatest is not None:
            pipeline.saw(chunk.at, outcome.greatest)
        return letter.step.stream is not None

    @property
    def _pipeline(self) -> Pipeline:
        assert self._site.pipeline is not None, "a task is prepared before it works"
        return self._site.pipeline

    def _fails(self, failed: Failed) -> None:
        self._traced.failed(failed.why)
        self._failures.letter_failed(failed)

    def _end(self, event: t.ChunkDone | t.StepDone) -> None:
        self._letter = None
        self._traced.complete()
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

    # ------------------------------------------------------------------------------------------- what is not known yet

    async def _learning(self, letter: Letter, run: Callable[[], Awaitable[R]]) -> R | None:
        """Run a letter. If it must learn something first, ask once, and run it again from its beginning.

        None if that cannot be learned: no record is to blame, so this fails the task instead of the letter, and the task restarts by
        itself. Raises `CalledOff` if the letter has been called off.
        """
        while True:
            try:
                result = await run()
                if self._called_off(letter):
                    raise CalledOff(self._site.name)
                return result
            except MustLearn as unknown:
                self._try_anew(letter)
                self._suspicion.ended()  # nothing of it runs now: if the process ends meanwhile, it is not to blame
                why = await self._learn(unknown, letter)
                self._try_anew(letter)
                if why is not None:
                    self._site.log.error(unknown.lacks, why=reason_of(why), exc_info=why)
                    self._site.feed(t.Broken(f"{unknown.lacks}: {reason_of(why)}", passing=True))
                    return None

    async def _learn(self, unknown: MustLearn, letter: Letter) -> BaseException | None:
        """Ask until there is an answer; returns the error if that failed."""
        if unknown.question in self._asked:
            return unknown
        pause_s, reported_s, off = FIRST_PAUSE_S, 0.0, self._off
        try:
            while True:
                try:
                    with answered("the question"):
                        await unknown.learn(self._targets)
                    break
                except NotYet as away:
                    reported_s = self._not_yet(away, reported_s)
                    with contextlib.suppress(TimeoutError):  # by the loop's time, as user code waits
                        async with asyncio.timeout(pause_s):
                            await off.wait()
                    self._unless_called_off(letter)
                    pause_s = min(LONGEST_PAUSE_S, pause_s * 2)
        except CalledOff:
            raise
        except Exception as error:  # noqa: BLE001 - an unreachable broker, a missing permission, a bug in a library
            return error
        finally:
            if self.doing.waits_for:
                self.doing.waits_for = ""
                self._site.log.info("a letter waits no longer", for_=unknown.what)
        self._asked.add(unknown.question)
        return None

    def _not_yet(self, unknown: NotYet, reported_s: float) -> float:
        """There is no answer yet: what does not move says so, in heartbeats and, at growing intervals, in the log. `told_s`: when it is to
        be said next. Returns when it is to be said after that."""
        now_s, first = self._site.clock.now().mono, not self.doing.waits_for
        self.doing.waits_for = unknown.what
        if not first and now_s < reported_s:
            return reported_s
        self._site.log.warning("a letter waits for an answer", why=unknown.what, to_do=unknown.remedy)
        self._report_after_s = LONGEST_PAUSE_S if first else min(LONGEST_S, 2 * self._report_after_s)
        return now_s + self._report_after_s
