"""A small reader of JSON schemas: just the words that `agents/cli/schemas` uses. An unknown word is an error, never ignored."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import headgate.agents.cli

DIRECTORY = Path(headgate.agents.cli.__file__).parent / "schemas"
KINDS: dict[str, Any] = {
    "object": dict, "array": list, "string": str, "boolean": bool, "null": type(None), "integer": int, "number": (int, float),
}  # fmt: skip
WORDS = {"$schema", "title", "description", "type", "required", "properties", "additionalProperties", "items", "enum"}


def schema(name: str) -> dict[str, Any]:
    """A verb's schema."""
    return json.loads((DIRECTORY / f"{name}.json").read_text(encoding="utf-8"))


def wrong(value: Any, of: dict[str, Any], at: str = "$") -> list[str]:
    """Where a document is not as its schema says; empty if it is."""
    assert set(of) <= WORDS, f"the schema uses {set(of) - WORDS}"
    if "enum" in of:
        return [] if value in of["enum"] else [f"{at}: {value!r} is none of {of['enum']}"]
    kinds = of.get("type", list(KINDS))
    kinds = [kinds] if isinstance(kinds, str) else kinds
    fits = any(
        isinstance(value, KINDS[k]) and not (isinstance(value, bool) and k in ("integer", "number")) for k in kinds
    )
    if not fits:
        return [f"{at}: {value!r} is no {kinds}"]
    found: list[str] = []
    if isinstance(value, dict):
        known, more = of.get("properties", {}), of.get("additionalProperties", True)
        found += [f"{at}: '{name}' is missing" for name in of.get("required", ()) if name not in value]
        for name, one in value.items():
            if name in known:
                found += wrong(one, known[name], f"{at}.{name}")
            elif more is False:
                found.append(f"{at}: '{name}' stands in no schema")
            elif isinstance(more, dict):
                found += wrong(one, more, f"{at}.{name}")
    if isinstance(value, list) and "items" in of:
        for number, one in enumerate(value):
            found += wrong(one, of["items"], f"{at}[{number}]")
    return found
