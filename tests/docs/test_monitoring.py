"""The alerts are PromQL, name only metrics and labels that exist, lead to a section, and stand on the page of monitoring."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import promql_parser as promql
import pytest
import yaml

from . import house
from .pages import ROOT, read

FILE = yaml.safe_load((ROOT / "docker" / "prometheus" / "rules.yaml").read_text(encoding="utf-8"))
RULES: list[dict[str, Any]] = [rule for group in FILE["groups"] for rule in group["rules"]]
TEXT = (ROOT / "docs" / "monitoring.md").read_text(encoding="utf-8")
PAGE = read("docs/monitoring.md", TEXT)
METRICS = {one.name: {"job", "worker", *one.labels} for one in house.metrics()} | {"up": {"job", "instance"}}
QUERIES = [line for block in PAGE.blocks if block.info[:1] == ("promql",) for line in block.text.splitlines()]
DURATION = re.compile(r"\d+[smhd]")


def parts(expression: Any) -> Iterator[Any]:
    """An expression and everything inside of it."""
    yield expression
    for name in ("lhs", "rhs", "expr", "param", "vector_selector"):
        inner = getattr(expression, name, None)
        if inner is not None and not isinstance(inner, str):
            yield from parts(inner)
    for inner in getattr(expression, "args", None) or ():
        yield from parts(inner)


def complaints(text: str) -> list[str]:
    """What an expression names and no worker has."""
    try:
        inside = list(parts(promql.parse(text)))
    except ValueError as error:
        return [f"no PromQL: {error}"]
    selectors = [one for one in inside if isinstance(one, promql.VectorSelector)]
    wrong = [f"no metric {one.name}" for one in selectors if one.name not in METRICS]
    known = [METRICS.get(one.name or "", set()) for one in selectors]
    for one, labels in zip(selectors, known, strict=True):
        wrong += [
            f"{one.name} has no label {match.name}" for match in one.matchers.matchers if match.name not in labels
        ]
    common = set.intersection(*known) if known else set()
    for one in inside:
        if isinstance(one, promql.AggregateExpr) and one.modifier is not None:
            wrong += [f"not all have the label {label}" for label in one.modifier.labels if label not in common]
    return wrong


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_an_alert_names_what_workers_have(rule: dict[str, Any]) -> None:
    """A metric that was renamed takes its alert along; an alert without its metric is silent for ever."""
    assert complaints(rule["expr"]) == []
    assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}
    assert DURATION.fullmatch(rule.get("for", "0s"))
    kinds = {house_metric.name: house_metric.kind for house_metric in house.metrics()}
    counted = re.findall(r"(?:rate|increase)\((\w+)\[", rule["expr"])
    assert [name for name in counted if kinds[name] != "counter"] == []


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_an_alert_says_who_and_where_to_read(rule: dict[str, Any]) -> None:
    """Its labels exist behind the expression, and its runbook is a section."""
    name, _, anchor = rule["annotations"]["runbook"].partition("#")
    assert anchor in read(name, (ROOT / "docs" / name).read_text(encoding="utf-8")).anchors()
    used = set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]))
    outer = promql.parse(rule["expr"])
    kept = [set(one.modifier.labels) for one in parts(outer) if isinstance(one, promql.AggregateExpr) and one.modifier]
    kept = kept or [METRICS[one.name] for one in parts(outer) if isinstance(one, promql.VectorSelector) and one.name]
    assert used <= set.intersection(*kept)


def test_the_page_explains_every_alert_and_no_other() -> None:
    """With its severity; names are unique."""
    told = dict(re.findall(r"^\| `(Headgate\w+)` \| (\w+) \|", TEXT, re.MULTILINE))
    assert told == {rule["alert"]: rule["labels"]["severity"] for rule in RULES}
    assert len(RULES) == len(told)


@pytest.mark.parametrize("query", QUERIES)
def test_a_query_of_the_page_is_one(query: str) -> None:
    """It can be typed as it stands."""
    assert complaints(query) == []


def test_what_is_wrong_is_named() -> None:
    """The check is tried on expressions that are wrong."""
    assert complaints("sum by (job (headgate_tasks)")[0].startswith("no PromQL")
    assert complaints("rate(headgate_nothing_total[5m])") == ["no metric headgate_nothing_total"]
    assert complaints('headgate_tasks{stat="failed"}') == ["headgate_tasks has no label stat"]
    assert complaints("sum by (stream) (headgate_tasks)") == ["not all have the label stream"]
