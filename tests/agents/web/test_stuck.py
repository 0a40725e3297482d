"""Who is answered while the main loop is blocked: the same readers as at other times."""

from __future__ import annotations

import contextlib
import doctest
import socket
import time
from collections.abc import Iterator

import pytest

from headgate.agents.web import door as doors
from headgate.agents.web import stuck
from headgate.agents.web.door import Asked, PageDoor

WORK = "Partition 0, awaiting lookup"
WHERE = "in hanging"


def test_the_examples_of_the_door_hold() -> None:
    assert doctest.testmod(doors).failed == 0


@pytest.mark.parametrize(
    ("head", "asked"),
    [
        (b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", Asked("/", "localhost", "")),
        (b"GET /livez?x=/api/ HTTP/1.1\r\nHOST:  w1:80 \r\nauthorization: Bearer a:b\r\n\r\n", Asked("/livez", "w1:80", "Bearer a:b")),
        (b"GET / HTTP/1.1\r\nHost: a\r\nHost: localhost\r\n\r\n", Asked("/", "a", "")),
        (b"GET / HTTP/1.1\r\nHost: a\r\n\r\nAuthorization: Bearer t\r\n", Asked("/", "a", "")),
        ("GET / HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer \u00fc\r\n".encode(), Asked("/", "a", "Bearer \u00fc")),
        (b"", Asked()),
        (b"\xff\xfe \r\n\r\n", Asked()),
        (b"GET\r\n:\r\n", Asked()),
    ],
)  # fmt: skip
def test_a_request_is_read_as_far_as_the_door_must_know_it(head: bytes, asked: Asked) -> None:
    assert Asked.of(head) == asked


@pytest.mark.parametrize(
    ("door", "asked", "status", "seen"),
    [
        (PageDoor(), Asked("/api/status", "127.0.0.1:80"), 503, True),
        (PageDoor(), Asked("/livez", "localhost"), 503, True),
        (PageDoor(), Asked("/livez", "evil.example"), 421, False),
        (PageDoor(), Asked("/api/status", ""), 421, False),
        (PageDoor("0.0.0.0", "t0ken"), Asked("/api/status", "w1"), 401, False),
        (PageDoor("0.0.0.0", "t0ken"), Asked("/", "w1", "Bearer other"), 401, False),
        (PageDoor("0.0.0.0", "t0ken"), Asked("", "w1"), 401, False),
        (PageDoor("0.0.0.0", "t0ken"), Asked("/livez", "w1"), 503, False),
        (PageDoor("0.0.0.0", "t0ken"), Asked("/readyz", "w1", "Bearer other"), 503, False),
        (PageDoor("0.0.0.0", "t0ken"), Asked("/livez", "w1", "Bearer t0ken"), 503, True),
        (PageDoor("0.0.0.0", "t0ken"), Asked("/api/status", "w1", "Bearer t0ken"), 503, True),
    ],
)
def test_work_and_stack_are_for_readers_of_the_pages(door: PageDoor, asked: Asked, status: int, seen: bool) -> None:
    """Stacks and work under way were shown to any name and without the token, as soon as the loop was blocked."""
    said = stuck.answer(door, asked, 7.04, WORK, WHERE).decode()
    head, _, body = said.partition("\r\n\r\n")
    assert head.startswith(f"HTTP/1.1 {status} ")
    assert ((WORK in body) and (WHERE in body), WORK in said or WHERE in said) == (seen, seen)
    assert ("blocked for 7.0 s" in body) == (status == 503)
    assert ("WWW-Authenticate: Basic" in head) == (status == 401)
    assert f"Content-Length: {len(body)}" in head


@contextlib.contextmanager
def blocked(monkeypatch: pytest.MonkeyPatch, door: PageDoor) -> Iterator[tuple[str, int]]:
    """The address of a worker whose loop does not turn."""
    monkeypatch.setattr(stuck, "AFTER_S", 0.0)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = stuck.Stuck(listening, lambda: 0.0, lambda: WORK, door)
        thread.start()
        try:
            yield listening.getsockname()
        finally:
            thread.stop()


def asked_of(address: tuple[str, int], *parts: bytes) -> str:
    """Everything that comes back for a request in these parts."""
    with socket.create_connection(address, timeout=60) as connection:
        for part in parts:
            connection.sendall(part)
            time.sleep(0.05)  # a part of its own on the wire; nothing depends on it
        answer = b""
        while more := connection.recv(4096):
            answer += more
        return answer.decode()


def test_a_blocked_worker_asks_for_name_and_token(monkeypatch: pytest.MonkeyPatch) -> None:
    with blocked(monkeypatch, PageDoor("127.0.0.1", "t0ken")) as at:
        for path in (b"/livez", b"/api/status"):
            said = asked_of(
                at, b"GET " + path + b" HTTP/1.1\r\nHost: evil.example\r\nAuthorization: Bearer t0ken\r\n\r\n"
            )
            assert (said.split(" ")[1], WORK in said) == ("421", False)
        said = asked_of(at, b"GET /api/status HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert (said.split(" ")[1], WORK in said) == ("401", False)
        said = asked_of(at, b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert (said.split(" ")[1], WORK in said, "test_stuck" in said) == ("503", False, False)
        said = asked_of(at, b"GET /livez HTTP/1.1\r\nHo", b"st: localhost\r\nAuthorization: Bear", b"er t0ken\r\n\r\n")
        assert (said.split(" ")[1], WORK in said, "test_stuck" in said) == ("503", True, True)


def test_whoever_says_nothing_holds_no_one_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stuck, "READ_S", 1.0)
    with blocked(monkeypatch, PageDoor()) as at, socket.create_connection(at):
        said = asked_of(at, b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert (said.split(" ")[1], WORK in said) == ("503", True)
