"""A small process that cleans up if this process cannot.

It waits for the file lock of a lease, which is released when its holder ends, in whatever way. Then it kills the brokers below the
directory and removes the directory. Promises: no daemon outlives the holder of the lease. None can start afterwards, because the directory
is moved away first, and a daemon that cannot write its pid file does not start.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from .process import Daemon

LEASE = "lease"


class Lease:
    """A lock that a process holds while it lives; when it ends, the guard removes the directory.

    >>> lease = Lease(directory)        # doctest: +SKIP
    >>> Lease.guard(directory)          # doctest: +SKIP
    """

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._descriptor = os.open(directory / LEASE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._descriptor, fcntl.LOCK_EX)

    def release(self) -> None:
        """Release the lease: now the guard cleans up."""
        os.close(self._descriptor)

    @staticmethod
    def guard(directory: Path) -> subprocess.Popen[bytes]:
        """Start the guard of a leased directory. Any process may do so, not only the holder."""
        return subprocess.Popen(
            [sys.executable, "-m", __name__, str(directory)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            close_fds=True,
            start_new_session=True,
        )


def clean_up(directory: Path) -> None:
    """Kill every broker below `directory`, and remove it."""
    aside = directory.with_name(directory.name + ".gone")
    try:
        directory.rename(aside)
    except FileNotFoundError:
        return
    for node in _nodes(aside):
        was = directory / node.relative_to(aside)
        daemon = Daemon(node / "pid", f"-Dheadgate.node={was} ")
        deadline = time.monotonic() + 1.0
        while not daemon.is_written() and time.monotonic() < deadline:
            time.sleep(0.002)  # the pid file exists, but its content is not written yet
        daemon.send(signal.SIGKILL)
        daemon.wait_gone(10.0)
    shutil.rmtree(aside, ignore_errors=True)


def _nodes(below: Path) -> Iterator[Path]:
    """Every node's directory, and those of schema registries. A running broker deletes files inside of its own, so the search goes no
    deeper."""
    for folder, inside, files in os.walk(below):
        if Path(folder).name.startswith(("node-", "registry")):
            inside.clear()
            if "pid" in files:
                yield Path(folder)


def main(directory: Path) -> None:
    """Wait for the lease, then clean up."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    with contextlib.suppress(FileNotFoundError), (directory / LEASE).open("r+") as lease:
        fcntl.flock(lease, fcntl.LOCK_EX)
        clean_up(directory)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
