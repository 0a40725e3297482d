"""Permissions of a secure embedded broker.

Python's Kafka clients lack these requests, so they are encoded here and sent through the owner's listener.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from ...core.errors import EnvironmentFault
from .wire import Reader, exchange

RESOURCES = {"topic": 2, "group": 3, "cluster": 4, "transactional_id": 5}
OPERATIONS = {
    "all": 2,
    "read": 3,
    "write": 4,
    "create": 5,
    "delete": 6,
    "alter": 7,
    "describe": 8,
    "cluster_action": 9,
    "describe_configs": 10,
    "alter_configs": 11,
    "idempotent_write": 12,
}
_LITERAL, _PREFIXED = 3, 4
_DENY, _ALLOW = 2, 3


@dataclass(frozen=True, slots=True)
class Acl:
    """One permission. `Acl("app", "topic", "orders", "write", allow=False)` forbids `app` to write to `orders`."""

    user: str
    resource: str
    name: str
    operation: str
    allow: bool = True
    prefix: bool = False
    """Whether `name` is a prefix of the names that are meant."""

    def _fields(self) -> tuple[int, str, int, str, str, int, int]:
        pattern = _PREFIXED if self.prefix else _LITERAL
        permission = _ALLOW if self.allow else _DENY
        return (
            RESOURCES[self.resource],
            self.name,
            pattern,
            f"User:{self.user}",
            "*",
            OPERATIONS[self.operation],
            permission,
        )

    def encoded(self) -> bytes:
        """The bytes in which both requests contain it."""
        resource, name, pattern, principal, host, operation, permission = self._fields()
        text = struct.pack(">b", resource) + _text(name) + struct.pack(">b", pattern)
        return text + _text(principal) + _text(host) + struct.pack(">bb", operation, permission)


def create_acls(host: str, port: int, tls: ssl.SSLContext, acls: list[Acl]) -> None:
    """Add these permissions; raises if the broker refuses one (CreateAcls, version 1)."""
    reader = _request(host, port, tls, 30, acls)
    for acl in acls:
        code, message = reader.take(">h"), reader.text()
        if code:
            raise EnvironmentFault(f"the broker refused {acl}: {message or code}")


def delete_acls(host: str, port: int, tls: ssl.SSLContext, acls: list[Acl]) -> None:
    """Remove these permissions (DeleteAcls, version 1)."""
    reader = _request(host, port, tls, 31, acls)
    for acl in acls:
        code, message = reader.take(">h"), reader.text()
        if code:
            raise EnvironmentFault(f"the broker refused to remove {acl}: {message or code}")
        for _ in range(reader.take(">i")):
            reader.skip_acl()


def applied(host: str, port: int, tls: ssl.SSLContext, acls: list[Acl]) -> list[bool]:
    """Which of these permissions this broker enforces (DescribeAcls, version 1).

    The answers to the other two requests say what the controller has written. Brokers read it a moment later.
    """
    found: list[bool] = []
    with _connection(host, port, tls) as connection:
        for acl in acls:
            reader = exchange(connection, 29, 1, acl.encoded())
            reader.take(">i")  # the throttle time
            code, message = reader.take(">h"), reader.text()
            if code:
                raise EnvironmentFault(f"the broker refused to look for {acl}: {message or code}")
            found.append(reader.take(">i") > 0)
    return found


@contextlib.contextmanager
def _connection(host: str, port: int, tls: ssl.SSLContext) -> Iterator[ssl.SSLSocket]:
    try:
        with (
            socket.create_connection((host, port), timeout=30) as plain,
            tls.wrap_socket(plain, server_hostname=host) as connection,
        ):
            yield connection
    except (OSError, ValueError) as error:
        raise EnvironmentFault(f"the broker at {host}:{port} does not answer its owner: {error}") from error


def _request(host: str, port: int, tls: ssl.SSLContext, api: int, acls: list[Acl]) -> Reader:
    body = struct.pack(">i", len(acls)) + b"".join(acl.encoded() for acl in acls)
    with _connection(host, port, tls) as connection:
        reader = exchange(connection, api, 1, body)
    reader.take(">i")  # the throttle time
    reader.take(">i")  # the number of results
    return reader


def _text(value: str) -> bytes:
    raw = value.encode()
    return struct.pack(">h", len(raw)) + raw
