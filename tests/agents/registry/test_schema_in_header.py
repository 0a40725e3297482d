"""Schemas that are named in a header: what stands in topics, which headers stay, and what a registry without GUIDs means."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from hypothesis import given
from hypothesis import strategies as st

import headgate as hg
from headgate.agents.learning import MustLearn, NotYet
from headgate.agents.operators.base.schema_headers import SchemaHeaders
from headgate.agents.records.kafka.spans import headers_of, packed_headers
from headgate.agents.records.memory.record_spans import packed, pieces
from headgate.agents.records.native import chosen
from headgate.agents.registry import wire
from headgate.agents.registry.asked import NoSchema, SchemaText
from headgate.agents.registry.memory import MemoryRegistry, taught
from headgate.agents.registry.serde import RegistrySerde

needs_compiler = pytest.mark.skipif(chosen.COMPILED is None, reason="the compiled part is not built here")
VALUE, KEY = "__value_schema_id", "__key_schema_id"
TRACE = ("trace", b"7")
STALE = [(VALUE, b"stale"), TRACE, (KEY, b"stale, too")]


@dataclasses.dataclass
class Order:
    id: int
    country: str


@pytest.fixture(params=[pytest.param(True, marks=needs_compiler), False], ids=["compiled", "plain"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test runs both ways."""
    if not request.param:
        monkeypatch.setattr(chosen, "part", chosen.PLAIN)


@pytest.fixture(scope="module")
def shop() -> Any:
    """The second message of a file, as `protoc` would generate it."""
    file = descriptor_pb2.FileDescriptorProto(name="header_shop.proto", package="com.shop", syntax="proto3")
    file.message_type.add(name="Other").field.add(name="x", number=1, type=9, label=1)
    file.message_type.add(name="Order").field.add(name="id", number=1, type=3, label=1)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return SimpleNamespace(Order=message_factory.GetMessageClass(pool.FindMessageTypeByName("com.shop.Order")))


def bound(serde: Any, registry: Any = None, part: str = "value") -> Any:
    """A serde that writes to a topic, and asks this registry."""
    made = serde.at("t", part)
    assert isinstance(made, RegistrySerde)
    made.connect(MemoryRegistry() if registry is None else registry)
    return made


def named(of: Any) -> dict[str, bytes | None]:
    return dict(of.headers)


# --------------------------------------------------------------------------------------------------------------- the bytes


@pytest.mark.parametrize("part", ["value", "key"])
@pytest.mark.parametrize("format", ["avro", "protobuf", "json"])
def test_nothing_stands_in_front_and_the_header_is_what_confluents_serializer_writes(
    format: str, part: str, shop: Any
) -> None:
    """Their functions make the same header of the same GUID, and their deserializer finds GUID and message by it."""
    theirs = pytest.importorskip("confluent_kafka.schema_registry")
    their_serde = pytest.importorskip("confluent_kafka.schema_registry.serde")
    context = pytest.importorskip("confluent_kafka.serialization").SerializationContext("t", part, headers=[])
    serde, value, indexes = {
        "avro": (hg.avro(Order, schema_id="header"), Order(1, "DE"), None),
        "protobuf": (hg.protobuf(shop.Order, schema_id="header"), shop.Order(id=1), [1]),
        "json": (hg.json_schema(Order, schema_id="header"), Order(1, "DE"), None),
    }[format]
    own = bound(serde, part=part)
    with pytest.raises(MustLearn):
        own.header()
    data, head = taught(own.dumps, value), own.header()
    guid = UUID(bytes=head[1:17])
    kind = {"avro": "AVRO", "protobuf": "PROTOBUF", "json": "JSON"}[format]
    same = their_serde.SchemaId(kind, 1, str(guid), indexes)
    assert theirs.header_schema_id_serializer(data, context, same) == data
    assert context.headers == [(own.header_name, head)]
    found = their_serde.SchemaId(kind)
    assert theirs.dual_schema_id_deserializer(data, context, found).read() == data
    assert (found.guid, found.message_indexes) == (guid, indexes)
    [back] = own.with_headers([data], [[(own.header_name, head)]], part)
    assert taught(own.loads, back) == value if format != "json" else json.loads(data) == {"id": 1, "country": "DE"}
    in_front = bound({"avro": hg.avro(Order), "protobuf": hg.protobuf(shop.Order)}.get(format, hg.json_schema(Order)))
    assert taught(in_front.dumps, value) == wire.prefix(1) + head[17:] + data
    assert in_front.header() is None


def test_a_place_that_does_not_exist_is_refused_where_it_is_declared(shop: Any) -> None:
    """With what was probably meant."""
    for make in (hg.avro, hg.json_schema, lambda **more: hg.protobuf(shop.Order, **more)):
        with pytest.raises(hg.DeclarationError, match="did you mean 'header'"):
            make(schema_id="headers")  # type: ignore[operator]


# ----------------------------------------------------------------------------------------------------------------- headers


class Named:
    """A serde whose schema is named by this header, or in front."""

    def __init__(self, name: str, header: bytes | None) -> None:
        self.header_name, self._header = name, header

    def header(self) -> bytes | None:
        return self._header


NAMES = st.sampled_from([VALUE, KEY, "a", "trace", ""])
HEADERS = st.lists(st.tuples(NAMES, st.none() | st.binary(max_size=3)), max_size=4) | st.integers(60, 70).map(
    lambda many: [("a", b"x")] * many
)
ROWS = st.lists(st.tuples(st.none() | st.binary(max_size=2), HEADERS), min_size=1, max_size=5)
SERDES = st.sampled_from([None, b"\1guid"])


@given(ROWS, SERDES, SERDES, st.booleans(), st.booleans())
def test_columns_have_the_headers_of_their_rows(
    rows: list[Any], value: bytes | None, key: bytes | None, keyed: bool, has_headers: bool
) -> None:
    """And rows have what they have brought, without these names, and then what the serdes say of what is there."""
    of: Any = SchemaHeaders(Named(VALUE, value), Named(KEY, key))  # type: ignore[arg-type]
    keys = [one for one, _ in rows] if keyed else None
    brought = [found for _, found in rows] if has_headers else None
    made = of.of_rows(keys, [b"v"] * len(rows), brought)
    spans = of.of_spans(
        None if keys is None else packed(keys), None if brought is None else packed_headers(brought), len(rows)
    )
    assert (
        [[] for _ in rows]
        if made is None
        else made
        == [
            [
                *(one for one in found if has_headers and one[0] not in (VALUE, KEY)),
                *([(KEY, key)] if keyed and one is not None and key is not None else []),
                *([(VALUE, value)] if value is not None else []),
            ]
            for one, found in rows
        ]
    )
    listed = [[] for _ in rows] if spans is None else [list(headers_of(one)) for one in pieces(spans)]
    assert listed == ([[] for _ in rows] if made is None else made)


def test_what_is_null_has_no_header() -> None:
    """Neither a tombstone nor a record without a key names a schema of it."""
    of: Any = SchemaHeaders(Named(VALUE, b"v"), Named(KEY, b"k"))  # type: ignore[arg-type]
    assert of.of_rows([b"1", None, b"1"], [b"2", b"2", None], None) == [
        [(KEY, b"k"), (VALUE, b"v")],
        [(VALUE, b"v")],
        [(KEY, b"k")],
    ]


def test_outputs_of_other_serdes_are_left_alone() -> None:
    """A copy of bytes keeps the header without which they could not be read."""
    app = hg.App("shop")
    app.input("a", serde=hg.raw()).to("b", serde=hg.raw())
    with hg.testing.Driver(app) as d:
        d.send("a", b"x", headers=STALE)
        assert list(d.read("b")[0].headers) == STALE


# ---------------------------------------------------------------------------------------------------------------- in a job


@pytest.mark.usefixtures("way")
def test_rows_keep_their_own_headers_and_those_of_these_names_are_replaced() -> None:
    """Whether user code has set them, or an input that does not know them has brought them."""
    app = hg.App("shop")
    orders = app.input("orders", serde=hg.json(Order))
    orders.to("out", serde=hg.avro(Order, schema_id="header"), key_serde=hg.avro(str, schema_id="header"))
    orders.map(lambda one: hg.Record(one.key, one.value, one.timestamp, [*STALE, *STALE]), with_record=True).to(
        "set", serde=hg.avro(Order, schema_id="header"), key_serde=hg.json_schema(str, schema_id="header")
    )
    orders.to("front", serde=hg.avro(Order), key_serde=hg.avro(str))
    with hg.testing.Driver(app) as d:
        d.send("orders", b'{"id":1,"country":"DE"}', key=b"k", headers=STALE)
        d.send("orders", None, key=b"k")
        out, gone = d.topics.drain("out")
        assert (out.key, out.value) == (b"\2k", b"\2\4DE")
        assert [name for name, _ in out.headers] == ["trace", KEY, VALUE]
        assert {len(data) for name, data in out.headers if name != "trace" and data} == {17}
        assert [name for name, _ in gone.headers] == [KEY]
        made, _ = d.read("set")
        assert (made.key, made.value) == ("k", Order(1, "DE"))
        assert [name for name, _ in made.headers] == ["trace", "trace", KEY, VALUE]
        front, _ = d.topics.drain("front")
        assert (front.headers, front.value[:1], front.value[5:]) == ([TRACE], b"\0", b"\2\4DE")


@pytest.mark.usefixtures("way")
def test_what_one_job_writes_another_reads_by_values_and_keys(shop: Any) -> None:
    """Through the driver, which writes inputs as their serdes say; each format, as rows."""
    app = hg.App("shop")
    for name, serde in (
        ("avro", hg.avro(Order, schema_id="header")),
        ("json", hg.json_schema(Order, schema_id="header")),
        ("protobuf", hg.protobuf(shop.Order, schema_id="header")),
    ):
        key = hg.avro(str, schema_id="header") if name != "json" else hg.json_schema(str, schema_id="header")
        app.input(name, serde=serde, key_serde=key).to(f"{name}-out", serde=serde, key_serde=key)
    with hg.testing.Driver(app) as d:
        for name in ("avro", "json", "protobuf"):
            value = Order(1, "DE") if name != "protobuf" else shop.Order(id=1)
            d.send(name, value, key="k", headers=[TRACE])
            [sent] = d.topics.drain(name)
            [record] = d.read(f"{name}-out")
            assert (record.key, record.value) == ("k", value)
            assert {name for name, _ in record.headers} == {"trace", KEY, VALUE}
            assert {one for one, _ in sent.headers} == {"trace", KEY, VALUE}


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("headers", [(), (TRACE,)])
def test_columns_that_are_written_name_their_schema_in_a_header(headers: Any) -> None:
    """With headers of their own and without; a row that the schema cannot hold is an error of that row alone. The key is the row's."""
    app = hg.App("shop")
    columns = app.input("orders", serde=hg.json(Order)).columns()
    columns.filter(hg.col("id") > 1).to("out", serde=hg.avro(Order, schema_id="header"), key="country")
    columns.to("keyed", serde=hg.avro(Order), key_serde=hg.avro(str, schema_id="header"), key="country")
    columns.to("json", key_serde=hg.avro(str, schema_id="header"), key="country")
    with hg.testing.Driver(app) as d:
        orders = [Order(1, "DE"), Order(2, "FR"), Order(3, "DE")]
        d.send_all("orders", [hg.Record(None, one, 0, headers) for one in orders])
        out = d.topics.drain("out")
        assert [(one.key, one.value) for one in out] == [(b"FR", b"\4\4FR"), (b"DE", b"\6\4DE")]
        assert [[name for name, _ in one.headers] for one in out] == [[*dict(headers), VALUE]] * 2
        assert len({named(one)[VALUE] for one in out}) == 1
        keyed = d.read("keyed")
        assert [one.key for one in keyed] == ["DE", "FR", "DE"]
        assert [[name for name, _ in one.headers] for one in keyed] == [[*dict(headers), KEY]] * 3
        assert [[name for name, _ in one.headers] for one in d.read("json")] == [[*dict(headers), KEY]] * 3


@pytest.mark.usefixtures("way")
def test_results_of_aggregates_name_their_schema_in_a_header() -> None:
    """Of rows and of columns; those of columns go out without an object for a record."""
    schema = {"type": "record", "name": "Total", "fields": [{"name": "total", "type": "long"}]}
    app = hg.App("shop")
    orders = app.input("orders", serde=hg.json(Order))
    given: Any = {
        "serde": hg.avro(schema=schema, schema_id="header"),
        "key_serde": hg.avro(str, schema_id="header"),
    }
    orders.repartition("country", name="rows").agg(total=hg.sum("id"), name="of-rows").to("of-rows", **given)
    orders.columns().repartition("country", name="columns").agg(total=hg.sum("id"), name="of-columns").to(
        "of-columns", **given
    )
    with hg.testing.Driver(app) as d:
        d.send_all("orders", [Order(1, "DE"), Order(2, "DE")])
        for topic in ("of-rows", "of-columns"):
            found = d.read(topic)
            assert (found[-1].key, found[-1].value) == ("DE", {"total": 3})
            assert [[name for name, _ in one.headers] for one in found] == [[KEY, VALUE]] * len(found)


def test_chosen_partitions_and_agents_write_the_header_too() -> None:
    """They have ways of their own to a topic."""
    app = hg.App("shop")
    orders = app.input("orders", serde=hg.json(Order))
    orders.to("out", serde=hg.avro(Order, schema_id="header"), partition=lambda one: one.value.id)

    @app.agent(
        orders, sink="sink", serde=hg.avro(Order, schema_id="header"), key_serde=hg.avro(str, schema_id="header")
    )
    async def forward(batches: hg.Batches[Any, Any]) -> Any:
        async for batch in batches:
            yield [hg.Record("k", one.value, one.timestamp, STALE) for one in batch]

    with hg.testing.Driver(app, partitions={"out": 2}) as d:
        d.send_all("orders", [Order(0, "DE"), Order(1, "FR")])
        out = d.topics.drain("out")
        assert sorted(one.partition for one in out) == [0, 1]
        assert [[name for name, _ in one.headers] for one in out] == [[VALUE]] * 2
        found = d.read("sink")
        assert [(one.key, one.value) for one in found] == [("k", Order(0, "DE")), ("k", Order(1, "FR"))]
        assert [[name for name, _ in one.headers] for one in found] == [["trace", KEY, VALUE]] * 2


def test_dead_letters_keep_the_header_that_names_the_schema_of_their_record() -> None:
    """Without it nobody could read what is in them, nor send it again."""
    app = hg.App("shop")
    orders = app.input("orders", serde=hg.avro(Order, schema_id="header"))
    orders.map(lambda one: 1 // (one.id - 1), on_error="dead_letter").to("out")
    with hg.testing.Driver(app) as d:
        d.send("orders", Order(1, "DE"))
        [sent] = d.topics.drain("orders")
        [letter] = d.topics.drain(app.topics.dead_letters)
        assert letter.value == sent.value == b"\2\4DE"
        assert named(letter)[VALUE] == named(sent)[VALUE]


def test_a_parked_record_is_read_by_its_header_when_it_is_tried_again() -> None:
    """It is parked as it was read, and written with the header of the output."""
    sick = [True]

    def well(order: Order) -> Order:
        if sick[0]:
            raise ValueError("not yet")
        return order

    app = hg.App("shop")
    orders = app.input("orders", serde=hg.avro(Order, schema_id="header"), key_serde=hg.avro(str, schema_id="header"))
    orders.map(well, on_error=hg.park(after="10s", times=5)).to("out", serde=hg.json_schema(Order, schema_id="header"))
    with hg.testing.Driver(app) as d:
        d.send("orders", Order(1, "DE"), key="k")
        assert d.read("out") == []
        sick[0] = False
        d.advance("11s")
        [record] = d.read("out")
        assert (record.value, [name for name, _ in record.headers]) == (Order(1, "DE"), [VALUE])


# ------------------------------------------------------------------------------------------------------------ the registry


class Without(MemoryRegistry):
    """A registry that has no GUIDs."""

    said = "the schema registry at http://r"
    asked = 0

    async def has_guids(self) -> bool:
        return False

    async def find(self, subject: str, schema: SchemaText) -> Any:
        self.asked += 1
        return await super().find(subject, schema)

    register = find


def test_a_registry_without_guids_is_an_error_that_names_it_the_subject_and_the_remedy() -> None:
    """Nothing is registered there before."""
    registry = Without()
    for part in ("value", "key"):
        serde = bound(hg.avro(Order, register=True, schema_id="header"), registry, part)
        with pytest.raises(hg.EnvironmentFault) as error:
            taught(serde.dumps, Order(1, "DE"))
        assert error.value.what == (
            f"the schema registry at http://r has no GUIDs, so the schema of 't-{part}' cannot be named in a header"
        )
        assert f"leave out schema_id='header' of the {part}s of t" in error.value.remedy
    assert registry.asked == 0


class Silent(MemoryRegistry):
    """A registry that has GUIDs, and says none where a schema is registered, nor perhaps anywhere."""

    def __init__(self, *, found: bool) -> None:
        super().__init__()
        self._found = found

    async def register(self, subject: str, schema: SchemaText) -> Any:
        return dataclasses.replace(await super().register(subject, schema), guid=None)

    async def find(self, subject: str, schema: SchemaText) -> Any:
        standing = await super().register(subject, schema)
        return standing if self._found else dataclasses.replace(standing, guid=None)


def test_a_guid_that_registering_does_not_say_is_asked_for() -> None:
    """Redpanda says it only where a schema is looked for. If that says none, it is as if there were none."""
    serde = bound(hg.avro(Order, register=True, schema_id="header"), Silent(found=True))
    taught(serde.dumps, Order(1, "DE"))
    assert len(serde.header()) == 17
    with pytest.raises(hg.EnvironmentFault, match="has no GUIDs"):
        taught(bound(hg.avro(Order, register=True, schema_id="header"), Silent(found=False)).dumps, Order(1, "DE"))


def test_a_registry_that_is_away_is_waited_for_and_a_subject_that_does_not_exist_too() -> None:
    """As for ids."""

    class Away(MemoryRegistry):
        async def has_guids(self) -> bool:
            raise NotYet("it does not answer", remedy="start it")

    class Lacking(MemoryRegistry):
        async def find(self, subject: str, schema: SchemaText) -> Any:
            raise NoSchema("it does not stand there")

    for registry in (Away(), Lacking()):
        serde = bound(hg.avro(Order, schema_id="header"), registry)
        with pytest.raises(MustLearn) as unknown:
            serde.header()
        with pytest.raises(NotYet):
            asyncio.run(unknown.value.learn(None))  # type: ignore[arg-type]


def test_a_guid_that_a_test_has_given_is_the_one_that_is_written() -> None:
    """So a test may say which header it expects."""
    guid = UUID(int=77)
    app = hg.App("shop")
    app.input("orders").to("out", serde=hg.avro(schema="string", schema_id="header"))
    with hg.testing.Driver(app, schemas={guid: "string"}) as d:
        d.send("orders", "DE")
        assert d.read("out") == [hg.Record(None, "DE", 0, ((VALUE, wire.prefix(guid)),))]
