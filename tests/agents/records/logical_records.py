"""Records with times, decimals, bytes, lists and maps that are nearly right, by chance from a seed; and what they are by a few lines of
Python around msgspec: for the tests, and for hours of them."""

from __future__ import annotations

import json
import random
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Annotated, Any, TypedDict

import msgspec
import orjson

import headgate as hg
from headgate.agents.records.values.column_types import columns_of_type

from .mutations import mutated


class Item(msgspec.Struct, rename={"n": "count"}):
    sku: str
    n: int
    price: Annotated[Decimal, hg.Digits(6, 2)] | None = None


class Inner(TypedDict):
    at: datetime
    blob: bytes | None


class Event(TypedDict):
    at: datetime
    local: Annotated[datetime, msgspec.Meta(tz=False)] | None
    day: date | None
    price: Annotated[Decimal, hg.Digits(12, 2)]
    n: int
    blob: bytes | None
    tags: list[str | None]
    items: list[Item] | None
    counts: dict[str, list[float]]
    inner: Inner | None


SCHEMA = columns_of_type(Event)
WHOLE: dict[str, Any] = {
    "at": "2026-01-31T12:00:00.25+01:00",
    "local": "2026-01-31T12:00:00",
    "day": "2026-01-31",
    "price": "-12.50",
    "n": 7,
    "blob": "YWI=",
    "tags": ["a", None, "ü\n"],
    "items": [{"sku": "x", "count": 1, "price": "1.5"}, {"sku": "y", "count": 2}],
    "counts": {"a": [1, 2.5], "": []},
    "inner": {"at": "1969-12-31T23:59:59.999999Z", "blob": None},
}
_ODD: list[Any] = [
    *(None, True, 5, -1.25, 1e30, 0.1, "", "t", [], {}, [None], [[1.0]], {"a": [None]}, {"a": 5}, [1], ["x", 2]),
    *(
        "2026-02-30",
        "0001-01-01T00:00:00+01:00",
        "9999-12-31T23:59:59.9999999",
        "2026-01-31T12:00:00Z",
        "2026-01-31 12:00:00",
    ),
    *("1e5", "99999999999", "0.001", "NaN", "-0", "12.500", "1E-400", "YQ==", "YQ", "!!!!", 2**63, -(2**63), 2**64),
    *(
        [{"sku": "x", "count": 1, "price": "1.001"}],
        [{"sku": "x", "count": 2**63}],
        [{"count": 1}],
        {"at": "x"},
        {"blob": ""},
    ),
]


def some(chance: random.Random, count: int) -> list[bytes]:
    """Records of events, most of them with something odd."""
    records: list[bytes] = []
    for _ in range(count):
        one = {**WHOLE, "inner": dict(WHOLE["inner"])}
        for holder in (one, one["inner"]):
            name = chance.choice([*holder, "other"])
            if chance.random() < 0.5:
                holder[name] = chance.choice([*_ODD, *WHOLE.values()])
            if chance.random() < 0.1:
                holder.pop(chance.choice(list(holder)))
        text = json.dumps(one, separators=(",", ":")).encode()
        if chance.random() < 0.2:
            text = text.replace(
                b'"-12.50"', chance.choice([b"-12.50", b"1.10", b"1e2", b"1E-2", b"12345678901.5", b"0.0000"])
            )
        if chance.random() < 0.1:  # the last of two equal keys counts
            text = text[:-1] + b',"price":' + json.dumps(chance.choice(_ODD)).encode() + b"}"
        records.append(mutated(chance, text) if chance.random() < 0.3 else text)
    return records


def expected(record: bytes) -> dict[str, Any] | None:
    """The values of a record by the names of its columns; None if it is bad."""
    try:
        orjson.loads(record)
        fields: dict[str, Any] = msgspec.json.decode(record, type=dict[str, msgspec.Raw])
        inner = msgspec.json.decode(fields.get("inner", b"null"), type=dict[str, msgspec.Raw] | None)
        found = {"inner": None if inner is None else True}
        found |= {name: _field(name, fields.get(name, b"null")) for name in TYPES}
        for name in _INNER:
            found[f"inner.{name}"] = None if inner is None else _field(name, inner.get(name, b"null"))
    except (ValueError, AssertionError, OverflowError, RecursionError):
        return None
    return {name: found[name] for name in SCHEMA.names}


_INNER = ("at", "blob")
TYPES: dict[str, Any] = {
    "at": datetime,
    "local": datetime | None,
    "day": date | None,
    "price": Decimal,
    "n": int,
    "blob": bytes | None,
    "tags": list[str | None],
    "items": list[Item] | None,
    "counts": dict[str, list[float]],
}
"""The types of the fields, by their names, as msgspec knows them."""


def _field(name: str, raw: Any) -> Any:
    value: Any = msgspec.json.decode(raw, type=TYPES[name])
    if value is None:
        return None
    if name == "at":
        assert value.tzinfo is not None
        value = value.astimezone(UTC)
    assert name != "local" or value.tzinfo is None
    assert name != "price" or _has_digits(value, 12)
    assert name != "n" or -(2**63) <= value < 2**63
    for item in value if name == "items" else ():
        assert -(2**63) <= item.n < 2**63
        assert item.price is None or _has_digits(item.price, 6)
    return value


def _has_digits(value: Decimal, digits: int) -> bool:
    if not value.is_finite():
        return False
    whole, over = value.as_integer_ratio()
    return 100 * whole % over == 0 and abs(100 * whole // over) < 10**digits
