"""What the page of a worker answers to a command; a worker that cannot be reached is no error, for the streams know most of it, too."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

ANSWER_S = 10.0


async def page(url: str, path: str, query: Mapping[str, str] | None = None) -> tuple[int, Any]:
    """Status and document of `/api/<path>` of the worker at this address; 0 and None if it cannot be reached."""
    import aiohttp  # most commands ask no page, and it takes as long as all else that they import

    try:
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=ANSWER_S)) as session,
            session.get(f"{url}/api/{path}", params=query) as response,
        ):
            return response.status, await response.json()
    except (aiohttp.ClientError, TimeoutError, OSError, ValueError):
        return 0, None
