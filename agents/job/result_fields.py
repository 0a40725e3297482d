"""Fields that verbs name behind a Spark stage, whose schema says which there are: a name that is wrong is said where it is declared."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ...core.spark_schema import check_column
from . import steps as s

PASSING = (s.FilterStep, s.EventsStep, s.RekeyStep, s.MergeStep, s.ShuffleStep)
"""Steps whose rows are those that came in."""


def check_field(step: s.Step, by: Any, where: str) -> None:
    """Refuse the name of a field that no row behind this step has. What is no name, such as a function, passes."""
    if isinstance(by, str):
        for columns in _results(step):
            check_column(by, columns, where)


def _results(step: s.Step) -> Iterator[tuple[str, ...]]:
    """The columns of the Spark stages whose rows this step passes on as they are."""
    stack = [step]
    while stack:
        one = stack.pop()
        if isinstance(one, s.SparkStep):
            yield one.columns
        elif isinstance(one, PASSING):
            stack += one.parents
