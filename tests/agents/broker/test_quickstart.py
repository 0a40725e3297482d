"""The archive of Kafka's classes is made once, and never stands in the way of a start."""

from __future__ import annotations

from pathlib import Path

import pytest

from headgate.agents.broker import quickstart
from headgate.agents.broker.java import Java
from headgate.core.errors import EnvironmentFault

JAVA = Java("/java/bin/java", "/java", 17, "PATH")


@pytest.fixture(autouse=True)
def _empty_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HEADGATE_CACHE", str(tmp_path))


def trained(options: list[str]) -> None:
    """A Java that leaves an archive."""
    Path(options[0].removeprefix("-XX:ArchiveClassesAtExit=")).write_bytes(b"classes")


def test_it_is_made_once_for_a_java_and_a_class_path() -> None:
    """The second start says nothing and trains nothing; another class path is another archive."""
    said: list[str] = []
    first = quickstart.options(JAVA, "a.jar", said.append, trained)
    assert Path(first[0].removeprefix("-XX:SharedArchiveFile=")).read_bytes() == b"classes"
    assert len(said) == 1
    assert quickstart.options(JAVA, "a.jar", said.append, lambda _: pytest.fail("trained again")) == first
    assert quickstart.options(JAVA, "b.jar", said.append, trained) != first


def test_a_java_that_cannot_make_one_is_asked_once() -> None:
    """It leaves no file."""
    assert quickstart.options(JAVA, "a.jar", lambda _: None, lambda _: None) == []
    assert quickstart.options(JAVA, "a.jar", lambda _: None, lambda _: pytest.fail("asked again")) == []


def test_a_training_that_fails_is_said_and_tried_again_next_time() -> None:
    """The start that follows says what is really wrong."""

    def failing(_: list[str]) -> None:
        raise EnvironmentFault("no port\nand more")

    said: list[str] = []
    assert quickstart.options(JAVA, "a.jar", said.append, failing) == []
    assert said[-1] == "That failed, but is not required: no port"
    assert quickstart.options(JAVA, "a.jar", said.append, trained) != []


def test_a_cache_that_cannot_be_written_only_costs_time(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Its place is a file."""
    (tmp_path / "file").touch()
    monkeypatch.setenv("HEADGATE_CACHE", str(tmp_path / "file"))
    assert quickstart.options(JAVA, "a.jar", lambda _: None, trained) == []
