"""The columns of a batch are declared: whatever its rows hold, it has these columns, and a row that does not fit is an error of its own."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any, TypedDict

import pytest

import headgate as hg
from headgate.agents.operators.batches import spark as batches
from headgate.agents.records.memory.vectors import Vector
from headgate.agents.testing import driver
from headgate.agents.testing.driver import Driver

from ...without_spark import Rows, WithoutSpark


class Amount(TypedDict):
    amount: int


class Lot(TypedDict):
    id: int
    note: str | None


class Share(TypedDict):
    share: float


@pytest.fixture(autouse=True)
def spark(monkeypatch: pytest.MonkeyPatch) -> WithoutSpark:
    """Each driver runs its stages here."""
    bridge = WithoutSpark()
    monkeypatch.setattr(driver, "_spark", lambda declared, session: bridge)
    return bridge


def same(rows: Rows, batch: Any) -> Rows:
    return rows


def job(rows: Any, *, most: int = 1000) -> hg.App:
    app = hg.App("sales", on_error="dead_letter")
    app.input("orders").batch(max_rows=most, name="lot").spark(same, rows=rows, schema="amount long").to("out")
    return app


def letters(d: Driver) -> list[tuple[str, bytes | None]]:
    return [(one.exception, one.value) for one in d.dead_letters()]


def test_the_first_row_decides_nothing() -> None:
    """It was the schema of the batch, so that 200 good rows behind it were dead letters, or lost under "skip"."""
    with Driver(job(Amount)) as d:
        d.send_all("orders", [{"amount": "x"}, *({"amount": n} for n in range(200))])
        d.drain()
        assert [one.value for one in d.read("out")] == [{"amount": n} for n in range(200)]
        (letter,) = d.dead_letters()
    assert (letter.value, letter.step) == (b'{"amount":"x"}', "lot")
    assert "the field 'amount' is 'x', not int64" in letter.exception


def test_no_later_row_can_fail_a_seal() -> None:
    """Two ordinary records stopped the job for ever: the first is stored, and the second one made of its column what cannot hold it."""
    with Driver(job(Lot)) as d:
        d.send("orders", {"id": 9007199254740993})
        d.advance("1s")
        d.send("orders", {"id": 1.5})
        d.advance("1s")
        d.drain()
        assert [one.value for one in d.read("out")] == [{"id": 9007199254740993, "note": None}]
        ((why, value),) = letters(d)
    assert value == b'{"id":1.5}'
    assert "1.5, not int64" in why


def test_every_batch_has_every_declared_column_and_no_other(spark: WithoutSpark) -> None:
    """An optional field that no row has, fields that nothing declares, and one whose name differs in its case alone."""
    with Driver(job(Lot, most=2)) as d:
        d.send_all("orders", [{"id": 1}, {"id": 2, "Id": 3, "ID": "x", "more": [1]}, {"id": 4, "note": "x"}])
        d.drain()
        assert [one.value["note"] for one in d.read("out")] == [None, None, "x"]
    assert spark.kinds == [{"id": "int64", "note": "string"}] * 2


def test_one_fraction_among_whole_numbers_is_an_error_of_its_row() -> None:
    """And a whole number among fractions is one of them."""
    with Driver(job(Amount)) as d:
        d.send_all("orders", [{"amount": 1}, {"amount": 1.5}, {"amount": 2}])
        d.drain()
        assert [one.value["amount"] for one in d.read("out")] == [1, 2]
        assert len(letters(d)) == 1
    with Driver(job(Share)) as d:
        d.send_all("orders", [{"share": 1}, {"share": 1.5}])
        d.drain()
        assert [one.value["share"] for one in d.read("out")] == [1.0, 1.5]


def test_names_that_records_bring_cost_nothing(spark: WithoutSpark, monkeypatch: pytest.MonkeyPatch) -> None:
    """40,000 names of 200 records blocked the loop for minutes: a table was made of them all. One column is made, and the rest is to read
    the records: 40 milliseconds here."""
    made: list[int] = []

    def counted(kind: Any, values: Any) -> Vector:
        made.append(len(values))
        return Vector.of(kind, values)

    monkeypatch.setattr(batches, "Vector", SimpleNamespace(of=counted))
    with Driver(job(Amount)) as d:
        rows = [{"amount": n, **{f"f{n}-{at}": at for at in range(200)}} for n in range(200)]
        before = time.process_time()
        d.send_all("orders", rows)
        d.drain()
        took = time.process_time() - before
        assert len(list(d.read("out"))) == 200
    assert spark.kinds == [{"amount": "int64"}]
    assert made == [200]
    assert took < 1


@pytest.mark.parametrize(
    ("policies", "letters_are"),
    [(["skip"], 0), (["dead_letter"], 1), (["dead_letter", "dead_letter"], 1), (["dead_letter", "skip"], 0)],
)
def test_the_policy_of_its_stages_decides_about_a_row_that_does_not_fit(policies: list[str], letters_are: int) -> None:
    """Where they differ, that of the app does."""
    app = hg.App("sales", on_error="skip")
    lots = app.input("orders").batch(max_rows=10, name="lot")
    for at, policy in enumerate(policies):
        lots.spark(same, rows=Amount, schema="amount long", name=f"stage-{at}", on_error=policy).to(f"out-{at}")
    with Driver(app) as d:
        d.send_all("orders", [{"amount": 1}, {"amount": None}, {"amount": 3}])
        d.drain()
        assert [one.value["amount"] for one in d.read("out-0")] == [1, 3]
        assert len(d.dead_letters()) == letters_are


def test_a_row_without_a_record_is_left_out_alone() -> None:
    """A sum of 64-bit numbers may have more bits, and a batch behind the window refuses that one result."""
    app = hg.App("sales", on_error="dead_letter")
    orders = app.input("orders", serde=hg.json(Lot)).repartition("note")
    sums = orders.window(hg.tumbling("1s")).agg(total=hg.sum("id"))
    sums.batch(max_rows=10, name="lot").spark(same, schema="total long").to("out")
    with Driver(app) as d:
        d.send_all("orders", [{"id": n, "note": str(n)} for n in (1, 2)])
        d.send_all("orders", [{"id": 2**62, "note": "x"} for _ in range(4)])
        d.drain()
        assert sorted(one.value["total"] for one in d.read("out")) == [1, 2]
        ((why, value),) = letters(d)
    assert b"18446744073709551616" in (value or b"")
    assert "more than 64 bits" in why


def test_null_values_are_no_rows() -> None:
    """A tombstone among them."""
    with Driver(job(Amount)) as d:
        d.send("orders", {"amount": 1})
        d.send("orders", None)
        d.drain()
        assert [one.value for one in d.read("out")] == [{"amount": 1}]
        ((why, value),) = letters(d)
    assert value is None
    assert "not an object with fields" in why
