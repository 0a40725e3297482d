"""Commands that ask the pages of a worker give its token, and say it when it is refused."""

from __future__ import annotations

import doctest
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from headgate.agents.cli import pages
from headgate.agents.cli.options import target
from headgate.agents.cli.pages import page, refusal
from headgate.agents.process.configuration import CommandLine
from headgate.agents.web.door import PageDoor, keeper


def test_the_examples_hold() -> None:
    assert doctest.testmod(pages).failed == 0


async def status_page(request: web.Request) -> web.Response:
    return web.json_response({"rows": 1})


def served() -> TestServer:
    """A worker's pages behind its door."""
    door = PageDoor("127.0.0.1", "t0ken")
    app = web.Application(middlewares=[keeper(door, lambda status, why: web.Response(status=status, text=why))])
    app.router.add_get("/api/status", status_page)
    return TestServer(app)


@pytest.mark.asyncio
@pytest.mark.parametrize("way", ["flag", "environment", "file"])
async def test_the_token_comes_from_where_settings_come_from(
    way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker with a token was taken for one that cannot be reached."""
    monkeypatch.chdir(tmp_path)
    if way == "environment":
        monkeypatch.setenv("HEADGATE_WEB_TOKEN", "t0ken")
    if way == "file":
        (tmp_path / "headgate.toml").write_text('[web]\ntoken = "t0ken"\n')
    to = target("sales", CommandLine("127.0.0.1:1"), web_token="t0ken" if way == "flag" else None)
    async with served() as server:
        assert await page(to, f"http://127.0.0.1:{server.port}", "status") == (200, {"rows": 1})


@pytest.mark.asyncio
@pytest.mark.parametrize("token", [None, "", "other"])
async def test_a_refusal_is_not_taken_for_silence(
    token: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    to = target("sales", CommandLine("127.0.0.1:1"), web_token=token)
    async with served() as server:
        assert await page(to, f"http://127.0.0.1:{server.port}", "status") == (401, None)
        assert "HEADGATE_WEB_TOKEN" in refusal("w1", 401)
    assert await page(to, f"http://127.0.0.1:{server.port}", "status") == (0, None)
