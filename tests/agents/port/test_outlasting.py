"""A request is repeated until a broker answers it."""

from __future__ import annotations

import asyncio

import pytest

from headgate.agents.port.outlasting import BrokerAway, outlasted


def test_a_request_is_repeated_when_no_broker_answers_and_when_the_client_cancels_it():
    """A client that tears down its connection cancels what waits on it. The machine that has asked would wait for ever."""
    answers = [BrokerAway("nobody"), asyncio.CancelledError("torn down"), 7]

    async def ask() -> int:
        answer = answers.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    assert asyncio.run(outlasted(ask)) == 7


def test_a_cancellation_that_was_asked_for_ends_it():
    async def main() -> None:
        task = asyncio.get_running_loop().create_task(outlasted(asyncio.Event().wait))
        await asyncio.sleep(0)
        task.cancel()
        await task

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(main())
