"""Sums of whole numbers are exact, however large, in every way that a job adds them, and wherever its transactions end."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, TypedDict

import pytest

import headgate as hg
from headgate.agents.testing.driver import Driver
from headgate.core.names import StreamPartition

MOST = 2**63 - 1


class Order(TypedDict):
    k: str
    n: int
    x: float


WAYS: dict[str, Callable[[hg.App], Any]] = {
    "dicts": lambda app: app.input("in", key="k"),
    "named fields": lambda app: app.input("in", serde=hg.json(Order), key="k"),
    "typed rows": lambda app: app.input("in", serde=hg.json(Order), key="k").filter(lambda o: o is not None),
    "columns": lambda app: app.input("in", serde=hg.json(Order), key="k").columns(),
}
STEPS: dict[str, Callable[[Any], Any]] = {
    "agg": lambda of: of,
    "tumbling": lambda of: of.window(hg.tumbling("1m")),
    "hopping": lambda of: of.window(hg.hopping("1m", every="30s")),
    "session": lambda of: of.window(hg.session("1m")),
}
AGGREGATES = {"s": hg.sum("n"), "c": hg.count(), "m": hg.mean("n"), "x": hg.sum("x")}
SENT = [
    *({"k": "a", "n": MOST, "x": 0.5} for _ in range(4)),
    {"k": "b", "n": 1, "x": 0.25},
    *({"k": "a", "n": -MOST - 1, "x": 0.5} for _ in range(3)),
    {"k": "c", "n": -MOST - 1, "x": 0.0},
    {"k": "c", "n": -1, "x": 1.0},
]


def results(d: Driver) -> dict[str, Any]:
    """The last value of each key, with all digits."""
    records = d.topics.records(StreamPartition("out", 0))
    return {(one.key or b"").decode(): json.loads(one.value or b"") for one in records}


@pytest.mark.usefixtures("either_part")
@pytest.mark.parametrize("size", [1, 3, 10])
@pytest.mark.parametrize("shuffled", [False, True])
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("way", WAYS)
def test_sums_are_exact(way: str, step: str, shuffled: bool, size: int) -> None:
    """Behind a combining shuffle or not, with a commit behind every few records, and over a restart that reads large states again."""
    app = hg.App("job")
    stream = WAYS[way](app)
    stream = stream.repartition("k") if shuffled else stream
    STEPS[step](stream).agg(**AGGREGATES).to("out")
    with Driver(app) as d:
        for start in range(0, len(SENT), size):
            d.send_all("in", [hg.Record(None, one, 60_000) for one in SENT[start : start + size]])
            if start == 3:
                d.restart()
        d.drain()
        found = {key: {name: one[name] for name in AGGREGATES} for key, one in results(d).items()}
        assert not d.counters.get("records_failed")
    total = 4 * MOST - 3 * (MOST + 1)
    assert found == {
        "a": {"s": total, "c": 7, "m": total / 7, "x": 3.5},
        "b": {"s": 1, "c": 1, "m": 1.0, "x": 0.25},
        "c": {"s": -(2**63) - 1, "c": 2, "m": (-(2**63) - 1) / 2, "x": 1.0},
    }


def whole(of: Any) -> Any:
    class Total(TypedDict):
        s: int

    return of.as_events().columns(Total).filter(hg.col("s") != 1).to("out")


def as_float(of: Any) -> Any:
    class Total(TypedDict):
        s: float

    return of.as_events().columns(Total).filter(hg.col("s") != 1).to("out")


BORDERS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "columns": (whole, r"columns \(.*test_large_sums.py:\d+\): the field 's' is 18446.*declare it as float"),
    "msgpack": (lambda of: of.to("out", serde=hg.msgpack()), r"to \(.*\): cannot be encoded as msgpack.*27670.*float"),
    "a shuffle": (lambda of: of.as_events().repartition("c").to("out"), r"repartition .*: cannot be encoded as json"),
}


@pytest.mark.parametrize("border", BORDERS)
def test_what_holds_64_bits_refuses_a_larger_sum(border: str) -> None:
    """The message names the step and the result, and says what to do."""
    job, told = BORDERS[border]
    app = hg.App("job")
    job(app.input("in", key="k").agg(s=hg.sum("n"), c=hg.count()))
    with Driver(app) as d, pytest.raises(hg.UserCodeError, match=told):
        d.send_all("in", SENT[:3])


def test_a_column_of_floats_takes_a_larger_sum() -> None:
    """What the message says."""
    app = hg.App("job")
    as_float(app.input("in", key="k").agg(s=hg.sum("n")))
    with Driver(app) as d:
        d.send_all("in", SENT[:3])
        assert [one.value for one in d.read("out")] == [{"s": 3.0 * MOST}]
