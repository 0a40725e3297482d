"""The settings of a process as they are now: operators change them while it runs, so they are asked for when they are needed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..core.settings import find, parse


class Settings:
    """`given` holds what was said; everything else is at its default."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        self.given: dict[str, Any] = dict(given)

    def value(self, name: str) -> Any:
        """A setting as it is now, parsed."""
        return parse(name, self.given.get(name, find(name).default))

    def seconds(self, name: str) -> float:
        """A duration setting."""
        return self.milliseconds(name) / 1000

    def milliseconds(self, name: str) -> int:
        """A duration setting."""
        return self.value(name)

    def text(self, name: str) -> str:
        """A setting that is text."""
        return self.value(name)

    def given_or(self, name: str, otherwise: Any) -> Any:
        """A setting's value if it is given, else what this process was started with."""
        return parse(name, self.given[name]) if name in self.given else otherwise
