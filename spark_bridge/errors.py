"""Errors of Spark, distinguished by what helps: another session, another plan, or other rows."""

from __future__ import annotations

from ..core.errors import EnvironmentFault, HeadgateError
from .spool_reader import UNREACHED

MOST_TEXT = 2000
GONE = (
    "Python worker exited unexpectedly",
    "ExecutorLostFailure",
    "SparkContext was shut down",
    "stopped SparkContext",
    "SPARK_JOB_CANCELLED",
)
"""Texts in Spark's errors if a process died during the batch, or if the job was cancelled from outside."""
TOO_LARGE = ("spark.driver.maxResultSize", "spark.rpc.message.maxSize")


class SparkError(HeadgateError):
    """The base class. `final`: no retry can succeed. `stage`: the step whose function failed."""

    final = False
    stage = ""


class SparkPlanError(SparkError):
    """The function's plan is wrong (an unknown column, a result that does not match the schema), whatever the rows."""

    final = True


class SparkRowError(SparkError):
    """Code or data of the batch's rows made Spark fail."""


class SparkLost(SparkError):
    """The JVM, an executor or a Python worker died during the batch. The same rows may succeed on a new session."""


class SparkDown(SparkError, EnvironmentFault):
    """No session can be started. The batch is not to blame, and may succeed when Spark starts again."""


def typed(error: BaseException) -> SparkError:
    """The typed error for an exception of a Spark call, with Spark's own message.

    It judges by the error alone. The owner of the session must decide whether the session was still alive.
    """
    from py4j.protocol import Py4JError, Py4JJavaError
    from pyspark.errors import AnalysisException, ParseException, PySparkException

    text = said(error)
    if isinstance(error, SparkError):
        return error
    if any(sign in text for sign in GONE):
        return SparkLost(first_lines(text))
    if UNREACHED in text:
        return SparkPlanError(
            first_lines(text), remedy="set spark.spool to a directory that this worker and all executors share"
        )
    if any(sign in text for sign in TOO_LARGE):
        return SparkPlanError(first_lines(text), remedy="make smaller batches, or return less from each")
    if isinstance(error, AnalysisException | ParseException):
        return SparkPlanError(first_lines(text), remedy="fix the function or the schema= of .spark()")
    if isinstance(error, Py4JJavaError | PySparkException):
        return SparkRowError(first_lines(text))
    if isinstance(error, Py4JError | ConnectionError | EOFError | OSError):
        return SparkLost(f"the JVM cannot be reached: {first_lines(text)}")
    return SparkPlanError(f"{type(error).__name__}: {first_lines(text)}")


def said(error: BaseException) -> str:
    """The text of an error. Some of py4j's errors fetch theirs from the JVM, which may be dead; then the name of the type must do."""
    try:
        return str(error).strip()
    except Exception:  # noqa: BLE001 - it has no text, for whatever reason
        return type(error).__name__


def first_lines(text: str) -> str:
    """Spark's message without the stack of its JVM. For an exception of a Python worker, the last line of its traceback."""
    head, python, trace = text.partition("Traceback (most recent call last):")
    if python:
        raised = [line for line in trace.splitlines() if line and not line[0].isspace()]
        if raised:
            return raised[0][:MOST_TEXT]
    lines = [line for line in head.splitlines() if line.strip() and not line.lstrip().startswith("at ")]
    return "\n".join(lines[:12])[:MOST_TEXT]
