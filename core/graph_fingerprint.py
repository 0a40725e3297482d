"""Whether two workers run the same thing: the fingerprint of a graph and its immutable settings, and the difference for people.

A deployment without a given id is called by this fingerprint. In a live run nothing may differ that it covers: the worker is refused,
and shown `differences`. What it promises: equal graphs and settings have equal fingerprints on every machine and in every process,
whatever the order in which independent parts were declared; a change of anything that is covered changes it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, cast

import msgpack  # pyright: ignore[reportMissingTypeStubs]

from .graph import Graph, plain


def covered(graph: Graph, settings: Mapping[str, object]) -> dict[str, Any]:
    """All that the fingerprint covers, as plain values; worth storing beside it, so that a difference can be shown later.

    >>> covered(Graph((Input("orders"),)), {"grouper": "partition"})
    {'input': {'orders': {}}, 'stage': {}, 'setting': {'grouper': 'partition'}}
    """
    return {
        "input": {
            one.stream: _without(plain(one), "stream") for one in sorted(graph.inputs, key=lambda one: one.stream)
        },
        "stage": {one.name: _without(plain(one), "name") for one in sorted(graph.stages, key=lambda one: one.name)},
        "setting": {name: settings[name] for name in sorted(settings)},
    }


def fingerprint(graph: Graph, settings: Mapping[str, object]) -> str:
    """Sixteen hexadecimal digits."""
    return digest(covered(graph, settings))


def digest(value: Mapping[str, Any]) -> str:
    """The fingerprint of what `covered` has returned, also after it was stored and read."""
    packed = cast("bytes", msgpack.packb(_ordered(value)))  # pyright: ignore[reportUnknownMemberType]
    return hashlib.sha256(packed).hexdigest()[:16]


def parts(graph: Graph, settings: Mapping[str, object]) -> dict[str, str]:
    """The same in parts that are compared one by one: `input:<stream>`, `stage:<name>`, `setting:<name>` → its value as text.

    >>> parts(Graph((Input("orders", until="newest"),)), {"tasks": 4})
    {'input:orders': "until='newest'", 'setting:tasks': '4'}
    """
    found: dict[str, str] = {}
    for kind, named in covered(graph, settings).items():
        for name, value in named.items():
            if kind == "setting":
                found[f"{kind}:{name}"] = str(_ordered(value))
            else:
                found[f"{kind}:{name}"] = " ".join(f"{part}={one!r}" for part, one in sorted(_flat(value).items()))
    return found


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """What differs between two values of `covered`, one line each, empty when the fingerprints are equal.

    >>> differences(covered(Graph((Input("orders"),)), {}), covered(Graph((Input("orders", until="newest"),)), {"grouper": "all"}))
    ["input 'orders': until was not set, is 'newest'", "setting 'grouper' is new: 'all'"]
    """
    lines: list[str] = []
    for kind in ("input", "stage", "setting"):
        old, new = before.get(kind, {}), now.get(kind, {})
        for name in sorted({*old, *new}):
            if name not in old:
                lines.append(f"{kind} '{name}' is new" + (f": {new[name]!r}" if kind == "setting" else ""))
            elif name not in new:
                lines.append(f"{kind} '{name}' is gone")
            elif kind == "setting":
                if _ordered(old[name]) != _ordered(new[name]):
                    lines.append(f"setting '{name}' was {old[name]!r}, is {new[name]!r}")
            else:
                lines += [f"{kind} '{name}': {line}" for line in _changed(old[name], new[name])]
    return lines


def _changed(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Field by field; the named arguments of a verb count as fields."""
    before, after = _flat(old), _flat(new)
    return [
        f"{part} was {_said(before, part)}, is {_said(after, part)}"
        for part in sorted({*before, *after})
        if before.get(part) != after.get(part)
    ]


def _said(values: Mapping[str, Any], part: str) -> str:
    return repr(values[part]) if part in values else "not set"


def _flat(values: Mapping[str, Any]) -> dict[str, Any]:
    flat = {part: _ordered(value) for part, value in values.items() if part != "arguments"}
    return flat | dict(values.get("arguments", ()))


def _without(values: dict[str, Any], name: str) -> dict[str, Any]:
    return {part: value for part, value in values.items() if part != name}


def _ordered(value: object) -> object:
    """Keys in order and tuples as lists: what is equal in meaning has equal bytes."""
    if isinstance(value, Mapping):
        known = cast("Mapping[str, object]", value)
        return {name: _ordered(known[name]) for name in sorted(known)}
    if isinstance(value, list | tuple):
        return [_ordered(one) for one in cast("list[object]", value)]
    return value
