"""Keys that are records, as Debezium and Connect write them: a named tuple of their fields is a key, and other types say what they lack."""

from __future__ import annotations

import dataclasses
from io import BytesIO
from typing import Any, NamedTuple

import fastavro
import pytest
from google.protobuf.wrappers_pb2 import Int64Value as WRAPPED

import headgate as hg
from headgate.agents.registry import wire
from headgate.agents.registry.avro_types import schema_of_type
from headgate.core.errors import DeclarationError, HeadgateError

KEY = {
    "type": "record",
    "name": "Key",
    "namespace": "shop.orders",
    "fields": [{"name": "id", "type": "int"}, {"name": "region", "type": "string"}],
}
LONGER = {**KEY, "fields": [*KEY["fields"], {"name": "shard", "type": "int"}]}


class Key(NamedTuple):
    id: int
    region: str = "eu"


@dataclasses.dataclass(frozen=True)
class NoKey:
    id: int
    region: str


def key_bytes(number: int, schema: Any, value: Any) -> bytes:
    target = BytesIO()
    fastavro.schemaless_writer(target, fastavro.parse_schema(schema), value)
    return wire.prefix(number) + target.getvalue()


def test_a_named_tuple_is_the_key_of_counts_tables_and_outputs() -> None:
    """By the names of its fields: others are skipped, missing ones have its defaults. Written, it is a record again, byte for byte."""
    app = hg.App("shop")
    orders = app.input("orders", key_serde=hg.avro(Key))
    counts = orders.repartition(name="by-key").agg(name="counts", n=hg.count())
    counts.to("typed", key_serde=hg.avro(Key))
    counts.to("given", key_serde=hg.avro(schema=KEY))
    orders.map(lambda record: record.key.region, with_record=True).to("regions", key_serde=hg.json())
    small = {"type": "record", "name": "Key", "fields": [{"name": "id", "type": "long"}]}
    with hg.testing.Driver(app, schemas={1: KEY, 2: LONGER, 3: small}) as d:
        d.send("orders", 1, key=key_bytes(1, KEY, {"id": 7, "region": "eu"}))
        d.send("orders", 1, key=key_bytes(2, LONGER, {"id": 7, "region": "eu", "shard": 3}))
        d.send("orders", 1, key=key_bytes(3, small, {"id": 7}))
        assert d.table("counts")[Key(7)] == {"n": 3}
        assert d.read("typed")[-1] == hg.Record(Key(7, "eu"), {"n": 3}, 0)
        assert d.read("given")[-1] == hg.Record({"id": 7, "region": "eu"}, {"n": 3}, 0)
        assert {(*one.key, one.value) for one in d.read("regions")} == {(7, "eu", "eu")}


def test_a_record_without_a_field_of_the_named_tuple_is_bad_data_and_a_tuple_of_another_length_an_error() -> None:
    """One record each."""
    app = hg.App("shop", settings={"error.retries": 0})
    orders = app.input("orders", key_serde=hg.avro(Key), on_bad_data="dead_letter")
    orders.repartition(name="by-key").agg(n=hg.count()).to("counts", key_serde=hg.json())
    odd = {"type": "record", "name": "Key", "fields": [{"name": "region", "type": "string"}]}
    app.input("pairs").rekey(lambda value: tuple(value)).to("keyed", key_serde=hg.avro(Key), on_error="dead_letter")
    with hg.testing.Driver(app, schemas={1: KEY, 2: odd, 3: "string"}) as d:
        d.send("orders", 1, key=key_bytes(2, odd, {"region": "eu"}))
        d.send("orders", 1, key=key_bytes(3, "string", "k"))
        d.send("orders", 1, key=key_bytes(1, KEY, {"id": 7, "region": "eu"}))
        d.send_all("pairs", [[1, "eu", "more"], [1, "eu"]])
        assert d.read("counts") == [hg.Record([7, "eu"], {"n": 1}, 0)]
        assert [one.key for one in d.read("keyed")] == [Key(1, "eu")]
        said = [one.exception for one in d.dead_letters()]
        assert len(said) == 3
        for what in ("the record has no field 'id'", "it is str, and no record", "a tuple of 3 is no record"):
            assert any(what in one for one in said), said


def test_the_schema_of_a_named_tuple_is_that_of_its_fields_and_inside_of_another_type_there_is_none() -> None:
    """In msgpack and JSON a named tuple inside of a value is an array, which is no record."""
    assert schema_of_type(Key) == {
        "type": "record",
        "name": "Key",
        "fields": [{"name": "id", "type": "long"}, {"name": "region", "type": "string", "default": "eu"}],
    }
    with pytest.raises(DeclarationError, match="Avro has no type for namedtuple"):
        schema_of_type(dict[str, Key])


def _counted(serde: Any, key: Any, schemas: Any) -> None:
    app = hg.App("shop", settings={"error.retries": 0})
    app.input("orders", key_serde=serde).agg(n=hg.count()).to("counts")
    with hg.testing.Driver(app, schemas=schemas) as d:
        d.send("orders", 1, key=key)
        d.read("counts")


def test_other_types_of_records_are_no_keys_and_the_error_names_what_is() -> None:
    """Dicts, objects and messages go through to an output as they are, but nothing is grouped by them."""
    message = WRAPPED(value=3)
    for serde, key in (
        (hg.avro(), key_bytes(1, KEY, {"id": 7, "region": "eu"})),
        (hg.avro(NoKey), key_bytes(1, KEY, {"id": 7, "region": "eu"})),
        (hg.json_schema(NoKey), NoKey(7, "eu")),
        (hg.protobuf(WRAPPED), message),
    ):
        app = hg.App("shop")
        app.input("orders", key_serde=serde).to("out", key_serde=serde)
        with hg.testing.Driver(app, schemas={1: KEY, "out-key": KEY}) as d:
            d.send("orders", 1, key=key)
            assert len(d.read("out")) == 1
        with pytest.raises(HeadgateError, match=r"(?s)which cannot be a key .* a record is one as a named tuple"):
            _counted(serde, key, {1: KEY})


def test_the_key_of_a_message_is_one_of_its_fields() -> None:
    """As the error says: another key is set, then records meet by it."""
    app = hg.App("shop")
    lines = app.input("lines", key_serde=hg.protobuf(WRAPPED))
    numbered = lines.map(lambda record: dataclasses.replace(record, key=record.key.value), with_record=True)
    numbered.repartition(name="by-number").agg(n=hg.count()).to("counts", key_serde=hg.json_schema(int))
    with hg.testing.Driver(app) as d:
        for _ in range(2):
            d.send("lines", 1, key=WRAPPED(value=3))
        assert d.read("counts")[-1] == hg.Record(3, {"n": 2}, 0)
