"""Schemas that are named in headers, on a real broker: what Confluent's serializers write there a job reads, and they read what it writes.

The registry is Apicurio behind a proxy that gives its schemas GUIDs. Without the proxy it has none, and is refused.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Iterator
from functools import partial
from typing import Any
from uuid import UUID

import orjson
import pytest

import headgate as hg
from headgate.agents.cli.start.registry_checks import inputs_said, newest, registry_said
from headgate.agents.job.derive.declaration import Declared
from headgate.agents.registry.client import HttpRegistry, RegistryAccess

from .conftest import WAIT_S
from .guids import GuidRegistry, with_guids
from .scenes import why as failed_because
from .test_schema_registry import messages

schema_registry = pytest.importorskip("confluent_kafka.schema_registry", reason="pip install confluent-kafka[avro]")
pytest.importorskip("fastavro")

pytestmark = [pytest.mark.kafka, pytest.mark.asyncio]

VALUE, KEY = "__value_schema_id", "__key_schema_id"
TRACE = ("trace", b"7")
NAME = "a-key"
"""Confluent's deserializers in Python refuse less than six bytes, whatever the headers say."""
ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "country", "type": "string"},
        {"name": "amount", "type": "double", "default": 0.0},
    ],
}
JSON_ORDER = {
    "title": "Order",
    "type": "object",
    "properties": {"id": {"type": "integer"}, "country": {"type": "string"}},
    "required": ["id"],
}
SALE = {**ORDER, "fields": [*ORDER["fields"][:2], {"name": "amount", "type": "double"}]}
JSON_KEY = '{"$schema": "https://json-schema.org/draft/2020-12/schema", "type": "string"}'


@dataclasses.dataclass
class Order:
    id: int
    country: str
    amount: float = 0.0


@dataclasses.dataclass
class Sale:
    id: int
    country: str
    amount: float


@pytest.fixture
def guids(registry: Any) -> Iterator[GuidRegistry]:
    with with_guids(registry.url) as made:
        yield made


class Theirs:
    """Confluent's serializers, which name schemas in headers, and their deserializers, which look there first."""

    def __init__(self, registry: GuidRegistry) -> None:
        self._client = schema_registry.SchemaRegistryClient({"url": registry.url})
        self._conf = {"schema.id.serializer": schema_registry.header_schema_id_serializer}

    def avro(self, schema: Any) -> tuple[Any, Any]:
        from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer

        return AvroSerializer(self._client, orjson.dumps(schema).decode(), conf=self._conf), AvroDeserializer(
            self._client
        )

    def protobuf(self, kind: Any) -> tuple[Any, Any]:
        from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer

        old = {"use.deprecated.format": False}
        return ProtobufSerializer(kind, self._client, {**self._conf, **old}), ProtobufDeserializer(
            kind, old, self._client
        )

    def json(self, schema: str) -> tuple[Any, Any]:
        from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer

        write = JSONSerializer(schema, self._client, lambda one, _: one, conf=self._conf)
        return write, JSONDeserializer(None, schema_registry_client=self._client)

    def headers_of(self, topic: str, place: bytes = b"") -> dict[str, bytes]:
        """What the headers of a record say, by the GUIDs of the subjects of its topic. `place`: of a Protobuf message in its file."""
        found = {part: self._client.get_latest_version(f"{topic}-{part}").guid for part in ("key", "value")}
        by = {part: b"\1" + UUID(guid).bytes for part, guid in found.items()}
        return dict([TRACE, (KEY, by["key"]), (VALUE, by["value"] + place)])


def sent(topic: str, write: Any, value: Any, write_key: Any, key: Any) -> dict[str, Any]:
    """Value, key and headers of a record, as a producer with these serializers sends it."""
    from confluent_kafka.serialization import SerializationContext

    headers = [TRACE]
    raw_key = write_key(key, SerializationContext(topic, "key", headers))
    raw = write(value, SerializationContext(topic, "value", headers))
    assert [name for name, _ in headers] == ["trace", KEY, VALUE]
    return {"value": raw, "key": raw_key, "headers": headers}


def received(topic: str, record: Any, read: Any, read_key: Any) -> tuple[Any, Any]:
    """Key and value of a record, as a consumer with these deserializers gets it."""
    from confluent_kafka.serialization import SerializationContext

    headers = list(record.headers)
    key = read_key(record.key, SerializationContext(topic, "key", headers))
    return key, read(record.value, SerializationContext(topic, "value", headers))


async def write(job: Any, topic: str, record: dict[str, Any]) -> None:
    await job.write(topic, [record["value"]], key=record["key"], headers=record["headers"])


async def test_rows_of_each_format_go_in_and_out_with_their_schemas_in_headers(job, topic, guids):
    """Values and keys in Avro, Protobuf and JSON Schema. A record goes out as Confluent's serializers would write it: the same bytes, the
    same headers, with those of its own. While the registry is away, the job waits for it."""
    shop, theirs = messages(), Theirs(guids)
    names = {name: (topic(f"{name}-in"), topic(f"{name}-out")) for name in ("avro", "protobuf", "json")}
    app = hg.App(job.name, settings={"registry.url": guids.url})

    def declare(name: str, serde: Any, key_serde: Any) -> None:
        inp, out = names[name]
        given = {"register": True, "schema_id": "header"}
        read, key = serde(), key_serde()
        app.input(inp, serde=read, key_serde=key).to(out, serde=serde(**given), key_serde=key_serde(**given))

    declare("avro", partial(hg.avro, Order, schema=ORDER), partial(hg.avro, str))
    declare("protobuf", partial(hg.protobuf, shop.Order), partial(hg.avro, str))
    declare("json", partial(hg.json_schema, schema=JSON_ORDER), partial(hg.json_schema, schema=JSON_KEY))
    serializers: dict[str, Any] = {
        "avro": (*theirs.avro(ORDER), *theirs.avro("string")),
        "protobuf": (*theirs.protobuf(shop.Order), *theirs.avro("string")),
        "json": (*theirs.json(orjson.dumps(JSON_ORDER).decode()), *theirs.json(JSON_KEY)),
    }
    plain = {"id": 3, "country": "DE"}
    values = {"avro": {**plain, "amount": 2.5}, "protobuf": shop.Order(**plain), "json": plain}
    records: dict[str, dict[str, Any]] = {}
    for name, (inp, _) in names.items():
        their_write, _, their_key, _ = serializers[name]
        records[name] = await asyncio.to_thread(sent, inp, their_write, values[name], their_key, NAME)
        await write(job, inp, records[name])
    guids.away = True
    running = await job.start(app)
    waits = f"waiting: the schema registry at {guids.url} does not answer"
    await running.until(
        lambda: any(waits in f"waiting: {one.under_way.doing.waits_for}" for one in running.worker.actors.values()),
        "a letter that says for whom it waits",
    )
    guids.away = False
    for name, (_, out) in names.items():
        [record] = await job.records(out, 1)
        _, read, _, read_key = serializers[name]
        key, value = await asyncio.to_thread(received, out, record, read, read_key)
        assert (key, value) == (NAME, values[name]), name
        assert [one for one, _ in record.headers] == ["trace", KEY, VALUE]
        place = b"\2\2" if name == "protobuf" else b""  # the second message of its file
        if name != "json":  # its spaces are the serializer's own
            assert (record.value, record.key) == (records[name]["value"], records[name]["key"])
        assert dict(record.headers) == await asyncio.to_thread(theirs.headers_of, out, place)
    said = await registry_said(HttpRegistry(RegistryAccess((guids.url,))), Declared(app).steps)
    assert all(right for _, right, *_ in said), said


async def test_columns_go_in_and_out_with_their_schemas_in_headers(job, topic, guids):
    """No object stands for a record; running aggregates of columns, too. Records have headers of their own, or none."""
    theirs, inp, out, totals = Theirs(guids), topic("in"), topic("out"), topic("totals")
    app = hg.App(job.name, settings={"registry.url": guids.url})
    columns = app.input(inp, serde=hg.avro(Sale), key_serde=hg.avro(str)).columns()
    given: Any = {"register": True, "schema_id": "header"}
    bigger = columns.filter(hg.col("id") > 1).with_columns(amount=hg.col("amount") * 2)
    bigger.to(out, serde=hg.avro(schema=SALE, **given), key_serde=hg.avro(str, **given))
    total = {"type": "record", "name": "Total", "fields": [{"name": "amount", "type": "double"}]}
    columns.repartition("country", name="by-country").agg(amount=hg.sum("amount"), name="totals").to(
        totals, serde=hg.avro(schema=total, **given), key_serde=hg.avro(str, **given)
    )
    their_write, read = theirs.avro(SALE)
    their_key, read_key = theirs.avro("string")
    for number in (1, 2, 3):
        value = {"id": number, "country": "DEUTSCHLAND", "amount": 0.5}
        await write(job, inp, await asyncio.to_thread(sent, inp, their_write, value, their_key, NAME))
    [looked] = [
        one
        for one in await inputs_said(
            HttpRegistry(RegistryAccess((guids.url,))), Declared(app).steps, partial(newest, job.client)
        )
        if one[0] == f"values of {inp}"
    ]
    assert looked[1], looked
    await job.start(app)
    found = await job.records(out, 2)
    expected = [(NAME, {"id": number, "country": "DEUTSCHLAND", "amount": 1.0}) for number in (2, 3)]
    assert [await asyncio.to_thread(received, out, one, read, read_key) for one in found] == expected
    assert [[name for name, _ in one.headers] for one in found] == [["trace", KEY, VALUE]] * 2
    headers = await asyncio.to_thread(theirs.headers_of, out)
    same = await asyncio.to_thread(sent, out, their_write, expected[0][1], their_key, NAME)
    assert (found[0].value, found[0].key, dict(found[0].headers)) == (same["value"], same["key"], headers)
    got = None
    async with asyncio.timeout(WAIT_S):
        while got != ("DEUTSCHLAND", {"amount": 1.5}):  # each chunk has a result
            last = (await job.records(totals, 1))[-1]
            got = await asyncio.to_thread(received, totals, last, read, read_key)
    assert [name for name, _ in last.headers] == [KEY, VALUE]


async def test_a_registry_without_guids_fails_the_task_and_doctor_says_it_before(job, topic, registry):
    """It names the registry, the subject and what helps; nothing is written with an id instead, and nothing is registered."""
    inp, out = topic("in"), topic("out")
    app = hg.App(job.name, settings={"registry.url": registry.url, "error.retries": 0})
    app.input(inp, serde=hg.json(Order)).to(out, serde=hg.avro(Order, register=True, schema_id="header"))
    said = await registry_said(HttpRegistry(RegistryAccess((registry.url,))), Declared(app).steps)
    why = f"the schema registry at {registry.url} has no GUIDs, so the schema of '{out}-value' cannot be named in a header"
    [todo] = [todo for what, right, found, todo in said if (what, right, found) == ("schemas in headers", False, why)]
    assert f"leave out schema_id='header' of the values of {out}" in todo
    await job.write(inp, [{"id": 1, "country": "DE"}])
    running = await job.start(app)
    await running.until(
        lambda: hasattr(running.worker.coordination, "member") and failed_because(running), "the task has failed"
    )
    assert why in failed_because(running)
    subjects = await asyncio.to_thread(schema_registry.SchemaRegistryClient({"url": registry.url}).get_subjects)
    assert f"{out}-value" not in subjects
