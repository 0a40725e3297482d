"""Waiting for brokers: with a deadline where somebody waits for the answer, and without one where a worker runs."""

from __future__ import annotations

import logging

import pytest
from aiokafka.errors import KafkaConnectionError, TopicAuthorizationFailedError

from headgate.agents.connect import BrokerAway, outlasted, retried, started


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


class Client:
    """Is not let in; why, stands in aiokafka's log only."""

    def __init__(self, said: str) -> None:
        self.said = said

    async def start(self) -> None:
        if self.said:
            logging.getLogger("aiokafka").error('Unable connect to "%s:%s": %s', "b", 9092, self.said)
        raise KafkaConnectionError("Unable to bootstrap from [('b', 9092, <AddressFamily.AF_INET: 2>)]")

    async def stop(self) -> None:
        """Nothing is open."""


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("said", "what", "helps"),
    [
        ("[Error 58] SaslAuthenticationFailed: invalid credentials", "let us in", "the password"),
        ("[Error 33] UnsupportedSaslMechanismError: <…>", "let us in", "sasl.mechanism"),
        ("[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed", "let us in", "ssl.truststore.location"),
        ("KafkaConnectionError: Connection at b:9092 closed", "let us in", "security.protocol"),
        ("[Errno 111] Connect call failed", "answered", "the address"),
        ("", "answered", "the address"),
    ],
)
async def test_who_is_not_let_in_is_told_why(said: str, what: str, helps: str) -> None:
    """A wrong password is no wrong address, although aiokafka's error is the same."""
    with pytest.raises(BrokerAway) as away:
        await started(lambda: Client(said), "topics", deadline_s=0.0)
    assert f"topics: no broker {what} for 0 s (" in away.value.what
    assert said in away.value.what
    assert "AddressFamily" not in away.value.what
    assert helps in away.value.remedy
    assert logging.getLogger("aiokafka").handlers == []
