"""Errors of Spark, distinguished by what helps: another session, another plan, or other rows.

Errors of PySpark ask the JVM for their text whenever they are printed. Here they become text at once, in the thread of the call, so that
no log line and no traceback of the worker ever waits for a JVM.
"""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from typing import Any

from ..core.batch_progress import NEVER_RETRIED
from ..core.errors import EnvironmentFault, HeadgateError, cause_for, causes
from .spool_reader import UNREACHED

MOST_TEXT = 2000
MOST_TRACE = 20_000
GONE = (
    "Python worker exited unexpectedly",
    "ExecutorLostFailure",
    "Executor heartbeat timed out",
    "SPARK_JOB_CANCELLED",
    "OPERATION_CANCELED",
)
"""Texts in Spark's errors if a process died during the batch, or if its jobs were cancelled."""
OVER = (
    "SparkContext was shut down",
    "stopped SparkContext",
    "NO_ACTIVE_SESSION",
    "INVALID_HANDLE",
    "RESPONSE_ALREADY_RECEIVED",
    "SESSION_CLOSED",
    "StatusCode.UNAVAILABLE",
    "failed to connect to all addresses",
    "Cannot invoke RPC on closed channel",
)
"""Texts in Spark's errors if the whole session is over."""
TOO_LARGE = {
    "spark.driver.maxResultSize": "make smaller batches, return less from each, let Spark write the result itself (.write), or raise "
    "spark.driver.maxResultSize together with spark.driver.memory",
    "spark.rpc.message.maxSize": "make smaller batches, or raise spark.rpc.message.maxSize (in MiB)",
    "RESOURCE_EXHAUSTED": "make smaller batches, or raise spark.connect.grpc.maxInboundMessageSize on the Connect server",
    "LOCAL_RELATION_SIZE_LIMIT_EXCEEDED": "make smaller batches, or raise spark.sql.session.localRelationSizeLimit",
}
"""Texts in Spark's errors if something is larger than a limit, and what to do."""
MEMORY = ("OutOfMemoryError", "GC overhead limit exceeded", "MemoryError", "Cannot allocate memory")
NO_MODULE = "ModuleNotFoundError: "
NO_COLUMN = ("ArrayIndexOutOfBoundsException", "ArrowColumnVector.getChild")
"""Texts in Spark's error if record batches that a Python function gives lack a declared column; all are there."""


NO_VIEW = "TABLE_OR_VIEW_NOT_FOUND"


class SparkError(HeadgateError):
    """The base class. `final`: no retry can succeed. `stage`: the step whose function failed."""

    final = False
    stage = ""
    retried = NEVER_RETRIED
    """The attempts that were repeated before this one."""


class SparkPlanError(SparkError):
    """The function's plan is wrong (an unknown column, a result that does not match the schema), whatever the rows."""

    final = True


class SparkRowError(SparkError):
    """Code or data of the batch's rows made Spark fail. `inside`: of a batch of frames, the row that did, with its number in its frame."""

    inside: tuple[int, Mapping[str, Any]] | None = None


class SparkLost(SparkError):
    """The session, an executor or a Python worker died during the batch. The same rows may succeed when they run again.

    `session`: whether the whole session is over, and with it every batch that ran.
    """

    session = False


class SparkDown(SparkError, EnvironmentFault):
    """No session can be started. The batch is not to blame, and may succeed when Spark starts again."""


class SparkAway(SparkDown):
    """The cluster or the Connect server does not answer, or gives no executor. It may come back."""


class BrokersAway(SparkAway):
    """The executors have all they need, but do not reach Kafka. Their session is good as soon as they do."""


class SparkSaid(Exception):
    """An error of PySpark as text."""


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
    if any(sign in text for sign in OVER):
        return lost_session(first_lines(text))
    if any(sign in text for sign in MEMORY):
        return SparkLost(
            first_lines(text),
            remedy="make smaller batches, or give more memory: spark.driver.memory, spark.executor.memory, "
            "spark.executor.pyspark.memory",
        )
    for sign, remedy in TOO_LARGE.items():
        if sign in text:
            return SparkPlanError(first_lines(text), remedy=remedy)
    if NO_MODULE in text and isinstance(error, Py4JJavaError | PySparkException):
        return SparkPlanError(
            f"on Spark's executors: {text[text.index(NO_MODULE) :].splitlines()[0]}",
            remedy="name the code in spark.package, or install it on the executors",
        )
    if all(sign in text for sign in NO_COLUMN):
        return SparkPlanError(
            "a function of record batches (mapInArrow, applyInArrow …) gives fewer columns than its schema declares",
            remedy="give each declared column, in the declared order, or fix the schema that was passed with the function",
        )
    if NO_VIEW in text and isinstance(error, AnalysisException):
        return SparkPlanError(
            first_lines(text),
            remedy="each batch has a session of its own, df.sparkSession, with the temporary views that its function has created: "
            "use df.sparkSession.sql(…) or .table(…)",
        )
    if isinstance(error, AnalysisException | ParseException):
        return SparkPlanError(first_lines(text), remedy="fix the function or the schema= of .spark()")
    if isinstance(error, Py4JJavaError | PySparkException):
        return SparkRowError(first_lines(text))
    if isinstance(error, Py4JError | ConnectionError | EOFError | OSError):
        return lost_session(f"the JVM cannot be reached: {first_lines(text)}")
    return SparkPlanError(f"{type(error).__name__}: {first_lines(text)}")


def lost_session(what: str, *, remedy: str = "") -> SparkLost:
    """The error of a batch whose session is over."""
    found = SparkLost(what, remedy=remedy)
    found.session = True
    return found


def cause_of(found: SparkError, error: BaseException) -> BaseException | None:
    """What to write after `raise found from`: the error itself if printing it needs no JVM, otherwise its text."""
    if found is error:
        return error.__cause__
    if not any(type(one).__module__.partition(".")[0] in ("py4j", "pyspark", "grpc") for one in causes(error)):
        return cause_for(found, error)
    try:
        text = "".join(traceback.format_exception(error))
    except Exception:  # noqa: BLE001 - its text is in a JVM that is dead
        text = type(error).__name__
    return SparkSaid(text[:MOST_TRACE])


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
