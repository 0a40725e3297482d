"""Who may read the pages of a worker."""

from __future__ import annotations

import base64

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from headgate.agents.web.door import PageDoor, keeper


def basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


@pytest.mark.parametrize("host", ["127.0.0.1:8080", "localhost:1", "[::1]:80", "127.0.0.5"])
def test_pages_on_loopback_answer_to_names_of_this_machine(host: str) -> None:
    assert PageDoor("127.0.0.1").refused(host, "/api/status", "") is None


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8080", "", "10.0.0.1:80", "[2001:db8::1]:80"])
def test_pages_on_loopback_answer_to_no_other_name(host: str) -> None:
    """A page of the internet whose name leads to 127.0.0.1 reads whatever answers there, through the browser of whoever looks at it."""
    status, why = PageDoor("127.0.0.1").refused(host, "/livez", "") or (0, "")
    assert (status, "not a name of this machine" in why) == (421, True)
    assert PageDoor("0.0.0.0").refused(host, "/api/status", "") is None


@pytest.mark.parametrize(
    ("given", "passes"),
    [
        ("Bearer t0ken", True),
        ("bearer t0ken", True),
        (basic("anybody", "t0ken"), True),
        ("", False),
        ("Bearer", False),
        ("Bearer other", False),
        ("t0ken", False),
        (basic("t0ken", ""), False),
        ("Basic %%%", False),
        ("Basic " + base64.b64encode(b"\xff:\xff").decode(), False),
        ("Bearer \u00fc", False),
        ("Bearer \udcff", False),
        ("Basic \u00fc", False),
    ],
)
def test_pages_with_a_token_want_it_but_for_liveness_and_readiness(given: str, passes: bool) -> None:
    door = PageDoor("0.0.0.0", "t0ken")
    assert (door.refused("w1", "/api/status", given) is None) == passes
    assert door.refused("w1", "/livez", given) is None
    assert door.refused("w1", "/readyz", given) is None


@pytest.mark.asyncio
async def test_a_refused_request_reaches_no_page() -> None:
    reached: list[str] = []

    async def page(request: web.Request) -> web.Response:
        reached.append(request.path)
        return web.Response(text="secret rows")

    door = PageDoor("127.0.0.1", "t0ken")
    app = web.Application(middlewares=[keeper(door, lambda status, why: web.Response(status=status, text=why))])
    app.router.add_get("/api/tables", page)
    async with TestClient(TestServer(app)) as client:
        for headers, status in (({}, 401), ({"Host": "evil.example", "Authorization": "Bearer t0ken"}, 421)):
            answer = await client.get("/api/tables", headers=headers)
            assert (answer.status, "rows" in await answer.text()) == (status, False)
            assert ("WWW-Authenticate" in answer.headers) == (status == 401)
        assert reached == []
        answer = await client.get("/api/tables", headers={"Authorization": "Bearer t0ken"})
        assert (answer.status, await answer.text(), reached) == (200, "secret rows", ["/api/tables"])


@pytest.mark.parametrize(
    ("host", "token", "anyone"),
    [
        ("127.0.0.1", "", False),
        ("localhost", "", False),
        ("0.0.0.0", "", True),
        ("10.1.2.3", "", True),
        ("0.0.0.0", "t", False),
    ],
)
def test_pages_beyond_loopback_without_a_token_are_open_to_anyone(host: str, token: str, anyone: bool) -> None:
    """A worker warns of that at its start."""
    assert PageDoor(host, token).open == anyone
