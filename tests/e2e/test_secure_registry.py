"""A job whose schema registry is behind TLS with an authority of its own, and behind a password: what is wrong is named and waited for.

The registry is the real one. In front of it stands a server that speaks TLS and asks for the password, as the gateways of companies do: the
registry itself knows users only through a server for identities.
"""

from __future__ import annotations

import asyncio
import base64
import dataclasses
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import orjson
import pytest
import pytest_asyncio
import trustme
from aiohttp import web

import headgate as hg
from headgate.agents.learning import NotYet
from headgate.agents.registry.client import HttpRegistry, RegistryAccess
from headgate.agents.worker.load.health import letter_load

schema_registry = pytest.importorskip("confluent_kafka.schema_registry", reason="pip install confluent-kafka[avro]")
pytest.importorskip("fastavro")

pytestmark = [pytest.mark.kafka, pytest.mark.asyncio]
USER, PASSWORD, WRONG = "ann", "correct-horse", "wrong-battery"


class OrderKey(NamedTuple):
    id: int
    region: str


@dataclasses.dataclass
class Order:
    id: int
    amount: float


ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "amount", "type": "double"}],
}
KEY = {
    "type": "record",
    "name": "OrderKey",
    "fields": [{"name": "id", "type": "long"}, {"name": "region", "type": "string"}],
}


class Gateway:
    """HTTPS in front of a registry: it asks for a password, and hands on what is asked and answered."""

    def __init__(self, behind: str, context: ssl.SSLContext) -> None:
        self._behind, self._context = behind, context
        self._wanted = f"Basic {base64.b64encode(f'{USER}:{PASSWORD}'.encode()).decode()}"
        self.url = ""
        self.refused = self.passed = 0

    async def __aenter__(self) -> Gateway:
        self._session = aiohttp.ClientSession()
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._answer)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0, ssl_context=self._context)
        await site.start()
        assert site._server is not None
        self.url = f"https://127.0.0.1:{site._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()
        await self._session.close()

    async def _answer(self, request: web.Request) -> web.Response:
        if request.headers.get("Authorization") != self._wanted:
            self.refused += 1
            return web.json_response({"error_code": 401, "message": "Unauthorized"}, status=401)
        self.passed += 1
        headers = {name: one for name in ("Accept", "Content-Type") if (one := request.headers.get(name))}
        url = f"{self._behind}{request.path_qs}"
        async with self._session.request(request.method, url, data=await request.read(), headers=headers) as answer:
            kind = answer.headers.get("Content-Type", "application/json")
            return web.Response(status=answer.status, body=await answer.read(), headers={"Content-Type": kind})


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> tuple[trustme.CA, Path]:
    """An authority that nobody else knows."""
    made, path = trustme.CA(), tmp_path_factory.mktemp("ca") / "ca.pem"
    made.cert_pem.write_to_path(path)
    return made, path


@pytest_asyncio.fixture
async def gateway(registry: Any, authority: tuple[trustme.CA, Path]) -> AsyncIterator[Gateway]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority[0].issue_cert("127.0.0.1").configure_cert(context)
    async with Gateway(registry.url, context) as made:
        yield made


async def test_a_wrong_password_is_named_and_waited_for_and_the_right_one_takes_up_what_waited(
    job, topic, gateway, authority
):
    """Keys and values in Avro, from Confluent's serializer and for their deserializer, all of them through the gateway."""
    from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
    from confluent_kafka.serialization import SerializationContext

    inp, out = topic("in"), topic("out")
    theirs = {"url": gateway.url, "ssl.ca.location": str(authority[1]), "basic.auth.user.info": f"{USER}:{PASSWORD}"}
    client = schema_registry.SchemaRegistryClient(theirs)

    def written(schema: Any, part: str, value: Any) -> bytes:
        return AvroSerializer(client, orjson.dumps(schema).decode())(value, SerializationContext(inp, part))

    key = await asyncio.to_thread(written, KEY, "key", {"id": 7, "region": "eu"})
    values = [await asyncio.to_thread(written, ORDER, "value", {"id": n, "amount": n / 2}) for n in range(3)]
    own = {"registry.url": gateway.url, "registry.ca": str(authority[1]), "registry.user": USER}

    def app(password: str) -> hg.App:
        made = hg.App(job.name, settings={**own, "registry.password": password})
        orders = made.input(inp, serde=hg.avro(Order), key_serde=hg.avro(OrderKey), on_bad_data="skip")
        keyed = orders.repartition(name="by-key").agg(n=hg.count(), total=hg.sum("amount"))
        keyed.to(out, serde=hg.avro(schema=TOTAL, register=True), key_serde=hg.avro(OrderKey, register=True))
        return made

    await job.write(inp, values, key=key)
    first = await job.start(app(WRONG))

    def why() -> str:
        return " ".join(letter_load(first.worker.actors.values(), 0, 0.0))

    await first.until(lambda: "it wants a login" in why(), "a letter that says what the registry wants")
    assert f"the schema registry at {gateway.url} does not answer: HTTP 401" in why()
    assert WRONG not in why()
    assert set(first.states().values()) == {"running"}
    assert gateway.refused > 0
    assert await first.stop() == 0
    passed = gateway.passed
    second = await job.start(app(PASSWORD))
    await second.until(lambda: gateway.passed > passed, "questions that are answered")

    def read(one: Any) -> tuple[Any, Any]:
        return (
            AvroDeserializer(client)(one.key, SerializationContext(out, "key")),
            AvroDeserializer(client)(one.value, SerializationContext(out, "value")),
        )

    last: Any = None
    while last != ({"id": 7, "region": "eu"}, {"n": 3, "total": 1.5}):
        assert last is None or last[1]["n"] < 3, last
        last = await asyncio.to_thread(read, (await job.records(out, 1))[-1])
    assert await second.stop() == 0


TOTAL = {
    "type": "record",
    "name": "Total",
    "fields": [{"name": "n", "type": "long"}, {"name": "total", "type": "double"}],
}


async def test_an_authority_that_is_not_known_is_named(gateway):
    """Nobody is asked without TLS, and no password leaves."""
    asked = HttpRegistry(RegistryAccess((gateway.url,), USER, PASSWORD))
    with pytest.raises(NotYet, match=r"(?i)certificate") as error:
        await asked.by_id(1)
    assert PASSWORD not in str(error.value)
    assert (gateway.refused, gateway.passed) == (0, 0)
