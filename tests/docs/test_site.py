"""The copy of the pages from which the site is built. `make site` builds it, and fails at a link or an anchor that leads nowhere."""

from __future__ import annotations

import tomllib

from . import site
from .pages import ROOT, pages, read


def test_every_page_stands_at_the_side_of_the_site() -> None:
    """A page that was added has a line in the list of pages, below a heading; the options are TOML."""
    known = {page.name: page for page in pages()}
    assert site.unlisted(known) == []
    assert site.unlisted(known | {"docs/new.md": read("docs/new.md", "# New\n")}) == ["docs/new.md"]
    options = tomllib.loads(site.OPTIONS.format(nav=site.inline(site.navigation(known))))
    assert {"Documentation": "docs/index.md"} in options["project"]["nav"]


def test_a_picture_is_shown_in_light_and_in_dark() -> None:
    """Each page that has one: both files are there, and the site has both, with its own marks."""
    shown = {page.name: site.PICTURE.findall((ROOT / page.name).read_text(encoding="utf-8")) for page in pages()}
    files = [
        (ROOT / name).parent / file
        for name, found in shown.items()
        for dark, _, light in found
        for file in (dark, light)
    ]
    assert len(files) >= 6
    assert [file for file in files if not file.is_file()] == []
    assert (
        site.copied(
            "x.md",
            '<picture>\n<source media="(prefers-color-scheme: dark)" srcset="d.png">\n'
            '<img alt="a page" src="l.png">\n</picture>\n',
        )
        == "![a page](l.png#only-light)\n![a page](d.png#only-dark)\n"
    )


def test_a_copy_is_what_the_generator_reads() -> None:
    """A marked block, a list below its sentence, and the first page: GitHub and the generator read them otherwise."""
    page = (
        "See [home](../README.md):\n- one\n- two\n\n1. first\n2. second\n\n```console run\n$ true\n- not a list\n```\n"
    )
    assert site.copied("docs/x.md", page) == (
        "See [home](../index.md):\n\n- one\n- two\n\n1. first\n2. second\n\n```console\n$ true\n- not a list\n```\n"
    )
