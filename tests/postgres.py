"""A real PostgreSQL for tests: Debian's, one server for each process of the run, in a temporary directory. Where there is none, tests that
want one are skipped."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

HOMES = (*sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True), *map(Path, os.environ["PATH"].split(":")))
NOBODY = "nobody"


def home() -> Path:
    """Where its programs are."""
    found = next((one for one in HOMES if (one / "initdb").exists() and (one / "postgres").exists()), None)
    if found is None or (os.geteuid() == 0 and shutil.which("setpriv") is None):
        pytest.skip("PostgreSQL is not installed here")
    return found


class Server:
    """A server that can be stopped and started again."""

    def __init__(self, top: Path) -> None:
        self._bin, self._data = home(), top / "data"
        self._as = []
        if os.geteuid() == 0:  # it refuses to run as root
            shutil.chown(top, NOBODY)
            self._as = ["setpriv", f"--reuid={NOBODY}", "--regid=nogroup", "--clear-groups"]
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port: int = free.getsockname()[1]
        self._log = top / "log"
        self._run("initdb", "-U", "hg", "--auth=trust", "--no-sync", "-E", "UTF8", "--locale=C")

    def _run(self, program: str, *arguments: str) -> None:
        done = subprocess.run(
            [*self._as, str(self._bin / program), "-D", str(self._data), *arguments],
            capture_output=True, text=True, stdin=subprocess.DEVNULL, cwd="/", check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr

    def start(self) -> None:
        """Start it, and wait until it can be reached."""
        options = f"-p {self.port} -c listen_addresses=127.0.0.1 -c unix_socket_directories= -c fsync=off"
        with self._log.open("ab") as log:
            subprocess.run(
                [*self._as, str(self._bin / "pg_ctl"), "-D", str(self._data), "-w", "-o", options, "start"],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/", check=True, start_new_session=True,
            )  # fmt: skip

    def stop(self, how: str = "fast") -> None:
        """Stop it."""
        self._run("pg_ctl", "-w", "-m", how, "stop")

    def database(self) -> str:
        """The URL of a new database."""
        name = f"t{uuid.uuid4().hex[:12]}"
        with psycopg.connect(self.url("postgres"), autocommit=True) as link:
            link.execute(f'CREATE DATABASE "{name}"'.encode())
        return self.url(name)

    def url(self, name: str) -> str:
        """The URL of a database."""
        return f"postgresql://hg@127.0.0.1:{self.port}/{name}"


@contextlib.contextmanager
def running() -> Iterator[Server]:
    """A server, while the block runs. Its directory is none of pytest's: those are closed to the user that the server runs as."""
    home()
    with tempfile.TemporaryDirectory(prefix="headgate-postgres-") as top:
        server = Server(Path(top))
        server.start()
        try:
            yield server
        finally:
            server.stop("immediate")
