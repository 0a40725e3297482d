"""Steps that take one row at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..types.arguments import returned
from .row_columns import of_function
from .step import AS_BEFORE, Step

if TYPE_CHECKING:
    from ....core.columns.schema import ColumnSchema


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class FunctionStep(Step):
    """Calls a function with each value, or with each record."""

    passing = True
    by_row = True
    at_once = True

    fn: Callable[[Any], Any]
    with_record: bool = False

    @property
    def key_type(self) -> Any:
        return None if self.with_record else AS_BEFORE  # a function of a record may return one with another key

    def row_columns(self, *, encoded: bool) -> ColumnSchema:
        if self.keeps_values:
            return Step.row_columns(self, encoded=encoded)
        return of_function(self.said, self.fn, encoded)


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class MapStep(FunctionStep):
    """One value in, one out."""

    VERB = "map"
    RUN_BY = "base.stateless.MapOp"


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class FlatMapStep(FunctionStep):
    """One value in, any number out."""

    VERB = "flat-map"
    RUN_BY = "base.stateless.FlatMapOp"

    def row_columns(self, *, encoded: bool) -> ColumnSchema:
        return of_function(self.said, self.fn, encoded, each=True)


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class FilterStep(FunctionStep):
    """Keeps the rows for which the function is true."""

    VERB = "filter"
    RUN_BY = "base.stateless.FilterOp"
    keeps_values = True


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class PeekStep(FilterStep):
    """Keeps every row, and shows it to the function."""

    VERB = "peek"
    RUN_BY = "base.stateless.PeekOp"


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class MapAsyncStep(FunctionStep):
    """Awaits a coroutine per row, `concurrency` at a time; results keep the order of their input."""

    VERB = "map-async"
    RUN_BY = "actors.asynchronous.MapAsyncOp"
    passing = False
    by_row = False
    at_once = False

    concurrency: int = 16


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class LookupStep(FunctionStep):
    """Asks a service for each row, or for several at a time, and puts the answer into the row."""

    VERB = "lookup"
    RUN_BY = "lookups.lookup.LookupOp"
    passing = False
    by_row = False
    at_once = False

    into: Callable[[Any, Any], Any] | None = None
    """Of the value and the answer; None: the answer is the value."""
    on: str | Callable[[Any], Any] | None = None
    """What is asked for; None: the value."""
    cache_ms: int = 0
    max_cached: int = 0
    per_s: float = 0.0
    """How many calls there may be in a second; 0: any number."""
    batch: int = 1
    concurrency: int = 1
    timeout_s: float = 0.0
    retry: int = 0
    breaker: int = 0
    away: tuple[type[BaseException], ...] = ()
    """Errors that say that the service is away."""

    def row_columns(self, *, encoded: bool) -> ColumnSchema:
        several = self.into is None and self.batch > 1
        return of_function(self.said, self.into or self.fn, encoded, each=several)


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class PassingStep(Step):
    """Passes on what comes in, rows or columns."""

    passing = True
    keeps_values = True
    keeps_columns = True

    def fields(self) -> frozenset[str]:
        return frozenset()

    @property
    def columns_given(self) -> ColumnSchema | None:
        return self.parents[0].columns_given


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class MergeStep(PassingStep):
    """Merges several streams into one."""

    VERB = "merge"
    RUN_BY = "base.stateless.Operator"


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class EventsStep(PassingStep):
    """From here on, each update counts as an event of its own."""

    VERB = "as-events"
    RUN_BY = "base.stateless.Operator"


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class RekeyStep(Step):
    """Sets another key, on the same partition. Of the steps that use this key, only a shuffle or an output may follow."""

    VERB = "rekey"
    RUN_BY = "base.stateless.RekeyOp"
    passing = True
    by_row = True
    at_once = True
    keeps_values = True

    by: str | Callable[[Any], Any]

    @property
    def key_type(self) -> Any:
        return returned(self.by)

    @property
    def keeps_keys(self) -> bool:
        return False
