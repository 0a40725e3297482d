"""Writes what the machines of a process see and decide to its story on disk.

    machine.handle → its list → once a second, in a thread of its own: packed, compressed, written

Promises:

- The loop only appends to lists. Nothing here waits for a disk or is waited for, but for a moment at the end of the process.
- What was decided more than `EVERY_S` before a process is killed is on the disk, as far as the disk keeps up.
- A story that cannot be written stops, and nothing else does. That is said once, and what is lost is counted; a line says where it is
  missing. It is tried again every `AGAIN_S`.
- What waits to be written is bounded (`MOST_WAITING`).
- With each new file, and behind lines that are lost, comes a snapshot of each machine, from which its story can be replayed.
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
from .snapshots import taken

log = Logger("headgate.story")
EVERY_S = 1.0
AGAIN_S = 60.0
MOST_WAITING = 100_000
"""So many steps wait at most while the disk does not answer; then those of before are dropped."""
IN_BLOCK = 2000
"""So many steps of a machine stand in one block at most."""
COPY_AFTER = 200
"""No snapshot is taken sooner after the last one than after so many steps, so that they stay the least part of a story."""
COPIES_S = 0.005
"""So long may the loop take snapshots in one turn; one of them takes about a millisecond."""
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
    wants: bool = False
    """A snapshot of it shall be taken."""
    copied: int = 0
    """How many steps came before its last snapshot."""
    state: tuple[int, Any] | None = None
    """A snapshot that is to be written, and how many steps came before it."""
    lost: int = 0
    """How many of these were not written since the last that was."""

    def copy_now(self) -> Any:
        """The snapshot, if the next step is the first behind it."""
        return self.state[1] if self.state is not None and self.state[0] == self.steps else None

    def room(self) -> int:
        """How many steps a block may take: none over a snapshot."""
        ahead = 0 if self.state is None else self.state[0] - self.steps
        return min(IN_BLOCK, ahead) if ahead > 0 else IN_BLOCK


_Taken = tuple[_Followed, int, Any, list[RecordedStep]]
"""A machine, the number of the first step, the snapshot before it if there is one, and the steps."""


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
        """On the loop, where machines stand still: take snapshots. And if the disk does not answer, nothing takes from the lists."""
        if sum(len(one.tape) for one in self._followed) > MOST_WAITING:
            self._drop()
        begun_s = self._clock.now().mono
        for one in list(self._followed):
            if one.wants and (machine := one.machine()) is not None:
                self._copy(one, machine)
                if self._clock.now().mono - begun_s > COPIES_S:
                    break  # the others have their turn next time
        self._looks = self._clock.call_later(self._every_s, self._look)

    def _copy(self, one: _Followed, machine: Machine[Any, Any]) -> None:
        one.wants = False
        try:
            copy = taken(machine)
        except Exception as error:  # noqa: BLE001 - its story is as good without
            log.debug("no snapshot of a machine is taken", machine=one.kind, name=one.name, why=str(error))
            return
        with self._lock:
            one.copied = one.steps + len(one.tape)
            one.state = one.copied, copy

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
        while steps_of := self._take():
            try:
                self._write(steps_of)
            except OSError as error:
                self._refused(steps_of, error, now)
                return
        with self._lock:
            self._followed = [one for one in self._followed if one.tape or one.machine() is not None]

    def _take(self) -> list[_Taken]:
        """Some steps of each machine, off its list. The loop may append meanwhile. A snapshot stands before the first one behind it."""
        found: list[_Taken] = []
        with self._lock:
            for one in self._followed:
                copy, most = one.copy_now(), one.room()
                if count := min(len(one.tape), most):
                    found.append((one, one.steps, copy, one.tape[:count]))
                    if copy is not None:
                        one.state = None
                    del one.tape[:count]
                    one.steps += count
        return found

    def _write(self, steps_of: list[_Taken]) -> None:
        now, begun = self._clock.now(), self._files.begun
        who = replace(self._who, mono=now.mono, wall=now.wall)
        parts = [self._part(*each) for each in steps_of]
        last_s = max(steps[-1][0].mono for *_, steps in steps_of)
        self._files.write(self._packer.block(who, parts), who.wall_ms(last_s), now.wall)
        for one, *_, steps in steps_of:
            one.wants, one.lost = one.wants or one.lost > 0, 0
            self.written += len(steps)
        if begun and self._files.begun > begun:  # the story of each machine can be replayed from each file on
            with self._lock:
                for one in self._followed:
                    one.wants = one.wants or one.steps - one.copied >= COPY_AFTER

    def _part(self, one: _Followed, first: int, copy: Any, steps: list[RecordedStep]) -> MachineSteps:
        made = self._packer.value(one.made) if first == 0 else b""
        state = b"" if copy is None else self._packer.value(copy)
        packed = [self._packer.step(step) for step in steps]
        return MachineSteps(one.number, one.kind, one.name, one.grant, made, state, first, one.lost, packed)

    def _refused(self, steps_of: list[_Taken], error: OSError, now: Now) -> None:
        self._again_s = now.mono + AGAIN_S
        for one, *_, steps in steps_of:
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
        if count:
            one.lost += count
            self.lost += count
            one.state = None
