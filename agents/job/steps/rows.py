"""Steps that take one row at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .step import Step


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class MapStep(Step):
    """One value in, one out."""

    VERB = "map"
    passing = True
    by_row = True

    fn: Callable[[Any], Any]
    with_record: bool = False


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class FlatMapStep(Step):
    """One value in, any number out."""

    VERB = "flat-map"
    passing = True
    by_row = True

    fn: Callable[[Any], Any]
    with_record: bool = False


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class FilterStep(Step):
    """Keeps the rows for which the function is true."""

    VERB = "filter"
    passing = True
    by_row = True

    fn: Callable[[Any], Any]
    with_record: bool = False


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class PeekStep(FilterStep):
    """Keeps every row, and shows it to the function."""

    VERB = "peek"


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class MapAsyncStep(Step):
    """Awaits a coroutine per row, `concurrency` at a time; results keep the order of their input."""

    VERB = "map-async"

    fn: Callable[[Any], Any]
    concurrency: int = 16
    with_record: bool = False


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class MergeStep(Step):
    """Merges several streams into one."""

    VERB = "merge"
    passing = True


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class EventsStep(Step):
    """From here on, each update counts as an event of its own."""

    VERB = "as-events"
    passing = True


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class RekeyStep(Step):
    """Sets another key, on the same partition. Of the steps that use this key, only a shuffle or an output may follow."""

    VERB = "rekey"
    passing = True
    by_row = True

    by: str | Callable[[Any], Any]
