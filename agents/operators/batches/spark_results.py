"""The results of closed batches: from Spark, through the task's store if they are large, to the steps behind.

    closed, committed → Spark → (stored, committed, if it is large) → sent, committed → forgotten

Promises:

- A result and the deletion of its rows are in one transaction; until that commits, the batch can be run again.
- A result that needs more than one step is stored before its first row is sent, and is sent from the store.
- Results that Spark writes itself are named in the transaction, published, and then forgotten (`written`).
- Results are emitted in the order in which the batches were closed, each with the timestamp of its batch.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from typing import Any

from ....core.batching import origins
from ....core.batching.batches import BatchInfo, BatchOutcome, BatchStage, Bridge, Closed, Contents, Inline
from ....core.batching.ranges import RangeBroken, RangeGone
from ....core.errors import DataError
from ....core.names import StreamPartition
from ...job.steps.batches import BatchStep, DeliverStep, SparkStep, WriteStep
from ...records.columns.arrow_take import columns_as_they_are
from ...records.columns.records import Records
from ...records.values.record import Record
from ..base.stateless import Env, Operator, UserCodeError
from ..failures.failures import answer_for_result, failure_headers, id_header
from ..failures.letters import bury, row_bytes
from ..failures.result_rows import push_result
from .batch_blocks import must_fit
from .batch_rows import BatchRows, result_key, result_keys
from .batches_seen import BatchesSeen
from .referenced import Referenced, latest_key, range_key
from .spark_runs import Runs, TargetPauses
from .written import Publishing

STEP_BLOCKS = 4
"""The maximum number of blocks that one step stores or sends."""


class SparkOp(Operator):
    """Passes results on. The batch operator in front of it runs its function."""

    def __init__(self, step: SparkStep | DeliverStep, env: Env) -> None:
        super().__init__(step, env)
        policy = step.on_error or env.app.on_error
        self.policy = policy
        self.stage = step.batch_stage(keeps_going=policy != "fail")

    @property
    def write(self) -> WriteStep | None:
        """The step that says how the result is written to files; None if the rows are passed on."""
        return next((child.step for child in self.children if isinstance(child.step, WriteStep)), None)

    def push(self, rows: Records) -> None:
        """Never called: rows arrive through the batch."""
        raise AssertionError("rows reach a Spark step only through its batch")

    def give(self, bridge: Bridge, block: bytes, ms: int) -> None:
        """Pass the rows of a result on."""
        columns = columns_as_they_are(bridge.table(block))
        if columns is None:
            values = bridge.decode(block)
            rows = Records(values, [ms] * len(values))
        else:
            times = array("q", [ms]) * len(columns)
            rows = Records.of_vectors(None, times, results=lambda: columns, make=lambda: bridge.decode(block))
        for child in self.children if len(rows) else ():
            push_result(child, rows)


class Results:
    """Takes in the results of one batch step, one bounded step at a time."""

    def __init__(
        self, rows: BatchRows, operator: Operator, sources: Any, seen: BatchesSeen, reference: Referenced | None = None
    ) -> None:
        """`sources` returns the streams that lead to the operator. `seen` is told of each attempt. `reference`: its batches are ranges of
        offsets."""
        self.reference = reference
        self.rows = rows
        self.operator = operator
        self.env: Any = operator.env
        self._sources = sources
        self._seen = seen
        self._pauses = TargetPauses(self.env.now_ms)
        self.written = Publishing(rows, self.env, lambda: self._bridge, self._pauses, self._publishing_failed)
        self._runs: Runs | None = None
        self._stages: list[BatchStage] = []
        self._taken: tuple[int, list[BatchOutcome]] | None = None
        """A large result that is being stored."""
        self._stored = 0
        """How many of its blocks are stored."""

    @property
    def _for_sink(self) -> bool:
        step = self.operator.step
        return isinstance(step, BatchStep) and step.for_sink

    @property
    def _bridge(self) -> Bridge:
        operator: Any = self.operator
        return operator.bridge

    @property
    def sparks(self) -> list[SparkOp]:
        """The stages behind the batch step."""
        return [child for child in self.operator.children if isinstance(child, SparkOp)]

    def info(self, one: Closed, attempt: int = 1) -> BatchInfo:
        """What a function is told about this batch."""
        return one.info(self.env.task, self.operator.step.name, attempt)

    # -------------------------------------------------------------------------------------------------------------- at Spark

    @property
    def runs(self) -> Runs:
        """The batches at Spark."""
        if self._runs is None:
            env = self.env
            self._stages = [self.written.stage(child.stage, child.write) for child in self.sparks]
            self._runs = Runs(
                self._bridge,
                self._stages,
                self.info,
                self._contents,
                lambda: env.poke(),
                lambda: env.spark_timeout_s,
                self._seen,
                "the target" if self._for_sink else "Spark",
                self._outlasts,
                self._pauses,
            )
        return self._runs

    @property
    def in_flight(self) -> int:
        """How many batches may be at Spark: one if a stage must write them in order, as sinks do."""
        in_order = self._for_sink or any(
            child.write is not None and child.write.write.in_order for child in self.sparks
        )
        return 1 if in_order else self.env.spark_in_flight

    def start(self, closed: Sequence[Closed]) -> None:
        """Begin batches at Spark, as many as may be there."""
        self.runs.start(closed, self.in_flight)

    def _outlasts(self, error: BaseException) -> bool:
        """Whether this says that the target is away, and the task waits for it."""
        return bool(getattr(error, "away", False)) and self.env.outlasts

    def _publishing_failed(self, number: int, error: BaseException) -> bool:
        """Files were not published. Whether that is tried again."""
        again_ms = self._pauses.begin(number) if self._outlasts(error) else None
        self._seen.failed(number, error, again_ms)
        return again_ms is not None

    def again_ms(self, first: Closed) -> int | None:
        """When the first batch is begun again whose target was away; None if it was not, or if it is under way."""
        under_way = self.written.under_way(first) if first.whole else self.runs.has(first.number)
        return None if under_way else self._pauses.end_ms(first.number)

    def start_over(self, closed: Sequence[Closed]) -> None:
        """Begin what its pause is over for."""
        if closed[0].whole:
            self.written.start(closed[0])
        else:
            self.start(closed)

    def ready(self, first: Closed) -> bool:
        """Whether there is something to be done with the first batch now."""
        if not first.whole:
            return self.runs.ready(first.number)
        return not (first.named and first.all_sent and self.written.waits(first))

    def waits(self, first: Closed) -> bool:
        """Whether the first batch is at Spark, or being published, so that nothing can be done with it now."""
        return not self.ready(first) and (first.whole or self.runs.has(first.number))

    def _contents(self, one: Closed) -> Contents:
        if self.reference is not None:
            return self.reference.contents(one)
        return Inline(self.rows.blocks.reader(one.number), one.size, lambda: self.rows.origins(one)[0])

    def keep(self, closed: Sequence[Closed]) -> None:
        """Forget the runs of all other batches."""
        self._pauses.keep(one.number for one in closed)
        if self._runs is not None:
            self._runs.keep(one.number for one in closed if not one.whole)

    def drop(self) -> None:
        """The letter failed."""
        self._taken = None

    async def stop(self) -> None:
        """Cancel the running batches."""
        await self.written.stop()
        if self._runs is not None:
            await self._runs.stop()

    # ------------------------------------------------------------------------------------------------------ results come in

    async def take(self, first: Closed) -> bool:
        """Take in one step of the first batch's result. Returns whether it needs another."""
        if first.whole and first.named and first.all_sent:
            await self._publish(first)
            return False
        if first.whole:
            return self._send(first)
        if self._taken is None or self._taken[0] != first.number:
            outcomes = await self._result(first)
            if self.reference is not None:
                try:
                    first, outcomes = self.reference.arrived(first, outcomes)
                except RangeBroken as cause:
                    raise self._blamed(cause) from cause
            count = _count(outcomes)
            if count <= STEP_BLOCKS:
                self._forward(first, self._some(outcomes, 0, count))
                self._bury(first, outcomes)
                if named := self.written.names(self._stages, outcomes):
                    self._name(named, {} if self.reference is None else self.reference.known(outcomes))
                else:
                    self._forget(first)
                return False
            self._all_fit(first, outcomes)
            self._taken, self._stored = (first.number, outcomes), 0
        return self._store(first, self._taken[1])

    def _some(self, outcomes: Sequence[BatchOutcome], first: int, behind: int) -> list[tuple[str, bytes]]:
        """The blocks of all stages from one up to, but not including, another, each with the name of its stage."""
        found: list[tuple[str, bytes]] = []
        for child, outcome in zip(self.sparks, outcomes, strict=True):
            blocks = outcome.blocks
            found += [(child.step.name, blocks[at]) for at in range(max(0, first), min(behind, len(blocks)))]
            first, behind = first - len(blocks), behind - len(blocks)
        return found

    def _all_fit(self, first: Closed, outcomes: Sequence[BatchOutcome]) -> None:
        for child, outcome in zip(self.sparks, outcomes, strict=True):
            try:
                must_fit(self.rows.table, outcome.largest, f"a row of the result of batch {self.info(first).id}")
            except DataError as cause:
                raise UserCodeError(child.step, cause) from cause

    async def _result(self, first: Closed) -> list[BatchOutcome]:
        while True:
            await self._pauses.over(first.number)
            self.runs.start([first], self.env.spark_in_flight + 1)
            try:
                return await self.runs.result(first.number)
            except RangeGone as cause:
                shown = cause if self.reference is None else self.reference.lost(first, cause)
                raise self._blamed(cause, shown) from cause
            except Exception as cause:
                if not self._outlasts(cause):
                    raise self._blamed(cause) from cause

    def _blamed(self, cause: Exception, shown: Exception | None = None) -> UserCodeError:
        """The error of the stage that failed; users are told `told`."""
        stage = getattr(cause, "stage", "")
        blamed = next((child for child in self.sparks if child.step.name == stage), self.sparks[0])
        return UserCodeError(blamed.step, shown or cause)

    def _store(self, first: Closed, outcomes: Sequence[BatchOutcome]) -> bool:
        """Store the next blocks of a large result. A rerun of the batch overwrites what an earlier run has left."""
        at, count = self._stored, _count(outcomes)
        some = self._some(outcomes, at, at + STEP_BLOCKS)
        put = {result_key(first.number, at + n): list(one) for n, one in enumerate(some)}
        stored, gone = max(first.stored, at + len(some)), list[str]()
        whole = at + len(some) == count
        changes = self.reference.known(outcomes) if whole and self.reference is not None else {}
        if whole:
            gone = result_keys(first.number, range(count, stored))
            self._bury(first, outcomes)
            self._taken, stored = None, count
        self._stored = at + len(some)
        named = self.written.names(self._stages, outcomes) if whole else {}
        self.rows.write(self.rows.book.with_first(stored=stored, whole=whole, named=named, **changes), put, gone)
        return True

    def _send(self, first: Closed) -> bool:
        """Send the next blocks of a stored result, and delete them in the same step. Returns whether there are more."""
        upto = min(first.sent + STEP_BLOCKS, first.stored)
        keys = result_keys(first.number, range(first.sent, upto))
        self._forward(first, self.rows.table.get_many(keys))
        self.rows.write(self.rows.book.with_first(sent=upto), gone=keys)
        if upto < first.stored:
            return True
        if first.named:
            self.env.wants_commit = True
        else:
            self._forget(first)
        return False

    def _name(self, named: Mapping[str, Sequence[str]], changes: Mapping[str, int]) -> None:
        """Name the attempts whose files count. They are published when this is durable."""
        self.rows.write(self.rows.book.with_first(whole=True, named=named, **changes))
        self.env.wants_commit = True

    async def _publish(self, first: Closed) -> None:
        while True:
            await self._pauses.over(first.number)
            try:
                published = await self.written.publish(first)
            except Exception as cause:
                if not self._outlasts(cause):
                    raise self._blamed(cause) from cause
            else:
                break
        if published:
            self._forget(first)

    def _forward(self, first: Closed, blocks: Sequence[Sequence[Any]]) -> None:
        for name, block in blocks:
            for child in self.sparks:
                if child.step.name == name:
                    child.give(self._bridge, block, first.result_ms)

    def _forget(self, first: Closed) -> None:
        self.rows.forget_first([] if self.reference is None else [range_key(first.number), latest_key(first.number)])
        self.env.count("batches")
        self.env.count("batch_rows", first.rows)

    # --------------------------------------------------------------------------------------------------- rows left out

    def _bury(self, first: Closed, outcomes: Sequence[BatchOutcome]) -> None:
        """Skip the rows that were left out, or write them as dead letters."""
        if self.reference is not None:
            self.reference.finished(first, outcomes)
        if not any(outcome.bad for outcome in outcomes):
            return
        runs, times = self.rows.origins(first) if self.reference is None else (self.reference.origins(first), None)
        for child, outcome in zip(self.sparks, outcomes, strict=True):
            for place, row, error in outcome.bad:
                at_ms = first.result_ms if times is None else times[place]
                answer = answer_for_result(child.policy, Record(None, row, at_ms), error)
                if answer == "fail":
                    raise UserCodeError(child.step, error) from error
                self.env.failed(child.step, error)
                if answer == "skip":
                    self.env.count("records_skipped")
                    continue
                self.env.count("dead_letters")
                headers = [
                    *self._origin_headers(first, origins.origin_of(runs, place)),
                    *([] if times is None else [("hg-timestamp", str(times[place]).encode())]),
                    *failure_headers(self.env.task, child.step, error, ("hg-batch", self.info(first).id.encode())),
                ]
                bury(self.env, None, row_bytes(row), headers)

    def _origin_headers(self, first: Closed, origin: origins.Run) -> list[tuple[str, bytes]]:
        if not origin.stream:
            return [("hg-topic", ",".join(sorted(self._sources())).encode())]
        at = StreamPartition(origin.stream, origin.partition)
        reference = self.reference
        topic_id = self.env.topic_id(at) if reference is None else reference.topic_id(first, at, origin.first)
        headers = [
            ("hg-topic", origin.stream.encode()),
            *id_header(topic_id),
            ("hg-partition", str(origin.partition).encode()),
            ("hg-offset", str(origin.first).encode()),
        ]
        return headers if origin.exact else [*headers, ("hg-offset-last", str(origin.last).encode())]


def _count(outcomes: Sequence[BatchOutcome]) -> int:
    """How many blocks all stages have."""
    return sum(len(outcome.blocks) for outcome in outcomes)
