"""The Python reference holds every public name, each with an example that runs."""

from __future__ import annotations

import pytest

from . import api

EXAMPLES = [one for part in api.PARTS for one in api.examples_of(part.name)]
ALONE = [one for one in EXAMPLES if not one.wants]


def test_every_public_name_has_its_place() -> None:
    """A name that was added is on a page, or says why no user needs it; a name that is gone leaves its page."""
    assert sorted(api.public() - api.listed() - api.NOT_FOR_USERS.keys()) == []
    assert sorted(api.listed() - api.public()) == []
    assert [name for name in api.NOT_FOR_USERS if name not in api.public()] == []


def test_every_public_name_has_an_example_and_is_explained() -> None:
    """Nobody guesses how a timer is set."""
    shown = {name for one in EXAMPLES for name in one.shows}
    assert sorted(api.listed() - shown) == []
    assert sorted(shown - api.listed()) == []
    assert [name for name in sorted(api.listed()) if not api.described(name)] == []


def test_every_file_of_examples_has_a_page() -> None:
    """Nothing lies beside the pages."""
    assert [path.stem for path in api.files()] == sorted(part.name for part in api.PARTS)


@pytest.mark.parametrize("example", ALONE, ids=[f"{one.part}-{one.run.__name__}" for one in ALONE])
def test_an_example_of_the_reference_runs(example: api.Example) -> None:
    """What a page shows holds. Examples with Spark or a broker run in other files."""
    example.run()
