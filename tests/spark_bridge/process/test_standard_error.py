"""What a JVM writes on standard error: an own configuration of log4j wins, and what says nothing is left out."""

from __future__ import annotations

import io
import random
from pathlib import Path

import pytest

from headgate.spark_bridge.process import standard_error
from headgate.spark_bridge.process.conf import for_jvm


def options(given: dict[str, str]) -> str:
    return for_jvm("local[2]", given, "/tmp/d")["spark.driver.defaultJavaOptions"]


def test_only_errors_are_logged_unless_the_user_says_otherwise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By an option of Java, or by a file in the directory of Spark's settings."""
    ours = "-Dlog4j2.configurationFile=/tmp/d/log4j2.properties"
    for name in ("SPARK_CONF_DIR", "SPARK_HOME", "SPARK_SUBMIT_OPTS"):
        monkeypatch.delenv(name, raising=False)
    assert ours in options({})
    assert ours not in options({"spark.driver.extraJavaOptions": "-Dlog4j2.configurationFile=/etc/log4j2.xml"})
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    assert ours in options({})
    (tmp_path / "log4j2.properties").touch()
    assert ours not in options({})


def test_what_says_nothing_is_left_out(capfd: pytest.CaptureFixture[str]) -> None:
    """Everything else goes on as it is: a stack trace of the JVM, a print of a user's function, empty lines of theirs."""
    said = (
        b"WARNING: Using incubator modules: jdk.incubator.vector\n"
        b"Current mem limits: -1 of max -1\n\nSetting mem limits to 2147483648 of max 2147483648\n\n"
        b"26/11/24 03:31:37 ERROR Executor: Exception in task\n\n\xff printed"
    )
    standard_error._pass_on(io.BytesIO(said))
    assert (
        capfd.readouterr().err
        == "26/11/24 03:31:37 ERROR Executor: Exception in task\n\n\N{REPLACEMENT CHARACTER} printed"
    )


def test_of_a_jvm_that_is_being_ended_nothing_is_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its Python workers saw their connection go, and the first line of a traceback was the last line of a worker that had stopped well."""
    written: list[bytes] = []
    monkeypatch.setattr(standard_error, "_write", written.append)
    said = io.BytesIO(b"Traceback (most recent call last):\n")
    standard_error.silence(None)
    standard_error.silence(said)
    standard_error._pass_on(said)
    assert written == []


DAEMON = b"""Traceback (most recent call last):
  File "/x/pyspark.zip/pyspark/daemon.py", line 264, in manager
  File "/x/pyspark.zip/pyspark/daemon.py", line 95, in worker
    raise
BrokenPipeError: [Errno 32] Broken pipe
"""


def test_a_python_worker_whose_batch_was_cancelled_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any other traceback goes on as it is, also one that is cut off because the JVM has ended."""
    written: list[bytes] = []
    monkeypatch.setattr(standard_error, "_write", written.append)
    users = DAEMON.replace(b"line 95, in worker", b"line 1").replace(b"pyspark/daemon.py", b"mine.py")
    standard_error._pass_on(io.BytesIO(b"before\n" + DAEMON + users + b"after\n" + users[:60]))
    assert b"".join(written) == b"before\n" + users + b"after\n" + users[:60]
    written.clear()
    for upto in (1, 2, 3, 4):
        standard_error._pass_on(io.BytesIO(b"".join(DAEMON.splitlines(keepends=True)[:upto])))
    assert written == []


def test_tracebacks_of_several_python_workers_may_stand_between_each_others_lines(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each worker writes line by line, and all of them see the connection go in the same moment."""
    written: list[bytes] = []
    monkeypatch.setattr(standard_error, "_write", written.append)
    users = DAEMON.replace(b"pyspark/daemon.py", b"mine.py")
    for other in (DAEMON, users):
        both = [(DAEMON.splitlines(keepends=True), other.splitlines(keepends=True)) for _ in range(20)]
        mixed = [_mixed(one, two, random.Random(seed)) for seed, (one, two) in enumerate(both)]
        standard_error._pass_on(io.BytesIO(b"".join(mixed)))
        if other is DAEMON:
            assert written == []
    assert b"".join(written).count(b"mine.py") == 2 * 20


def _mixed(one: list[bytes], two: list[bytes], order: random.Random) -> bytes:
    """Lines of both, each in its own order."""
    said = list[bytes]()
    while one or two:
        said.append((one if not two or (one and order.random() < 0.5) else two).pop(0))
    return b"".join(said)
