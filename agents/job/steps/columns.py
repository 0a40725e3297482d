"""Steps of columns, and the borders between rows and columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ....core.columns.elements import exploded
from ....core.columns.expressions import ColumnRef, columns_in
from ....core.columns.schema import ColumnSchema, ColumnSpec
from ....core.columns.typing import column_of
from ...records.values.serdes import Serde, json, raw, text
from .row_columns import ColumnsUnknown, of_type
from .step import Step

if TYPE_CHECKING:
    from ....core.columns.expressions import Node
    from ....core.columns.logical import Logical


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class OfColumnsStep(Step):
    """Makes columns, works on them, or makes rows of them."""

    passing = True
    by_row = True

    schema: ColumnSchema
    """The columns that come in, or that are made of rows."""

    def key_columns(self) -> frozenset[str]:
        before = self.parents[0].key_columns()
        made = self.computed
        if made is None:
            return before
        same = {name for name, node in made.items() if isinstance(node, ColumnRef) and node.name in before}
        return before.difference(made).union(same)


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class ColumnsStep(OfColumnsStep):
    """Rows become columns of this schema."""

    VERB = "columns"
    RUN_BY = "plain.columnar.ColumnsOp"

    direct: bool = False
    """The columns are decoded from the bytes of the input before this step."""
    keeps: bool = False
    """An output has the fields of its record that are no columns, too."""

    @property
    def keeps_keys(self) -> bool:
        return True

    @property
    def takes_columns(self) -> bool:
        return True

    @property
    def gives_columns(self) -> bool:
        return True

    @property
    def columns_given(self) -> ColumnSchema:
        return self.schema

    @property
    def fetched(self) -> Any:
        return self.parents[0] if self.direct else None


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class FilterColumnsStep(OfColumnsStep):
    """Keeps the rows for which the expression is true."""

    VERB = "filter"
    RUN_BY = "plain.columnar.FilterColumnsOp"
    at_once = True
    keeps_values = True
    keeps_columns = True

    keep: Node

    def fields(self) -> frozenset[str]:
        return frozenset(columns_in(self.keep))

    @property
    def computed(self) -> Mapping[str, Node]:
        return {}

    @property
    def columns_given(self) -> ColumnSchema:
        return self.schema


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class WithColumnsStep(OfColumnsStep):
    """Adds columns, or replaces them, by expressions."""

    VERB = "with-columns"
    RUN_BY = "plain.columnar.WithColumnsOp"
    at_once = True
    keeps_columns = True

    made: Mapping[str, Node]

    @property
    def computed(self) -> Mapping[str, Node]:
        return self.made

    @property
    def columns_given(self) -> ColumnSchema:
        return self.schema.extended([column_of(name, node, self.schema) for name, node in self.made.items()])


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class SelectColumnsStep(OfColumnsStep):
    """Passes on the columns that these expressions make, in this order, and no others."""

    VERB = "select"
    RUN_BY = "plain.columnar.SelectColumnsOp"
    at_once = True

    made: Mapping[str, Node]

    def key_columns(self) -> frozenset[str]:
        before = self.parents[0].key_columns()
        same = (name for name, node in self.made.items() if isinstance(node, ColumnRef) and node.name in before)
        return frozenset(same)

    @property
    def keeps_keys(self) -> bool:
        return True

    @property
    def gives_columns(self) -> bool:
        return True

    @property
    def columns_given(self) -> ColumnSchema:
        return ColumnSchema(tuple(column_of(name, node, self.schema) for name, node in self.made.items()))


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class KeyAsStep(OfColumnsStep):
    """Adds the key of each record as a column."""

    VERB = "key-as"
    RUN_BY = "plain.key_columns.KeyAsOp"

    made: ColumnSpec

    @property
    def keeps_keys(self) -> bool:
        return True

    @property
    def gives_columns(self) -> bool:
        return True

    @property
    def columns_given(self) -> ColumnSchema:
        return self.schema.extended([self.made])


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class ExplodeStep(OfColumnsStep):
    """Makes a row of each element of a list."""

    VERB = "explode"
    RUN_BY = "plain.columnar.ExplodeOp"
    at_once = True

    column: str
    """The list."""
    element: Logical
    """The type of its elements; they may be null if rows without elements stay."""
    title: str
    """The column of an element or, if it is an object, what comes before the names of its fields."""
    made: tuple[ColumnSpec, ...]
    """The columns of an element."""
    keep_empty: bool
    """A row whose list has no elements, or is null, stays, without an element."""

    def key_columns(self) -> frozenset[str]:
        return self.parents[0].key_columns() - {self.column}

    @property
    def keeps_keys(self) -> bool:
        return True

    @property
    def gives_columns(self) -> bool:
        return True

    @property
    def columns_given(self) -> ColumnSchema:
        return exploded(self.schema, self.column, self.made)


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class FrameStep(OfColumnsStep):
    """A function of a frame of each chunk's columns, which returns a frame."""

    VERB = "frame"
    RUN_BY = "plain.framed.FrameOp"

    fn: Callable[[Any], Any]
    like: str | None
    """The library of the frame; None: the columns as they are, which speak the Arrow capsule interface."""
    gives: ColumnSchema
    """What it returns."""

    def key_columns(self) -> frozenset[str]:
        return frozenset()

    @property
    def columns_given(self) -> ColumnSchema:
        return self.gives


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class RowsStep(OfColumnsStep):
    """Columns become rows."""

    VERB = "rows"
    RUN_BY = "plain.columnar.RowsOp"

    kind: Any = None
    """The type of the values; None for dicts."""

    @property
    def keeps_keys(self) -> bool:
        return True

    @property
    def serde(self) -> Serde[Any]:
        """JSON of its type, or the serde of values that were one column."""
        return text() if self.kind is str else raw() if self.kind is bytes else json(self.kind)

    @property
    def values_type(self) -> Any:
        """Its type, or else its columns."""
        if self.kind is None and self.schema.nested:
            return None  # dicts whose fields are dicts
        return self.kind if self.kind is not None else self.schema

    def declaring(self) -> RowsStep:
        return self

    def row_columns(self, *, encoded: bool) -> ColumnSchema:
        if self.kind is None and self.schema.nested:
            raise ColumnsUnknown(f"{self.said} has nested objects")
        return self.schema if self.kind is None else of_type(self.kind, encoded)
