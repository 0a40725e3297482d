"""How a JVM was begun, so that the next one begins without Spark's launcher.

`spark-submit` is a shell script that starts a JVM which only makes the command line of the JVM that is wanted. When that one has died and
another one with the same settings is needed, its command line is known: it differs in the directory that each JVM has for itself. On
a system without /proc, or when anything differs, the launcher is asked again.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class Program:
    """A command and its environment, for a JVM with this directory."""

    command: Sequence[str]
    environment: Mapping[str, str]
    home: str

    def at(self, home: str) -> Program:
        """The same for a JVM with another directory."""
        command = [word.replace(self.home, home) for word in self.command]
        return Program(command, {k: v.replace(self.home, home) for k, v in self.environment.items()}, home)


class Launched:
    """What became of the last program that was asked for."""

    def __init__(self) -> None:
        self._asked: Program | None = None
        self._became: Program | None = None

    def instead_of(self, wanted: Program) -> Program:
        """The program to begin."""
        if self._asked is None or self._became is None or self._asked.at(wanted.home) != wanted:
            return wanted
        if not Path(self._became.command[0]).exists():
            return wanted
        return self._became.at(wanted.home)

    def is_up(self, wanted: Program, pid: int) -> None:
        """The program that was wanted has become this process, which is the JVM itself by now."""
        self._asked = self._became = None
        with contextlib.suppress(OSError, ValueError):
            command = _words(PROC / str(pid) / "cmdline")
            pairs = (word.partition("=") for word in _words(PROC / str(pid) / "environ"))
            environment = {name: value for name, _, value in pairs}
            if command and environment and command[0].startswith("/"):
                self._asked, self._became = wanted, Program(command, environment, wanted.home)


def _words(path: Path) -> list[str]:
    return [os.fsdecode(word) for word in path.read_bytes().removesuffix(b"\0").split(b"\0")]
