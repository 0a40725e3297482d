"""The dashboard is what the list of metrics says: each of its queries can be asked of a worker, and each metric is on it."""

from __future__ import annotations

import itertools
import re
from typing import Any

import promql_parser as promql
import pytest

from . import house
from .dashboard import HIGH, dashboard
from .test_monitoring import METRICS, complaints, parts

FOUND = dashboard(house.metrics())
TOP: list[dict[str, Any]] = FOUND["panels"]
ALL = [one for top in TOP for one in (top, *top.get("panels", ()))]
DRAWN = [one for one in ALL if one["type"] != "row"]


def plain(query: str) -> str:
    """A query as Prometheus gets it from Grafana."""
    return re.sub(r"\$__rate_interval|\$__range", "5m", query).replace("$job", "sales/1").replace("$worker", ".*")


def queries() -> list[str]:
    return [plain(target["expr"]) for one in DRAWN for target in one["targets"]]


@pytest.mark.parametrize("query", sorted(set(queries())))
def test_a_query_names_what_workers_have(query: str) -> None:
    """A metric or label that was renamed takes its panel along."""
    assert complaints(query.replace("_bucket{", "{").replace("by (le, ", "by (").replace("by (le) ", "")) == []
    kinds = {one.name: one.kind for one in house.metrics()}
    counted = re.findall(r"(?:rate|increase)\((\w+)\{", query)
    assert {kinds[name.removesuffix("_bucket")] for name in counted} <= {"counter", "histogram"}


def test_every_metric_is_on_it() -> None:
    """Below what matters, in the order of the reference."""
    [row] = [one for one in TOP if one["type"] == "row"]
    assert [one["title"] for one in row["panels"]] == [one.name for one in house.metrics()]
    assert all(one["description"] for one in row["panels"])
    used = {
        part.name
        for query in queries()
        for part in parts(promql.parse(query))
        if isinstance(part, promql.VectorSelector)
    }
    assert {str(name).removesuffix("_bucket") for name in used} == set(METRICS) - {"up"}


def test_panels_do_not_lie_on_each_other() -> None:
    """In Grafana they would push each other away."""
    assert len({one["id"] for one in ALL}) == len(ALL)
    for one, other in itertools.combinations([one["gridPos"] for one in ALL if one["type"] != "row"], 2):
        apart_x = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        assert apart_x or one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
    assert all(one["gridPos"]["h"] in (1, 4, HIGH) for one in ALL)
