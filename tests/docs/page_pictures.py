"""Takes the pictures of the page for docs, of a job that runs: `python -m tests.docs.page_pictures http://127.0.0.1:8080`. A real Chromium
takes them, in light and dark."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path

from ..chromium import browser
from .pages import ROOT

WIDE = 1180


async def take(url: str, directory: Path, wide: int = WIDE) -> None:
    """Write both pictures."""
    with tempfile.TemporaryDirectory() as profile:
        async with browser(Path(profile)) as page:
            for scheme in ("light", "dark"):
                await page.open(url, wide=wide, dark=scheme == "dark")
                await page.until("document.querySelectorAll('#tasks tr').length > 1")
                (directory / f"page-{scheme}.png").write_bytes(await page.picture())


if __name__ == "__main__":
    asyncio.run(
        take(sys.argv[1], Path(sys.argv[2]) if len(sys.argv) > 2 else ROOT / "docs/pictures", *map(int, sys.argv[3:]))
    )
