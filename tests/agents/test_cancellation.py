"""What is awaited and is not ours."""

from __future__ import annotations

import ast
import asyncio
import types
from typing import Any

import pytest

from headgate.agents.cancellation import Unasked, answered, passes

from ..core.reading import trees


async def torn_down() -> None:
    """As a client library does whose connection has gone: its future is cancelled by itself."""
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    future.cancel()
    await future


def test_a_cancellation_that_no_one_asked_for_is_an_error() -> None:
    """A consumer whose close raises CancelledError would end whoever closes it without a word: its store would stay locked."""

    async def close() -> str:
        try:
            with answered("closing the consumer"):
                await torn_down()
        except Unasked as error:
            return f"{error.what} <- {type(error.__cause__).__name__}"
        return "nothing"

    assert asyncio.run(close()) == "closing the consumer was cancelled, but not by headgate <- CancelledError"


def test_a_cancellation_that_was_asked_for_goes_on() -> None:
    """A worker that stops must not take its own order for a failure."""

    async def life() -> bool:
        began = asyncio.Event()

        async def work() -> None:
            with answered("waiting"):
                began.set()
                await asyncio.Event().wait()

        task = asyncio.create_task(work())  # noqa: TID251 - the task is the test
        await began.wait()
        task.cancel()
        await asyncio.wait([task])
        return task.cancelled()

    assert asyncio.run(life())


def test_a_deadline_is_a_timeout_and_not_an_error_of_the_library() -> None:
    """`asyncio.timeout` around it works as ever."""

    async def late() -> None:
        async with asyncio.timeout(0.01):
            with answered("waiting"):
                await asyncio.Event().wait()

    with pytest.raises(TimeoutError):
        asyncio.run(late())


@pytest.mark.parametrize(
    ("error", "goes_on"),
    [
        (asyncio.CancelledError(), False),
        (KeyboardInterrupt(), False),
        (SystemExit(3), False),
        (GeneratorExit(), True),
        (BaseExceptionGroup("all", [KeyboardInterrupt()]), False),
        (ValueError(), False),
    ],
)
def test_what_user_code_raises_is_its_failure(error: BaseException, goes_on: bool) -> None:
    """Outside of a task nothing has been cancelled; only a coroutine that is closed must end as it is told."""
    assert passes(error) is goes_on


def test_a_coroutine_that_is_closed_is_told_from_a_function_that_raises_the_same() -> None:
    """Of the one nothing may be caught; the other is a failure of its record, and else ended its task without a word."""
    told: list[bool] = []

    @types.coroutine
    def paused() -> Any:
        yield

    async def body() -> None:
        try:
            await paused()
        except GeneratorExit as error:
            told.append(passes(error))
            raise

    closed = body()
    closed.send(None)
    closed.close()

    async def raises() -> None:
        told.append(passes(GeneratorExit()))

    asyncio.run(raises())
    assert told == [True, False]


@pytest.mark.source
def test_no_wait_loses_a_cancellation() -> None:
    """Python 3.11's `asyncio.wait_for` returns the result if that comes together with a cancellation, and whoever was cancelled goes on.
    `asyncio.timeout` does not."""
    found = [
        f"{path}:{node.lineno}"
        for path, tree in trees("core", "agents", "spark_bridge", "headgate", "examples")
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and ast.unparse(node) == "asyncio.wait_for"
    ]
    assert not found, "asyncio.timeout bounds a wait"
