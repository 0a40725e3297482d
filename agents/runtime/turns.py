"""The turns of the main loop: which letters of the tasks run in one, how long they are, and what goes first.

Promises:

- The letters that begin in one turn of the loop take about `TURN_NS` in all while a commit is under way, and `QUIET_NS` while none is,
  whatever the number of tasks; one that takes longer has a turn for itself.
- Letters begin in the order in which they asked, so no task waits for another one's second letter.
- While a commit is under way, `SPARE` turns without a letter follow each one with letters: a commit takes many turns, each of them short.
- What counts is the time that a letter holds the loop. While a letter awaits something, others run.
- In virtual time, where code takes no time, nothing waits, and letters are as long as the settings permit.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from ...core.turns import QUIET_NS, TURN_NS, LetterCosts
from ..measured import Clocks

SPARE = 8


class _Asked(NamedTuple):
    """A letter that waits for its turn."""

    granted: asyncio.Future[None]
    expected_ns: int


class LoopTurns:
    """The turns of one process."""

    def __init__(self, clocks: Clocks | None, hurried: Callable[[], bool]) -> None:
        """`clocks`: None in virtual time. `hurried`: whether a commit is under way."""
        self.clocks = clocks
        self._hurried = hurried
        self._costs: dict[str, LetterCosts] = {}
        """By stream."""
        self._asked: deque[_Asked] = deque()
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

    def expected_ns(self, stream: str, rows: int) -> int:
        """For how long a letter will hold the loop."""
        return self._costs.get(stream, _UNKNOWN).expected_ns(rows)

    # ------------------------------------------------------------------------------------------------------- turns

    async def enter(self, expected_ns: int) -> int:
        """Wait for the turn of a letter that will hold the loop for so long. Returns the number of the turn."""
        if self.clocks is None:
            return 0
        if not self._asked and self._fits(expected_ns):
            self._take(expected_ns)
            return self._turn
        one = _Asked(asyncio.get_running_loop().create_future(), expected_ns)
        self._asked.append(one)
        self._see()
        try:
            await one.granted
        except asyncio.CancelledError:
            if one in self._asked:
                self._asked.remove(one)
            raise  # if it was granted already, the next turn comes all the same
        return self._turn

    def _fits(self, expected_ns: int) -> bool:
        return not self._spare and (not self._began or expected_ns <= self._left_ns)

    def _take(self, expected_ns: int) -> None:
        if not self._began:
            self._began, self._left_ns = True, self._turn_ns()
        self._left_ns -= expected_ns
        self._see()

    def used(self, turn: int, expected_ns: int, ns: int) -> None:
        """A letter that began in this turn has held the loop for so long, and not for as long as expected."""
        if turn == self._turn and self._began:
            self._left_ns += expected_ns - ns

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
        while self._asked and self._fits(self._asked[0].expected_ns):
            one = self._asked.popleft()
            if not one.granted.done():
                one.granted.set_result(None)
                self._take(one.expected_ns)
        if self._asked:
            self._see()


_UNKNOWN = LetterCosts()
