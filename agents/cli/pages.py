"""Requests to the pages of a worker. An unreachable worker is no error, because the job's streams contain most of the information.

With `web.token`, the pages are asked with it. A worker that refuses is reported as such (`refusal`), and not as one that cannot be reached.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import click

from .options import Target

ANSWER_S = 10.0
OK, UNAUTHORIZED = 200, 401
F = TypeVar("F", bound=Callable[..., Any])


def token_option(command: F) -> F:
    """Add `--web-token`; the function gets `web_token`."""
    return click.option(
        "--web-token",
        default=None,
        metavar="TOKEN",
        help="The token of the workers' pages.  [default: HEADGATE_WEB_TOKEN, or web.token in the settings file]",
    )(command)


async def page(to: Target, url: str, path: str, query: Mapping[str, str] | None = None) -> tuple[int, Any]:
    """Status and document of `/api/<path>` of the worker at this address; 401 and None if it wants another token, 0 and None if it cannot
    be reached.
    """
    import aiohttp  # most commands request no page, and this import takes as long as all others together

    token = str(to.configuration.value("web.token"))
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=ANSWER_S), headers=headers) as session,
            session.get(f"{url}/api/{path}", params=query) as response,
        ):
            if response.status == UNAUTHORIZED:
                return UNAUTHORIZED, None
            return response.status, await response.json()
    except (aiohttp.ClientError, TimeoutError, OSError, ValueError):
        return 0, None


def refusal(worker: str, status: int) -> str:
    """What to say of a worker that answered with this status; empty if it did not refuse.

    >>> refusal("w1", 0), refusal("w1", 401)
    ('', 'w1 rejects the token: give its web.token with HEADGATE_WEB_TOKEN, the settings file or --web-token')
    """
    if status != UNAUTHORIZED:
        return ""
    return f"{worker} rejects the token: give its web.token with HEADGATE_WEB_TOKEN, the settings file or --web-token"
