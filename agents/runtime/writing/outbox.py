"""The outbox: writes what tasks emit, whole chunks at a time, in transactions that one coroutine owns.

What it decides: which transaction a chunk belongs to, when a batch is sent, and what a failure means. The committer tells it when to
divide, to flush and to commit.

Promises:

- A chunk is written completely or not at all: what a task emits stays in its own buffer until `complete()`; then all of it joins the open
  transaction at once, without waiting. `drop()` leaves nothing behind.
- `divide` separates two transactions. Chunks that complete after it belong to the next transaction, of which nothing is sent before the
  first is committed. `flush` is answered when every send has returned and every future has succeeded; only then may `commit` be called.
- A record that its topic's settings exclude (too large, without a key) is never sent: it is refused when it is emitted, with its index.
- Every failure is one of `port.errors`, says whether the transaction is committed, and ends this outbox. A failed target is reported with
  the tasks that wrote to it; a record that a broker refuses, with the task that wrote it.
- Without a transactional id it is the second producer of `at_least_once`: batches are sent at once, and a flush means acknowledged.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, NamedTuple

from ....core.errors import cause_for
from ....core.names import StreamPartition
from ...cancellation import passes
from ...logger import Logger
from ...port.errors import Cause, Fenced, NotSent, OutboxError, OutcomeUnknown, ProducerBroken, TargetFailed, classify
from ...port.port import BatchInWork, Port, Producer
from ...port.waiting import Within, at_once, wait
from .buffer import Joining, Listed, LogWrite, Sent, Spanned, Transaction

log = Logger("headgate.outbox")
GONE_AFTER_S = 10.0
LEADERLESS_AFTER_S = 20.0
"""A partition without a leader fails after this time; a broker that restarts is usually back sooner."""
LOOK_S = 1.0
"""How often the outbox checks what its batches wait for."""
LOOK_AFTER_S = 2.0
"""If sends take longer, the metadata is refreshed about once a second."""


class _Command(NamedTuple):
    """What the coroutine that owns the producer has to do next."""

    work: Callable[[], Awaitable[Any]]
    answer: asyncio.Future[Any]


class Outbox(Joining):
    """One producer, and the transactions of a worker's tasks. The coroutine `run()` owns the producer."""

    def __init__(
        self,
        port: Port,
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
        self._clock = port.clock
        self._producer: Producer | None = port.producer(
            transactional_id,
            name=name,
            compression=compression,
            batch_bytes=batch_bytes,
            request_timeout_ms=request_timeout_ms,
            transaction_timeout_ms=transaction_timeout_ms,
        )
        super().__init__(
            transactional=transactional_id is not None,
            batch=self._producer.batch,
            batch_bytes=batch_bytes,
            max_pending_bytes=max_pending_bytes,
            wake=self._wake.set,
            now_ms=lambda: brokers_ms(port),
        )
        self._id = transactional_id
        patience_ms = (
            request_timeout_ms if transactional_id is None else min(request_timeout_ms, transaction_timeout_ms * 3 / 4)
        )
        self._send_deadline_s = (
            patience_ms / 1000
        )  # shorter than the transaction timeout: after an abort by the broker, nothing would tell which target is to blame
        self._commit_deadline_s = commit_deadline_s
        self._command: _Command | None = None
        self._divided: Transaction | None = None
        """The transaction to flush and commit; until that is done, nothing of the next one is sent."""
        self._flushed = False
        self._handing_over = False
        self._stopping = False
        self._in_transaction = False
        self._wrote: dict[StreamPartition, set[str]] = {}
        """By target: the tasks that wrote to it in earlier transactions."""
        self.failed: OutboxError | None = None

    # ------------------------------------------------------------------------------------------------- before and after

    async def start(self, *, deadline_s: float = 60.0) -> None:
        """Connect and initialise the transactional id, exactly once. Retries while no broker answers, until the deadline."""
        await self._live().start(deadline_s=deadline_s)

    def _live(self) -> Producer:
        if self._producer is None:
            raise ProducerBroken("the outbox was stopped")
        return self._producer

    async def stop(self) -> None:
        """End `run()`. An uncommitted transaction is aborted if that is possible; otherwise fencing this id aborts it."""
        self._stopping = True
        self._wake.set()
        producer, self._producer = self._producer, None
        if producer is None:
            return
        if self._in_transaction and not isinstance(self.failed, OutcomeUnknown | Fenced):
            try:
                await producer.abort()
            except ProducerBroken as error:
                self._fail(error)
        await producer.discard()

    # ----------------------------------------------------------------------------------------------------- joining

    @property
    def writers(self) -> frozenset[str]:
        """The tasks that have written to the open transaction."""
        return frozenset(task for tasks in self._open.writers.values() for task in tasks)

    @property
    def full(self) -> bool:
        """Whether too many bytes are unsent."""
        return not self._roomy.is_set()

    async def room(self) -> None:
        """Wait while too many bytes are unsent. Raises if the producer has failed."""
        if self.failed is None:
            await self._roomy.wait()
        if self.failed is not None:
            raise self.failed

    # ----------------------------------------------------------------------------------------------------- the owner

    def free(self) -> asyncio.Future[None]:
        """Answered when no batch is being handed to the producer."""
        if self.failed is None and self._command is None and not self._handing_over:
            answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            answer.set_result(None)
            return answer
        return self._ask(self._nothing)

    def divide(self, writes: Iterable[LogWrite] = ()) -> None:
        """Everything complete now is in one transaction, with these writes at its end; what completes from now on is in the next."""
        if self.failed is not None:
            raise self.failed
        if self._divided is not None:
            raise RuntimeError("a transaction that was divided off is neither committed nor given up")
        for write in writes:
            for records in write.spanned:
                self._join(write.task, write.at, Spanned(records, None))
            self._join(write.task, write.at, Listed(write.keys, write.values, write.timestamps))
        self._divided, self._open, self._flushed = self._open, Transaction(), False

    def flush(self) -> asyncio.Future[dict[StreamPartition, int]]:
        """Send what was divided off. When everything is acknowledged, answered with the position behind the last record of each target."""
        return self._ask(self._flush)

    def commit(self) -> asyncio.Future[None]:
        """Commit what was flushed."""
        return self._ask(self._commit)

    def _ask(self, work: Callable[[], Awaitable[Any]]) -> asyncio.Future[Any]:
        """Give the owner a command; one at a time."""
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        if self.failed is not None:
            _fails(answer, self.failed)
        elif self._command is not None:
            raise RuntimeError("the outbox is asked for two things at once")
        else:
            self._command = _Command(work, answer)
            self._wake.set()
        return answer

    async def run(self) -> None:
        """Owns the producer until `stop()`; raises the `OutboxError` that ended it."""
        try:
            while not self._stopping:
                await self._wake.wait()
                self._wake.clear()
                if self._stopping:
                    return
                if self._command is not None:
                    await self._obey(self._command)
                elif self._divided is None:
                    self._handing_over = True
                    await self._send(self._open, everything=self._id is None)
                    self._handing_over = False
        except OutboxError as error:
            self._fail(error)
            raise
        except BaseException as error:
            if self._stopping and not passes(error):  # the producer was removed in the middle of a send
                self._fail(ProducerBroken("the outbox was stopped"))
                return
            said = f"the outbox failed unexpectedly: {error!r}"
            self._fail(OutcomeUnknown(said))
            if passes(error):
                raise
            log.exception("the outbox failed unexpectedly")  # a bug in a library ends the incarnation, not the worker
            raise OutcomeUnknown(said) from error
        finally:
            if self.failed is None:
                self._fail(ProducerBroken("the outbox is stopped"))

    def _fail(self, error: OutboxError) -> None:
        self.failed = self.failed or error
        command, self._command = self._command, None
        if command is not None:
            _fails(command.answer, error)
        self._roomy.set()

    async def _obey(self, command: _Command) -> None:
        result = await command.work()
        self._command = None
        if not command.answer.done():  # otherwise the caller has cancelled it
            command.answer.set_result(result)
        if self._divided is None and (self._open.ready or (self._id is None and self._open.builders)):
            self._wake.set()

    async def _nothing(self) -> None:
        pass

    async def _flush(self) -> dict[StreamPartition, int]:
        transaction = self._divided
        assert transaction is not None, "what is to be flushed must be divided off"
        await self._send(transaction, everything=True)
        positions = await self._confirm(transaction)
        for target, writers in transaction.writers.items():
            self._wrote.setdefault(target, set()).update(writers)
        self._flushed = True
        if self._id is None:
            self._divided = None
        return positions

    async def _commit(self) -> None:
        transaction = self._divided
        assert transaction is not None, "what is to be committed must be divided off"
        assert self._flushed, "what is to be committed must be flushed"
        if transaction.begun:
            await self._commit_transaction()
        self._divided = None

    async def _send(self, transaction: Transaction, *, everything: bool) -> None:
        """Hand all ready batches to the producer; every `send` has returned when this returns."""
        producer = self._live()
        if everything:
            transaction.fill_all()
        if not transaction.ready:
            return
        if self._id is not None and not transaction.begun:
            await producer.begin()
            transaction.begun = self._in_transaction = True
        while transaction.ready:
            if self._command is not None and transaction is self._open:
                return  # tasks may fill it as fast as it is sent: a command must not wait for a pause
            wave = transaction.wave()
            sizes = [builder.size for _, builder in wave]  # before compression
            full = [one for one in wave if not self._handed_over(producer, *one, transaction)]
            if full:  # a produce request takes one batch per partition, so no partition may wait for another
                handing = [self._hand_over(producer, target, builder, transaction) for target, builder in full]
                for answer in await asyncio.gather(*handing, return_exceptions=True):
                    if answer is not None:
                        raise answer
            self.pending_bytes -= sum(sizes)
            if self.pending_bytes <= self._max_pending:
                self._roomy.set()
        if self._id is None and len(transaction.sent) > 64:
            transaction.sent = [s for s in transaction.sent if not self._settled(s, transaction)]

    def _handed_over(
        self, producer: Producer, target: StreamPartition, builder: BatchInWork, transaction: Transaction
    ) -> bool:
        """Hand a batch to the producer if it has room right now."""
        try:
            future = at_once(producer.send(target, builder))
        except NotSent as error:
            found = self._classified(error, target, transaction, builder.parts)
            raise found from cause_for(found, error)
        if future is not None:
            transaction.sent.append(Sent(target, builder.count, future[0], builder.parts))
        return future is not None

    async def _hand_over(
        self, producer: Producer, target: StreamPartition, builder: BatchInWork, transaction: Transaction
    ) -> None:
        """Hand a batch to the producer, waiting for room. `send` waits silently for a missing topic, or behind a partition without a
        leader: then this raises `TargetFailed` after a while."""
        began = self._clock.now().mono
        while True:
            try:
                async with Within(self._clock, GONE_AFTER_S):
                    future = await producer.send(target, builder)
                    transaction.sent.append(Sent(target, builder.count, future, builder.parts))
                    return
            except TimeoutError:
                waited_s = self._clock.now().mono - began
                if not producer.knows(target.stream):
                    everybody = self._all_writers({target.stream}, transaction)
                    raise TargetFailed(target, everybody, "the topic does not exist") from None
                if waited_s > LEADERLESS_AFTER_S and producer.leaderless(target):
                    raise self._leaderless(target, transaction) from None
                if waited_s > self._send_deadline_s:
                    writers = self._writers(target, transaction)
                    raise TargetFailed(
                        target, writers, f"nothing was accepted for {self._send_deadline_s:g} s"
                    ) from None
            except NotSent as error:
                found = self._classified(error, target, transaction, builder.parts)
                raise found from cause_for(found, error)

    def _settled(self, sent: Sent, transaction: Transaction) -> bool:
        if sent.future.done() and (error := sent.future.exception()) is not None:
            raise self._classified(error, sent.target, transaction, sent.parts)
        return sent.future.done()

    async def _confirm(self, transaction: Transaction) -> dict[StreamPartition, int]:
        """Wait for every future. Raises the first failure with its target; otherwise returns the position behind each target."""
        started = self._clock.now().mono
        missing: dict[str | StreamPartition, float] = {}
        settled = _settled([sent.future for sent in transaction.sent if not sent.future.done()])
        while not await wait(self._clock, settled, LOOK_S):
            self._look_for_gone(transaction, missing, self._clock.now().mono - started)
        positions: dict[StreamPartition, int] = {}
        for sent in transaction.sent:
            if sent.future.done() and (error := sent.future.exception()) is not None:
                found = self._classified(error, sent.target, transaction, sent.parts)
                raise found from cause_for(found, error)
        for sent in transaction.sent:
            offset = sent.future.result()
            if offset >= 0:  # below zero: the broker had the batch already, and does not know its offset
                positions[sent.target] = offset + sent.count
        return positions

    def _look_for_gone(
        self, transaction: Transaction, missing: dict[str | StreamPartition, float], waited_s: float
    ) -> None:
        producer = self._live()
        waiting = [sent.target for sent in transaction.sent if not sent.future.done()]
        if waiting and waited_s > LOOK_AFTER_S:
            producer.look_again()
        for target in waiting:
            if not producer.knows(target.stream):
                if waited_s - missing.setdefault(target.stream, waited_s) > GONE_AFTER_S:
                    everybody = self._all_writers({target.stream}, transaction)
                    raise TargetFailed(target, everybody, "the topic no longer exists")
                continue
            missing.pop(target.stream, None)
            if not producer.leaderless(target):
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
        producer = self._live()
        try:
            async with Within(self._clock, self._commit_deadline_s):
                await producer.commit()
            self._in_transaction = False
        except TimeoutError as error:
            raise OutcomeUnknown(f"no answer for {self._commit_deadline_s:g} s") from error

    def _writers(self, target: StreamPartition, transaction: Transaction) -> frozenset[str]:
        """The tasks that wrote to this partition in this transaction, since the division, or in earlier transactions: each of them would
        make the next producer fail in the same way."""
        found = [one.get(target, ()) for one in (transaction.writers, self._open.writers, self._wrote)]
        return frozenset(task for tasks in found for task in tasks)

    def _leaderless(self, target: StreamPartition, transaction: Transaction) -> TargetFailed:
        return TargetFailed(target, self._writers(target, transaction), "it has no leader")

    def _all_writers(self, topics: set[str], transaction: Transaction) -> frozenset[str]:
        """The tasks that wrote to any partition of these topics."""
        known = {*transaction.writers, *self._open.writers, *self._wrote}
        return frozenset(task for at in known if at.stream in topics for task in self._writers(at, transaction))

    def _classified(
        self, error: BaseException, target: StreamPartition, transaction: Transaction, parts: Sequence[tuple[int, str]]
    ) -> OutboxError:
        if isinstance(error, OutboxError):
            return error
        cause = self._producer.explain(error, target) if self._producer is not None else Cause(repr(error))
        if cause.forbidden:
            return self._forbidden(cause, target, transaction)
        return classify(cause, target, self._writers(target, transaction), parts)

    def _forbidden(self, cause: Cause, target: StreamPartition, transaction: Transaction) -> TargetFailed:
        """A permission is missing: the broker accepted none of the partitions, but named the topics."""
        guilty = [one for one in transaction.writers if one.stream in cause.forbidden] or [target]
        writers = self._all_writers({one.stream for one in guilty}, transaction)
        return TargetFailed(guilty[0], writers, cause.said, cause.code)


def brokers_ms(port: Port) -> int:
    """The time of the brokers, as far as it is known."""
    now = port.clock.now()
    found = port.broker.ms(now)
    return now.wall if found is None else found


def _settled(pending: Sequence[asyncio.Future[int]]) -> asyncio.Event:
    """An event that is set when all of these futures are done, or one has failed."""
    settled, left = asyncio.Event(), len(pending)
    if not left:
        settled.set()

    def came(future: asyncio.Future[int]) -> None:
        nonlocal left
        left -= 1
        if not left or future.cancelled() or future.exception() is not None:
            settled.set()

    for future in pending:
        future.add_done_callback(came)
    return settled


def _fails(answer: asyncio.Future[Any], error: OutboxError) -> None:
    """Fail the answer, unless it is done already; asyncio must not complain if no one awaits it."""
    if not answer.done():
        answer.set_exception(error)
        answer.exception()
