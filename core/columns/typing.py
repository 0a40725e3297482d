"""Of which type an expression is, by the schema of the columns that it reads; decided when the job is declared.

A wrong type is refused with the part of the expression that has it. Promises: an expression that has a type can be evaluated for every
record of the schema, and gives values of that type alone; what remains to fail is a value (a division by zero, a number out of range).

- Two whole numbers give a whole number, except by `/`, which gives a float. A whole number that meets a float becomes one.
- An expression may be null if something that it reads may be; `is_null` never is. A condition that is null is not true, so `when` may be
  null if one of its values may be, or if it lacks an `otherwise`; `coalesce`, if all of its values may be.
- Values of which one is chosen have one type; if they are whole numbers and floats, they are floats.
- What is asked of logical types, `lowering` has made an expression over stored columns of, before its type is looked at here.
"""

from __future__ import annotations

from typing import NamedTuple

from ..errors import DeclarationError
from . import expressions as e
from .calendar import PARTS
from .lowering import lowered
from .schema import BOOL, FLOAT, INT, PYTHON, TEXT, ColumnKind, ColumnSchema, ColumnSpec

NUMBERS: frozenset[ColumnKind] = frozenset((INT, FLOAT))
ARITHMETIC = frozenset((e.ADD, e.SUBTRACT, e.MULTIPLY))
WHOLE = frozenset((e.FLOOR_DIVIDE, e.MODULO))
COMPARISONS = frozenset((e.EQUAL, e.UNEQUAL, e.LESS, e.AT_MOST, e.MORE, e.AT_LEAST))
LOGIC = frozenset((e.AND, e.OR, e.NOT))
OF_TEXT: dict[str, ColumnKind] = {
    **dict.fromkeys((e.STARTS_WITH, e.CONTAINS, e.MATCHES), BOOL),
    **dict.fromkeys((e.LOWER, e.UPPER, e.STRIP, e.SLICE, e.SPLIT, e.REPLACE, e.CONCAT), TEXT),
    e.LENGTH: INT,
}
"""The operations of texts, and what they give."""
TOTAL = (
    COMPARISONS
    | LOGIC
    | OF_TEXT.keys()
    | PARTS.keys()
    | {e.IS_NULL, e.IS_IN, e.WHEN, e.COALESCE, e.ROUND, e.LEAST_OF, e.GREATEST_OF, e.HASH}
)
"""The operations that have a value whatever they are of."""


_TO_TIME = ".cast(int) of a number; .strptime(…) of text"
CASTS: dict[object, ColumnKind] = {kind: kind for kind in PYTHON}
"""What a cast may be to."""


class ExpressionKind(NamedTuple):
    """The type of an expression, and whether it may be null."""

    type: ColumnKind
    optional: bool


class Typed(NamedTuple):
    """An expression with its type, and its parts with theirs."""

    node: e.Node
    kind: ExpressionKind
    of: tuple[Typed, ...] = ()


def typed(node: e.Node, schema: ColumnSchema) -> Typed:
    """The expression over stored columns with all of its types; a `DeclarationError` if it has none."""
    if isinstance(node, e.ColumnRef):
        column = schema[node.name]
        return Typed(node, ExpressionKind(column.type, column.optional))
    if isinstance(node, e.Constant):
        return Typed(node, ExpressionKind(e.TYPES[type(node.value)], False))
    if node.name != e.IS_NULL:
        for one in node.of:
            if isinstance(one, e.ColumnRef):
                schema.value(one.name, str(node))
    parts = tuple(typed(one, schema) for one in node.of)
    if node.name == e.IS_NULL:
        return Typed(node, ExpressionKind(BOOL, False), parts)
    return Typed(node, ExpressionKind(_type_of(node, [one.kind.type for one in parts]), _optional(node, parts)), parts)


def _optional(node: e.Operation, parts: tuple[Typed, ...]) -> bool:
    if node.name == e.WHEN:
        return len(parts) == 2 or any(one.kind.optional for one in parts[1:])
    if node.name == e.SPLIT:  # a text may have too few parts
        return True
    judge = all if node.name == e.COALESCE else any
    return judge(one.kind.optional for one in parts)


def may_fail(one: Typed) -> bool:
    """Whether an expression may have no value for some record."""
    if not isinstance(one.node, e.Operation):
        return False
    if one.node.name == e.CAST:
        was, kind = one.of[0].kind.type, one.kind.type
        fails = was != kind and kind != TEXT and was != BOOL and (was, kind) != (INT, FLOAT)
    else:
        fails = one.node.name not in TOTAL
    return fails or any(map(may_fail, one.of))


def kind_of(node: e.Node, schema: ColumnSchema) -> ExpressionKind:
    """The type of an expression; a `DeclarationError` if it has none.

    >>> kind_of((e.col("n") / 2).node, ColumnSchema((ColumnSpec("n", INT),)))
    ExpressionKind(type='float64', optional=False)
    """
    return typed(lowered(node, schema).node, schema.stored).kind


def column_of(name: str, node: e.Node, schema: ColumnSchema) -> ColumnSpec:
    """The column that an expression makes. A nested one keeps its place under its own name, and has none under another."""
    if isinstance(node, e.ColumnRef):
        if node.name == name and schema[name].path:
            return schema[name]
        schema.value(node.name, f"{name}={node}")
    found = lowered(node, schema)
    kind = typed(found.node, schema.stored).kind
    return ColumnSpec(name, kind.type, kind.optional, logical=found.logical)


def _type_of(node: e.Operation, types: list[ColumnKind]) -> ColumnKind:
    name = node.name
    if name in ARITHMETIC or name in (e.DIVIDE, e.NEGATIVE):
        _need(node, types, NUMBERS, "numbers")
        return FLOAT if name == e.DIVIDE or FLOAT in types else INT
    if name in WHOLE:
        _need(node, types, frozenset({INT}), "whole numbers", remedy="cast it: .cast(int)")
        return INT
    if name in LOGIC:
        _need(node, types, frozenset({BOOL}), "booleans", remedy="compare it, with parentheses: (hg.col(…) > 0) & (…)")
        return BOOL
    if name in COMPARISONS or name == e.IS_IN:
        _comparable(node, [*types, *(e.TYPES[type(value)] for value in node.options)])
        return BOOL
    if name in OF_TEXT:
        _need(node, types, frozenset({TEXT}), "text", remedy="cast it: .cast(str)")
        return OF_TEXT[name]
    if name == e.STRPTIME:
        _need(node, types, frozenset({TEXT}), "text", remedy="cast it: .cast(str)")
        return INT
    if name == e.FLOOR or name in PARTS or name == e.STRFTIME:
        _need(node, types, frozenset({INT}), "a time in milliseconds, which is a whole number", remedy=_TO_TIME)
        return TEXT if name == e.STRFTIME else INT
    if name == e.WHEN:
        if types[0] != BOOL:
            raise DeclarationError(
                f"{node}: when takes a boolean, and {node.of[0]} is {types[0]}",
                remedy="compare it: hg.when(hg.col(…) > 0)",
            )
        return _one_type(node, types[1:])
    if name == e.COALESCE:
        return _one_type(node, types)
    if name in (e.LEAST_OF, e.GREATEST_OF):
        _comparable(node, types)
        return _one_type(node, types)
    if name in (e.ABS, e.ROUND):
        _need(node, types, NUMBERS, "numbers")
        return types[0]
    if name == e.HASH:
        return INT
    return _cast(node, types[0])


def _one_type(node: e.Operation, types: list[ColumnKind]) -> ColumnKind:
    """The type of values of which one is chosen."""
    found = set(types)
    if found == {INT, FLOAT}:
        return FLOAT
    if len(found) > 1:
        raise DeclarationError(
            f"{node}: {' and '.join(dict.fromkeys(types))} have no common type for one column",
            remedy="cast one: .cast(str), .cast(float)",
        )
    return types[0]


def _cast(node: e.Operation, was: ColumnKind) -> ColumnKind:
    wanted = CASTS[node.options[0]]
    if wanted == BOOL and was in NUMBERS:
        raise DeclarationError(
            f"{node.of[0]} is {was}, and a number cannot be cast to a boolean", remedy=f"compare it: {node.of[0]} != 0"
        )
    return wanted


def _need(
    node: e.Operation, types: list[ColumnKind], wanted: frozenset[ColumnKind], what: str, *, remedy: str = ""
) -> None:
    for one, found in zip(node.of, types, strict=True):
        if found not in wanted:
            sign = "-" if node.name == e.NEGATIVE else node.name
            raise DeclarationError(f"{node}: {sign} takes {what}, and {one} is {found}", remedy=remedy)


def _comparable(node: e.Operation, types: list[ColumnKind]) -> None:
    groups = {TEXT if one == TEXT else BOOL if one == BOOL else FLOAT for one in types}
    if len(groups) > 1:
        raise DeclarationError(
            f"{node}: {' and '.join(dict.fromkeys(types))} cannot be compared",
            remedy="cast one: .cast(str), .cast(float)",
        )
    if groups == {BOOL} and node.name not in (e.EQUAL, e.UNEQUAL, e.IS_IN):
        raise DeclarationError(f"{node}: booleans have no order", remedy="use == or !=")
