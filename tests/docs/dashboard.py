"""The dashboard for Grafana, made from the list of metrics: `docs/grafana/dashboard.json`.

What matters comes first, in panels that are written here; below, in a closed row, every metric has a panel, so that one that is added is on
the dashboard. `make docs` writes it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from . import house

WIDE, HIGH = 8, 7
ROW = 24
OF_JOB = 'job=~"$job"'
OF_WORKER = f'{OF_JOB}, worker=~"$worker"'
Panel = tuple[str, str, str, str]
"""Title, query, legend, unit."""


def level(by: str, name: str, how: str = "sum") -> str:
    """What a gauge says, over all workers."""
    return f"{how} by ({by}) ({name}{{{OF_WORKER}}})"


def growth(by: str, name: str) -> str:
    """How much a counter grows in a second, over all workers."""
    return f"sum by ({by}) (rate({name}{{{OF_WORKER}}}[$__rate_interval]))"


def most(by: str, name: str) -> str:
    """What 99 of 100 are below, of a histogram."""
    labels = f"le, {by}" if by else "le"
    return f"histogram_quantile(0.99, sum by ({labels}) (rate({name}_bucket{{{OF_WORKER}}}[$__rate_interval])))"


STATS: tuple[tuple[str, str, str, float | None], ...] = (
    ("workers ready", f"sum(headgate_worker_ready{{{OF_WORKER}}})", "short", None),
    ("failed tasks", f'sum(headgate_tasks{{{OF_WORKER}, state="failed"}})', "short", 1),
    ("leaders", f"sum(headgate_worker_leader{{{OF_JOB}}})", "short", None),
    ("records behind", f"sum(headgate_input_lag_records{{{OF_WORKER}}})", "short", None),
    ("broker away", f"max(headgate_broker_away_seconds{{{OF_WORKER}}})", "s", 30),
    ("records failed", f"sum(increase(headgate_records_failed_total{{{OF_WORKER}}}[$__range]))", "short", 1),
)
"""Title, query, unit, and from where on it is red."""
PANELS: tuple[Panel, ...] = (
    ("Records read", growth("stream", "headgate_records_read_total"), "{{stream}}", "cps"),
    ("Lag", level("stream", "headgate_input_lag_records"), "{{stream}}", "short"),
    ("Event time behind now", level("stream", "headgate_watermark_lag_seconds", "max"), "{{stream}}", "s"),
    ("What is slow: work of the steps", growth("step", "headgate_step_seconds_total"), "{{step}}", "percentunit"),
    ("Rows of the steps", growth("step", "headgate_step_rows_total"), "{{step}}", "cps"),
    ("Main loops at work", growth("worker", "headgate_loop_busy_seconds_total"), "{{worker}}", "percentunit"),
    ("Why tasks wait", growth("reason", "headgate_waits_total"), "{{reason}}", "cps"),
    ("Errors of the steps", growth("step, error", "headgate_step_errors_total"), "{{step}} {{error}}", "cps"),
    ("Tasks by state", level("state", "headgate_tasks"), "{{state}}", "short"),
    ("Who holds event time", level("producer", "headgate_watermarks_held"), "{{producer}}", "short"),
    ("Commits: 99 of 100 take less", most("worker", "headgate_commit_seconds"), "{{worker}}", "s"),
    ("Chunks: 99 of 100 take less", most("worker", "headgate_chunk_seconds"), "{{worker}}", "s"),
    ("Late rows", growth("step", "headgate_late_rows_total"), "{{step}}", "cps"),
    ("Memory of state", level("worker, kind", "headgate_state_memory_bytes"), "{{worker}} {{kind}}", "bytes"),
    ("Records to restore", level("worker", "headgate_restore_remaining_records"), "{{worker}}", "short"),
    ("Memory of the process", level("worker", "headgate_process_resident_bytes"), "{{worker}}", "bytes"),
)
"""In the order in which one asks."""
UNITS = (("_seconds", "s"), ("_bytes", "bytes"))
RATES = {"s": "percentunit", "bytes": "Bps"}
"""The units of what grows, by the unit of what is counted."""
SOURCE = {"type": "prometheus", "uid": "${datasource}"}


def of_metric(metric: Any) -> Panel:
    """The panel of a metric."""
    unit = next((unit for word, unit in UNITS if word in metric.name), "short")
    if metric.kind == "histogram":
        return metric.name, most("", metric.name), "99 of 100", unit
    labels = metric.labels or ("worker",)
    by, legend = ", ".join(labels), " ".join(f"{{{{{label}}}}}" for label in labels)
    if metric.kind == "counter":
        return metric.name, growth(by, metric.name), legend, RATES.get(unit, "cps")
    return metric.name, level(by, metric.name), legend, unit


def panel(number: int, at: tuple[int, int], one: Panel, doc: str = "") -> dict[str, Any]:
    """A panel with a line for each series."""
    title, query, legend, unit = one
    return {
        "id": number,
        "type": "timeseries",
        "title": title,
        "description": doc,
        "datasource": SOURCE,
        "gridPos": {"x": at[0], "y": at[1], "w": WIDE, "h": HIGH},
        "fieldConfig": {"defaults": {"unit": unit, "min": 0 if unit != "short" else None}, "overrides": []},
        "options": {"tooltip": {"mode": "multi", "sort": "desc"}, "legend": {"displayMode": "list"}},
        "targets": [{"refId": "A", "expr": query, "legendFormat": legend, "datasource": SOURCE}],
    }


def stat(number: int, x: int, title: str, query: str, unit: str, bad: float | None) -> dict[str, Any]:
    """A number on top."""
    steps = [{"color": "text", "value": None}, *([{"color": "red", "value": bad}] if bad is not None else [])]
    return {
        "id": number,
        "type": "stat",
        "title": title,
        "datasource": SOURCE,
        "gridPos": {"x": x, "y": 0, "w": ROW // len(STATS), "h": 4},
        "fieldConfig": {
            "defaults": {"unit": unit, "thresholds": {"mode": "absolute", "steps": steps}},
            "overrides": [],
        },
        "options": {"colorMode": "value", "reduceOptions": {"calcs": ["lastNotNull"]}},
        "targets": [{"refId": "A", "expr": query, "datasource": SOURCE}],
    }


def places(y: int) -> Iterator[tuple[int, int]]:
    """Where panels stand, three in a row, from there on."""
    while True:
        yield from ((x, y) for x in range(0, ROW, WIDE))
        y += HIGH


def variable(name: str, query: str) -> dict[str, Any]:
    """A list to choose from, above the dashboard."""
    made = {"name": name, "type": "query", "datasource": SOURCE, "query": query, "definition": query, "refresh": 2}
    chosen = {"text": "All", "value": "$__all"}
    return {**made, "includeAll": True, "multi": True, "sort": 1, "allValue": ".*", "current": chosen}


def dashboard(metrics: Iterable[Any]) -> dict[str, Any]:
    """The whole dashboard."""
    panels = [stat(n + 1, n * (ROW // len(STATS)), *one) for n, one in enumerate(STATS)]
    for at, one in zip(places(4), PANELS, strict=False):
        panels.append(panel(len(panels) + 1, at, one))
    low = max(one["gridPos"]["y"] for one in panels) + HIGH
    known = list(metrics)
    below = enumerate(zip(places(low + 1), known, strict=False))
    inside = [panel(1000 + n, at, of_metric(one), one.doc) for n, (at, one) in below]
    row = {"id": 999, "type": "row", "title": "All metrics", "collapsed": True, "panels": inside}
    panels.append({**row, "gridPos": {"x": 0, "y": low, "w": ROW, "h": 1}})
    source = {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Prometheus"}
    jobs = variable("job", "label_values(headgate_worker_ready, job)")
    workers = variable("worker", f"label_values(headgate_worker_ready{{{OF_JOB}}}, worker)")
    return {
        "title": "headgate",
        "uid": "headgate",
        "tags": ["headgate"],
        "schemaVersion": 38,
        "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": [source, jobs, workers]},
        "panels": panels,
    }


def text() -> str:
    """The file."""
    return json.dumps(dashboard(house.metrics()), indent=1, ensure_ascii=False) + "\n"
