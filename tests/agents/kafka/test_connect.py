"""Waiting for brokers: with a deadline where somebody waits for the answer, and without one where a worker runs."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from aiokafka.errors import KafkaConnectionError, TopicAuthorizationFailedError

import headgate.agents
from headgate.agents.kafka.connect import closed, retried, started
from headgate.agents.port.outlasting import BrokerAway, outlasted


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
    """Three deadlines pass; then the broker answers again, and nobody has died of it."""
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
        ("[Error 58] SaslAuthenticationFailed: invalid credentials", "accepted the connection", "the password"),
        ("[Error 33] UnsupportedSaslMechanismError: <…>", "accepted the connection", "sasl.mechanism"),
        (
            "[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed",
            "accepted the connection",
            "ssl.truststore.location",
        ),
        ("KafkaConnectionError: Connection at b:9092 closed", "accepted the connection", "security.protocol"),
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


class Torn:
    """A connection is torn down under whoever asks, and that cancels what he awaits."""

    def __init__(self) -> None:
        self.asked = 0

    async def stop(self) -> None:
        self.asked += 1
        raise asyncio.CancelledError

    start = stop


@pytest.mark.asyncio
async def test_a_cancellation_out_of_a_client_ends_no_one_else() -> None:
    """Closing is done whatever happens; a start and a question are tried again."""
    torn = Torn()
    await closed(torn.stop)
    with pytest.raises(BrokerAway):
        await started(lambda: torn, "topics", deadline_s=0.0)
    with pytest.raises(BrokerAway):
        await retried(torn.stop, "topics", deadline_s=0.0)
    assert torn.asked == 4
    assert asyncio.current_task().cancelling() == 0


@pytest.mark.asyncio
async def test_closing_does_not_hang_and_can_be_called_off() -> None:
    """A client that swallows its cancellation is left behind; whoever is cancelled while he closes is cancelled."""
    never, left = asyncio.Event(), asyncio.Event()

    async def stubborn() -> None:
        while not left.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await never.wait()

    await closed(stubborn, within_s=0.01)
    closing = asyncio.get_running_loop().create_task(closed(stubborn))
    await asyncio.sleep(0)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    left.set()
    never.set()


def test_clients_are_closed_in_one_way_only() -> None:
    """What aiokafka's own `stop()` raises and leaves open while a broker is away is dealt with in `closed`, and nowhere else."""
    root = Path(headgate.agents.__file__).parent
    made = re.compile(r"(\w+)(?:: [^=\n]+)? = await started\(")
    wrong = []
    for path in root.rglob("*.py"):
        text = path.read_text()
        for name in set(made.findall(text)):
            wrong += [f"{path.name}: {name}" for _ in re.finditer(rf"await (self\.)?{name}\.(stop|close)\(\)", text)]
    assert wrong == []


@pytest.mark.asyncio
async def test_a_cancellation_is_not_lost_to_an_answer_that_comes_at_the_same_time() -> None:
    """However many turns of the loop lie between the two: a call that has not ended when it is cancelled is cancelled."""
    caught = 0
    for turns in range(4):
        for begin in (lambda ask: retried(ask, "ends"), lambda ask: started(lambda: Slow(ask), "ends")):
            answer = asyncio.get_running_loop().create_future()

            async def ask(answer: asyncio.Future[int] = answer) -> int:
                return await answer

            asked = asyncio.get_running_loop().create_task(begin(ask))
            for _ in range(3):
                await asyncio.sleep(0)
            answer.set_result(7)
            for _ in range(turns):
                await asyncio.sleep(0)
            if asked.cancel():
                with pytest.raises(asyncio.CancelledError):
                    await asked
                caught += 1
    assert caught


class Slow:
    """A client whose start takes as long as a question."""

    def __init__(self, ask: Callable[[], Awaitable[int]]) -> None:
        self.start = ask

    async def stop(self) -> None: ...
