"""What an expression gives for one record, by the rules alone: slow, plain, and written apart from the code that it judges."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from headgate.core.columns import expressions as e

FAILS = object()
"""The record has no value: an error of this record."""


class Failed(Exception):
    """A part of the expression has no value for the record."""


def value_of(node: e.Node, row: Mapping[str, Any]) -> Any:
    """The value for one record, None for null, or `FAILS`."""
    try:
        return _value(node, row)
    except Failed:
        return FAILS


def _value(node: e.Node, row: Mapping[str, Any]) -> Any:
    if isinstance(node, e.ColumnRef):
        return row[node.name]
    if isinstance(node, e.Constant):
        return node.value
    if node.name == e.WHEN:
        chosen = node.of[1 if _value(node.of[0], row) is True else 2 :]
        return _value(chosen[0], row) if chosen else None
    if node.name == e.COALESCE:
        return next((found for one in node.of if (found := _value(one, row)) is not None), None)
    args = [_value(one, row) for one in node.of]
    if node.name == e.IS_NULL:
        return args[0] is None
    if node.name == e.AND:
        return False if False in args else None if None in args else True
    if node.name == e.OR:
        return True if True in args else None if None in args else False
    if None in args:
        return None
    return _in_range(_of(node, args))


def _in_range(found: Any) -> Any:
    if type(found) is int and not -(2**63) <= found < 2**63:
        raise Failed
    if type(found) is float and (math.isnan(found) or math.isinf(found)):
        raise Failed
    return found


def _of(node: e.Operation, args: list[Any]) -> Any:
    options = list(node.options)
    if node.name == e.CAST:
        return _cast(args[0], str(options[0]))
    if float in set(map(type, [*args, *(options if node.name == e.IS_IN else [])])) or node.name == "/":
        args, options = [float(one) for one in args], [float(one) for one in options]
    match node.name, args:
        case "+", (a, b):
            return a + b
        case "-", (a, b):
            return a - b
        case "*", (a, b):
            return a * b
        case (("/" | "//" | "%"), (_, 0)):
            raise Failed
        case "/", (a, b):
            return a / b
        case "//", (a, b):
            return math.floor(a // b)
        case "%", (a, b):
            return a - b * (a // b)
        case "negative", (a,):
            return -a
        case "==", (a, b):
            return a == b
        case "!=", (a, b):
            return a != b
        case "<", (a, b):
            return a < b
        case "<=", (a, b):
            return a <= b
        case ">", (a, b):
            return a > b
        case ">=", (a, b):
            return a >= b
        case "~", (a,):
            return not a
        case "is_in", (a,):
            return any(a == one for one in options)
        case "starts_with", (a,):
            return a[: len(options[0])] == options[0]
        case "contains", (a,):
            return a.find(options[0]) >= 0
        case "floor", (a,):
            return (a // options[0]) * options[0]
    raise AssertionError(node)


def _cast(value: Any, wanted: str) -> Any:
    match value, wanted:
        case (bool(), "text"):
            return {True: "true", False: "false"}[value]
        case (bool(), "int64"):
            return 1 if value else 0
        case (str(), "bool"):
            return value == "true" if value in ("true", "false") else _fail()
        case (str(), "int64"):
            digits = value.removeprefix("-")
            plain = digits.isascii() and digits.isdigit() and (digits == "0" or digits[0] != "0")
            return _in_range(int(value)) if plain else _fail()
        case (str(), "float64"):
            try:
                found = json.loads(value, parse_constant=_fail)
            except ValueError:
                _fail()
            if type(found) not in (int, float) or value != value.strip():
                _fail()
            try:
                return _in_range(float(value))
            except OverflowError:
                _fail()
        case (float(), "int64"):
            return _in_range(math.trunc(value))
        case _:
            return {"int64": int, "float64": float, "text": str, "bool": bool}[wanted](value)


def _fail(_: str = "") -> Any:
    raise Failed
