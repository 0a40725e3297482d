"""Writes what the machines of a process see and decide to its story on disk.

    machine.handle → its list → once a second, in a thread of its own: packed, compressed, written

Promises:

- The loop only appends to lists. Nothing here waits for a disk or is waited for, but for a moment at the end of the process.
- What was decided more than `EVERY_S` before a process is killed is on the disk, as far as the disk keeps up.
- A story that cannot be written stops, and nothing else does. That is said once, and what is lost is counted; a line says where it is
  missing. It is tried again every `AGAIN_S`.
- What waits to be written is bounded (`MOST_WAITING`).
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import weakref
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from ...core.machine import Machine, Now, RecordedStep
from ..logger import Logger
from ..port.port import Clock, Timer
from ..port.waiting import wait
from .blocks import MachineSteps, Packer, Who
from .files import StoryFiles

log = Logger("headgate.story")
EVERY_S = 1.0
AGAIN_S = 60.0
MOST_WAITING = 100_000
"""So many steps wait at most while the disk does not answer; then those of before are dropped."""
IN_BLOCK = 2000
"""So many steps of a machine stand in one block at most."""
CLOSES_S = 2.0
"""So long may the end of a process wait for its last lines."""


@dataclass(slots=True)
class _Followed:
    number: int
    kind: str
    name: str
    grant: int
    made: Any
    tape: list[RecordedStep]
    machine: weakref.ref[Machine[Any, Any]]
    steps: int = 0
    """How many were taken of the list."""
    lost: int = 0
    """How many of these were not written since the last that was."""


class Recorder:
    """Records the machines of one process; see above."""

    def __init__(
        self, files: StoryFiles, who: Who, clock: Clock, secrets: Iterable[str] = (), every_s: float = EVERY_S
    ) -> None:
        self._files = files
        self._who = who
        self._clock = clock
        self._packer = Packer(secrets)
        self._every_s = every_s
        self._followed: list[_Followed] = []
        self._begun = 0
        self._lock = threading.Lock()
        """Held while lists are emptied, and never while something is packed or written."""
        self._ends = threading.Event()
        self._ended = asyncio.Event()
        self._thread: threading.Thread | None = None
        self._looks: Timer | None = None
        self._again_s = float("-inf")
        """No write is tried before this time: the last one was refused."""
        self._said = False
        self.lost = 0
        """How many steps were not written, or could not be packed."""
        self.written = 0

    def follow(self, machine: Machine[Any, Any], kind: str, name: str, made: Any, grant: int = 0) -> None:
        """See `Stories`."""
        self._begun += 1
        one = _Followed(self._begun, kind, name, grant, made, machine.record(), weakref.ref(machine))
        with self._lock:
            self._followed.append(one)

    def start(self) -> None:
        """Write from now on."""
        loop = asyncio.get_running_loop()
        self._look()
        self._thread = threading.Thread(target=self._run, args=(loop,), name="headgate story", daemon=True)
        self._thread.start()

    async def stop(self) -> None:
        """Write what is there, and end, if the disk answers."""
        if self._thread is None:
            return
        self._ends.set()
        if self._looks is not None:
            self._looks.cancel()
        if not await wait(self._clock, self._ended, CLOSES_S):
            log.warning("the last lines of the story are not written: the disk does not answer")

    def _look(self) -> None:
        """On the loop: the disk may not answer, and then nothing takes from the lists."""
        if sum(len(one.tape) for one in self._followed) > MOST_WAITING:
            self._drop()
        self._looks = self._clock.call_later(self._every_s, self._look)

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        """The thread."""
        while not self._ends.wait(self._every_s):
            self._safely()
        self._safely()
        self._files.close()
        with contextlib.suppress(RuntimeError):  # the loop is closed: no one waits
            loop.call_soon_threadsafe(self._ended.set)

    def _safely(self) -> None:
        try:
            self.turn()
        except Exception:
            if not self._said:
                self._said = True
                log.exception("the story is not written")

    # ------------------------------------------------------------------------------------------------------------ a turn

    def turn(self) -> None:
        """Take what the machines have decided, and write it."""
        now = self._clock.now()
        if now.mono < self._again_s:
            self._drop()
            return
        while taken := self._take():
            try:
                self._write(taken)
            except OSError as error:
                self._refused(taken, error, now)
                return
        with self._lock:
            self._followed = [one for one in self._followed if one.tape or one.machine() is not None]

    def _take(self) -> list[tuple[_Followed, int, list[RecordedStep]]]:
        """Some steps of each machine, off its list, with the number of the first. The loop may append meanwhile."""
        found: list[tuple[_Followed, int, list[RecordedStep]]] = []
        with self._lock:
            for one in self._followed:
                if count := min(len(one.tape), IN_BLOCK):
                    found.append((one, one.steps, one.tape[:count]))
                    del one.tape[:count]
                    one.steps += count
        return found

    def _write(self, taken: list[tuple[_Followed, int, list[RecordedStep]]]) -> None:
        now = self._clock.now()
        who = replace(self._who, mono=now.mono, wall=now.wall)
        parts = [self._part(one, first, steps) for one, first, steps in taken]
        last_s = max(steps[-1][0].mono for _, _, steps in taken)
        self._files.write(self._packer.block(who, parts), who.wall_ms(last_s), now.wall)
        for one, _, steps in taken:
            one.lost = 0
            self.written += len(steps)

    def _part(self, one: _Followed, first: int, steps: list[RecordedStep]) -> MachineSteps:
        made = self._packer.value(one.made) if first == 0 else b""
        packed = [self._packer.step(step) for step in steps]
        return MachineSteps(one.number, one.kind, one.name, one.grant, made, first, one.lost, packed)

    def _refused(self, taken: list[tuple[_Followed, int, list[RecordedStep]]], error: OSError, now: Now) -> None:
        self._again_s = now.mono + AGAIN_S
        for one, _, steps in taken:
            self._lose(one, len(steps))
        self._drop()
        if not self._said:
            self._said = True
            log.warning(
                "the story of this worker is not written",
                why=error.strerror or str(error),
                directory=str(self._files.folder),
                to_do="make room on the disk; it is tried again each minute (story.max-bytes=0 writes none)",
            )

    def _drop(self) -> None:
        """Nothing is written now: keep nothing."""
        with self._lock:
            for one in self._followed:
                count = len(one.tape)
                del one.tape[:count]
                one.steps += count
                self._lose(one, count)

    def _lose(self, one: _Followed, count: int) -> None:
        one.lost += count
        self.lost += count
