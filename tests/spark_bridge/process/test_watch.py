"""What is known of Spark while it works: the session, attempts and their progress; and that watching disturbs nothing."""

from __future__ import annotations

import contextlib
import threading
import time
from types import SimpleNamespace as Bag
from typing import Any

import pytest
from structlog.testing import capture_logs

from headgate.core.batching.batch_progress import (
    AT_WORK,
    ISOLATING,
    LOST,
    QUEUED,
    READY,
    STARTING,
    STOPPED,
    Retried,
    SparkMemory,
    SparkProgress,
)
from headgate.core.batching.batches import BatchInfo
from headgate.spark_bridge.base.errors import SparkAway, SparkDown, SparkError, SparkLost, SparkRowError
from headgate.spark_bridge.process.watch import Watch, of_connect, of_group

BATCH = BatchInfo("Partition 0", "daily", 7, 100, "rows")


def stage(tasks: int, done: int, active: int = 0, failed: int = 0) -> Any:
    return Bag(numTasks=tasks, numCompletedTasks=done, numActiveTasks=active, numFailedTasks=failed)


def session(jobs: dict[int, tuple[str, list[int]]], stages: dict[int, Any]) -> Any:
    """A session whose tracker knows these jobs and stages, and counts what it was asked."""
    asked: list[int] = []

    def info(job: int) -> Any:
        asked.append(job)
        return Bag(status=jobs[job][0], stageIds=jobs[job][1]) if job in jobs else None

    tracker = Bag(getJobIdsForGroup=lambda group: [*jobs, 99], getJobInfo=info, getStageInfo=stages.get)
    context = Bag(statusTracker=lambda: tracker, uiWebUrl="http://here:4040")
    return Bag(sparkContext=context, version="4.0.0", asked=asked)


def test_the_session_is_followed_from_its_start_to_its_end() -> None:
    """Also the one after a crash, with the reason."""
    watch = Watch("local[2]")
    watch.starts("local[2]")
    assert watch.seen().session.state == STARTING
    watch.is_ready(session({}, {}))
    seen = watch.seen().session
    assert (seen.state, seen.version, seen.ui, seen.started) == (READY, "4.0.0", "http://here:4040", 1)
    watch.is_lost("the JVM died")
    seen = watch.seen().session
    assert (seen.state, seen.ui, seen.why) == (LOST, "", "the JVM died")
    watch.starts("local[2]", "the JVM died")
    watch.is_ready(session({}, {}))
    assert (watch.seen().session.started, watch.seen().session.why) == (2, "")
    watch.close()
    assert watch.seen().session.state == STOPPED
    watch.is_ready(session({}, {}))  # its start was under way
    assert (watch.seen().session.state, watch.seen().session.started) == (STOPPED, 2)


def test_what_spark_takes_of_memory_is_measured_while_there_is_a_session(monkeypatch: Any) -> None:
    """By the thread that watches. What cannot be measured stays as it was, and a session that is lost takes nothing."""
    monkeypatch.setattr("headgate.spark_bridge.process.watch.EVERY_S", 0.001)
    monkeypatch.setattr("headgate.spark_bridge.process.watch.MEASURE_EVERY_S", 0.0)
    asked, failed = threading.Event(), threading.Event()
    jvm = (SparkMemory("jvm", 7),)

    def measure() -> tuple[SparkMemory, ...]:
        if watch.seen().session.taken:
            failed.set()
            raise ConnectionRefusedError
        asked.set()
        return jvm

    watch = Watch()
    watch.is_ready(session({}, {}), {}, None, measure)
    assert asked.wait(60)
    assert failed.wait(60)
    assert watch.seen().session.taken == jvm
    watch.is_lost("the JVM died")
    assert watch.seen().session.taken == ()
    watch.close()


def test_an_attempt_is_seen_while_it_lasts() -> None:
    """With what it does, why it is not the first, and nothing behind it."""
    watch = Watch()
    with watch.begin(BATCH, "sums", rows=100) as first:
        assert watch.seen().attempts["Partition 0/daily/7"].doing == QUEUED
        first.at_work(session({}, {}), "g")
        assert watch.seen().attempts[BATCH.id].doing == AT_WORK
        assert watch.seen().session.state == READY  # a session of the caller
    assert watch.seen().attempts == {}
    with watch.begin(BATCH, "sums", number=2, rows=50, error="it died") as second:
        second.at_work(session({}, {}), "g")
        attempt = watch.seen().attempts[BATCH.id]
        assert (attempt.stage, attempt.number, attempt.error, attempt.doing) == ("sums", 2, "it died", ISOLATING)
    seen = watch.seen()
    assert (seen.attempts, seen.retries) == ({}, {"Partition 0/daily": Retried(1, why="it died")})
    watch.close()


def test_how_long_after_its_failure_spark_has_a_batch_again() -> None:
    """Only what died is repeated by the bridge. What is known of a batch is forgotten with it, and its step keeps the sums."""
    watch = Watch()

    def attempt(number: int, fails: Exception | None = None, error: str = "") -> int | None:
        with contextlib.suppress(SparkError), watch.begin(BATCH, "sums", number=number, error=error) as one:
            one.at_work(session({}, {}), "g")
            taken = watch.seen().attempts[BATCH.id].retry_ms
            if fails is not None:
                time.sleep(0.02)
                raise fails
        return taken

    assert attempt(1, SparkLost("it died")) is None
    first = attempt(2, SparkLost("again"), "it died")
    second = attempt(3, None, "again")
    assert first is not None
    assert second is not None
    found = watch.over(BATCH)
    assert found == Retried(2, first + second, max(first, second), "again")
    assert watch.seen().retries == {"Partition 0/daily": found}
    assert watch.over(BATCH) == Retried()
    assert attempt(1, SparkRowError("a row")) is None
    assert attempt(1) is None
    watch.close()


def test_a_server_that_is_away_is_logged_at_growing_intervals(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is tried many times a minute. What, where, since when and what to do are said; and when it is back."""
    now = [1_000.0]
    # the module's own clock, and not that of every thread of the process
    monkeypatch.setattr("headgate.spark_bridge.process.watch.time", Bag(**{**vars(time), "monotonic": lambda: now[0]}))
    watch = Watch("sc://there")
    with capture_logs() as logs:
        for _ in range(600):
            watch.starts("sc://there")
            watch.does_not_start(SparkAway("no server", remedy="start it"))
            now[0] += 1
        watch.starts("sc://there")
        watch.is_ready(session({}, {}))
        watch.starts("sc://there")
    told = [
        (one["for_s"], one["tries"]) for one in logs if one["event"] == "Spark is unavailable, and batches wait for it"
    ]
    assert told == [(0, 1), (10, 11), (20, 21), (40, 41), (80, 81), (160, 161), (320, 321)]
    first = next(one for one in logs if one["log_level"] == "warning")
    assert (first["where"], first["why"], first["remedy"], first["since"][-1]) == (
        "sc://there",
        "no server",
        "start it",
        "Z",
    )
    assert [one["event"] for one in logs if one["log_level"] == "info"] == [
        "Spark is starting",
        "Spark is ready",
        "Spark is starting",
    ]
    (back,) = [one for one in logs if one["event"] == "Spark is ready"]
    assert (back["was_away_s"], back["tries"]) == (600, 600)


def test_what_cannot_be_repaired_is_logged_each_time() -> None:
    """With its remedy: nothing tries it many times a minute."""
    watch = Watch("local[2]")
    with capture_logs() as logs:
        for _ in range(2):
            watch.does_not_start(SparkDown("no Java", remedy="install one"))
    assert [(one["event"], one["why"], one["remedy"]) for one in logs] == [
        ("Spark does not start", "no Java", "install one")
    ] * 2
    assert (watch.seen().session.state, watch.seen().session.why) == (LOST, "no Java")


def test_the_end_of_an_attempt_that_was_replaced_leaves_the_new_one() -> None:
    """A cancelled attempt may return after the next has begun."""
    watch = Watch()
    old = watch.begin(BATCH, "sums")
    new = watch.begin(BATCH, "sums", number=2)
    watch.ended(old)
    assert watch.seen().attempts == {BATCH.id: new.attempt}


def test_the_tracker_is_asked_about_the_jobs_of_the_group() -> None:
    """What a job that succeeded did not run, it skipped; a finished job is asked once; an unknown one is left out."""
    stages = {1: stage(4, 4), 2: stage(8, 0), 3: stage(2, 2), 4: stage(6, 1, 2, 1)}
    of = session({10: ("SUCCEEDED", [1, 2]), 11: ("RUNNING", [3, 4, 5])}, stages)
    ask = of_group(of, "g")
    found = ask()
    assert found == SparkProgress(2, 4, 3, 12, 7, 2, 1, found.at_ms)
    of.asked.clear()
    ask()
    assert of.asked == [11, 99]


def test_a_connect_server_reports_its_stages() -> None:
    """Through `registerProgressHandler`."""
    found = of_connect(
        [Bag(num_tasks=4, num_completed_tasks=4, done=True), Bag(num_tasks=9, num_completed_tasks=1, done=False)], 2
    )
    assert found == SparkProgress(1, 2, 1, 13, 5, 2, 0, found.at_ms)


def test_a_tracker_that_raises_leaves_the_progress_unknown() -> None:
    """The JVM died: others find that."""
    watch = Watch()

    def gone() -> Any:
        raise ConnectionError("gone")

    with watch.begin(BATCH, "sums") as one:
        one.at_work(Bag(sparkContext=Bag(statusTracker=gone, uiWebUrl=None), version="4"), "g")
        one.look()
        assert watch.seen().attempts[BATCH.id].progress.text() == ""
    watch.close()
