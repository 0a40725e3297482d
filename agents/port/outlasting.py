"""Waiting for a broker that does not answer, without a limit."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from typing import TypeVar

from ...core.errors import EnvironmentFault
from ..cancellation import Unasked, answered

R = TypeVar("R")


class BrokerAway(EnvironmentFault):
    """No broker answered before the deadline."""


async def outlasted(ask: Callable[[], Awaitable[R]]) -> R:
    """Repeat a request until a broker answers. A missing broker does not end a running worker; `brokers` logs the warnings. Neither does a
    client that cancels the request by itself: who waits for the answer would wait for ever.
    """
    while True:
        with contextlib.suppress(BrokerAway, Unasked), answered("a request to the broker"):
            return await ask()
