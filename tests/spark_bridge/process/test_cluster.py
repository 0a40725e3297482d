"""What executors must have is asked before the first batch: by a real job of a real session, which stands for a cluster here."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headgate.core.batching.ranges import RangeAway
from headgate.spark_bridge.base.errors import SparkAway, SparkDown, SparkLost
from headgate.spark_bridge.data.ranges import close_links
from headgate.spark_bridge.data.spool import Spool
from headgate.spark_bridge.data.terms import Terms
from headgate.spark_bridge.process import cluster
from headgate.spark_bridge.process.jvm import Sessions

pytestmark = [pytest.mark.spark]
WHERE = "spark://there:7077"


class Brokers:
    """Stands for the client: brokers that advertise these addresses."""

    def __init__(self, *addresses: str) -> None:
        self.addresses = addresses

    async def start(self) -> None:
        if not self.addresses:
            raise RangeAway("no broker answers")

    async def stop(self) -> None:
        pass

    async def brokers(self) -> list[str]:
        return list(self.addresses)


@pytest.fixture(autouse=True)
def no_links() -> Iterator[None]:
    """Clients of a test end with it."""
    yield
    close_links()


@pytest.fixture
def closed() -> Iterator[str]:
    """An address where nobody listens, and nobody else begins to."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{one.getsockname()[1]}"


def kafka(*addresses: str) -> tuple[str, tuple[Any, ...]]:
    return f"{__name__}:Brokers", addresses


def test_executors_that_have_everything_say_what_they_are(warm: Sessions, tmp_path: Path) -> None:
    """Brokers are reached, and their client is let in; the file in the spool is found, and is gone afterwards."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        terms = Terms(kafka=kafka(address), spool=Spool(tmp_path))
        (said,) = cluster.check(warm.get(), terms, WHERE)
    assert said.startswith(f"{socket.gethostname()}: Python 3.")
    assert list(tmp_path.rglob("seen")) == []


def test_a_broker_that_executors_cannot_reach_is_waited_for(warm: Sessions, closed: str) -> None:
    """One of two is not enough: the other one leads partitions, too. A broker that restarts comes back."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        terms = Terms(kafka=kafka(f"127.0.0.1:{server.getsockname()[1]}", closed))
        with pytest.raises(SparkAway, match=f"cannot reach the broker {closed}: Connection refused") as caught:
            cluster.check(warm.get(), terms, WHERE)
    assert WHERE in caught.value.what
    assert "advertised.listeners" in caught.value.remedy


def test_brokers_that_the_worker_does_not_reach_either_are_waited_for(warm: Sessions) -> None:
    """Then nobody knows what they advertise."""
    with pytest.raises(SparkAway, match="no broker answers"):
        cluster.check(warm.get(), Terms(kafka=kafka()), WHERE)


def test_a_session_that_dies_while_it_is_checked_says_nothing_of_executors(
    warm: Sessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next session is checked; nobody is told that his executors have no Python."""

    from py4j.protocol import Py4JNetworkError

    def dead(*_: Any) -> Any:
        def ask() -> list[str]:
            raise Py4JNetworkError("Connection refused")  # as its library tells of a JVM that is gone

        return ask

    monkeypatch.setattr(cluster, "_ask", dead)
    with pytest.raises(SparkLost, match="Connection refused") as caught:
        cluster.check(warm.get(), Terms(), WHERE)
    assert caught.value.session


def test_a_spool_and_a_module_that_executors_do_not_have(
    warm: Sessions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both are said at once, each with its remedy; nothing brings them back by itself."""

    @contextlib.contextmanager
    def elsewhere(spool: Spool) -> Iterator[tuple[str, str]]:
        yield str(tmp_path / "nowhere"), "text"

    monkeypatch.setattr(Spool, "marked", elsewhere)
    (tmp_path / "shared_prices.py").write_text("")
    terms = Terms(package=(tmp_path / "shared_prices.py",), spool=Spool(tmp_path))
    with pytest.raises(SparkDown, match="has no module 'shared_prices'") as caught:
        cluster.check(warm.get(), terms, WHERE)
    assert not isinstance(caught.value, SparkAway)
    assert f"cannot read spark.spool, {tmp_path}/nowhere" in caught.value.what
    assert "spark.package" in caught.value.remedy
    assert "under the same path" in caught.value.remedy


def test_a_spool_that_the_worker_cannot_write(warm: Sessions, tmp_path: Path) -> None:
    """Nothing is asked of executors then."""
    (tmp_path / "file").write_text("")
    with pytest.raises(SparkDown, match="cannot be written"):
        cluster.check(warm.get(), Terms(spool=Spool(tmp_path / "file")), WHERE)
