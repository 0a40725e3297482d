"""Starts Kafka clients. Retries until a deadline while no broker answers, then raises a clear error.

aiokafka's `start()` raises at once if no broker answers, and that of the transactional producer waits without limit for a transaction that
is being completed. Neither suits a long-lived worker: a broker that restarts is not an error, and nothing may hang silently.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeVar

from aiokafka.errors import (
    GroupCoordinatorNotAvailableError,
    KafkaConnectionError,
    KafkaTimeoutError,
    NodeNotReadyError,
    NotCoordinatorForGroupError,
    RequestTimedOutError,
)

from ..cancellation import asked_for
from ..port.absence import brokers
from ..port.outlasting import BrokerAway
from .private import fetch_no_more, hang_up, quiet_metadata

CONNECT_S = 20.0
"""How long a command waits for a connection."""
AWAY = (
    KafkaConnectionError,
    KafkaTimeoutError,
    NodeNotReadyError,
    RequestTimedOutError,
    GroupCoordinatorNotAvailableError,
    NotCoordinatorForGroupError,
    ConnectionError,
    asyncio.TimeoutError,
)
"""What a client raises when a broker comes or goes. Any other error is an answer."""
FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 2.0


CHECK = "check the address given with -b, and that the broker is running"
_USER = "check the user, the password and sasl.mechanism: -X, --config-file, or [client] in headgate.toml"
HELPS = {
    "SaslAuthentication": _USER,
    "SaslMechanism": _USER,
    "IllegalSaslState": _USER,
    "CERTIFICATE_VERIFY_FAILED": "give the authority that signed the broker's certificate: -X ssl.truststore.location=FILE.pem",
    "WRONG_VERSION_NUMBER": "the broker does not use TLS on this port: check security.protocol and the port",
    " closed": "check whether the broker requires TLS or a user: -X security.protocol=…",
}
"""Advice for known texts in aiokafka's errors."""
_ADDRESS = re.compile(r"\('([^']+)', (\d+), [^)]*\)")


class Client(Protocol):
    """What aiokafka's consumers, producers and admin clients have in common."""

    async def start(self) -> None: ...


C = TypeVar("C", bound=Client)


async def started(make: Callable[[], C], what: str, *, deadline_s: float = 60.0, close: str = "stop") -> C:
    """A started client. A client whose start failed cannot be started again, so `make` creates a new one for each attempt."""
    loop = asyncio.get_running_loop()
    give_up = loop.time() + deadline_s
    pause = FIRST_PAUSE_S
    while True:
        client, heard = make(), Overheard()
        try:
            with quiet_metadata(), heard:  # quiet: otherwise asking for a topic would create it
                async with asyncio.timeout(max(1.0, give_up - loop.time())):  # see `retried`
                    await client.start()
            brokers.answered()
            return client
        except (*AWAY, asyncio.CancelledError) as error:
            await closed(getattr(client, close))
            if isinstance(error, asyncio.CancelledError) and asked_for():
                raise
            why = heard.last or plain(error)
            helps = next((helps for sign, helps in HELPS.items() if sign in why), "")
            brokers.missed(what, why, helps or CHECK)
            if loop.time() + pause > give_up:
                raise BrokerAway(
                    f"{what}: no broker {'accepted the connection' if helps else 'answered'} for {deadline_s:g} s ({why})",
                    remedy=helps or CHECK,
                ) from error
        except BaseException:
            await closed(getattr(client, close))
            raise
        await asyncio.sleep(pause)
        pause = min(LONGEST_PAUSE_S, pause * 2)


def plain(error: BaseException) -> str:
    """A client's error as text, without the socket addresses as Python prints them.

    >>> plain(KafkaConnectionError("Unable to bootstrap from [('b', 1, <AddressFamily.AF_INET: 2>)]"))
    'Unable to bootstrap from [b:1]'
    """
    text = _ADDRESS.sub(r"\1:\2", str(error))
    return text.removeprefix(f"{type(error).__name__}: ") or type(error).__name__


class Overheard(logging.Handler):
    """Keeps the last error that aiokafka logged while this is entered. Its exceptions give no reason (a wrong password is `unable to
    bootstrap`); its log does.
    """

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.last = ""

    def emit(self, record: logging.LogRecord) -> None:
        """Keep this line."""
        self.last = record.getMessage().removeprefix("Unable connect to ")

    def __enter__(self) -> None:
        logging.getLogger("aiokafka").addHandler(self)

    def __exit__(self, *_: object) -> None:
        logging.getLogger("aiokafka").removeHandler(self)


async def closed(stop: Callable[[], Awaitable[Any]], *, within_s: float = 5.0) -> None:
    """Close a client that may be broken. headgate closes all of aiokafka's clients in this way.

    Errors of the closing client are ignored, its cancellations too; only a cancellation of the caller is raised. It takes at most
    `within_s`, and afterwards the connections are closed in any case.
    """
    client = getattr(stop, "__self__", None)

    async def close() -> None:
        with contextlib.suppress(Exception):  # the client is discarded: its errors do not matter
            await fetch_no_more(client)
            await stop()

    closing = asyncio.get_running_loop().create_task(close(), name=f"closing a {type(client).__name__}")
    try:
        await asyncio.wait([closing], timeout=within_s)
    finally:
        closing.cancel()
        hang_up(client)


async def retried(ask: Callable[[], Awaitable[Any]], what: str, *, deadline_s: float = 60.0) -> Any:
    """Repeat a request until a broker answers. An error in the answer is raised at once.

    It is not bounded by `wait_for`: that of Python 3.11 loses a cancellation that comes at the same time as the answer, and whoever was
    cancelled goes on.
    """
    loop = asyncio.get_running_loop()
    give_up = loop.time() + deadline_s
    pause = FIRST_PAUSE_S
    while True:
        try:
            async with asyncio.timeout(max(1.0, give_up - loop.time())):
                answer = await ask()
            brokers.answered()
            return answer
        except (*AWAY, asyncio.CancelledError) as error:
            if isinstance(error, asyncio.CancelledError) and asked_for():
                raise  # otherwise a connection was closed during the request
            brokers.missed(what, plain(error), CHECK)
            if loop.time() + pause > give_up:
                raise BrokerAway(f"{what}: no broker answered for {deadline_s:g} s ({plain(error)})") from error
        await asyncio.sleep(pause)
        pause = min(LONGEST_PAUSE_S, pause * 2)
