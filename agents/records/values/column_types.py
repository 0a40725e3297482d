"""The schema of columns that a type declares: a TypedDict, dataclass, msgspec Struct or `pyarrow.Schema`.

What it decides: which Python and Arrow types are types of columns. They are `int`, `float`, `bool` and `str`, and each with `| None`; a
field that may be None may also be missing, and has no other default than None.

Promises: a type that no column can have is refused with the field that has it, and with what to do. A type with rules that columns do not
check (constraints, tags, fields by position, unknown fields forbidden) is refused, too: no record would be judged by other rules than the
type's own.
"""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
from collections.abc import Callable, Iterator
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    NamedTuple,
    NotRequired,
    Required,
    TypedDict,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

from ....core.columns.expressions import TYPES
from ....core.columns.schema import ColumnSchema, ColumnSpec
from ....core.errors import DeclarationError

_LEAVE_OUT = (
    "leave it out of the type (fields that the type does not have are skipped), or work in rows, without .columns()"
)
_MISSING = object()
ARROW = {"int64": int, "double": float, "bool": bool, "string": str, "large_string": str}
"""The name of an Arrow type → the Python type of its values."""


def columns_of_type(kind: Any) -> ColumnSchema:
    """The columns of the values of a type; a `DeclarationError` if it has fields that no column can hold.

    >>> class Order(TypedDict):
    ...     user: str
    ...     amount: float | None
    >>> str(columns_of_type(Order))
    'user: text, amount: float64 | null'
    """
    _refuse_rules(kind)
    hints = _hints_of(kind)
    found = tuple(_column(kind, name, hints[attribute], default) for name, attribute, default in _fields(kind, hints))
    if not found:
        raise DeclarationError(f"{kind.__qualname__} has no fields, so it has no columns")
    return ColumnSchema(found)


def maker(kind: Any) -> Callable[[list[list[Any]]], list[Any]] | None:
    """The function that makes values of a type of its columns, in the order of its schema; None if dicts are the values."""
    if kind is None or is_typeddict(kind):
        return None
    attributes = [attribute for _, attribute, _ in _fields(kind, {})]
    given = list(inspect.signature(kind).parameters.values())[: len(attributes)]
    if [one.name for one in given] == attributes and all(one.kind == one.POSITIONAL_OR_KEYWORD for one in given):
        return lambda columns: list(map(kind, *columns))
    return lambda columns: [kind(**dict(zip(attributes, row, strict=True))) for row in zip(*columns, strict=True)]


class PlainField(NamedTuple):
    """A field of a type whose other fields may be of any kind."""

    attribute: str
    column: ColumnSpec
    required: bool
    """Its class has no default for it."""


def plain_fields(kind: Any) -> list[PlainField]:
    """The fields of a type that could be columns, whatever its other fields are; none if it has no fields."""
    if not _has_fields(kind):
        return []
    hints = get_type_hints(kind, include_extras=True)
    found: list[PlainField] = []
    for name, attribute, default in _fields(kind, hints):
        with contextlib.suppress(DeclarationError):
            column = _column(kind, name, hints[attribute], _MISSING)
            found.append(
                PlainField(attribute, column, default is _MISSING and not _may_be_missing(kind, name, hints[attribute]))
            )
    return found


class FieldAlone(NamedTuple):
    """A field that can be read without the others of its type. `default`: empty, or its default."""

    attribute: str
    name: str
    """Its name in a record."""
    hint: Any
    default: tuple[Any, ...]


def fields_alone(kind: Any) -> list[FieldAlone]:
    """The fields of a type that can be read alone: none if the type has rules for the whole record.

    A key of a TypedDict that may be missing is not among them, nor is a field whose default is made anew for each value.
    """
    if not _has_fields(kind) or any(_rules(kind).values()):
        return []
    hints = get_type_hints(kind, include_extras=True)
    found: list[FieldAlone] = []
    for name, attribute, default in _fields(kind, hints):
        if not _may_be_missing(kind, name, hints[attribute]):
            if default is _MISSING:
                found.append(FieldAlone(attribute, name, hints[attribute], ()))
            elif isinstance(default, int | float | str | None):
                found.append(FieldAlone(attribute, name, hints[attribute], (default,)))
    return found


def columns_alone(kind: Any) -> tuple[ColumnSchema, dict[str, DeclarationError]]:
    """The fields of a type that expressions over its values can read, by their names in the class; and why they cannot read the others.

    >>> str(columns_alone(TypedDict("Order", {"user": str, "tags": list[str]}))[0])
    'user: text'
    """
    hints = get_type_hints(kind, include_extras=True) if _has_fields(kind) else {}
    found: list[ColumnSpec] = []
    refused: dict[str, DeclarationError] = {}
    for name, attribute, _ in _fields(kind, hints) if hints else ():
        hint = hints[attribute]
        try:
            if _may_be_missing(kind, name, hint):
                where = f"the field '{name}' of {kind.__qualname__} may be missing"
                raise DeclarationError(where, remedy="declare it | None: then it is None where it is missing")
            column = _column(kind, name, hint, _MISSING)
            found.append(ColumnSpec(attribute, column.type, column.optional))
        except DeclarationError as error:
            refused[attribute] = error
    return ColumnSchema(tuple(found)), refused


def columns_of_rows(kind: Any, *, encoded: bool = False) -> ColumnSchema:
    """The columns in which values of a type go to Spark; a `DeclarationError` if it has a field that no column can hold. The values were
    checked before, or code has made them, so the type's own rules are not asked, and a default changes nothing. A key of a TypedDict that
    may be missing is null. `encoded`: the names are those of records, not those of the class.

    >>> str(columns_of_rows(TypedDict("Order", {"user": str, "n": NotRequired[int]})))
    'user: text, n: int64 | null'
    """
    kind = type_of_arrow(kind) if is_arrow_schema(kind) else kind
    if not _has_fields(kind):
        raise DeclarationError(
            f"{_named(kind)} has no fields", remedy="a TypedDict, dataclass, msgspec Struct or pyarrow.Schema"
        )
    hints = _hints_of(kind)
    found: list[ColumnSpec] = []
    for name, attribute, _ in _fields(kind, hints):
        missing = _may_be_missing(kind, name, hints[attribute])
        column = _column(kind, name, _or_none(hints[attribute]) if missing else hints[attribute], _MISSING)
        found.append(ColumnSpec(name if encoded else attribute, column.type, column.optional))
    if not found:
        raise DeclarationError(f"{kind.__qualname__} has no fields, so it has no columns")
    return ColumnSchema(tuple(found))


def columns_instead(kind: Any) -> ColumnSchema:
    """The fields of a type that can be read as columns instead of rows: the same records are bad, and the values are the same."""
    schema, _ = columns_alone(kind)
    same = {one.attribute for one in fields_alone(kind) if one.attribute == one.name and one.default in ((), (None,))}
    return schema.only(same)


def writes_as_columns(kind: Any) -> bool:
    """Whether a value of the type is written with the fields of `columns_instead`, and no others."""
    names = columns_instead(kind).names
    if is_typeddict(kind):
        return len(names) == len(get_type_hints(kind))
    if dataclasses.is_dataclass(kind):  # orjson leaves fields out whose names begin with an underscore
        return len(names) == len(dataclasses.fields(kind)) and not any(name.startswith("_") for name in names)
    return len(names) == len(kind.__struct_fields__) and not kind.__struct_config__.omit_defaults


def _hints_of(kind: Any) -> dict[str, Any]:
    try:
        return get_type_hints(kind, include_extras=True)
    except NameError as error:
        raise DeclarationError(
            f"the fields of {kind.__qualname__} cannot be read: {error}",
            remedy="define the types of its fields at the top of a module",
        ) from None


def _or_none(hint: Any) -> Any:
    """A type without what it says of a key that may be missing; instead, it may be None."""
    while get_origin(hint) in (NotRequired, Required):
        (hint,) = get_args(hint)
    return Union[hint, None]  # noqa: UP007 - a name in quotes has no |


def _fields(kind: Any, hints: dict[str, Any]) -> Iterator[tuple[str, str, Any]]:
    """Of each field: its name in a record, its name in the class, and its default."""
    if is_typeddict(kind):
        yield from ((name, name, _MISSING) for name in hints)
    elif dataclasses.is_dataclass(kind):
        for one in dataclasses.fields(kind):
            if one.init:
                made = one.default_factory is not dataclasses.MISSING
                default = _MISSING if one.default is dataclasses.MISSING and not made else one.default
                yield one.name, one.name, default
    else:
        struct: Any = kind
        names, defaults = struct.__struct_fields__, struct.__struct_defaults__
        own = (*[_MISSING] * (len(names) - len(defaults)), *defaults)
        for encoded, name, default in zip(struct.__struct_encode_fields__, names, own, strict=True):
            yield encoded, name, _MISSING if repr(default) == "NODEFAULT" else default


def _column(kind: Any, name: str, hint: Any, default: Any) -> ColumnSpec:
    where = f"the field '{name}' of {kind.__qualname__}"
    may_be_missing = _may_be_missing(kind, name, hint)
    while get_origin(hint) in (NotRequired, Required):
        (hint,) = get_args(hint)
    if get_origin(hint) is Annotated:
        raise DeclarationError(
            f"{where} has rules of its own ({_named(hint)}), which columns do not check",
            remedy="declare the plain type, and filter: .filter(hg.col(…) > 0)",
        )
    options = set(get_args(hint)) if get_origin(hint) in (Union, UnionType) else {hint}
    optional = NoneType in options
    options.discard(NoneType)
    (only, *others) = options or {NoneType}
    if others or only not in TYPES:
        raise DeclarationError(
            f"{where} is {_named(hint)}, which no column can hold; columns are int, float, bool or str, or each of them | None",
            remedy=_LEAVE_OUT,
        )
    if may_be_missing and not optional:
        raise DeclarationError(
            f"{where} may be missing, and a column then holds null", remedy=f"declare it {_named(only)} | None"
        )
    if default is not _MISSING and default is not None:
        raise DeclarationError(
            f"{where} has a default, and a column has none: a missing field is null",
            remedy=f"declare it {_named(only)} | None = None",
        )
    return ColumnSpec(name, TYPES[only], optional)


def _refuse_rules(kind: Any) -> None:
    if not _has_fields(kind):
        raise DeclarationError(
            f"{kind!r} has no columns",
            remedy="hg.json(Order) with a TypedDict, dataclass, msgspec Struct or pyarrow.Schema",
        )
    for what, is_so in _rules(kind).items():
        if is_so:
            raise DeclarationError(
                f"{kind.__qualname__} cannot be read as columns: {what}",
                remedy="use a type of plain fields, or work in rows",
            )


def _rules(kind: Any) -> dict[str, bool]:
    """The rules that a type may have for a whole record, and whether it has them."""
    config = getattr(kind, "__struct_config__", None)
    return {
        "its fields are identified by position": getattr(config, "array_like", False),
        "it forbids fields that it does not have": getattr(config, "forbid_unknown_fields", False),
        "it has a tag": getattr(config, "tag", None) is not None,
        "it has a __post_init__": hasattr(kind, "__post_init__"),
    }


def _may_be_missing(kind: Any, name: str, hint: Any) -> bool:
    """Whether it is a key of a TypedDict that may be missing. `__optional_keys__` does not know what annotations in quotes say."""
    if not is_typeddict(kind) or get_origin(hint) is Required:
        return False
    return get_origin(hint) is NotRequired or name in kind.__optional_keys__


def _has_fields(kind: Any) -> bool:
    return is_typeddict(kind) or dataclasses.is_dataclass(kind) or hasattr(kind, "__struct_config__")


def _named(hint: Any) -> str:
    return hint.__qualname__ if isinstance(hint, type) and not get_args(hint) else str(hint).replace("typing.", "")


# ----------------------------------------------------------------------------------------------------------------- Arrow


def is_arrow_schema(kind: Any) -> bool:
    """Whether this is a `pyarrow.Schema`; pyarrow is not imported for the question."""
    return type(kind).__name__ == "Schema" and type(kind).__module__.partition(".")[0] == "pyarrow"


def type_of_arrow(schema: Any) -> Any:
    """A TypedDict with the fields of a `pyarrow.Schema`; a field that is nullable may be None."""
    fields: dict[str, Any] = {}
    for one in schema:
        kind = ARROW.get(str(one.type))
        if kind is None:
            raise DeclarationError(
                f"the field '{one.name}' of the pyarrow.Schema is {one.type}, which no column can hold",
                remedy=f"one of {', '.join(ARROW)}; leave other fields out of the schema: they are skipped",
            )
        if one.name in fields:
            raise DeclarationError(f"the pyarrow.Schema has two fields '{one.name}'", remedy="rename one of them")
        fields[one.name] = kind | None if one.nullable else kind
    return TypedDict("Schema", fields)  # type: ignore[operator]
