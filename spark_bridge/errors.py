"""What can go wrong in Spark, told apart by what helps: another session, another plan, or other rows."""

from __future__ import annotations

from ..core.errors import HeadgateError


class SparkError(HeadgateError):
    """Base. `retriable`: the same batch may succeed on a new session."""

    retriable = False


class SparkPlanError(SparkError):
    """The function's plan is wrong (an unknown column, a result that does not fit the schema): no rows will make it right."""


class SparkRowError(SparkError):
    """Code or data of the batch's rows made Spark fail."""


class SparkLost(SparkError):
    """The JVM, an executor or a Python worker died under the batch."""

    retriable = True


def typed(error: BaseException) -> SparkError:
    """The typed error for what a Spark call raised; Spark's own message stays in it."""
    from py4j.protocol import Py4JError, Py4JJavaError
    from pyspark.errors import AnalysisException, ParseException, PySparkException

    text = str(error).strip()
    if isinstance(error, SparkError):
        return error
    if isinstance(error, AnalysisException | ParseException):
        return SparkPlanError(text[:2000], remedy="correct the function or the schema= of .spark()")
    if isinstance(error, Py4JJavaError):
        if (
            "Python worker exited unexpectedly" in text
            or "ExecutorLostFailure" in text
            or "SparkContext was shut down" in text
        ):
            return SparkLost(text[:2000])
        return SparkRowError(text[:2000])
    if isinstance(error, PySparkException):
        return SparkRowError(text[:2000])
    if isinstance(error, Py4JError | ConnectionError | EOFError | OSError):
        return SparkLost(f"the JVM cannot be reached: {text[:500]}")
    return SparkPlanError(f"{type(error).__name__}: {text[:2000]}")
