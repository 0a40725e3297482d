"""Pytest fixtures for users: `driver` makes test drivers and closes them, `kafka` is a real Kafka. Imports are deferred until one is used.

def test_totals(driver):
    d = driver(app)
    d.send("orders", {"amount": 3})


def test_on_kafka(kafka):
    kafka.headgate("topics", "create", "orders")
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from .driver import Driver
    from .embedded import Kafka


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


@pytest.fixture(scope="session")
def kafka() -> Iterator[Kafka]:
    """A real Kafka, started when the first test asks for it and shared by all tests of this process: `hg.testing.kafka()`."""
    from .embedded import kafka as embedded

    with embedded() as running:
        yield running
