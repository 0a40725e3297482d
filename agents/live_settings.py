"""The current settings of a process. Operators change them while it runs, so callers read a setting each time they need it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..core.settings import find, parse


class Settings:
    """`given` holds the settings that were set; all others have their defaults."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        self.given: dict[str, Any] = dict(given)

    def value(self, name: str) -> Any:
        """The current value of a setting, parsed."""
        return parse(name, self.given.get(name, find(name).default))

    def seconds(self, name: str) -> float:
        """A duration setting, in seconds."""
        return self.milliseconds(name) / 1000

    def milliseconds(self, name: str) -> int:
        """A duration setting, in milliseconds."""
        return self.value(name)

    def text(self, name: str) -> str:
        """A text setting."""
        return self.value(name)

    def given_or(self, name: str, otherwise: Any) -> Any:
        """The value of a setting if it is given, else `otherwise`: the value that this process was started with."""
        return parse(name, self.given[name]) if name in self.given else otherwise


def batch_limits(settings: Settings) -> dict[str, tuple[int, int]]:
    """Rows and age of batches whose steps leave them to settings, by the first part of these."""
    return {of: (settings.value(f"{of}.max-rows"), settings.milliseconds(f"{of}.max-age")) for of in ("sink", "files")}
