"""A machine in the middle of its life, as bytes: so that its story can be replayed from there, when its beginning is not kept any more.

    taken(machine)   on the loop, between two events: a copy of what may change, and references to what may not
    pack(taken)      in a thread: bytes (`values`)
    restored(bytes)  the machine again

What a machine keeps are objects of the classes of `core`, containers of Python, and values (`values.known`). Objects and containers are
written once each, so what two parts of a machine share they share again.

Promises:

- The copy shares nothing with the machine that may change.
- Reading runs no code but that of making empty objects of classes of `core`, whatever the bytes are.
- Another version may have other parts: what does not fit raises `NotRestored`, with the name of the class.
"""

from __future__ import annotations

import importlib
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from types import MappingProxyType
from typing import Any, cast

from ...core.machine import Machine
from ...core.secrets import masked
from .values import NAME, Unknown, known, unknown_in, unpack

REFERENCE, PROXY, ENUM, TUPLE = "reference", "proxy", "enum", "tuple"
_CORE = "headgate.core."
_PLAIN = (str, int, float, bool, type(None), bytes)
_CONTAINERS: Mapping[str, Callable[[], Any]] = MappingProxyType(
    {"dict": dict, "list": list, "set": set, "deque": deque, "Counter": Counter}
)
_OWN = frozenset({"_steps", "_tape", "handle"})
"""What a machine keeps for its story, and what listens to it, is no part of it."""
_WHYS = frozenset({"why", "detail"})


class NotCopied(Exception):
    """A machine keeps something that a snapshot cannot hold."""


class NotRestored(Exception):
    """A snapshot does not fit this version."""


class _Taking:
    """The objects and containers of one machine, each with its number."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self._numbers: dict[int, int] = {}
        self._alive: list[Any] = []

    def of(self, value: Any) -> Any:
        """The value, if it cannot change; else a reference to its copy. A list stands for a tuple: lists are copied like objects."""
        kind: type[Any] = type(value)
        if kind in _PLAIN or known().get(kind.__name__) is kind:
            return value
        if kind is tuple:
            return [self.of(one) for one in value]
        if kind is frozenset:
            return value
        if kind is MappingProxyType:
            return {NAME: PROXY, "of": self.of(dict(value))}
        name = f"{kind.__module__}:{kind.__qualname__}"
        if issubclass(kind, Enum) and name.startswith(_CORE):
            return {NAME: ENUM, "class": name, "is": value.value}
        if issubclass(kind, tuple) and name.startswith(_CORE):
            return {NAME: TUPLE, "class": name, "of": [self.of(one) for one in value]}
        number = self._numbers.get(id(value))
        if number is None:
            number = self._numbers[id(value)] = len(self.nodes)
            self._alive.append(value)
            self.nodes.append(None)
            self.nodes[number] = self._node(value, kind, name)
        return {NAME: REFERENCE, "is": number}

    def _node(self, value: Any, kind: type[Any], name: str) -> list[Any]:
        if kind is dict or kind is Counter:
            pairs = [[self.of(key), self.of(one)] for key, one in value.items()]
            return [kind.__name__, pairs]
        if kind is list or kind is deque:
            return [kind.__name__, [self.of(one) for one in value], getattr(value, "maxlen", None)]
        if kind is set:
            return [
                kind.__name__,
                [self.of(one) for one in sorted(value, key=lambda one: (type(one).__name__, str(one)))],
            ]
        if not name.startswith(_CORE) or "<" in name:
            raise NotCopied(name)
        return [name, [[attribute, self._attribute(attribute, one)] for attribute, one in _attributes(value)]]

    def _attribute(self, name: str, value: Any) -> Any:
        return masked(value) if name in _WHYS and isinstance(value, str) else self.of(value)


def _attributes(value: Any) -> Iterable[tuple[str, Any]]:
    for kind in type(value).__mro__:
        slots: Any = kind.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name not in ("__weakref__", "__dict__") and hasattr(value, name):
                yield name, getattr(value, name)
    for name, one in getattr(value, "__dict__", {}).items():
        if not (isinstance(value, Machine) and name in _OWN):
            yield name, one


def taken(machine: Machine[Any, Any]) -> Any:
    """A copy that `values.pack` makes bytes of. Raises `NotCopied` if the machine keeps a function of the job's code, or the like."""
    taking = _Taking()
    taking.of(machine)
    return taking.nodes


def restored(
    data: bytes, *, kind: type[Machine[Any, Any]] | None = None, like: Machine[Any, Any] | None = None
) -> Machine[Any, Any]:
    """The machine of these bytes. `kind`: another class of it. `like`: a machine whose class and configuration it has instead of its own,
    for that may have functions of the job's code. Raises `NotRestored`.
    """
    nodes: Any = unpack(data)
    strange = [name for name in unknown_in(nodes) if name not in (REFERENCE, PROXY, ENUM, TUPLE)]
    if strange and like is None:
        raise NotRestored(f"it has {', '.join(strange)}")
    try:
        made = [_empty(node) for node in nodes]
        for one, node in zip(made, nodes, strict=True):
            _fill(one, node, made)
    except (TypeError, ValueError, AttributeError, ImportError, IndexError, KeyError) as error:
        raise NotRestored(str(error)) from error
    machine = made[0] if made else None
    if not isinstance(machine, Machine):
        raise NotRestored("it is no machine")
    Machine.__init__(fresh := cast("Machine[Any, Any]", object.__new__(type(machine))))
    for name, one in vars(fresh).items():
        vars(machine).setdefault(name, one)
    if kind is not None:
        machine.__class__ = kind
    if like is not None:
        machine.__class__ = type(like)
        if hasattr(like, "config"):
            cast("Any", machine).config = cast("Any", like).config
    return cast("Machine[Any, Any]", machine)


def _empty(node: Any) -> Any:
    name = node[0]
    if name == "deque":
        return deque[Any](maxlen=node[2])
    if name in _CONTAINERS:
        return _CONTAINERS[name]()
    return object.__new__(_class(name))


def _class(name: str) -> type[Any]:
    module, _, path = str(name).partition(":")
    if not module.startswith(_CORE):
        raise NotRestored(f"{name} is no class of the core")
    found: Any = importlib.import_module(module)
    for part in path.split("."):
        found = getattr(found, part)
    if not isinstance(found, type):
        raise NotRestored(f"{name} is no class")
    return found


def _fill(one: Any, node: Any, made: list[Any]) -> None:
    name, contents = node[0], node[1]
    if name in ("dict", "Counter"):
        for key, value in contents:
            one[_made(key, made)] = _made(value, made)
    elif name in ("list", "deque"):
        one.extend(_made(value, made) for value in contents)
    elif name == "set":
        one.update(_made(value, made) for value in contents)
    else:
        for attribute, value in contents:
            object.__setattr__(one, attribute, _made(value, made))


def _made(value: Any, made: list[Any]) -> Any:
    if type(value) is tuple:
        return tuple(_made(one, made) for one in cast("tuple[Any, ...]", value))
    if not isinstance(value, Unknown):
        return value
    if value.name == REFERENCE:
        return made[value.fields["is"]]
    if value.name == PROXY:
        return MappingProxyType(_made(value.fields["of"], made))
    if value.name == ENUM:
        return _class(value.fields["class"])(value.fields["is"])
    if value.name == TUPLE:
        return _class(value.fields["class"])(*_made(value.fields["of"], made))
    raise NotRestored(f"this version cannot make {value}")
