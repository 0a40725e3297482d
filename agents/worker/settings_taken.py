"""Hands settings that operators change while a job runs to the parts of the process that use them.

`core.settings.TAKEN_BY` says which part takes which setting. Each part has one callback, and a change is acknowledged when all of them were
called. The leader and the supervisor have none: they read the overrides in the stream themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ...core.settings import TAKEN_BY
from ..live_settings import Settings
from .options import WorkerOptions

READERS = frozenset({"leader", "supervisor"})
PARTS = tuple(dict.fromkeys(part for parts in TAKEN_BY.values() for part in parts if part not in READERS))


class Overrides:
    """The operators' overrides as this process has applied them. Its own command line takes precedence."""

    def __init__(self, options: WorkerOptions, settings: Settings, parts: Mapping[str, Callable[[], None]]) -> None:
        """`parts`: the callback of each part. Several parts may share one."""
        self.given: dict[str, Any] = {}
        self.offset = -1
        """The overrides up to this offset of the coordinator stream are applied."""
        self._options = options
        self._settings = settings
        self._parts = tuple(dict.fromkeys(parts[part] for part in PARTS))

    def take(self, overrides: Mapping[str, Any], offset: int) -> None:
        """Apply the overrides. When this returns, every part has its new settings."""
        self.given = dict(overrides)
        self._settings.given = {**self._options.settings, **overrides, **self._options.flags}
        self.tell()
        self.offset = offset

    @property
    def masking(self) -> list[str]:
        """The settings that flags and variables of this process set, so that an override has no effect here; those with one come first."""
        return sorted(self._options.flags, key=lambda name: (name not in self.given, name))

    def tell(self) -> None:
        """Call the parts with the current settings."""
        for tell in self._parts:
            tell()
