"""Which fields of a record may be missing: those that may be None. They are None then, in objects, lists and maps of objects, too.

What it decides: that for rows and for values that are made of columns, as columns decide it for themselves. A field with a default is not
among them, nor is a key of a TypedDict that is `NotRequired`: the library that decodes knows what these are.
"""

from __future__ import annotations

from collections.abc import Callable
from types import NoneType, UnionType
from typing import Annotated, Any, NotRequired, Required, Union, get_args, get_origin

from .column_types import any_fields

Fill = Callable[[Any], Any]


def filler(kind: Any) -> Fill:
    """The function that gives decoded JSON or msgpack of this type the fields that are missing; `as_it_is` if none may be missing.

    >>> from typing import TypedDict
    >>> class Item(TypedDict):
    ...     name: str
    ...     size: int | None
    >>> filler(list[Item])([{"name": "a"}, {"name": "b", "size": 2}])
    [{'name': 'a', 'size': None}, {'name': 'b', 'size': 2}]
    """
    return _of(kind, {}) or as_it_is


def as_it_is(value: Any) -> Any:
    """The filler of a type of which nothing may be missing."""
    return value


def _of(hint: Any, begun: dict[Any, list[Fill]]) -> Fill | None:
    """`begun`: the types that it lies in; each gets its function when it is made."""
    options, _ = _options(hint)
    if len(options) != 1:
        return None
    (only,) = options
    origin, args = get_origin(only), get_args(only)
    if origin is list and len(args) == 1 and (one := _of(args[0], begun)) is not None:
        return lambda value: list(map(one, value)) if type(value) is list else value
    if origin is dict and len(args) == 2 and (one := _of(args[1], begun)) is not None:
        return lambda value: {key: one(of) for key, of in value.items()} if type(value) is dict else value
    return _of_object(only, begun)


def _of_object(kind: Any, begun: dict[Any, list[Fill]]) -> Fill | None:
    if kind in begun:
        made = begun[kind]
        return lambda value: made[0](value) if made else value
    fields = any_fields(kind)
    made = begun[kind] = []
    nulls = {one.name: None for one in fields if one.required and _options(one.hint)[1]}
    inner = {one.name: found for one in fields if (found := _of(one.hint, begun)) is not None}
    del begun[kind]
    if not nulls and not inner:
        return None

    def fill(value: Any) -> Any:
        if type(value) is not dict:
            return value
        filled = {**nulls, **value}
        for name, of in inner.items():
            if filled.get(name) is not None:
                filled[name] = of(filled[name])
        return filled

    made.append(fill)
    return fill


def _options(hint: Any) -> tuple[list[Any], bool]:
    """What a value may be that is not None, and whether it may be None."""
    while get_origin(hint) in (NotRequired, Required, Annotated):
        hint = get_args(hint)[0]
    options = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    return [one for one in options if one is not NoneType], NoneType in options
