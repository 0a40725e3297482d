"""The events and decisions of machines as bytes, and back.

A value of one of the classes that the machines speak (`known`) becomes a map of its name and its fields. Fields that have their default
are left out, so that what a version has added does not hinder what was written before. No bytes name anything but these classes: reading
runs no code, whatever the bytes are.

Promises:

- `unpack(pack(value)) == value` for events, instructions and configurations of the machines, with these limits: functions of the code that
  a configuration holds become `Unknown`, but for those of headgate itself; a mapping comes back as a dict.
- A class or a field that this version does not know becomes `Unknown`, too, which can be shown and not replayed.
- Settings whose names are those of secrets, and what looks like a secret in texts for people, are masked (`core.secrets`), as where these
  are shown. What else is masked is the caller's matter.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, dataclass
from enum import Enum
from functools import cache
from types import FunctionType, MappingProxyType, ModuleType
from typing import Any, cast

import msgpack

from ...core import machine, names, orders
from ...core.coordination import events, messages, placement
from ...core.coordination.leader import plan as leader_plan
from ...core.coordination.leader import protocol as leader_protocol
from ...core.coordination.member import plan as member_plan
from ...core.coordination.member import protocol as member_protocol
from ...core.graph import graph, grouping, model
from ...core.progress import frames, producers
from ...core.secrets import masked
from ...core.settings import shown
from ...core.task import plan as task_plan
from ...core.task import protocol as task_protocol
from ...core.task.committer import commit_protocol
from ...core.task.stored import checkpoint

_unpack = cast("Callable[..., Any]", msgpack.unpackb)
NAME = ""
"""The key of a map under which its class stands."""
MAP, SET, FUNCTION, OTHER = "map", "set", "function", "other"
_MODULES: tuple[ModuleType, ...] = (
    machine, names, orders, events, messages, leader_plan, leader_protocol, member_plan, member_protocol, graph, model, frames, producers,
    task_plan, task_protocol, commit_protocol, checkpoint,
)  # fmt: skip
_BY_NAME = frozenset({"arguments", "settings", "overrides", "progress"})
"""Fields that are maps from settings, or the like, to plain values: as they are read, with lists."""

_TEXTS = frozenset({"why", "detail", "text", "remark", "problem", "refused", "error", "failed", "remedy", "fields"})
"""Fields with texts for people, which may repeat what user code has raised."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """A value that this version cannot make: of a class or with fields that it does not know, or a function of the job's code."""

    name: str
    fields: Mapping[str, Any]

    def __str__(self) -> str:
        return f"{self.name}({', '.join(f'{key}={value}' for key, value in self.fields.items())})"


@cache
def known() -> Mapping[str, type[Any]]:
    """The classes that may stand in a story, by name."""
    found: dict[str, type[Any]] = {}
    for module in _MODULES:
        for name, one in vars(module).items():
            if isinstance(one, type) and one.__module__ == module.__name__ and _is_value(one):
                if name in found:
                    raise TypeError(f"two classes of machines are named {name}: {found[name]} and {one}")
                found[name] = one
    return MappingProxyType(found)


def _is_value(one: type[Any]) -> bool:
    """Whether values of it may stand in a story. Frames with records of users may not."""
    if one.__name__ in ("UserFrame", "BatchFrame", "ArrowFrame", "LogKey", "LogValue"):
        return False
    return dataclasses.is_dataclass(one) or issubclass(one, Enum) or hasattr(one, "_fields")


def pack(value: Any) -> bytes:
    """A value as bytes.

    >>> unpack(pack(task_protocol.ChunkTaken(names.StreamPartition("orders", 0), 7)))
    ChunkTaken(at=StreamPartition(stream='orders', partition=0), upto=7)
    """
    return packing()(value)


def packing() -> Callable[[Any], bytes]:
    """What packs many values, for one thread.

    >>> packing()(None)
    b'\\xc0'
    """
    packer: Any = cast("Any", msgpack).Packer(default=_plain, strict_types=True, unicode_errors="surrogatepass")
    return packer.pack


def unpack(data: bytes) -> Any:
    """The value of these bytes; a list comes back as a tuple. Raises `ValueError` if they are not such bytes."""
    return _unpack(data, object_hook=_made, use_list=False, strict_map_key=False, unicode_errors="surrogatepass")


_Reader = Callable[[Any], dict[str, Any]]


_readers: dict[type[Any], _Reader] = {}


def _reader(kind: type[Any]) -> _Reader:
    """What makes a map of the values of a class."""
    name = kind.__name__
    if issubclass(kind, Enum):
        return lambda value: {NAME: name, "is": value.value}
    if hasattr(kind, "_fields"):
        fields = cast("Any", kind)._fields
        return lambda value: {NAME: name, **dict(zip(fields, value, strict=True))}
    ways = [(one.name, _default(one), _way(kind, one.name)) for one in dataclasses.fields(kind) if one.init]

    def read(value: Any) -> dict[str, Any]:
        found: dict[str, Any] = {NAME: name}
        for field, default, way in ways:
            given = getattr(value, field)
            if given is default or (given == default and type(given) is type(default)):
                continue
            if way is not None:
                given = way(value, given)
            found[field] = _mapping(given) if type(given) is dict else given
        return found

    return read


def _default(field: dataclasses.Field[Any]) -> Any:
    if field.default is not MISSING:
        return field.default
    return MISSING if field.default_factory is MISSING else field.default_factory()


def _way(kind: type[Any], field: str) -> Callable[[Any, Any], Any] | None:
    """How a field that may hold settings is masked."""
    if kind is messages.SetConfig and field == "value":
        return lambda owner, value: shown(owner.setting, value)
    if kind is messages.SetConfig and field == "changes":
        return lambda owner, value: tuple(
            dataclasses.replace(one, value=shown(owner.setting, one.value)) for one in value
        )
    if field == "arguments" and kind is messages.SetRequest:
        return lambda _, value: _masked(_argument(value))
    if field in _TEXTS:
        return lambda _, value: _without_secrets(value)
    if field in _BY_NAME:
        return lambda _, value: _masked(value) if isinstance(value, Mapping) else value
    return None


def _without_secrets(value: Any) -> Any:
    """A text, or several, without what is a secret by the look of it."""
    if isinstance(value, str):
        return masked(value)
    if type(value) is tuple:
        return tuple(_without_secrets(one) for one in cast("tuple[Any, ...]", value))
    if isinstance(value, Mapping):
        return {key: _without_secrets(one) for key, one in cast("Mapping[Any, Any]", value).items()}
    return value


def _masked(value: Mapping[str, Any]) -> dict[str, Any]:
    return {name: shown(str(name), one) for name, one in value.items()}


def _argument(value: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of a request, which may name a setting and give its value."""
    found = dict(value)
    if "setting" in found and "value" in found:
        found["value"] = shown(str(found["setting"]), found["value"])
    return found


def _plain(value: Any) -> Any:
    """What msgpack takes for a value that it does not know."""
    kind: type[Any] = type(value)
    if kind is tuple:
        return [_mapping(one) if type(one) is dict else one for one in value]
    if (reader := _readers.get(kind)) is not None:
        return reader(value)
    if known().get(kind.__name__) is kind:
        reader = _readers[kind] = _reader(kind)
        return reader(value)
    if isinstance(value, Mapping):
        return _mapping(cast("Mapping[Any, Any]", value))
    if isinstance(value, frozenset | set):
        return {NAME: SET, "of": _sorted(cast("Iterable[Any]", value))}
    if isinstance(value, FunctionType):
        return {NAME: FUNCTION, "is": f"{value.__module__}:{value.__qualname__}"}
    return {NAME: OTHER, "is": kind.__name__}


def _mapping(value: Mapping[Any, Any]) -> dict[str, Any]:
    """A mapping: as it is if its keys are names, else its keys and values."""
    if NAME not in value and all(type(key) is str for key in value):
        return {key: _mapping(one) if type(one) is dict else one for key, one in value.items()}
    values = [_mapping(one) if type(one) is dict else one for one in value.values()]
    return {NAME: MAP, "keys": list(value), "values": values}


def _sorted(value: Iterable[Any]) -> list[Any]:
    """The members of a set in an order that does not change from one process to the next."""
    return sorted(value, key=lambda one: (type(one).__name__, str(one)))


def _made(found: dict[str, Any]) -> Any:
    name = found.pop(NAME, None)
    if name is None:
        return found
    if name == MAP:
        return dict(zip(found["keys"], found["values"], strict=True))
    if name == SET:
        return frozenset(found["of"])
    if name == FUNCTION:
        return _FUNCTIONS.get(found["is"], Unknown(FUNCTION, found))
    kind = known().get(name)
    try:
        if kind is None:
            return Unknown(name, found)
        if issubclass(kind, Enum):
            return kind(found["is"])
        for field in _LISTS.get(name, ()):
            if field in found:
                found[field] = _lists(found[field])
        return kind(**found)
    except (TypeError, ValueError):  # it has fields that this version does not know
        return Unknown(name, found)


def _lists(value: Any) -> Any:
    """Plain values as they were read, with lists."""
    if isinstance(value, tuple) and not hasattr(value, "_fields"):
        return [_lists(one) for one in cast("tuple[Any, ...]", value)]
    if type(value) is dict:
        return {key: _lists(one) for key, one in cast("dict[Any, Any]", value).items()}
    return value


_FUNCTIONS: Mapping[str, Any] = MappingProxyType(
    {f"{one.__module__}:{one.__qualname__}": one for one in (*grouping.GROUPERS.values(), placement.place)}
)
"""The functions of headgate that a configuration may hold."""
_LISTS: Mapping[str, tuple[str, ...]] = MappingProxyType({
    "SetConfig": ("value",), "Change": ("value",), "SetRun": ("settings", "overrides"), "SetRequest": ("arguments",),
    "SetAnswer": ("progress",), "ConfigChanged": ("overrides",), "Plan": ("settings",),
})  # fmt: skip
"""Fields with plain values, which were read from a topic or a file and have lists where others have tuples."""


_PLAIN = frozenset({str, int, float, bool, bytes, type(None)})
"""Values in which nothing else stands."""


@cache
def _init_fields(kind: type[Any]) -> tuple[str, ...]:
    """What values of this class are made with, if it is a dataclass."""
    return tuple(one.name for one in dataclasses.fields(kind) if one.init) if dataclasses.is_dataclass(kind) else ()


def unknown_in(value: Any) -> list[str]:
    """The names of what this version cannot make inside of a value.

    >>> unknown_in((Unknown("Later", {}), 7))
    ['Later']
    """
    found: list[str] = []
    waiting: list[Any] = [value]
    while waiting:
        one = waiting.pop()
        if type(one) in _PLAIN:  # as most are
            continue
        if isinstance(one, Unknown):
            found.append(one.fields["is"] if one.name in (FUNCTION, OTHER) else one.name)
        elif isinstance(one, tuple | list | frozenset):
            waiting += cast("Iterable[Any]", one)
        elif isinstance(one, Mapping):
            waiting += [*cast("Mapping[Any, Any]", one), *cast("Mapping[Any, Any]", one).values()]
        else:
            waiting += [getattr(one, name) for name in _init_fields(type(one))]
    return sorted(set(found))
