"""Aggregates that rank rows: `arg_max`, `arg_min` and `top`.

What it decides: which of two rows comes first. By numbers, the number decides; by text, its code points; whole numbers and floats are
compared exactly, and NaN comes last either way. Text is greater than numbers. Between rows that are equal there, the lesser value comes
first: null, numbers, text, and then whatever else by its bytes in msgpack.

Promises: the result depends on which rows there are, and not on their order, their partitions, or how partial states were merged; so a
replay gives it again. States are immutable, and have as many entries as the result.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgpack

from ....core.errors import DataError, DeclarationError
from .aggregates import Aggregate, Selector, Selectors, Where, condition_of, selected, taken

MOST = 1_000
"""The greatest number of rows that `top` keeps for each key."""
RankedRow = Sequence[Any]
"""A row of a state: what it is ranked by, and its value."""
_library: Any = msgpack


def _place_of(by: Any, greatest: bool) -> tuple[Any, ...]:
    """What rows are ranked by as something that can be compared, whatever it is."""
    if by.__class__ is str:
        return 1, by
    if isinstance(by, int | float):
        return (0, by) if by == by else (-1 if greatest else 2,)
    return 1.5, _library.packb(by)


def value_order(value: Any) -> tuple[Any, ...]:
    """A value as something that can be compared, whatever it is."""
    if value is None:
        return (0,)
    if isinstance(value, str):
        return 2, value
    if isinstance(value, int | float):
        return (1, value, type(value).__name__) if value == value else (1.5,)
    return 3, _library.packb(value)


def _said(by: Any) -> str:
    return f"'{by}'" if isinstance(by, str) else "what by= selects"


def _comes_before(one: RankedRow, other: RankedRow, greatest: bool) -> bool:
    """Whether the first of two rows is ranked higher."""
    by, than = one[0], other[0]
    if (
        by.__class__ is than.__class__
        and by != than
        and by == by
        and than == than
        and by.__class__ in (int, float, str)
    ):
        return (by > than) is greatest
    place, against = _place_of(by, greatest), _place_of(than, greatest)
    if place != against:
        return (place > against) is greatest
    return value_order(one[1]) < value_order(other[1])


def arg_max(of: Selectors, by: Selector, *, where: Where = None) -> Aggregate:
    """The value of one field in the row in which another is greatest: `hg.arg_max("item", by="price")`. None before the first row.
    With several fields, `hg.arg_max(["item", "buyer"], by="price")`, a dict of them.

    Of rows that are equal in `by`, the one with the least value is taken, whatever the order in which they come: so the result is the same
    after a replay, and however partial states are merged. A null in `by` is an error of its record; NaN counts as less than any number.
    """
    return _extreme("arg_max", of, by, where, greatest=True)


def arg_min(of: Selectors, by: Selector, *, where: Where = None) -> Aggregate:
    """The value of one field in the row in which another is least. As `arg_max` otherwise; NaN counts as more than any number."""
    return _extreme("arg_min", of, by, where, greatest=False)


def _extreme(name: str, of: Selectors, by: Selector, where: Where, *, greatest: bool) -> Aggregate:
    def add(state: RankedRow, row: RankedRow) -> RankedRow:
        value, at = row
        if at is None:
            raise DataError(
                f"hg.{name}(): {_said(by)} is null", remedy="filter such records before, or leave them out by where="
            )
        made = (at, value)
        return state if state and not _comes_before(made, state, greatest) else made

    def merge(state: RankedRow, other: RankedRow) -> RankedRow:
        if not state or not other:
            return state or other
        return other if _comes_before(other, state, greatest) else state

    def fold(states: list[Any], places: Sequence[int], rows: Sequence[Any]) -> None:
        for place, row in zip(places, rows, strict=True):
            state = states[place]
            if not state:
                states[place] = (row[1], row[0])
                continue
            try:
                if (state[0] > row[1]) if greatest else (state[0] < row[1]):
                    continue
            except TypeError:  # former code ranked by another type
                pass
            states[place] = add(state, row)

    return Aggregate(
        name,
        taken(of, name),
        tuple,
        add,
        merge,
        lambda state: state[1] if state else None,
        by=selected(by, f"{name}(by=…)"),
        fold=fold,
        where=condition_of(where, name),
    )


def top(n: int, of: Selectors | None = None, *, by: Selector | None = None, where: Where = None) -> Aggregate:
    """The values of a field in the `n` rows in which another is greatest, as a list: `hg.top(3, "item", by="price")`; of several fields,
    dicts: `hg.top(3, ["item", "buyer"], by="price")`.

    With one of the two fields alone, its own `n` greatest values: `hg.top(3, by="price")`. Rows are ranked as by `arg_max`, so the result
    does not depend on the order in which they come; rows that are equal all count. A state has up to `n` entries, and `n` is at most 1,000.
    """
    if type(n) is not int or not 1 <= n <= MOST:
        raise DeclarationError(f"hg.top({n!r})", remedy=f"how many rows are kept: a whole number from 1 to {MOST:,}")
    if of is None and by is None:
        raise DeclarationError(
            f"hg.top({n})", remedy=f'say what is kept, and what decides: hg.top({n}, "item", by="price")'
        )
    if by is None and isinstance(of, list | tuple):
        raise DeclarationError(f"hg.top({n}, {of!r:.60})", remedy='say what decides: by="price"')
    what: Any = of if of is not None else by
    by = by if by is not None else what

    def add(state: Sequence[RankedRow], row: RankedRow) -> Sequence[RankedRow]:
        value, at = row
        if at is None:
            raise DataError(
                f"hg.top(): {_said(by)} is null", remedy="filter such records before, or leave them out by where="
            )
        made = (at, value)
        place, behind = 0, len(state)
        while place < behind:
            middle = (place + behind) // 2
            if _comes_before(made, state[middle], True):
                behind = middle
            else:
                place = middle + 1
        return state if place == n else (*state[:place], made, *state[place : n - 1])

    def merge(state: Sequence[RankedRow], other: Sequence[RankedRow]) -> Sequence[RankedRow]:
        rows = sorted((*state, *other), key=lambda row: value_order(row[1]))
        rows.sort(key=lambda row: _place_of(row[0], True), reverse=True)  # equal ones keep their order
        return tuple(rows[:n])

    def fold(states: list[Any], places: Sequence[int], rows: Sequence[Any]) -> None:
        for place, row in zip(places, rows, strict=True):
            state = states[place]
            try:
                if len(state) == n and state[-1][0] > row[1]:
                    continue
            except TypeError:  # former code ranked by another type
                pass
            states[place] = add(state, row)

    return Aggregate(
        "top",
        taken(what, "top"),
        tuple,
        add,
        merge,
        lambda state: [row[1] for row in state],
        by=selected(by, "top(by=…)"),
        fold=fold,
        grows=True,
        where=condition_of(where, "top"),
    )
