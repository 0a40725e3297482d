"""Waiting for a broker that is away, for as long as it takes."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from typing import TypeVar

from ...core.errors import EnvironmentFault

R = TypeVar("R")


class BrokerAway(EnvironmentFault):
    """No broker answered until the deadline."""


async def outlasted(ask: Callable[[], Awaitable[R]]) -> R:
    """Ask again after every deadline, for as long as it takes: a broker that is away ends no worker that runs, and is said (`brokers`)."""
    while True:
        with contextlib.suppress(BrokerAway):
            return await ask()
