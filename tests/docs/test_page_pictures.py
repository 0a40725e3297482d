"""The pictures of the page are made by the build: a job that is made for them runs on a real broker, and a real Chromium looks at it."""

from __future__ import annotations

import asyncio
import struct
import uuid
from pathlib import Path
from typing import Any

import pytest

from tests.chromium import needs_chromium

from .page_pictures import HERE, WIDE, shop, take

PICTURES = ("page-light.png", "page-dark.png")


def size(picture: bytes) -> tuple[int, int]:
    """Its width and height in pixels."""
    assert picture[:8] == b"\x89PNG\r\n\x1a\n"
    return struct.unpack(">II", picture[16:24])


@needs_chromium
@pytest.mark.kafka
def test_pictures_of_the_page_are_taken_of_a_job_that_is_made_for_them(kafka: Any, tmp_path: Path) -> None:
    """In light and dark, as wide as those in docs. This waits for two points of the lines only: ten take most of a minute."""

    async def made() -> None:
        async with shop(kafka.bootstrap, tmp_path, suffix=f"-{uuid.uuid4().hex[:6]}", samples=2) as url:
            await take(url, tmp_path)

    asyncio.run(made())
    light, dark = ((tmp_path / name).read_bytes() for name in PICTURES)
    assert light != dark
    assert [size(one)[0] for one in (light, dark)] == [WIDE, WIDE]
    assert min(size(one)[1] for one in (light, dark)) > 1000


def test_the_pictures_in_docs_are_of_this_kind() -> None:
    """As wide as `make pictures` makes them, and not so large that a page of docs would be slow."""
    for name in PICTURES:
        picture = (HERE / name).read_bytes()
        assert size(picture)[0] == WIDE
        assert len(picture) < 400_000
