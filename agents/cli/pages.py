"""Requests to the pages of a worker. An unreachable worker is no error, because the job's streams contain most of the information."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

ANSWER_S = 10.0


async def page(url: str, path: str, query: Mapping[str, str] | None = None) -> tuple[int, Any]:
    """Status and document of `/api/<path>` of the worker at this address; 0 and None if it cannot be reached."""
    import aiohttp  # most commands request no page, and this import takes as long as all others together

    try:
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=ANSWER_S)) as session,
            session.get(f"{url}/api/{path}", params=query) as response,
        ):
            return response.status, await response.json()
    except (aiohttp.ClientError, TimeoutError, OSError, ValueError):
        return 0, None
