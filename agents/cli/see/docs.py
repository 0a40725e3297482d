"""`headgate docs`: the documentation where headgate is installed, also without a browser and without a network.

A page is named as its links are (`docs/troubleshooting.md#a-task-has-failed`), as the line `More:` of an error says it, or by the anchor of
a section alone. The pages are part of the package; in a clone they are those of the clone.

Promises: it asks no broker and changes nothing. What `More:` names is found. Exit code 4 for what is not there, with the nearest name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import click

from ....core.errors import NotFound
from ....core.settings import nearest
from ..output import show_text

GENERATED = re.compile(r"\A<!--.*-->\s*")
"""The first line of a generated page, which warns against editing it."""
MOST = 20
"""As many hits are shown."""


@dataclass(frozen=True, slots=True)
class Section:
    """A heading with all that stands below it, smaller headings included."""

    page: str
    anchor: str
    title: str
    text: str

    @property
    def place(self) -> str:
        """As `headgate docs` takes it."""
        return f"{self.page}#{self.anchor}"


@click.command()
@click.argument("place", required=False, default="index")
@click.option("--search", is_flag=True, help="Show which sections contain all words of PLACE.")
def docs(place: str, search: bool) -> None:
    """Show the documentation: a page, or one section of it.

    PLACE is a page (`troubleshooting`), a section (`a-task-has-failed`), or both, as the line `More:` of an error has them. Without one,
    the list of pages is shown.
    """
    pages = read(home())
    if search:
        show_hits(pages, place)
    else:
        show_text(found(pages, place))


def home() -> Path:
    """The directory of the pages."""
    directory = Path(__file__).resolve().parents[3] / "docs"  # alongside the rooms, in a clone as in a wheel
    if (directory / "index.md").is_file():
        return directory
    raise NotFound("this installation has no documentation", remedy="install headgate from a wheel or from a clone")


def read(directory: Path) -> dict[str, str]:
    """The text of each page, by its name without `.md`."""
    return {
        path.relative_to(directory).with_suffix("").as_posix(): GENERATED.sub("", path.read_text(encoding="utf-8"))
        for path in sorted(directory.rglob("*.md"))
    }


def found(pages: dict[str, str], place: str) -> str:
    """The page, or the section."""
    name, _, anchor = place.removeprefix("docs/").partition("#")
    page = name.removesuffix(".md")
    if page in pages and not anchor:
        return pages[page].rstrip()
    wanted, among = (anchor, [page]) if anchor else (page, list(pages))
    sections = [one for name in among if name in pages for one in sections_of(name, pages[name])]
    hits = [one for one in sections if one.anchor == wanted]
    if hits:
        return "\n\n".join(one.text for one in hits)
    known = [one.anchor for one in sections] if anchor else [*pages, *(one.anchor for one in sections)]
    near = nearest(wanted, known) if page in pages or not anchor else nearest(page, list(pages))
    hint = f"did you mean `headgate docs {page + '#' if anchor and page in pages else ''}{near}`? " if near else ""
    raise NotFound(
        f"the documentation has no '{place}'",
        remedy=f"{hint}`headgate docs` lists the pages, `headgate docs --search WORD` searches them",
    )


def show_hits(pages: dict[str, str], words: str) -> None:
    """The sections with all of the words, those with them in the title first."""
    wanted = words.lower().split()
    hits = [
        one
        for page, text in pages.items()
        for one in sections_of(page, text, nested=False)
        if all(word in f"{one.title}\n{one.text}".lower() for word in wanted)
    ]
    hits.sort(key=lambda one: not any(word in one.title.lower() for word in wanted))
    if not hits:
        raise NotFound(f"no section contains '{words}'", remedy="fewer or other words; `headgate docs` lists the pages")
    for one in hits[:MOST]:
        show_text(f"{one.place}  {one.title}")
    if len(hits) > MOST:
        click.echo(f"Note: {len(hits) - MOST} more; another word leaves fewer", err=True)


def sections_of(page: str, text: str, *, nested: bool = True) -> Iterator[Section]:
    """Each heading of a page, with its text up to the next one that is not smaller, or, if not `nested`, up to the next one."""
    lines = text.splitlines()
    heads = list(_headings(lines))
    for place, (at, depth, title) in enumerate(heads):
        ends = (other for other, deep, _ in heads[place + 1 :] if not nested or deep <= depth)
        yield Section(page, anchor_of(title), title, "\n".join(lines[at : next(ends, len(lines))]).rstrip())


def _headings(lines: list[str]) -> Iterator[tuple[int, int, str]]:
    fence = ""
    for at, line in enumerate(lines):
        if mark := re.match(r"(`{3,}|~{3,})", line):
            if not fence:
                fence = mark[1]
            elif line.strip() == fence:
                fence = ""
        elif not fence and (head := re.match(r"(#{1,6}) (.+)", line)):
            yield at, len(head[1]), head[2]


def anchor_of(title: str) -> str:
    """As GitHub and the site make it of a heading.

    >>> anchor_of("`headgate run`, and more")
    'headgate-run-and-more'
    """
    words = re.sub(r"[`*_\[\]]|\([^)]*\)", "", title).lower()
    return re.sub(r"[^\w\- ]", "", words).strip().replace(" ", "-")
