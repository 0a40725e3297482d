"""The examples with Spark in the Python reference."""

from __future__ import annotations

import pytest

from headgate.spark_bridge.process.jvm import Sessions

from ..docs.api import Example, examples_of

pytestmark = [pytest.mark.spark, pytest.mark.slow]
EXAMPLES = examples_of("spark")


@pytest.mark.parametrize("example", EXAMPLES, ids=[one.run.__name__ for one in EXAMPLES])
def test_an_example_of_the_reference_runs(example: Example, warm: Sessions) -> None:
    """What the page shows holds, with a real session."""
    assert example.wants == ("spark",)
    example.run(warm.get())
