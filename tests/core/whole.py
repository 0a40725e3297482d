"""Everything that a machine remembers, as one comparable value: what an illegal event must leave as it was.

Looking at a few fields would let a change slip through in another; so this walks through all attributes, slots and containers. Only the
story is left out, for it says what was handled, and the plan, which is a frozen value.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import Any


def everything(value: Any, seen: frozenset[int] = frozenset()) -> Any:
    """A nested tuple of all that can be reached from here; a way back to what is being looked at is cut."""
    if value is None or isinstance(value, str | bytes | int | float | type) or callable(value):
        return value
    if id(value) in seen:
        return "..."
    seen = seen | {id(value)}
    if isinstance(value, Mapping):
        return tuple((everything(key, seen), everything(one, seen)) for key, one in value.items())
    if isinstance(value, Set):
        return tuple(sorted(map(repr, value)))
    if isinstance(value, list | tuple) or type(value).__name__ == "deque":
        return tuple(everything(one, seen) for one in value)
    names = [name for kind in type(value).__mro__ for name in getattr(kind, "__slots__", ())]
    fields = {name: getattr(value, name) for name in names if hasattr(value, name)} | getattr(value, "__dict__", {})
    return type(value).__name__, tuple(
        (name, everything(one, seen)) for name, one in fields.items() if name not in ("_steps", "plan")
    )
