"""The archive of Spark's classes: used where it is, created beside the first worker's own work, and never in the way of a start."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from headgate.agents.broker import quickstart
from headgate.agents.worker import spark_jvm


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
    assert [command[-2:] for command in started] == [["headgate.spark_bridge.training", str(made[0])]]
    assert os.environ["SPARK_SUBMIT_OPTS"] == "-Dmine=1"
    made[0].write_bytes(b"classes")
    homes |= {spark_jvm.java_home(), spark_jvm.java_home()}
    assert os.environ["SPARK_SUBMIT_OPTS"] == f"-Dmine=1 -XX:SharedArchiveFile={made[0]} -Xshare:auto {spark_jvm.QUIET}"
    assert os.environ["SPARK_LAUNCHER_OPTS"] == "-Dmine=2"
    assert (len(homes), len(started)) == (1, 1)


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
