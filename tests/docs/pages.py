"""Reads the pages of the documentation: fenced blocks, links, headings, and words set in code.

A page is README.md, one of the other pages at the top, or any Markdown file under docs. Nothing here judges; the tests do.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from headgate.agents.cli.see.docs import anchor_of

ROOT = Path(__file__).resolve().parents[2]
# Pages whose subject is what does not exist yet; they may name it. Their own first lines must say so.
PLANNED = frozenset({"docs/planned.md"})

_FENCE = re.compile(r"^(?P<indent> {0,3})(?P<ticks>`{3,}|~{3,})(?P<info>[^`\n]*)$")
_LINK = re.compile(r"(?<!!)\[(?:[^\]\[]|\[[^\]]*\])*\]\((?P<to>[^)\s]+)\)|!\[[^\]]*\]\((?P<image>[^)\s]+)\)")
_CODE = re.compile(r"(?<!`)(`+)(?!`)(?P<text>.+?)(?<!`)\1(?!`)")
_HEADING = re.compile(r"^#{1,6}\s+(?P<text>.+?)\s*#*$")


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block: its info words, its text, and where it stands."""

    page: str
    line: int
    info: tuple[str, ...]
    text: str

    @property
    def runs(self) -> bool:
        """Marked as runnable: `run` stands in its info line."""
        return "run" in self.info[1:]


@dataclass(frozen=True, slots=True)
class Page:
    """One Markdown file, split into prose and fenced blocks; in `prose` the blocks are empty lines, so line numbers hold."""

    name: str
    prose: tuple[str, ...]
    blocks: tuple[Block, ...]

    @property
    def planned(self) -> bool:
        return self.name in PLANNED

    def links(self) -> Iterator[tuple[int, str]]:
        """(line, target) of every link and picture."""
        for number, text in enumerate(self.prose, 1):
            for match in _LINK.finditer(_CODE.sub(lambda code: " " * len(code.group()), text)):
                yield number, match["to"] or match["image"]

    def codes(self) -> Iterator[tuple[int, str]]:
        """(line, words) of everything that is set in code: inline, and each line of a shell block."""
        for number, text in enumerate(self.prose, 1):
            for match in _CODE.finditer(text):
                yield number, match["text"].strip()
        for block in self.blocks:
            if block.info[:1] in (("console",), ("sh",)):
                for offset, text in enumerate(block.text.splitlines(), 1):
                    yield block.line + offset, text.strip()

    def anchors(self) -> set[str]:
        """The anchors of its headings, as GitHub makes them."""
        found: set[str] = set()
        for text in self.prose:
            if match := _HEADING.match(text):
                anchor = anchor_of(match["text"])
                serial = anchor
                count = 0
                while serial in found:
                    count += 1
                    serial = f"{anchor}-{count}"
                found.add(serial)
        return found


def read(name: str, text: str) -> Page:
    """A page from its text.

    >>> read("x.md", "see `a`\\n```console run\\n$ true\\n```\\n").blocks[0].runs
    True
    """
    prose: list[str] = []
    blocks: list[Block] = []
    lines = text.splitlines()
    at = 0
    while at < len(lines):
        opening = _FENCE.match(lines[at])
        if opening is None:
            prose.append(lines[at])
            at += 1
            continue
        begin = at
        at += 1
        closing = re.compile(rf"^ {{0,3}}{re.escape(opening['ticks'][0])}{{{len(opening['ticks'])},}}\s*$")
        while at < len(lines) and not closing.match(lines[at]):
            at += 1
        if at == len(lines):
            raise ValueError(f"{name}:{begin + 1}: the block is never closed")
        body = "".join(f"{line}\n" for line in lines[begin + 1 : at])
        blocks.append(Block(name, begin + 1, tuple(opening["info"].split()), body))
        at += 1
        prose.extend([""] * (at - begin))
    return Page(name, tuple(prose), tuple(blocks))


def pages() -> list[Page]:
    """Every page of the project."""
    files = [path for path in sorted(ROOT.glob("*.md")) if path.is_file()] + sorted((ROOT / "docs").rglob("*.md"))
    return [read(path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")) for path in files]
