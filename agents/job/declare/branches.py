"""`.branch(…)`: each record goes to the first of several streams whose condition holds.

It is several filters of one stream: each asks the conditions before its own, too, so nothing is copied and nothing waits.

Promise: a record is in at most one of the streams, and in none only if no condition is true for it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from ....core.columns.expressions import Expression
from ....core.errors import DeclarationError
from ..types.arguments import check_function

Condition = Expression | Callable[[Any], Any]


def branches(conditions: tuple[Condition, ...], *, columns: bool = False) -> list[Condition]:
    """What each of the streams keeps."""
    if not conditions:
        raise DeclarationError(
            "branch() without a condition", remedy="large, small = orders.branch(is_large, is_small)"
        )
    of_columns = [isinstance(one, Expression) for one in conditions]
    if columns or all(of_columns):
        return _apart([_expression(one) for one in conditions])
    if any(of_columns):
        raise DeclarationError(
            "branch() of expressions and functions: neither can ask the other", remedy="conditions of one kind"
        )
    for one in conditions:
        check_function(one, "branch")
    return [_first(one, conditions[:place]) for place, one in enumerate(conditions)]  # type: ignore[arg-type]


def _expression(condition: Any) -> Expression:
    if not isinstance(condition, Expression):
        raise DeclarationError(
            f"branch() of columns needs expressions, not {condition!r:.80}",
            remedy='large, small = orders.branch(hg.col("amount") >= 100, hg.col("amount") < 100)',
        )
    return condition


def _apart(conditions: list[Expression]) -> list[Condition]:
    """Null is not true, so that a later stream may take the record."""
    kept: list[Condition] = []
    for place, one in enumerate(conditions):
        for before in conditions[:place]:
            one = (~before | before.is_null()) & one
        kept.append(one)
    return kept


def _first(condition: Callable[[Any], Any], before: tuple[Callable[[Any], Any], ...]) -> Condition:
    if not before:
        return condition

    @wraps(condition)
    def holds_first(value: Any) -> bool:
        return not any(other(value) for other in before) and bool(condition(value))

    return holds_first
