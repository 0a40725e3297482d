"""A JVM that takes the place of another one begins as that one did, without Spark's launcher."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest

from headgate.spark_bridge.process.launched import PROC, Launched, Program

pytestmark = pytest.mark.skipif(not PROC.is_dir(), reason="this system has no /proc")
SCRIPT = 'export MORE="more of $HOME_OF_IT"; exec "$1" -c "input()" "$HOME_OF_IT/port" "" last'


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    """A script that has become another program."""
    command = ["/bin/sh", "-c", SCRIPT, "sh", sys.executable]
    with subprocess.Popen(command, stdin=-1, stderr=-3, env={"HOME_OF_IT": "/tmp/a"}) as one:
        while sys.executable.encode() != (PROC / str(one.pid) / "cmdline").read_bytes().partition(b"\0")[0]:
            assert one.poll() is None
        yield one
        one.kill()


def wanted(home: str, **environment: str) -> Program:
    return Program(["/bin/submit", "--conf", f"dir={home}"], {"DIR": home, **environment}, home)


def test_the_next_one_begins_without_the_script(process: subprocess.Popen[bytes]) -> None:
    """With what the script has put into its command line and its environment, and with a directory of its own."""
    launched = Launched()
    assert launched.instead_of(wanted("/tmp/a")) == wanted("/tmp/a")
    launched.is_up(wanted("/tmp/a"), process.pid)
    found = launched.instead_of(wanted("/tmp/b"))
    assert list(found.command) == [sys.executable, "-c", "input()", "/tmp/b/port", "", "last"]
    assert found.environment["MORE"] == "more of /tmp/b"


def test_who_wants_something_else_asks_the_script_again(process: subprocess.Popen[bytes]) -> None:
    """Another environment, for example an archive of classes that is there by now; or the last one could not be read."""
    launched = Launched()
    launched.is_up(wanted("/tmp/a"), process.pid)
    assert launched.instead_of(wanted("/tmp/b", OPTS="x")) == wanted("/tmp/b", OPTS="x")
    launched.is_up(wanted("/tmp/a"), 2**22 + 1)
    assert launched.instead_of(wanted("/tmp/b")) == wanted("/tmp/b")
