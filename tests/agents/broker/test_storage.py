"""Data directories: whose they are, and that a start which cannot be leaves them as they were."""

from __future__ import annotations

import errno
import os
from collections import namedtuple
from pathlib import Path

import pytest

from headgate.agents.broker import storage
from headgate.agents.broker.broker import Broker
from headgate.agents.broker.settings import Ports
from headgate.agents.broker.storage import BrokerIdentity
from headgate.core.errors import EnvironmentFault


def contents(directory: Path) -> list[str]:
    """Every path below."""
    return sorted(str(path.relative_to(directory)) for path in directory.rglob("*"))


def stored(data: Path, *, nodes: int = 1, secure: bool = False, kafka: str = "4.0.0") -> BrokerIdentity:
    """A directory that a broker has used."""
    identity = BrokerIdentity("A" * 22, kafka, nodes, secure, tuple(Ports(1000 + n, 2000 + n) for n in range(nodes)))
    data.mkdir(parents=True, exist_ok=True)
    storage.write_identity(data, identity)
    for node in range(1, nodes + 1):
        storage.format_node(data, node, identity, b"checkpoint")
    return identity


def test_what_is_written_is_read(tmp_path: Path) -> None:
    """The identity of a directory."""
    assert storage.read_identity(tmp_path / "none") is None
    assert storage.read_identity(tmp_path) is None
    identity = stored(tmp_path)
    assert storage.read_identity(tmp_path) == identity


def test_a_directory_of_something_else_is_left_as_it_is(tmp_path: Path) -> None:
    """Somebody's thesis."""
    (tmp_path / "thesis.tex").write_text("x")
    with pytest.raises(EnvironmentFault, match="contains something other than a headgate broker"):
        Broker.start(tmp_path)
    assert contents(tmp_path) == ["thesis.tex"]


def test_a_directory_of_another_cluster_is_refused(tmp_path: Path) -> None:
    """The Kafka data below were exchanged against those of another cluster."""
    stored(tmp_path)
    other = tmp_path / "node-1/data/meta.properties"
    other.write_text(other.read_text().replace("A" * 22, "B" * 22))
    before = contents(tmp_path)
    with pytest.raises(EnvironmentFault, match=f"belongs to another cluster \\({'B' * 22}"):
        Broker.start(tmp_path)
    assert [path for path in contents(tmp_path) if path != ".lock"] == before


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"nodes": 3}, "holds a cluster of 1 node"),
        ({"nodes": 2}, "1 node or 3, not 2"),
        ({"secure": True}, "holds a cluster without TLS"),
    ],
)
def test_a_directory_of_another_shape_is_refused(tmp_path: Path, asked: dict[str, int], message: str) -> None:
    """What a cluster is, it stays."""
    stored(tmp_path)
    with pytest.raises(EnvironmentFault, match=message):
        Broker.start(tmp_path, **asked)  # pyright: ignore[reportArgumentType]


def test_data_of_a_newer_kafka_are_refused(tmp_path: Path) -> None:
    """An older broker would not read them."""
    stored(tmp_path, kafka="4.99.0")
    with pytest.raises(EnvironmentFault, match=r"written by Kafka 4\.99\.0"):
        Broker.start(tmp_path)


def test_an_unreadable_identity_is_named(tmp_path: Path) -> None:
    """Cut short by a full disk of old."""
    (tmp_path / "broker.json").write_text("{")
    with pytest.raises(EnvironmentFault, match=r"broker\.json cannot be read"):
        Broker.start(tmp_path)


def test_a_full_disk_is_seen_before_anything_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """3 MB free."""
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(storage.shutil, "disk_usage", lambda place: usage(10**9, 10**9 - 3 * 10**6, 3 * 10**6))
    with pytest.raises(EnvironmentFault, match=r"the disk of .* is full: 3 MB free"):
        Broker.start(tmp_path / "new")
    assert contents(tmp_path) == []


def test_a_disk_that_gets_full_while_starting_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first file of Kafka does not fit."""

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(storage, "format_node", full)
    with pytest.raises(EnvironmentFault, match="is full"):
        Broker.start(tmp_path / "new")
    assert contents(tmp_path) == []


def test_two_commands_on_one_directory(tmp_path: Path) -> None:
    """The second is told at once."""
    with (
        storage.held(tmp_path),
        pytest.raises(EnvironmentFault, match="another headgate command"),
        storage.held(tmp_path),
    ):
        pytest.fail("held twice")
    with storage.held(tmp_path):
        assert contents(tmp_path) == [".lock"]


def test_a_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    """Its parent is a file."""
    (tmp_path / "file").write_text("")
    with pytest.raises(EnvironmentFault, match="cannot"):
        Broker.start(tmp_path / "file" / "data")


def test_disk_used_counts_blocks_not_holes(tmp_path: Path) -> None:
    """Kafka's index files are large and empty."""
    with (tmp_path / "index").open("wb") as file:
        file.truncate(10_000_000)
    (tmp_path / "log").write_bytes(b"x" * 100_000)
    assert 100_000 <= storage.disk_used(tmp_path) < 1_000_000
