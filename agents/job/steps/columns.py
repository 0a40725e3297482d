"""Steps of columns, and the borders between rows and columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .step import Step

if TYPE_CHECKING:
    from ....core.columns.expressions import Node
    from ....core.columns.schema import ColumnSchema


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class ColumnsStep(Step):
    """Rows become columns of this schema."""

    VERB = "columns"
    passing = True
    by_row = True

    schema: ColumnSchema
    direct: bool = False
    """The columns are decoded from the bytes of the input before this step."""
    keeps: bool = False
    """An output has the fields of its record that are no columns, too."""


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class FilterColumnsStep(Step):
    """Keeps the rows for which the expression is true."""

    VERB = "filter"
    passing = True
    by_row = True

    keep: Node
    schema: ColumnSchema
    """What the expression reads."""


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class WithColumnsStep(Step):
    """Adds columns, or replaces them, by expressions."""

    VERB = "with-columns"
    passing = True
    by_row = True

    made: Mapping[str, Node]
    schema: ColumnSchema
    """What the expressions read."""


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class FrameStep(Step):
    """A function of a frame of each chunk's columns, which returns a frame."""

    VERB = "frame"
    passing = True
    by_row = True

    fn: Callable[[Any], Any]
    like: str | None
    """The library of the frame; None: the columns as they are, which speak the Arrow capsule interface."""
    schema: ColumnSchema
    """What the function gets."""
    gives: ColumnSchema
    """What it returns."""


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class RowsStep(Step):
    """Columns become rows."""

    VERB = "rows"
    passing = True
    by_row = True

    schema: ColumnSchema
    kind: Any = None
    """The type of the values; None for dicts."""
