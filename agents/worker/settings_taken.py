"""What operators change while a job runs, handed to the parts of a process that live by it.

`core.settings.TAKEN_BY` says which part takes which setting. Each part that is told has one way of being told; a change is acknowledged
when all of them have it. The leader is not told: it reads overrides where they stand, in the stream.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ...core.settings import TAKEN_BY
from ..live_settings import Settings
from .options import WorkerOptions

PARTS = tuple(dict.fromkeys(part for parts in TAKEN_BY.values() for part in parts if part != "leader"))


class Overrides:
    """The operators' overrides, as this process has taken them. What its command line says wins over them."""

    def __init__(self, options: WorkerOptions, settings: Settings, parts: Mapping[str, Callable[[], None]]) -> None:
        """`parts`: each part, and how it is told that settings have changed. One way may stand for several."""
        self.given: dict[str, Any] = {}
        self.offset = -1
        """Up to here in the coordinator stream they are applied."""
        self._options = options
        self._settings = settings
        self._told = tuple(dict.fromkeys(parts[part] for part in PARTS))

    def take(self, overrides: Mapping[str, Any], offset: int) -> None:
        """Tell every part; when this returns, all of them have what they take."""
        self.given = dict(overrides)
        self._settings.given = {**self._options.settings, **overrides, **self._options.flags}
        self.tell()
        self.offset = offset

    def tell(self) -> None:
        """As they are now."""
        for tell in self._told:
            tell()
