"""One broker process: started apart from us, recognised again, and ended.

Decides who is ours: the process whose number stands in the pid file, that carries our mark in its command line, and that
started when the pid file says. So a pid file that outlived its process, or whose number belongs to another program by now,
is simply stale. Promises: nothing else is ever signalled; a daemon inherits no descriptor of ours.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

STEP_S = 0.02
"""How often we look at a process that is not our child: there is nothing to wait on."""


@dataclass(frozen=True, slots=True)
class Daemon:
    """The place of one daemon: its pid file, and the mark that its command line carries."""

    pid_file: Path
    mark: str

    def spawn(self, command: list[str], *, environment: dict[str, str], output: Path) -> int:
        """Start `command` in a session of its own and return its pid.

        A shell writes its own number into the pid file and then becomes the command, so there is no moment in which the
        process lives and the file does not know it; if the directory is gone, it does not start.
        """
        self.pid_file.unlink(missing_ok=True)
        script = 'echo $$ > "$1" && shift && exec "$@"'
        with output.open("ab") as sink:
            child = subprocess.Popen(
                ["/bin/sh", "-c", script, "sh", str(self.pid_file), *command],
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                close_fds=True,
                start_new_session=True,
                cwd="/",
                env=environment,
            )
        _children[child.pid] = child
        while not self.is_written() and child.poll() is None:
            time.sleep(0.002)
        if started := started_at(child.pid):
            draft = self.pid_file.with_suffix(".start")
            draft.write_text(f"{child.pid}\n{started}\n")
            draft.replace(self.pid_file)
        return child.pid

    def is_written(self) -> bool:
        """Whether the number stands in the pid file: between its making and its writing lies a moment."""
        try:
            return self.pid_file.stat().st_size > 0
        except OSError:
            return False

    def pid(self) -> int | None:
        """The number of the living process, or None if there is none (a stale pid file included)."""
        try:
            lines = self.pid_file.read_text().split()
        except OSError:
            return None
        if not lines or not lines[0].isdigit():
            return None
        pid = int(lines[0])
        if (child := _children.get(pid)) is not None and child.poll() is not None:
            del _children[pid]
            return None
        told = command_of(pid)
        # A living process has no command line for a moment of its `exec`; then its start alone must do.
        if self.mark not in told and (told or len(lines) < 2 or is_zombie(pid)):
            return None
        return pid if len(lines) < 2 or lines[1] == started_at(pid) else None

    def send(self, number: int) -> bool:
        """Signal the process; False if it does not live."""
        pid = self.pid()
        if pid is None:
            return False
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
            return True
        return False

    def wait_gone(self, timeout_s: float) -> bool:
        """Wait until the process is gone; False if it still lives after `timeout_s`."""
        pid = self.pid()
        if pid is None:
            return True
        if (child := _children.get(pid)) is not None:
            try:
                child.wait(timeout_s)
            except subprocess.TimeoutExpired:
                return False
            del _children[pid]
            return True
        deadline = time.monotonic() + timeout_s
        while self.pid() is not None:
            if time.monotonic() > deadline:
                return False
            time.sleep(STEP_S)
        return True

    def ask_to_end(self) -> None:
        """SIGTERM, and SIGCONT, for a stopped process hears nothing."""
        self.send(signal.SIGTERM)
        self.send(signal.SIGCONT)

    def end(self, timeout_s: float = 20.0) -> None:
        """Ask it to go, wait, and make it go (SIGKILL) if it does not; then remove the pid file."""
        self.ask_to_end()
        if not self.wait_gone(timeout_s):
            self.send(signal.SIGKILL)
            self.wait_gone(timeout_s)
        self.pid_file.unlink(missing_ok=True)


_children: dict[int, subprocess.Popen[bytes]] = {}
"""The daemons that this process started: a parent must collect them when they end."""


def command_of(pid: int) -> str:
    """The command line of a process, or nothing if there is none (a zombie has none)."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        if Path("/proc/self").exists():
            return ""
        return _ps(pid, "args")


def started_at(pid: int) -> str:
    """When a process started, in words that only have to be equal: clock ticks since boot, or the words of `ps`."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        if Path("/proc/self").exists():
            return ""
        return _ps(pid, "lstart").replace(" ", "_")


def is_zombie(pid: int) -> bool:
    """Whether it has ended, and only its parent has not asked for it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except (OSError, IndexError):
        return not Path("/proc/self").exists() and _ps(pid, "stat").startswith("Z")


def _ps(pid: int, column: str) -> str:
    return subprocess.run(
        ["ps", "-p", str(pid), "-o", f"{column}="], capture_output=True, text=True, check=False
    ).stdout.strip()
