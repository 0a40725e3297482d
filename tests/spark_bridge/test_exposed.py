"""What Spark shows to others on the machine and in the network: no secret on a command line, and with a local master it listens on this
machine's own addresses only, also when Spark's pages are on."""

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
from .process.test_submit import GIVEN

pytestmark = pytest.mark.spark
LISTENING = "0A"


@pytest.fixture(scope="module")
def exposed() -> Iterator[Sessions]:
    """A session that has secrets, and whose pages are on."""
    yield from warm_sessions(**GIVEN, **{"spark.ui.enabled": "true"})


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
def test_the_pages_of_a_local_master_listen_on_loopback_and_end_nothing(exposed: Sessions) -> None:
    """They listened on all addresses, and whoever reached them could end a batch there."""
    session = exposed.get()
    found = listening(process_of().pid)
    assert found
    assert all(ipaddress.ip_address(one).is_loopback for one in found), found
    url = session.sparkContext.uiWebUrl
    with urllib.request.urlopen(f"{url}/jobs/", timeout=60) as page:
        assert b"Spark Jobs" in page.read()
    with pytest.raises(urllib.error.HTTPError, match=r"Error 40[345]"):
        urllib.request.urlopen(urllib.request.Request(f"{url}/jobs/job/kill/?id=0", method="POST"), timeout=60)


def test_the_jvm_has_the_secrets_and_its_command_line_does_not(exposed: Sessions) -> None:
    """A password inside of an option or an address was shown to everyone who lists the processes of the machine."""
    session = exposed.get()
    command = Path(f"/proc/{process_of().pid}/cmdline").read_bytes()
    assert (b"SparkSubmit" in command, b"hunter2" in command) == (True, False)
    java = session._jvm.java.lang.System
    assert [java.getProperty(name) for name in ("x.password", "y")] == ['hunter2 "\\ ü', "1"]
    conf = session.sparkContext.getConf()
    assert conf.get("spark.hadoop.fs.s3a.secret.key") == "hunter2"
    assert java.getProperty("spark.hadoop.x.uri") == "https://ann:hunter2@host/"
