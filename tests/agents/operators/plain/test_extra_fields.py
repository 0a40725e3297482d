"""`.columns(extra="keep")`: the fields that a type does not declare go through filters and added columns to the output, byte for byte."""

from __future__ import annotations

from typing import Any, TypedDict

import pytest

import headgate as hg
from headgate.agents.records.native import chosen
from headgate.agents.testing.driver import Driver


class Order(TypedDict):
    user: str
    amount: float
    ts: int
    country: str | None


FIRST = b'{"x": 1E+30, "user":"a","amount":12,"ts":1,"n":123456789012345678901234567890 }'
SMALL = b'{"user":"b","amount":1,"ts":2,"more":[1]}'
TOTAL = b'{"user":"c","total":{"old":1},"amount":20.0,"ts":3,"more":{"total":2}}'
PLAIN = b'{"user":"d","amount":30,"ts":4,"country":"DE"}'


def columns(**options: Any) -> hg.ColumnStream[Any, Order]:
    return hg.App("job", **options).input("orders", serde=hg.json(Order), timestamp="ts").columns(extra="keep")


def written(made: Any, *sent: Any) -> list[bytes]:
    app = made.app
    made.to("out")
    with Driver(app) as d:
        d.send_all("orders", sent)
        return [one.value for one in d.topics.drain("out")]


@pytest.fixture(params=[True, False], ids=["compiled", "plain"], autouse=True)
def _way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if not request.param:
        monkeypatch.setattr(chosen, "part", chosen.PLAIN)


def test_other_fields_pass_as_they_were_written() -> None:
    """Numbers of any length, blanks, nested values; what is added stands behind them."""
    big = columns().filter(hg.col("amount") >= 10)
    assert written(big, FIRST, SMALL, TOTAL, PLAIN) == [FIRST, TOTAL, PLAIN]
    big = columns().filter(hg.col("amount") >= 10).with_columns(total=hg.col("amount") * 2)
    assert written(big, FIRST, SMALL, TOTAL, PLAIN) == [
        b'{"x": 1E+30, "user":"a","amount":12,"ts":1,"n":123456789012345678901234567890,"total":24.0}',
        b'{"user":"c","amount":20.0,"ts":3,"more":{"total":2},"total":40.0}',
        b'{"user":"d","amount":30,"ts":4,"country":"DE","total":60.0}',
    ]


def test_a_column_that_is_replaced() -> None:
    """The record has the new value alone, and all other fields."""
    made = columns().with_columns(amount=hg.col("amount") + 1, total=0).with_columns(total=hg.col("amount"))
    assert written(made, SMALL, TOTAL) == [
        b'{"user":"b","ts":2,"more":[1],"amount":2.0,"total":2.0}',
        b'{"user":"c","ts":3,"more":{"total":2},"amount":21.0,"total":21.0}',
    ]


def test_without_it_only_declared_fields_pass() -> None:
    """As the type says."""
    app = hg.App("job")
    made = app.input("orders", serde=hg.json(Order)).columns()
    assert written(made, SMALL) == [b'{"user":"b","amount":1.0,"ts":2,"country":null}']


def test_branches_of_a_stream_that_keeps_all_fields() -> None:
    """What one of them adds is nothing to another; aggregates need no other fields."""
    orders = columns(on_bad_data="dead_letter")
    app = orders.app
    orders.with_columns(total=1).to("one")
    orders.with_columns(more=2).to("two")
    orders.repartition("user").agg(n=hg.count()).to("counts")
    with Driver(app) as d:
        d.send_all("orders", [TOTAL, b'{"user":"x"}'])
        assert [one.value for one in d.topics.drain("one")] == [
            b'{"user":"c","amount":20.0,"ts":3,"more":{"total":2},"total":1}'
        ]
        assert [one.value for one in d.topics.drain("two")] == [
            b'{"user":"c","total":{"old":1},"amount":20.0,"ts":3,"more":2}'
        ]
        assert [one.value for one in d.read("counts")] == [{"n": 1}]
        assert len(d.dead_letters()) == 1


def rows() -> hg.Stream[Any, Order]:
    return hg.App("job").input("orders", serde=hg.json(Order))


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (lambda: rows().map(dict).columns(Order, extra="keep"), "needs the bytes of an input"),
        (lambda: rows().columns(extra="all"), r"columns\(extra='all'\)"),
        (lambda: columns().rows(), r"rows\(\) .*declared columns alone.*extra='keep'"),
        (lambda: columns().frame(len, schema=Order), r"frame\(\) .*declared columns alone"),
        (lambda: columns().batch(max_rows=1), r"batch\(\) .*declared columns alone"),
        (lambda: columns().sink(print), r"sink\(\) .*declared columns alone"),
        (lambda: columns().window(hg.tumbling("1s"), late="late"), r"window\(late=…\) gets the declared columns alone"),
        (lambda: columns().repartition("user").window(hg.tumbling("1s"), late="late"), "declared columns alone"),
        (lambda: columns().repartition("user").to("out"), r"to\('out'\).*do not pass a repartition"),
        (lambda: columns().repartition("user").filter(hg.col("ts") > 0).rows(), "declared columns alone"),
        (lambda: columns().to("out", serde=hg.msgpack()), r"to\('out'\).*serde=hg.json\(\)"),
    ],
)
def test_a_wrong_declaration_is_refused_at_its_line(wrong: Any, said: str) -> None:
    """Where the other fields would be lost in silence."""
    with pytest.raises(hg.DeclarationError, match=said):
        wrong()
