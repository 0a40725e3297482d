"""The schema of columns that a type declares: a TypedDict, dataclass, msgspec Struct or `pyarrow.Schema`.

What it decides: which Python and Arrow types are types of columns. They are `int`, `float`, `bool` and `str`, the logical types
(`logical_types`), types whose fields are columns, and each with `| None`; a field that may be None may also be missing, and has no other
default than None. Rows whose fields are read as columns have no logical types.

Promises: a type that no column can have is refused with the field that has it, and with what to do. A type with rules that columns do not
check (constraints, tags, fields by position, unknown fields forbidden) is refused, too: no record would be judged by other rules than the
type's own.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import inspect
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import date, datetime
from decimal import Decimal
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
from ....core.columns.logical import MOST_DIGITS, WHOLE
from ....core.columns.schema import BOOL, INT, TEXT, ColumnSchema, ColumnSpec, PathPart
from ....core.errors import DeclarationError
from ..native import chosen
from .logical_types import Digits, logical_type
from .nesting import MakeObjects, Nesting, nesting

_LEAVE_OUT = (
    "leave it out of the type (fields that the type does not have are skipped), or work in rows, without .columns()"
)
COLUMNS = "int, float, bool, str, datetime, date, Decimal, bytes, lists and maps of these"
_MISSING = object()
ARROW = {
    "int64": int,
    "double": float,
    "bool": bool,
    "string": str,
    "large_string": str,
    "date32[day]": date,
    "binary": bytes,
    "large_binary": bytes,
}
"""The name of an Arrow type → the Python type of its values."""
COLUMNS_OF_ARROW = (
    "int64, double, bool, string, timestamp, date32, decimal128 of at most 18 digits, binary, lists, structs, maps"
)


def columns_of_type(kind: Any) -> ColumnSchema:
    """The columns of the values of a type; a `DeclarationError` if it has fields that no column can hold.

    >>> class Order(TypedDict):
    ...     user: str
    ...     amount: float | None
    >>> str(columns_of_type(Order))
    'user: text, amount: float64 | null'
    """
    return ColumnSchema(tuple(_columns_in(kind, (), ())))


def _columns_in(kind: Any, path: tuple[PathPart, ...], outer: tuple[Any, ...]) -> Iterator[ColumnSpec]:
    """The columns of a type whose values lie at this path, inside of values of the outer types."""
    _refuse_rules(kind)
    hints = _hints_of(kind)
    fields = list(_fields(kind, hints))
    if not fields:
        raise DeclarationError(f"{kind.__qualname__} has no fields, so it has no columns")
    for name, attribute, default in fields:
        hint = hints[attribute]
        inner, optional = nested_type(hint)
        if inner is None:
            yield _placed(_column(kind, name, hint, default, logical=True), path)
            continue
        yield from _object(kind, PathPart(name, optional), inner, path, outer)
        _check_missing(kind, name, hint, default, optional, inner)
        yield from _columns_in(inner, (*path, PathPart(name, optional)), (*outer, kind))


def _object(
    kind: Any, field: PathPart, inner: Any, path: tuple[PathPart, ...], outer: tuple[Any, ...]
) -> Iterator[ColumnSpec]:
    """The column of an object itself, if it may be null."""
    if inner is kind or inner in outer:
        raise DeclarationError(
            f"the field '{field.name}' of {kind.__qualname__} may lie in itself, without end", remedy=_LEAVE_OUT
        )
    if field.optional:
        own = (*path, field)
        yield ColumnSpec(".".join(one.name for one in own), BOOL, True, own, is_object=True)


def nested_type(hint: Any) -> tuple[Any, bool]:
    """The type of a field whose fields are columns, or None; and whether the field may be None."""
    while get_origin(hint) in (NotRequired, Required):
        (hint,) = get_args(hint)
    options = set(get_args(hint)) if get_origin(hint) in (Union, UnionType) else {hint}
    optional = NoneType in options
    options.discard(NoneType)
    (only, *others) = options or {None}
    return (None if others or not _has_fields(only) else only), optional


def _placed(column: ColumnSpec, path: tuple[PathPart, ...]) -> ColumnSpec:
    """A column where it lies."""
    if not path:
        return column
    own = (*path, PathPart(column.name, column.optional))
    title, optional = ".".join(one.name for one in own), any(one.optional for one in own)
    return ColumnSpec(title, column.type, optional, own, logical=column.logical)


def hints_of_columns(kind: Any, schema: ColumnSchema) -> dict[str, Any]:
    """The types with which the lists and maps among these columns of a type were declared, by the names of the columns."""
    found: dict[str, Any] = {}
    for one in schema.columns:
        if one.logical is None or one.logical.name in WHOLE:
            continue
        hint = kind
        for part in [part.name for part in one.path] or [one.name]:
            holder = nested_type(hint)[0]
            hints = _hints_of(holder)
            hint = next(hints[attribute] for name, attribute, _ in _fields(holder, hints) if name == part)
        while get_origin(hint) in (NotRequired, Required):
            (hint,) = get_args(hint)
        found[one.name] = hint
    return found


def maker(kind: Any, schema: ColumnSchema) -> Callable[[list[list[Any]]], list[Any]] | None:
    """The function that makes values of a type (None: dicts) of the columns of a schema; None if flat dicts are the values."""
    if schema.nested:
        of, make = nesting(schema.columns), _maker_of(kind)
        return lambda columns: make(of, columns)
    if kind is None or is_typeddict(kind):
        return None
    return _constructor(kind)


def _constructor(kind: Any) -> Callable[[list[list[Any]]], list[Any]]:
    attributes = [attribute for _, attribute, _ in _fields(kind, {})]
    given = list(inspect.signature(kind).parameters.values())[: len(attributes)]
    if [one.name for one in given] == attributes and all(one.kind == one.POSITIONAL_OR_KEYWORD for one in given):
        return lambda columns: list(map(kind, *columns))
    return lambda columns: [kind(**dict(zip(attributes, row, strict=True))) for row in zip(*columns, strict=True)]


def _maker_of(kind: Any) -> MakeObjects:
    """The function that makes objects of a type of their columns."""
    if kind is None:
        return lambda of, columns: of.dicts(columns, len(columns[0]))
    construct = None if is_typeddict(kind) else _constructor(kind)
    inner: dict[str, MakeObjects] = {}
    hints = _hints_of(kind)
    for name, attribute, _ in _fields(kind, hints):
        if (found := nested_type(hints[attribute])[0]) is not None:
            inner[name] = _maker_of(found)

    def make(of: Nesting, columns: list[list[Any]]) -> list[Any]:
        names = tuple(of.members)
        lists = [
            columns[one] if isinstance(one, int) else inner[name](one, columns) for name, one in of.members.items()
        ]
        made = chosen.part.dicts(names, lists, len(lists[0])) if construct is None else construct(lists)
        return of.without_nulls(made, columns)

    return make


class PlainField(NamedTuple):
    """A field of a type whose other fields may be of any kind."""

    attribute: str
    column: ColumnSpec
    required: bool
    """Its class has no default for it."""


def plain_fields(kind: Any, *, logical: bool = False) -> list[PlainField]:
    """The fields of a type that could be columns, whatever its other fields are; none if it has no fields. `logical`: those of logical
    types, too."""
    if not _has_fields(kind):
        return []
    hints = get_type_hints(kind, include_extras=True)
    found: list[PlainField] = []
    for name, attribute, default in _fields(kind, hints):
        with contextlib.suppress(DeclarationError):
            column = _column(kind, name, hints[attribute], _MISSING, logical=logical)
            found.append(
                PlainField(attribute, column, default is _MISSING and not _may_be_missing(kind, name, hints[attribute]))
            )
    return found


class AnyField(NamedTuple):
    """A field of any kind. `required`: its class has no default for it, and it is no key that may be missing."""

    name: str
    """Its name in a record."""
    hint: Any
    required: bool


def any_fields(kind: Any) -> list[AnyField]:
    """All fields of a type; none if it has no fields."""
    if not _has_fields(kind):
        return []
    hints = _hints_of(kind)
    return [
        AnyField(name, hints[own], default is _MISSING and not _may_be_missing(kind, name, hints[own]))
        for name, own, default in _fields(kind, hints)
    ]


def named_fields(kind: Any) -> dict[str, str]:
    """The fields of a type by their names in a record, each with the type of the column that could hold it; empty where none can.

    >>> named_fields(TypedDict("Order", {"user": str, "tags": list[str]}))
    {'user': 'text', 'tags': ''}
    """
    if not _has_fields(kind):
        return {}
    columns = {one.column.name: one.column.type for one in plain_fields(kind)}
    return {name: columns.get(name, "") for name, *_ in _fields(kind, get_type_hints(kind, include_extras=True))}


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
    found = tuple(_columns_of_rows_in(kind, (), (), encoded=encoded))
    if not found:
        raise DeclarationError(f"{kind.__qualname__} has no fields, so it has no columns")
    return ColumnSchema(found)


def _columns_of_rows_in(
    kind: Any, path: tuple[PathPart, ...], outer: tuple[Any, ...], *, encoded: bool
) -> Iterator[ColumnSpec]:
    hints = _hints_of(kind)
    for name, attribute, _ in _fields(kind, hints):
        hint = _or_none(hints[attribute]) if _may_be_missing(kind, name, hints[attribute]) else hints[attribute]
        title = name if encoded else attribute
        inner, optional = nested_type(hint)
        if inner is None:
            column = _column(kind, name, hint, _MISSING, logical=True)
            yield _placed(replace(column, name=title), path)
        else:
            yield from _object(kind, PathPart(title, optional), inner, path, outer)
            own = (*path, PathPart(title, optional))
            yield from _columns_of_rows_in(inner, own, (*outer, kind), encoded=encoded)


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


def _column(kind: Any, name: str, hint: Any, default: Any, *, logical: bool = False) -> ColumnSpec:
    """The column of a field. `logical`: it may be of a logical type."""
    where = f"the field '{name}' of {kind.__qualname__}"
    whole = hint
    while get_origin(hint) in (NotRequired, Required):
        (hint,) = get_args(hint)
    if logical and (found := logical_type(hint, where)) is not None:
        _check_missing(kind, name, whole, default, found.optional, hint)
        own = replace(found, optional=False)
        return ColumnSpec(name, INT if own.name in WHOLE else TEXT, found.optional, logical=own)
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
            f"{where} is {_named(hint)}, which no column can hold; columns are {COLUMNS}, or each of them | None",
            remedy=_LEAVE_OUT,
        )
    _check_missing(kind, name, whole, default, optional, only)
    return ColumnSpec(name, TYPES[only], optional)


def _check_missing(kind: Any, name: str, hint: Any, default: Any, optional: bool, only: Any) -> None:
    """Refuse a field that has a value where it is missing."""
    where = f"the field '{name}' of {kind.__qualname__}"
    if _may_be_missing(kind, name, hint) and not optional:
        raise DeclarationError(
            f"{where} may be missing, and a column then holds null", remedy=f"declare it {_named(only)} | None"
        )
    if default is not _MISSING and default is not None:
        raise DeclarationError(
            f"{where} has a default, and a column has none: a missing field is null",
            remedy=f"declare it {_named(only)} | None = None",
        )


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
        kind = _hint_of_arrow(one.type)
        if kind is None:
            raise DeclarationError(
                f"the field '{one.name}' of the pyarrow.Schema is {one.type}, which no column can hold",
                remedy=f"{COLUMNS_OF_ARROW}; leave other fields out of the schema: they are skipped",
            )
        if one.name in fields:
            raise DeclarationError(f"the pyarrow.Schema has two fields '{one.name}'", remedy="rename one of them")
        fields[one.name] = Union[kind, None] if one.nullable else kind  # noqa: UP007 - a TypedDict has no |
    return TypedDict("Schema", fields)  # type: ignore[operator]


def _hint_of_arrow(kind: Any) -> Any:
    """The Python type of the values of an Arrow type; None if no column holds them."""
    text = str(kind)
    if text in ARROW:
        return ARROW[text]
    if text.startswith("struct<"):
        return type_of_arrow(kind)
    if text.startswith("timestamp["):
        rules: Any = importlib.import_module("msgspec")
        return Annotated[datetime, rules.Meta(tz=kind.tz is not None)]
    if text.startswith("decimal128(") and kind.precision <= MOST_DIGITS and 0 <= kind.scale <= kind.precision:
        return Annotated[Decimal, Digits(kind.precision, kind.scale)]
    if text.startswith(("list<", "large_list<")) and (inner := _hint_of_arrow(kind.value_type)) is not None:
        return list[_nullable(inner, kind.value_field)]
    if text.startswith("map<string, ") and (inner := _hint_of_arrow(kind.item_type)) is not None:
        return dict[str, _nullable(inner, kind.item_field)]
    return None


def _nullable(hint: Any, field: Any) -> Any:
    return Union[hint, None] if field.nullable else hint  # noqa: UP007 - the type is computed
