"""Reads a Dockerfile and a compose file far enough to check them where there is no Docker engine.

The compose reader takes the part of YAML that our own file uses (mappings and lists by indentation, plain and quoted scalars,
lists in brackets that are JSON) and refuses everything else, so that it never guesses.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

INSTRUCTIONS = frozenset(
    {"ARG", "FROM", "WORKDIR", "COPY", "RUN", "ENV", "USER", "VOLUME", "STOPSIGNAL", "ENTRYPOINT", "CMD"}
)


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction of a Dockerfile; `stage` counts the FROMs before it, the first stage is 1."""

    line: int
    stage: int
    name: str
    text: str

    @property
    def words(self) -> list[str]:
        return self.text.split()

    @property
    def exec_form(self) -> list[str]:
        """The JSON list of an exec form; an error for a shell form."""
        found = json.loads(self.text)
        if not isinstance(found, list):
            raise ValueError(f"line {self.line}: not a list")
        return [str(word) for word in found]


def dockerfile(text: str) -> list[Instruction]:
    """The instructions, with continued lines joined and comments left out."""
    found: list[Instruction] = []
    stage = 0
    logical, begin = "", 0
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("#") or (not line.strip() and not logical):
            continue
        begin = begin if logical else number
        logical += line.strip().removesuffix("\\")
        if line.rstrip().endswith("\\"):
            continue
        name, _, rest = logical.strip().partition(" ")
        if name not in INSTRUCTIONS:
            raise ValueError(f"line {begin}: no instruction {name!r}")
        stage += name == "FROM"
        found.append(Instruction(begin, stage, name, rest.strip()))
        logical = ""
    if logical:
        raise ValueError(f"line {begin}: goes on after the end")
    return found


def _scalar(text: str, number: int) -> Any:
    if not text:
        return None
    if text[0] in "[{":
        return json.loads(text)
    if text[0] == '"':
        return json.loads(text)
    if text[0] in "'&*!|>%@`" or ": " in text or " #" in text:
        raise ValueError(f"line {number}: {text!r} is beyond this reader")
    return text


def compose(text: str) -> Any:
    """The value of a compose file."""
    lines: list[tuple[int, int, str]] = []
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip() and not line.lstrip().startswith("#"):
            if "\t" in line:
                raise ValueError(f"line {number}: a tab")
            lines.append((number, len(line) - len(line.lstrip()), line.strip()))
    value, rest = _block(lines, 0)
    if rest:
        raise ValueError(f"line {rest[0][0]}: indentation")
    return value


def _block(lines: list[tuple[int, int, str]], indent: int) -> tuple[Any, list[tuple[int, int, str]]]:
    if not lines or lines[0][1] < indent:
        return None, lines
    indent = lines[0][1]
    if lines[0][2].startswith("- "):
        items: list[Any] = []
        while lines and lines[0][1] == indent and lines[0][2].startswith("- "):
            items.append(_scalar(lines[0][2][2:].strip(), lines[0][0]))
            lines = lines[1:]
        return items, lines
    mapping: dict[str, Any] = {}
    while lines and lines[0][1] == indent:
        number, _, line = lines[0]
        match = re.fullmatch(r"([\w.-]+):(?: +(.*))?", line)
        if match is None or match[1] in mapping:
            raise ValueError(f"line {number}: {line!r} is no new key")
        lines = lines[1:]
        if match[2]:
            mapping[match[1]] = _scalar(match[2].strip(), number)
        else:
            mapping[match[1]], lines = _block(lines, indent + 1)
    return mapping, lines
