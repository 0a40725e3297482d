"""Outbox: what tasks write, whole chunks at a time, in transactions that one coroutine owns.

What it decides: which transaction a chunk belongs to, when a batch leaves, and what is known when something fails.

Promises:

- A chunk is all or nothing: what a task emits stays in its own buffer until `complete()`; then all of it joins the open
  transaction at once, without waiting. `drop()` leaves no trace.
- A commit happens only when every send has returned and every returned future has succeeded; `seal` is called once, at the
  moment that divides two transactions, and chunks that complete meanwhile belong to the next.
- What its topic would not take (too large, too new, without a key) is never sent, as far as the topic's settings tell: it is refused
  when it is emitted, with the index of the record.
- Every failure is one of `outbox_errors`, says whether the transaction counts, and ends this outbox. A target that fails is
  named together with the tasks that wrote to it; a record that a broker refuses, together with the task that wrote it.
- Without a transactional id it is the plain second producer of `at_least_once`: batches leave at once, `commit` is a flush.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import structlog
from aiokafka import AIOKafkaProducer
from aiokafka.errors import (
    IllegalOperation,
    KafkaConnectionError,
    KafkaError,
    ProducerFenced,
    TopicAuthorizationFailedError,
)

from ..core.errors import EnvironmentFault, cause_for
from ..core.names import StreamPartition
from .awaiting import passes
from .clients import ClientSettings
from .outbox_buffer import DEFAULT_LIMIT, Joining, LogWrite, Receipt, Sent, TaskBuffer, Transaction
from .outbox_errors import Fenced, OutboxError, OutcomeUnknown, ProducerBroken, TargetFailed, classify
from .rawbatch import Builder
from .rawkafka import (
    cause_of_death,
    correct_producer,
    discard,
    is_dead,
    knows_topic,
    leaderless,
    look_again,
    quiet_metadata,
    transaction_error,
)
from .rawrefusal import refusal_of

__all__ = ["DEFAULT_LIMIT", "LogWrite", "Outbox", "Receipt", "TaskBuffer"]

log = structlog.get_logger("headgate.outbox")
RETRY_S = 0.25
GONE_AFTER_S = 10.0
LEADERLESS_AFTER_S = 20.0
"""A partition that has no leader for so long is not waited for: a broker that restarts is back sooner, mostly."""
LOOK_AFTER_S = 2.0
"""A send that takes longer has the metadata asked for, about once a second."""


@dataclass(slots=True)
class _Request:
    seal: Callable[[], Iterable[LogWrite]]
    before: Callable[[], Awaitable[object]] | None
    answer: asyncio.Future[Receipt]


class Outbox(Joining):
    """One producer, and the transactions of a worker's tasks. `run()` is the coroutine that owns it."""

    def __init__(
        self,
        client: ClientSettings,
        transactional_id: str | None,
        *,
        name: str = "headgate-outbox",
        compression: str | None = None,
        batch_bytes: int = 1 << 20,
        max_pending_bytes: int = 64 << 20,
        transaction_timeout_ms: int = 60_000,
        request_timeout_ms: int = 120_000,
        commit_deadline_s: float = 60.0,
    ) -> None:
        self._wake = asyncio.Event()
        super().__init__(
            transactional=transactional_id is not None,
            compression=compression,
            batch_bytes=batch_bytes,
            max_pending_bytes=max_pending_bytes,
            wake=self._wake.set,
        )
        self._client = client
        self._id = transactional_id
        self._name = name
        self._timeouts = {"request_timeout_ms": request_timeout_ms}
        if transactional_id is not None:
            self._timeouts["transaction_timeout_ms"] = transaction_timeout_ms
        patience_ms = (
            request_timeout_ms if transactional_id is None else min(request_timeout_ms, transaction_timeout_ms * 3 / 4)
        )
        self._send_deadline_s = (
            patience_ms / 1000
        )  # sooner than the broker aborts it, or nobody would know whose fault it was
        self._commit_deadline_s = commit_deadline_s
        self._producer: AIOKafkaProducer | None = None
        self._requests: list[_Request] = []
        self._stopping = False
        self._in_transaction = False
        self._dividing = self._open
        """The transaction that is sent and confirmed now."""
        self._wrote: dict[StreamPartition, set[str]] = {}
        """Who has written where in transactions that are over."""
        self.failed: OutboxError | None = None

    # ------------------------------------------------------------------------------------------------- before and after

    async def start(self, *, deadline_s: float = 60.0) -> None:
        """Connect and initialise the transactional id, exactly once. While no broker answers it tries again, until the deadline."""
        until = time.monotonic() + deadline_s
        while True:
            producer = self._make()
            try:
                async with asyncio.timeout(max(0.1, until - time.monotonic())):
                    with quiet_metadata():
                        # the connection may be tried again; what comes behind it initialises the id, and may not
                        await producer.client.bootstrap()
                        break
            except (KafkaConnectionError, TimeoutError) as error:
                await discard(producer)
                if time.monotonic() + RETRY_S >= until:
                    raise EnvironmentFault(
                        f"no broker at {self._client.bootstrap} answered for {deadline_s:g} s: {error or 'timeout'}",
                        remedy="check -b and that the brokers run",
                    ) from error
                await asyncio.sleep(RETRY_S)
            except BaseException:
                await discard(producer)
                raise
        try:
            async with asyncio.timeout(max(1.0, until - time.monotonic())):
                with quiet_metadata():
                    await producer.start()
        except TimeoutError as error:
            await discard(producer)
            raise ProducerBroken(
                f"the transactional id {self._id} could not be initialised in {deadline_s:g} s: a transaction of it is still being "
                "completed, or its coordinator has no leader",
                remedy="none needed: a new incarnation tries again; see the broker's log when it stays",
            ) from error
        except BaseException as error:
            await discard(producer)
            if isinstance(error, KafkaError):
                raise ProducerBroken(f"the producer could not start: {error!r}") from error
            raise
        self._producer = producer

    def _make(self) -> AIOKafkaProducer:
        guarantee: dict[str, Any] = (
            {"transactional_id": self._id} if self._id is not None else {"enable_idempotence": False}
        )
        settings = self._client.producer(acks="all", **guarantee)
        return correct_producer(
            AIOKafkaProducer(
                **{
                    "client_id": self._name,
                    **self._timeouts,
                    **settings,
                    "max_batch_size": self._batch_bytes,
                    "compression_type": self._compression,
                }
            )
        )

    async def stop(self) -> None:
        """End `run()`. What was not committed is aborted, if that can be done at once; else whoever fences this id does it."""
        self._stopping = True
        self._wake.set()
        producer, self._producer = self._producer, None
        if producer is None:
            return
        if self._in_transaction and not isinstance(self.failed, OutcomeUnknown | Fenced) and not is_dead(producer):
            try:
                async with asyncio.timeout(3.0):
                    await producer.abort_transaction()
            except (KafkaError, AssertionError, TimeoutError) as error:
                self._fail(ProducerBroken(f"the last transaction was not aborted: {error!r}"))
        await discard(producer)
        for sent in (*self._dividing.sent, *self._open.sent):
            sent.future.add_done_callback(_read)

    # ----------------------------------------------------------------------------------------------------- joining

    @property
    def writers(self) -> frozenset[str]:
        """The tasks of which something stands in the open transaction."""
        return frozenset(task for tasks in self._open.writers.values() for task in tasks)

    async def room(self) -> None:
        """Wait while too much is unsent. Raises when the producer is dead."""
        if self.failed is None:
            await self._roomy.wait()
        if self.failed is not None:
            raise self.failed

    # ----------------------------------------------------------------------------------------------------- the owner

    async def commit(
        self,
        seal: Callable[[], Iterable[LogWrite]] = tuple,
        *,
        before: Callable[[], Awaitable[object]] | None = None,
    ) -> Receipt:
        """Commit what is complete. `seal` adds each task's table changes and checkpoint, at the moment of division.

        `before` is awaited between that moment and the commit: what it raises keeps the transaction from being committed.
        """
        if self.failed is not None:
            raise self.failed
        request = _Request(seal, before, asyncio.get_running_loop().create_future())
        self._requests.append(request)
        self._wake.set()
        return await asyncio.shield(request.answer)

    async def run(self) -> None:
        """Owns the producer until `stop()`; raises the `OutboxError` that ended it."""
        try:
            while not self._stopping:
                await self._wake.wait()
                self._wake.clear()
                if self._stopping:
                    return
                if self._requests:
                    await self._divide()
                else:
                    await self._send(self._open, everything=self._id is None)
        except OutboxError as error:
            self._fail(error)
            raise
        except BaseException as error:
            if self._stopping and not passes(error):  # the producer was taken away in the middle of a send
                self._fail(ProducerBroken("the outbox was stopped"))
                return
            said = f"the outbox failed in the middle: {error!r}"
            self._fail(OutcomeUnknown(said))
            if passes(error):
                raise
            log.exception("the outbox failed in the middle")  # a library that is wrong costs a life, not the worker
            raise OutcomeUnknown(said) from error
        finally:
            if self.failed is None:
                self._fail(ProducerBroken("the outbox is stopped"))

    def _fail(self, error: OutboxError) -> None:
        self.failed = self.failed or error
        requests, self._requests = self._requests, []
        for request in requests:
            if not request.answer.done():
                request.answer.set_exception(error)
                request.answer.exception()  # the caller may have been cancelled
        self._roomy.set()

    async def _divide(self) -> None:
        started = time.monotonic()
        requests, transaction = list(self._requests), self._open
        for request in requests:
            for write in request.seal():
                self._join(write.task, write.at, write.keys, write.values, write.timestamps, None)
        self._open, self._dividing = Transaction(), transaction
        await self._send(transaction, everything=True)
        positions = await self._confirm(transaction)
        for request in requests:
            if request.before is not None:
                await request.before()
        if self._id is not None and transaction.begun:
            await self._commit_transaction()
        for target, writers in transaction.writers.items():
            self._wrote.setdefault(target, set()).update(writers)
        tasks = frozenset(task for writers in transaction.writers.values() for task in writers)
        receipt = Receipt(positions, tasks, transaction.records, transaction.size, time.monotonic() - started)
        for request in requests:
            self._requests.remove(request)
            if not request.answer.done():
                request.answer.set_result(receipt)
        if self._requests or self._open.ready:
            self._wake.set()

    async def _send(self, transaction: Transaction, *, everything: bool) -> None:
        """Hand over what is ready; every `send_batch` has returned when this does."""
        producer = self._producer
        if producer is None:
            raise ProducerBroken("the outbox is not started")
        if everything:
            transaction.ready.extend(transaction.builders.items())
            transaction.builders = {}
        if not transaction.ready:
            return
        if self._id is not None and not transaction.begun:
            try:
                await producer.begin_transaction()
            except (KafkaError, AssertionError) as error:
                broken = self._broken(error)
                raise broken from cause_for(broken, error)
            transaction.begun = self._in_transaction = True
        while transaction.ready:
            if self._requests and transaction is self._open:
                return  # tasks may fill it as fast as it is emptied: a commit must not wait for a lull
            wave = transaction.wave()
            sizes = [builder.size for _, builder in wave]  # before they are compressed
            handing = [self._hand_over(producer, target, builder, transaction) for target, builder in wave]
            if len(handing) == 1:
                await handing[0]
            else:  # one request takes a batch of each partition, so none may wait behind another's
                for answer in await asyncio.gather(*handing, return_exceptions=True):
                    if answer is not None:
                        raise answer
            self.pending_bytes -= sum(sizes)
            if self.pending_bytes <= self._max_pending:
                self._roomy.set()
        if self._id is None and len(transaction.sent) > 64:
            transaction.sent = [s for s in transaction.sent if not self._settled(s, transaction)]

    async def _hand_over(
        self, producer: AIOKafkaProducer, target: StreamPartition, builder: Builder, transaction: Transaction
    ) -> None:
        """`send_batch`, which waits without a word for a topic that is gone, and for room behind a partition without a leader."""
        began = time.monotonic()
        builder.batch.close()
        while True:
            try:
                async with asyncio.timeout(GONE_AFTER_S):
                    future = await producer.send_batch(builder.batch, target.stream, partition=target.partition)
                    transaction.sent.append(Sent(target, builder.count, future, builder.parts))
                    return
            except TimeoutError:
                if not knows_topic(producer, target.stream):
                    everybody = self._all_writers({target.stream}, transaction)
                    raise TargetFailed(target, everybody, "the topic does not exist") from None
                if time.monotonic() - began > LEADERLESS_AFTER_S and leaderless(producer.client, target):
                    raise self._leaderless(target, transaction) from None
                if time.monotonic() - began > self._send_deadline_s:
                    writers = self._writers(target, transaction)
                    raise TargetFailed(target, writers, f"nothing was taken for {self._send_deadline_s:g} s") from None
            except (
                KafkaError,
                AssertionError,
                IllegalOperation,
            ) as error:  # the last: the transaction has failed meanwhile
                found = self._classified(error, target, transaction, builder.parts)
                raise found from cause_for(found, error)

    def _settled(self, sent: Sent, transaction: Transaction) -> bool:
        if sent.future.done() and (error := sent.future.exception()) is not None:
            raise self._classified(error, sent.target, transaction, sent.parts)
        return sent.future.done()

    async def _confirm(self, transaction: Transaction) -> dict[StreamPartition, int]:
        """Every future has succeeded, or this raises what failed and where."""
        started = time.monotonic()
        missing: dict[str | StreamPartition, float] = {}
        pending = {sent.future for sent in transaction.sent if not sent.future.done()}
        while pending:
            done, pending = await asyncio.wait(pending, timeout=1.0, return_when=asyncio.FIRST_EXCEPTION)
            if any(future.exception() is not None for future in done):
                break
            self._look_for_gone(transaction, missing, time.monotonic() - started)
        positions: dict[StreamPartition, int] = {}
        for sent in transaction.sent:
            if sent.future.done() and (error := sent.future.exception()) is not None:
                found = self._classified(error, sent.target, transaction, sent.parts)
                raise found from cause_for(found, error)
        for sent in transaction.sent:
            written = sent.future.result()
            if written is not None and written.offset >= 0:  # below zero: it was there already, nobody knows where
                positions[sent.target] = written.offset + sent.count
        return positions

    def _look_for_gone(
        self, transaction: Transaction, missing: dict[str | StreamPartition, float], waited_s: float
    ) -> None:
        producer = self._producer
        if producer is None:
            raise ProducerBroken("the outbox was stopped")
        waiting = [sent.target for sent in transaction.sent if not sent.future.done()]
        if waiting and waited_s > LOOK_AFTER_S:
            look_again(producer)
        for target in waiting:
            if not knows_topic(producer, target.stream):
                if waited_s - missing.setdefault(target.stream, waited_s) > GONE_AFTER_S:
                    everybody = self._all_writers({target.stream}, transaction)
                    raise TargetFailed(target, everybody, "the topic does not exist any more")
                continue
            missing.pop(target.stream, None)
            if not leaderless(producer.client, target):
                missing.pop(target, None)
            elif waited_s - missing.setdefault(target, waited_s) > LEADERLESS_AFTER_S:
                raise self._leaderless(target, transaction)
        if waiting and waited_s > self._send_deadline_s:
            if len(waiting) < len(transaction.sent):
                raise TargetFailed(
                    waiting[0], self._writers(waiting[0], transaction), f"no acknowledgement for {waited_s:.0f} s"
                )
            raise ProducerBroken(f"no broker acknowledged anything for {waited_s:.0f} s", remedy="check the brokers")

    async def _commit_transaction(self) -> None:
        producer = self._producer
        if producer is None:
            raise ProducerBroken("the outbox was stopped")
        try:
            async with asyncio.timeout(self._commit_deadline_s):
                await producer.commit_transaction()
            self._in_transaction = False
        except TimeoutError as error:
            raise OutcomeUnknown(f"no answer for {self._commit_deadline_s:g} s") from error
        except ProducerFenced as error:
            raise Fenced("at the commit", committed=None) from error
        except (KafkaError, AssertionError) as error:
            raise OutcomeUnknown(repr(error)) from error

    def _writers(self, target: StreamPartition, transaction: Transaction) -> frozenset[str]:
        """Whoever wrote to this partition, also since the division, or before: the next time each would end a producer of its own."""
        found = [one.get(target, ()) for one in (transaction.writers, self._open.writers, self._wrote)]
        return frozenset(task for tasks in found for task in tasks)

    def _leaderless(self, target: StreamPartition, transaction: Transaction) -> TargetFailed:
        return TargetFailed(target, self._writers(target, transaction), "it has no leader")

    def _all_writers(self, topics: set[str], transaction: Transaction) -> frozenset[str]:
        """The same for all partitions of these topics."""
        known = {*transaction.writers, *self._open.writers, *self._wrote}
        return frozenset(task for at in known if at.stream in topics for task in self._writers(at, transaction))

    def _classified(
        self, error: BaseException, target: StreamPartition, transaction: Transaction, parts: Sequence[tuple[int, str]]
    ) -> OutboxError:
        producer, refusal = self._producer, None
        if producer is not None:
            refused = transaction_error(producer)
            if isinstance(refused, TopicAuthorizationFailedError):
                return self._forbidden(refused, target, transaction)
            if isinstance(error, AssertionError) or is_dead(producer):
                error = cause_of_death(producer) or error
            refusal = refusal_of(producer, target)
        return classify(error, target, self._writers(target, transaction), refusal=refusal, parts=parts)

    def _forbidden(
        self, refused: TopicAuthorizationFailedError, target: StreamPartition, transaction: Transaction
    ) -> TargetFailed:
        """A right is missing: the broker took none of the partitions, but says for which topics it was."""
        named = refused.args[0] if refused.args else ()
        topics = {named} if isinstance(named, str) else set(named)
        guilty = [one for one in transaction.writers if one.stream in topics] or [target]
        return TargetFailed(guilty[0], self._all_writers({one.stream for one in guilty}, transaction), refused)

    def _broken(self, error: BaseException) -> OutboxError:
        death = cause_of_death(self._producer) if self._producer is not None else None
        if isinstance(death or error, ProducerFenced):
            return Fenced(str(death or error))
        return ProducerBroken(f"no transaction can be begun: {error!r}")


def _read(future: asyncio.Future[Any]) -> None:
    """A batch of a producer that is thrown away: why that was is said, and nobody asks what has become of each batch."""
    if not future.cancelled():
        future.exception()
