"""What a task adds to the transactions of its process: each letter's outputs and table changes, markers, and a checkpoint at each commit.

Promise: a transaction holds a letter as a whole or not at all. A transaction that may hold half a letter, or that lacks output which
operators held back, never commits.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Protocol

from ....core.names import StreamPartition
from ....core.progress.frames import HEADER, header_value
from ....core.progress.frames import encode as encode_frame
from ....core.task import protocol as t
from ...state.expiry import Expiry
from ..writing.buffer import LogWrite, TaskBuffer
from .due import Due
from .failures import Failures
from .site import Site
from .suspicion import Suspicion
from .traced import Traced
from .turns import SHIFT_NS


class Transactions(Protocol):
    """The transactions that a task takes part in; see `Producers`."""

    careful: set[str]

    def buffer(self, task: str) -> TaskBuffer: ...
    def want_commit(self, task: str, urgent: bool) -> None: ...
    def poisoned(self, task: str, why: str) -> None: ...


class Contribution:
    """One task's part in each transaction."""

    def __init__(
        self,
        site: Site,
        transactions: Transactions,
        failures: Failures,
        suspicion: Suspicion,
        due: Due,
        traced: Traced,
        *,
        awaited: bool,
    ) -> None:
        """`awaited`: readers have had nothing of the task since its last owner's commit, so that of its first letter is urgent."""
        self._site = site
        self._transactions = transactions
        self._failures = failures
        self._suspicion = suspicion
        self._due = due
        self._traced = traced
        self._awaited = awaited
        self._read = frozenset(one.stream for one in site.plan.inputs)
        """A checkpoint has positions in other streams, too: those of an earlier version of the job."""
        self._markers = transactions.buffer(site.name)
        """A buffer of their own: markers join the transaction even while a chunk awaits, and its partial output must not join with them."""
        self._unsealed = False
        """The open transaction holds something of this task without the task's positions."""
        self._worked_ns = 0
        """For how long letters have held the loop since this task took part last."""
        self._invalid = ""
        """Why nothing of this task may be committed any more."""
        self._sealing = False
        """A commit is being sealed: what operators held back has just been emitted."""
        self._positions: Mapping[StreamPartition, int] = {}
        """The positions of the last checkpoint."""
        self._done: Mapping[StreamPartition, int] = {}
        """The positions of the last checkpoint below which nothing is needed."""
        self.durable: Mapping[StreamPartition, int] = {}
        """The positions up to which everything is committed."""
        self.done: Mapping[StreamPartition, int] = {}
        """The positions below which no one needs anything any more: batches by reference need what is below `durable`."""
        self.expiry = Expiry(lambda: site.at_rest, site.state.expire, self._changed, failures.broken)

    def complete(self) -> tuple[bool, frozenset[str]] | None:
        """Complete the letter: its outputs and table changes join the transaction. Returns whether it wants a commit, and the inputs that
        it has ended; None if completing failed.

        Everything that can be refused has been refused before, so nothing here should raise. If something does, the open transaction may
        hold half of the letter, and this task must take no part in its commit: the task starts again from its log.
        """
        assert self._site.pipeline is not None
        try:
            wants = self._site.pipeline.complete()
            self._site.state.complete()
        except BaseException as error:  # noqa: BLE001 - the actor goes on; the transaction is spoilt
            self._spoil(self._failures.half_completed(error))
            return None
        self._unsealed = True
        return wants

    def letter_ended(self, ns: int) -> None:
        """A letter has ended, which has held the loop for so long."""
        self._worked_ns += ns

    @property
    def small(self) -> bool:
        """Whether letters have held the loop for less than a shift since this task took part last."""
        return self._worked_ns < SHIFT_NS

    def _spoil(self, why: str) -> None:
        """Exclude this task from all further commits. From now on it holds nothing back, so that the same records do not fail again."""
        self._invalid = why
        self._transactions.careful.add(self._site.name)
        self._transactions.poisoned(self._site.name, why)

    # --------------------------------------------------------------------------------------------------------------- commit

    def opens(self) -> bool:
        """The committer divides: emit what operators hold back, without waiting. Returns whether this task takes part."""
        return not self._invalid and self._emit_held()

    @contextlib.contextmanager
    def sealing(self) -> Iterator[None]:
        """While a commit is being sealed, markers wait for `announce`."""
        self._sealing = True
        try:
            yield
        finally:
            self._sealing = False

    def _emit_held(self) -> bool:
        """Emit what operators hold back and emit once per commit. False if user code failed, which spoils the transaction."""
        pipeline, state = self._site.pipeline, self._site.state
        if pipeline is None or not self._unsealed:
            return True
        aside = state.suspend()
        try:
            with self._traced.hands_over():
                pipeline.seal()
            state.complete()
        except BaseException as error:  # noqa: BLE001 - user code behind an aggregate may raise anything
            self._spoil(self._failures.held_back(error))
            return False
        finally:
            state.resume(aside)
        return True

    def sealed(self, order: t.Contribute) -> list[LogWrite]:
        """The table changes and the checkpoint for the transaction that is being sealed."""
        writes = self._site.state.seal(order, self._site.wall_ms())
        self._positions = {at: n for at, n in order.checkpoint.positions.items() if at.stream in self._read}
        if self._site.pipeline is not None:
            self._site.pipeline.sealed()
            needed = self._site.pipeline.needed()
            self._done = {at: min(n, needed.get(at, n)) for at, n in self._positions.items()}
        self._unsealed, self._worked_ns = False, 0
        self._site.took_part_s = self._site.clock.now().mono
        return writes

    def mark(self, order: t.SendControl) -> None:
        """Emit a marker behind all data that it covers, including what operators held back until the commit."""
        if not self._sealing:
            self._emit_held()
        value = encode_frame(order.frame)
        header = [(HEADER, header_value(order.frame))]
        for partition in order.partitions:
            self._markers.emit(order.stream, partition, None, [value], [self._site.wall_ms()], [header])
        if not self._sealing:
            self._markers.complete()
        self._unsealed = True

    def announce(self) -> None:
        """All tasks have sealed: the markers of this commit join the transaction. So a partition holds the data of all producers first, and
        its reader takes them in one chunk; between markers, each producer's data would be a chunk of its own.
        """
        self._markers.complete()

    def want(self, order: t.RequestCommit) -> None:
        """The task has something to commit."""
        urgent = order.urgent or (self._awaited and self._unsealed)
        self._awaited = self._awaited and not self._unsealed
        self._transactions.want_commit(self._site.name, urgent)

    def apply(self, log_position: int) -> None:
        """Write what was sealed into the store, in one step. Raises what the store raises."""
        self._site.state.applied(log_position)

    def committed(self, *, works: bool) -> None:
        """The transaction is durable and applied. `works`: the task goes on, and so do its operators."""
        self.durable, self.done = self._positions, self._done
        self._suspicion.committed(self.durable, self._site.view.topics)
        if self._site.pipeline is not None and works:
            with self.expiry.alone():
                self._site.pipeline.durable()
                self._due.watch()

    def discard(self, why: str) -> None:
        """The task ends on this worker: what it has in the open transaction must not be committed."""
        if self._unsealed:
            self._transactions.poisoned(self._site.name, why)

    # --------------------------------------------------------------------------------------------------------------- upkeep

    def upkeep(self, known_ms: int | None = None) -> None:
        """Delete what has expired. An idle store also records that it stood at its log's end until `known_ms`, if that is given."""
        self.expiry.look()
        if known_ms is not None and self._site.at_rest and not self._unsealed:
            with self.expiry.alone():
                self._site.state.refresh(known_ms)

    def _changed(self) -> None:
        self._unsealed = True
        self._site.feed(t.CommitWanted())
