"""A real Chromium for tests of the page: Debian's, without a window, steered over its own protocol. Where there is none, tests that want
one are skipped.

    async with browser(tmp_path) as page:
        await page.open(url)
        await page.until('document.querySelector("#job").textContent === "sales/1"')
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import itertools
import os
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

PROGRAM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
PATIENCE_S = 120.0
FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--remote-debugging-port=0",
)  # fmt: skip
needs_chromium = pytest.mark.skipif(PROGRAM is None, reason="Chromium is not installed here")


class Browsed:
    """One tab."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._numbers = itertools.count(1)
        self.errors: list[str] = []
        """Exceptions of the page's own code."""

    async def call(self, method: str, **params: Any) -> dict[str, Any]:
        """One command and its result; events that come meanwhile are looked at."""
        number = next(self._numbers)
        await self._socket.send_json({"id": number, "method": method, "params": params})
        async with asyncio.timeout(PATIENCE_S):
            while True:
                said = await self._socket.receive_json()
                if said.get("method") == "Runtime.exceptionThrown":
                    details = said["params"]["exceptionDetails"]
                    self.errors.append(str(details.get("exception", details).get("description", details)))
                if said.get("id") == number:
                    assert "error" not in said, said["error"]
                    return said["result"]

    async def open(self, url: str, *, wide: int = 1280, dark: bool = False) -> None:
        """Open a page, in a window of this width."""
        await self.call("Runtime.enable")
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        await self.call("Emulation.setEmulatedMedia", features=[scheme])
        await self.call(
            "Emulation.setDeviceMetricsOverride", width=wide, height=900, deviceScaleFactor=1, mobile=wide < 600
        )
        await self.call("Page.navigate", url=url)

    async def value(self, expression: str) -> Any:
        """What a JavaScript expression is."""
        found = await self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    async def text(self, place: str = "main") -> str:
        """What is read at a place; empty if it is hidden or not there."""
        return await self.value(f"document.querySelector({place!r})?.innerText ?? ''")

    async def until(self, expression: str) -> None:
        """Wait until an expression is true."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                if await self.value(f"Boolean({expression})"):
                    return
                await asyncio.sleep(0.05)

    async def picture(self) -> bytes:
        """A picture of all of it."""
        size = (await self.call("Page.getLayoutMetrics"))["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        taken = await self.call("Page.captureScreenshot", clip=clip, captureBeyondViewport=True)
        return base64.b64decode(taken["data"])


@contextlib.asynccontextmanager
async def browser(directory: Path) -> AsyncIterator[Browsed]:
    """A Chromium with one empty tab, for as long as it is used."""
    assert PROGRAM is not None
    profile = directory / "chromium"
    process = await asyncio.create_subprocess_exec(
        PROGRAM, *FLAGS, f"--user-data-dir={profile}", "about:blank",
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
        env={**os.environ, "HOME": str(directory)},
    )  # fmt: skip
    try:
        port = await _port(profile / "DevToolsActivePort", process)
        async with aiohttp.ClientSession() as session:
            async with session.get(f"http://127.0.0.1:{port}/json/list") as answer:
                tabs = [one for one in await answer.json() if one["type"] == "page"]
            async with session.ws_connect(tabs[0]["webSocketDebuggerUrl"], max_msg_size=0) as socket:
                yield Browsed(socket)
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        await process.wait()


async def _port(file: Path, process: asyncio.subprocess.Process) -> int:
    """The port that it has chosen, once it has."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            assert process.returncode is None, "Chromium ended at its start"
            if said := _said(file):
                return int(said.split()[0])
            await asyncio.sleep(0.05)


def _said(file: Path) -> str:
    return file.read_text().strip() if file.exists() else ""
