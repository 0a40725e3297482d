"""What the function of a column stream's `sink` gets: records of one partition in columns, which other libraries take over.

What it decides: nothing. Promises: `polars.DataFrame(batch)` and `pyarrow.record_batch(batch)` copy nothing, and so does a single column,
`pyarrow.array(batch["amount"])`; no object stands for a record.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..memory.vectors import Vector, VectorBatch


@dataclass(slots=True)
class ColumnBatch:
    """A run of records of one partition, in columns. It speaks the Arrow PyCapsule interface."""

    stream: str
    partition: int
    columns: VectorBatch
    meta: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def __len__(self) -> int:
        return len(self.columns)

    def __getitem__(self, name: str) -> Vector:
        """A column; `.values()` makes a list of it."""
        return self.columns[name]

    def __arrow_c_schema__(self) -> Any:
        return self.columns.__arrow_c_schema__()

    def __arrow_c_array__(self, requested_schema: Any = None) -> tuple[Any, Any]:
        return self.columns.__arrow_c_array__(requested_schema)
