"""Spark's failures, told apart by what they are and where they were raised, never by a text that may hold data."""

from __future__ import annotations

from typing import Any

import pytest

from headgate.spark_bridge.base.errors import (
    SparkError,
    SparkFunctionError,
    SparkLost,
    SparkPlanError,
    SparkRowError,
    first_lines,
    typed,
)

SIGNS = (
    "RESOURCE_EXHAUSTED",
    "StatusCode.UNAVAILABLE",
    "Python worker exited unexpectedly",
    "SPARK_JOB_CANCELLED",
    "MemoryError: java.lang.OutOfMemoryError",
    "SparkContext was shut down",
    "ModuleNotFoundError: No module named 'x'",
    "spark.driver.maxResultSize",
    "TABLE_OR_VIEW_NOT_FOUND",
    "a file of spark.spool cannot be read",
    "headgate.core.batching.ranges.RangeGone: x",
    "Job aborted due to stage failure: Total size of serialized results of 1",
    "Job aborted due to stage failure: Serialized task 1",
    "Job aborted due to stage failure: ExecutorLostFailure",
    "Job aborted due to stage failure: org.apache.spark.SparkException: Python worker exited unexpectedly",
    'Traceback (most recent call last):\n  File "/a/spark_bridge/data/spool_reader.py", line 1, in f\nModuleNotFoundError: x',
)
"""What used to decide, wherever it stood in a text."""
ABORTED = (
    "Job aborted due to stage failure: Task 0 in stage 1.0 failed 1 times, most recent failure: Lost task 0.0 in stage 1.0 (TID 1) "
    "(host executor driver): "
)
WORKER = (
    "org.apache.spark.api.python.PythonException: Traceback (most recent call last):\n"
    '  File "/spark/python/lib/pyspark.zip/pyspark/worker.py", line 1, in main\n    process()\n'
    '  File "{file}", line 7, in {function}\n    raise it\n{raised}: {text}\n'
    "\n\tat org.apache.spark.A\n\nDriver stacktrace:"
)


class Java:
    """An exception of the JVM."""

    def __init__(self, name: str, message: str | None, cause: Java | None = None) -> None:
        self.name, self.message, self.cause = name, message, cause

    def getClass(self) -> Any:
        return self

    def getName(self) -> str:
        return self.name

    def getMessage(self) -> str | None:
        return self.message

    def getCause(self) -> Java | None:
        return self.cause


def of_java(name: str, message: str, cause: Java | None = None) -> Exception:
    """What py4j raises for it."""
    from py4j.protocol import Py4JJavaError

    class Thrown(Py4JJavaError):
        def __init__(self) -> None:
            self.java_exception = Java(name, message, cause)

        def __str__(self) -> str:
            return f"An error occurred while calling o1.x.\n: {name}: {message}\n\tat org.apache.spark.B"

    return Thrown()


def aborted(thrown: str) -> Exception:
    return of_java("org.apache.spark.SparkException", ABORTED + thrown)


def of_worker(raised: str, text: str, file: str = "/home/me/job.py", function: str = "check") -> Exception:
    return aborted(WORKER.format(file=file, function=function, raised=raised, text=text))


def of_connect(message: str = "", kind: str = "SparkConnectGrpcException", **more: Any) -> Exception:
    from pyspark.errors.exceptions import connect

    return getattr(connect, kind)(message, **more)


def own_of_row(sign: str) -> list[Exception]:
    """What Spark throws if a query raises a text of a row, in one task and where the driver computes it."""
    kind, text = "org.apache.spark.SparkRuntimeException", f"[USER_RAISED_EXCEPTION] {sign} SQLSTATE: P0001"
    scheduler = f"{ABORTED}{kind}: {text}\n\tat org.apache.spark.A"
    return [
        of_java(kind, text),
        of_java(kind, sign),
        of_java("org.apache.spark.SparkException", scheduler, Java(kind, text)),
        of_java("org.apache.spark.SparkException", scheduler, Java(kind, sign)),
        of_connect(sign, "SparkRuntimeException", errorClass="USER_RAISED_EXCEPTION", sql_state="P0001"),
        of_connect(scheduler, "SparkException"),
    ]


@pytest.mark.parametrize("sign", SIGNS)
def test_data_in_the_text_of_an_error_decides_nothing(sign: str) -> None:
    """A record held such a text, and its task failed although dead letters were asked for."""
    for error in (
        of_worker("ValueError", f"bad order '{sign}'"),
        of_worker("ValueError", f"bad\n{sign}"),
        aborted(
            f"org.apache.spark.SparkNumberFormatException: [CAST_INVALID_INPUT] The value '{sign}' of the type STRING"
        ),
        of_java("java.lang.RuntimeException", sign),
        of_connect(f"[USER_RAISED_EXCEPTION] {sign} SQLSTATE: P0001", errorClass="USER_RAISED_EXCEPTION"),
        of_connect(ABORTED + WORKER.format(file="job.py", function="f", raised="KeyError", text=sign)),
        of_connect(
            ABORTED + WORKER.format(file="job.py", function="f", raised="KeyError", text=sign), "SparkException"
        ),
        of_worker("ModuleNotFoundError", f"No module named '{sign}'"),
        *own_of_row(sign),
    ):
        assert type(typed(error)) is SparkRowError
    assert type(typed(RuntimeError(sign))) is SparkFunctionError
    assert typed(of_worker("ValueError", sign)).worker_line == ("/home/me/job.py", 7)
    assert typed(of_java("java.lang.RuntimeException", sign)).worker_line is None


@pytest.mark.parametrize(
    "error",
    [
        lambda: aborted(
            "ExecutorLostFailure (executor 0 exited caused by one of the running tasks) Reason: Executor heartbeat timed out"
        ),
        lambda: aborted("org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)"),
        lambda: of_java("org.apache.spark.SparkException", "[SPARK_JOB_CANCELLED] Job 3 cancelled headgate"),
        lambda: of_connect("Operation was canceled", errorClass="OPERATION_CANCELED"),
        lambda: of_java("org.apache.spark.SparkException", ABORTED, Java("java.lang.OutOfMemoryError", None)),
        lambda: of_worker("MemoryError", ""),
        lambda: of_worker("pyarrow.lib.ArrowMemoryError", "malloc of size 8 failed"),
    ],
)
def test_whoever_died_under_a_batch_is_tried_again(error: Any) -> None:
    """A Python worker, an executor; or its jobs were cancelled. The session lives."""
    found = typed(error())
    assert type(found) is SparkLost
    assert not found.session


class Grpc(Exception):
    """An error of gRPC, with its code."""

    def code(self) -> Any:
        import grpc

        return grpc.StatusCode.UNAVAILABLE


Grpc.__module__ = "grpc._channel"


def checked(condition: str) -> Exception:
    from pyspark.errors import PySparkRuntimeError

    class Checked(PySparkRuntimeError):
        def getCondition(self) -> str:
            return condition

    return Checked("x")


def unavailable() -> Exception:
    import grpc

    return of_connect("x", grpc_status_code=grpc.StatusCode.UNAVAILABLE)


@pytest.mark.parametrize(
    "error",
    [
        lambda: of_java("org.apache.spark.SparkException", "Job 7 cancelled because SparkContext was shut down"),
        lambda: of_java("java.lang.IllegalStateException", "Cannot call methods on a stopped SparkContext.\nat x"),
        lambda: of_connect("[INVALID_HANDLE.SESSION_CLOSED] x", errorClass="INVALID_HANDLE.SESSION_CLOSED"),
        lambda: checked("NO_ACTIVE_SESSION"),
        lambda: checked("RESPONSE_ALREADY_RECEIVED"),
        unavailable,
        Grpc,
    ],
)
def test_a_session_that_is_over_is_lost_with_its_batches(error: Any) -> None:
    """A context that somebody stopped, a Connect server that is gone."""
    found = typed(error())
    assert isinstance(found, SparkLost)
    assert found.session


def test_a_connection_is_sparks_only_if_spark_has_opened_it() -> None:
    """A function may ask a service of its own, whose refusal says nothing of the JVM."""
    assert type(typed(ConnectionRefusedError(111, "Connection refused"))) is SparkFunctionError
    from py4j.java_gateway import GatewayParameters
    from py4j.java_gateway import JavaGateway as Gateway
    from py4j.protocol import Py4JError

    with pytest.raises(Py4JError) as found:  # nobody listens on that port
        Gateway(gateway_parameters=GatewayParameters(port=1)).jvm.System.currentTimeMillis()
    lost = typed(found.value)
    assert isinstance(lost, SparkLost)
    assert lost.session


@pytest.mark.parametrize(
    ("error", "remedy"),
    [
        (
            lambda: of_java(
                "org.apache.spark.SparkException",
                "Job aborted due to stage failure: Total size of serialized results of 2 tasks (17 MiB) is bigger than spark.driver.max…",
            ),
            "spark.driver.memory",
        ),
        (
            lambda: of_java(
                "org.apache.spark.SparkException",
                "Job aborted due to stage failure: Serialized task 3:0 was 600 bytes, which exceeds max allowed: spark.rpc.message.maxSize",
            ),
            "spark.rpc",
        ),
        (
            lambda: of_connect(
                "Job aborted due to stage failure: Total size of serialized results of 2 tasks (17 MiB) is",
                "SparkException",
            ),
            "spark.driver.memory",
        ),
        (lambda: of_connect("x", errorClass="LOCAL_RELATION_SIZE_LIMIT_EXCEEDED"), "localRelationSizeLimit"),
    ],
)
def test_too_much_in_one_piece_says_so(error: Any, remedy: str) -> None:
    """More results than the driver takes: smaller batches are the remedy."""
    found = typed(error())
    assert isinstance(found, SparkPlanError)
    assert "smaller batches" in found.remedy
    assert remedy in found.remedy


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (
            lambda: of_worker("ModuleNotFoundError", "x", "/x/pyspark/cloudpickle/cloudpickle.py", "subimport"),
            "spark.package",
        ),
        (lambda: of_worker("ModuleNotFoundError", "x", "/home/me/shipped.py", "<module>"), "spark.package"),
        (
            lambda: of_worker("ImportError", "cannot import name 'x'", "/home/me/shipped.py", "<module>"),
            "spark.package",
        ),
        (lambda: of_worker("FileNotFoundError", "x", "/a/spark_bridge/data/spool_reader.py"), "spark.spool"),
        (lambda: checked("NOT_STR"), "PySpark refuses"),
    ],
)
def test_what_no_row_can_change_is_final(error: Any, words: str) -> None:
    """Code that the executors lack, a directory that they do not reach, an argument that PySpark refuses."""
    found = typed(error())
    assert isinstance(found, SparkPlanError)
    assert words in str(found)


def test_what_a_function_imports_for_a_row_is_of_that_row() -> None:
    """A record names a plugin that does not exist: the others are not to blame. The remedy is said all the same."""
    trace = (
        'Traceback (most recent call last):\n  File "/s/pyspark/worker.py", line 1, in main\n    process()\n'
        '  File "/home/me/job.py", line 7, in plugin\n    return import_module(name)\n           ^^^^^^\n'
        '  File "/usr/lib/python3.12/importlib/__init__.py", line 90, in import_module\n    return _bootstrap()\n'
        '  File "<frozen importlib._bootstrap>", line 1387, in _gcd_import\n'
        "ModuleNotFoundError: No module named 'user-2'\n"
    )
    found = typed(aborted(f"org.apache.spark.api.python.PythonException: {trace}"))
    assert type(found) is SparkRowError
    assert "spark.package" in found.remedy


def test_an_error_of_the_function_on_the_driver_is_tried_again() -> None:
    """It may ask a service that is away for a moment: RuntimeError("503") was final at the first call."""
    error = typed(RuntimeError("503"))
    assert isinstance(error, SparkFunctionError)
    assert not error.final
    assert "RuntimeError: 503" in str(error)


def test_errors_stay_as_they_are() -> None:
    """What is typed already is not wrapped again."""
    error: SparkError = SparkRowError("x")
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
