"""Where the processes of Spark listen: with a local master on this machine's own addresses only, also when Spark's pages are on."""

from __future__ import annotations

import ipaddress
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from headgate.spark_bridge.process.gateway import process_of
from headgate.spark_bridge.process.jvm import Sessions

from ..spark_in_process import warm_sessions

pytestmark = pytest.mark.spark
LISTENING = "0A"


@pytest.fixture(scope="module")
def with_pages() -> Iterator[Sessions]:
    """A session whose pages are on."""
    yield from warm_sessions(**{"spark.ui.enabled": "true"})


def listening(pid: int) -> set[str]:
    """The addresses at which a process listens, as the kernel lists them."""
    own = set()
    for one in Path(f"/proc/{pid}/fd").iterdir():
        name = str(one.readlink()) if one.exists() or one.is_symlink() else ""
        if name.startswith("socket:["):
            own.add(name[8:-1])
    found: set[str] = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            (
                _,
                local,
                _,
                state,
                *_,
            ) = line.split()
            if state == LISTENING and line.split()[9] in own:
                found.add(_address(local.split(":")[0]))
    return found


def _address(digits: str) -> str:
    """An address of `/proc/net/tcp`: words of four bytes, each in the order of this machine."""
    raw = b"".join(bytes.fromhex(digits[at : at + 8])[::-1] for at in range(0, len(digits), 8))
    address = ipaddress.ip_address(raw)
    return str(getattr(address, "ipv4_mapped", None) or address)


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel lists sockets in /proc")
def test_the_pages_of_a_local_master_listen_on_loopback_and_end_nothing(with_pages: Sessions) -> None:
    """They listened on all addresses, and whoever reached them could end a batch there."""
    session = with_pages.get()
    found = listening(process_of().pid)
    assert found
    assert all(ipaddress.ip_address(one).is_loopback for one in found), found
    url = session.sparkContext.uiWebUrl
    with urllib.request.urlopen(f"{url}/jobs/", timeout=60) as page:
        assert b"Spark Jobs" in page.read()
    with pytest.raises(urllib.error.HTTPError, match=r"Error 40[345]"):
        urllib.request.urlopen(urllib.request.Request(f"{url}/jobs/job/kill/?id=0", method="POST"), timeout=60)
