"""Computes expressions over columns: plain lists, in which None is null.

What it decides: what an expression gives for each record. Promises:

- Null is as in SQL: whatever is computed from null is null, except `false & null`, which is false, `true | null`, which is true, and
  `is_null`, `when` and `coalesce`. All of an expression is computed for every record, except that a value of `when` is computed for the
  records that take it, and one of `coalesce` for those for which all before it are null.
- A whole number has 64 bits, and a float is finite. A result beyond that, a division by zero and a cast without a result are errors of
  their record (`NotComputable` with its index), never another value.
- A whole number that meets a float is converted first, as in every SQL: beyond 2^53 it is rounded. `//` and `%` round down, as in Python.
- The result of a list of n values is a list of n values, or, for a column alone, that list itself.

This is the plain way. A compiled part may compute the same trees over Arrow buffers; it must give the same values and the same errors.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from functools import partial
from itertools import compress
from math import isfinite
from typing import Any, Protocol

from ..errors import DataError
from . import expressions as e
from .calendar import PARTS, reader, writer
from .hashing import hash_of
from .lowering import lowered
from .schema import BOOL, FLOAT, INT, LEAST, MOST, TEXT, ColumnKind, ColumnSchema
from .typing import ExpressionKind, Typed, typed

ColumnValues = list[Any]


class NamedColumns(Protocol):
    """Columns by their names: a dict of lists, or a chunk."""

    def __getitem__(self, name: str, /) -> ColumnValues: ...


Compute = Callable[[NamedColumns, int], ColumnValues]
"""Computes an expression: from the columns by name, and the number of records."""


class NotComputable(DataError):
    """An expression has no value for a record. `index`: which record of the chunk. `all`: the errors of all records without a value, by
    their index, if each record was looked at."""

    def __init__(self, index: int, what: str, *, remedy: str = "") -> None:
        self.index = index
        self.all: Mapping[int, NotComputable] = {}
        super().__init__(what, remedy=remedy)


def compiled(node: e.Node, schema: ColumnSchema) -> Compute:
    """The function that computes an expression; a `DeclarationError` if the expression has no type.

    >>> compiled((e.col("a") * 2 > 3).node, schema)({"a": [1, None, 2]}, 3)
    [False, None, True]
    """
    return _compiled(typed(lowered(node, schema).node, schema.stored))


def _compiled(one: Typed) -> Compute:
    node = one.node
    if isinstance(node, e.ColumnRef):
        name = node.name
        return lambda columns, _: columns[name]
    if isinstance(node, e.Constant):
        value = node.value
        return lambda _, size: [value] * size
    if node.name in (e.WHEN, e.COALESCE):
        return _choosing(node.name, one)
    parts = _alike(node, one.of)
    of = list(map(_compiled, parts))
    if node.name in _SEVERAL:
        real = one.kind.type == FLOAT
        return _of_several(
            node.name, [_as_float(part, of.kind) if real else part for part, of in zip(of, parts, strict=True)]
        )
    if len(of) == 2:
        return _of_two(node, (of[0], of[1]), (parts[0].kind, parts[1].kind), one.kind)
    return _of_one(node, of[0], parts[0].kind, one.kind)


def _alike(node: e.Operation, of: tuple[Typed, ...]) -> list[Typed]:
    """What an operation is of; a whole number that is the same for all records is a float already if it would become one."""
    if node.name != e.DIVIDE and all(one.kind.type != FLOAT for one in of):
        return list(of)
    return [_as_constant(float(one.node.value)) if isinstance(one.node, e.Constant) else one for one in of]


def _as_constant(value: float) -> Typed:
    return Typed(e.Constant(value), ExpressionKind(FLOAT, False))


# -------------------------------------------------------------------------------------------------------- of two columns


_TWO: dict[str, Callable[[Any, Any], Any]] = {
    e.ADD: operator.add,
    e.SUBTRACT: operator.sub,
    e.MULTIPLY: operator.mul,
    e.DIVIDE: lambda a, b: a / b,
    e.FLOOR_DIVIDE: lambda a, b: a // b,
    e.MODULO: operator.mod,
    e.EQUAL: operator.eq,
    e.UNEQUAL: operator.ne,
    e.LESS: operator.lt,
    e.AT_MOST: operator.le,
    e.MORE: operator.gt,
    e.AT_LEAST: operator.ge,
    e.AND: lambda a, b: a and b,
    e.OR: lambda a, b: a or b,
}


def _of_two(
    node: e.Operation, of: tuple[Compute, Compute], kinds: tuple[ExpressionKind, ExpressionKind], kind: ExpressionKind
) -> Compute:
    first, second = of
    function = _TWO[node.name]
    if FLOAT in (kinds[0].type, kinds[1].type) or node.name == e.DIVIDE:
        first, second = _as_float(first, kinds[0]), _as_float(second, kinds[1])
    decided = {e.AND: False, e.OR: True}.get(node.name)
    check = _check(node, kind)

    def compute(columns: NamedColumns, size: int) -> ColumnValues:
        a, b = first(columns, size), second(columns, size)
        try:
            if not kind.optional:
                found = list(map(function, a, b))
            elif decided is not None:
                found = [
                    decided if x is decided or y is decided else None if x is None or y is None else not decided
                    for x, y in zip(a, b, strict=True)
                ]
            else:
                found = [None if x is None or y is None else function(x, y) for x, y in zip(a, b, strict=True)]
        except ZeroDivisionError:
            index = next(i for i, (x, y) in enumerate(zip(a, b, strict=True)) if x is not None and y == 0)
            raise NotComputable(
                index, f"{node}: {a[index]} is divided by zero", remedy="filter such records before this step"
            ) from None
        return check(found)

    return compute


def _as_float(compute: Compute, kind: ExpressionKind) -> Compute:
    if kind.type != INT:
        return compute
    if not kind.optional:
        return lambda columns, size: list(map(float, compute(columns, size)))
    return lambda columns, size: [None if one is None else float(one) for one in compute(columns, size)]


def _check(node: e.Operation, kind: ExpressionKind) -> Callable[[ColumnValues], ColumnValues]:
    """Refuses the results that a column of this type cannot hold: one or two passes, and no loop in Python unless one is refused."""
    if kind.type == INT:
        fits: Callable[[Any], bool] = _in_64_bits
        why, remedy = "has more than 64 bits", "use floats: .cast(float)"
    elif kind.type == FLOAT:
        fits, why, remedy = isfinite, "is not a finite number", "filter such records before this step"
    else:
        return lambda found: found

    def check(found: ColumnValues) -> ColumnValues:
        values = [one for one in found if one is not None] if kind.optional else found
        if not values or (min(values) >= LEAST and max(values) <= MOST if kind.type == INT else isfinite(sum(values))):
            return found
        for index, one in enumerate(found):
            if one is not None and not fits(one):
                raise NotComputable(index, f"{node} {why}: {one}", remedy=remedy)
        return found  # floats whose sum is infinite may all be finite

    return check


def _in_64_bits(one: int) -> bool:
    return LEAST <= one <= MOST


# ---------------------------------------------------------------------------------------------------- of several columns


def _of_several(name: str, of: list[Compute]) -> Compute:
    function = _SEVERAL[name]

    def compute(columns: NamedColumns, size: int) -> ColumnValues:
        rows = zip(*(one(columns, size) for one in of), strict=True)
        return [None if None in row else function(row) for row in rows]

    return compute


_SEVERAL: dict[str, Callable[[tuple[Any, ...]], Any]] = {e.CONCAT: "".join, e.LEAST_OF: min, e.GREATEST_OF: max}


# ------------------------------------------------------------------------------------------------------------- choosing


class _Some:
    """Columns of some of the records."""

    def __init__(self, columns: NamedColumns, places: list[int]) -> None:
        self.columns, self.places = columns, places

    def __getitem__(self, name: str) -> ColumnValues:
        column = self.columns[name]
        return [column[place] for place in self.places]


def _choosing(name: str, one: Typed) -> Compute:
    real = one.kind.type == FLOAT
    parts = [_as_float(_compiled(part), part.kind) if real else _compiled(part) for part in one.of]
    return _case(parts) if name == e.WHEN else _coalesced(parts)


def _case(parts: list[Compute]) -> Compute:
    condition, *values = parts

    def compute(columns: NamedColumns, size: int) -> ColumnValues:
        asked = condition(columns, size)
        found: ColumnValues = [None] * size
        for value, takes in zip(values, (True, False), strict=False):
            _put(found, value, columns, [place for place, yes in enumerate(asked) if (yes is True) is takes])
        return found

    return compute


def _coalesced(parts: list[Compute]) -> Compute:
    def compute(columns: NamedColumns, size: int) -> ColumnValues:
        found: ColumnValues = [None] * size
        for part in parts:
            _put(found, part, columns, [place for place, value in enumerate(found) if value is None])
        return found

    return compute


def _put(found: ColumnValues, compute: Compute, columns: NamedColumns, places: list[int]) -> None:
    """Compute it for the records at these places alone."""
    try:
        values = compute(_Some(columns, places), len(places))
    except NotComputable as error:
        error.index = places[error.index]
        raise
    for place, value in zip(places, values, strict=True):
        found[place] = value


# --------------------------------------------------------------------------------------------------------- of one column


def _of_one(node: e.Operation, of: Compute, was: ExpressionKind, kind: ExpressionKind) -> Compute:
    if node.name == e.IS_NULL:
        return lambda columns, size: [one is None for one in of(columns, size)]
    if node.name == e.CAST:
        return of if was.type == kind.type else _partial(node, cast_of(was.type, kind.type), of, was, f"no {kind.type}")
    if node.name == e.STRPTIME:
        return _partial(node, reader(str(node.options[0])), of, was, "not a time in this format")
    if node.name == e.STRFTIME:
        return _partial(node, writer(str(node.options[0])), of, was, "before the year 1 or after 9999")
    function, check = function_of(node, was.type), _check(node, kind)
    if node.name == e.IS_IN and FLOAT in (was.type, *(e.TYPES[type(one)] for one in node.options)):
        of = _as_float(of, was)

    def compute(columns: NamedColumns, size: int) -> ColumnValues:
        values = of(columns, size)
        if kind.optional:
            return check([None if one is None else function(one) for one in values])
        return check(list(map(function, values)))

    return compute


def function_of(node: e.Operation, was: str) -> Callable[[Any], Any]:
    """The operation on one value that is not null."""
    match node.name:
        case e.NEGATIVE:
            return operator.neg
        case e.NOT:
            return operator.not_
        case e.IS_IN:
            mixed = FLOAT in (was, *(e.TYPES[type(one)] for one in node.options))
            return frozenset(map(float, node.options) if mixed else node.options).__contains__
        case e.STARTS_WITH:
            start = str(node.options[0])
            return lambda text: text.startswith(start)
        case e.CONTAINS:
            part = str(node.options[0])
            return lambda text: part in text
        case e.ABS:
            return abs
        case e.ROUND:
            digits = int(node.options[0])
            return lambda number: round(number, digits)
        case e.HASH:
            return hash_of
        case part if part in PARTS:
            return PARTS[part]
        case e.LOWER:
            return str.lower
        case e.UPPER:
            return str.upper
        case e.LENGTH:
            return len
        case e.STRIP | e.SLICE | e.SPLIT | e.REPLACE | e.MATCHES:
            return _of_text(node.name, node.options)
        case _:
            every = int(node.options[0])
            return lambda ms: ms - ms % every


def _of_text(name: str, options: tuple[Any, ...]) -> Callable[[str], Any]:
    match name:
        case e.STRIP:
            taken = options[0] if options else e.WHITE
            return lambda text: text.strip(taken)
        case e.SLICE:
            wanted = slice(options[0], options[1] if len(options) == 2 else None)
            return operator.itemgetter(wanted)
        case e.SPLIT:
            return partial(_part, *options)
        case e.REPLACE:
            old, new = options
            return lambda text: text.replace(old, new)
        case _:
            search = re.compile(options[0], re.ASCII).search
            return lambda text: search(text) is not None


def _part(separator: str, number: int, text: str) -> str | None:
    parts = text.split(separator)
    return parts[number] if -len(parts) <= number < len(parts) else None


# ----------------------------------------------------------------------------------------------------------------- casts

_WHOLE = re.compile(r"-?(0|[1-9][0-9]{0,18})")
_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_BOOLEANS = {"true": True, "false": False}


def _whole_of_text(text: str) -> int | None:
    if not _WHOLE.fullmatch(text):
        return None
    found = int(text)
    return found if _in_64_bits(found) else None


def _float_of_text(text: str) -> float | None:
    if not _NUMBER.fullmatch(text):
        return None
    found = float(text)
    return found if isfinite(found) else None


def _whole_of_float(number: float) -> int | None:
    found = int(number)
    return found if _in_64_bits(found) else None


def _text_of_bool(one: bool) -> str:
    return "true" if one else "false"


_CASTS: dict[tuple[ColumnKind, ColumnKind], Callable[[Any], Any]] = {
    (INT, FLOAT): float,
    (INT, TEXT): str,
    (FLOAT, INT): _whole_of_float,
    (FLOAT, TEXT): repr,
    (BOOL, INT): int,
    (BOOL, FLOAT): float,
    (BOOL, TEXT): _text_of_bool,
    (TEXT, INT): _whole_of_text,
    (TEXT, FLOAT): _float_of_text,
    (TEXT, BOOL): _BOOLEANS.get,
}


def cast_of(was: ColumnKind, wanted: ColumnKind) -> Callable[[Any], Any]:
    """The cast of one value that is not null, between two types; it gives None if the value has no counterpart."""
    return _CASTS[was, wanted]


def _partial(node: e.Operation, function: Callable[[Any], Any], of: Compute, was: ExpressionKind, what: str) -> Compute:
    """A function that gives None for a value for which there is no result: such a value is `what`."""

    def compute(columns: NamedColumns, size: int) -> ColumnValues:
        values = of(columns, size)
        found = (
            [None if one is None else function(one) for one in values] if was.optional else list(map(function, values))
        )
        if None in found:
            for index, one in enumerate(found):
                if one is None and values[index] is not None:
                    raise NotComputable(
                        index,
                        f"{node}: {values[index]!r:.60} is {what}",
                        remedy="filter such records before this step",
                    )
        return found

    return compute


# --------------------------------------------------------------------------------------------------------------- filters


def kept(column: ColumnValues, keep: ColumnValues) -> ColumnValues:
    """The values of the records for which `keep` is true: neither false nor null.

    >>> kept([1, 2, 3], [True, None, False])
    [1]
    """
    return list(compress(column, keep))
