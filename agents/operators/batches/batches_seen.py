"""What a batch step says of its batches: those that are not done, the last that were, and how many there have been.

It compares the bookkeeping (`core.batching.batches.Book`) after each letter with that before it, and is told when a batch goes to Spark and
comes back. Nothing of it is stored: counts and times begin when the task starts on this worker; what the bookkeeping holds is known at
once.

Promises: it counts only what letters completed. A batch that is done is logged; of many in a short time, one line says how many.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from ....core.batching.batch_progress import (
    AT_WORK,
    CLOSED,
    ISOLATING,
    NEVER_RETRIED,
    OPEN,
    RETURNED,
    RUNNING,
    AtSpark,
    BatchDone,
    BatchSeen,
    Retried,
    SparkAttempt,
    StepBatches,
    Tally,
    collects,
    returned_for,
    waits_for,
    waits_for_sink,
)
from ....core.batching.batches import BatchOutcome, Book, Closed, Limits, Open
from ....core.batching.ranges import Range
from ...logger import Logger
from ...tracing.traces import NoTraces, Traces

log = Logger("headgate.batches")
MOST_DONE = 20
"""How many batches that are done are remembered."""
MOST_ERROR = 500
LOG_EVERY_MS = 10_000


@dataclass(slots=True)
class _Tracked:
    """What happened here to a batch that is not done."""

    closed_ms: int | None = None
    attempts: int = 0
    begun_ms: int | None = None
    returned_ms: int | None = None
    """When its last attempt came back, with a result or an error."""
    stage: str = ""
    error: str = ""
    """Why its last attempt failed; empty if that has a result."""
    failed: str = ""
    """Why the last attempt that failed did so."""
    repeated: int = 0
    """How many attempts the bridge has repeated, because a process of Spark died."""
    retry_ms: int | None = None
    again_ms: int | None = None
    """When it is tried again, as its target is away."""
    results: int = 0
    poisoned: int = 0
    read: int | None = None
    """How many rows Spark has read of a batch by reference."""

    def repeats(self, found: Retried) -> None:
        """The bridge has repeated attempts."""
        if found.times:
            self.repeated += found.times
            self.failed = found.why[:MOST_ERROR]
            self.again_after(found.longest_ms)

    def again_after(self, ms: int) -> None:
        """It was given to Spark again, this long after a failure."""
        self.retry_ms = max(self.retry_ms or 0, ms)

    @property
    def under_way(self) -> bool:
        """Whether it was begun and has not come back."""
        return self.begun_ms is not None and self.returned_ms is None


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What a look at the batches depends on, besides the bookkeeping."""

    ms: int
    durable: int
    """The turn of the first batch whose closing is not durable."""
    in_flight: int
    """How many batches may run at a time."""
    limits: Limits
    spark: AtSpark
    ranges: Callable[[int], Sequence[Range]] | None = None
    """The offsets of a batch by its number; None if its rows are here."""
    held: bool = False
    """So many wait that no more chunks are taken."""

    def offsets(self, number: int) -> tuple[Range, ...]:
        """The offsets of a batch by reference."""
        return tuple(self.ranges(number)) if self.ranges is not None else ()


class BatchesSeen:
    """The batches of one step in one task."""

    def __init__(
        self,
        task: str,
        step: str,
        book: Book,
        now_ms: Callable[[], int],
        retries: Mapping[str, Retried],
        *,
        to_sink: bool = False,
        traces: Traces | None = None,
    ) -> None:
        """`book`: as it was restored. `retries`: what the bridge has repeated before this (`AtSpark.retries`). `to_sink`: a sink gets the
        batches, and not Spark."""
        self._to_sink = to_sink
        self._traces = traces or NoTraces()
        self._who = "its sink" if to_sink else "Spark"
        self.task = task
        self.step = step
        self.tally = Tally()
        self._book = book
        self._now_ms = now_ms
        self._retries = retries.get(f"{task}/{step}", NEVER_RETRIED)
        self._by_number: dict[int, _Tracked] = {}
        self._done: deque[BatchDone] = deque(maxlen=MOST_DONE)
        self._log = log.bind(task=task, step=step)
        self._logged_ms: int | None = None
        self._unlogged = Tally()

    # ---------------------------------------------------------------------------------------------------------- what happens

    def began(self, number: int) -> None:
        """A batch is given to Spark."""
        tracked = self._track(number)
        if tracked.attempts and tracked.returned_ms is not None:
            after_ms = max(0, self._now_ms() - tracked.returned_ms)
            tracked.again_after(after_ms)
            self.tally = replace(self.tally, retried=self.tally.retried + 1, retry_ms=self.tally.retry_ms + after_ms)
        tracked.attempts += 1
        tracked.begun_ms, tracked.returned_ms = self._now_ms(), None
        self._log.debug(f"a batch goes to {self._who}", batch=self._id(number), attempt=tracked.attempts)

    def returned(self, number: int, outcomes: Sequence[BatchOutcome]) -> None:
        """Spark has given the result of a batch."""
        tracked = self._track(number)
        self._came_back(tracked)
        if outcomes:
            tracked.repeats(outcomes[0].retried)
        tracked.error = tracked.stage = ""
        tracked.results = sum(one.rows for one in outcomes)
        tracked.poisoned = sum(len(one.bad) for one in outcomes)
        self._trace(number, tracked)
        tracked.read = sum(one.rows for one in outcomes[0].read) if outcomes and outcomes[0].read else None
        self._log.debug("a batch has its result", batch=self._id(number), rows=tracked.results)

    def failed(self, number: int, error: BaseException, again_ms: int | None = None) -> None:
        """An attempt has failed or was cancelled. `again_ms`: its target is away, and when the next attempt begins."""
        tracked = self._track(number)
        self._came_back(tracked)
        tracked.again_ms = again_ms
        tracked.repeats(getattr(error, "retried", NEVER_RETRIED))
        tracked.failed = tracked.error = (str(error) or type(error).__name__)[:MOST_ERROR]
        tracked.stage = getattr(error, "stage", "")
        self._trace(number, tracked)
        self._log.warning(
            f"a batch failed in {self._who}", batch=self._id(number), attempt=tracked.attempts, why=tracked.error
        )

    def complete(self, book: Book) -> None:
        """A letter is complete, and this is the bookkeeping now."""
        before, self._book = self._book, book
        if before is book:
            return
        closed = dict(self.tally.closed)
        for one in book.closed:
            if one.turn >= before.turn:
                closed[one.why] = closed.get(one.why, 0) + 1
                self._track(one.number).closed_ms = self._now_ms()
                self._log.debug("a batch is closed", batch=self._id(one.number), rows=one.rows, by=one.why)
        opened = book.number - before.number
        self.tally = replace(self.tally, opened=self.tally.opened + opened, closed=closed)
        left = {one.number for one in book.closed}
        for one in before.closed:
            if one.number not in left:
                self._is_done(one, self._now_ms())

    def _is_done(self, one: Closed, now_ms: int) -> None:
        tracked = self._by_number.pop(one.number, None) or _Tracked()
        rows = one.rows if tracked.read is None else tracked.read
        took = (
            tracked.returned_ms - tracked.begun_ms
            if tracked.begun_ms is not None and tracked.returned_ms is not None
            else 0
        )
        done = Tally(
            done=1,
            rows=rows,
            size=one.size,
            results=tracked.results,
            poisoned=tracked.poisoned,
            spark_ms=max(0, took),
        )
        self.tally = self.tally.plus(replace(done, spark_ms=0))
        found = BatchDone(
            id=self._id(one.number),
            task=self.task,
            step=self.step,
            number=one.number,
            rows=rows,
            size=one.size,
            closed_by=one.why,
            window=_window(one),
            latest_ms=one.latest_ms or None,
            opened_ms=one.since_ms,
            closed_ms=tracked.closed_ms,
            begun_ms=tracked.begun_ms,
            returned_ms=tracked.returned_ms,
            done_ms=now_ms,
            attempts=tracked.attempts + tracked.repeated,
            results=tracked.results,
            poisoned=tracked.poisoned,
            retry_ms=tracked.retry_ms,
            error=tracked.failed,
        )
        self._done.appendleft(found)
        if tracked.poisoned:
            self._log.warning(f"rows made {self._who} fail and were left out", batch=found.id, rows=tracked.poisoned)
        self._unlogged = self._unlogged.plus(done)
        if self._logged_ms is None or not 0 <= now_ms - self._logged_ms < LOG_EVERY_MS:
            self._say(now_ms, found)

    def _say(self, now_ms: int, last: BatchDone) -> None:
        """Log what is done and not logged yet."""
        one, self._unlogged, self._logged_ms = self._unlogged, Tally(), now_ms
        self._log.info(
            "a batch is done" if one.done == 1 else "batches are done",
            **(
                {"batch": last.id, "closed_by": last.closed_by}
                if one.done == 1
                else {"batches": one.done, "last": last.id}
            ),
            **({"window": list(last.window)} if last.window else {}),
            rows=one.rows,
            bytes=one.size,
            results=one.results,
            spark_s=round(one.spark_ms / 1000, 3),
        )

    def close(self) -> None:
        """The task is released: log what is not logged yet."""
        if self._unlogged.done and self._done:
            self._say(self._done[0].done_ms, self._done[0])

    def _came_back(self, tracked: _Tracked) -> None:
        tracked.returned_ms = self._now_ms()
        took = max(0, tracked.returned_ms - tracked.begun_ms) if tracked.begun_ms is not None else 0
        self.tally = replace(self.tally, spark_ms=self.tally.spark_ms + took)

    def _trace(self, number: int, tracked: _Tracked) -> None:
        """An attempt is over, and so is its span."""
        if not self._traces.on or tracked.begun_ms is None:
            return
        span = self._traces.begin(
            "sink batch" if self._to_sink else "spark batch",
            {
                "headgate.task": self.task,
                "headgate.step": self.step,
                "headgate.batch": self._id(number),
                "headgate.attempt": tracked.attempts,
                "headgate.results": tracked.results,
            },
            began_ns=tracked.begun_ms * 1_000_000,
        )
        if span is not None:
            if tracked.error:
                span.failed(tracked.error)
            span.end()

    def _track(self, number: int) -> _Tracked:
        return self._by_number.setdefault(number, _Tracked())

    def _id(self, number: int) -> str:
        return f"{self.task}/{self.step}/{number}"

    # ------------------------------------------------------------------------------------------------------------ what is seen

    def look(self, now: Circumstances) -> StepBatches:
        """The batches now: first those that are closed, in their order, then the open ones."""
        more, before = now.spark.retries.get(f"{self.task}/{self.step}", NEVER_RETRIED), self._retries
        retried = self.tally.retried + max(0, more.times - before.times)
        retry_ms = self.tally.retry_ms + max(0, more.sum_ms - before.sum_ms)
        return StepBatches(
            self.task,
            self.step,
            (*(self._closed(one, now) for one in self._book.closed), *(self._open(one, now) for one in self._opened())),
            tuple(self._done),
            replace(self.tally, retried=retried, retry_ms=retry_ms),
            self._to_sink,
            now.held,
        )

    def _opened(self) -> list[Open]:
        return sorted(self._book.open.values(), key=lambda one: one.number)

    def _seen(self, one: Open | Closed, state: str, now: Circumstances) -> BatchSeen:
        """What is known of any batch."""
        return BatchSeen(
            id=self._id(one.number),
            task=self.task,
            step=self.step,
            number=one.number,
            state=state,
            rows=one.rows,
            size=one.size if now.ranges is None else None,
            ranges=now.offsets(one.number),
            window=_window(one),
            latest_ms=one.latest_ms if now.ranges is None else None,
            opened_ms=one.since_ms,
        )

    def _open(self, one: Open, now: Circumstances) -> BatchSeen:
        old_ms = now.limits.max_age_ms
        closes_in_ms = None if old_ms is None else one.since_ms + old_ms - now.ms
        why = collects(one.rows, now.limits.max_rows, closes_in_ms, window=one.start is not None)
        return replace(self._seen(one, OPEN, now), since_ms=one.since_ms, why=why)

    def _closed(self, one: Closed, now: Circumstances) -> BatchSeen:
        tracked = self._by_number.get(one.number) or _Tracked()
        attempt = now.spark.attempts.get(self._id(one.number)) if tracked.under_way else None
        state, since_ms, why = self._state(one, tracked, attempt, now)
        return replace(
            self._seen(one, state, now),
            closed_by=one.why,
            closed_ms=tracked.closed_ms,
            since_ms=since_ms,
            stage=attempt.stage if attempt is not None else tracked.stage,
            attempt=tracked.attempts + tracked.repeated + (attempt.number - 1 if attempt is not None else 0),
            why=why,
            error=(attempt.error if attempt is not None else "") or tracked.error,
            progress=attempt.progress if attempt is not None else None,
            retry_ms=tracked.retry_ms if attempt is None or attempt.retry_ms is None else attempt.retry_ms,
        )

    def _state(
        self, one: Closed, tracked: _Tracked, attempt: SparkAttempt | None, now: Circumstances
    ) -> tuple[str, int | None, str]:
        """The state of a closed batch, since when it is in it, and what it waits for."""
        if tracked.again_ms is not None and not tracked.under_way:
            seconds = max(0, tracked.again_ms - now.ms) / 1000
            state = RETURNED if one.whole else CLOSED
            return state, tracked.returned_ms, f"{self._who} is away; it is tried again in {seconds:.0f} s"
        if one.whole or (tracked.returned_ms is not None and not tracked.error):
            to = [path for path, _ in one.named.values()]
            first = self._book.closed[0].number
            why = returned_for(one.number, first, one.sent, one.stored, whole=one.whole, written_to=to)
            return RETURNED, tracked.returned_ms, why
        if attempt is not None and attempt.doing in (AT_WORK, ISOLATING):
            why = f"looks for the rows that make {self._who} fail" if attempt.doing == ISOLATING else ""
            return RUNNING, attempt.since_ms, why
        if tracked.error and not tracked.under_way:
            return CLOSED, tracked.returned_ms, "its last attempt failed, and it runs again when its task does"
        begun = sum(1 for other in self._by_number.values() if other.under_way)
        given = attempt or (SparkAttempt("") if tracked.under_way else None)
        if self._to_sink:
            first = self._book.closed[0].number
            why = waits_for_sink(one.number, one.turn, durable=now.durable, attempt=given, first=first)
            return CLOSED, tracked.begun_ms or tracked.closed_ms, why
        why = waits_for(
            one.turn,
            durable=now.durable,
            begun=begun,
            in_flight=now.in_flight,
            attempt=given,
            session=now.spark.session,
        )
        return CLOSED, tracked.begun_ms or tracked.closed_ms, why


def _window(one: Open | Closed) -> tuple[int, int] | None:
    return None if one.start is None or one.end is None else (one.start, one.end)
