"""Spark's failures, told apart by what helps."""

from __future__ import annotations

import pytest

from headgate.spark_bridge.errors import SparkLost, SparkPlanError, SparkRowError, first_lines, typed


def test_a_refused_connection_is_a_dead_jvm() -> None:
    """That is what every call says after the JVM was killed."""
    assert isinstance(typed(ConnectionRefusedError(111, "Connection refused")), SparkLost)


@pytest.mark.parametrize("text", ["Python worker exited unexpectedly (crashed)", "SparkContext was shut down"])
def test_who_died_under_the_batch_is_tried_again(text: str) -> None:
    """A Python worker, an executor, a context that somebody stopped."""
    assert isinstance(typed(RuntimeError(text)), SparkLost)
    assert not SparkLost.final


def test_an_error_of_the_function_itself_is_a_plan_error() -> None:
    """`fn(df, batch)` runs once for a batch, not once a row: what it raises no rows will make right."""
    error = typed(KeyError("country"))
    assert isinstance(error, SparkPlanError)
    assert error.final
    assert "KeyError: 'country'" in str(error)


def test_too_much_in_one_piece_says_so() -> None:
    """More results than the driver takes: smaller batches are the remedy."""
    for text, setting in (
        ("Total size of serialized results is bigger than spark.driver.maxResultSize", "spark.driver.memory"),
        ("Serialized task 3:0 was 600 bytes, which exceeds max allowed: spark.rpc.message.maxSize", "spark.rpc"),
        ("StatusCode.RESOURCE_EXHAUSTED: Received message larger than max", "maxInboundMessageSize"),
    ):
        error = typed(RuntimeError(text))
        assert isinstance(error, SparkPlanError)
        assert "smaller batches" in error.remedy
        assert setting in error.remedy


def test_errors_stay_as_they_are() -> None:
    """What is typed already is not wrapped again."""
    error = SparkRowError("x")
    assert typed(error) is error


def test_the_jvm_stack_is_left_out() -> None:
    """The message of Spark, not the hundred lines where it happened."""
    text = "[UNRESOLVED_COLUMN] no such column\n  at org.apache.spark.A\n  at org.apache.spark.B"
    assert first_lines(text) == "[UNRESOLVED_COLUMN] no such column"
    python = 'x\nTraceback (most recent call last):\n  File "a.py", line 1\nValueError: bad key\n\n  at org.A'
    assert first_lines(python) == "ValueError: bad key"


def test_an_error_that_cannot_be_said_is_named() -> None:
    """py4j fetches the text of Java's exceptions when it is asked for, from a JVM that may be dead by then."""

    class Mute(RuntimeError):
        def __str__(self) -> str:
            raise ConnectionRefusedError(111, "Connection refused")

    assert "Mute" in str(typed(Mute()))
