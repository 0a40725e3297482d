"""Functions that fail on a row for which no record stands: a result of a window or of Spark, or a row whose wait for a partner is over.

They failed the task whatever `on_error` was, and such a row stays in the state: the task never came further, and no drain ended.
"""

from __future__ import annotations

from typing import Any, TypedDict

import orjson
import pytest

import headgate as hg
from headgate.agents.testing import driver
from headgate.agents.testing.driver import Driver

from ...without_spark import Rows, WithoutSpark


class Order(TypedDict):
    n: int


class Keyed(TypedDict):
    k: float | None
    n: int


def fussy(row: Any) -> Any:
    if row["n"] == 2:
        raise ValueError("two")
    return row


def counted(app: hg.App) -> hg.Stream[Any, Any]:
    """How many orders a country has: three results in one letter."""
    return app.input("orders", key="c", timestamp="ts").window(hg.tumbling("10s"), name="tens").agg(n=hg.count())


def send(d: Driver) -> None:
    for n, country in enumerate(("DE", "FR", "FR", "US", "US", "US"), 1):
        d.send("orders", {"c": country, "ts": n}, key=country)
    d.send("orders", {"c": "ZZ", "ts": 60_000}, key="ZZ")
    d.advance("1s")


VERBS: dict[str, Any] = {
    "map": lambda stream: stream.map(fussy).to("out"),
    "filter": lambda stream: stream.filter(lambda row: fussy(row) is row).to("out"),
    "flat_map": lambda stream: stream.flat_map(lambda row: iter([fussy(row)])).to("out"),
    "rekey": lambda stream: stream.rekey(lambda row: f"{fussy(row)['n']}").to("out"),
    "to": lambda stream: stream.to("out", key=lambda row: f"{fussy(row)['n']}"),
    "later": lambda stream: stream.map(dict).filter(len).map(fussy).to("out"),
}


@pytest.mark.parametrize("verb", VERBS)
def test_a_result_on_which_a_function_fails_is_left_out_alone(verb: str) -> None:
    """The others arrive once, in their order. Its dead letter is the result, for there is no record."""
    app = hg.App("sales", on_error="dead_letter")
    VERBS[verb](counted(app))
    with Driver(app) as d:
        send(d)
        assert [one.value["n"] for one in d.read("out")] == [1, 3]
        (letter,) = d.dead_letters()
        assert (letter.topic, letter.offset, letter.key, letter.exception) == ("orders", -1, b"FR", "ValueError: two")
        assert orjson.loads(letter.value or b"")["n"] == 2
        assert "fussy" in letter.traceback
        d.drain()
        assert set(d.states.values()) == {"drained"}


@pytest.mark.parametrize(
    ("policy", "letters"),
    [
        ("skip", 0),
        (lambda record, error: None, 0),
        (lambda record, error: "dead_letter" if (record.key, record.value["n"]) == ("FR", 2) else "fail", 1),
    ],
    ids=["skip", "nothing", "by case"],
)
def test_the_policy_of_the_step_decides_about_a_result(policy: Any, letters: int) -> None:
    """It gets the result as a record, and the error."""
    app = hg.App("sales")
    counted(app).map(fussy, on_error=policy).to("out")
    with Driver(app) as d:
        send(d)
        assert ([one.value["n"] for one in d.read("out")], len(d.dead_letters())) == ([1, 3], letters)


@pytest.mark.parametrize(
    ("policy", "words"),
    [("fail", "two"), (lambda record, error: "fail", "two"), (lambda record, error: "drop", "answered 'drop'")],
    ids=["fail", "case by case", "no answer"],
)
def test_a_result_that_is_to_fail_fails_the_task(policy: Any, words: str) -> None:
    """Nothing of the letter is kept."""
    app = hg.App("sales", on_error=policy)
    counted(app).map(fussy).to("out")
    with Driver(app) as d:
        with pytest.raises(Exception, match=words):
            send(d)
        assert d.read("out") == []


@pytest.mark.parametrize("policy", ["dead_letter", "skip"])
def test_what_is_left_out_of_a_letter_that_runs_again_is_counted_once(policy: Any) -> None:
    """Another step fails behind it, and the letter is repeated: it was one record that failed, and one letter."""
    calls: list[int] = []

    def fails_at_first(row: Any) -> Any:
        calls.append(row["n"])
        if len(calls) == 3:
            raise OSError("try again")
        return row

    app = hg.App("sales", settings={"error.retries": 2})
    results = counted(app)
    results.map(fussy, on_error=policy).to("out")
    results.map(fails_at_first).to("all")
    with Driver(app) as d:
        send(d)
        assert calls == [1, 2, 3, 1, 2, 3]
        assert [one.value["n"] for one in d.read("out")] == [1, 3]
        letters = len(d.dead_letters())
        assert letters == (policy == "dead_letter")
        assert d.counters["records_failed"] == 1
        assert (d.counters.get("dead_letters", 0), d.counters.get("records_skipped", 0)) == (letters, 1 - letters)


def test_rows_that_find_nothing_are_counted_once_though_their_chunk_fails() -> None:
    """The chunk runs again and again while the record that fails is looked for."""
    app = hg.App("sales", on_error="skip")
    names = app.input("names", key="c").table("names")
    app.input("more", key="c").join(names, into=lambda order, _: fussy(order)).to("more-out")
    with Driver(app) as d:
        d.send("names", {"c": "DE"}, key="DE")
        d.send_all("more", [hg.Record(c, {"c": c, "n": n}, 5) for n, c in enumerate(("DE", "FR", "DE", "FR", "DE"))])
        assert [one.value["n"] for one in d.read("more-out")] == [0, 4]
        assert (d.counters["join_misses"], d.counters["records_failed"]) == (2, 1)


def test_a_function_that_changes_tables_of_the_app_fails_the_task() -> None:
    """What a failed call has left in them could not be taken back for one row."""
    app = hg.App("sales", on_error="skip")
    seen = app.table("seen")

    def counting(row: Any) -> Any:
        seen["all"] = seen.get("all", 0) + 1
        return fussy(row)

    counted(app).map(counting).to("out")
    with Driver(app) as d, pytest.raises(hg.HeadgateError, match="two"):
        send(d)


def test_a_join_of_results_with_a_table_counts_each_of_them_once() -> None:
    """`into` fails on one, and another has no row."""
    app = hg.App("sales", on_error="dead_letter")
    names = app.input("names", key="c").table("names")
    counted(app).join(names, into=lambda row, name: fussy(row) | name).to("out")
    with Driver(app) as d:
        for country in ("DE", "FR"):
            d.send("names", {"c": country, "name": country.lower()}, key=country)
        send(d)
        assert [(one.value["n"], one.value["name"]) for one in d.read("out")] == [(1, "de")]
        assert len(d.dead_letters()) == 1
        assert d.counters["join_misses"] == 1


@pytest.mark.parametrize("end", ["watermark", "drain", "end"])
@pytest.mark.parametrize("policy", ["dead_letter", "skip"])
def test_a_row_without_a_partner_on_which_into_fails_is_left_out(policy: str, end: str) -> None:
    """The usual mistake: `into` takes a partner for granted. The row is as it was before the call changed it."""

    def paid(order: Any, payment: Any) -> Any:
        order["seen"] = True
        if order["id"] == "b":
            return {"id": order["id"], "paid": payment["amount"]}
        return {"id": order["id"], "paid": payment and payment["amount"]}

    app = hg.App("sales", on_error=policy)
    orders, payments = (app.input(name, key="id", timestamp="ts") for name in ("orders", "payments"))
    orders.join(payments, within="10s", how="left", into=paid).to("paid")
    with Driver(app) as d:
        for n, name in enumerate("abc"):
            d.send("orders", {"id": name, "ts": n}, key=name)
        if end == "watermark":
            for stream in ("orders", "payments"):
                d.send(stream, {"id": "z", "amount": 1, "ts": 90_000}, key="z")
            d.advance("1s")
        elif end == "drain":
            d.drain()
        else:
            d.end("orders")
            d.end("payments")
        found = [(one.key, one.value["paid"]) for one in d.read("paid") if one.key != "z"]
        assert found == [("a", None), ("c", None)]
        letters = [(one.step, one.key, orjson.loads(one.value or b"")) for one in d.dead_letters()]
        assert letters == ([] if policy == "skip" else [("join-10s", b"b", {"id": "b", "ts": 1})])
        d.restart()
        assert d.read("paid") == []


@pytest.mark.parametrize("verb", VERBS)
def test_a_result_of_spark_on_which_a_function_fails_is_left_out(verb: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where it is written from columns."""
    bridge = WithoutSpark()
    monkeypatch.setattr(driver, "_spark", lambda declared, session: bridge)

    def same(rows: Rows, batch: Any) -> Rows:
        return rows

    app = hg.App("sales", on_error="skip")
    VERBS[verb](app.input("orders").batch(max_rows=3).spark(same, rows=Order, schema="n long"))
    with Driver(app) as d:
        d.send_all("orders", [{"n": n} for n in (1, 2, 3)])
        assert [one.value["n"] for one in d.read("out")] == [1, 3]
        assert (d.counters["records_skipped"], d.counters["batches"]) == (1, 1)


def test_a_result_without_the_key_that_its_topic_needs_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is refused where columns are written, too."""
    bridge = WithoutSpark()
    monkeypatch.setattr(driver, "_spark", lambda declared, session: bridge)
    app = hg.App("sales", on_error="dead_letter")
    app.input("orders").batch(max_rows=3).spark(
        lambda rows, batch: rows, rows=Keyed, schema="k double, n long", name="same"
    ).to("out", key="k")
    with Driver(app) as d:
        d.send_all("orders", [{"k": k, "n": n} for n, k in enumerate((None, 1.5, None))])
        assert [one.value["n"] for one in d.read("out")] == [0, 2]
        (letter,) = d.dead_letters()
        assert orjson.loads(letter.value or b"") == {"k": 1.5, "n": 1}


def below(state: int) -> int:
    if state == 2:
        raise ValueError("two")
    return state


@pytest.mark.parametrize("window", [hg.tumbling("10s"), hg.hopping("10s", every="10s"), hg.session("5s")], ids=str)
@pytest.mark.parametrize("policy", ["dead_letter", "skip"])
def test_a_result_that_an_aggregate_cannot_make_is_left_out_alone(window: Any, policy: Any) -> None:
    """The function `result=` of the user runs when the window closes. It failed the task whatever `on_error` was, and no drain ended. The
    letter has the state, for there is no result."""
    app = hg.App("sales", on_error=policy)
    summed = hg.aggregate(int, lambda state, _: state + 1, lambda one, other: one + other, result=below)
    app.input("orders", key="c", timestamp="ts").window(window, name="tens").agg(n=summed).to("out")
    with Driver(app) as d:
        send(d)
        d.drain()
        assert set(d.states.values()) == {"drained"}
        assert [one.value["n"] for one in d.read("out")] == [1, 3, 1]
        assert d.counters["records_failed"] == 1
        letters = [
            (one.topic, one.offset, one.key, orjson.loads(one.value or b"")["n"], one.exception)
            for one in d.dead_letters()
        ]
    assert letters == ([("orders", -1, b"FR", 2, "ValueError: two")] if policy == "dead_letter" else [])


def test_by_default_such_a_result_fails_the_task_and_names_its_key_and_window() -> None:
    app = hg.App("sales", settings={"error.retries": 0})
    counts = hg.aggregate(int, lambda state, _: state + 1, result=below)
    app.input("orders", key="c", timestamp="ts").window(hg.tumbling("10s"), name="tens").agg(n=counts).to("out")
    with Driver(app) as d, pytest.raises(hg.HeadgateError, match=r"'tens'.*ValueError: two.*key.*FR.*window_start"):
        send(d)
