"""A receiver of traces that speaks OTLP over HTTP, with the messages of OpenTelemetry's own definitions.

    with Receiver() as receiver:
        ...                    # OTEL_EXPORTER_OTLP_ENDPOINT=receiver.url
        receiver.spans         # all that has come, in its order

`receiver.answers.clear()` makes it hang: it takes requests, and answers none until the event is set again.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, NamedTuple

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)


class Seen(NamedTuple):
    """A span that has come."""

    name: str
    id: tuple[str, str]
    """Its trace, and itself."""
    links: list[tuple[str, str]]
    attributes: Mapping[str, Any]
    resource: Mapping[str, Any]
    failed: bool
    ns: int
    parent: str

    @property
    def header(self) -> bytes:
        return f"00-{self.id[0]}-{self.id[1]}-01".encode()


class Receiver:
    """See above."""

    def __init__(self, port: int = 0) -> None:
        self.spans: list[Seen] = []
        self.requests = 0
        self.answers = threading.Event()
        self.answers.set()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                receiver.requests += 1
                receiver.answers.wait()
                receiver.spans += seen(ExportTraceServiceRequest.FromString(body))
                answer = ExportTraceServiceResponse().SerializeToString()
                self.send_response(200)
                self.send_header("content-type", "application/x-protobuf")
                self.send_header("content-length", str(len(answer)))
                with contextlib.suppress(OSError):  # who has asked does not wait any more
                    self.end_headers()
                    self.wfile.write(answer)

            def log_message(self, format: str, *args: Any) -> None: ...

        self.server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        self._thread = threading.Thread(target=self.server.serve_forever, daemon=True)

    def named(self, name: str) -> list[Seen]:
        return [one for one in list(self.spans) if one.name == name]

    def __enter__(self) -> Receiver:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.answers.set()
        self.server.shutdown()
        self.server.server_close()


def seen(request: ExportTraceServiceRequest) -> list[Seen]:
    """The spans of a request."""
    return [
        Seen(
            one.name,
            (one.trace_id.hex(), one.span_id.hex()),
            [(link.trace_id.hex(), link.span_id.hex()) for link in one.links],
            values(one.attributes),
            values(of.resource.attributes),
            one.status.code == one.status.STATUS_CODE_ERROR,
            one.end_time_unix_nano - one.start_time_unix_nano,
            one.parent_span_id.hex(),
        )
        for of in request.resource_spans
        for scope in of.scope_spans
        for one in scope.spans
    ]


def values(attributes: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for one in attributes:
        kind = one.value.WhichOneof("value")
        value = getattr(one.value, kind)
        found[one.key] = [part.string_value for part in value.values] if kind == "array_value" else value
    return found
