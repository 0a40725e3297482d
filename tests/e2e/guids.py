"""A schema registry with GUIDs: a proxy in front of a real one that has none.

What it decides: the GUID of a schema follows from its text, so it is the same each time. It is said where Confluent's registry says it
since its release 8.0: where a schema is registered, looked for, or read. `GET /schemas/guids/{guid}` finds each schema whose GUID has been
said. All else is what the real registry answers.
"""

from __future__ import annotations

import contextlib
import json
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit
from uuid import NAMESPACE_URL, uuid5

GUIDS = "/schemas/guids/"
NOT_FOUND = {"error_code": 40403, "message": "Schema not found"}
AWAY = {"error_code": 50003, "message": "Error while forwarding the request to the primary"}


class GuidRegistry:
    """The proxy. `away`: whether it answers as a registry does that has lost its own; `asked`: the paths that it was asked for."""

    def __init__(self, real: str) -> None:
        self._real = real
        self._ids: dict[str, int] = {}
        self.away = False
        self.asked: list[str] = []
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            def answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                status, found = proxy.answer(self.command, self.path, body or None)
                with contextlib.suppress(ConnectionError):  # who has asked, may have gone
                    self.send_response(status)
                    self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
                    self.send_header("Content-Length", str(len(found)))
                    self.end_headers()
                    self.wfile.write(found)

            do_GET = do_POST = answer

            def log_message(self, *_: Any) -> None:
                """Say nothing."""

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_address[1]}"

    def answer(self, method: str, path: str, body: bytes | None) -> tuple[int, bytes]:
        self.asked.append(f"{method} {path}")
        if self.away:
            return 500, json.dumps(AWAY).encode()
        where = urlsplit(path)
        if where.path.startswith(GUIDS):
            number = self._ids.get(where.path.removeprefix(GUIDS))
            if number is None:
                return 404, json.dumps(NOT_FOUND).encode()
            path = f"/schemas/ids/{number}" + (f"?{where.query}" if where.query else "")
        status, found = self._sent(method, path, body)
        if status >= 300:
            return status, found
        said = json.loads(found)
        if isinstance(said, dict) and ("id" in said or "/schemas/ids/" in path):
            number = int(said["id"]) if "id" in said else int(urlsplit(path).path.rpartition("/")[2])
            said["guid"] = self._guid(number)
        return status, json.dumps(said).encode()

    def _guid(self, number: int) -> str:
        _, found = self._sent("GET", f"/schemas/ids/{number}", None)
        schema = json.loads(found)
        guid = str(uuid5(NAMESPACE_URL, f"{schema.get('schemaType', 'AVRO')} {schema['schema']}"))
        self._ids[guid] = number
        return guid

    def _sent(self, method: str, path: str, body: bytes | None) -> tuple[int, bytes]:
        headers = {"Content-Type": "application/vnd.schemaregistry.v1+json", "Accept": "application/json"}
        request = urllib.request.Request(self._real + path, body, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            return error.code, error.read()


@contextlib.contextmanager
def with_guids(real: str) -> Iterator[GuidRegistry]:
    """A proxy in front of the registry at this address."""
    made = GuidRegistry(real)
    thread = threading.Thread(target=made.http.serve_forever, daemon=True)
    thread.start()
    try:
        yield made
    finally:
        made.http.shutdown()
        made.http.server_close()
        thread.join()
