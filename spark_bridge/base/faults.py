"""What an error of a Spark call is, as facts: its type, Spark's error class, and what was thrown first, by class and place.

An error's text holds data: a cast says the value that it could not cast, an exception of a Python worker says whatever the user's code
wrote. So no text is searched. What is read of a text is what Spark alone writes, at its beginning: what was thrown. That is what the
scheduler says of a job, and it says so in an exception of one class, which no row can make Spark throw with a text of its own.

    Job aborted due to stage failure: … Lost task 0.0 in stage 1.0 (TID 1) (host executor 1): java.lang.X: message

SQLSTATE decides nothing here. It follows from the error class: each class has one, and several classes share it, so it never tells apart
what the class does not. And a query may choose its own (`SIGNAL`).

Promise: whatever data an error holds, the facts are the same.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

SPARKS = ("py4j", "pyspark", "grpc")
"""The packages in which errors of Spark are raised on the driver."""
MOST_CAUSES = 10
ABORTED = re.compile(
    r"(?:\[\w+\] )?Job aborted due to stage failure: "
    r"(?:Task \d+ in stage [\d.]+ failed \d+ times?, most recent failure: Lost task [\d.]+ in stage [\d.]+ \(TID \d+\) "
    r"\([^()]*\): )?(?P<thrown>.*)",
    re.DOTALL,
)
SCHEDULERS = ("org.apache.spark.SparkException", "SparkException")
"""The class in which the scheduler tells why a job has failed: in the JVM, and what a Connect server's client makes of it."""
THROWN = re.compile(r"(?P<kind>[\w$]+(?:\.[\w$]+)+)(?:: (?P<what>.*))?$", re.DOTALL)
RAISED = re.compile(r"(?P<kind>[\w.]+)(?:: |\n|$)")
FRAME = re.compile(r'^  File "(?P<file>[^"\n]*)", line (?P<line>\d+)(?:, in (?P<function>.*))?$')
PYSPARKS = re.compile(r"[/\\]pyspark(?:\.zip)?[/\\]")
IMPORTING = re.compile(r"<frozen importlib|[/\\]importlib[/\\]__init__\.py$")
MODULE = "<module>"
TRACEBACK = "Traceback (most recent call last):\n"
PYTHON = "PythonException"
"""The last name of the class, here and in the JVM, of what a Python worker has raised."""


@dataclass(frozen=True, slots=True)
class Thrown:
    """One exception of a chain: the name of its class, and its message. Without a class: what the scheduler itself says of a job."""

    kind: str
    what: str


@dataclass(frozen=True, slots=True)
class WorkerFrame:
    """One frame of a Python worker's traceback."""

    file: str
    line: int
    function: str


@dataclass(frozen=True, slots=True)
class Fault:
    """What is known of an error."""

    of_spark: bool
    """Spark, or what talks to it, has raised it; otherwise the user's function on the driver has."""
    analysis: bool = False
    """The plan was refused, before any row was seen."""
    checked: bool = False
    """PySpark has refused an argument, before it told Spark."""
    ran: bool = False
    """Spark has said it, so that its session was there."""
    condition: str = ""
    """Spark's error class, such as `CAST_INVALID_INPUT`."""
    status: str = ""
    """The code of gRPC, such as `UNAVAILABLE`."""
    chain: tuple[Thrown, ...] = ()
    """Of what was thrown in the JVM: the outermost first, up to what a Python worker has raised."""
    raised: str = ""
    """The type of what a Python worker has raised."""
    places: tuple[str, ...] = ()
    """The files of its traceback, the outermost first."""
    called: bool = False
    """PySpark had called a function of the user's, which raised it: it may depend on the row. Otherwise it was raised before any row was
    seen, while code was loaded."""
    line: tuple[str, int] | None = None
    """File and number of the innermost line of such a function."""

    def threw(self, kind: str, *starts: str) -> bool:
        """Whether an exception of this class, by its last name, was thrown, with a message that begins with one of these."""
        own = [one.what for one in self.chain if one.kind.rpartition(".")[2] == kind]
        return any(what.startswith(starts) for what in own) if starts else bool(own)


def fault_of(error: BaseException) -> Fault:
    """The facts of an error."""
    from py4j.protocol import Py4JError, Py4JJavaError
    from pyspark.errors import AnalysisException, ParseException, PySparkException

    if isinstance(error, Py4JJavaError):
        return _with_chain(Fault(of_spark=True, ran=True), list(_java(error.java_exception)))
    if isinstance(error, PySparkException):
        origin = getattr(error, "_origin", None)
        ran = hasattr(error, "_origin") or type(error).__module__ == "pyspark.errors.exceptions.connect"
        found = Fault(
            of_spark=True,
            analysis=ran and isinstance(error, AnalysisException | ParseException),
            checked=not ran,
            ran=ran,
            condition=_asked(error, "getCondition"),
            status=_status(error),
        )
        own = [Thrown(type(error).__name__, _message(error))]
        return _with_chain(found, own if origin is None else [*own, *_java(origin)])
    code = getattr(error, "code", None)
    if type(error).__module__.partition(".")[0] == "grpc" and callable(code):
        return Fault(of_spark=True, status=getattr(code(), "name", ""))
    return Fault(of_spark=isinstance(error, Py4JError) or _in_spark(error))


def _in_spark(error: BaseException) -> bool:
    """Whether it was raised in a call of Spark, in a socket or a lock of it, say; not in a function that PySpark has called."""
    trace, last = error.__traceback__, ""
    while trace is not None:
        package = str(trace.tb_frame.f_globals.get("__name__", "")).partition(".")[0]
        if package not in sys.stdlib_module_names:
            last = package
        trace = trace.tb_next
    return last in SPARKS


def _asked(error: Any, name: str) -> str:
    try:
        return getattr(error, name)() or ""
    except Exception:  # noqa: BLE001 - it asks a JVM, which may be dead
        return ""


def _status(error: Any) -> str:
    try:
        return error.getGrpcStatusCode().name
    except Exception:  # noqa: BLE001 - only errors of a Connect server have one
        return ""


def _message(error: Any) -> str:
    """What PySpark was told, without asking anyone for more."""
    for name in ("_desc", "_message"):
        if isinstance(found := getattr(error, name, None), str):
            return found
    return str(error.args[0]) if error.args else ""


def _java(origin: Any) -> Iterator[Thrown]:
    """The causes of an exception in the JVM; none if it is dead."""
    for _ in range(MOST_CAUSES):
        if origin is None:
            return
        try:
            yield Thrown(origin.getClass().getName(), origin.getMessage() or "")
            origin = origin.getCause()
        except Exception:  # noqa: BLE001 - a dead JVM tells nothing, and that it is dead others see
            return


def _with_chain(found: Fault, thrown: list[Thrown]) -> Fault:
    """The facts, with those of what was thrown in executors and in their Python workers."""
    chain: list[Thrown] = []
    for one in thrown:
        chain.append(one)
        if (inner := _thrown_in(one)) is not None:
            chain.append(inner)
        if (last := chain[-1]).kind.rpartition(".")[2] == PYTHON:
            raised, frames = _of_python(last.what)
            places = tuple(frame.file for frame in frames)
            own = _own(frames)
            called = bool(own) and own[0].function != MODULE
            line = (own[-1].file, own[-1].line) if own else None
            return replace(found, chain=tuple(chain), raised=raised, places=places, called=called, line=line)
    return replace(found, chain=tuple(chain))


def _thrown_in(one: Thrown) -> Thrown | None:
    """What has failed the job, if the scheduler tells it."""
    aborted = ABORTED.match(one.what) if one.kind in SCHEDULERS else None
    if aborted is None:
        return None
    thrown = THROWN.match(aborted["thrown"])
    return Thrown("", aborted["thrown"]) if thrown is None else Thrown(thrown["kind"], thrown["what"] or "")


def _of_python(message: str) -> tuple[str, list[WorkerFrame]]:
    """The type of the exception in the message of a Python worker, and the frames through which it came.

    A text that the user's code raises comes behind its type, and lines of it that look like a traceback are behind the type, too.
    """
    _, _, trace = message.partition(TRACEBACK)
    frames: list[WorkerFrame] = []
    lines = trace.splitlines()
    for line in lines:
        if line.startswith("  "):
            if (frame := FRAME.match(line)) is not None:
                frames.append(WorkerFrame(frame["file"], int(frame["line"]), frame["function"] or ""))
            continue
        raised = RAISED.match(line)
        return (raised["kind"] if raised is not None else ""), frames
    return "", frames


def _own(frames: list[WorkerFrame]) -> list[WorkerFrame]:
    """The frames behind PySpark's own last one. The first is the function that it has called, or the body of a module that is imported."""
    behind: list[WorkerFrame] = []
    for frame in frames:
        if PYSPARKS.search(frame.file):
            behind = []
        elif not IMPORTING.search(frame.file):
            behind.append(frame)
    return behind
