"""A server that speaks S3's protocol, for tests: moto's, over HTTP on a free port, with what it keeps in memory. Where moto is not
installed, tests that want it are skipped.

Of one answer the outer element is named as S3 names it: moto calls it otherwise, and the client in C++ that pyarrow brings takes it for an
error.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest

BUCKET = "lake"
RENAMED = (b"CompleteMultipartUploadResponse", b"CompleteMultipartUploadResult")


class Store:
    """A bucket, and how a process reaches it."""

    def __init__(self, port: int, client: Any) -> None:
        self.environment = {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
            "AWS_ACCESS_KEY_ID": "someone",
            "AWS_SECRET_ACCESS_KEY": "anything",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
        }
        self._client = client

    def keys(self, below: str) -> list[str]:
        """The names of all objects below a path of the bucket, but those that stand for directories."""
        pages = self._client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=below)
        return [one["Key"] for page in pages for one in page.get("Contents", ()) if not one["Key"].endswith("/")]


@contextlib.contextmanager
def running() -> Iterator[Store]:
    """A server with an empty bucket, while the block runs."""
    pytest.importorskip("moto", reason="moto is not installed here")
    boto3, serving = pytest.importorskip("boto3"), pytest.importorskip("werkzeug.serving")
    server_of = pytest.importorskip("moto.server", reason="flask is not installed here")
    made = server_of.DomainDispatcherApplication(server_of.create_backend_app)

    def app(environment: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        said: list[Any] = []
        body = b"".join(made(environment, lambda *answer: said.extend(answer)))
        status, headers, *_ = said
        if environment["REQUEST_METHOD"] == "POST":
            body = body.replace(*RENAMED)
            headers = [(name, value) for name, value in headers if name.lower() != "content-length"]
            headers.append(("Content-Length", str(len(body))))
        start(status, headers)
        return [body]

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = serving.make_server("127.0.0.1", 0, app, threaded=True)
    thread = threading.Thread(target=server.serve_forever, name="s3", daemon=True)
    thread.start()
    try:
        client = boto3.client(
            "s3",
            endpoint_url=f"http://127.0.0.1:{server.server_port}",
            aws_access_key_id="someone",
            aws_secret_access_key="anything",
            region_name="us-east-1",
        )
        client.create_bucket(Bucket=BUCKET)
        yield Store(server.server_port, client)
    finally:
        server.shutdown()
        thread.join(10)
