"""Starts processes of `headgate`, each forked from one that has imported it already: see `tests.forking`.

    forked.run(["status", job], env=…) -> CompletedProcess
    forked.popen(["run", "job:app"], env=…, stdout=log) -> Forked, which is used as `subprocess.Popen` is
    await forked.start([…]) -> the same as `asyncio.create_subprocess_exec` gives

A test starts a worker and asks about it with commands, over and over, and a start of Python with headgate costs a second of a processor:
more than what it then does. They are processes all the same, with their own number, environment, directory, signals and exit code. What
tests the start itself (an interpreter without a library, an interruption of its first moments) starts one the usual way.
"""

from __future__ import annotations

import asyncio
import atexit
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

ROOT = Path(__file__).resolve().parents[1]
_lock = threading.Lock()
_server: list[tuple[subprocess.Popen[bytes], str]] = []


def server() -> tuple[subprocess.Popen[bytes], str]:
    """The process that forks, and where it listens; started when it is first needed."""
    with _lock:
        if not _server:
            address = f"\0headgate-tests-{os.getpid()}-{os.urandom(8).hex()}"  # a path may be too long for a socket
            if sys.platform != "linux":
                address = f"{tempfile.mkdtemp(prefix='headgate-forked-')}/socket"
            with socket.socket(socket.AF_UNIX) as listening:
                listening.bind(address)
                listening.listen(64)
                command = [sys.executable, "-m", "tests.forking", str(listening.fileno())]
                process = subprocess.Popen(command, stdin=subprocess.PIPE, pass_fds=[listening.fileno()], cwd=ROOT)
            _server.append((process, address))
            atexit.register(close)
        return _server[0]


def close() -> None:
    """End it; its processes have ended before."""
    with _lock:
        while _server:
            process, address = _server.pop()
            assert process.stdin is not None
            process.stdin.close()
            process.wait(60)
            if not address.startswith("\0"):
                shutil.rmtree(Path(address).parent)


def is_server(pid: int) -> bool:
    """Whether this is the process that forks."""
    return any(process.pid == pid for process, _ in _server)


class Forked:
    """A started process: what tests use of `subprocess.Popen` and of `asyncio.subprocess.Process`."""

    def __init__(self, words: Sequence[str], env: Mapping[str, str] | None, cwd: Any, *given: IO[Any] | None) -> None:
        """`given`: its standard input, which is empty for None, its output, and where it complains."""
        self.args = ["headgate", *map(str, words)]
        self.returncode: int | None = None
        asked = {"words": self.args[1:], "env": dict(os.environ if env is None else env), "cwd": str(cwd or Path.cwd())}
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(server()[1])
        data = json.dumps(asked).encode() + b"\n"
        with open(os.devnull, "rb") as nothing:
            sent = socket.send_fds(self._socket, [data], [(one or nothing).fileno() for one in given])
        self._socket.sendall(data[sent:])
        self._said = self._socket.makefile("rb")
        self.pid = int(self._said.readline())
        self._ended = threading.Event()
        self._calls: list[Callable[[], object]] = []
        self._one_at_a_time = threading.Lock()
        threading.Thread(target=self._wait, name=f"process {self.pid}", daemon=True).start()

    def _wait(self) -> None:
        code = self._said.readline()
        self._said.close()
        self._socket.close()
        with self._one_at_a_time:
            self.returncode = int(code) if code else -signal.SIGKILL
            self._ended.set()
            for call in self._calls:
                call()

    def poll(self) -> int | None:
        """Its exit code, if it has ended."""
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send it a signal, if it has not ended."""
        if self.returncode is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """End it at once."""
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        """Ask it to end."""
        self.send_signal(signal.SIGTERM)

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code, once it has ended."""
        if not self._ended.wait(timeout):
            raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
        assert self.returncode is not None
        return self.returncode

    async def ended(self) -> int:
        """The same for a coroutine."""
        loop = asyncio.get_running_loop()
        done = asyncio.Event()

        def tell() -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(done.set)

        with self._one_at_a_time:
            if self.returncode is None:
                self._calls.append(tell)
            else:
                done.set()
        await done.wait()
        assert self.returncode is not None
        return self.returncode


class AsyncForked(Forked):
    """The same with a `wait` that is awaited."""

    async def wait(self) -> int:  # type: ignore[override]
        """Its exit code, once it has ended."""
        return await self.ended()


def popen(
    words: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    cwd: Any = None,
    stdin: IO[Any] | None = None,
    stdout: IO[Any],
    stderr: IO[Any] | None = None,
) -> Forked:
    """Start `headgate` with these words."""
    return Forked(words, env, cwd, stdin, stdout, stderr or stdout)


async def start(
    words: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    cwd: Any = None,
    stdout: IO[Any],
    stderr: IO[Any] | None = None,
) -> AsyncForked:
    """The same in a coroutine."""
    return await asyncio.to_thread(AsyncForked, words, env, cwd, None, stdout, stderr or stdout)


def run(
    words: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    cwd: Any = None,
    given: str = "",
    timeout: float = 300.0,
) -> subprocess.CompletedProcess[str]:
    """What `headgate` with these words, and this on its standard input, prints, and its exit code."""
    with tempfile.TemporaryFile() as into, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        into.write(given.encode())
        into.seek(0)
        one = popen(words, env=env, cwd=cwd, stdin=into, stdout=out, stderr=err)
        try:
            code = one.wait(timeout)
        except BaseException:
            one.kill()
            raise
        said = [(file.seek(0), file.read().decode())[1] for file in (out, err)]
    return subprocess.CompletedProcess(one.args, code, *said)


SHIM = """#!{python} -IS
import json, os, signal, socket, sys

asked = {{"words": sys.argv[1:], "env": dict(os.environ), "cwd": os.getcwd()}}
one = socket.socket(socket.AF_UNIX)
one.connect({address!r})
data = json.dumps(asked).encode() + b"\\n"
one.sendall(data[socket.send_fds(one, [data], [0, 1, 2]):])
said = one.makefile("rb")
pid = int(said.readline())
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    if signal.getsignal(number) != signal.SIG_IGN:
        signal.signal(number, lambda number, _: os.kill(pid, number))
code = int(said.readline())
if code < 0:
    signal.signal(-code, signal.SIG_DFL)
    os.kill(os.getpid(), -code)
sys.exit(code)
"""


def command_in(directory: Path) -> Path:
    """A directory with a command `headgate` for shells. It hands over what it was given, signals, too; if it is killed, its process is."""
    directory.mkdir()
    script = directory / "headgate"
    script.write_text(SHIM.format(python=sys.executable, address=server()[1]))
    script.chmod(0o755)
    return directory
