"""The part of Kafka's protocol that is needed to check whether a broker is ready.

Decides what *ready* means: the broker answers a metadata request, names a controller, and lists itself and all other nodes as alive (fenced
brokers are not listed). It uses the standard library only, because importing a client library takes half a second.
"""

from __future__ import annotations

import socket
import ssl
import struct
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Cluster:
    """The cluster according to a broker."""

    brokers: tuple[int, ...]
    controller: int
    cluster_id: str


def ask_cluster(host: str, port: int, *, tls: ssl.SSLContext | None = None, timeout_s: float = 1.0) -> Cluster | None:
    """The cluster as the broker on this port sees it; None without a proper answer."""
    try:
        with socket.create_connection((host, port), timeout=timeout_s) as plain:
            plain.settimeout(timeout_s)
            if tls is None:
                return _ask(plain)
            with tls.wrap_socket(plain, server_hostname=host) as secure:
                return _ask(secure)
    except (OSError, ValueError, struct.error, IndexError):
        return None


def _ask(connection: socket.socket) -> Cluster:
    reader = exchange(connection, 3, 2, struct.pack(">i", 0))  # Metadata, version 2, for no topic
    brokers: list[int] = []
    for _ in range(reader.take(">i")):
        brokers.append(reader.take(">i"))
        reader.text()
        reader.take(">i")
        reader.text()
    cluster_id = reader.text()
    return Cluster(tuple(sorted(brokers)), reader.take(">i"), cluster_id)


def exchange(connection: socket.socket, api: int, version: int, body: bytes) -> Reader:
    """Send one request and read the answer."""
    client = b"headgate"
    request = struct.pack(">hhih", api, version, 1, len(client)) + client + body
    connection.sendall(struct.pack(">i", len(request)) + request)
    (size,) = struct.unpack(">i", _exactly(connection, 4))
    if not 8 <= size <= 1 << 20:
        raise ValueError(f"an answer of {size} bytes")
    reader = Reader(_exactly(connection, size))
    reader.take(">i")
    return reader


def _exactly(connection: socket.socket, size: int) -> bytes:
    parts = bytearray()
    while len(parts) < size:
        piece = connection.recv(size - len(parts))
        if not piece:
            raise ValueError("the connection closed in the middle of an answer")
        parts += piece
    return bytes(parts)


class Reader:
    """Reads big-endian numbers and nullable strings one after the other."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def take(self, form: str) -> int:
        """The next number."""
        (value,) = struct.unpack_from(form, self._data, self._at)
        self._at += struct.calcsize(form)
        return value

    def text(self) -> str:
        """The next string; empty for null."""
        size = self.take(">h")
        if size < 0:
            return ""
        self._at += size
        return self._data[self._at - size : self._at].decode()

    def skip_acl(self) -> None:
        """Skip one permission in the answer to DeleteAcls."""
        self.take(">h")
        self.text()
        self.take(">b")
        self.text()
        self.take(">b")
        self.text()
        self.text()
        self.take(">b")
        self.take(">b")
