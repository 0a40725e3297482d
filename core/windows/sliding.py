"""Sliding windows: each row has a window of its own, the time before it. Decides which rows are in it, how long a row is kept, and how what
is in it is put together.

The window of a row at time t holds the rows of its key with t - size < time <= t: `size` ms, the last of which is the row's own. So rows of
one time are in each other's windows, which are all alike. Like any window it ends after its last millisecond, at t + 1.

Time is cut into *panes* of the size of a window, so a window lies in two panes at most: it is the last rows of the pane before, and the
first rows of the row's own. What the first rows of a pane make together grows row by row; what the last ones make together is put together
once, when the pane is over (`PastPane`). So a row costs a few joins, however many rows its window holds, and nothing is ever subtracted.

Promises:

- What is put together is in the order of the rows.
- Panes follow from time alone, so the same rows are put together in the same way: sums of floats are equal to the last bit wherever a task
  was restarted.
- No state that is given or returned is changed, as long as `join` changes none.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from math import isqrt
from typing import Generic, TypeVar

SLICES = 8
"""Rows are stored, and deleted, together with those of an eighth of a window …"""
LEAST_SLICE_MS = 1_000
"""… or of a second, if that is longer: a slice takes a row of the table."""
LEAST_BLOCK = 16
"""The fewest rows of a past pane of which each has what follows it at hand."""

S = TypeVar("S")
PutTogether = Callable[[S, S], S]
"""Puts the states of two runs of rows together, the earlier one first."""


def end_of(time: int) -> int:
    """When the window of a row of this time ends."""
    return time + 1


def closed_times(closed: int) -> int:
    """The windows of rows up to the returned time are closed. `closed`: windows that end there or before are.

    >>> closed_times(end_of(100))
    100
    """
    return closed - 1


def slice_ms(size: int) -> int:
    """How long the slices are in which rows are stored.

    >>> slice_ms(600_000), slice_ms(500)
    (75000, 1000)
    """
    return max(-(-size // SLICES), LEAST_SLICE_MS)


def slice_end(time: int, length: int) -> int:
    """The end of the slice that holds this time.

    >>> slice_end(9, 10), slice_end(10, 10), slice_end(-1, 10)
    (10, 20, 0)
    """
    return time - time % length + length


def passed(closed: int, size: int) -> int:
    """No window that is still open holds a row of the returned time, or of one before. `closed`: windows that end there or before are
    closed.

    >>> passed(end_of(100), 10)  # the next window ends at 102, and holds what is after 91
    91
    """
    return closed - size


class PastPane(Generic[S]):
    """The rows of a pane that is over, in order: what its last rows make together.

    Only what follows each block is kept, and within one block, the one that was asked for last, what follows each row: about as many states
    as twice the root of the number of rows. Time goes on, so each block is asked for once.
    """

    __slots__ = ("_behind", "_from", "_join", "_length", "_states", "_times", "_together")

    def __init__(self, times: Sequence[int], states: Sequence[S], join: PutTogether[S]) -> None:
        self._times = times
        self._states = states
        self._join = join
        self._length = max(LEAST_BLOCK, isqrt(len(times)))
        self._from = -1
        """The place of the first row of the block that was asked for last."""
        self._together: list[S] = []
        """What each row of it and all behind the row make together."""
        self._behind: list[S] = []
        """By block, what it and all blocks behind it make together; the last block comes first."""
        together: list[S] = []
        for start in reversed(range(0, len(times), self._length)):
            together = self._block(start, together[0] if together else None)
            self._behind.append(together[0])

    def _block(self, start: int, behind: S | None) -> list[S]:
        """What each row of a block and all behind it make together. `behind`: the same of the next block."""
        found: list[S] = []
        for state in reversed(self._states[start : start + self._length]):
            behind = state if behind is None else self._join(state, behind)
            found.append(behind)
        return found[::-1]

    def after(self, time: int) -> S | None:
        """What all rows after this time make together; None if there are none."""
        place = bisect_right(self._times, time)
        if place == len(self._times):
            return None
        start = place - place % self._length
        if start != self._from:
            number = len(self._behind) - 1 - start // self._length
            self._together = self._block(start, self._behind[number - 1] if number else None)
            self._from = start
        return self._together[place - start]


class KeyRows(Generic[S]):
    """The rows of one key whose windows were given out, as far as later windows may hold them."""

    __slots__ = ("last", "pane", "past", "so_far", "states", "times")

    def __init__(self) -> None:
        self.pane: int | None = None
        """The number of the last row's pane."""
        self.past: PastPane[S] | None = None
        """The pane before."""
        self.times: list[int] = []
        self.states: list[S] = []
        """The rows of the last row's pane."""
        self.so_far: S | None = None
        """What they make together."""
        self.last = 0
        """The time of the last row, which stands in the pane before if the last pane has none; 0 if there is none."""

    @property
    def any(self) -> bool:
        """Whether a later window may hold one of them."""
        return bool(self.times) or self.past is not None


class NextRows(Generic[S]):
    """What a letter adds to the rows of one key. Nothing changes them before `apply`."""

    __slots__ = ("_anew", "_join", "_last", "_pane", "_past", "_size", "_so_far", "_states", "_times", "of")

    def __init__(self, of: KeyRows[S], size: int, join: PutTogether[S]) -> None:
        self.of = of
        self._size = size
        self._join = join
        self._pane, self._past, self._so_far = of.pane, of.past, of.so_far
        self._last = of.last
        self._times: list[int] = []
        self._states: list[S] = []
        self._anew = False
        """The rows of its last pane are all its own."""

    def add(self, time: int, states: Sequence[S]) -> S:
        """Add rows of one time. Returns what their window holds, put together. If `join` raises, they are in no window, or, if it could
        only not put both panes together, in later ones. Rows that stand after this time, because records are read again, are forgotten
        with all that came before them."""
        pane = time // self._size
        if pane != self._pane or time < self._last:
            self._begin(pane)
        so_far = self._so_far
        for state in states:
            so_far = state if so_far is None else self._join(so_far, state)
        assert so_far is not None, "there is a row"
        self._so_far, self._last = so_far, time
        self._times += [time] * len(states)
        self._states += states
        before = None if self._past is None else self._past.after(time - self._size)
        return so_far if before is None else self._join(before, so_far)

    def _begin(self, pane: int) -> None:
        """Begin the pane of a row."""
        past = None
        if self._pane is not None and pane == self._pane + 1:
            times, states = self._times, self._states
            if not self._anew:
                times, states = [*self.of.times, *times], [*self.of.states, *states]
            past = PastPane(times, states, self._join)
        self._pane, self._past, self._so_far = pane, past, None
        self._times, self._states, self._anew = [], [], True

    def apply(self) -> KeyRows[S]:
        """Keep the rows."""
        of = self.of
        of.pane, of.past, of.so_far, of.last = self._pane, self._past, self._so_far, self._last
        if self._anew:
            of.times, of.states = self._times, self._states
        else:
            of.times += self._times
            of.states += self._states
        return of
