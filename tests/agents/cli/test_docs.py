"""`headgate docs`: what an error names can be read where the error is."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from headgate.agents.cli.group import NOT_FOUND, main, show_error
from headgate.agents.cli.sections import CLASSES, MESSAGES
from headgate.agents.cli.see.docs import found, home, read
from headgate.core.errors import EnvironmentFault, NotFound

PAGES = {
    "index": "# Pages\n\n- [A](a.md)\n",
    "a": "# A page\n\n## One `thing`, more\n\ntext\n\n```sh\n# no heading\n```\n\n### Below\n\nsmall\n\n## Two\n\nend\n",
}


@pytest.mark.parametrize("place", sorted({*MESSAGES.values(), *CLASSES.values()}))
def test_every_place_of_an_error_is_found(place: str) -> None:
    """A section that is renamed leaves nobody with a command that finds nothing."""
    assert found(read(home()), place.replace(".md", "")).startswith("#")


def test_the_line_more_is_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    """It is typed where the error is, also in a container without a browser."""
    show_error(EnvironmentFault("no broker at x:1 for 10 s"))
    *_, more = capsys.readouterr().err.splitlines()
    assert more == "More: headgate docs troubleshooting#no-broker-answers"
    answer = CliRunner().invoke(main, more.removeprefix("More: headgate ").split())
    assert answer.output.startswith("## No broker answers\n")


@pytest.mark.parametrize("place", ["a#one-thing-more", "one-thing-more", "docs/a.md#one-thing-more"])
def test_a_section_ends_where_the_next_of_its_size_begins(place: str) -> None:
    """What stands in a block of code begins none, and smaller ones belong to it."""
    said = found(PAGES, place)
    assert said.startswith("## One `thing`, more\n")
    assert said.endswith("### Below\n\nsmall")


def test_a_page_is_shown_whole_and_the_list_without_a_name() -> None:
    """With the suffix of its file or without."""
    assert found(PAGES, "a.md") == found(PAGES, "a") == PAGES["a"].rstrip()
    assert "| [Troubleshooting](troubleshooting.md)" in CliRunner().invoke(main, ["docs"]).output


@pytest.mark.parametrize(("place", "hint"), [("a#twoo", "docs a#two`"), ("belo", "docs below`"), ("b#two", "docs a`")])
def test_what_is_not_there_is_answered_with_the_nearest(place: str, hint: str) -> None:
    """A letter too many at night."""
    with pytest.raises(NotFound, match="did you mean") as raised:
        found(PAGES, place)
    assert hint in raised.value.remedy


def test_the_pages_are_searched_by_words() -> None:
    """Sections that are named so come first; nothing found is an exit code of its own."""
    first, *_ = CliRunner().invoke(main, ["docs", "--search", "disk full"]).output.splitlines()
    assert first == "troubleshooting#the-disk-is-full  The disk is full"
    assert CliRunner().invoke(main, ["docs", "--search", "xylophone"]).exit_code == NOT_FOUND
