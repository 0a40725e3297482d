"""What is known of Spark while it works: the session, attempts and their progress; and that watching disturbs nothing."""

from __future__ import annotations

from types import SimpleNamespace as Bag
from typing import Any

from headgate.core.batch_progress import AT_WORK, ISOLATING, LOST, QUEUED, READY, STARTING, STOPPED, SparkProgress
from headgate.core.batches import BatchInfo
from headgate.spark_bridge.watch import Watch, of_connect, of_group

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
    assert (seen.attempts, seen.retries) == ({}, {"Partition 0/daily": 1})
    watch.close()


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
        assert watch.seen().attempts[BATCH.id].progress.told() == ""
    watch.close()
