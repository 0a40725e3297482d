"""The copy of the pages from which the site is built. `make site` builds it, and fails at a link or an anchor that leads nowhere."""

from __future__ import annotations

import tomllib

from . import site
from .pages import pages, read


def test_every_page_stands_at_the_side_of_the_site() -> None:
    """A page that was added has a line in the list of pages, below a heading; the options are TOML."""
    known = {page.name: page for page in pages()}
    assert site.unlisted(known) == []
    assert site.unlisted(known | {"docs/new.md": read("docs/new.md", "# New\n")}) == ["docs/new.md"]
    options = tomllib.loads(site.OPTIONS.format(nav=site.inline(site.navigation(known))))
    assert {"Documentation": "docs/index.md"} in options["project"]["nav"]


def test_a_copy_is_what_the_generator_reads() -> None:
    """A marked block, a list below its sentence, and the first page: GitHub and the generator read them otherwise."""
    page = (
        "See [home](../README.md):\n- one\n- two\n\n1. first\n2. second\n\n```console run\n$ true\n- not a list\n```\n"
    )
    assert site.copied("docs/x.md", page) == (
        "See [home](../index.md):\n\n- one\n- two\n\n1. first\n2. second\n\n```console\n$ true\n- not a list\n```\n"
    )
