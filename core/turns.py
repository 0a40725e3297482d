"""How long the letters of a stream may be, so that a turn of the main loop has a time.

What it decides: how many rows the next letter takes, from what the last letters of its stream cost. Promises:

- A letter is one row at first. It becomes at most `GROWTH` times as long as the one before, until it takes about a turn: `TURN_NS` while a
  commit is under way, `QUIET_NS` while none is.
- A part of a letter's cost does not depend on its length, for example the request of a sink. If that part alone is a quarter of the turn or
  more, letters stay long enough to be at least three times as long as it. So rows never wait for what a shorter letter would not save.
- No letter is shorter than what an operator awaits at a time (`least`), and none is longer than the settings permit (`most`).
- A letter that cost something else altogether shows that the rows are others now: what was known is forgotten.
- Where nothing is known of time (a turn has no meaning in virtual time), no one asks: letters are as long as the settings permit.
"""

from __future__ import annotations

from dataclasses import dataclass

TURN_NS = 3_000_000
"""How long the letters of one turn of the main loop take in all, while a commit is under way: it takes many turns."""
QUIET_NS = 12_000_000
"""How long they take while no commit is under way. A letter itself, from the choice of its stream to the end of its work, costs 0.5 to
0.9 ms of the processor: 4 to 8 % of such a turn, and up to a third of a shorter one.
"""
GROWTH = 8
"""How many times as long as the one before a letter may be."""
KEPT = 15 / 16
"""How much of what was known stays after another letter."""
EVERY = 8
"""One in so many letters is half as long, or has two rows instead of one: what that saves shows which part of the cost is that of rows."""
SURPRISE = 8
"""A letter that takes so many times as long as expected, or so many times less, and a turn was at stake, is a surprise."""
LEAST_SHARE = 1 / 16
"""At least this share of a letter's cost is taken to be that of its rows: measured times vary."""
ROWS_SHARE = 3
"""How many times as long as the rest of a letter its rows take at least."""


@dataclass(frozen=True, slots=True)
class LetterCosts:
    """What letters of one stream cost lately.

    >>> costs = LetterCosts()
    >>> for _ in range(6):
    ...     costs = costs.after(costs.length(2000), costs.length(2000) * 1_000_000)
    >>> costs.length(2000)
    3
    """

    letters: int = 0
    last: int = 0
    """How many rows the last letter had."""
    weight: float = 0.0
    rows: float = 0.0
    ns: float = 0.0
    rows2: float = 0.0
    rows_ns: float = 0.0
    """Sums over the letters, in which each counts less after the next: of 1, rows, time, rows times rows, and rows times time."""

    def after(self, rows: int, ns: int) -> LetterCosts:
        """Another letter of so many rows took so long. The first one of a stream only counts as one: it does what is done once."""
        if rows <= 0:
            return self
        if not self.letters or self._surprised(rows, ns):
            return LetterCosts(1, rows)
        kept = KEPT
        return LetterCosts(
            self.letters + 1,
            rows,
            self.weight * kept + 1,
            self.rows * kept + rows,
            self.ns * kept + ns,
            self.rows2 * kept + rows * rows,
            self.rows_ns * kept + rows * ns,
        )

    def _surprised(self, rows: int, ns: int) -> bool:
        """Whether the rows are others than those that the letters before had."""
        if self.letters < EVERY:
            return False
        expected = self.expected_ns(rows)
        return (ns > TURN_NS and ns > SURPRISE * expected) or (expected * 2 > TURN_NS and expected > SURPRISE * ns)

    def costs(self) -> tuple[float, float]:
        """What a letter costs apart from its rows, and what a row costs, in nanoseconds.

        >>> costs = LetterCosts().after(1, 9)
        >>> for rows in (1, 8, 64, 512):
        ...     costs = costs.after(rows, 10_000 + 100 * rows)
        >>> [round(one) for one in costs.costs()]
        [10000, 100]
        """
        if not self.rows:
            return 0.0, 0.0
        mean_rows, mean_ns = self.rows / self.weight, self.ns / self.weight
        most = self.ns / self.rows
        spread = self.rows2 / self.weight - mean_rows * mean_rows
        row_ns = most
        if spread > 1e-3 * mean_rows * mean_rows:
            row_ns = (self.rows_ns / self.weight - mean_rows * mean_ns) / spread
        row_ns = min(max(row_ns, most * LEAST_SHARE), most)
        return max(0.0, mean_ns - row_ns * mean_rows), row_ns

    def length(self, most: int, least: int = 1, turn_ns: int = TURN_NS) -> int:
        """How many rows the next letter takes, from `least` to `most`, if the turn takes so long."""
        return min(most, max(least, self._fitting(most, turn_ns)))

    def _fitting(self, most: int, turn_ns: int) -> int:
        if self.letters < 2:
            return 1
        apart_ns, row_ns = self.costs()
        fits = most if row_ns <= 0 else int(max(turn_ns - apart_ns, ROWS_SHARE * apart_ns) / row_ns)
        if self.letters == 2:
            fits = max(fits, 2)  # only two lengths tell which part of the cost is that of rows
        fits = max(1, min(most, fits, GROWTH * self.last))
        if self.letters % EVERY:
            return fits
        return fits // 2 if fits > 1 else min(most, 2)

    def expected_ns(self, rows: int) -> int:
        """How long a letter of so many rows will take; a whole turn if nothing is known."""
        if self.letters < 2:
            return TURN_NS
        apart_ns, row_ns = self.costs()
        return int(apart_ns + row_ns * rows)
