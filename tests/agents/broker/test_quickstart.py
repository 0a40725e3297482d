"""The archive of Kafka's classes is made once, and never stands in the way of a start."""

from __future__ import annotations

import os
import time
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


def archives(tmp_path: Path) -> list[Path]:
    """Those that there are."""
    return sorted((tmp_path / "kafka" / "archives").glob("*.jsa"))


def test_a_java_has_one_archive_however_it_was_found() -> None:
    """On the PATH for the first session, and by JAVA_HOME, which Spark's launcher needs, for the next one."""
    by_home = Java("/java/bin/java", "/java", 17, "JAVA_HOME")
    on_path = Java("/usr/bin/java", "/java", 17, "PATH")
    assert quickstart.archive_of("spark", by_home, "a.jar") == quickstart.archive_of("spark", on_path, "a.jar")


def test_many_programs_keep_their_archives_and_those_of_removed_ones_go(tmp_path: Path) -> None:
    """They never take the place of each other. A virtual environment that is deleted takes its archive with it."""
    jars = [tmp_path / f"{number}.jar" for number in range(9)]
    for jar in jars:
        jar.touch()
        quickstart.options(JAVA, str(jar), lambda _: None, trained)
    assert len(archives(tmp_path)) == 9
    jars[0].unlink()
    (tmp_path / "one-more.jar").touch()
    quickstart.options(JAVA, str(tmp_path / "one-more.jar"), lambda _: None, trained)
    assert len(archives(tmp_path)) == 9
    assert quickstart.archive_of("kafka", JAVA, str(jars[0])) not in archives(tmp_path)


def test_an_archive_that_no_one_uses_goes(tmp_path: Path) -> None:
    """Each use counts, not only its creation."""
    for name in ("used.jar", "unused.jar", "new.jar"):
        (tmp_path / name).touch()
    for name in ("used.jar", "unused.jar"):
        quickstart.options(JAVA, str(tmp_path / name), lambda _: None, trained)
    long_ago = time.time() - quickstart.UNUSED_S - 60
    for archive in archives(tmp_path):
        os.utime(archive, (long_ago, long_ago))
    for name in ("used.jar", "new.jar"):
        quickstart.options(JAVA, str(tmp_path / name), lambda _: None, trained)
    left = [quickstart.archive_of("kafka", JAVA, str(tmp_path / name)) for name in ("used.jar", "new.jar")]
    assert archives(tmp_path) == sorted(left)
