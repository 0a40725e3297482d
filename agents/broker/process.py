"""One broker process: started independently of this process, recognised later, and ended.

Decides which process is ours: the one whose pid is in the pid file, that has our mark in its command line, and that started when the pid
file says. So a pid file that outlived its process, or whose number now belongs to another program, is stale. Promises: no other process is
ever signalled. A daemon inherits no file descriptor from this process.
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
"""How often a process is polled that is not our child and therefore cannot be waited for."""


@dataclass(frozen=True, slots=True)
class Daemon:
    """One daemon: its pid file, and the mark in its command line."""

    pid_file: Path
    mark: str

    def spawn(self, command: list[str], *, environment: dict[str, str], output: Path) -> int:
        """Start `command` in a session of its own, and return its pid.

        A shell writes its own pid into the pid file and then becomes the command. So the process never runs without a pid file, and it does
        not start if the directory is gone.
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
        """Whether the pid file contains the number; it is created a moment before that is written."""
        try:
            return self.pid_file.stat().st_size > 0
        except OSError:
            return False

    def pid(self) -> int | None:
        """The pid of the running process, or None if there is none (the pid file may be stale)."""
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
        command = command_of(pid)
        # During `exec` a process has no command line for a moment; then its start time must suffice.
        if self.mark not in command and (command or len(lines) < 2 or is_zombie(pid)):
            return None
        return pid if len(lines) < 2 or lines[1] == started_at(pid) else None

    def send(self, number: int) -> bool:
        """Send a signal. Returns False if the process does not run."""
        pid = self.pid()
        if pid is None:
            return False
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
            return True
        return False

    def wait_gone(self, timeout_s: float) -> bool:
        """Wait until the process is gone. Returns False if it still runs after `timeout_s`."""
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
        """Send SIGTERM, and SIGCONT, because a stopped process does not react."""
        self.send(signal.SIGTERM)
        self.send(signal.SIGCONT)

    def end(self, timeout_s: float = 20.0) -> None:
        """Ask the process to end, kill it if it does not, and remove the pid file."""
        self.ask_to_end()
        if not self.wait_gone(timeout_s):
            self.send(signal.SIGKILL)
            self.wait_gone(timeout_s)
        self.pid_file.unlink(missing_ok=True)


_children: dict[int, subprocess.Popen[bytes]] = {}
"""The daemons that this process has started. As their parent, it must reap them."""


def command_of(pid: int) -> str:
    """The command line of a process; empty if there is none (as for a zombie)."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        if Path("/proc/self").exists():
            return ""
        return _ps(pid, "args")


def started_at(pid: int) -> str:
    """When a process started, as a text that is only compared: clock ticks since boot, or the output of `ps`."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        if Path("/proc/self").exists():
            return ""
        return _ps(pid, "lstart").replace(" ", "_")


def is_zombie(pid: int) -> bool:
    """Whether the process has ended and only its parent has not reaped it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except (OSError, IndexError):
        return not Path("/proc/self").exists() and _ps(pid, "stat").startswith("Z")


def _ps(pid: int, column: str) -> str:
    return subprocess.run(
        ["ps", "-p", str(pid), "-o", f"{column}="], capture_output=True, text=True, check=False
    ).stdout.strip()
