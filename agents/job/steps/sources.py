"""Steps whose rows come from a stream that tasks read: an input, and a shuffle through a stream of the job's own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .step import Policy, Step

if TYPE_CHECKING:
    from ....core.columns.schema import ColumnSchema
    from .keyed import AggregateStep, WindowStep

MAX_FUTURE_MS = 3_600_000
"""`max_future=` of an input, unless it is declared."""


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class InputStep(Step):
    """A topic that the job reads."""

    VERB = "input"

    topic: str
    serde: Any
    key_serde: Any = None
    key: str | Callable[[Any], Any] | None = None
    timestamp: Any = None
    max_out_of_order_ms: int = 0
    earliest_ms: int | None = 0
    """The least event time that is no bad data; None: any."""
    max_future_ms: int | None = MAX_FUTURE_MS
    """How far ahead of the broker's time an event time may be; None: any."""
    start: str | int = "oldest"
    until: Any = None
    priority: int = 0
    bootstrap: bool = False
    broadcast: bool = False
    producers: tuple[str, ...] = ()
    on_lost: str = "fail"
    partitioner: str | None = None
    on_bad_data: Policy = None
    columns: ColumnSchema | None = None
    """The columns that are decoded instead of rows: see `named_fields`. Where they cannot be, a chunk is run as rows."""
    named: Any = None
    """The serde that decodes only the fields that later steps name; None if a later step needs the whole value."""


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class ShuffleStep(Step):
    """Sends rows through an intermediate stream: each key to one task; with `everyone`, every row to every task; with `gathers`, every row
    to one task."""

    by: str | Callable[[Any], Any] | None
    serde: Any
    key_serde: Any
    partitions: int | None = None
    everyone: bool = False
    gathers: bool = False
    schema: ColumnSchema | None = None
    """The columns that go through the stream; None for rows."""
    columns: ColumnSchema | None = None
    """The columns of which rows are made, where they may go through the stream as columns; None if all steps take rows."""
    key_text: str = ""
    """The expression that makes the column `by`, as text; empty if it is decoded."""
    combine: AggregateStep | WindowStep | None = None
    """The aggregate or window behind the shuffle, whose combining begins here, before rows are sent. What fails in it is its failure."""

    @property
    def verb(self) -> str:
        """`broadcast`, `gather` or `repartition`."""
        return "broadcast" if self.everyone else "gather" if self.gathers else "repartition"

    @property
    def by_key(self) -> bool:
        """Whether the key of a row says where it goes."""
        return not (self.everyone or self.gathers)
