"""The words that people bring lead to pages that exist."""

from __future__ import annotations

import pytest

from headgate.core.words import WORDS

from .pages import pages

PAGES = {page.name: page for page in pages()}


@pytest.mark.parametrize("place", sorted({word.page for word in WORDS}))
def test_the_page_of_a_word_is_there(place: str) -> None:
    """An error that names a page which is gone leaves its reader alone."""
    page, _, anchor = place.partition("#")
    assert page in PAGES
    assert not anchor or anchor in PAGES[page].anchors()
