"""The client of a registry: how it logs in, what it takes for an answer, and how often it asks."""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import ssl
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
import trustme

from headgate.agents.learning import NotYet
from headgate.agents.live_settings import Settings
from headgate.agents.registry.asked import NoSchema, Reference, SchemaText, whole
from headgate.agents.registry.client import HttpRegistry, RegistryAccess
from headgate.core.errors import SettingError

pytestmark = pytest.mark.asyncio
Answer = Callable[[str, Any], tuple[int, Any]]


class Server:
    """A registry that answers as a test says, and remembers who asked."""

    def __init__(self) -> None:
        self.answers: dict[str, tuple[int, Any]] = {}
        self.asked: list[tuple[str, str | None]] = []
        server = self

        class Handler(BaseHTTPRequestHandler):
            def answer(self) -> None:
                size = int(self.headers.get("Content-Length") or 0)
                self.rfile.read(size)
                server.asked.append((self.path, self.headers.get("Authorization")))
                status, found = server.answers.get(self.path.partition("?")[0], (404, {"error_code": 404}))
                body = found if isinstance(found, bytes) else json.dumps(found).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            do_GET = do_POST = answer

            def log_message(self, *_: Any) -> None:
                """Say nothing."""

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self.http.server_address[1]
        self.thread = threading.Thread(target=self.http.serve_forever, daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    made.thread.start()
    yield made
    made.http.shutdown()
    made.http.server_close()


def access(**settings: str) -> RegistryAccess:
    return RegistryAccess.of(Settings({f"registry.{name}": value for name, value in settings.items()}))


SCHEMA = {"schema": '"string"', "schemaType": "AVRO", "references": []}


async def test_it_logs_in_as_the_settings_say(server: Server) -> None:
    """By a user, or by a token."""
    server.answers["/schemas/ids/1"] = 200, SCHEMA
    await HttpRegistry(access(url=server.url, user="ann", password="pässword")).by_id(1)
    await HttpRegistry(access(url=server.url, token="t0ken")).by_id(1)
    assert [told for _, told in server.asked] == [
        f"Basic {base64.b64encode('ann:pässword'.encode()).decode()}",
        "Bearer t0ken",
    ]


async def test_what_is_no_answer_is_asked_again_and_holds_no_secret(server: Server) -> None:
    """A login that is refused, an error of the server, another server's page, and nobody at all."""
    asked = HttpRegistry(access(url=server.url.replace("//", "//ann:hunter22@")), clock=iter(range(100)).__next__)
    for status, found, why in [
        (401, {"error_code": 401}, "it wants a login"),
        (403, {}, "the login may not"),
        (500, {"error_code": 50001, "message": "store"}, "HTTP 500"),
        (404, b"<html>", "no registry stands there"),
        (200, b"<html>", "does not answer in JSON"),
    ]:
        server.answers["/schemas/ids/1"] = status, found
        with pytest.raises(NotYet, match=why) as error:
            await asked.by_id(1)
        assert "hunter22" not in str(error.value)
    server.answers["/schemas/ids/1"] = 200, SCHEMA
    assert (await asked.by_id(1)).text == '"string"'


async def test_what_does_not_exist_is_an_answer(server: Server) -> None:
    """By the code that the registry gives, not by the status alone."""
    asked = HttpRegistry(access(url=server.url))
    server.answers["/schemas/ids/7"] = 404, {"error_code": 40403, "message": "Schema not found"}
    with pytest.raises(NoSchema, match="no schema has the id 7"):
        await asked.by_id(7)
    server.answers["/subjects/a%2Fb-value/versions/latest"] = 404, {"error_code": 40401}
    with pytest.raises(NoSchema, match="no subject 'a/b-value'"):
        await asked.version("a/b-value", None)
    server.answers["/subjects/t-value/versions"] = 409, {"error_code": 409, "message": "incompatible"}
    with pytest.raises(NoSchema, match="refuses the schema: incompatible"):
        await asked.register("t-value", SchemaText("AVRO", '"int"'))


async def test_a_registry_without_guids_says_so_and_is_told_from_a_server_that_is_none(server: Server) -> None:
    """Both answer 404 without a code of theirs. Only a registry answers a question about an id; so what has an odd id is bad data, too."""
    asked, guid = HttpRegistry(access(url=server.url), clock=itertools.count().__next__), UUID(int=7)
    for status, page in ((404, b""), (404, {"error_code": 404, "message": "HTTP 404 Not Found"}), (405, b"<html>")):
        server.answers[f"/schemas/guids/{guid}"] = status, page
        server.answers.pop("/schemas/ids/1", None)
        with pytest.raises(NotYet, match=f"HTTP {status}"):
            await asked.by_id(guid)
        server.answers["/schemas/ids/1"] = 404, {"error_code": 40403, "message": "Schema not found"}
        with pytest.raises(NoSchema, match=f"by a GUID, {guid}, and this registry knows no GUIDs"):
            await asked.by_id(guid)
    server.answers["/schemas/ids/4294967295"] = 404, {"error_code": 404}
    with pytest.raises(NoSchema, match="cannot have a schema with the id 4294967295"):
        await asked.by_id(4_294_967_295)
    server.answers["/schemas/ids/1"] = 401, {}
    with pytest.raises(NotYet):
        await asked.by_id(guid)
    server.answers[f"/schemas/guids/{guid}"] = 200, SCHEMA  # a newer release has come
    assert (await asked.by_id(guid)).kind == "AVRO"


async def test_whether_it_has_guids_is_asked_and_those_of_schemas_are_read(server: Server) -> None:
    """A GUID that no schema has is not found by a registry that has some; it may say them where schemas stand, or not. One that is away
    has said nothing."""
    asked = HttpRegistry(access(url=server.url), clock=itertools.count().__next__)
    with pytest.raises(NotYet):
        await asked.has_guids()
    server.answers["/schemas/ids/1"] = 200, SCHEMA
    assert not await asked.has_guids()
    server.answers[f"/schemas/guids/{UUID(int=0)}"] = 404, {"error_code": 40403, "message": "Schema not found"}
    assert await asked.has_guids()
    guid, text = UUID(int=9), SchemaText("AVRO", '"string"')
    standing = {**SCHEMA, "id": 7, "version": 2}
    for path in ("/subjects/t-value/versions/latest", "/subjects/t-value", "/subjects/t-value/versions"):
        server.answers[path] = 200, {**standing, "guid": str(guid)}
    assert (await asked.version("t-value", None)).guid == guid
    assert (await asked.find("t-value", text)).guid == guid
    assert (await asked.register("t-value", text)).guid == guid
    server.answers["/subjects/t-value/versions"] = 200, {"id": 7}
    assert (await asked.register("t-value", text)).guid is None


async def test_tasks_that_ask_at_once_share_one_question_and_one_failure(server: Server) -> None:
    """Each schema once; a registry that is away is not asked by each of them."""
    server.answers["/schemas/ids/1"] = 200, SCHEMA
    asked = HttpRegistry(access(url=server.url))
    await asyncio.gather(*(asked.by_id(1) for _ in range(5)))
    assert asked.questions == 1
    away = HttpRegistry(access(url="http://127.0.0.1:9"))
    found = await asyncio.gather(*(away.by_id(1) for _ in range(5)), return_exceptions=True)
    assert {type(one) for one in found} == {NotYet}
    assert away.questions == 1


async def test_references_are_followed_each_once(server: Server) -> None:
    """What a schema refers to comes before it, and what that refers to before that."""

    def standing(number: int, *references: tuple[str, int]) -> dict[str, Any]:
        named = [{"name": name, "subject": name, "version": version} for name, version in references]
        return {"subject": "s", "id": number, "version": 1, "schema": f'"{number}"', "references": named}

    server.answers["/subjects/a/versions/1"] = 200, standing(2, ("b", 3))
    server.answers["/subjects/b/versions/3"] = 200, standing(3)
    asked = HttpRegistry(access(url=server.url))
    top = SchemaText("AVRO", '"1"', (Reference("a", "a", 1), Reference("b", "b", 3)))
    for _ in range(2):
        assert [one.text for one in (await whole(asked, top)).in_order()] == ['"3"', '"2"', '"1"']
    assert asked.questions == 2


async def test_tls_with_an_authority_of_ones_own_and_a_certificate(server: Server, tmp_path: Path) -> None:
    """Without the authority nobody is trusted; without the certificate nobody is let in."""
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    authority.configure_trust(context)
    context.verify_mode = ssl.CERT_REQUIRED
    server.http.socket = context.wrap_socket(server.http.socket, server_side=True)
    server.answers["/schemas/ids/1"] = 200, SCHEMA
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    own = authority.issue_cert("worker@example.org")
    own.cert_chain_pems[0].write_to_path(tmp_path / "own.pem")
    own.private_key_pem.write_to_path(tmp_path / "key.pem")
    url = server.url.replace("http:", "https:")
    given = {"ca": str(tmp_path / "ca.pem"), "certificate": str(tmp_path / "own.pem"), "key": str(tmp_path / "key.pem")}
    assert (await HttpRegistry(access(url=url, **given)).by_id(1)).kind == "AVRO"
    for lacks in ("ca", "certificate"):
        rest = {
            name: one for name, one in given.items() if name != lacks and not (lacks == "certificate" and name == "key")
        }
        with pytest.raises(NotYet):
            await HttpRegistry(access(url=url, **rest)).by_id(1)


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({}, "'registry.url' says of none"),
        ({"url": "localhost:8081"}, "is not an address"),
        ({"url": "http://r", "user": "a", "token": "b"}, "two ways to log in"),
        ({"url": "https://r", "ca": "/nowhere.pem"}, "'registry.ca': /nowhere.pem cannot be read"),
        ({"url": "https://r", "key": "/k.pem"}, "needs 'registry.certificate'"),
    ],
)
async def test_settings_that_make_no_registry_are_refused(settings: dict[str, str], why: str) -> None:
    """Before anything starts."""
    with pytest.raises(SettingError, match=why):
        access(**settings)
