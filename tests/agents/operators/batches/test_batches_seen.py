"""What a batch step says of its batches: their states and what they wait for, sums, the last that are done, and what is logged."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from structlog.testing import capture_logs

from headgate.agents.operators.batches.batches_seen import LOG_EVERY_MS, MOST_DONE, BatchesSeen, Circumstances
from headgate.core.batching.batch_progress import (
    AT_WORK,
    ISOLATING,
    QUEUED,
    READY,
    STARTING,
    AtSpark,
    BatchSeen,
    Retried,
    SparkAttempt,
    SparkProgress,
    SparkState,
)
from headgate.core.batching.batches import BatchOutcome, Book, Limits, WindowBounds
from headgate.core.batching.ranges import Range, RangeRead

T = "Partition 0"
BEFORE = Retried(3, 900, 500, "it died long ago")
"""What the bridge has repeated before the task came here."""


class Rig:
    """A step, its bookkeeping and a clock."""

    def __init__(self) -> None:
        self.now = 1_000
        self.book = Book()
        self.seen = BatchesSeen(T, "daily", self.book, lambda: self.now, {f"{T}/daily": BEFORE})

    def add(self, rows: int, window: WindowBounds | None = None) -> None:
        self.book = self.book.with_rows(window, rows, rows * 10, now_ms=self.now, times=(self.now, self.now))
        self.seen.complete(self.book)

    def close(self, why: str = "rows", *windows: WindowBounds | None) -> None:
        self.book = self.book.close(why, windows or (None,))
        self.seen.complete(self.book)

    def done(self) -> None:
        self.book = self.book.done()
        self.seen.complete(self.book)

    def look(
        self, durable: int = 99, spark: AtSpark | None = None, in_flight: int = 1, limits: Limits | None = None
    ) -> Any:
        at_spark = spark or AtSpark(SparkState(READY), retries={f"{T}/daily": BEFORE})
        return self.seen.look(Circumstances(self.now, durable, in_flight, limits or Limits(), at_spark))

    def batches(self, **now: Any) -> list[BatchSeen]:
        return list(self.look(**now).batches)


@pytest.fixture
def rig() -> Rig:
    return Rig()


@pytest.fixture
def logs() -> Iterator[list[Any]]:
    with capture_logs() as found:
        yield found


def test_a_batch_goes_through_all_states(rig: Rig) -> None:
    """Each with its rows and bytes, since when, and what it waits for."""
    rig.add(7)
    (one,) = rig.batches(limits=Limits(max_rows=10, max_age_ms=2_500))
    assert (one.id, one.state, one.rows, one.size, one.since_ms) == (f"{T}/daily/1", "open", 7, 70, 1_000)
    assert one.why == "collects rows: 7 of 10; closes in 2.5 s at the latest"
    rig.now = 2_000
    rig.close()
    (one,) = rig.batches(durable=0)
    assert (one.state, one.closed_by, one.since_ms, one.why) == (
        "closed",
        "rows",
        2_000,
        "waits for the commit of its closing",
    )
    starting = AtSpark(SparkState(STARTING))
    (one,) = rig.batches(spark=starting)
    assert (one.state, one.why) == ("closed", "Spark is starting")
    rig.now = 3_000
    rig.seen.began(1)
    waits = SparkAttempt("sums", 1, QUEUED)
    (one,) = rig.batches(spark=AtSpark(SparkState(READY), {one.id: waits}))
    assert (one.state, one.why, one.attempt, one.stage) == ("closed", "waits for a thread to Spark", 1, "sums")
    works = SparkAttempt("sums", 1, AT_WORK, 3_500, progress=SparkProgress(1, 2, 1, 8, 3, at_ms=3_600))
    (one,) = rig.batches(spark=AtSpark(SparkState(READY), {one.id: works}))
    assert (one.state, one.since_ms, one.why, one.progress) == ("running", 3_500, "", works.progress)
    rig.now = 4_000
    rig.seen.returned(1, [BatchOutcome([], 5, [(0, {}, ValueError())])])
    (one,) = rig.batches()
    assert (one.state, one.since_ms, one.why) == ("returned", 4_000, "its result is about to be sent")
    rig.now = 5_000
    rig.done()
    found = rig.look()
    assert found.batches == ()
    (done,) = found.done
    assert (done.rows, done.results, done.poisoned, done.attempts) == (7, 5, 1, 1)
    assert (done.opened_ms, done.closed_ms, done.begun_ms, done.returned_ms, done.done_ms) == (
        1_000,
        2_000,
        3_000,
        4_000,
        5_000,
    )
    tally = found.tally
    assert (tally.opened, tally.closed, tally.done, tally.rows, tally.size) == (1, {"rows": 1}, 1, 7, 70)
    assert (tally.results, tally.poisoned, tally.retried, tally.spark_ms) == (5, 1, 0, 1_000)


def test_a_failed_attempt_is_told_and_the_next_is_counted(rig: Rig) -> None:
    """Repeated by the task, or by the bridge when a process of Spark died."""
    rig.add(1)
    rig.close()
    rig.seen.began(1)
    error = ValueError("no such column")
    error.stage = "sums"  # type: ignore[attr-defined]
    rig.seen.failed(1, error)
    (one,) = rig.batches()
    assert (one.state, one.stage, one.error) == ("closed", "sums", "no such column")
    assert one.why == "its last attempt failed, and it runs again when its task does"
    rig.now += 70
    rig.seen.began(1)
    (one,) = rig.batches()
    assert one.retry_ms == 70
    more = BEFORE.again("the JVM died").after(4_200)
    works = SparkAttempt("sums", 2, ISOLATING, error="the JVM died", retry_ms=4_200)
    found = rig.look(spark=AtSpark(SparkState(READY), {one.id: works}, {f"{T}/daily": more}))
    (one,) = found.batches
    assert one.retry_ms == 4_200
    assert (one.state, one.attempt, one.error, one.why) == (
        "running",
        3,
        "the JVM died",
        "looks for the rows that make Spark fail",
    )
    assert (found.tally.retried, found.tally.retry_ms) == (2, 4_270)
    rig.seen.returned(1, [BatchOutcome([], 5, retried=Retried(1, 4_200, 4_200, "the JVM died"))])
    rig.done()
    (done,) = rig.look().done
    assert (done.attempts, done.retry_ms, done.error) == (3, 4_200, "the JVM died")


def test_one_that_was_lost_for_good_tells_its_attempts(rig: Rig) -> None:
    """The bridge has tried it three times, and the task tries again."""
    rig.add(1)
    rig.close()
    rig.seen.began(1)
    error = ValueError("lost 3 times")
    error.retried = Retried(2, 50, 30, "the JVM died")  # type: ignore[attr-defined]
    rig.seen.failed(1, error)
    (one,) = rig.batches()
    assert (one.attempt, one.retry_ms, one.error) == (3, 30, "lost 3 times")
    rig.seen.began(1)
    rig.seen.returned(1, [BatchOutcome([], 1)])
    rig.done()
    (done,) = rig.look().done
    assert (done.attempts, done.retry_ms, done.error) == (4, 30, "lost 3 times")


def test_what_is_over_the_limit_waits_for_the_others(rig: Rig) -> None:
    """In the order in which they were closed."""
    for _ in range(3):
        rig.add(1)
        rig.close()
    rig.seen.began(1)
    rig.seen.began(2)
    rig.seen.returned(2, [])
    first, second, third = rig.batches(in_flight=1)
    assert (first.state, first.why) == ("closed", "waits for a thread to Spark")
    assert (second.state, second.why) == ("returned", "its result waits for that of batch 1")
    assert (third.state, third.why) == ("closed", "1 of 1 in flight (spark.in-flight)")


def test_what_goes_to_a_sink_waits_for_it_and_not_for_spark(rig: Rig) -> None:
    """One batch after the other: each says what it waits for, and the first one what has failed."""
    rig.seen = BatchesSeen(T, "daily", rig.book, lambda: rig.now, {}, to_sink=True)
    for _ in range(3):
        rig.add(1)
        rig.close()
    rig.seen.began(1)
    sink = AtSpark(attempts={f"{T}/daily/1": SparkAttempt("to-sql", doing=QUEUED)})
    first, second, third = rig.batches(durable=2, in_flight=4, spark=sink)
    assert (first.state, first.why) == ("closed", "waits for a thread to its sink")
    assert (second.state, second.why) == ("closed", "waits for batch 1, which goes to the sink before it")
    assert (third.state, third.why) == ("closed", "waits for the commit of its closing")
    rig.seen.failed(1, ValueError("it is away"))
    rig.seen.began(1)
    sink = AtSpark(attempts={f"{T}/daily/1": SparkAttempt("to-sql", doing=AT_WORK, since_ms=7)})
    first, *_ = found = rig.batches(in_flight=4, spark=sink)
    assert (first.state, first.stage, first.since_ms, first.attempt) == ("running", "to-sql", 7, 2)
    assert (first.error, found[1].why) == ("it is away", "waits for batch 1, which goes to the sink before it")
    assert (rig.look().to_sink, rig.look().held) == (True, False)


def test_windows_are_told(rig: Rig) -> None:
    """An open window waits for the watermark, whatever its rows."""
    hour = WindowBounds(0, 3_600_000)
    rig.add(2, hour)
    (one,) = rig.batches()
    assert (one.window, one.why) == (
        (0, 3_600_000),
        "collects the rows of its window until the watermark has passed it",
    )
    rig.close("watermark", hour)
    rig.done()
    assert rig.look().done[0].window == (0, 3_600_000)


def test_what_was_there_before_the_task_came_is_seen_too(rig: Rig) -> None:
    """Without times of which nothing is known here; nothing is counted twice."""
    rig.add(4)
    rig.close("age")
    rig.seen = BatchesSeen(T, "daily", rig.book, lambda: rig.now, {})
    (one,) = rig.batches()
    assert (one.state, one.rows, one.closed_by, one.since_ms) == ("closed", 4, "age", None)
    assert rig.look(spark=AtSpark(SparkState(READY))).tally.closed == {}
    rig.done()
    assert rig.look().done[0].closed_ms is None


def test_a_batch_by_reference_says_its_offsets(rig: Rig) -> None:
    """Its rows are counted when Spark has read them."""
    rig.add(10)
    rig.close()
    ranges = (Range("orders", 0, 5, 15),)
    now = Circumstances(1, 99, 1, Limits(), AtSpark(SparkState(READY)), lambda _: ranges)
    (one,) = rig.seen.look(now).batches
    assert (one.rows, one.size, one.latest_ms, one.ranges) == (10, None, None, ranges)
    rig.seen.began(1)
    rig.seen.returned(1, [BatchOutcome([], 3, read=[RangeRead(ranges[0], 7)])])
    rig.done()
    assert rig.look().tally.rows == 7


def test_a_large_result_says_how_far_it_is(rig: Rig) -> None:
    """Also after a restart, when nobody knows who ran it."""
    rig.add(1)
    rig.close()
    rig.book = rig.book.with_first(stored=40, whole=True, sent=4)
    rig.seen.complete(rig.book)
    (one,) = rig.batches()
    assert (one.state, one.why) == ("returned", "4 of 40 blocks of its result are sent")


def test_many_batches_are_one_line_and_none_is_lost(rig: Rig, logs: list[Any]) -> None:
    """The first at once; the others together; the rest when the task leaves."""
    for number in range(MOST_DONE + 5):
        rig.add(2)
        rig.close()
        rig.done()
        rig.now += 2 * LOG_EVERY_MS if number == 9 else 1
    rig.seen.close()
    lines = [line for line in logs if line["log_level"] == "info"]
    assert [line["event"] for line in lines] == ["a batch is done", *["batches are done"] * 2]
    assert [line.get("batches", 1) for line in lines] == [1, 10, MOST_DONE - 6]
    assert sum(line["rows"] for line in lines) == 2 * (MOST_DONE + 5)
    assert len(rig.look().done) == MOST_DONE
    rig.seen.close()
    assert len([line for line in logs if line["log_level"] == "info"]) == 3


def test_failures_and_poison_are_warnings(rig: Rig, logs: list[Any]) -> None:
    """With the batch, so that it can be found in the dead letters."""
    rig.add(2)
    rig.close()
    rig.seen.began(1)
    rig.seen.failed(1, RuntimeError())
    rig.seen.began(1)
    rig.seen.returned(1, [BatchOutcome([], 1, [(1, {}, ValueError())])])
    rig.done()
    warnings = [(line["event"], line["batch"]) for line in logs if line["log_level"] == "warning"]
    assert warnings == [
        ("a batch failed in Spark", f"{T}/daily/1"),
        ("rows made Spark fail and were left out", f"{T}/daily/1"),
    ]
