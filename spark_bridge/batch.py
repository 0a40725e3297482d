"""A bounded batch, as the user's function sees it, and its rows on the way to Spark and back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .errors import SparkPlanError


@dataclass(frozen=True, slots=True)
class SparkBatch:
    """What `fn(df, batch)` is told of its batch. `id` and contents stay the same, however often the batch is run."""

    task: str
    stage: str
    number: int
    rows: int
    closed_by: str
    """`rows`, `bytes`, `age`, `end` or `drain`."""

    @property
    def id(self) -> str:
        """Task, stage and number."""
        return f"{self.task}/{self.stage}/{self.number}"


def to_arrow(values: Sequence[Any]) -> Any:
    """Rows as an Arrow table; never as Python rows into Spark."""
    import pyarrow as pa

    try:
        return pa.Table.from_pylist(list(values))
    except (pa.ArrowInvalid, pa.ArrowTypeError, AttributeError, TypeError) as error:
        raise SparkPlanError(
            f"the rows of the batch do not make a table: {error}",
            remedy="rows are flat dicts whose fields have one type each: .map() them before .batch()",
        ) from error


def from_arrow(table: Any) -> list[dict[str, Any]]:
    """Result rows, in order."""
    return table.to_pylist()
