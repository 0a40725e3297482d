"""The letters of a task's actor, a chunk or one step of other work; on which it works now and since when, and which take long.

A letter that does not end is otherwise invisible: nothing fails, and the task is `running`. Any thread may ask `now`, so that a main loop
which user code blocks can be explained, too.

Promises: one that takes longer than `letter.warn-after` is counted once and reported at growing intervals, and the end of a reported one is
reported. Beginning and ending a letter costs less than a microsecond.
"""

from __future__ import annotations

from dataclasses import dataclass

from ....core.task.protocol import RunStep
from ...records.frames.chunks import Chunk
from .at_work import AtWork
from .site import Site

SETTING = "letter.warn-after"
LONGEST_S = 300.0
"""The longest interval between two reports."""
WORTH_S = 1.0
"""A letter that took less is not compared with the setting."""


@dataclass(frozen=True, slots=True)
class ChunkLetter:
    """Run this chunk. `attempt` counts from 1."""

    chunk: Chunk
    attempt: int = 1


@dataclass(frozen=True, slots=True)
class StepLetter:
    """Run one step of a watermark, an end of stream, a drain, a timer or a batch."""

    step: RunStep
    attempt: int = 1


Letter = ChunkLetter | StepLetter


class Doing:
    """The letter of one task."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._clock = site.clock
        self._letter: Letter | None = None
        self._began_s = 0.0
        self._report_s: float | None = None
        """When it is reported next; None while it has not been reported."""
        self._pause_s = 0.0
        self.waits_for = ""
        """What it waits for because there is no answer yet, and why; empty if it does not."""

    def begins(self, letter: Letter) -> None:
        """The actor begins with a letter."""
        self._began_s = self._clock.now().mono
        self._letter = letter

    def ends(self) -> None:
        """The letter has ended, in whatever way."""
        letter, self._letter = self._letter, None
        took_s = self._clock.now().mono - self._began_s
        if took_s < WORTH_S or letter is None:
            return
        if self._report_s is not None:
            self._site.log.info("a letter that took long has ended", letter=named(letter), took_s=round(took_s, 1))
        elif 0 < self._limit_s() <= took_s:
            self._site.count("slow_letters")
            self._site.log.warning("a letter took long", letter=named(letter), took_s=round(took_s, 1))
        self._report_s = None

    def now(self) -> AtWork | None:
        """The letter under way. Any thread may call this."""
        letter, began_s = self._letter, self._began_s
        if letter is None:
            return None
        awaits, waits_for = self._site.patience.longest(), self.waits_for
        more = f", waiting: {waits_for}" if waits_for else f", awaiting {awaits}" if awaits else ""
        return AtWork(
            self._site.name,
            f"{named(letter)}{more}",
            max(0.0, self._clock.now().mono - began_s),
        )

    def look(self) -> AtWork | None:
        """Report the letter if it takes long and a report is due. Returns it if it takes long."""
        limit_s, found = self._limit_s(), self.now()
        if found is None or not 0 < limit_s <= found.for_s:
            return None
        if self._report_s is None:
            self._report_s, self._pause_s = 0.0, limit_s
            self._site.count("slow_letters")
        now_s = self._clock.now().mono
        if now_s >= self._report_s:
            self._report_s, self._pause_s = now_s + self._pause_s, min(LONGEST_S, self._pause_s * 2)
            self._site.log.warning("a letter takes long", letter=found.what, for_s=round(found.for_s))
        return found

    def _limit_s(self) -> float:
        return self._site.settings.seconds(SETTING)


def named(letter: Letter) -> str:
    """What a letter is: the records of a chunk, or the kind of another one."""
    if isinstance(letter, ChunkLetter):
        chunk = letter.chunk
        last = chunk.next_position - 1
        first = chunk.columns.offset(0) if len(chunk) else last
        return f"{chunk.at} offset {last}" if first == last else f"{chunk.at} offsets {first} to {last}"
    step = letter.step
    return " ".join(one for one in (step.kind, step.stream and f"of {step.stream}", step.key) if one)
