"""What the parts of a process need that have machines: to have them recorded. `recorder` does it, and `NoStories` does nothing."""

from __future__ import annotations

from typing import Any, Protocol

from ...core.machine import Machine

TASK, MEMBER, LEADER, COMMITTER = "task", "member", "leader", "committer"
"""The kinds of machines."""


class Stories(Protocol):
    """Where the machines of a process are recorded."""

    def follow(self, machine: Machine[Any, Any], kind: str, name: str, made: Any, grant: int = 0) -> None:
        """Record a machine that has had no event yet. `made`: what another one like it is made with."""
        ...


class NoStories:
    """Records nothing."""

    def follow(self, machine: Machine[Any, Any], kind: str, name: str, made: Any, grant: int = 0) -> None:
        """See `Stories`."""
