"""One warm Spark session for the tests of a file. The next file may be one that needs settings of its own, in the same process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headgate.agents.broker.java import find_java
from headgate.spark_bridge.jvm import Sessions


@pytest.fixture(scope="module")
def warm() -> Iterator[Sessions]:
    """The session of the file; it ends with the file."""
    sessions = Sessions("local[2]", {"spark.driver.maxResultSize": "32m"}, java_home=lambda: str(find_java().home))
    sessions.get()
    yield sessions
    sessions.stop()
