"""Orders with nested objects, and records of them that are nearly right, by chance from a seed: for the tests, and for hours of them."""

from __future__ import annotations

import random
from typing import TypedDict

import orjson

from headgate.agents.records.values.column_types import columns_of_type

from .mutations import mutated


class Place(TypedDict):
    city: str
    zip: int | None


class Customer(TypedDict):
    name: str | None
    place: Place | None
    home: Place
    vip: bool


class Order(TypedDict):
    id: int
    customer: Customer | None
    to: Place
    price: float | None


SCHEMA = columns_of_type(Order)


def some(chance: random.Random, count: int) -> list[bytes]:
    """Records of orders, most of them with something odd."""
    place = {"city": "Bär\n", "zip": 7}
    whole = {"id": 1, "customer": {"name": "x", "place": place, "home": place, "vip": True}, "to": place, "price": 2.5}
    records: list[bytes] = []
    for _ in range(count):
        one = orjson.loads(orjson.dumps(whole))
        for holder in (one, one["customer"], one["to"]):
            name = chance.choice([*holder, "other"])
            if chance.random() < 0.3:
                holder[name] = chance.choice([None, 5, "t", {}, [], place, {**place, "more": [1, {"a": 2}]}])
        text = orjson.dumps(one)
        if chance.random() < 0.3:  # the last of two equal keys counts
            text = text[:-1] + b',"customer":' + orjson.dumps(chance.choice([one["customer"], None, {"vip": 1}])) + b"}"
        records.append(mutated(chance, text) if chance.random() < 0.5 else text)
    return records
