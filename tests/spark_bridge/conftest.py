"""One warm Spark session for the tests of this directory. It ends before a file that has settings of its own, or needs none."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from headgate.spark_bridge.process.jvm import Sessions

from ..spark_in_process import hand_on, shared_sessions

HERE = Path(__file__).parent


def pytest_runtest_teardown(nextitem: pytest.Item | None) -> None:
    """Called before the fixtures of a test end."""
    hand_on(HERE, nextitem)


@pytest.fixture(scope="module")
def warm() -> Iterator[Sessions]:
    """Handed on from file to file."""
    yield from shared_sessions(HERE, **{"spark.driver.maxResultSize": "16m"})
