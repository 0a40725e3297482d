"""A worker of the fleet: a process behind a network of its own, and what its log and the kernel say of it."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import orjson
import psutil

from tests import forked
from tests.proxy import Proxy

if TYPE_CHECKING:
    from .fleet import Fleet

HERE = Path(__file__).parent
IDLE_S, SESSION_S = 3.0, 3.0
REFUSES = (b"accepts no write", b"No space left on device")
QUICK = {
    "session.timeout": f"{SESSION_S:g}s",
    "heartbeat.interval": "300ms",
    "watermark.idle-timeout": f"{IDLE_S:g}s",
    "placement.debounce": "100ms",
    "placement.rejoin-grace": "1s",
    "intermediate.trim": "false",  # for whoever looks into a difference
}


def waited_s(threads: Iterable[int]) -> dict[int, float]:
    """For how long each of these threads has waited for a processor, by the kernel's account; nothing where it gives none."""
    found = dict[int, float]()
    for one in threads:
        with contextlib.suppress(OSError):
            found[one] = int(Path(f"/proc/{one}/schedstat").read_text().split()[1]) / 1e9
    return found


class Worker:
    """One worker, which is started again whenever it has ended, and its network."""

    process: subprocess.Popen[bytes]

    def __init__(self, fleet: Fleet, name: str) -> None:
        self.fleet, self.name = fleet, name
        self.proxy = Proxy(fleet.broker.bootstrap)
        self.proxy.__enter__()
        self.log = fleet.directory / f"{name}.log"
        self.log.touch()
        self._read = self.log.stat().st_size  # one of the same name may have been here before
        self._starts = 0
        self.refused = 0
        """How often its log says that a disk refuses writes."""
        self._up = self._ready = False
        self._incarnations = set[str]()
        self._start()

    def refuses(self) -> int:
        """How often its log says so by now."""
        self._look()
        return self.refused

    @property
    def up(self) -> bool:
        """Whether this start has come to headgate's own work."""
        self._look()
        return self._up and self.runs

    @property
    def ready(self) -> bool:
        """Whether it says so: it runs all tasks that are its own."""
        self._look()
        return self._ready

    @property
    def incarnations(self) -> int:
        """How many it has had, in all its starts."""
        self._look()
        return len(self._incarnations)

    @property
    def runs(self) -> bool:
        """Whether the process is there (or is stopped)."""
        return self.process.poll() is None

    @property
    def threads(self) -> tuple[int, int]:
        """Those that all work passes through: its main thread, and its network's."""
        return self.process.pid, self.proxy.thread

    @property
    def awake(self) -> bool:
        """Whether it runs and is not stopped."""
        with contextlib.suppress(psutil.NoSuchProcess):
            return self.runs and psutil.Process(self.process.pid).status() != psutil.STATUS_STOPPED
        return False

    def _look(self) -> None:
        """Read what it has logged since."""
        with self.log.open("rb") as log:
            log.seek(self._read)
            for line in log:
                if not line.endswith(b"\n"):
                    break
                self._read += len(line)
                self.refused += any(word in line for word in REFUSES)
                try:
                    said = orjson.loads(line)
                    self._up |= said["event"] == "worker started"
                    self._ready = said["ready"] if said["event"] == "readiness" else self._ready
                    if said.get("processor", self.name) == self.name:  # a leader names those of others
                        self._incarnations |= {said["incarnation"]} - {""}
                except (ValueError, KeyError, TypeError):  # others log here, too
                    continue

    def start_again(self) -> None:
        """Unless it runs."""
        if not self.runs:
            self._look()
            self._up = self._ready = False
            self._start()

    def _start(self) -> None:
        command = ["run", "fleet_job:app", "--app-dir", str(HERE)]
        command += ["-b", self.proxy.bootstrap, "--state-dir", str(self.fleet.disk_of(self.name))]
        command += ["--processor-id", self.name, "--run-id", "r", "--no-wait", "--log-format", "json"]
        self._starts += 1
        prepare = {"stop.prepare": "5s" if self._starts % 2 else "0s"}  # every other time it works on after a SIGTERM
        command += [word for name, value in {**QUICK, **prepare}.items() for word in ("--set", f"{name}={value}")]
        with self.log.open("ab") as out:
            names = {**os.environ, **self.fleet.names}
            self.process = forked.popen(command, stdout=out, env=names, cwd=self.fleet.directory)

    def close(self) -> None:
        """End it, and its network."""
        if self.runs:
            self.process.kill()
            self.process.wait(60)
        self.proxy.__exit__()

    def tail(self, lines: int = 12) -> str:
        """The end of its log."""
        said = self.log.read_text(errors="replace").splitlines()[-lines:]
        return "\n".join([f"--- {self.log}", *(line[:400] for line in said)])
