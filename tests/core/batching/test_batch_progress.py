"""What people are told about batches: what each waits for, how far Spark is, and sums that lose nothing."""

from __future__ import annotations

import doctest

import pytest

from headgate.core.batching import batch_progress
from headgate.core.batching.batch_progress import (
    LOST,
    NOT_STARTED,
    READY,
    STARTING,
    SparkAttempt,
    SparkMemory,
    SparkProgress,
    SparkState,
    Tally,
    collects,
    held_by,
    returned_for,
    waits_for,
    waits_for_sink,
    waits_for_spark,
)


@pytest.mark.parametrize(
    ("number", "begun", "attempt", "session", "said"),
    [
        (9, 0, None, READY, "waits for the commit of its closing"),
        (8, 2, None, READY, "2 of 2 in flight (spark.in-flight)"),
        (8, 2, SparkAttempt("daily"), STARTING, "Spark is starting"),
        (8, 1, None, NOT_STARTED, "Spark is not started"),
        (8, 2, SparkAttempt("daily"), READY, "waits for a thread to Spark"),
    ],
)
def test_a_closed_batch_says_what_it_waits_for(
    number: int, begun: int, attempt: SparkAttempt | None, session: str, said: str
) -> None:
    """First its commit, then a place, then Spark itself."""
    told = waits_for(number, durable=9, begun=begun, in_flight=2, attempt=attempt, session=SparkState(session))
    assert told == said


@pytest.mark.parametrize(
    ("turn", "attempt", "said"),
    [
        (9, None, "waits for the commit of its closing"),
        (8, None, "waits for batch 5, which goes to the sink before it"),
        (8, SparkAttempt("s"), "waits for a thread to its sink"),
    ],
)
def test_a_closed_batch_of_a_sink_says_what_it_waits_for(turn: int, attempt: SparkAttempt | None, said: str) -> None:
    """First its commit, then those before it, then a thread."""
    assert waits_for_sink(9, turn, durable=9, attempt=attempt, first=5) == said
    assert waits_for_sink(5, 4, durable=9, attempt=None, first=5) == "waits for a thread to its sink"


def test_what_holds_up_a_stream_is_told_in_one_sentence() -> None:
    """For one task as for many, and without what is not known."""
    one = held_by("daily", tasks=1, batches=5, to_sink=False, oldest_s=None, failing=0)
    assert one == "1 task takes no more records: 5 batches of 'daily' wait for Spark"


def test_a_session_that_comes_back_says_what_became_of_the_last() -> None:
    """Otherwise a restart of Spark looks like the first start."""
    assert waits_for_spark(SparkState(STARTING, why="the JVM died")) == "Spark is starting again: the JVM died"
    assert waits_for_spark(SparkState(LOST, why="no Java")) == "Spark is lost: no Java"


def test_memory_is_told_with_its_bound() -> None:
    """What several processes take together cannot be compared with the bound of each."""
    assert SparkMemory("jvm", 700 << 20).text() == "jvm 700 MiB"
    assert SparkMemory("heap", 300 << 20, 1 << 30).text() == "heap 300 of 1,024 MiB"
    assert SparkMemory("python", 160 << 20, 2 << 30, 2).text() == "python 160 MiB (2 with 2,048 each)"


def test_progress_is_silent_until_spark_has_said_something() -> None:
    """Zeros would look like a job that does nothing."""
    assert SparkProgress(jobs=1, stages=2).text() == ""
    assert SparkProgress(1, 2, 2, 8, 8).text() == "stage 2 of 2, 8 of 8 tasks done"
    assert SparkProgress(1, 2, 0, 8, 1, 2, 3).text() == "stage 1 of 2, 1 of 8 tasks done, 2 running, 3 failed"


def test_a_result_says_whether_it_waits_or_is_sent() -> None:
    """Results leave in order."""
    assert returned_for(7, 7, 0, 0, whole=False) == "its result is about to be sent"
    assert returned_for(7, 7, 0, 8, whole=False) == "8 blocks of its result are stored"
    assert returned_for(7, 7, 2, 8, whole=True, written_to=["file:///out"]) == "2 of 8 blocks of its result are sent"
    named = returned_for(7, 7, 8, 8, whole=True, written_to=["file:///out"])
    assert named == "its files are named, and are published to file:///out"


def test_an_open_batch_says_what_closes_it() -> None:
    """An age that has passed does not count below zero."""
    assert collects(3, None, -5, window=False) == "collects rows; closes in 0.0 s at the latest"
    assert collects(3, 10, None, window=False) == "collects rows: 3 of 10"


def test_the_examples_of_the_words_are_true() -> None:
    """They stand in the docstrings."""
    assert doctest.testmod(batch_progress).failed == 0


def test_sums_keep_every_number() -> None:
    """Of two tasks of one step."""
    one = Tally(1, {"rows": 1}, 1, 10, 100, 5, 1, 1, 7, 20)
    both = one.plus(Tally(2, {"end": 1, "rows": 1}, 3, 30, 300, 15, 2, 3, 8, 30))
    assert both == Tally(3, {"end": 1, "rows": 2}, 4, 40, 400, 20, 3, 4, 15, 50)
