"""Which declared types are logical types of columns: times, dates, decimals, bytes, lists and maps.

What it decides: what a type hint means.

    datetime                                  a point in time; in JSON it has a zone
    Annotated[datetime, msgspec.Meta(tz=…)]   True: the same. False: a local time, which has none
    date, bytes                               as they are
    Annotated[Decimal, hg.Digits(12, 2)]      a decimal of 12 digits, two of them behind the point
    list[T], dict[str, T]                     of these, of int, float, bool, str, and of types with fields

Promises: whatever a hint leaves open is refused with what to write, so that no value decides it; a hint that is none of these is None.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints, is_typeddict

from ....core.columns import logical as of
from ....core.columns.expressions import TYPES
from ....core.columns.logical import Logical
from ....core.errors import DeclarationError


@dataclass(frozen=True, slots=True)
class Digits:
    """How many digits a decimal has, in an annotation: `Annotated[Decimal, hg.Digits(12, 2)]` has 12 digits, two of them behind the point.

    A value that has more of either is bad data; it is never rounded. There are at most 18.
    """

    digits: int
    scale: int = 0

    def __post_init__(self) -> None:
        if not (
            type(self.digits) is int
            and type(self.scale) is int
            and 1 <= self.digits <= of.MOST_DIGITS
            and 0 <= self.scale <= self.digits
        ):
            raise DeclarationError(
                f"hg.Digits({self.digits!r:.20}, {self.scale!r:.20})",
                remedy=f"1 to {of.MOST_DIGITS} digits in all, and as many or fewer of them behind the point: hg.Digits(12, 2)",
            )


def logical_type(hint: Any, where: str) -> Logical | None:
    """The logical type of a hint, which is optional if it may be None; None if it is of a plain type, or of none that a column has."""
    options = [one for one in get_args(hint) if one is not NoneType] if _is_union(hint) else [hint]
    found = _of(options[0], where, ()) if len(options) == 1 else None
    if found is None or found.name in (*TYPES.values(), of.OBJECT):
        return None
    return dataclasses.replace(found, optional=_is_union(hint))


def _is_union(hint: Any) -> bool:
    return get_origin(hint) in (Union, UnionType) and NoneType in get_args(hint)


def _of(hint: Any, where: str, outer: tuple[Any, ...]) -> Logical | None:
    """What a hint means that may not be None. `outer`: the types that it lies in."""
    rules = ()
    if get_origin(hint) is Annotated:
        hint, *rules = get_args(hint)
    if hint is datetime:
        return _time(rules, where)
    if hint is Decimal:
        return _decimal(rules, where)
    if rules:
        return None
    if hint is date:
        return Logical(of.DATE)
    if hint is bytes:
        return Logical(of.BYTES)
    if isinstance(hint, type) and hint in TYPES:
        return Logical(TYPES[hint])
    origin, args = get_origin(hint), get_args(hint)
    if origin is list and len(args) == 1:
        return Logical(of.LIST, of=(_element(args[0], where, outer),))
    if origin is dict and len(args) == 2:
        if args[0] is not str:
            raise DeclarationError(
                f"{where} has a map whose keys are {args[0]}", remedy="JSON has text as keys: dict[str, …]"
            )
        return Logical(of.MAP, of=(_element(args[1], where, outer),))
    return _object(hint, where, outer) if _has_fields(hint) else None


def _element(hint: Any, where: str, outer: tuple[Any, ...]) -> Logical:
    options = [one for one in get_args(hint) if one is not NoneType] if _is_union(hint) else [hint]
    found = _of(options[0], where, outer) if len(options) == 1 else None
    if found is None:
        raise DeclarationError(
            f"{where} contains {hint}, which no column can hold",
            remedy="int, float, bool, str, datetime, date, Decimal, bytes, lists and maps of these, and types with such fields",
        )
    return dataclasses.replace(found, optional=_is_union(hint))


def _object(kind: Any, where: str, outer: tuple[Any, ...]) -> Logical:
    if kind in outer:
        raise DeclarationError(
            f"{where} contains {kind.__qualname__}, which may lie in itself, without end", remedy="leave it out"
        )
    fields = [(name, _element(hint, f"{where}, in '{name}',", (*outer, kind))) for name, hint in _fields(kind)]
    if not fields:
        raise DeclarationError(f"{where} contains {kind.__qualname__}, which has no fields", remedy="leave it out")
    return Logical(of.OBJECT, of=tuple(one for _, one in fields), fields=tuple(name for name, _ in fields))


def _fields(kind: Any) -> Iterator[tuple[str, Any]]:
    hints = get_type_hints(kind, include_extras=True)
    if hasattr(kind, "__struct_fields__"):
        names = zip(kind.__struct_encode_fields__, kind.__struct_fields__, strict=True)
        yield from ((encoded, hints[name]) for encoded, name in names)
    else:
        yield from hints.items()


def _has_fields(kind: Any) -> bool:
    return is_typeddict(kind) or dataclasses.is_dataclass(kind) or hasattr(kind, "__struct_config__")


def _time(rules: Any, where: str) -> Logical:
    zone: bool | None = True
    for rule in rules:
        if repr(rule) not in ("msgspec.Meta(tz=True)", "msgspec.Meta(tz=False)"):
            raise DeclarationError(
                f"{where} has rules of its own ({rule}), which columns do not check",
                remedy="datetime, or Annotated[datetime, msgspec.Meta(tz=False)]",
            )
        zone = rule.tz
    return Logical(of.TIMESTAMP if zone else of.LOCAL)


def _decimal(rules: Any, where: str) -> Logical:
    if len(rules) != 1 or not isinstance(rules[0], Digits):
        raise DeclarationError(
            f"{where} is a Decimal of which nothing says how many digits it has",
            remedy="declare them: Annotated[Decimal, hg.Digits(12, 2)] has 12, two of them behind the point",
        )
    return of.decimal(rules[0].digits, rules[0].scale)
