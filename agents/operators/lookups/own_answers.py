"""An answer of a service for each record that gets it: records may share one, and user code may change what it gets.

Promises: what a record's code does to its answer, no other record sees, nor the same one when its letter runs again. That holds for dicts,
lists, sets, dataclasses and Structs, in each other, and for what they hold of texts, numbers and other things that cannot change. An object
of another kind can be copied by its own class alone, so all records have the same one.
"""

from __future__ import annotations

import copy
import dataclasses
from typing import Any, cast

DEEPEST = 100
"""What is nested more deeply is shared; so is what contains itself."""


def own(answer: Any, depth: int = 0) -> Any:
    """This answer, for one record alone.

    >>> kept = {"price": 3, "of": ["a"]}
    >>> own(kept)["of"].append("b"), kept
    (None, {'price': 3, 'of': ['a']})
    """
    kind = type(answer)
    if depth > DEEPEST or kind in _FIXED:
        return answer
    if kind is dict:
        return {name: own(one, depth + 1) for name, one in answer.items()}
    if kind is list or kind is set:
        return kind([own(one, depth + 1) for one in answer])
    if kind is tuple:
        return tuple([own(one, depth + 1) for one in answer])
    if (names := _fields(kind)) is not None:
        return _object(answer, names, depth)
    if isinstance(answer, dict | list | set | bytearray):  # a subclass, such as a defaultdict or a Counter
        return copy.copy(cast("Any", answer))
    return answer


_FIXED = frozenset((str, int, float, bool, bytes, type(None)))


def _fields(kind: Any) -> tuple[str, ...] | None:
    """The fields of a dataclass or Struct whose objects can change; None for other types."""
    if found := getattr(kind, "__struct_fields__", None):
        return None if kind.__struct_config__.frozen else found
    params = getattr(kind, "__dataclass_params__", None)
    if params is None or params.frozen:
        return None
    return tuple(one.name for one in dataclasses.fields(kind))


def _object(answer: Any, names: tuple[str, ...], depth: int) -> Any:
    made = copy.copy(answer)
    for name in names:
        if type(one := getattr(made, name, None)) not in _FIXED:
            setattr(made, name, own(one, depth + 1))
    return made
