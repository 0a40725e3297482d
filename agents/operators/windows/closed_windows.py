"""What a step of closing takes out of windows, or early results of them: keys with their windows and states, in the order of the results.

What it decides: which results are columns. States of numbers in arrays stay there, so that no object stands for a result; all others are
lists.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ...records.columns.groups import numbers_in
from ...records.memory.taking import join
from ...records.memory.vectors import Vector
from ..base.key_arrays import KeyArrays
from ..base.state_cells import CellColumn


class CellStates(NamedTuple):
    """States of some keys as cells, which later rows do not change."""

    arrays: KeyArrays
    vectors: Sequence[CellColumn]

    def listed(self) -> list[list[Any]]:
        """The same, each state as a list."""
        return self.arrays.lists(self.vectors)


SomeStates = list[list[Any]] | CellStates


class ClosedWindows(NamedTuple):
    """What one step takes out: parallel columns in the order of the results. `more`: another step is needed."""

    starts: list[int]
    ends: list[int]
    keys: list[Any]
    parts: list[SomeStates]
    """The states, one window after the other."""
    more: bool = False

    @property
    def states(self) -> list[list[Any]]:
        """The states, each as a list."""
        return [state for part in self.parts for state in listed(part)]

    @property
    def of_numbers(self) -> bool:
        """Whether all states are numbers in arrays."""
        return all(isinstance(part, CellStates) and not part.arrays.has_objects for part in self.parts)

    def results(self) -> list[Vector]:
        """What users see of states that are `of_numbers`, a column for each aggregate."""
        found = [part.arrays.results(part.vectors) for part in self.parts if isinstance(part, CellStates)]
        return [_together(columns) for columns in zip(*found, strict=True)]


def listed(part: SomeStates) -> list[list[Any]]:
    """States, each as a list."""
    return part.listed() if isinstance(part, CellStates) else part


def _together(columns: Sequence[Vector]) -> Vector:
    """Columns of numbers, one behind the other. Those of two windows may be of two kinds."""
    if len({one.kind for one in columns}) == 1:
        return columns[0] if len(columns) == 1 else join(columns)
    made = numbers_in([value for one in columns for value in one.values()])
    assert made is not None, "each of them has numbers of 64 bits"
    return made
