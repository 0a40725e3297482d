"""The turns of the main loop: which letters of the tasks run in one, how long they are, and what goes first.

Promises:

- The letters that begin in one turn of the loop take about `TURN_NS` in all while a commit is under way, and `QUIET_NS` while none is,
  whatever the number of tasks; one that takes longer has a turn for itself.
- A task with a backlog goes on with its next letter until it has held the loop for `SHIFT_NS` longer than the one that is most behind. A
  commit then has many rows of few tasks instead of few rows of all of them: each task that takes part writes a frame to each partition that
  it sends to, however many rows are in it.
- A task that had nothing to do comes next when it has. In the long run, all that have something to do hold the loop for equally long.
- While a commit is under way, `SPARE` turns without a letter follow each one with letters: a commit takes many turns, each of them short.
- What counts is the time that a letter holds the loop. While a letter awaits something, others run.
- In virtual time, where code takes no time, nothing waits, and letters are as long as the settings permit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ....core.turns import QUIET_NS, TURN_NS, LetterCosts
from ...durations import Durations
from ...measured import Clocks

SPARE = 8
KEPT_TURNS = 8
"""Within so many turns of the loop, a task with a backlog asks for its next letter."""
SHIFT_NS = 50_000_000


class Share:
    """What one task has had of the loop."""

    __slots__ = ("expected_ns", "granted", "kept", "more", "ns")

    def __init__(self) -> None:
        self.ns = 0
        """For how long it has held the loop. A task that had nothing to do is not owed the time that others had meanwhile."""
        self.granted: asyncio.Future[None] | None = None
        """Of the letter that waits for its turn, which will hold the loop for `expected_ns`."""
        self.expected_ns = 0
        self.more = False
        """Whether records stand behind its letter already."""
        self.kept = 0
        """For how many turns of the loop the shift is still kept for it, while its letter, or the next one, is about to begin."""


class BetweenRows:
    """Gives the loop away between the rows of a letter that runs them one by one, whenever they have held it for a turn."""

    def __init__(self, clocks: Clocks | None) -> None:
        self._clocks = clocks
        self._since_ns = 0

    async def __call__(self) -> None:
        clocks = self._clocks
        if clocks is not None and clocks.wall_ns() - self._since_ns >= TURN_NS:
            await asyncio.sleep(0)
            self._since_ns = clocks.wall_ns()


class LoopTurns:
    """The turns of one process."""

    def __init__(self, clocks: Clocks | None, hurried: Callable[[], bool]) -> None:
        """`clocks`: None in virtual time. `hurried`: whether a commit is under way."""
        self.clocks = clocks
        self.patient = clocks is not None
        """Whether a task with little work and a backlog waits for a later commit. In virtual time all work is little."""
        self._hurried = hurried
        self.chunks = Durations()
        """For how long chunks have held the loop."""
        self._costs: dict[str, LetterCosts] = {}
        """By stream."""
        self._asked: dict[Share, None] = {}
        """The tasks that wait, in the order in which they asked."""
        self._on_shift = Share()
        """The task that had the last turn."""
        self._behind_ns = 0
        """What the task that was most behind among those that wait has had."""
        self._turn = 0
        """The number of this turn of the loop, of those in which letters run."""
        self._left_ns = 0
        """What is left of this turn, if a letter has begun in it."""
        self._began = False
        """A letter has begun in this turn."""
        self._spare = 0
        self._waiting = False
        """The next turn is waited for."""

    # ------------------------------------------------------------------------------------------------------- lengths

    def rows(self, stream: str, most: int, least: int = 1) -> int:
        """How many rows the next letter of a stream takes, from `least` to `most`."""
        return most if self.clocks is None else self._costs.get(stream, _UNKNOWN).length(most, least, self._turn_ns())

    def _turn_ns(self) -> int:
        return TURN_NS if self._hurried() else QUIET_NS

    def learn(self, stream: str, rows: int, ns: int) -> None:
        """A letter of a stream had so many rows, and held the loop for so long."""
        self._costs[stream] = self._costs.get(stream, _UNKNOWN).after(rows, ns)
        self.chunks.add(ns / 1e9)

    def expected_ns(self, stream: str, rows: int) -> int:
        """For how long a letter will hold the loop."""
        return self._costs.get(stream, _UNKNOWN).expected_ns(rows)

    # ------------------------------------------------------------------------------------------------------- turns

    async def enter(self, share: Share, expected_ns: int) -> int:
        """Wait for the turn of a letter of this task that will hold the loop for so long. Returns the number of the turn."""
        if self.clocks is None:
            return 0
        share.ns = max(share.ns, self._behind_ns - SHIFT_NS)
        share.expected_ns = expected_ns
        self._asked[share] = None
        if self._next_one() is share:
            self._take(share)
            return self._turn
        share.granted = asyncio.get_running_loop().create_future()
        self._see()
        try:
            await share.granted
        finally:
            # if it was called off after its turn was granted, the next turn comes all the same
            self._asked.pop(share, None)
            share.granted = None
        return self._turn

    def _next_one(self) -> Share | None:
        """The task that may begin a letter in this turn; None if there is none, or if the shift is kept for one that is about to."""
        if self._spare or not self._asked:
            return None
        best, on_shift = min(self._asked, key=_had), self._on_shift
        self._behind_ns = max(self._behind_ns, best.ns)
        if on_shift.ns - best.ns <= SHIFT_NS:
            if on_shift in self._asked:
                best = on_shift
            elif on_shift.kept:
                return None
        return best if not self._began or best.expected_ns <= self._left_ns else None

    def _take(self, share: Share) -> None:
        del self._asked[share]
        if not self._began:
            self._began, self._left_ns = True, self._turn_ns()
        self._left_ns -= share.expected_ns
        self._on_shift, share.kept = share, KEPT_TURNS * share.more
        self._see()

    def used(self, share: Share, turn: int, expected_ns: int, ns: int) -> None:
        """A letter that began in this turn has ended, or waits for something: it has held the loop for so long, and not for as long as
        expected."""
        share.kept = 0
        if turn == self._turn and self._began:
            self._left_ns += expected_ns - ns

    def ended(self, share: Share, ns: int) -> None:
        """A letter of this task has ended, which has held the loop for so long."""
        share.ns += ns
        share.kept = KEPT_TURNS * share.more

    def _see(self) -> None:
        if not self._waiting:
            self._waiting = True
            asyncio.get_running_loop().call_soon(self._next)

    def _next(self) -> None:
        """A turn of the loop has begun: letters may begin, unless a commit is under way that has not had its turns."""
        if self._began:
            self._began, self._spare = False, SPARE
            self._turn += 1
        if self._spare:
            self._spare = self._spare - 1 if self._hurried() else 0
            if self._spare:
                asyncio.get_running_loop().call_soon(self._next)
                return
        self._waiting = False
        self._on_shift.kept = max(0, self._on_shift.kept - 1)
        while (one := self._next_one()) is not None:
            self._take(one)
            if one.granted is not None and not one.granted.done():
                one.granted.set_result(None)
        if self._asked:
            self._see()


def _had(share: Share) -> int:
    return share.ns


_UNKNOWN = LetterCosts()
