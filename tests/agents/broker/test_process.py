"""Daemons are started apart from us, recognised, and never mistaken for somebody else."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from headgate.agents.broker.process import Daemon, command_of, started_at


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    """A place for one daemon, ended afterwards."""
    daemon = Daemon(tmp_path / "pid", f"mark={tmp_path} ")
    yield daemon
    daemon.end()


def spawn(daemon: Daemon, tmp_path: Path, code: str = "import time; time.sleep(60)") -> int:
    """A Python that carries the mark."""
    return daemon.spawn(
        [sys.executable, "-c", code, f"mark={tmp_path}", "x"], environment=dict(os.environ), output=tmp_path / "out"
    )


def test_a_daemon_is_known_by_its_pid_file(daemon: Daemon, tmp_path: Path) -> None:
    """Number and start time stand in the file."""
    pid = spawn(daemon, tmp_path)
    assert daemon.pid() == pid
    assert (tmp_path / "pid").read_text().split() == [str(pid), started_at(pid)]
    daemon.end()
    assert daemon.pid() is None
    assert not (tmp_path / "pid").exists()


def test_it_lives_in_a_session_of_its_own_without_our_descriptors(daemon: Daemon, tmp_path: Path) -> None:
    """Ctrl-C in our terminal does not reach it, and no lock or pipe of ours lives on in it."""
    read, write = os.pipe()
    os.set_inheritable(write, True)
    pid = spawn(daemon, tmp_path)
    assert os.getsid(pid) == pid
    os.close(write)
    # The daemon would hold the other end open, and we would wait for the end of the pipe for as long as it lives.
    assert os.read(read, 1) == b""
    os.close(read)


def test_a_stale_pid_file_is_no_one(daemon: Daemon, tmp_path: Path) -> None:
    """A number that is nobody's, nonsense, and nothing."""
    for text in ("4194000\n12\n", "nonsense", "", "-1\n"):
        (tmp_path / "pid").write_text(text)
        assert daemon.pid() is None
        assert not daemon.send(signal.SIGKILL)


def test_a_number_that_belongs_to_someone_else_by_now_is_left_alone(daemon: Daemon, tmp_path: Path) -> None:
    """This very test runs under that number."""
    (tmp_path / "pid").write_text(f"{os.getpid()}\n{started_at(os.getpid())}\n")
    assert daemon.pid() is None
    daemon.end()
    assert command_of(os.getpid()) != ""


def test_the_same_program_started_at_another_time_is_someone_else(daemon: Daemon, tmp_path: Path) -> None:
    """The number came round, and even the mark is right."""
    pid = spawn(daemon, tmp_path)
    right = (tmp_path / "pid").read_text()
    (tmp_path / "pid").write_text(f"{pid}\n1\n")
    assert daemon.pid() is None
    (tmp_path / "pid").write_text(right)
    assert daemon.pid() == pid


def test_one_that_does_not_listen_is_made_to_go(daemon: Daemon, tmp_path: Path) -> None:
    """SIGTERM ignored, or stopped by SIGSTOP."""
    ready = tmp_path / "ready"
    code = f"import signal, time; signal.signal(15, signal.SIG_IGN); open({str(ready)!r}, 'w').close(); time.sleep(60)"
    spawn(daemon, tmp_path, code)
    while not ready.exists():
        os.sched_yield()
    assert not daemon.wait_gone(0.01)
    daemon.end(timeout_s=0.2)
    assert daemon.pid() is None
    spawn(daemon, tmp_path)
    daemon.send(signal.SIGSTOP)
    daemon.end(timeout_s=5)
    assert daemon.pid() is None


def test_a_directory_that_is_gone_starts_nothing(tmp_path: Path) -> None:
    """So a guard that has moved it away may be sure."""
    daemon = Daemon(tmp_path / "gone" / "pid", "mark")
    pid = daemon.spawn(
        [sys.executable, "-c", "import time; time.sleep(60)", "mark"], environment={}, output=tmp_path / "out"
    )
    assert daemon.wait_gone(60)
    assert command_of(pid) == ""
