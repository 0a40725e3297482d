"""One block of a story: the steps of some machines of one process, as bytes and back.

    block    [2 texts and a time of the process, [machine, …]]
    machine  [number, kind, name, grant, how it was made, a snapshot, number of its first step here, steps lost before it, [step, …]]
    step     [monotonic s, wall ms, state before, state after, name of the event, names of the decisions, event and decisions]

The last part of a step is packed on its own: most lines of a story are routine, and who looks for the others need not make their values.

Promise: secrets that the process was given are masked wherever they stand in a value, as in logs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import msgpack

from ...core.errors import DataError
from ...core.machine import Now, RecordedStep, StoryLine
from ...core.secrets import MASK
from .values import packing, unpack

_pack = cast("Callable[..., bytes]", msgpack.packb)
_unpack = cast("Callable[..., Any]", msgpack.unpackb)
SHORTEST_SECRET = 4
"""A shorter secret would be found in half of all texts; logs do not mask it either."""


@dataclass(frozen=True, slots=True)
class Who:
    """The process that a story is of."""

    worker: str
    process: str
    """The id of this start of the process."""
    version: str
    mono: float = 0.0
    wall: int = 0
    """Two clocks at one moment, when the block was written: the lines of a process are in the order of the first one."""

    def wall_ms(self, mono: float) -> int:
        """The wall clock of the process at this time of its monotonic clock."""
        return self.wall + round((mono - self.mono) * 1000)


@dataclass(frozen=True, slots=True)
class MachineSteps:
    """Steps of one machine that follow each other."""

    number: int
    """Of the machine in its process."""
    kind: str
    name: str
    """The task, or the worker."""
    grant: int
    """Of a task; otherwise 0."""
    made: bytes
    """What the machine was made with, in the block with its first step; otherwise empty."""
    state: bytes
    """The machine before the first of these steps (`snapshots`), in some blocks: its story can be replayed from here."""
    first: int
    """How many steps of the machine came before."""
    lost: int
    """How many of these were lost since the block before."""
    steps: Sequence[Any]
    """Each as it stands in the block."""


class Packer:
    """Makes blocks."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        known = {one for one in secrets if len(one) >= SHORTEST_SECRET}
        self._secrets = sorted(known, key=len, reverse=True)
        self._values = packing()
        self._bytes = [one.encode() for one in self._secrets]

    def block(self, who: Who, parts: Iterable[MachineSteps]) -> bytes:
        """A block as bytes."""
        rows = [[p.number, p.kind, p.name, p.grant, p.made, p.state, p.first, p.lost, p.steps] for p in parts]
        return _pack([who.worker, who.process, who.version, who.mono, who.wall, rows], unicode_errors="surrogatepass")

    def value(self, value: Any) -> bytes:
        """A value as bytes, with its secrets masked."""
        data = self._values(value)
        if any(secret in data for secret in self._bytes):
            data = _pack(
                self._clean(_unpack(data, strict_map_key=False, unicode_errors="surrogatepass")),
                unicode_errors="surrogatepass",
            )
        return data

    def _clean(self, value: Any) -> Any:
        if isinstance(value, str):
            for secret in self._secrets:
                value = value.replace(secret, MASK)
            return value
        if isinstance(value, list):
            return [self._clean(one) for one in cast("list[Any]", value)]
        if isinstance(value, dict):
            return {self._clean(key): self._clean(one) for key, one in cast("dict[Any, Any]", value).items()}
        return value

    def step(self, step: RecordedStep) -> list[Any]:
        """One step of a machine."""
        now, before, event, after, decided = step
        names = " ".join([type(one).__name__ for one in decided])
        return [
            now.mono,
            now.wall,
            str(before),
            str(after),
            type(event).__name__,
            names,
            self.value([event, list(decided)]),
        ]


def parts_of(block: bytes) -> tuple[Who, list[MachineSteps]]:
    """What a block contains. Raises `DataError` if that is none."""
    try:
        worker, process, version, mono, wall, rows = _unpack(block, use_list=False, unicode_errors="surrogatepass")
        return Who(worker, process, version, mono, wall), [MachineSteps(*row) for row in rows]
    except (ValueError, TypeError) as error:
        raise DataError(
            f"a block of a story cannot be read: {error}", remedy="the file is damaged, or of another version"
        ) from error


def line_of(step: Sequence[Any]) -> StoryLine:
    """The values of a step."""
    mono, wall, before, after, _, _, values = step
    event, decided = unpack(values)
    return StoryLine(Now(mono, wall), before, event, after, decided)


def made_with(part: MachineSteps) -> Any:
    """What a machine was made with."""
    return unpack(part.made)
