"""One warm Spark session for the tests of a file. The next file may be one that needs settings of its own, in the same process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headgate.spark_bridge.process.jvm import Sessions

from ..spark_in_process import warm_sessions


@pytest.fixture(scope="module")
def warm() -> Iterator[Sessions]:
    """The session of the file; it ends with the file."""
    yield from warm_sessions(**{"spark.driver.maxResultSize": "16m"})
