"""What an expression gives for one record, by the rules alone: slow, plain, and written apart from the code that it judges."""

from __future__ import annotations

import datetime
import functools
import json
import math
import re
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from headgate.core.columns import expressions as e
from headgate.core.columns.hashing import hash_of
from headgate.core.columns.schema import FLOAT, ColumnSchema
from headgate.core.columns.typing import kind_of

FAILS = object()
"""The record has no value: an error of this record."""


class Failed(Exception):
    """A part of the expression has no value for the record."""


def value_of(node: e.Node, row: Mapping[str, Any], schema: ColumnSchema) -> Any:
    """The value for one record, None for null, or `FAILS`."""
    try:
        return _value(node, row, schema)
    except Failed:
        return FAILS


def _value(node: e.Node, row: Mapping[str, Any], schema: ColumnSchema) -> Any:
    if isinstance(node, e.ColumnRef):
        return row[node.name]
    if isinstance(node, e.Constant):
        return node.value
    if node.name in (e.WHEN, e.COALESCE):
        chosen = node.of
        if node.name == e.WHEN:
            chosen = node.of[1:2] if _value(node.of[0], row, schema) is True else node.of[2:]
        found = next((found for one in chosen if (found := _value(one, row, schema)) is not None), None)
        return float(found) if type(found) is int and kind_of(node, schema).type == FLOAT else found
    args = [_value(one, row, schema) for one in node.of]
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
        case "lower" | "upper" | "strip" | "replace" as same, (a,):
            return getattr(a, same)(*options)
        case "length", (a,):
            return sum(1 for _ in a)
        case "slice", (a,):
            wanted = slice(options[0], *options[1:] or [None])
            return "".join(a[place] for place in range(*wanted.indices(len(a))))
        case "split", (a,):
            return dict(enumerate(a.split(options[0]))).get(options[1] + (a.count(options[0]) + 1) * (options[1] < 0))
        case "matches", (a,):
            return bool(re.findall(options[0], a, re.ASCII))
        case "concat", _:
            return functools.reduce(str.__add__, args)
        case "abs", (a,):
            return -a if a < 0 or math.copysign(1, a) < 0 else a
        case "round", (a,):
            return a if type(a) is int else _rounded(a, int(options[0]))
        case "least", _:
            return sorted(args)[0]
        case "greatest", _:
            return sorted(args, reverse=True)[0]
        case "hash", (a,):
            return hash_of(a)
        case ("year" | "month" | "day" | "hour" | "minute" | "second" | "weekday") as part, (a,):
            return _part(a, part)
        case "strptime", (a,):
            return _read(a, options[0])
        case "strftime", (a,):
            return _written(a, options[0])
        case "floor", (a,):
            return (a // options[0]) * options[0]
    raise AssertionError(node)


_UTC = datetime.UTC
_ERA_MS = 146_097 * 86_400_000
"""400 years, after which the calendar repeats itself."""


def _moment(ms: int) -> tuple[datetime.datetime, int]:
    """The time in the years 2000 to 2399, and how many times 400 years it is away from there."""
    eras, left = divmod(ms - 946_684_800_000, _ERA_MS)
    return datetime.datetime(2000, 1, 1, tzinfo=_UTC) + datetime.timedelta(milliseconds=left), eras


def _part(ms: int, part: str) -> int:
    when, eras = _moment(ms)
    return when.weekday() if part == "weekday" else getattr(when, part) + (400 * eras if part == "year" else 0)


def _read(text: str, form: str) -> int:
    shape = (
        re.escape(form)
        .replace("%Y", "[0-9]{4}")
        .replace("%f", "[0-9]{1,6}")
        .replace("%z", "(Z|[+-][0-9]{2}:?[0-9]{2})")
    )
    if not re.fullmatch(re.sub("%[mdHMS]", "[0-9]{2}", shape), text):
        _fail()
    try:
        found = datetime.datetime.strptime(text, form)
    except ValueError:
        _fail()
    away = found if found.tzinfo else found.replace(tzinfo=_UTC)
    return (away - datetime.datetime(1970, 1, 1, tzinfo=_UTC)) // datetime.timedelta(milliseconds=1)


def _written(ms: int, form: str) -> str:
    when, eras = _moment(ms)
    year = when.year + 400 * eras
    return when.strftime(form.replace("%Y", f"{year:04}")) if 1 <= year <= 9999 else _fail()


def _rounded(value: float, digits: int) -> float:
    scale = 10**digits
    return math.copysign(float(Fraction(round(Fraction(value) * scale), scale)), value)


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
