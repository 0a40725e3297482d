"""Which pytest worker runs what: one lane for tests that compute, the others for tests that wait for Kafka, Spark and processes.

A file stays with one worker, so that what it warms up is warmed up once, and files that share a Spark session stay together. Blocks of
fixed seeds of the simulator share nothing, so each goes alone. xdist alone would begin with the files that have the most tests; then those
with one test of a minute come last, and the other cores wait for them. Here long files come first, and while some workers wait, one always
computes.
"""

from __future__ import annotations

from typing import Any

import pytest
from xdist.scheduler import LoadFileScheduling

WAITING = ("tests/chaos/", "tests/e2e/", "tests/spark_bridge/")
"""Tests that mostly wait for other processes."""
APART = "::test_fixed_seeds["
SPARK = (
    "test_driver",
    "test_logical",
    "test_nested",
    "test_reference",
    "data/test_handover",
    "data/test_tables",
    "data/test_writing",
)
TOGETHER = {
    **dict.fromkeys(
        (f"tests/spark_bridge/{one}.py" for one in (*SPARK, "process/test_cluster")), "tests/spark_bridge/"
    ),
    **dict.fromkeys(
        (f"tests/e2e/{one}.py" for one in ("test_spark_line", "test_spark_stages", "test_by_reference")), "tests/e2e/"
    ),
}
"""Files that share a session (`spark_in_process`). Those that kill its JVM, or set it up otherwise, are not among them."""
LONG = ("tests/chaos/", "tests/sim/")
"""Few tests, each of them long."""


class Lanes(LoadFileScheduling):
    """The first worker takes what computes as long as there is any; the others take what waits."""

    def _split_scope(self, nodeid: str) -> str:
        file = super()._split_scope(nodeid)
        return nodeid if APART in nodeid else TOGETHER.get(file, file)

    def _assign_work_unit(self, node: Any) -> None:
        computes = node is self.nodes[0]
        mine = (scope for scope in self.workqueue if scope.startswith(WAITING) is not computes)
        if (first := next(mine, None)) is not None:
            self.workqueue.move_to_end(first, last=False)
        super()._assign_work_unit(node)


def long_first(items: list[pytest.Item]) -> None:
    """Files that have long tests, or stay together, come first; otherwise the order stays."""
    slow = {item.path for item in items if item.get_closest_marker("slow") or item.nodeid.startswith(LONG)}
    items.sort(key=lambda item: item.path not in slow and item.nodeid.split("::")[0] not in TOGETHER)
