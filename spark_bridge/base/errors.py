"""Errors of Spark, distinguished by what helps: another session, another plan, or other rows.

Errors of PySpark ask the JVM for their text whenever they are printed. Here they become text at once, in the thread of the call, so that
no log line and no traceback of the worker ever waits for a JVM.
"""

from __future__ import annotations

import re
import traceback

from ...core.batching.batch_progress import NEVER_RETRIED
from ...core.batching.failing import RowError
from ...core.errors import EnvironmentFault, HeadgateError, cause_for, causes
from .faults import Fault, fault_of

MOST_TEXT = 2000
MOST_TRACE = 20_000
GONE = ("Python worker exited unexpectedly", "[SPARK_JOB_CANCELLED]")
"""How messages of a SparkException begin if a process died during the batch, or if its jobs were cancelled."""
CANCELLED = frozenset({"SPARK_JOB_CANCELLED", "OPERATION_CANCELED"})
OVER = frozenset({"NO_ACTIVE_SESSION", "INVALID_HANDLE", "RESPONSE_ALREADY_RECEIVED", "SESSION_CLOSED"})
"""Error classes if the whole session is over."""
STOPPED = (
    "Cannot call methods on a stopped SparkContext",
    "SparkContext has been shutdown",
    "SparkContext was shut down",
)
_SHUT_DOWN = re.compile(r"Job \d+ cancelled because SparkContext was shut down")
RESULTS, TASK = "Total size of serialized results of ", "Serialized task "
"""How the scheduler begins when results, or a task with its rows, are larger than it may send."""
TOO_LARGE = {
    RESULTS: "make smaller batches, return less from each, let Spark write the result itself (.write), or raise "
    "spark.driver.maxResultSize together with spark.driver.memory",
    TASK: "make smaller batches, or raise spark.rpc.message.maxSize (in MiB)",
    "RESOURCE_EXHAUSTED": "make smaller batches, or raise spark.connect.grpc.maxInboundMessageSize on the Connect server",
    "LOCAL_RELATION_SIZE_LIMIT_EXCEEDED": "make smaller batches, or raise spark.sql.session.localRelationSizeLimit",
}
"""What to do if something is larger than a limit."""
NOT_IMPORTED = frozenset({"ModuleNotFoundError", "ImportError"})
MEMORY = frozenset({"MemoryError", "ArrowMemoryError"})
SPOOL_READER = "spark_bridge/data/spool_reader.py"
NO_VIEW = "TABLE_OR_VIEW_NOT_FOUND"
NO_COLUMN = "ArrowColumnVector.getChild"
"""Where Spark fails if record batches that a Python function gives lack a declared column."""


class SparkError(HeadgateError):
    """The base class. `final`: no retry can succeed. `stage`: the step whose function failed. `worker_line`: file and number of the
    line of the user's code that a Python worker has named."""

    final = False
    stage = ""
    worker_line: tuple[str, int] | None = None
    retried = NEVER_RETRIED
    """The attempts that were repeated before this one."""


class SparkPlanError(SparkError):
    """The function's plan is wrong (an unknown column, a result that does not match the schema), whatever the rows."""

    final = True


class SparkRowError(SparkError, RowError):
    """Code or data of the batch's rows made Spark fail."""


class SparkFunctionError(SparkRowError):
    """The function itself raised, on the driver: what it asks may be away, or some of its rows are not what it expects."""


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
    """An error of PySpark as text, with the frames through which it came."""


def typed(error: BaseException) -> SparkError:
    """The typed error for an exception of a Spark call, with Spark's own message.

    It judges by the facts of the error alone, never by a text that may hold data. The owner of the session must decide whether the session
    was still alive.
    """
    if isinstance(error, SparkError):
        return error
    fault, text = fault_of(error), first_lines(said(error))
    if not fault.of_spark:
        return SparkFunctionError(f"{type(error).__name__}: {text}")
    found = _lost(fault, text) or _too_large(fault, text) or _of_code(fault, error, text) or _other(fault, error, text)
    found.worker_line = fault.line
    return found


def _lost(fault: Fault, text: str) -> SparkError | None:
    """What has died, or has no memory left."""
    away = any(one.kind == "" and one.what.startswith("ExecutorLostFailure") for one in fault.chain)
    if away or fault.condition in CANCELLED or fault.threw("SparkException", *GONE):
        return SparkLost(text)
    stopped = any(_SHUT_DOWN.match(one.what) for one in fault.chain if one.kind.endswith("SparkException"))
    if (
        stopped
        or fault.condition.partition(".")[0] in OVER
        or fault.status == "UNAVAILABLE"
        or fault.threw("IllegalStateException", *STOPPED)
        or fault.threw("SparkException", *STOPPED)
    ):
        return lost_session(text)
    if fault.threw("OutOfMemoryError") or fault.raised.rpartition(".")[2] in MEMORY:
        return SparkLost(
            text,
            remedy="make smaller batches, or give more memory: spark.driver.memory, spark.executor.memory, "
            "spark.executor.pyspark.memory",
        )
    return None


def _too_large(fault: Fault, text: str) -> SparkError | None:
    for sign, remedy in TOO_LARGE.items():
        scheduler = any(one.kind == "" and one.what.startswith(sign) for one in fault.chain)
        if scheduler or sign == fault.status or sign == fault.condition.partition(".")[0]:
            return SparkPlanError(text, remedy=remedy)
    return None


def _of_code(fault: Fault, error: BaseException, text: str) -> SparkError | None:
    """What runs on executors, and cannot for any row."""
    if any(place.endswith(SPOOL_READER) for place in fault.places):
        return SparkPlanError(text, remedy="set spark.spool to a directory that this worker and all executors share")
    if fault.raised in NOT_IMPORTED:  # a function may import what a row names; code that cannot be loaded serves no row
        kind = SparkRowError if fault.called else SparkPlanError
        return kind(
            f"on Spark's executors: {text}", remedy="name the code in spark.package, or install it on the executors"
        )
    if fault.threw("ArrayIndexOutOfBoundsException") and re.search(
        rf"^\s+at \S*{NO_COLUMN}\(", said(error), re.MULTILINE
    ):
        return SparkPlanError(
            "a function of record batches (mapInArrow, applyInArrow …) gives fewer columns than its schema declares",
            remedy="give each declared column, in the declared order, or fix the schema that was passed with the function",
        )
    return None


def _other(fault: Fault, error: BaseException, text: str) -> SparkError:
    """A plan that Spark refuses, rows on which it fails, or a JVM that does not answer."""
    if fault.analysis and fault.condition.partition(".")[0] == NO_VIEW:
        return SparkPlanError(
            text,
            remedy="each batch has a session of its own, df.sparkSession, with the temporary views that its function has created: "
            "use df.sparkSession.sql(…) or .table(…)",
        )
    if fault.analysis:
        return SparkPlanError(text, remedy="fix the function or the schema= of .spark()")
    if fault.ran:
        return SparkRowError(text)
    if fault.checked or isinstance(error, TypeError | AttributeError | LookupError | NotImplementedError):
        return SparkPlanError(
            f"{type(error).__name__}: {text}", remedy="fix the function: PySpark refuses what it passes"
        )
    return lost_session(f"the JVM cannot be reached: {text}")


def lost_session(what: str, *, remedy: str = "") -> SparkLost:
    """The error of a batch whose session is over."""
    found = SparkLost(what, remedy=remedy)
    found.session = True
    return found


def cause_of(found: SparkError, error: BaseException) -> BaseException | None:
    """What to write after `raise found from`: the error itself if printing it needs no JVM, otherwise its text with its frames, which keep
    nothing of Spark alive."""
    if found is error:
        return error.__cause__
    if not any(type(one).__module__.partition(".")[0] in ("py4j", "pyspark", "grpc") for one in causes(error)):
        return cause_for(found, error)
    try:
        text = "".join(traceback.format_exception_only(error)).strip()
    except Exception:  # noqa: BLE001 - its text is in a JVM that is dead
        text = type(error).__name__
    traceback.clear_frames(error.__traceback__)
    return SparkSaid(text[:MOST_TRACE]).with_traceback(error.__traceback__)


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
