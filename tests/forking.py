"""A process that has imported headgate, and is forked for each command line that a test starts: see `tests.forked`.

    python -m tests.forking FD        FD: a listening Unix socket, whose connections each start one process

On a connection come one JSON document (`words`, `env`, `cwd`) and the descriptors 0, 1 and 2 of the process. The answer is its number,
and when it has ended, its exit code. A process whose connection closes before that is killed: who started it is gone.

What a child runs is what `python -m headgate.agents.cli` runs, in the same way up to the end of the interpreter.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import random
import runpy
import selectors
import signal
import socket
import sys
import threading
from typing import Any

WANTED = (
    "faust",
    "headgate.agents.broker.registry",
    "headgate.agents.cli.begin",
    "headgate.agents.cli.data.dead_letters",
    "headgate.agents.cli.data.draining",
    "headgate.agents.cli.data.parked",
    "headgate.agents.cli.data.tables",
    "headgate.agents.cli.see.status",
    "headgate.agents.cli.see.top",
    "headgate.agents.cli.start.plan",
    "headgate.agents.cli.start.run",
    "headgate.agents.cli.start.topic_verbs",
    "headgate.agents.cli.steer.seek",
    "headgate.agents.cli.steer.steering",
    "headgate.agents.operators.plain.aggregating",
    "headgate.agents.operators.plain.output",
    "headgate.agents.process.inside",
    "headgate.agents.process.memory",
    "headgate.agents.web.service",
    "headgate.agents.worker.worker",
)
"""What takes the time of a start. None of them starts a thread, which a fork would not have."""


class Forks:
    """Takes connections and forks, one process for each."""

    def __init__(self, listening: socket.socket) -> None:
        self._listening = listening
        self._alive: dict[int, socket.socket] = {}
        self._woken, self._wakes = socket.socketpair()
        self._selector = selectors.DefaultSelector()
        for one in (listening, self._woken, sys.stdin):
            self._selector.register(one, selectors.EVENT_READ)
        for one in (self._woken, self._wakes):
            one.setblocking(False)
        signal.set_wakeup_fd(self._wakes.fileno())
        signal.signal(signal.SIGCHLD, lambda *_: None)

    def serve(self) -> dict[str, Any] | None:
        """Until stdin ends: None. In each child: what it was asked for."""
        while True:
            for key, _ in self._selector.select():
                if key.fileobj is sys.stdin:
                    for pid in self._alive:
                        os.kill(pid, signal.SIGKILL)
                    return None
                if key.fileobj is self._listening:
                    if (asked := self._start(self._listening.accept()[0])) is not None:
                        return asked
                elif key.fileobj is self._woken:
                    self._woken.recv(4096)
                    self._reap()
                else:
                    self._left(key.data)

    def _start(self, one: socket.socket) -> dict[str, Any] | None:
        """Fork. In the child: what it was asked for."""
        data, descriptors, _, _ = socket.recv_fds(one, 1 << 22, 3)
        while not data.endswith(b"\n"):
            more = one.recv(1 << 22)
            if not more:  # who asked died before it had said all
                for descriptor in descriptors:
                    os.close(descriptor)
                one.close()
                return None
            data += more
        asked = json.loads(data)
        pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            self._selector.close()
            for own in (one, self._listening, self._woken, self._wakes, *self._alive.values()):
                own.close()
            for at, descriptor in enumerate(descriptors):
                os.dup2(descriptor, at)
                os.close(descriptor)
            return asked
        for descriptor in descriptors:
            os.close(descriptor)
        self._alive[pid] = one
        self._selector.register(one, selectors.EVENT_READ, pid)
        with contextlib.suppress(OSError):  # who asked is gone, which the selector says
            one.sendall(b"%d\n" % pid)
        return None

    def _reap(self) -> None:
        """Say of those that have ended how."""
        for pid, one in list(self._alive.items()):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                del self._alive[pid]
                with contextlib.suppress(OSError):  # no one listens any more
                    one.sendall(b"%d\n" % os.waitstatus_to_exitcode(status))
                with contextlib.suppress(KeyError):
                    self._selector.unregister(one)
                one.close()

    def _left(self, pid: int) -> None:
        """Who started it is gone."""
        if (one := self._alive.get(pid)) is not None:  # it may just have ended, too
            self._selector.unregister(one)
            os.kill(pid, signal.SIGKILL)


def become(asked: dict[str, Any]) -> None:
    """Be the process that was asked for."""
    inherited, given = (one.get("PYTHONPATH", "").split(os.pathsep) for one in (os.environ, asked["env"]))
    os.environ.clear()
    os.environ.update(asked["env"])
    os.chdir(asked["cwd"])
    sys.path[0] = asked["cwd"]
    sys.path[1:1] = [one for one in given if one and one not in inherited]
    sys.argv = ["headgate", *asked["words"]]
    random.seed()
    runpy.run_module("headgate.agents.cli", run_name="__main__", alter_sys=True)


def main() -> None:
    """Import, then serve."""
    listening = socket.socket(fileno=int(sys.argv[1]))
    for name in WANTED:
        importlib.import_module(name)
    assert threading.active_count() == 1, threading.enumerate()
    gc.freeze()
    if (asked := Forks(listening).serve()) is not None:
        become(asked)


if __name__ == "__main__":
    main()
