"""The archive of Spark's classes: used where it is, created beside the first worker's own work, and never in the way of a start."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from headgate.agents.broker import quickstart
from headgate.agents.worker import spark_jvm
from headgate.spark_bridge.session.training import GROUP


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Any]:
    """The processes that would have been started."""
    found: list[Any] = []

    def start(command: list[str], **_: Any) -> Any:
        found.append(command)
        return SimpleNamespace(pid=1)

    monkeypatch.setenv("HEADGATE_CACHE", str(tmp_path))
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", "-Dmine=1")
    monkeypatch.setenv("SPARK_LAUNCHER_OPTS", "-Dmine=2")
    monkeypatch.setattr(spark_jvm, "_training", [])
    monkeypatch.setattr(spark_jvm, "Popen", start)
    return found


def test_it_is_created_once_and_then_used(started: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """The user's own options stay; a second session starts no second training."""
    made: list[Path] = []
    real = quickstart.archive_of

    def archive_of(*given: Any) -> Path:
        made.append(real(*given))
        return made[-1]

    monkeypatch.setattr(quickstart, "archive_of", archive_of)
    homes = {spark_jvm.java_home(), spark_jvm.java_home()}
    assert [command[-2:] for command in started] == [["headgate.spark_bridge.session.training", str(made[0])]]
    assert os.environ["SPARK_SUBMIT_OPTS"] == "-Dmine=1"
    made[0].write_bytes(b"classes")
    homes |= {spark_jvm.java_home(), spark_jvm.java_home()}
    assert os.environ["SPARK_SUBMIT_OPTS"] == f"-Dmine=1 -XX:SharedArchiveFile={made[0]} -Xshare:auto {spark_jvm.QUIET}"
    assert os.environ["SPARK_LAUNCHER_OPTS"] == "-Dmine=2"
    assert (len(homes), len(started)) == (1, 1)


def test_whoever_waits_for_it_has_it_at_once(
    started: list[Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The demo is over before a worker could have created it. The second time there is nothing to do."""
    archive = tmp_path / "classes.jsa"

    def start(command: list[str], **_: Any) -> Any:
        started.append(command)
        archive.touch()
        return contextlib.nullcontext(SimpleNamespace(wait=lambda: 0))

    monkeypatch.setattr(quickstart, "archive_of", lambda *_: archive)
    monkeypatch.setattr(spark_jvm, "Popen", start)
    spark_jvm.prepare()
    spark_jvm.prepare()
    assert [command[-2:] for command in started] == [[str(archive), "--at-once"]]
    assert capsys.readouterr().err.count("Preparing") == 1


def test_java_is_looked_for_once(started: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """The JVM that takes the place of one that died does not wait for it; one that was removed meanwhile is looked for again."""
    looked: list[int] = []
    real = spark_jvm.find_java()

    def find() -> Any:
        looked.append(1)
        return real

    monkeypatch.setattr(spark_jvm, "find_java", find)
    monkeypatch.setattr(spark_jvm, "_found", [])
    homes = {spark_jvm.java_home(), spark_jvm.java_home()}
    assert (len(homes), len(looked)) == (1, 1)
    monkeypatch.setattr(spark_jvm, "_found", [dataclasses.replace(real, path="/nowhere/bin/java")])
    homes.add(spark_jvm.java_home())
    assert (len(homes), len(looked)) == (1, 2)


TRAINING = """
import subprocess, sys
from pathlib import Path
from headgate.spark_bridge.session import training

def run():
    jvm = subprocess.Popen(["sleep", "600"])
    print(jvm.pid, flush=True)
    jvm.wait()

training.run = run
sys.exit(training.main(Path(sys.argv[1])))
"""


def test_who_creates_it_ends_with_its_worker_and_so_does_its_jvm(tmp_path: Path) -> None:
    """A JVM that is left alone writes its archive first, for a minute, and nobody would take it."""
    archive = tmp_path / "classes.jsa"
    command = [sys.executable, "-c", TRAINING, str(archive)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True) as made:
        assert made.stdin is not None
        assert made.stdout is not None
        jvm = psutil.Process(int(made.stdout.readline()))
        assert [psutil.Process(made.pid).nice(), jvm.nice()] == [19, 19]
        if GROUP.exists():  # Linux: within a session of its own, no priority counts against others
            assert Path(f"/proc/{jvm.pid}/autogroup").read_text().endswith(" nice 19\n")
        made.stdin.close()
        assert made.wait(60) == -signal.SIGKILL
    _, alive = psutil.wait_procs([jvm], timeout=60)
    assert alive == []
    assert not archive.exists()


def test_a_java_that_could_not_create_it_is_not_asked_again(
    started: list[Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """An empty file says so. A cache that cannot be written costs time only."""
    archive = tmp_path / "empty.jsa"
    archive.touch()
    monkeypatch.setattr(quickstart, "archive_of", lambda *_: archive)
    spark_jvm.java_home()
    monkeypatch.setattr(quickstart, "archive_of", lambda *_: archive / "no" / "directory.jsa")
    spark_jvm.java_home()
    assert (started, os.environ["SPARK_SUBMIT_OPTS"]) == ([], "-Dmine=1")
