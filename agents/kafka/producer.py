"""The port's producer over Kafka: an aiokafka producer, corrected (`private`), whose errors are translated.

Promises: the transactional id is initialised exactly once; a discarded producer leaves no connection and no task behind. A cancellation
that only aiokafka wanted is one of the port's errors, like any other failure of the client.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import Any

from aiokafka import AIOKafkaProducer
from aiokafka.errors import (
    BrokerResponseError,
    IllegalOperation,
    InvalidTransactionTimeout,
    KafkaConnectionError,
    KafkaError,
    ProducerFenced,
    TopicAuthorizationFailedError,
    TransactionalIdAuthorizationFailed,
)

from ...core.errors import EnvironmentFault
from ...core.graph.rights import transactional_prefix
from ...core.names import StreamPartition, TransactionalId
from ..cancellation import Unasked, answered
from ..port.errors import OF_THE_PRODUCER, Cause, Fenced, NotSent, OutboxError, OutcomeUnknown, ProducerBroken
from ..port.port import BatchInWork
from .private import (
    cause_of_death,
    correct_producer,
    discard,
    is_dead,
    knows_topic,
    lacks_partition,
    leaderless,
    look_again,
    quiet_metadata,
    transaction_error,
)
from .record_batch import Builder
from .refusal import refusal_of
from .settings import ClientSettings

RETRY_S = 0.25
ABORT_S = 3.0
GROWN_LOOKS, GROWN_S = 5, 0.2
"""How often, and how long after each other, it is asked whether a topic has a partition that it did not have before."""


class KafkaProducer:
    """Wraps one `AIOKafkaProducer`."""

    def __init__(
        self,
        client: ClientSettings,
        transactional_id: str | None,
        *,
        name: str,
        compression: str | None,
        batch_bytes: int,
        request_timeout_ms: int,
        transaction_timeout_ms: int,
        idempotent: bool,
    ) -> None:
        self._client = client
        self._id = transactional_id
        self._compression = compression
        self._options: dict[str, Any] = {"client_id": name, "request_timeout_ms": request_timeout_ms}
        if transactional_id is not None:
            self._options["transaction_timeout_ms"] = transaction_timeout_ms
        self._batch_bytes = batch_bytes
        self._idempotent = idempotent
        self.producer: AIOKafkaProducer | None = None

    def batch(self, limit: int) -> Builder:
        """See `port`."""
        return Builder(limit, self._compression, transactional=self._id is not None)

    # ------------------------------------------------------------------------------------------------- before and after

    async def start(self, *, deadline_s: float) -> None:
        """See `port`."""
        until = time.monotonic() + deadline_s
        while True:
            producer = self._make()
            try:
                async with asyncio.timeout(max(0.1, until - time.monotonic())):
                    with answered("connecting"), quiet_metadata():
                        # connecting may be repeated; what follows initialises the transactional id and may not
                        await producer.client.bootstrap()
                        break
            except (KafkaConnectionError, TimeoutError, Unasked) as error:
                await discard(producer)
                if time.monotonic() + RETRY_S >= until:
                    raise EnvironmentFault(
                        f"no broker at {self._client.bootstrap} answered for {deadline_s:g} s: {error or 'timeout'}",
                        remedy="check -b, and that the brokers are running",
                    ) from error
                await asyncio.sleep(RETRY_S)
            except BaseException:
                await discard(producer)
                raise
        try:
            async with asyncio.timeout(max(1.0, until - time.monotonic())):
                with answered("the producer's start"), quiet_metadata():
                    await producer.start()
        except TimeoutError as error:
            await discard(producer)
            raise ProducerBroken(
                f"the transactional id {self._id} could not be initialised in {deadline_s:g} s: a transaction of it is still being "
                "completed, or its coordinator has no leader",
                remedy="none needed: a new incarnation tries again; if this persists, check the broker's log",
            ) from error
        except BaseException as error:
            await discard(producer)
            if isinstance(error, KafkaError | Unasked):
                raise ProducerBroken(f"the producer could not start: {error!r}", remedy=self._remedy(error)) from error
            raise
        self.producer = producer

    def _remedy(self, error: Exception) -> str:
        """What helps if the brokers do not let it start."""
        if isinstance(error, InvalidTransactionTimeout):
            return "lower transaction.timeout, or raise transaction.max.timeout.ms of the brokers: they allow no more"
        if not isinstance(error, TransactionalIdAuthorizationFailed) or self._id is None:
            return ""
        known = TransactionalId.parse(self._id)
        ids = self._id if known is None else transactional_prefix(known.job)
        return f"grant WRITE on the transactional ids that begin with {ids} (`headgate topics plan MODULE:app --acls`)"

    def _make(self) -> AIOKafkaProducer:
        guarantee: dict[str, Any] = (
            {"transactional_id": self._id} if self._id is not None else {"enable_idempotence": self._idempotent}
        )
        settings = self._client.producer(acks="all", **guarantee)
        return correct_producer(
            AIOKafkaProducer(
                **{
                    **self._options,
                    **settings,
                    "max_batch_size": self._batch_bytes,
                    "compression_type": self._compression,
                }
            )
        )

    async def discard(self) -> None:
        """See `port`."""
        producer, self.producer = self.producer, None
        if producer is not None:
            await discard(producer)

    # ---------------------------------------------------------------------------------------------------- transactions

    def _live(self) -> AIOKafkaProducer:
        if self.producer is None:
            raise ProducerBroken("the producer was discarded, or was never started")
        return self.producer

    async def begin(self) -> None:
        """See `port`."""
        producer = self._live()
        try:
            with answered("the beginning of a transaction"):
                await producer.begin_transaction()
        except (KafkaError, AssertionError, Unasked) as error:
            death = cause_of_death(producer)
            if isinstance(death or error, ProducerFenced):
                raise Fenced(str(death or error)) from error
            raise ProducerBroken(f"cannot begin a transaction: {error!r}") from error

    async def send(self, at: StreamPartition, batch: BatchInWork) -> asyncio.Future[int]:
        """See `port`."""
        made: Any = batch
        made.batch.close()
        producer = self._live()
        if lacks_partition(producer, at):
            await self._look_for(producer, at)
        try:
            with answered("a send"):
                sent: Any = await producer.send_batch(made.batch, at.stream, partition=at.partition)
        except (KafkaError, AssertionError, IllegalOperation, Unasked) as error:
            # IllegalOperation: the transaction has failed meanwhile
            raise NotSent(f"{at}: {error!r}") from error
        answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        def came(done: asyncio.Future[Any]) -> None:
            cancelled = ProducerBroken(f"what was sent to {at} was cancelled") if done.cancelled() else None
            error = cancelled or done.exception()  # asked for in any case: an error that no one asks for is logged
            if answer.done():
                return
            if error is None:
                answer.set_result(-1 if done.result() is None else done.result().offset)
            else:
                answer.set_exception(error)
                answer.exception()  # the caller may have given up

        sent.add_done_callback(came)
        return answer

    async def _look_for(self, producer: AIOKafkaProducer, at: StreamPartition) -> None:
        """The topic may have more partitions since the metadata was read, as the log of a job that gets more tasks."""
        for _ in range(GROWN_LOOKS):
            with contextlib.suppress(KafkaError, Unasked), quiet_metadata(), answered("metadata"):
                await producer.client.force_metadata_update()
            if not lacks_partition(producer, at):
                return
            await asyncio.sleep(GROWN_S)

    async def commit(self) -> None:
        """See `port`."""
        try:
            with answered("a commit"):
                await self._live().commit_transaction()
        except ProducerFenced as error:
            raise Fenced("at the commit", committed=None) from error
        except (KafkaError, AssertionError, Unasked) as error:
            raise OutcomeUnknown(repr(error)) from error

    async def abort(self) -> None:
        """See `port`."""
        producer = self._live()
        if is_dead(producer):
            return
        try:
            async with asyncio.timeout(ABORT_S):
                with answered("an abort"):
                    await producer.abort_transaction()
        except (KafkaError, AssertionError, TimeoutError, Unasked) as error:
            raise ProducerBroken(f"the last transaction was not aborted: {error!r}") from error

    # ------------------------------------------------------------------------------------------------------- what is known

    def explain(self, error: BaseException, at: StreamPartition) -> Cause:
        """See `port`. aiokafka reports errors in three places: in what it raises, in how its sender ended, and at the next commit."""
        producer = self.producer
        refusal = None
        if isinstance(error, NotSent) and error.__cause__ is not None:
            error = error.__cause__
        if producer is not None:
            refused = transaction_error(producer)
            if isinstance(refused, TopicAuthorizationFailedError):
                named = refused.args[0] if refused.args else ()
                topics = {named} if isinstance(named, str) else set(named)
                return Cause(_text(refused), refused.errno, forbidden=frozenset(topics) or frozenset({at.stream}))
            if isinstance(error, AssertionError) or is_dead(producer):
                error = cause_of_death(producer) or error
            refusal = refusal_of(producer, at)
        if isinstance(error, OutboxError):
            return Cause(str(error), error=error)
        code = error.errno if isinstance(error, BrokerResponseError) else 0
        elsewhere = isinstance(error, AssertionError) and "partition" in str(error).lower()
        said = repr(error) if not code or code in OF_THE_PRODUCER else _text(error)
        return Cause(said, code, fenced=isinstance(error, ProducerFenced), elsewhere=elsewhere, refusal=refusal)

    def knows(self, topic: str) -> bool:
        """See `port`."""
        return self.producer is None or knows_topic(self.producer, topic)

    def leaderless(self, at: StreamPartition) -> bool:
        """See `port`."""
        return self.producer is not None and leaderless(self.producer.client, at)

    def look_again(self) -> None:
        """See `port`."""
        if self.producer is not None:
            look_again(self.producer)


def _text(error: BaseException) -> str:
    return str(error) or type(error).__name__
