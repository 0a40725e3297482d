"""How many rows a letter of each stream may have at most, and shall have at least, by what the operators do with them.

- At most: a row that is put into many windows stands in a list for each of them until its chunk is complete, so rows times windows are
  bounded. One that asks a service takes as many rows as it can ask for in a short time.
- At least: an operator that awaits several rows at a time gets so many at once. Awaited time holds up no one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from ....core.windows.spans import most_rows
from ...records.frames.arrow_frames import COLUMN_FRAME_RECORDS
from ...records.frames.framing import FRAME_RECORDS
from ..base.stateless import Operator
from ..source.decode import SourceOp


class LetterBounds(NamedTuple):
    """By stream; a stream that is not named has no such bound."""

    most: dict[str, int]
    least: dict[str, int]


NO_BOUNDS = LetterBounds({}, {})


def letter_bounds(operators: Iterable[Operator], sources: Mapping[str, SourceOp]) -> LetterBounds:
    """The bounds of these streams. `operators`: a parent comes before its children."""
    last_first = list(operators)[::-1]
    windows = _behind(last_first, lambda one, behind: one.windows_of_row + sum(behind))
    together = _behind(last_first, lambda one, behind: max(one.rows_at_once, *behind, 1))
    asked = _behind(
        last_first, lambda one, behind: min((rows for rows in (one.rows_at_most, *behind) if rows), default=0)
    )
    most: dict[str, int] = {}
    least: dict[str, int] = {}
    for stream, source in sources.items():
        bounds = [bound for child in source.children if (bound := asked[id(child)])]
        if (found := sum(windows[id(child)] for child in source.children)) > 1:
            bounds.append(most_rows(found))
        if bounds:
            most[stream] = min(bounds)
        if (rows := max((together[id(child)] for child in source.children), default=1)) > 1:
            least[stream] = rows
    return LetterBounds(most, least)


def frame_bounds(bounds: LetterBounds, sources: Mapping[str, SourceOp]) -> dict[str, int]:
    """By stream, how many rows a frame may have: it is read whole, so it has no more than a letter, and few where rows cost much."""
    usual = {stream: COLUMN_FRAME_RECORDS if source.bulk else FRAME_RECORDS for stream, source in sources.items()}
    return {stream: min(most, bounds.most.get(stream, most)) for stream, most in usual.items()}


def _behind(last_first: Iterable[Operator], of: Callable[[Operator, list[int]], int]) -> dict[int, int]:
    """A figure of each operator and all behind it, by the operator's id."""
    found: dict[int, int] = {}
    for operator in last_first:
        found[id(operator)] = of(operator, [found[id(child)] for child in operator.children])
    return found
