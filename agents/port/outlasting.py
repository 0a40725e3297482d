"""Waiting for a broker that does not answer, without a limit."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from typing import TypeVar

from ...core.errors import EnvironmentFault

R = TypeVar("R")


class BrokerAway(EnvironmentFault):
    """No broker answered before the deadline."""


async def outlasted(ask: Callable[[], Awaitable[R]]) -> R:
    """Repeat a request until a broker answers. A missing broker does not end a running worker; `brokers` logs the warnings."""
    while True:
        with contextlib.suppress(BrokerAway):
            return await ask()
