"""What runs when a transaction closes may fail because of a record: the records run again, and the policy of the failed one decides.

User code behind an aggregate runs there, and so do the serdes of states. A transaction that fails costs the incarnation once; then nothing
is held back, so each failure belongs to a record. `tests/e2e/test_errors_at_commit.py` shows it with real workers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import headgate as hg
from headgate.agents.testing.driver import Driver


def add(state: Any, value: Any) -> Any:
    return object() if value["n"] < 0 else state + value["n"]


def both(one: Any, other: Any) -> Any:
    return one + other


def both_of(state: int, value: Any) -> int:
    return state + value["n"]


def plain(state: Any) -> int:
    return state if isinstance(state, int) else 0


def refuse(state: int) -> int:
    if state < 0:
        raise ValueError("below zero")
    return state


def unfit(value: Any) -> Any:
    return {**value, "more": {1, 2}} if value["t"] < 0 else value


WINDOW = hg.tumbling("10s")
WAYS: dict[str, tuple[Callable[[Any], Any], str, str]] = {
    "a partial state": (lambda by: by.agg(t=hg.aggregate(int, add, both)), "by", "object"),
    "a state": (lambda by: by.agg(t=hg.aggregate(int, add, result=plain), name="sums"), "sums", "object"),
    "a result": (lambda by: by.agg(t=hg.aggregate(int, both_of, result=refuse), name="sums"), "sums", "below zero"),
    "a map behind it": (lambda by: by.agg(t=hg.sum("n")).map(lambda v: (refuse(v["t"]), v)[1]), "map", "below zero"),
    "an output behind it": (lambda by: by.agg(t=hg.sum("n")).map(unfit), "to", "set"),
    "a partial state of a pane": (
        lambda by: by.window(WINDOW, name="w").agg(t=hg.aggregate(int, add, both)),
        "by",
        "obj",
    ),
    "a state of a window": (lambda by: by.window(WINDOW, name="w").agg(t=hg.aggregate(int, add)), "w", "object"),
    "a session": (lambda by: by.window(hg.session("5s"), name="w").agg(t=hg.aggregate(int, add, both)), "w", "object"),
}


def send(d: Driver) -> None:
    d.send_all("in", [{"k": key, "n": n, "ts": 1000} for key, n in (("a", 1), ("bad", -5), ("b", 2))])
    d.drain()


@pytest.mark.parametrize("way", WAYS)
def test_the_record_is_left_out_and_its_letter_names_the_step(way: str) -> None:
    """The others count, also those of the same frame."""
    make, step, why = WAYS[way]
    app = hg.App("sales", on_error="dead_letter")
    make(app.input("in", key="k", timestamp="ts").repartition("k", name="by")).to("out")
    with Driver(app) as d:
        send(d)
        (letter,) = d.dead_letters()
        assert letter.topic in ("in", "sales-1-by")
        assert letter.step.startswith(step)
        assert why in letter.exception
        assert sorted(one.value["t"] for one in d.read("out")) == [1, 2]
        assert set(d.states.values()) == {"drained"}


@pytest.mark.parametrize("way", WAYS)
def test_by_default_the_task_fails_and_says_why(way: str) -> None:
    """With the words of the failure, not with those of a commit that was lost."""
    make, step, why = WAYS[way]
    app = hg.App("sales", settings={"error.retries": 0})
    make(app.input("in", key="k", timestamp="ts").repartition("k", name="by")).to("out")
    with Driver(app) as d, pytest.raises(hg.HeadgateError, match=rf"(?s){step}.*{why}"):
        send(d)
