"""The steps of a job as a graph, with how much flows where: what the page draws.

Nodes are the steps as they were declared, with rows per second and share of the work. Steps that call each other are one stage: what a task
does with a record before it is committed. An edge inside of a stage is a call: it holds nothing back, and has no lag. An edge through a
topic has the lag of its reader, how far event time is behind there, and who holds it. Its pressure is how long the reader will work on what
lies there at the present rate: a number of records says nothing without the rate.

Promise: all of it comes from the status of the job, which `headgate status` and `headgate top` read, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..job.derive.declaration import Declared

if TYPE_CHECKING:
    from ..job.steps.step import Step

SOME_S, HIGH_S = 2.0, 15.0
"""From so many seconds of work on, there is some pressure, and high pressure. Below the first, records wait for their commit."""


def flow(declared: Declared, status: Mapping[str, Any]) -> dict[str, Any]:
    """Nodes and edges. `status`: the status of the job."""
    rates = {one["step"]: one for one in status["steps"]}
    lags = {one["stream"]: one["lag"] for one in status["streams"]}
    times = {one["place"]: one for one in status["times"] if one["kind"] == "stream"}
    streams = {id(step): topic for topic, step in declared.sources.items()}
    stages = stages_of(declared)
    nodes = [
        {
            "step": (name := declared.name(step)),
            "verb": step.verb or "input",
            "parents": _names(declared, step.parents),
            "stage": stages[id(step)][0],
            "rank": stages[id(step)][1],
            "stream": streams.get(id(step)),
            "writes": sorted(topic for topic in step.written if isinstance(topic, str)),
            **_rate(rates.get(name)),
            "rows_s": _rows_s(declared, step, rates),
        }
        for step in declared.steps
    ]
    edges: list[dict[str, Any]] = []
    for step in declared.steps:
        to, topic = declared.name(step), streams.get(id(step))
        rows_s = _rows_s(declared, step, rates)
        if topic is not None:
            through = _through(topic, rows_s, lags.get(topic), times.get(topic))
            edges += [{"from": one, "to": to, **through} for one in _names(declared, step.parents) or [None]]
            continue
        alone = rows_s if len(step.parents) == 1 else None
        edges += [{"from": one, "to": to, **CALL, "rows_s": alone} for one in _names(declared, step.parents)]
    return {"nodes": nodes, "edges": edges}


def _rows_s(declared: Declared, step: Step, rates: Mapping[str, Mapping[str, Any]]) -> int | None:
    """The rows that go on from the edge to this step. Of a shuffle, whose rate counts what is sent and what is read, those that are read:
    as many as reach a step behind it alone, and otherwise half of both."""
    rate = rates.get(declared.name(step))
    if rate is None or not step.parents or id(step) not in {id(one) for one in declared.sources.values()}:
        return None if rate is None else rate["rows_s"]
    behind = [one for one in declared.steps if one.parents == (step,) and declared.name(one) in rates]
    return rates[declared.name(behind[0])]["rows_s"] if behind else rate["rows_s"] // 2


def stages_of(declared: Declared) -> dict[int, tuple[int, int]]:
    """By the id of each step: the number of its stage, and how many streams lie between that and the inputs."""
    sources = {id(step) for step in declared.sources.values()}
    first: dict[int, int] = {}
    """For each step the first of its stage."""
    for step in declared.steps:  # parents come before children
        first[id(step)] = id(step)
        for other in () if id(step) in sources else step.behind:
            joined, kept = first[id(other)], first[id(step)]
            first |= {one: kept for one, head in first.items() if head == joined}
    ranks = dict.fromkeys(first.values(), 0)
    for _ in ranks:  # a stage may be joined to an earlier one by a later step, so one pass is not enough
        for step in declared.steps:
            if id(step) in sources:
                behind = [ranks[first[id(one)]] + 1 for one in step.parents]
                ranks[first[id(step)]] = max([ranks[first[id(step)]], *behind])
    numbers = {head: number for number, head in enumerate(dict.fromkeys(first[id(step)] for step in declared.steps))}
    return {step: (numbers[head], ranks[head]) for step, head in first.items()}


CALL: Mapping[str, Any] = {
    "through": None,
    "rows_s": None,
    "lag": None,
    "work_s": None,
    "pressure": None,
    "watermark_delay_s": None,
    "held_by": [],
}


def _names(declared: Declared, steps: tuple[Step, ...]) -> list[str]:
    return [declared.name(one) for one in steps]


def _rate(rate: Mapping[str, Any] | None) -> dict[str, Any]:
    return {name: None if rate is None else rate[name] for name in ("busy", "share")}


def _through(topic: str, rows_s: int | None, lag: int | None, time: Mapping[str, Any] | None) -> dict[str, Any]:
    work_s = None if lag is None or not rows_s else round(lag / rows_s, 1)
    return {
        "through": topic,
        "rows_s": rows_s,
        "lag": lag,
        "work_s": 0.0 if lag == 0 else work_s,
        "pressure": pressure(lag, rows_s),
        "watermark_delay_s": None if time is None else time["lag_s"],
        "held_by": [] if time is None else [held["who"] or held["why"] for held in time["held_by"]],
    }


def pressure(lag: int | None, rows_s: int | None) -> str | None:
    """How much lies before a reader; None if its lag is not known.

    >>> pressure(900, 1000), pressure(9000, 1000), pressure(90_000, 1000), pressure(5, 0), pressure(None, 9)
    ('none', 'some', 'high', 'stands', None)
    """
    if lag is None:
        return None
    if not lag:
        return "none"
    if not rows_s:
        return "stands"
    return "high" if lag / rows_s >= HIGH_S else "some" if lag / rows_s >= SOME_S else "none"
