"""Avro, Protobuf and JSON Schema on the test driver, whose registry is a fixed map: what is read, what is written, and what is bad data."""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import json
import sys
import uuid
from io import BytesIO
from types import SimpleNamespace
from typing import Any

import fastavro
import msgspec
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from hypothesis import given
from hypothesis import strategies as st

import headgate as hg
from headgate.agents.registry import wire
from headgate.agents.registry.avro_types import schema_of_type
from headgate.agents.registry.memory import MemoryRegistry, taught
from headgate.agents.registry.serde import RegistrySerde

OLD = {
    "type": "record",
    "name": "com.shop.Order",
    "fields": [{"name": "id", "type": "int"}, {"name": "country", "type": "string"}],
}
NEW = {
    "type": "record",
    "name": "com.shop.Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "land", "type": "string", "aliases": ["country"]},
        {"name": "amount", "type": "double", "default": 1.5},
    ],
}


class Kind(enum.Enum):
    PAID = "PAID"
    OPEN = "OPEN"


class Line(msgspec.Struct):
    sku: str
    count: int = 1


@dataclasses.dataclass
class Order:
    id: int
    country: str
    kind: Kind = Kind.OPEN
    lines: list[Line] = dataclasses.field(default_factory=list)
    at: dt.datetime | None = None
    raw: bytes = b""
    labels: dict[str, str] = dataclasses.field(default_factory=dict)
    ref: uuid.UUID | None = None


def body(schema: Any, value: Any) -> bytes:
    """A value in Avro, without a prefix."""
    out = BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


def alone(serde: Any, schemas: Any = None, topic: str = "t") -> Any:
    """A serde that asks a registry in memory."""
    bound = serde.at(topic, "value")
    assert isinstance(bound, RegistrySerde)
    bound.connect(MemoryRegistry(schemas))
    return bound


def read(serde: Any, data: list[bytes | None]) -> tuple[list[Any], list[tuple[int, str]]]:
    found = taught(serde.loads_many, data)
    return found.values, [(index, error.what) for index, error in found.bad]


# --------------------------------------------------------------------------------------------------------------- reading


def test_records_of_two_schemas_are_read_each_with_its_own_and_resolved_to_the_readers() -> None:
    """Names by alias, a default, and a wider number: Avro's rules. Without `schema=`, a value is as its writer had it."""
    one, two = (
        wire.prefix(1) + body(OLD, {"id": 1, "country": "DE"}),
        wire.prefix(2) + body(NEW, {"id": 2, "land": "FR"}),
    )
    schemas = {1: OLD, 2: NEW}
    plain, _ = read(alone(hg.avro(), schemas), [one, None, two])
    assert plain == [{"id": 1, "country": "DE"}, None, {"id": 2, "land": "FR", "amount": 1.5}]
    resolved, _ = read(alone(hg.avro(schema=NEW), schemas), [two, one])
    assert resolved == [{"id": 2, "land": "FR", "amount": 1.5}, {"id": 1, "land": "DE", "amount": 1.5}]


def test_bad_records_are_named_each_and_the_others_are_read() -> None:
    """No prefix, an id that does not exist, a schema of another kind, too few bytes, too many, and what does not fit the type."""

    class Small(msgspec.Struct):
        id: int
        country: str = ""

    text = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "string"}]}
    good = body(OLD, {"id": 1, "country": "DE"})
    data = [
        wire.prefix(1) + good,
        b'{"id": 1}',
        b"",
        wire.prefix(9) + good,
        wire.prefix(3) + good,
        wire.prefix(1) + good[:-1],
        wire.prefix(1) + good + b"x",
        wire.prefix(4) + body(text, {"id": "one"}),
        wire.prefix(1) + good,
    ]
    json_schema = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    values, bad = read(alone(hg.avro(Small), {1: OLD, 3: json_schema, 4: text}), data)
    assert [values[0], values[-1]] == [Small(1, "DE")] * 2
    whys = dict(bad)
    assert sorted(whys) == [1, 2, 3, 4, 5, 6, 7]
    assert "name no schema" in whys[1]
    assert "there are none" in whys[2]
    assert "no schema has the id 9" in whys[3]
    assert "is JSON, not AVRO" in whys[4]
    assert "1 bytes follow the value" in whys[6]
    assert "Expected `int`, got `str`" in whys[7]


@given(st.binary(max_size=30))
def test_any_bytes_behind_a_known_id_are_a_value_or_bad_data(data: bytes) -> None:
    """Nothing is raised, whatever stands there."""
    values, bad = read(alone(hg.avro(), {1: OLD}), [wire.prefix(1) + data])
    assert len(values) == 1
    assert bad or set(values[0]) == {"id", "country"}


def test_a_schema_is_asked_for_once_and_all_that_a_chunk_lacks_together() -> None:
    """Two ids, two chunks: two questions."""
    asked: list[Any] = []

    class Counting(MemoryRegistry):
        async def by_id(self, schema: Any) -> Any:
            asked.append(schema)
            return await super().by_id(schema)

    serde: Any = hg.avro()
    serde.connect(Counting({1: OLD, 2: NEW}))
    data: list[bytes | None] = [
        wire.prefix(1) + body(OLD, {"id": 1, "country": "DE"}),
        wire.prefix(2) + body(NEW, {"id": 2, "land": "FR"}),
    ]
    for _ in range(2):
        assert len(taught(serde.loads_many, data).values) == 2
    assert asked == [1, 2]


def test_an_id_in_a_header_goes_in_front_and_no_further() -> None:
    """A GUID, as newer serializers write it, of values and of keys."""
    guid, key_guid = uuid.uuid4(), uuid.uuid4()
    app = hg.App("shop")
    app.input("orders", serde=hg.avro(), key_serde=hg.avro()).to("out", serde=hg.avro(schema=OLD))
    headers = {"__value_schema_id": wire.prefix(guid), "__key_schema_id": wire.prefix(key_guid), "trace": b"7"}
    with hg.testing.Driver(app, schemas={guid: OLD, key_guid: "string"}) as d:
        d.send("orders", body(OLD, {"id": 1, "country": "DE"}), key=body("string", "k"), headers=headers)
        assert d.read("out") == [hg.Record("k", {"id": 1, "country": "DE"}, 0, (("trace", b"7"),))]


def test_what_confluents_serializers_put_into_headers_is_read(shop: Any) -> None:
    """Avro, and Protobuf, whose place of the message stands in the header, too."""
    theirs = pytest.importorskip("confluent_kafka.schema_registry")
    avro = pytest.importorskip("confluent_kafka.schema_registry.avro")
    protobuf = pytest.importorskip("confluent_kafka.schema_registry.protobuf")
    serialization = pytest.importorskip("confluent_kafka.serialization")
    client = theirs.SchemaRegistryClient.new_client({"url": "mock://"})
    conf = {"schema.id.serializer": theirs.header_schema_id_serializer}
    app = hg.App("shop")
    app.input("orders", serde=hg.avro()).map(lambda one: one["country"]).to("countries")
    app.input("messages", serde=hg.protobuf(shop.Line)).map(lambda one: one.n).to("numbers")

    def written(topic: str, write: Any, value: Any) -> tuple[bytes, Any, uuid.UUID]:
        context = serialization.SerializationContext(topic, "value", headers=[])
        data = write(value, context)
        return data, context.headers, uuid.UUID(bytes=context.headers[0][1][1:17])

    one = written("orders", avro.AvroSerializer(client, json.dumps(OLD), conf=conf), {"id": 1, "country": "DE"})
    write = protobuf.ProtobufSerializer(shop.Line, client, {**conf, "use.deprecated.format": False})
    two = written("messages", write, shop.Line(n=3))
    with hg.testing.Driver(app, schemas={one[2]: OLD, two[2]: shop.Line}) as d:
        d.send("orders", one[0], headers=one[1])
        d.send("messages", two[0], headers=two[1])
        assert [d.read("countries")[0].value, d.read("numbers")[0].value] == ["DE", 3]


# --------------------------------------------------------------------------------------------------------------- writing


def test_objects_of_every_kind_of_field_come_back() -> None:
    """What the schema of a type says is what is written and read."""
    at = dt.datetime(2026, 1, 2, 3, 4, 5, 678, tzinfo=dt.UTC)
    order = Order(1, "DE", Kind.PAID, [Line("a", 2)], at, b"\0\xff", {"x": "y"}, uuid.UUID(int=7))
    app = hg.App("shop")
    app.input("orders", serde=hg.avro(Order)).to("out", serde=hg.avro(Order, namespace="com.shop", subject="record"))
    with hg.testing.Driver(app) as d:
        d.send_all("orders", [order, Order(2, "FR")])
        assert [one.value for one in d.read("out")] == [order, Order(2, "FR")]


def test_a_value_that_its_schema_cannot_hold_is_the_error_of_its_row() -> None:
    """The others are written."""
    app = hg.App("shop")
    app.input("orders").to("out", serde=hg.avro(schema=OLD), on_error="dead_letter")
    with hg.testing.Driver(app) as d:
        d.send_all("orders", [{"id": 1, "country": "DE"}, {"id": "x", "country": "DE"}, {"country": "DE"}])
        assert [one.value["id"] for one in d.read("out")] == [1]
        assert len(d.dead_letters()) == 2


def test_without_a_schema_the_latest_of_the_subject_writes() -> None:
    """The subject is that of the topic, for values and for keys."""
    app = hg.App("shop")
    app.input("orders", key_serde=hg.text()).to("out", serde=hg.avro(), key_serde=hg.avro())
    with hg.testing.Driver(app, schemas={"out-value": OLD, "out-key": "string"}) as d:
        d.send("orders", {"id": 1, "country": "DE"}, key="k")
        assert d.read("out") == [hg.Record("k", {"id": 1, "country": "DE"}, 0)]


def test_subjects_of_the_three_strategies_and_of_ones_own() -> None:
    """By topic, by record, by both."""

    def own(topic: str, part: str, record: str) -> str:
        return f"{topic}/{part}/{record}"

    named = [hg.avro(schema=OLD, subject=one).at("t", "value") for one in ("topic", "record", "topic-record", own)]
    assert [one.subject for one in named] == [  # type: ignore[attr-defined]
        "t-value", "com.shop.Order", "t-com.shop.Order", "t/value/com.shop.Order",
    ]  # fmt: skip
    with pytest.raises(hg.DeclarationError, match="the schema has no record"):
        hg.avro(schema="string", subject="record")
    with pytest.raises(hg.DeclarationError, match="did you mean 'record'"):
        hg.json_schema(subject="recrod")


def test_where_such_a_serde_cannot_be_is_said_at_the_declaration() -> None:
    """It reads inputs and writes outputs; tables and streams in between hold their values in msgpack."""
    serde = hg.avro(Line)
    app = hg.App("shop")
    for declare in (
        lambda: hg.App("other", serde=serde),
        lambda: app.table("seen", value=serde),
        lambda: app.input("a").repartition("sku", serde=serde),
        lambda: app.input("b").share("s", serde=serde),
    ):
        with pytest.raises(hg.DeclarationError, match="reads inputs and writes outputs"):
            declare()
    app.input("lines", serde=serde).repartition("sku").map(lambda line: line.count).to("counts")
    with hg.testing.Driver(app) as d:
        d.send("lines", Line("a", 3))
        assert [one.value for one in d.read("counts")] == [3]


def test_a_job_without_a_registry_says_what_is_missing() -> None:
    """Outside of a job there is nobody to ask."""
    with pytest.raises(hg.DeclarationError, match="has no registry to ask"):
        hg.avro().loads(wire.prefix(1))


def test_heads_of_inputs_whose_schema_is_not_known_yet_hold_nobody_up() -> None:
    """A chooser that aligns by event time looks at records before any letter has learned their schema."""

    class Event(msgspec.Struct):
        id: str
        at: int

    app = hg.App("shop", chooser="time-aligned")
    left, right = (
        app.input(name, serde=hg.avro(Event), key_serde=hg.avro(str), key="id", timestamp="at", max_future=None)
        for name in ("left", "right")
    )
    left.join(right, within="1m", name="pairs", into=lambda one, other: [one.at, other.at]).to("out")
    with hg.testing.Driver(app) as d:
        for name in ("left", "right"):
            d.send_all(name, [Event("a", 1000), Event("b", 2000)])
        assert sorted(one.value for one in d.read("out")) == [[1000, 1000], [2000, 2000]]


# ---------------------------------------------------------------------------------------------------- schemas of types


def test_the_schema_of_a_type() -> None:
    """Defaults, nulls, names and what Avro calls logical types; a type that is used twice is named the second time."""

    class Two(msgspec.Struct):
        first: Line
        second: Line | None = None

    made = schema_of_type(Two, "com.shop")
    assert made["namespace"] == "com.shop"
    assert made["fields"][0]["type"]["fields"][1] == {"name": "count", "type": "long", "default": 1}
    assert made["fields"][1] == {"name": "second", "type": ["null", "Line"], "default": None}
    fields = {one["name"]: one for one in schema_of_type(Order)["fields"]}
    assert fields["at"]["type"][1]["logicalType"] == "timestamp-micros"
    assert fields["kind"]["type"]["symbols"] == ["PAID", "OPEN"]
    fastavro.parse_schema(schema_of_type(Order))


@pytest.mark.parametrize(("kind", "why"), [(complex, "complex"), (dict[int, str], "keys of a map are text")])
def test_a_type_without_a_schema_is_refused(kind: Any, why: str) -> None:
    """With what to write instead."""
    with pytest.raises(hg.DeclarationError, match=why):
        hg.avro(kind)


def test_a_schema_that_is_none_is_refused() -> None:
    """Where it stands, and not when the first record comes."""
    with pytest.raises(hg.DeclarationError, match="no Avro schema"):
        hg.avro(schema={"type": "record", "name": "X", "fields": [{"name": "a", "type": "nothing"}]})
    with pytest.raises(hg.DeclarationError, match="is no type"):
        hg.avro(OLD)  # type: ignore[call-overload]
    with pytest.raises(hg.DeclarationError, match="no JSON Schema that can be used"):
        hg.json_schema(schema={"type": "nothing"})
    with pytest.raises(hg.DeclarationError, match="no class of a message"):
        hg.protobuf(Order)


# ------------------------------------------------------------------------------------------------------------- Protobuf


@pytest.fixture(scope="module")
def shop() -> Any:
    """A file with three messages, one inside of another, and the classes that `protoc` would generate."""
    file = descriptor_pb2.FileDescriptorProto(name="shop.proto", package="com.shop", syntax="proto3")
    file.message_type.add(name="Other").field.add(name="x", number=1, type=9, label=1)
    order = file.message_type.add(name="Order")
    order.field.add(name="id", number=1, type=3, label=1)
    order.nested_type.add(name="Line").field.add(name="n", number=1, type=5, label=1)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    names = {one: f"com.shop.{one}" for one in ("Other", "Order", "Order.Line")}
    found = {
        one.rpartition(".")[2]: message_factory.GetMessageClass(pool.FindMessageTypeByName(name))
        for one, name in names.items()
    }
    return SimpleNamespace(**found)


def test_messages_go_through_a_job_and_its_streams(shop: Any) -> None:
    """Also through a shuffle, in Protobuf itself."""
    app = hg.App("shop")
    orders = app.input("orders", serde=hg.protobuf(shop.Order))
    orders.repartition(lambda one: one.id, name="by-id").to("out", serde=hg.protobuf(shop.Order))
    with hg.testing.Driver(app) as d:
        d.send("orders", shop.Order(id=7))
        assert [one.value.id for one in d.read("out")] == [7]


def test_a_file_that_imports_another_is_written_with_it() -> None:
    """Each stands under the name of its file."""
    inner = descriptor_pb2.FileDescriptorProto(name="in.proto", package="p", syntax="proto3")
    inner.message_type.add(name="In")
    outer = descriptor_pb2.FileDescriptorProto(name="out.proto", package="p", syntax="proto3", dependency=["in.proto"])
    outer.message_type.add(name="Out").field.add(name="one", number=1, type=11, label=1, type_name=".p.In")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(inner)
    pool.Add(outer)
    kind = message_factory.GetMessageClass(pool.FindMessageTypeByName("p.Out"))
    serde = alone(hg.protobuf(kind, references={"in.proto": "inner"}))
    assert serde.loads(taught(serde.dumps, kind())) == kind()
    assert sorted(serde._registry._latest) == ["inner", "t-value"]


def test_a_test_that_lacks_a_schema_says_so() -> None:
    """A driver waits for nobody."""
    app = hg.App("shop")
    app.input("orders").to("out", serde=hg.avro())
    with hg.testing.Driver(app) as d, pytest.raises(RuntimeError, match=r"no subject 'out-value'.*schemas="):
        d.send("orders", {})


def test_a_nested_message_is_marked_by_its_place(shop: Any) -> None:
    """Second message, first one inside of it."""
    serde = alone(hg.protobuf(shop.Line))
    data = taught(serde.dumps, shop.Line(n=3))
    assert data[5:] == wire.path((1, 0)) + b"\x08\x03"
    assert serde.loads(data) == shop.Line(n=3)


def test_another_message_is_bad_data_unless_the_writers_file_has_put_some_in_front(shop: Any) -> None:
    """The place alone does not say it."""
    serde = alone(hg.protobuf(shop.Order), {1: shop.Order})
    other = wire.prefix(1) + wire.path((0,)) + shop.Other(x="a").SerializeToString()
    values, bad = read(serde, [other, wire.prefix(1) + wire.path((1,)) + b"\x08\x07"])
    assert values[1] == shop.Order(id=7)
    assert bad == [(0, "the record is the message com.shop.Other, not com.shop.Order")]
    newer = descriptor_pb2.FileDescriptorProto(name="shop.proto", package="com.shop", syntax="proto3")
    for name in ("First", "Other", "Order"):
        newer.message_type.add(name=name)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(newer)
    later = message_factory.GetMessageClass(pool.FindMessageTypeByName("com.shop.Order"))
    moved = alone(hg.protobuf(shop.Order), {2: later})
    assert read(moved, [wire.prefix(2) + wire.path((2,)) + b"\x08\x07"]) == ([shop.Order(id=7)], [])


# ----------------------------------------------------------------------------------------------------------- JSON Schema


def test_json_is_checked_by_the_type_by_the_own_schema_or_by_the_writers() -> None:
    """Which one it is, is a matter of how the serde was declared."""
    writers = {"title": "Line", "type": "object", "properties": {"sku": {"type": "string"}}, "required": ["sku"]}
    strict = {**writers, "additionalProperties": False}
    data: list[bytes | None] = [
        wire.prefix(1) + json.dumps(one).encode() for one in ({"sku": "a"}, {"sku": 1}, {"sku": "a", "more": 1})
    ]

    def bad(serde: Any) -> list[int]:
        return [index for index, _ in read(alone(serde, {1: writers}), data)[1]]

    assert bad(hg.json_schema()) == [1]
    assert bad(hg.json_schema(schema=strict)) == [1, 2]
    assert bad(hg.json_schema(Line)) == [1]


def test_json_is_written_by_the_schema_of_its_type_and_checked() -> None:
    """A title is the name of its record; a recursive type keeps its indirection."""

    class Node(msgspec.Struct):
        value: int
        next: Node | None = None

    Node.__annotations__["next"] = Node | None
    serde = alone(hg.json_schema(Line, subject="record"))
    assert serde.subject == "Line"
    assert taught(serde.dumps, Line("a"))[5:] == b'{"sku":"a","count":1}'
    with pytest.raises(hg.DataError, match="the schema does not allow it"):
        taught(alone(hg.json_schema(schema={"type": "object", "required": ["id"]})).dumps, {})


def test_what_a_json_schema_refers_to_comes_from_the_registry_alone() -> None:
    """Nothing is fetched from an address in a schema."""
    outside = {"$ref": "http://127.0.0.1:9/x.json"}
    _, bad = read(alone(hg.json_schema(), {1: outside}), [wire.prefix(1) + b"{}"])
    assert "of which the registry says nothing" in bad[0][1]


@pytest.mark.parametrize(
    ("library", "make"),
    [
        ("fastavro", lambda: hg.avro()),
        ("jsonschema_rs", lambda: hg.json_schema()),
        ("google.protobuf", lambda: hg.protobuf(Order)),
    ],
)
def test_without_the_extra_the_declaration_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, library: str, make: Any
) -> None:
    """Before anything runs."""
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(hg.EnvironmentFault, match=r"pip install 'headgate\[registry\]'"):
        make()
