"""A job whose schemas stand in a real registry, on a real broker: what Confluent's serializers write it reads, and they read what it
writes.

The registry is Apicurio, through its Confluent API. It is killed in the middle, and comes back.
"""

from __future__ import annotations

import asyncio
import dataclasses
import signal
import struct
from functools import partial
from types import SimpleNamespace
from typing import Any, TypedDict

import msgspec
import orjson
import pytest

import headgate as hg
from headgate.agents.cli.start.registry_checks import inputs_said, newest
from headgate.agents.job.derive.declaration import Declared
from headgate.agents.registry.client import HttpRegistry, RegistryAccess
from headgate.agents.worker.load.health import letter_load

schema_registry = pytest.importorskip("confluent_kafka.schema_registry", reason="pip install confluent-kafka[avro]")
pytest.importorskip("fastavro")

pytestmark = [pytest.mark.kafka, pytest.mark.asyncio]

OLD = {
    "type": "record",
    "name": "Order",
    "namespace": "com.shop",
    "fields": [{"name": "id", "type": "int"}, {"name": "country", "type": "string"}],
}
LANDED = {  # as a consumer wants it: another name, a wider number, a default for what is missing
    **OLD,
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "land", "type": "string", "aliases": ["country"]},
        {"name": "amount", "type": "double", "default": 9.5},
    ],
}
NEW = {**OLD, "fields": [*OLD["fields"], {"name": "amount", "type": "double", "default": 1.5}]}


@dataclasses.dataclass
class Order:
    id: int
    country: str
    amount: float = 0.0


TEXT = '{"$schema": "https://json-schema.org/draft/2020-12/schema", "type": "string"}'


class Landed(msgspec.Struct):
    id: int
    land: str
    amount: float


@dataclasses.dataclass
class Sale:
    id: int
    country: str
    amount: float


class Money(TypedDict):
    cents: int


class Bought(TypedDict):
    id: int
    country: str
    money: Money | None


def theirs(registry: Any) -> Any:
    """Confluent's client."""
    return schema_registry.SchemaRegistryClient({"url": registry.url})


def context(topic: str, part: str = "value") -> Any:
    from confluent_kafka.serialization import SerializationContext

    return SerializationContext(topic, part)


def avro_bytes(
    registry: Any, topic: str, schema: Any, values: list[Any], part: str = "value", **more: Any
) -> list[bytes]:
    """What Confluent's serializer writes."""
    from confluent_kafka.schema_registry.avro import AvroSerializer

    write = AvroSerializer(theirs(registry), orjson.dumps(schema).decode(), conf=more or None)
    return [write(one, context(topic, part)) for one in values]


async def test_avro_of_confluents_serializer_comes_in_and_their_deserializer_reads_what_goes_out(job, topic, registry):
    """Two versions of a schema in one topic, keys in Avro as well; the job reads both as its own one, by a Struct. It writes others, and
    registers them: under the topic, and under the name of the record, where their serializer finds it."""
    from confluent_kafka.schema_registry import record_subject_name_strategy
    from confluent_kafka.schema_registry.avro import AvroDeserializer

    inp, out, named = topic("in"), topic("out"), topic("named")
    values = await asyncio.to_thread(avro_bytes, registry, inp, OLD, [{"id": 1, "country": "DE"}])
    values += await asyncio.to_thread(avro_bytes, registry, inp, NEW, [{"id": 2, "country": "FR", "amount": 2.5}])
    keys = await asyncio.to_thread(avro_bytes, registry, inp, "string", ["k"], "key")
    app = hg.App(job.name, settings={"registry.url": registry.url})
    landed = app.input(inp, serde=hg.avro(Landed, schema=LANDED), key_serde=hg.avro(str))
    landed.map(lambda one: Order(one.id, one.land, one.amount + 1)).to(
        out, serde=hg.avro(Order, register=True), key_serde=hg.avro(str, register=True)
    )
    space = f"of.{named.replace('-', '_')}"
    landed.to(named, serde=hg.avro(Landed, namespace=space, subject="record", register=True))
    await job.write(inp, values, key=keys[0])
    await job.start(app)
    found = await job.records(out, 2)
    read, read_key = AvroDeserializer(theirs(registry)), AvroDeserializer(theirs(registry))
    told = await asyncio.to_thread(lambda: [read(one.value, context(out)) for one in found])
    keys = await asyncio.to_thread(lambda: [read_key(one.key, context(out, "key")) for one in found])
    told.sort(key=lambda one: one["id"])
    assert told == [{"id": 1, "country": "DE", "amount": 10.5}, {"id": 2, "country": "FR", "amount": 3.5}]
    assert keys == ["k", "k"]
    subjects = set(await asyncio.to_thread(theirs(registry).get_subjects))
    assert {f"{out}-value", f"{out}-key", f"{space}.Landed"} <= subjects
    assert f"{named}-value" not in subjects
    by_record = {
        "auto.register.schemas": False,
        "use.latest.version": True,
        "subject.name.strategy": record_subject_name_strategy,
    }
    schema = await asyncio.to_thread(lambda: theirs(registry).get_latest_version(f"{space}.Landed"))
    same = [{"id": 1, "land": "DE", "amount": 9.5}, {"id": 2, "land": "FR", "amount": 2.5}]
    written = await asyncio.to_thread(
        avro_bytes, registry, named, orjson.loads(schema.schema.schema_str), same, **by_record
    )
    assert sorted(one.value for one in await job.records(named, 2)) == sorted(written)


async def test_a_registry_that_is_killed_is_waited_for_and_named_and_nothing_is_lost(job, topic, private_registry):
    """An unknown id while nobody answers: the letter waits and says for whom, others go on; then all is there, once."""
    inp, other, out = topic("in"), topic("other"), topic("out")
    old = await asyncio.to_thread(
        avro_bytes, private_registry, inp, OLD, [{"id": n, "country": "DE"} for n in range(5)]
    )
    new = await asyncio.to_thread(
        avro_bytes, private_registry, inp, NEW, [{"id": n, "country": "FR", "amount": 0.5} for n in range(5, 9)]
    )
    app = hg.App(job.name, settings={"registry.url": private_registry.url, "grouper": "stream-partition"})
    app.input(inp, serde=hg.avro()).map(lambda one: {"id": one["id"]}).to(out)
    app.input(other).to(out)
    await job.write(inp, old)
    running = await job.start(app)
    assert sorted(one["id"] for one in await job.values(out, 5)) == list(range(5))
    private_registry.daemon.send(signal.SIGKILL)
    await asyncio.to_thread(private_registry.daemon.wait_gone, 10.0)
    await job.write(inp, new)

    def waits() -> bool:
        heartbeat = letter_load(running.worker.actors.values(), 0, 0.0)
        return any("waiting: the schema registry at http://127.0.0.1" in one for one in heartbeat)

    await running.until(waits, "a letter that says for whom it waits")
    await job.write(other, [{"id": 100}])
    assert len(await job.values(out, 6)) == 6
    assert set(running.states().values()) == {"running"}
    await asyncio.to_thread(private_registry.start)
    assert sorted(one["id"] for one in await job.values(out, 10)) == [*range(9), 100]
    assert await running.stop() == 0


async def test_a_worker_that_waits_for_a_registry_leaves_when_it_is_told_to(job, topic, registry):
    """Nobody listens there, and never will; the job can be stopped all the same, and another registry takes over what waited."""
    inp, out = topic("in"), topic("out")
    await job.write(inp, await asyncio.to_thread(avro_bytes, registry, inp, OLD, [{"id": 1, "country": "DE"}]))

    def app(url: str) -> hg.App:
        made = hg.App(job.name, settings={"registry.url": url})
        made.input(inp, serde=hg.avro()).to(out)
        return made

    first = await job.start(app("http://127.0.0.1:9"))
    await first.until(lambda: any(one.under_way.doing.waits_for for one in first.worker.actors.values()))
    assert await first.stop() == 0
    await job.start(app(registry.url))
    assert await job.values(out, 1) == [{"id": 1, "country": "DE"}]


async def test_a_record_is_not_blamed_for_workers_that_are_killed_while_it_waits(job, topic, registry):
    """Two kills: nothing of the record was running, so it is neither skipped nor takes its task down."""
    inp, out = topic("in"), topic("out")
    await job.write(inp, await asyncio.to_thread(avro_bytes, registry, inp, OLD, [{"id": 1, "country": "DE"}]))
    source = f"""
import headgate as hg

app = hg.App("JOB")
app.input("{inp}", serde=hg.avro()).to("{out}")
"""
    for _ in range(2):
        process = await job.process(source, HEADGATE_REGISTRY_URL="http://127.0.0.1:9")
        while "a letter waits for an answer" not in process.text():
            assert process.process.returncode is None, process.text()
            await asyncio.sleep(0.05)
        process.kill()
        await process.ended()
    await job.process(source, HEADGATE_REGISTRY_URL=registry.url)
    assert await job.values(out, 1) == [{"id": 1, "country": "DE"}]


async def test_what_names_no_schema_is_bad_data_and_an_unregistered_schema_is_waited_for(job, topic, registry):
    """An id that does not exist goes where the policy says, as does what begins like a GUID: this registry knows none. A schema that does
    not stand in the registry is no fault of records: nothing is written until somebody registers it, and then all is."""
    inp, out = topic("in"), topic("out")
    good = await asyncio.to_thread(avro_bytes, registry, inp, OLD, [{"id": 7, "country": "DE"}])
    app = hg.App(job.name, settings={"registry.url": registry.url})
    orders = app.input(inp, serde=hg.avro(schema=OLD), on_bad_data="dead_letter")
    orders.to(out, serde=hg.avro(schema=NEW))
    bad = [struct.pack(">bI", 0, 999_999) + b"x", b"{}", b"\x01garbage of any kind", b"\0\xff\xff\xff\xffx"]
    await job.write(inp, [*bad, *good])
    with hg.testing.Driver(app, schemas={1: OLD}) as driver:  # the same verdict
        for one in bad:
            driver.send(inp, one)
        assert len(driver.dead_letters()) == len(bad)
    running = await job.start(app)
    waits = f"does not stand under the subject '{out}-value'"
    await running.until(
        lambda: any(waits in one.under_way.doing.waits_for for one in running.worker.actors.values()),
        "what it waits for",
    )
    client = theirs(registry)
    await asyncio.to_thread(
        client.register_schema, f"{out}-value", schema_registry.Schema(orjson.dumps(NEW).decode(), "AVRO")
    )
    [record] = await job.records(out, 1)
    assert record.value[5:] == b"\x0e\x04DE" + struct.pack("<d", 1.5)
    dead = await job.records(app.topics.dead_letters, len(bad))
    said = b"".join(data for one in dead for _, data in one.headers)
    assert b"names its schema by a GUID, 67617262-6167-6520-6f66-20616e79206b, and this registry knows no GUIDs" in said


async def test_the_client_asks_once_and_tells_apart_what_does_not_exist_from_who_does_not_answer(registry):
    """Answers are kept; a missing id is an answer; a wrong path is none."""
    from headgate.agents.learning import NotYet
    from headgate.agents.registry.asked import NoSchema, SchemaText

    asked = HttpRegistry(RegistryAccess((registry.url,)))
    text = SchemaText("AVRO", orjson.dumps({**OLD, "name": "Once"}).decode())
    with pytest.raises(NoSchema, match="does not stand under the subject"):
        await asked.find("once-value", text)
    standing = await asked.register("once-value", text)
    assert (await asked.find("once-value", text)).number == standing.number
    before = asked.questions
    assert orjson.loads((await asked.by_id(standing.number)).text)["name"] == "Once"
    assert await asked.by_id(standing.number) == await asked.by_id(standing.number)
    assert asked.questions == before + 1
    with pytest.raises(NoSchema, match="no schema has the id 999999"):
        await asked.by_id(999_999)
    with pytest.raises(NotYet, match="no registry stands there"):
        await HttpRegistry(RegistryAccess((registry.url + "/nowhere",))).by_id(1)
    second = HttpRegistry(RegistryAccess(("http://127.0.0.1:9", registry.url)))
    assert (await second.by_id(standing.number)).kind == "AVRO"


async def test_protobuf_of_confluents_serializer_both_ways(job, topic, registry):
    """The second message of a file that imports another one; a record of the first message is bad data, by the writer's file."""
    from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer

    shop = messages()
    conf = {"use.deprecated.format": False}
    inp, out = topic("in"), topic("out")

    def written() -> list[bytes]:
        client = theirs(registry)
        right = ProtobufSerializer(shop.Order, client, conf)(shop.Order(id=3, country="DE"), context(inp))
        wrong = ProtobufSerializer(shop.Other, client, conf)(shop.Other(x="a"), context(inp))
        return [wrong, right]

    def changed(order: Any) -> Any:
        order.money.cents = 5
        return order

    app = hg.App(job.name, settings={"registry.url": registry.url})
    orders = app.input(inp, serde=hg.protobuf(shop.Order), on_bad_data="dead_letter")
    orders.map(changed).to(out, serde=hg.protobuf(shop.Order, register=True))
    same_out, columns_out = topic("same"), topic("columns")
    orders.map(changed).to(same_out, serde=hg.protobuf(shop.Order, subject=lambda *_: f"{inp}-value"))
    orders.columns(Bought).filter(hg.col("money.cents").is_null()).to(columns_out, serde=hg.json())
    await job.write(inp, await asyncio.to_thread(written))
    await job.start(app)
    [record] = await job.records(out, 1)
    [same] = await job.records(same_out, 1)
    assert same.value == record.value
    read = ProtobufDeserializer(shop.Order, conf, theirs(registry))
    order = await asyncio.to_thread(lambda: read(record.value, context(out)))
    assert (order.id, order.country, order.money.cents) == (3, "DE", 5)
    assert await job.values(columns_out, 1) == [{"id": 3, "country": "DE", "money": None}]
    [dead] = await job.records(app.topics.dead_letters, 1)
    assert b"the record is the message com.shop.Other, not com.shop.Order" in b"".join(data for _, data in dead.headers)


async def test_json_schema_of_confluents_serializer_both_ways(job, topic, registry):
    """With a type, with a schema, and with none: then the writer's schema checks. Keys, too."""
    from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer

    schema = orjson.dumps(
        {"title": "Order", "type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]}
    )
    inp, typed, plain = topic("in"), topic("typed"), topic("plain")

    def written() -> list[bytes]:
        write = JSONSerializer(schema.decode(), theirs(registry), lambda one, _: one)
        good = write({"id": 4, "country": "DE"}, context(inp))
        write_key = JSONSerializer(TEXT, theirs(registry), lambda one, _: one)
        return [good, good[:5] + b'{"id": "four"}', write_key("k", context(inp, "key"))]

    app = hg.App(job.name, settings={"registry.url": registry.url})
    orders = app.input(inp, serde=hg.json_schema(), key_serde=hg.json_schema(str), on_bad_data="dead_letter")
    counts = topic("counts")
    orders.repartition(name="by-key").agg(n=hg.count()).to(counts, key_serde=hg.json_schema(str, register=True))
    orders.to(plain, serde=hg.json_schema(schema=schema.decode(), register=True))
    orders.map(lambda one: Order(one["id"], one["country"])).to(typed, serde=hg.json_schema(Order, register=True))
    *values, key = await asyncio.to_thread(written)
    await job.write(inp, values, key=key)
    await job.start(app)
    [counted] = await job.records(counts, 1)
    read_key = JSONDeserializer(None, schema_registry_client=theirs(registry))
    assert await asyncio.to_thread(lambda: read_key(counted.key, context(counts, "key"))) == "k"
    [one], [other] = await job.records(plain, 1), await job.records(typed, 1)

    def read() -> list[Any]:
        loose = JSONDeserializer(None, schema_registry_client=theirs(registry))
        return [loose(one.value, context(plain)), loose(other.value, context(typed))]

    assert await asyncio.to_thread(read) == [
        {"id": 4, "country": "DE"},
        {"id": 4, "country": "DE", "amount": 0.0},
    ]
    [dead] = await job.records(app.topics.dead_letters, 1)
    assert b"is not of type" in b"".join(data for _, data in dead.headers)


async def test_references_and_a_subject_by_the_name_of_the_record(job, topic, registry):
    """A schema that names a type of another subject, for Confluent's deserializer as for ours."""
    from confluent_kafka.schema_registry.avro import AvroDeserializer

    inp, out = topic("in"), topic("out")
    money = {"type": "record", "name": f"M{out[-8:].replace('-', '_')}", "fields": [{"name": "cents", "type": "long"}]}
    sale = {
        "type": "record",
        "name": f"S{out[-8:].replace('-', '_')}",
        "fields": [{"name": "price", "type": money["name"]}],
    }
    client = theirs(registry)
    await asyncio.to_thread(
        client.register_schema, money["name"], schema_registry.Schema(orjson.dumps(money).decode(), "AVRO")
    )
    own = hg.avro(schema=sale, references={money["name"]: money["name"]}, subject="topic-record", register=True)
    app = hg.App(job.name, settings={"registry.url": registry.url})
    app.input(inp).to(out, serde=own)
    back = topic("back")
    app.input(out, serde=hg.avro()).to(back)
    await job.write(inp, [{"price": {"cents": 7}}])
    await job.start(app)
    [record] = await job.records(out, 1)
    read = AvroDeserializer(theirs(registry))
    assert await asyncio.to_thread(lambda: read(record.value, context(out))) == {"price": {"cents": 7}}
    assert await job.values(back, 1) == [{"price": {"cents": 7}}]
    assert f"{out}-{sale['name']}" in await asyncio.to_thread(client.get_subjects)


async def test_columns_go_out_in_avro_that_their_deserializer_reads_and_doctor_reads_the_newest_inputs(
    job, topic, registry
):
    """No object stands for a record on the way. Before the first record there is nothing to look at; an id that no one knows is named."""
    from confluent_kafka.schema_registry.avro import AvroDeserializer

    inp, out = topic("in"), topic("out")
    app = hg.App(job.name, settings={"registry.url": registry.url})
    orders = app.input(inp, serde=hg.avro(Sale), on_bad_data="skip").columns()
    orders.with_columns(amount=hg.col("amount") * 2).to(out, serde=hg.avro(Sale, register=True))
    there, look = HttpRegistry(RegistryAccess((registry.url,))), partial(newest, job.client)
    assert [said for _, _, said, _ in await inputs_said(there, Declared(app).steps, look)] == [
        "no value to look at yet"
    ]
    values = await asyncio.to_thread(avro_bytes, registry, inp, NEW, [{"id": 1, "country": "DE", "amount": 2.5}])
    await job.write(inp, values)
    [(what, right, *_)] = await inputs_said(there, Declared(app).steps, look)
    assert (what, right) == (f"values of {inp}", True)
    await job.start(app)
    [record] = await job.records(out, 1)
    read = AvroDeserializer(theirs(registry))
    found = await asyncio.to_thread(lambda: read(record.value, context(out)))
    assert found == {"id": 1, "country": "DE", "amount": 5.0}
    await job.write(inp, [b"\0\0\x0f\xff\xff\2"])
    [(_, right, said, todo)] = await inputs_said(there, Declared(app).steps, look)
    assert not right
    assert "1048575" in said
    assert "bring the schema to the registry" in todo


def messages() -> Any:
    """The classes of a file that imports another one, as `protoc` would generate them."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    common = descriptor_pb2.FileDescriptorProto(name="common.proto", package="common", syntax="proto3")
    common.message_type.add(name="Money").field.add(name="cents", number=1, type=3, label=1)
    file = descriptor_pb2.FileDescriptorProto(name="shop.proto", package="com.shop", syntax="proto3")
    file.dependency.append("common.proto")
    file.message_type.add(name="Other").field.add(name="x", number=1, type=9, label=1)
    order = file.message_type.add(name="Order")
    order.field.add(name="id", number=1, type=3, label=1)
    order.field.add(name="country", number=2, type=9, label=1)
    order.field.add(name="money", number=4, type=11, label=1, type_name=".common.Money")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(common)
    pool.Add(file)
    return SimpleNamespace(
        **{
            one: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"com.shop.{one}"))
            for one in ("Order", "Other")
        }
    )
