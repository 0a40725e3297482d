"""Examples of the page about serdes: each function is one, and its first line says of what."""

from __future__ import annotations

import uuid
from dataclasses import dataclass

import msgspec

import headgate as hg


def serde() -> None:
    """Serde, Serde.loads, Serde.dumps"""
    numbers = hg.json(int)
    assert numbers.dumps(7) == b"7"
    assert numbers.loads(b"7") == 7
    try:
        numbers.loads(b'"seven"')
    except hg.DataError as error:
        assert "int" in str(error)


def many_at_once() -> None:
    """Serde.loads_many, Serde.dumps_many"""
    found = hg.json().loads_many([b"1", b"{", None])
    assert (found.values, [row for row, _ in found.bad]) == ([1, None, None], [1])
    assert hg.json().dumps_many([1, None]).values == [b"1", None]


def json() -> None:
    """json"""

    class Order(msgspec.Struct, gc=False):
        country: str
        amount: float = 0.0

    @dataclass
    class Paid:
        by: str

    assert hg.json().loads(b'{"n": 1}') == {"n": 1}
    assert hg.json(Order).loads(b'{"country": "DE", "other": 1}') == Order("DE")
    assert hg.json(Paid).loads(b'{"by": "card"}') == Paid("card")


def msgpack() -> None:
    """msgpack"""
    assert hg.msgpack().dumps([1, "a"]) == b"\x92\x01\xa1a"
    assert hg.msgpack(list[int]).loads(b"\x91\x01") == [1]


def text() -> None:
    """text"""
    assert hg.text().dumps("Zürich") == b"Z\xc3\xbcrich"
    assert hg.text("latin-1").loads(b"Z\xfcrich") == "Zürich"


def raw() -> None:
    """raw, bytes"""
    assert hg.raw().loads(b"\x00\xff") == b"\x00\xff"
    assert hg.bytes is hg.raw


def key() -> None:
    """key"""
    assert hg.key().dumps("DE") == b"DE"
    assert hg.key(int).dumps(7) == b"\xff\x15\x07"
    pair = ("DE", uuid.UUID(int=1))
    assert hg.key().loads(hg.key().dumps(pair)) == pair


def arrow() -> None:
    """arrow"""
    import pyarrow

    table = pyarrow.table({"n": [1, 2]})
    assert hg.arrow().loads(hg.arrow().dumps(table)) == table


def custom() -> None:
    """custom"""
    decimal = hg.custom(int, lambda number: b"%d" % number, name="decimal")
    app = hg.App("numbers")
    app.input("numbers", serde=decimal).map(lambda number: number * 2).to("doubled", serde=decimal)

    with hg.testing.Driver(app) as driver:
        driver.send("numbers", 21)
        assert driver.read("doubled")[0].value == 42


def field() -> None:
    """field"""
    app = hg.App("times")
    app.input("events", timestamp=hg.field("at", unit="s")).to("copies")

    with hg.testing.Driver(app) as driver:
        driver.send("events", {"at": 1_700_000_000})
        assert driver.read("copies")[0].timestamp == 1_700_000_000_000
