"""What functions of users get at once: the records of a run of one partition.

What it decides: nothing. Promises: iterating over a `Batch` makes a `Record` at a time; its `values` are the plain column. Of a
`ColumnBatch`, `polars.DataFrame(batch)` and `pyarrow.record_batch(batch)` copy nothing, and so does a single column,
`pyarrow.array(batch["amount"])`; no object stands for a record.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic

from ....core.columns.logical import Logical
from ..memory.vectors import Vector, VectorBatch
from ..values.record import K, Record, V
from .logical_arrow import LogicalVector, arrow_batch
from .records import Records


@dataclass(slots=True)
class Batch(Generic[K, V]):
    """What an actor receives: a run of records of one partition. Iterating yields `Record`s; `values` is the plain column."""

    stream: str
    partition: int
    rows: Records
    offsets: Sequence[int] = ()
    meta: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @property
    def values(self) -> list[V]:
        """The values alone, without a `Record` around each."""
        return self.rows.values

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Record[K, V]]:
        return self.rows.records()


@dataclass(slots=True)
class ColumnBatch:
    """A run of records of one partition, in columns. It speaks the Arrow PyCapsule interface."""

    stream: str
    partition: int
    columns: VectorBatch
    meta: Mapping[str, Any] = field(default_factory=dict[str, Any])
    logical: dict[str, Logical] = field(default_factory=dict[str, Logical])
    """The columns of logical types, by name."""

    def __len__(self) -> int:
        return len(self.columns)

    def __getitem__(self, name: str) -> Vector | LogicalVector:
        """A column; `.values()` makes a list of it."""
        column, kind = self.columns[name], self.logical.get(name)
        return column if kind is None else LogicalVector(column, kind)

    def __arrow_c_schema__(self) -> Any:
        return self._given().__arrow_c_schema__()

    def __arrow_c_array__(self, requested_schema: Any = None) -> tuple[Any, Any]:
        return self._given().__arrow_c_array__(requested_schema)

    def _given(self) -> Any:
        return arrow_batch(self.columns, self.logical) if self.logical else self.columns
