"""Waiting for brokers: with a deadline where somebody waits for the answer, and without one where a worker runs."""

from __future__ import annotations

import pytest
from aiokafka.errors import KafkaConnectionError, TopicAuthorizationFailedError

from headgate.agents.connect import BrokerAway, outlasted, retried


class Broker:
    """Answers from the n-th question on."""

    def __init__(self, silent: int, answer: int | Exception = 7) -> None:
        self.silent = silent
        self.answer = answer
        self.asked = 0

    async def ask(self) -> int:
        self.asked += 1
        if self.asked <= self.silent:
            raise KafkaConnectionError("nobody there")
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@pytest.mark.asyncio
async def test_a_question_has_a_deadline() -> None:
    """The error says what was asked, and for how long."""
    with pytest.raises(BrokerAway, match=r"ends of the log: no broker answered for 0.01 s"):
        await retried(Broker(1000).ask, "ends of the log", deadline_s=0.01)


@pytest.mark.asyncio
async def test_a_worker_that_runs_outlasts_its_brokers() -> None:
    """Three deadlines pass; then the broker is back, and nobody has died of it."""
    broker = Broker(3)
    assert await outlasted(lambda: retried(broker.ask, "partitions", deadline_s=0.01)) == 7
    assert broker.asked == 4


@pytest.mark.asyncio
async def test_a_refusal_is_no_absence() -> None:
    """What the broker says no to is an error at once."""
    with pytest.raises(TopicAuthorizationFailedError):
        await outlasted(lambda: retried(Broker(0, TopicAuthorizationFailedError()).ask, "partitions"))
