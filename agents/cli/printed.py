"""What commands print with `-o json`, as JSON Schemas: `hg.output_schema`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ...core.errors import NotFound

_SCHEMAS = Path(__file__).parent / "schemas"
_ANSWER = ("drain", "pause", "resume", "seek", "start", "stop", "config set", "config unset", "requests withdraw")
"""Requests: each command prints the answer of the leader."""


def output_schema(command: str) -> dict[str, Any]:
    """The JSON Schema of what a command prints with `-o json`. `command` is `"status"`, `"topics plan"`, `"status --why"` …

    Commands that ask the leader for something (`"drain"`, `"pause"` …) print the same document: its answer.
    """
    name = "answer" if command in _ANSWER else command.replace(" --", "-").replace(" ", "-")
    path = _SCHEMAS / f"{name}.json"
    if not path.is_file():
        known = sorted(one.stem for one in _SCHEMAS.glob("*.json"))
        raise NotFound(
            f"there is no schema of the output of `headgate {command}`", remedy=f"there are {', '.join(known)}"
        )
    return json.loads(path.read_text(encoding="utf-8"))
