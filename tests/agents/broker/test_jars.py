"""Jars come into an empty cache through the real Ivy, from a Maven repository on this disk; nothing here needs a network."""

from __future__ import annotations

import hashlib
import socket
from pathlib import Path

import pytest

from headgate.agents.broker import jars
from headgate.agents.broker.ivy import Jar
from headgate.agents.broker.java import find_java
from headgate.core.errors import EnvironmentFault

pytestmark = pytest.mark.kafka
WHOLE = b"the bytes of a jar"


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user whose ~/.m2/settings.xml names a mirror, an empty cache, and a bill of one jar."""
    jar = Jar("org.example", "kafka-toy", "1.0", len(WHOLE), hashlib.sha256(WHOLE).hexdigest())
    monkeypatch.setattr(jars, "bill", lambda: jars.Bill("1.0", b"", (jar,), ()))
    place = tmp_path / "repository"
    folder = place / "org/example/kafka-toy/1.0"
    folder.mkdir(parents=True)
    (folder / "kafka-toy-1.0.jar").write_bytes(WHOLE)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HEADGATE_CACHE", str(tmp_path / "cache"))
    point_to(tmp_path, place.as_uri())
    return folder


def point_to(tmp_path: Path, url: str) -> None:
    """The mirror in this user's Maven settings."""
    settings = tmp_path / "home/.m2/settings.xml"
    settings.parent.mkdir(parents=True, exist_ok=True)
    settings.write_text(
        f"<settings><mirrors><mirror><id>m</id><mirrorOf>*</mirrorOf><url>{url}</url></mirror></mirrors></settings>"
    )


def cached(tmp_path: Path) -> list[str]:
    """What lies in the cache, hidden files apart."""
    return sorted(path.name for path in (tmp_path / "cache/kafka/1.0").iterdir() if path.name != ".lock")


def test_an_empty_cache_is_filled_from_the_users_mirror_once(tmp_path: Path, repository: Path) -> None:
    """The second time nothing is said and nothing is fetched."""
    said: list[str] = []
    found = jars.ensure(find_java(), said.append)
    assert [path.read_bytes() for path in found] == [WHOLE]
    assert len(said) == 1
    assert said[0].startswith("Fetching 1 jars of Apache Kafka 1.0")
    (repository / "kafka-toy-1.0.jar").unlink()
    assert jars.ensure(find_java(), said.append) == found
    assert len(said) == 1
    assert cached(tmp_path) == ["kafka-toy-1.0.jar"]


def test_a_damaged_jar_is_fetched_again(repository: Path) -> None:
    """Changed, cut short, or empty."""
    [path] = jars.ensure(find_java())
    for damage in (b"the bytes of a jaR", b"the", b""):
        path.write_bytes(damage)
        said: list[str] = []
        assert [found.read_bytes() for found in jars.ensure(find_java(), said.append)] == [WHOLE]
        assert said[0] == "Damaged in the cache, downloading again: kafka-toy-1.0.jar"


def test_a_repository_that_serves_something_else_is_refused(tmp_path: Path, repository: Path) -> None:
    """The sums are ours, not the repository's; the cache stays empty."""
    (repository / "kafka-toy-1.0.jar").write_bytes(b"the bytes of a jam")
    with pytest.raises(EnvironmentFault, match="does not have the expected SHA-256 sum"):
        jars.ensure(find_java())
    assert cached(tmp_path) == []


def test_no_network_and_an_empty_cache_say_what_to_do(tmp_path: Path, repository: Path) -> None:
    """A port where nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        point_to(tmp_path, f"http://127.0.0.1:{taken.getsockname()[1]}/maven")
        with pytest.raises(EnvironmentFault) as caught:
            jars.ensure(find_java())
    assert "cannot fetch 1 of Kafka's jars" in caught.value.what
    assert "check the network" in caught.value.remedy
    assert cached(tmp_path) == []


def test_ivy_settings_of_the_user_come_first(tmp_path: Path, repository: Path) -> None:
    """~/.ivy2/ivysettings.xml is used as it is."""
    point_to(tmp_path, "file:///nowhere")
    own = tmp_path / "home/.ivy2/ivysettings.xml"
    own.parent.mkdir()
    place = (tmp_path / "repository").as_uri()
    own.write_text(
        "<ivysettings><settings defaultResolver='mine'/><resolvers>"
        f"<ibiblio name='mine' m2compatible='true' usepoms='false' root='{place}/'/></resolvers></ivysettings>"
    )
    assert [path.read_bytes() for path in jars.ensure(find_java())] == [WHOLE]


def test_a_cache_that_cannot_be_written_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Its place is a file."""
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("HEADGATE_CACHE", str(tmp_path / "file"))
    with pytest.raises(EnvironmentFault, match="cannot use the cache"):
        jars.ensure(find_java())


def test_pyspark_lacks_a_jar(tmp_path: Path) -> None:
    """Another release of PySpark might."""
    with pytest.raises(EnvironmentFault, match=r"has no snappy-java-\*\.jar"):
        jars._shipped(tmp_path, "snappy-java")


def test_names_that_begin_alike_are_told_apart(tmp_path: Path) -> None:
    """jackson-core and jackson-core-asl, metrics-core and its Scala suffix."""
    for name in ("jackson-core-2.21.2.jar", "jackson-core-asl-1.9.jar", "zstd-jni-1.5.7-7.jar"):
        (tmp_path / name).touch()
    assert jars._shipped(tmp_path, "jackson-core").name == "jackson-core-2.21.2.jar"
    assert jars._shipped(tmp_path, "zstd-jni").name == "zstd-jni-1.5.7-7.jar"


def test_the_bill_is_whole() -> None:
    """Every sum is a SHA-256, every jar stands once."""
    bill = jars.bill()
    assert bill.kafka.startswith("4.")
    assert all(len(jar.sha256) == 64 and jar.size > 0 for jar in bill.jars)
    assert len({jar.file for jar in bill.jars}) == len(bill.jars)
