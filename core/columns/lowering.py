"""Expressions over columns of logical types, as expressions over what these are stored as.

What it decides: what may be asked of times, dates, decimals and the others, and by which whole numbers it is computed. Promises:

- The expression that comes out reads the same columns as they are stored (`ColumnSchema.stored`), so that whatever computes expressions
  knows the four stored types alone, and gives the same values.
- What has no meaning is refused with the part of the expression that has it, and what to write instead.
- Decimals are computed exactly, in 64 bits: a result of more is an error of its record, as of whole numbers.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

from ..errors import DeclarationError
from . import expressions as e
from .calendar import DAY_MS, PARTS
from .logical import (
    COMPUTED_DIGITS,
    DATE,
    DAY_US,
    DECIMAL,
    LOCAL,
    MOST_DIGITS,
    TIMES,
    TIMESTAMP,
    WHOLE,
    Logical,
    NotStorable,
    decimal,
    of_constant,
    stored,
)
from .schema import INT, MOST, ColumnSchema

COMPARISONS = frozenset((e.EQUAL, e.UNEQUAL, e.LESS, e.AT_MOST, e.MORE, e.AT_LEAST))
_CHOICES = frozenset((e.WHEN, e.COALESCE, e.LEAST_OF, e.GREATEST_OF))
_CLOCK = frozenset(("hour", "minute", "second"))
_MS = 1000


class Lowered(NamedTuple):
    """An expression over stored columns, and what its values mean."""

    node: e.Node
    logical: Logical | None = None


def lowered(node: e.Node, schema: ColumnSchema) -> Lowered:
    """The expression over stored columns; a `DeclarationError` if it has no meaning.

    >>> from .schema import ColumnSpec
    >>> schema = ColumnSchema((ColumnSpec("at", INT, logical=Logical(TIMESTAMP)),))
    >>> print(lowered(e.col("at").year().node, schema).node)
    (at // 1000).year()
    """
    found = _lowered(node, schema)
    if found.logical is not None and isinstance(found.node, e.Constant) and of_constant(found.node.value) is not None:
        return Lowered(e.Constant(_number(node, found.node.value, found.logical)), found.logical)
    return found


def _lowered(node: e.Node, schema: ColumnSchema) -> Lowered:
    if isinstance(node, e.ColumnRef):
        return Lowered(node, schema[node.name].logical)
    if isinstance(node, e.Constant):
        return Lowered(node, of_constant(node.value))  # becomes what it is stored as where it meets a column
    of = [_lowered(one, schema) for one in node.of]
    if node.name == e.CAST and node.options[0] == DATE and of[0].logical is None:
        raise DeclarationError(
            f"{node}: only a timestamp can be cast to a date", remedy="declare the field with that type"
        )
    if all(one.logical is None for one in of) and all(of_constant(one) is None for one in node.options):
        return Lowered(replace(node, of=tuple(one.node for one in of)))
    return _operation(node, of)


def _operation(node: e.Operation, of: list[Lowered]) -> Lowered:
    name = node.name
    if name == e.IS_NULL:
        return Lowered(replace(node, of=(_whole(node, of[0]).node,)))
    if name in COMPARISONS:
        parts, kind = _alike(node, of)
        _with_order(node, kind)
        return Lowered(replace(node, of=parts))
    if name == e.IS_IN:
        return _is_in(node, of[0])
    if name in _CHOICES:
        first = of[:1] if name == e.WHEN else []
        if first and first[0].logical is not None:
            raise _refused(node, of[0], "compare it: hg.when(hg.col(…) > …)")
        parts, kind = _alike(node, of[len(first) :])
        if name in (e.LEAST_OF, e.GREATEST_OF):
            _with_order(node, kind)
        return Lowered(replace(node, of=(*(one.node for one in first), *parts)), kind)
    if name == e.HASH:
        _with_order(node, of[0].logical)
        return Lowered(replace(node, of=(of[0].node,)))
    if any(one.logical is not None and one.logical.name == DECIMAL for one in of):
        return _of_decimals(node, of)
    if len(of) == 1 and of[0].logical is not None and of[0].logical.name in (*TIMES, DATE):
        return _of_time(node, of[0], of[0].logical)
    raise _refused(node, next(one for one in of if one.logical is not None))


def _refused(node: e.Operation, one: Lowered, remedy: str = "") -> DeclarationError:
    kind = one.logical
    if not remedy and kind is not None and kind.name in (*TIMES, DATE):
        remedy = ".cast(int) makes milliseconds of it, and .strftime(…) text"
    elif not remedy and kind is not None and kind.name == DECIMAL:
        remedy = ".cast(float) makes a float of it"
    else:
        remedy = remedy or "ask .is_null(), or work in rows: .rows()"
    return DeclarationError(f"{node}: {node.name} takes no {kind}", remedy=remedy)


def _whole(node: e.Operation, one: Lowered) -> Lowered:
    """A constant of a logical type as what it is stored as."""
    if one.logical is None or not isinstance(one.node, e.Constant) or of_constant(one.node.value) is None:
        return one
    return Lowered(e.Constant(_number(node, one.node.value, one.logical)), one.logical)


def _number(node: e.Node, value: Any, kind: Logical) -> int:
    try:
        found = stored(value, kind)
    except NotStorable as error:
        raise DeclarationError(
            f"{node}: {value} is {error}, and no {kind}", remedy="write it as the column has it"
        ) from None
    return found


def _with_order(node: e.Operation, kind: Logical | None) -> None:
    if kind is not None and kind.name not in WHOLE:
        raise _refused(node, Lowered(node, kind))


def _alike(node: e.Operation, of: list[Lowered]) -> tuple[tuple[e.Node, ...], Logical]:
    """Values of one type. Constants, and whole numbers next to decimals, take the type of the columns; of constants alone, of the first."""
    given = [one for one in of if one.logical is not None]
    columns = [one for one in given if not (isinstance(one.node, e.Constant) and of_constant(one.node.value))]
    kind = (columns or given)[0].logical
    assert kind is not None, "one of them has a type"
    if kind.name == DECIMAL:  # a plain number or a constant may have more digits than the columns
        digits = [COMPUTED_DIGITS if one.logical is None else one.logical.digits for one in of]
        kind = replace(kind, digits=max(digits) if len(columns) == len(of) else COMPUTED_DIGITS)
    return tuple(_of_kind(node, one, kind, of) for one in of), kind


def _of_kind(node: e.Operation, one: Lowered, kind: Logical, of: list[Lowered]) -> e.Node:
    own, wide = one.logical, replace(kind, digits=COMPUTED_DIGITS) if kind.name == DECIMAL else kind
    if isinstance(one.node, e.Constant) and own is not None and own.name == kind.name:
        return e.Constant(_number(node, one.node.value, wide))
    if own is not None and own.name == kind.name == DECIMAL and own.scale == kind.scale:
        return one.node
    if own is not None and own == kind:
        return one.node
    if own is None and kind.name == DECIMAL:
        return _scaled_up(one.node, kind.scale)
    found = list(dict.fromkeys(str(one.logical) if one.logical is not None else "a plain value" for one in of))
    remedy = "declare both alike, or cast both: .cast(int), .cast(float)"
    if kind.name in (TIMESTAMP, LOCAL) and own is not None and own.name in (TIMESTAMP, LOCAL):
        remedy = "a datetime with tzinfo is a point in time, one without is none"
    raise DeclarationError(f"{node}: {' and '.join(found)} are not of one type", remedy=remedy)


def _is_in(node: e.Operation, of: Lowered) -> Lowered:
    kind = of.logical
    if kind is None or any(
        getattr(of_constant(one), "name", None) != kind.name and not (kind.name == DECIMAL and type(one) is int)
        for one in node.options
    ):
        raise DeclarationError(
            f"{node}: {of.node} is {kind or 'a plain value'}, and not all of the values are",
            remedy="values of the type of the column",
        )
    _with_order(node, kind)
    wide = replace(kind, digits=COMPUTED_DIGITS) if kind.name == DECIMAL else kind
    values = tuple(
        _in_64_bits(node, one * 10**kind.scale) if type(one) is int else _number(node, one, wide)
        for one in node.options
    )
    return Lowered(replace(node, of=(of.node,), options=values))


# ----------------------------------------------------------------------------------------------------------------- times


def _of_time(node: e.Operation, of: Lowered, kind: Logical) -> Lowered:
    of = _whole(node, of)
    ms = _in_ms(of.node, kind)
    if node.name in PARTS and not (kind.name == DATE and node.name in _CLOCK):
        return Lowered(replace(node, of=(ms,)))
    if node.name == e.STRFTIME:
        return Lowered(replace(node, of=(ms,)))
    if node.name == e.FLOOR and kind.name != DATE:
        return Lowered(replace(node, of=(of.node,), options=(_in_64_bits(node, int(node.options[0]) * _MS),)), kind)
    if node.name == e.CAST and node.options[0] == INT:
        return Lowered(ms)
    if node.name == e.CAST and node.options[0] == DATE:
        return Lowered(of.node if kind.name == DATE else _by(e.FLOOR_DIVIDE, of.node, DAY_US), Logical(DATE))
    remedy = ".strftime('%Y-%m-%dT%H:%M:%S.%f') writes text" if node.name == e.CAST else ""
    raise _refused(node, of, remedy)


def _in_ms(node: e.Node, kind: Logical) -> e.Node:
    """The milliseconds since 1970 of a time."""
    if kind.name == DATE:
        return _by(e.MULTIPLY, node, DAY_MS)
    return _by(e.FLOOR_DIVIDE, node, _MS)


def _by(name: str, node: e.Node, number: int) -> e.Node:
    return e.Operation(name, (node, e.Constant(number)))


# -------------------------------------------------------------------------------------------------------------- decimals


def _of_decimals(node: e.Operation, of: list[Lowered]) -> Lowered:
    if node.name in (e.ADD, e.SUBTRACT):
        scale = max(one.logical.scale if one.logical is not None else 0 for one in of)
        parts = tuple(_at_scale(node, one, scale) for one in of)
        return Lowered(replace(node, of=parts), decimal(COMPUTED_DIGITS, scale))
    if node.name == e.MULTIPLY:
        scale = sum(one.logical.scale for one in of if one.logical is not None)
        if scale > MOST_DIGITS:
            raise DeclarationError(
                f"{node} has {scale} digits behind the point, and a decimal has at most {MOST_DIGITS}",
                remedy="cast one to a float: .cast(float)",
            )
        parts = tuple(_at_scale(node, one, 0 if one.logical is None else one.logical.scale) for one in of)
        return Lowered(replace(node, of=parts), decimal(COMPUTED_DIGITS, scale))
    one = _whole(node, of[0])
    kind = one.logical
    assert len(of) > 1 or kind is not None, "one of them is a decimal"
    if node.name in (e.NEGATIVE, e.ABS) and kind is not None:
        return Lowered(replace(node, of=(one.node,)), kind)
    if node.name == e.CAST and kind is not None and node.options[0] == "float64":
        as_float = replace(node, of=(one.node,))
        return Lowered(e.Operation(e.DIVIDE, (as_float, e.Constant(float(10**kind.scale)))))
    raise _refused(node, next(each for each in of if each.logical is not None))


def _at_scale(node: e.Operation, one: Lowered, scale: int) -> e.Node:
    """A decimal, or a whole number, at this scale."""
    if one.logical is None:
        return _scaled_up(one.node, scale)
    if one.logical.name != DECIMAL:
        raise _refused(node, one)
    own = _whole(node, one)
    return own.node if one.logical.scale == scale else _scaled_up(own.node, scale - one.logical.scale)


def _scaled_up(node: e.Node, by: int) -> e.Node:
    """A whole number times a power of ten. Of another type than whole numbers it is refused when its type is looked at."""
    if isinstance(node, e.Constant) and type(node.value) is int:
        return e.Constant(_in_64_bits(node, node.value * 10**by))
    if by == 0:
        return _by(e.FLOOR_DIVIDE, node, 1)
    return _by(e.MULTIPLY, _by(e.FLOOR_DIVIDE, node, 1), 10**by)


def _in_64_bits(node: e.Node, number: int) -> int:
    if not -MOST <= number <= MOST:
        raise DeclarationError(f"{node}: {number} has more than 64 bits", remedy="use a smaller one")
    return number
