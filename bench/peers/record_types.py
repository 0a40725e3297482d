"""The types that the works declare: the fields that each uses. A writes all fields of a record; of a nested one, those that are used."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec


class Event(msgspec.Struct, gc=False):
    """A record, for A."""

    user: str
    amount: int
    p: int
    i: int
    city: str
    pad: str


class Total(Event, gc=False):
    """What A makes of it."""

    total: int


class Used(msgspec.Struct, gc=False):
    """The fields of a nested record that A uses."""

    user: str
    amount: int
    p: int
    i: int


class UsedTotal(Used, gc=False):
    """What A makes of them."""

    total: int


class Spent(msgspec.Struct, gc=False):
    """What B uses."""

    user: str
    amount: int


class Counts(msgspec.Struct, gc=False):
    """What B writes."""

    n: int
    total: int


class Timed(Spent, gc=False):
    """What W uses."""

    ts: int


class Order(msgspec.Struct, gc=False):
    """What J uses of an order."""

    id: str
    amount: int
    ts: int


class Payment(msgspec.Struct, gc=False):
    """What J uses of a payment."""

    id: str
    paid: int
    ts: int


class Paid(msgspec.Struct, gc=False):
    """What J makes of both."""

    id: str
    amount: int
    paid: int


class Amount(msgspec.Struct, gc=False):
    """What C uses."""

    amount: int


def type_of(work: str, nested: bool) -> type[Any]:
    """The type of a work's input."""
    if work == "A":
        return Used if nested else Event
    return {"B": Spent, "S": Spent, "W": Timed, "C": Amount}[work]


def doubled(nested: bool) -> tuple[type[Any], Callable[[Any], Any]]:
    """Work A's function of a value, behind the type that it returns."""
    if nested:
        return UsedTotal, lambda o: UsedTotal(o.user, o.amount, o.p, o.i, o.amount * 2)
    return Total, lambda o: Total(o.user, o.amount, o.p, o.i, o.city, o.pad, o.amount * 2)
