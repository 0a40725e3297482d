"""Tells whether two workers run the same job: the fingerprint of a graph and its immutable settings, and differences for people.

A deployment without an id of its own is named by this fingerprint. In a live run, a worker whose fingerprint differs is refused, and told
which `parts` differ (`describe`). Promises: equal graphs and settings have equal fingerprints on every machine and in every process,
whatever the order in which independent parts were declared; any change of what the fingerprint covers changes it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any, cast

import msgpack  # pyright: ignore[reportMissingTypeStubs]

from .graph import Graph, plain

MOST = 1000
MOST_OF_A_FIELD = 200
"""The most characters that are stored of a part (`MOST`), and of one of its fields."""


def covered(graph: Graph, settings: Mapping[str, object]) -> dict[str, Any]:
    """Everything that the fingerprint covers, as plain values.

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
    """The fingerprint, as sixteen hexadecimal digits."""
    return digest(covered(graph, settings))


def digest(value: Mapping[str, Any]) -> str:
    """The fingerprint of what `covered` returned; the same after it was stored and read back."""
    packed = cast("bytes", msgpack.packb(_ordered(value)))  # pyright: ignore[reportUnknownMemberType]
    return hashlib.sha256(packed).hexdigest()[:16]


def parts(graph: Graph, settings: Mapping[str, object]) -> dict[str, str]:
    """What the fingerprint covers, in parts that are stored and compared one by one: `input:<stream>`, `stage:<name>` or `setting:<name>`
    → its value as text.

    A long value is stored as its beginning and its digest, a long part as its digest: texts are equal when the values are, and a message
    stays small.

    >>> parts(Graph((Input("orders", until="newest"),)), {"tasks": 4})
    {'input:orders': '{"until":"newest"}', 'setting:tasks': '4'}
    """
    found: dict[str, str] = {}
    for kind, named in covered(graph, settings).items():
        for name, value in named.items():
            if kind == "setting":
                found[f"{kind}:{name}"] = _bounded(str(_ordered(value)), MOST)
            else:
                flat = {field: _field(one) for field, one in sorted(_flat(value).items())}
                text = json.dumps(flat, separators=(",", ":"))
                found[f"{kind}:{name}"] = text if len(text) <= MOST else json.dumps({"digest": digest(flat)})
    return found


def describe(part: str, was: str | None, now: str | None) -> list[str]:
    """What has changed in a part (None: it does not exist), one line per change; field by field if `parts` stored fields.

    >>> describe("stage:totals", '{"by":"day"}', '{"by":"hour"}'), describe("stage:a", "{}", None), describe("setting:grouper", "all", "x")
    (["stage 'totals': by was 'day', is 'hour'"], ["stage 'a' was removed"], ["setting:grouper: was 'all', is 'x'"])
    """
    before, after = _fields(was), _fields(now)
    kind, _, name = part.partition(":")
    if was is None and after is not None:
        return [f"{kind} '{name}' is new"]
    if now is None and before is not None:
        return [f"{kind} '{name}' was removed"]
    if before is None or after is None:
        absent = "not set" if kind == "setting" else "not there"
        old, new = (absent if one is None else repr(one) for one in (was, now))
        return [f"{part}: was {old}, is {new}"]
    return [
        f"{kind} '{name}': {field} was {_said(before, field)}, is {_said(after, field)}"
        for field in sorted({*before, *after})
        if before.get(field) != after.get(field)
    ]


def differences(before: Mapping[str, str], after: Mapping[str, str], parts: str = "") -> list[str]:
    """What differs between two fingerprints, one line per difference; only parts whose name begins with `parts`.

    >>> differences({"setting:grouper": "partition"}, {"setting:grouper": "all", "stage:totals": "{}"})
    ["setting:grouper: was 'partition', is 'all'", "stage 'totals' is new"]
    """
    lines: list[str] = []
    for part in sorted({*before, *after}):
        if part.startswith(parts) and before.get(part) != after.get(part):
            lines += describe(part, before.get(part), after.get(part))
    return lines


def _fields(text: str | None) -> dict[str, Any] | None:
    try:
        found = None if text is None else json.loads(text)
    except ValueError:
        return None
    return cast("dict[str, Any]", found) if isinstance(found, dict) else None


def _field(value: object) -> object:
    text = json.dumps(value, default=str)
    return value if len(text) <= MOST_OF_A_FIELD else _bounded(text, MOST_OF_A_FIELD)


def _bounded(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 20]}… {digest({'': text})}"


def _said(values: Mapping[str, Any], part: str) -> str:
    return repr(values[part]) if part in values else "not set"


def _flat(values: Mapping[str, Any]) -> dict[str, Any]:
    flat = {part: _ordered(value) for part, value in values.items() if part != "arguments"}
    return flat | dict(values.get("arguments", ()))


def _without(values: dict[str, Any], name: str) -> dict[str, Any]:
    return {part: value for part, value in values.items() if part != name}


def _ordered(value: object) -> object:
    """Sort the keys and turn tuples into lists, so that equal values have equal bytes."""
    if isinstance(value, Mapping):
        known = cast("Mapping[str, object]", value)
        return {name: _ordered(known[name]) for name in sorted(known)}
    if isinstance(value, list | tuple):
        return [_ordered(one) for one in cast("list[object]", value)]
    return value
