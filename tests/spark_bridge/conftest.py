"""One warm Spark session for all tests of this room."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headgate.agents.broker.java import find_java
from headgate.spark_bridge.jvm import Sessions


@pytest.fixture(scope="session")
def warm() -> Iterator[Sessions]:
    """The session of the run; it ends with the run."""
    sessions = Sessions("local[2]", {"spark.driver.maxResultSize": "32m"}, java_home=lambda: str(find_java().home))
    sessions.get()
    yield sessions
    sessions.stop()
