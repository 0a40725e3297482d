"""Values may define `==` as they like, as arrays of numpy do: no step compares them to find out whether they are None."""

from __future__ import annotations

from typing import Any, TypedDict

import headgate as hg
from headgate.agents.testing.driver import Driver


class Touchy(dict[str, Any]):
    """A value that cannot be compared."""

    __hash__ = None

    def __eq__(self, other: object) -> bool:
        raise AssertionError(f"compared with {other!r}")

    def __ne__(self, other: object) -> bool:
        raise AssertionError(f"compared with {other!r}")


class Order(TypedDict):
    k: str
    amount: int


def test_columns_of_such_values() -> None:
    app = hg.App("job")
    app.input("in").map(Touchy).columns(Order).filter(hg.col("amount") > 1).to("out")
    with Driver(app) as d:
        d.send("in", {"k": "a", "amount": 2})
        d.advance("1s")
        assert [one.value for one in d.read("out")] == [{"k": "a", "amount": 2}]


def test_a_join_of_such_values() -> None:
    app = hg.App("job")
    left, right = (app.input(topic, key="k").map(Touchy) for topic in ("left", "right"))
    left.join(right, within="10s", into=lambda a, b: [a["k"], b["amount"]]).to("out")
    with Driver(app) as d:
        d.send("left", {"k": "a"}, key="a")
        d.send("right", {"k": "a", "amount": 2}, key="a")
        d.advance("1s")
        assert [one.value for one in d.read("out")] == [["a", 2]]


def test_a_table_of_such_values() -> None:
    app = hg.App("job")
    app.input("in", key="k").map(Touchy).table("latest")
    with Driver(app) as d:
        d.send("in", {"k": "a", "amount": 2}, key="a")
        d.advance("1s")
        assert dict(d.table("latest"))["a"]["amount"] == 2
