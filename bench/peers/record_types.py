"""The types that the works declare: the record as it is, or the fields of the nested one that are used."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec


class Event(msgspec.Struct, gc=False):
    """A record."""

    user: str
    amount: int
    p: int
    i: int
    city: str
    pad: str


class Total(Event, gc=False):
    """A record with the field that A adds."""

    total: int


class Used(msgspec.Struct, gc=False):
    """The fields of the nested record that are used."""

    user: str
    amount: int
    p: int
    i: int


class UsedTotal(Used, gc=False):
    """They, with the field that A adds."""

    total: int


def types(nested: bool) -> tuple[type[Any], type[Any]]:
    """The type of the input, and that of A's output."""
    return (Used, UsedTotal) if nested else (Event, Total)


def doubled(result: type[Any]) -> Callable[[Any], Any]:
    """Work A's function of a value."""
    if result is UsedTotal:
        return lambda o: UsedTotal(o.user, o.amount, o.p, o.i, o.amount * 2)
    return lambda o: Total(o.user, o.amount, o.p, o.i, o.city, o.pad, o.amount * 2)
