"""A pytest fixture for users: `driver` makes test drivers and closes them. Heavy imports are deferred until it is used.

def test_totals(driver):
    d = driver(app)
    d.send("orders", {"amount": 3})
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from .driver import Driver


@pytest.fixture
def driver() -> Iterator[Callable[..., Driver]]:
    """Makes `hg.testing.Driver`s, and closes them after the test."""
    from .driver import Driver

    made: list[Driver] = []

    def make(app: Any, **options: Any) -> Driver:
        made.append(Driver(app, **options))
        return made[-1]

    yield make
    for one in made:
        one.close()
