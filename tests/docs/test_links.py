"""Every link inside the project leads somewhere, and every page can be found."""

from __future__ import annotations

from pathlib import Path

import pytest

from .pages import ROOT, Page, pages, read

PAGES = {page.name: page for page in pages()}


def broken(page: Page, known: dict[str, Page]) -> list[str]:
    """`page:line: target` of the links that lead nowhere; links to other sites are not followed."""
    found: list[str] = []
    for line, target in page.links():
        if "://" in target or target.startswith("mailto:"):
            continue
        path, _, anchor = target.partition("#")
        file = (ROOT / page.name).parent / path if path else ROOT / page.name
        resolved = Path(*file.resolve().parts)
        name = resolved.relative_to(ROOT).as_posix() if resolved.is_relative_to(ROOT) else ""
        if not name or not (resolved.exists() or name in known):
            found.append(f"{page.name}:{line}: {target} does not exist")
        elif anchor and name in known and anchor not in known[name].anchors():
            found.append(f"{page.name}:{line}: {name} has no heading #{anchor}")
    return found


@pytest.mark.parametrize("name", sorted(PAGES))
def test_internal_links_resolve(name: str) -> None:
    """A page that was renamed takes the links to it along."""
    found = broken(PAGES[name], PAGES)
    if found:
        pytest.fail("\n".join(found), pytrace=False)


def test_a_link_to_nowhere_is_named() -> None:
    """The check is tried on a page that is wrong."""
    page = read("docs/x.md", "# One\n\n[a](nowhere.md) [b](#one) [c](#two) [d](https://example.org)\n")
    assert broken(page, {"docs/x.md": page}) == [
        "docs/x.md:3: nowhere.md does not exist",
        "docs/x.md:3: docs/x.md has no heading #two",
    ]


def test_every_page_can_be_reached_from_the_readme() -> None:
    """A page that nobody links to is a page that nobody reads."""
    reached: set[str] = set()
    ahead = ["README.md"]
    while ahead:
        name = ahead.pop()
        if name in reached or name not in PAGES:
            continue
        reached.add(name)
        for _, target in PAGES[name].links():
            if "://" not in target and (path := target.partition("#")[0]):
                file = ((ROOT / name).parent / path).resolve()
                if file.is_relative_to(ROOT):
                    ahead.append(file.relative_to(ROOT).as_posix())
    assert sorted(set(PAGES) - reached) == []
